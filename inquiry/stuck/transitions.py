"""The one writer of StuckTransition: episodes of stuck rules.

An episode is seen, raised and cleared; people can assign and snooze it.
A transition, its journal entry and its outbox row are one transaction: a crash leaves all or none,
and the next evaluation completes what is missing.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import OuterRef, Subquery

from inquiry.models import StuckTransition
from inquiry.sentences import Moment, Sentence
from inquiry.stuck.rules import VERSION, Reason
from journal import entries, outbox
from journal.clock import now_us
from journal.entries import SYSTEM_SOURCE, Draft
from journal.ids import uuid7
from journal.models import Body
from sessions.models import ENDED, Session
from sessions.people import pseudonym_of
from sessions.records import record
from sessions.refused import RefusedError

TOPIC: Final = "stuck"
AT_ONCE: Final = 500  # transitions in one transaction
LEAST_REASON: Final = 3
MOST_REASON: Final = 2000
LONGEST_SNOOZE_S: Final = 7 * 24 * 3600
OF_ONE_THING: Final = frozenset({"S4", "S6"})  # an effect, a gate
Key = tuple[str, UUID, int]  # rule, subject, epoch


class Seen(NamedTuple):
    """A rule that is true, with the ids to store."""

    project: UUID
    session: UUID | None
    reason: Reason

    @property
    def key(self) -> Key:
        """The identity of the episode."""
        return self.reason.rule, self.reason.subject, self.reason.epoch


def key_of(row: StuckTransition) -> Key:
    """Return the identity of a stored episode, as `Seen.key`."""
    return row.rule, row.subject, row.epoch


def of(project: UUID) -> list[StuckTransition]:
    """Load the open episodes of a project, oldest first, with the text of a snooze. One query."""
    rows = StuckTransition.objects.filter(project=project, cleared_us__isnull=True).select_related(
        "owner"
    )
    text = Subquery(Body.objects.filter(entry=OuterRef("snoozed_position")).values("text"))
    return list(rows.annotate(snoozed_text=text).order_by("since_us", "id"))


def see(held: Iterable[Seen], evaluation: int, at_us: int) -> None:
    """Store episodes that begin. Ignores those that another evaluation has stored."""
    rows = [
        StuckTransition(
            project_id=item.project,
            session_id=item.session,
            rule=item.reason.rule,
            subject=item.reason.subject,
            epoch=item.reason.epoch,
            since_us=item.reason.since_us,
            seen_us=at_us,
            seen_sweep=evaluation,
            says=as_json(item.reason.says),
        )
        for item in held
    ]
    StuckTransition.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)


def raise_(rows: Sequence[StuckTransition], at_us: int) -> int:
    """Raise episodes, each once: entry, row and outbox row together. Return how many it raised."""
    return sum(
        _transit(rows[n : n + AT_ONCE], "session.stuck", at_us)
        for n in range(0, len(rows), AT_ONCE)
    )


def clear(rows: Sequence[StuckTransition], at_us: int) -> int:
    """Clear raised episodes, each once. Return how many this call cleared."""
    return sum(
        _transit(rows[n : n + AT_ONCE], "session.recovered", at_us)
        for n in range(0, len(rows), AT_ONCE)
    )


@transaction.atomic
def _transit(rows: Sequence[StuckTransition], kind: str, at_us: int) -> int:
    raising = kind == "session.stuck"
    open_episodes = StuckTransition.objects.filter(
        id__in=[row.id for row in rows], cleared_us__isnull=True, raised_us__isnull=raising
    )
    locked = list(
        open_episodes.select_for_update(skip_locked=connection.vendor == "postgresql").order_by(
            "id"
        )
    )
    if not locked:
        return 0
    ended = {} if raising else _ended(locked)
    whys = ["" if raising else ended.get(row.session_id, PROGRESS) for row in locked]
    fates = entries.append(
        [_draft(row, kind, at_us, why) for row, why in zip(locked, whys, strict=True)], at_us
    )
    moved = 0
    for row, fate in zip(locked, fates, strict=True):
        # With a clock that was set back, `raised` must still not precede `seen`.
        values = {"raised": max(at_us, row.seen_us)} if raising else {"cleared": at_us}
        ((word, at),) = values.items()
        guard = {"cleared_us__isnull": True, "raised_us__isnull": raising}
        change: dict[str, Any] = {f"{word}_us": at, f"{word}_position": fate.position}
        moved += StuckTransition.objects.filter(id=row.id, **guard).update(**change)
        outbox.put(
            row.project_id,
            entry=fate.position,
            topic=TOPIC,
            deduplication_key=alert_key(row) if raising else f"recovered:{row.id.hex}",
            due_at_us=at_us,
        )
    return moved


def _ended(rows: Sequence[StuckTransition]) -> dict[UUID | None, str]:
    """Return how sessions ended, as the reason for clearing: a failed run made no progress."""
    sessions = Session.objects.filter(id__in={row.session_id for row in rows}, status__in=ENDED)
    return {
        session: f"session_{status}" for session, status in sessions.values_list("id", "status")
    }


PROGRESS: Final = "progress"  # reason for clearing an episode whose session continues


def alert_key(row: StuckTransition) -> str:
    """Return the deduplication key of an episode's alert."""
    return alert_of(row.session_id, row.subject, row.rule, row.epoch)


def alert_of(session: UUID | None, subject: UUID, rule: str, epoch: int) -> str:
    """Build the deduplication key of an alert.

    There is one per session, rule and epoch, however often the alert is raised. S10 has one per
    agent. S4 and S6 have one per effect or gate: a second unknown effect is news, and a session
    without a lease stays in epoch 0.
    """
    about = subject if session is None or rule in OF_ONE_THING else session
    return f"stuck:{about.hex}:{rule}:{epoch}"


def _draft(row: StuckTransition, kind: str, at_us: int, why: str) -> Draft:
    facts: dict[str, Any] = {
        "rule": row.rule,
        "rules": VERSION,
        "epoch": row.epoch,
        "since_us": row.since_us,
    }
    facts |= {"why": why} if why else {}
    text = orjson.dumps(
        {"kind": kind, "subject": row.subject, **facts}, option=orjson.OPT_SORT_KEYS
    ).decode()
    return Draft(
        project=row.project_id,
        source=SYSTEM_SOURCE,
        event_id=entries.keyed_digest(kind, row.id.hex),
        kind=kind,
        lane="system",
        actor=SYSTEM_SOURCE,
        text=text,
        facts=orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode(),
        session=row.session_id,
        subject=row.subject,
    )


def forget(rows: Collection[StuckTransition], at_us: int) -> None:
    """Delete episodes that ended before they were raised; no notification was sent."""
    if rows:
        unraised = StuckTransition.objects.filter(
            id__in=[row.id for row in rows], raised_us__isnull=True
        )
        unraised.filter(owner__isnull=True, snoozed_position__isnull=True).delete()
        # Rows with an owner or a snooze stay.
        unraised.filter(cleared_us__isnull=True).update(cleared_us=at_us)


def note(
    row: StuckTransition, *, says: Sentence | None = None, needs_person: bool | None = None
) -> None:
    """Store what an evaluation sees now and no deadline can reveal again."""
    change: dict[str, Any] = {} if says is None else {"says": as_json(says)}
    if needs_person is not None:
        change["needs_person"] = needs_person
    StuckTransition.objects.filter(id=row.id).update(**change)


@transaction.atomic(savepoint=False)
def assign(held: Seen, owner: User | None, reason: str, by: User) -> None:
    """Set the owner of an episode; None removes it. Raises RefusedError."""
    words = _checked(reason)
    row = _open(held)
    StuckTransition.objects.filter(id=row.id).update(owner=owner)
    facts = _facts(held) | {"person": pseudonym_of(owner) if owner is not None else None}
    _record("stuck.assigned", held, by, facts, words)


@transaction.atomic(savepoint=False)
def snooze(held: Seen, until_us: int | None, reason: str, by: User) -> None:
    """Snooze an episode until a moment; None ends the snooze.

    Raises RefusedError without a reason, or for an end in the past or more than seven days ahead.
    """
    words = _checked(reason)
    now = now_us()
    if until_us is not None and not now < until_us <= now + LONGEST_SNOOZE_S * 1_000_000:
        raise RefusedError("The snooze end is out of range. Choose one within seven days.")
    row = _open(held)
    position = _record("stuck.snoozed", held, by, _facts(held) | {"until_us": until_us}, words)
    by_whom = by if until_us is not None else None
    StuckTransition.objects.filter(id=row.id).update(
        snoozed_until_us=until_us, snoozed_by=by_whom, snoozed_position=position
    )


def _open(held: Seen) -> StuckTransition:
    """Lock the open episode; create it if no evaluation has stored it yet."""
    see([held], 0, now_us())
    rule, subject, epoch = held.key
    return StuckTransition.objects.select_for_update().get(
        rule=rule, subject=subject, epoch=epoch, cleared_us__isnull=True
    )


def _record(kind: str, held: Seen, by: User, facts: dict[str, Any], words: str) -> int:
    return record(
        held.project,
        kind,
        actor=pseudonym_of(by),
        subject=held.reason.subject,
        facts=facts,
        words={"reason": words, "id": uuid7().hex},
    )


def _facts(held: Seen) -> dict[str, Any]:
    return {"rule": held.reason.rule, "epoch": held.reason.epoch}


def _checked(reason: str) -> str:
    words = reason.strip()
    if not LEAST_REASON <= len(words) <= MOST_REASON:
        raise RefusedError(f"Enter a reason of {LEAST_REASON} to {MOST_REASON} characters.")
    return words


def as_json(says: Sentence) -> list[Any]:
    """Convert a sentence to JSON."""
    return [{"us": part.us} if isinstance(part, Moment) else part for part in says]


def as_sentence(says: Sequence[Any]) -> Sentence:
    """Convert JSON of `as_json` back to a sentence."""
    return [Moment(part["us"]) if isinstance(part, dict) else str(part) for part in says]
