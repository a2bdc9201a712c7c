"""The one writer of NotificationChannel: the addresses of notifications."""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from accounts.audit_log import record_admin_entry
from accounts.models import Project
from accounts.people import ensure_pseudonym
from approvals.gates.statuses import CHANNEL_KINDS, RISKS
from db.clock import now_us
from db.errors import ChangeRefused
from db.row_changes import RowChange, write_row_changes
from journal import entries
from notifications import outbound_http
from notifications.models import NotificationChannel

BODY_FORMS = ("plain", "cloudevents")
TOPIC_FLAGS = ("requests", "rulings", "expiries", "violations", "stuck")
_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


def derive_webhook_secret(channel: UUID) -> str:
    """Derive the secret that signs a webhook from the pepper; no table stores it."""
    return hmac.new(
        settings.GATEBOOK_PEPPER, b"webhook" + channel.bytes, hashlib.sha256
    ).hexdigest()


@transaction.atomic(savepoint=False)
def add_channel(
    project: Project,
    kind: str,
    target: str,
    user: User,
    *,
    person: User | None = None,
    minimum_risk: str = "low",
    body_form: str = "plain",
    **topics: bool,
) -> NotificationChannel:
    """Add a channel for `target` (an e-mail address or a URL). Raises ChangeRefused.

    `body_form` is `plain`, or `cloudevents` for a webhook that receives CloudEvents.
    `person` owns the address: they are also notified of decisions on their own requests and votes,
    and when their own sessions are stuck.
    """
    _validate_channel(kind, target, minimum_risk)
    if body_form not in BODY_FORMS or (body_form != "plain" and kind != "webhook"):
        raise ChangeRefused("Only a webhook can receive CloudEvents. Choose the kind webhook.")
    if person is not None and not project.memberships.filter(user=person).exists():
        raise ChangeRefused(
            f"{person.get_username()} is not a member of {project.name}. Choose a member."
        )
    standing = NotificationChannel.objects.filter(
        project=project, kind=kind, target=target, removed_at_us__isnull=True
    )
    if standing.exists():
        raise ChangeRefused(f"{target} is already a channel. Change it in the list.")
    channel = NotificationChannel(
        project=project,
        kind=kind,
        target=target,
        minimum_risk=minimum_risk,
        person=person,
        body_form=body_form,
    )
    channel.created_by, channel.created_at_us = user, now_us()
    for name in TOPIC_FLAGS:
        setattr(channel, name, topics.get(name, False))
    # The entry comes first: guards refuse a channel without one (channel_guards.py).
    _record_entry(channel, "admin.channel_added", ensure_pseudonym(user), {"target": channel.shown})
    try:
        channel.save(force_insert=True)
    except IntegrityError:
        raise ChangeRefused(f"{target} is already a channel. Change it in the list.") from None
    return channel


@transaction.atomic(savepoint=False)
def update_channel(channel: NotificationChannel, user: User, **values: bool | str) -> None:
    """Change topics, `minimum_risk` or `enabled` of a channel. Raises ChangeRefused."""
    settings_allowed = {*TOPIC_FLAGS, "minimum_risk", "enabled"}
    if values.get("minimum_risk", RISKS[0]) not in RISKS or values.keys() - settings_allowed:
        raise ChangeRefused("Unknown setting of a channel.")
    stored = _lock_channel(channel)
    if stored is not None:
        for name, value in values.items():
            setattr(stored, name, value)
        _record_entry(stored, "admin.channel_changed", ensure_pseudonym(user), {})
        stored.save(update_fields=list(values))
        channel.refresh_from_db()


@transaction.atomic(savepoint=False)
def retire_channel(channel: NotificationChannel, user: User) -> None:
    """Remove a channel; its notifications stay on record."""
    stored = _lock_channel(channel)
    if stored is not None:
        stored.enabled, stored.removed_at_us = False, now_us()
        _record_entry(stored, "admin.channel_removed", ensure_pseudonym(user), {})
        stored.save(update_fields=["enabled", "removed_at_us"])
        channel.refresh_from_db()


def _lock_channel(channel: NotificationChannel) -> NotificationChannel | None:
    rows = NotificationChannel.objects.select_for_update(of=("self",), no_key=True)
    return rows.filter(id=channel.id, removed_at_us__isnull=True).first()


def record_erased_channel(channel: UUID, *, actor: str) -> dict[str, object]:
    """Record that an erasure removes a channel's address; return the columns to set.

    The address goes with the row's update, in the same transaction.
    """
    stored = NotificationChannel.objects.select_for_update(of=("self",), no_key=True).get(
        id=channel
    )
    stored.enabled, stored.removed_at_us = False, now_us()
    _record_entry(stored, "admin.channel_removed", actor, {}, {"erased": 1})
    return {"enabled": False, "removed_at_us": stored.removed_at_us}


def restore_channels(changes: Sequence[RowChange]) -> None:
    """Restore channels to what the journal gives (manage.py rebuild)."""
    write_row_changes(NotificationChannel, changes)


def record_channel_test(channel: NotificationChannel, user: User) -> int:
    """Record the request for a test notification; return the position of the entry.

    ChangeRefused if the channel is off.
    """
    stored = _lock_channel(channel)
    if stored is None or not stored.enabled:
        raise ChangeRefused(f"{channel.shown} is off. Turn it on first.")
    return _record_entry(stored, "admin.channel_tested", ensure_pseudonym(user), {})


def _validate_channel(kind: str, target: str, minimum_risk: str) -> None:
    if kind not in CHANNEL_KINDS or minimum_risk not in RISKS:
        raise ChangeRefused(
            f"Unknown kind or risk. Use a kind of {', '.join(CHANNEL_KINDS)} "
            f"and a risk of {', '.join(RISKS)}."
        )
    try:
        if kind == "email":
            validate_email(target)
        else:
            outbound_http.parse_webhook_url(target)
    except ValidationError:
        raise ChangeRefused(
            "This is not an e-mail address. Enter one such as team@example.org."
        ) from None
    except outbound_http.AddressRefused as refused:
        raise ChangeRefused(str(refused)) from None


def digest_channel_target(target: str) -> str:
    """Return what an entry says of a channel's address, which is often a secret."""
    return entries.keyed_digest("channel", target)


def _record_entry(
    channel: NotificationChannel,
    kind: str,
    actor: str,
    words: Mapping[str, object],
    further: Mapping[str, int] = _NOTHING,
) -> int:
    facts: dict[str, str | int | None] = {
        **further,
        "kind": channel.kind,
        **({"body_form": channel.body_form} if channel.body_form != "plain" else {}),
        "minimum_risk": channel.minimum_risk,
        "enabled": int(channel.enabled),
        **{name: int(getattr(channel, name)) for name in TOPIC_FLAGS},
    }
    if kind == "admin.channel_added":
        facts |= {"target": digest_channel_target(channel.target), "at_us": channel.created_at_us}
    if channel.removed_at_us is not None:
        facts["removed_at_us"] = channel.removed_at_us
    if channel.person is not None:
        facts["person"] = ensure_pseudonym(channel.person)
    return record_admin_entry(
        channel.project_id,
        kind,
        actor=actor,
        subject=channel.id,
        facts=facts,
        words={**facts, **words},
    )
