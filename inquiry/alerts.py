"""The one writer of Alert and AlertChannel: which saved queries tell of new matches, to whom, and how far they looked.

What is told is an entry, a note to the outbox and the new place, in one transaction: a kill leaves all of it or
nothing, and of two who look at once one finds that the place has moved.
"""

from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from approvals.models_notices import NoticeChannel
from inquiry.models_alerts import Alert, AlertChannel
from inquiry.models_saved import SavedQuery
from journal import entries, outbox
from journal.clock import now_us
from journal.entries import SYSTEM_SOURCE
from sessions.models import Project
from sessions.people import pseudonym_of
from sessions.refused import RefusedError

MOST: Final = 20  # of one project
KNOWN: Final = 10_000  # rows that are remembered to match
FAILURES: Final = 3  # in a row, then it is stopped
FIRST: Final = 3  # handles that a notice names
RAISED: Final = "alert.raised"
STOPPED: Final = "alert.stopped"


@dataclass(frozen=True, slots=True)
class Start:
    """Where looking begins: nothing that is said up to `place`, and none of the rows that match already, is news."""

    text: str
    place: int
    at_us: int
    known: Sequence[int]


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found: `new` are positions of rows that match and did not before, newest first.

    `pinned` is the query as of that look, "" where it cannot be pinned; `more` when there are or may be more.
    """

    place: int
    at_us: int
    entity: str
    known: Sequence[int]
    new: Sequence[int] = field(default_factory=list)
    more: bool = False
    pinned: str = ""


def choosable(project: Project) -> "QuerySet[NoticeChannel]":
    """Channels that the owner of a shared query may let hear of it: the project's own, nobody's address."""
    known = NoticeChannel.objects.filter(
        project=project, person__isnull=True, removed_at_us__isnull=True
    )
    return known.order_by("kind", "target")


def hearers(saved: SavedQuery, chosen: Collection[UUID]) -> "QuerySet[NoticeChannel]":
    """Who hears of a query's matches now: its owner by their own addresses, and the chosen channels while it is shared.

    Nobody who is no member any more.
    """
    heard = Q(person=saved.owner_id, person__memberships__project=saved.project_id)
    if saved.shared:
        heard |= Q(pk__in=chosen, person__isnull=True)
    return NoticeChannel.objects.filter(heard, project=saved.project_id, enabled=True).distinct()


def chosen(alert: Alert) -> set[UUID]:
    """The channels that its owner chose."""
    return set(AlertChannel.objects.filter(alert=alert).values_list("channel", flat=True))


@transaction.atomic(savepoint=False)
def turn_on(saved: SavedQuery, owner: User, start: Start, wanted: Collection[UUID]) -> None:
    """Let it tell of what matches from `start` on; also once more after it was stopped. Raises RefusedError."""
    row = _lock(saved, owner)
    if row.text != start.text:
        raise RefusedError("The query was changed meanwhile; nothing was turned on. Open it again.")
    channels = (
        {one.pk for one in choosable(row.project) if one.pk in wanted} if row.shared else set()
    )
    if not hearers(row, channels).exists():
        raise RefusedError(
            "Nobody would hear of it: no address here is your own, and no channel that is on was chosen. An"
            " administrator adds addresses under Settings, Notices, and says there whose own they are."
        )
    if Alert.objects.filter(query=row, stopped_at_us__isnull=True).exists():
        raise RefusedError(
            "Its alerts are on already. Turn them off first to let other channels hear of it."
        )
    others = Alert.objects.filter(project=row.project_id).exclude(query=row)
    if others.count() >= MOST:
        raise RefusedError(
            f"{MOST} saved queries of this project tell of matches already. Turn one of them off first."
        )
    Alert.objects.filter(query=row).delete()
    made = Alert.objects.create(
        project=row.project,
        query=row,
        text=start.text,
        place=start.place,
        looked_at_us=start.at_us,
        known=array("q", start.known).tobytes(),
        turned_on_at_us=start.at_us,
    )
    AlertChannel.objects.bulk_create(
        AlertChannel(alert=made, channel_id=pk) for pk in sorted(channels)
    )
    _record(
        made,
        "alert.turned_on",
        {"place": start.place, "channels": len(channels)},
        actor=pseudonym_of(owner),
    )


@transaction.atomic(savepoint=False)
def turn_off(saved: SavedQuery, owner: User) -> bool:
    """Tell nothing any more; False when nothing was told anyhow. Raises RefusedError."""
    alert = Alert.objects.filter(query=_lock(saved, owner)).first()
    if alert is None:
        return False
    _record(alert, "alert.turned_off", {"place": alert.place}, actor=pseudonym_of(owner))
    alert.delete()
    return True


@transaction.atomic
def looked(alert: Alert, look: Look) -> bool:
    """Move its place and tell of what is new. False when it was turned off, or another looked: nothing is told."""
    values: dict[str, Any] = {"place": look.place, "looked_at_us": look.at_us, "failures": 0}
    known = array("q", look.known).tobytes()
    if known != bytes(alert.known):
        values["known"] = known
    if not _mine(alert).update(looks=alert.looks + 1, **values):
        return False
    if look.new:
        facts = {
            "entity": look.entity,
            "found": len(look.new),
            "more": look.more,
            "first": list(look.new[:FIRST]),
            "from": alert.place,
            "upto": look.place,
        }
        position = _record(
            alert, RAISED, facts, q=alert.text, name=alert.query.name, pinned=look.pinned
        )
        Alert.objects.filter(pk=alert.pk).update(told_position=position)
        _tell(alert, position, RAISED)
    return True


@transaction.atomic
def begin_again(alert: Alert, start: Start) -> None:
    """Go on with the query as it was changed: from the present on, by what matches it already."""
    _mine(alert).update(
        looks=alert.looks + 1,
        text=start.text,
        place=start.place,
        looked_at_us=start.at_us,
        failures=0,
        known=array("q", start.known).tobytes(),
    )


@transaction.atomic
def failed(alert: Alert, because: str) -> None:
    """A look that could not be made: tried again by the next run, and stopped after FAILURES of them in a row."""
    if alert.failures + 1 >= FAILURES:
        stop(alert, because)
    else:
        _mine(alert).update(looks=alert.looks + 1, failures=alert.failures + 1)


@transaction.atomic
def stop(alert: Alert, because: str) -> None:
    """Look at it no more until its owner turns it on again, and let those who hear of it hear that, once."""
    if _mine(alert).update(
        looks=alert.looks + 1, stopped_at_us=now_us(), stopped_because=because[:300]
    ):
        words = {"q": alert.text, "name": alert.query.name, "because": because[:300]}
        _tell(alert, _record(alert, STOPPED, {"place": alert.place}, **words), STOPPED)


def _mine(alert: Alert) -> "QuerySet[Alert]":
    return Alert.objects.filter(pk=alert.pk, looks=alert.looks, stopped_at_us__isnull=True)


def _lock(saved: SavedQuery, owner: User) -> SavedQuery:
    row = SavedQuery.objects.select_for_update().filter(pk=saved.pk, owner=owner).first()
    if row is None:
        raise RefusedError("Only its owner turns its alerts on or off, and the query may be gone.")
    return row


def _tell(alert: Alert, position: int, kind: str) -> None:
    key = f"{kind}:{alert.pk.hex}:{alert.looks + 1}"
    outbox.put(
        alert.project_id, entry=position, topic="alert", deduplication_key=key, due_at_us=now_us()
    )


def _record(
    alert: Alert, kind: str, facts: dict[str, Any], actor: str = SYSTEM_SOURCE, **words: str
) -> int:
    return entries.record(
        alert.project_id,
        kind,
        event_id=entries.keyed_digest(kind, alert.pk.hex, str(alert.looks)),
        text=orjson.dumps({"kind": kind, **facts, **words}, option=orjson.OPT_SORT_KEYS).decode(),
        received_us=now_us(),
        actor=actor,
        facts=orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode(),
        subject=alert.query_id,
    ).position


def known(alert: Alert) -> "array[int]":
    """The positions of rows that were seen to match, those seen last at the end."""
    return array("q", bytes(alert.known))


def remembered(
    known_before: Iterable[int], of: Collection[int], matching: Sequence[int]
) -> list[int]:
    """What is known after a look that judged the rows at the positions `of`, of which those in `matching` match."""
    dropped = {*of, *matching}
    kept = [one for one in known_before if one not in dropped]
    return [*kept, *sorted(matching)][-KNOWN:]
