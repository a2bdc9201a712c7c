"""The one writer of NotificationChannel: the addresses of notifications."""

import hashlib
import hmac
from collections.abc import Mapping
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
from notifications import outbound_http
from notifications.models import NotificationChannel

BODY_FORMS = ("plain", "cloudevents")
TOPIC_FLAGS = ("requests", "rulings", "expiries", "violations", "stuck")


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
    try:
        channel.save(force_insert=True)
    except IntegrityError:
        raise ChangeRefused(f"{target} is already a channel. Change it in the list.") from None
    _record_entry(channel, "admin.channel_added", user, {"target": channel.shown})
    return channel


@transaction.atomic(savepoint=False)
def update_channel(channel: NotificationChannel, user: User, **values: bool | str) -> None:
    """Change topics, `minimum_risk` or `enabled` of a channel. Raises ChangeRefused."""
    settings_allowed = {*TOPIC_FLAGS, "minimum_risk", "enabled"}
    if values.get("minimum_risk", RISKS[0]) not in RISKS or values.keys() - settings_allowed:
        raise ChangeRefused("Unknown setting of a channel.")
    if NotificationChannel.objects.filter(id=channel.id, removed_at_us__isnull=True).update(
        **values
    ):
        channel.refresh_from_db()
        _record_entry(channel, "admin.channel_changed", user, {})


@transaction.atomic(savepoint=False)
def retire_channel(channel: NotificationChannel, user: User) -> None:
    """Remove a channel; its notifications stay on record."""
    if NotificationChannel.objects.filter(id=channel.id, removed_at_us__isnull=True).update(
        removed_at_us=now_us(), enabled=False
    ):
        channel.refresh_from_db()
        _record_entry(channel, "admin.channel_removed", user, {})


def record_channel_test(channel: NotificationChannel, user: User) -> int:
    """Record the request for a test notification; return the position of the entry."""
    return _record_entry(channel, "admin.channel_tested", user, {})


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


def _record_entry(
    channel: NotificationChannel, kind: str, user: User, words: Mapping[str, object]
) -> int:
    facts: dict[str, str | int | None] = {
        "kind": channel.kind,
        **({"body_form": channel.body_form} if channel.body_form != "plain" else {}),
        "minimum_risk": channel.minimum_risk,
        "enabled": int(channel.enabled),
        **{name: int(getattr(channel, name)) for name in TOPIC_FLAGS},
    }
    if channel.person is not None:
        facts["person"] = ensure_pseudonym(channel.person)
    return record_admin_entry(
        channel.project_id,
        kind,
        actor=ensure_pseudonym(user),
        subject=channel.id,
        facts=facts,
        words={**facts, **words},
    )
