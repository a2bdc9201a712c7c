"""The only writer of NoticeChannel, the addresses of notifications."""

import hashlib
import hmac
from collections.abc import Mapping
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from approvals import outside
from approvals.models_notices import NoticeChannel
from approvals.states import CHANNEL_KINDS, RISKS
from journal.clock import now_us
from sessions.models import Project
from sessions.people import pseudonym_of
from sessions.records import record
from sessions.refused import RefusedError

SWITCHES = ("requests", "rulings", "expiries", "breaches", "stuck")


def secret_of(channel: UUID) -> str:
    """Derive the secret that signs a webhook from the pepper; no table stores it."""
    return hmac.new(
        settings.GATEBOOK_PEPPER, b"webhook" + channel.bytes, hashlib.sha256
    ).hexdigest()


@transaction.atomic(savepoint=False)
def add(
    project: Project,
    kind: str,
    target: str,
    user: User,
    *,
    person: User | None = None,
    minimum_risk: str = "low",
    **topics: bool,
) -> NoticeChannel:
    """Add a channel for `target` (an e-mail address or a URL). Raises RefusedError.

    `person` owns the address: they are also notified of decisions on their own requests and votes,
    and when their own sessions are stuck.
    """
    _validate_channel(kind, target, minimum_risk)
    if person is not None and not project.memberships.filter(user=person).exists():
        raise RefusedError(
            f"{person.get_username()} is not a member of {project.name}. Choose a member."
        )
    standing = NoticeChannel.objects.filter(
        project=project, kind=kind, target=target, removed_at_us__isnull=True
    )
    if standing.exists():
        raise RefusedError(f"{target} is already a channel. Change it in the list.")
    channel = NoticeChannel(
        project=project, kind=kind, target=target, minimum_risk=minimum_risk, person=person
    )
    channel.created_by, channel.created_at_us = user, now_us()
    for name in SWITCHES:
        setattr(channel, name, topics.get(name, False))
    try:
        channel.save(force_insert=True)
    except IntegrityError:
        raise RefusedError(f"{target} is already a channel. Change it in the list.") from None
    _record_entry(channel, "admin.channel_added", user, {"target": channel.shown})
    return channel


@transaction.atomic(savepoint=False)
def change(channel: NoticeChannel, user: User, **values: bool | str) -> None:
    """Change topics, `minimum_risk` or `enabled` of a channel. Raises RefusedError."""
    settings_allowed = {*SWITCHES, "minimum_risk", "enabled"}
    if values.get("minimum_risk", RISKS[0]) not in RISKS or values.keys() - settings_allowed:
        raise RefusedError("Unknown setting of a channel.")
    if NoticeChannel.objects.filter(id=channel.id, removed_at_us__isnull=True).update(**values):
        channel.refresh_from_db()
        _record_entry(channel, "admin.channel_changed", user, {})


@transaction.atomic(savepoint=False)
def remove(channel: NoticeChannel, user: User) -> None:
    """Remove a channel; its notifications stay on record."""
    if NoticeChannel.objects.filter(id=channel.id, removed_at_us__isnull=True).update(
        removed_at_us=now_us(), enabled=False
    ):
        channel.refresh_from_db()
        _record_entry(channel, "admin.channel_removed", user, {})


def noted_test(channel: NoticeChannel, user: User) -> int:
    """Record the request for a test notification; return the position of the entry."""
    return _record_entry(channel, "admin.channel_tested", user, {})


def _validate_channel(kind: str, target: str, minimum_risk: str) -> None:
    if kind not in CHANNEL_KINDS or minimum_risk not in RISKS:
        raise RefusedError(
            f"Unknown kind or risk. Use a kind of {', '.join(CHANNEL_KINDS)} "
            f"and a risk of {', '.join(RISKS)}."
        )
    try:
        if kind == "email":
            validate_email(target)
        else:
            outside.read(target)
    except ValidationError:
        raise RefusedError(
            "This is not an e-mail address. Enter one such as team@example.org."
        ) from None
    except outside.Refused as refused:
        raise RefusedError(str(refused)) from None


def _record_entry(
    channel: NoticeChannel, kind: str, user: User, words: Mapping[str, object]
) -> int:
    facts: dict[str, str | int | None] = {
        "kind": channel.kind,
        "minimum_risk": channel.minimum_risk,
        "enabled": int(channel.enabled),
        **{name: int(getattr(channel, name)) for name in SWITCHES},
    }
    if channel.person is not None:
        facts["person"] = pseudonym_of(channel.person)
    return record(
        channel.project_id,
        kind,
        actor=pseudonym_of(user),
        subject=channel.id,
        facts=facts,
        words={**facts, **words},
    )
