"""The one writer of Alert and AlertChannel: recipients, progress and results.

A report is a journal entry, an outbox row and the new position in one transaction: a crash leaves
all or nothing, and of two concurrent checks only one succeeds.
"""

from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from accounts.models import Project
from accounts.people import ensure_pseudonym
from db.clock import now_us
from db.errors import ChangeRefused
from investigation.models import Alert, AlertChannel, SavedQuery
from journal import entries, outbox
from journal.entries import SYSTEM_SOURCE
from notifications.models import NotificationChannel

MAX_ALERTS: Final = 20  # alerts per project
MAX_KNOWN: Final = 10_000  # matching rows remembered per alert
MAX_FAILURES: Final = 3  # consecutive failures that stop an alert
MAX_HANDLES: Final = 3  # handles in a notification
RAISED: Final = "alert.raised"
STOPPED: Final = "alert.stopped"


@dataclass(frozen=True, slots=True)
class AlertStart:
    """Starting point of an alert: position, time, and the rows that match already."""

    text: str
    place: int
    at_us: int
    matched_positions: Sequence[int]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check: `new` are positions of newly matching rows, newest first.

    `pinned` is the query fixed to this check, "" if it cannot be pinned; `more` if there may be
    more matches.
    """

    place: int
    at_us: int
    entity: str
    matched_positions: Sequence[int]
    new: Sequence[int] = field(default_factory=list)
    more: bool = False
    pinned: str = ""


def selectable_channels(project: Project) -> "QuerySet[NotificationChannel]":
    """Query the channels that a shared query can notify: the project's own, not personal ones."""
    channels = NotificationChannel.objects.filter(
        project=project, person__isnull=True, removed_at_us__isnull=True
    )
    return channels.order_by("kind", "target")


def alert_recipients(
    saved: SavedQuery, chosen: Collection[UUID]
) -> "QuerySet[NotificationChannel]":
    """Query the current recipients: the owner's addresses, and chosen channels while it is shared.

    Owners who left the project are excluded.
    """
    recipients = Q(person=saved.owner_id, person__memberships__project=saved.project_id)
    if saved.shared:
        recipients |= Q(pk__in=chosen, person__isnull=True)
    return NotificationChannel.objects.filter(
        recipients, project=saved.project_id, enabled=True
    ).distinct()


def chosen_channels(alert: Alert) -> set[UUID]:
    """Return the channels that the owner chose."""
    return set(AlertChannel.objects.filter(alert=alert).values_list("channel", flat=True))


@transaction.atomic(savepoint=False)
def turn_on_alerts(
    saved: SavedQuery, owner: User, start: AlertStart, wanted: Collection[UUID]
) -> None:
    """Turn alerts on from `start`, also after a stop. Raises ChangeRefused."""
    row = _lock_query(saved, owner)
    if row.text != start.text:
        raise ChangeRefused(
            "The query changed while you edited; alerts are still off. Reload the page."
        )
    channels = (
        {channel.pk for channel in selectable_channels(row.project) if channel.pk in wanted}
        if row.shared
        else set()
    )
    if not alert_recipients(row, channels).exists():
        raise ChangeRefused(
            "No recipient: you have no notification address and no active channel is selected."
            " An administrator can add addresses under Settings, Notifications."
        )
    if Alert.objects.filter(query=row, stopped_at_us__isnull=True).exists():
        raise ChangeRefused("Alerts are already on. To change channels, turn them off first.")
    other_alerts = Alert.objects.filter(project=row.project_id).exclude(query=row)
    if other_alerts.count() >= MAX_ALERTS:
        raise ChangeRefused(
            f"This project already has {MAX_ALERTS} queries with alerts. Turn one of them off "
            "first."
        )
    Alert.objects.filter(query=row).delete()
    made = Alert.objects.create(
        project=row.project,
        query=row,
        text=start.text,
        place=start.place,
        checked_at_us=start.at_us,
        matched_positions=array("q", start.matched_positions).tobytes(),
        turned_on_at_us=start.at_us,
    )
    AlertChannel.objects.bulk_create(
        AlertChannel(alert=made, channel_id=pk) for pk in sorted(channels)
    )
    _record_alert(
        made,
        "alert.turned_on",
        {"place": start.place, "channels": len(channels)},
        actor=ensure_pseudonym(owner),
    )


@transaction.atomic(savepoint=False)
def turn_off_alerts(saved: SavedQuery, owner: User) -> bool:
    """Turn alerts off; return False if they were off. Raises ChangeRefused."""
    alert = Alert.objects.filter(query=_lock_query(saved, owner)).first()
    if alert is None:
        return False
    _record_alert(alert, "alert.turned_off", {"place": alert.place}, actor=ensure_pseudonym(owner))
    alert.delete()
    return True


@transaction.atomic
def store_check(alert: Alert, look: CheckResult) -> bool:
    """Store a check and report new matches.

    Return False without reporting if the alert was turned off or another check came first.
    """
    values: dict[str, Any] = {"place": look.place, "checked_at_us": look.at_us, "failures": 0}
    known_bytes = array("q", look.matched_positions).tobytes()
    if known_bytes != bytes(alert.matched_positions):
        values["matched_positions"] = known_bytes
    if not _unchanged(alert).update(checks=alert.checks + 1, **values):
        return False
    if look.new:
        facts = {
            "entity": look.entity,
            "found": len(look.new),
            "more": look.more,
            "first": list(look.new[:MAX_HANDLES]),
            "from": alert.place,
            "upto": look.place,
        }
        position = _record_alert(
            alert, RAISED, facts, q=alert.text, name=alert.query.name, pinned=look.pinned
        )
        Alert.objects.filter(pk=alert.pk).update(reported_position=position)
        _enqueue_notification(alert, position, RAISED)
    return True


@transaction.atomic
def restart_alert(alert: Alert, start: AlertStart) -> None:
    """Continue with the changed query from now; present matches are not new."""
    _unchanged(alert).update(
        checks=alert.checks + 1,
        text=start.text,
        place=start.place,
        checked_at_us=start.at_us,
        failures=0,
        matched_positions=array("q", start.matched_positions).tobytes(),
    )


@transaction.atomic
def record_failure(alert: Alert, because: str) -> None:
    """Record a failed check; the next run retries, and MAX_FAILURES in a row stop the alert."""
    if alert.failures + 1 >= MAX_FAILURES:
        stop_alert(alert, because)
    else:
        _unchanged(alert).update(checks=alert.checks + 1, failures=alert.failures + 1)


@transaction.atomic
def stop_alert(alert: Alert, because: str) -> None:
    """Stop an alert until its owner turns it on again, and notify its recipients once."""
    if _unchanged(alert).update(
        checks=alert.checks + 1, stopped_at_us=now_us(), stopped_because=because[:300]
    ):
        words = {"q": alert.text, "name": alert.query.name, "because": because[:300]}
        _enqueue_notification(
            alert, _record_alert(alert, STOPPED, {"place": alert.place}, **words), STOPPED
        )


def _unchanged(alert: Alert) -> "QuerySet[Alert]":
    return Alert.objects.filter(pk=alert.pk, checks=alert.checks, stopped_at_us__isnull=True)


def _lock_query(saved: SavedQuery, owner: User) -> SavedQuery:
    row = SavedQuery.objects.select_for_update().filter(pk=saved.pk, owner=owner).first()
    if row is None:
        raise ChangeRefused("You do not own this query, or it was deleted. Reload the page.")
    return row


def _enqueue_notification(alert: Alert, position: int, kind: str) -> None:
    key = f"{kind}:{alert.pk.hex}:{alert.checks + 1}"
    outbox.queue_delivery(
        alert.project_id, entry=position, topic="alert", deduplication_key=key, due_at_us=now_us()
    )


def _record_alert(
    alert: Alert, kind: str, facts: dict[str, Any], actor: str = SYSTEM_SOURCE, **words: str
) -> int:
    return entries.record_system_entry(
        alert.project_id,
        kind,
        event_id=entries.keyed_digest(kind, alert.pk.hex, str(alert.checks)),
        text=entries.dump_sorted_json({"kind": kind, **facts, **words}),
        received_us=now_us(),
        actor=actor,
        facts=entries.dump_sorted_json(facts),
        subject=alert.query_id,
    ).position


def known_positions(alert: Alert) -> "array[int]":
    """Return the positions of rows known to match, most recent last."""
    return array("q", bytes(alert.matched_positions))


def merge_known(
    known_before: Iterable[int], of: Collection[int], matching: Sequence[int]
) -> list[int]:
    """Return the matched positions after a check of the rows at `of`; `matching` of them match."""
    dropped = {*of, *matching}
    kept = [position for position in known_before if position not in dropped]
    return [*kept, *sorted(matching)][-MAX_KNOWN:]
