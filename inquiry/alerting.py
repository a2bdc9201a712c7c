"""The chore that asks watched queries for matches that are new since the last look. It writes by inquiry/alerts.py.

New is a row that matches and did not when it was last looked at. Rows can come to match in two ways, and both are
looked for: the journal said something of them (whatever is settled since the place of the last look), or time alone
made them match, as a deadline that passed. Of the second kind are those which match as of now and would not, with the
columns they have now, as of the last look's moment.

A row that matched when the alerts were turned on, or was told of, is remembered as long as it matches: it is told of
once, and again when it has ceased to match and comes back. What matched only between two looks is not told of.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import structlog
from django.conf import settings
from django.core.exceptions import EmptyResultSet, FullResultSet
from django.db.models import QuerySet

from inquiry import alerts, exporting, patience, pinned
from inquiry.alerts import Look, Start
from inquiry.models_alerts import Alert
from inquiry.models_saved import SavedQuery
from inquiry.progress import REPEATS, WORDS
from inquiry.query import asking, reading, values
from inquiry.query.asking import Asked
from inquiry.query.entities import Entity
from inquiry.query.fields import NOTHING, Context
from inquiry.query.kinds import Several, Time
from inquiry.query.tree import Fault, Node, Term, Words
from inquiry.stuck import pulses
from inquiry.words import indexing
from journal import beating, horizon
from journal.clock import now_us
from journal.models import Entry
from sessions.models import Membership
from sessions.refused import RefusedError

log = structlog.get_logger("gatebook.alerts")
NAME: Final = "alerts"
EVERY_S: Final = 60
MOMENT_S: Final = 10.0  # of one run by the job worker, after which it begins no other look
SPAN: Final = 100_000  # positions that one look reads on
_CHUNK: Final = 5_000  # rows judged by one statement
# By what column an entry names rows of an entity, and which column of the row that is. An effect's gates are told of
# by entries of the effect.
_SAID_BY: Final = {
    "effect": ("effect", "pk"),
    "session": ("session", "pk"),
    "gate": ("effect", "effect__id"),
    "exemption": ("subject", "pk"),
}
_LOOKS: Final = (
    "access.searched",
    "access.viewed",
    "access.exported",
)  # change nothing about what is looked at
_OURS: Final = (alerts.RAISED, alerts.STOPPED)  # an alert of these would raise itself for ever


class _LateError(Exception):
    """An index by which the query is answered is too far behind: the look waits for it, and nothing is moved."""


@dataclass(slots=True)
class Ran:
    """What one run did: looks that were made, and how many of them told of something."""

    looks: int = 0
    told: int = 0


@dataclass(slots=True)
class _Said:
    """Rows of which the journal said something, read once for all queries that come from the same place."""

    rows: dict[tuple[UUID, str, int, int], list[tuple[Any, int]]] = field(default_factory=dict)

    def of(self, asked: Asked, place: int, until: int) -> list[tuple[Any, int]]:
        """Ids and positions of the project's rows."""
        project, entity = asked.context.project, asked.entity
        key = (project.id, entity.name, place, until)
        if key not in self.rows:
            named_by, column = _SAID_BY[entity.name]
            told = Entry.objects.filter(project=project.id, position__gt=place, position__lte=until)
            told = told.filter(**{f"{named_by}__isnull": False}).exclude(kind__in=_LOOKS)
            ids = list(told.order_by().values_list(named_by, flat=True).distinct())
            found: list[tuple[Any, int]] = []
            for part in _parts(ids):
                rows = entity.of(project).filter(**{f"{column}__listed": part})
                found += rows.values_list("pk", "opened_position")
            self.rows[key] = found
        return self.rows[key]


@beating.watched(NAME)
def run(most_s: float = MOMENT_S) -> Ran:
    """Look once at every query whose alerts are on, for `most_s` seconds at most; the next run begins with the rest."""
    pulses.beat(NAME, usual_s=EVERY_S)
    ends, settled, said, done = time.monotonic() + most_s, horizon.last_position(), _Said(), Ran()
    waiting = Alert.objects.filter(stopped_at_us__isnull=True).order_by(
        "failures", "looked_at_us", "id"
    )
    for pk in list(waiting.values_list("pk", flat=True)):
        if time.monotonic() > ends:
            break
        alert = Alert.objects.select_related("query__project", "query__owner").filter(pk=pk).first()
        if alert is None or alert.stopped_at_us is not None:
            continue
        done.looks += 1
        try:
            done.told += _look(alert, settled, said)
        except Exception as error:  # one query must not keep the others from being asked
            log.exception("alert_failed", alert=str(alert.pk), error=type(error).__name__)
            alerts.failed(
                alert,
                f"It could not be asked ({type(error).__name__}); the operator's log says more.",
            )
    return done


def start(saved: SavedQuery) -> Start:
    """Where alerts of a query begin that are turned on now. Raises RefusedError when it cannot have any."""
    try:
        with patience.limit(saved.owner_id, in_turn=True):
            return _start(saved)
    except Fault as fault:
        raise RefusedError(fault.sentence) from None
    except _LateError as late:
        raise RefusedError(f"{late} Turn its alerts on when they are indexed.") from None
    except patience.TooMany:
        raise RefusedError(
            "Too many searches are under way. Turn its alerts on in a moment."
        ) from None
    except patience.Overran:
        raise RefusedError(_too_slow()) from None


def _start(saved: SavedQuery) -> Start:
    at_us, place = now_us(), horizon.last_position()
    asked = _understand(saved.text, saved, at_us)
    late = [one for one in exporting.late(asked) if one.missing > indexing.FRESH]
    if late:
        raise _LateError(late[0].note)
    found: list[tuple[Any, ...]] = []
    if asked.entity.name != "event":  # entries come once
        found, _more = asking.newest_first(asked, ("opened_position",), alerts.KNOWN)
    return Start(saved.text, _settled(asked, place), at_us, [row[0] for row in reversed(found)])


def _understand(text: str, saved: SavedQuery, at_us: int) -> Asked:
    asked = asking.understand(text, saved.project, at_us)
    if asked.query.grouping is not None:
        raise Fault(
            0,
            len(text),
            "Groups are made anew each time, and none of them is new. Save the query without |.",
        )
    if asked.query.asof is not None:
        raise Fault(
            0, len(text), "As of a moment nothing new ever matches. Save the query without asof:."
        )
    return asked


def _look(alert: Alert, settled: int, said: _Said) -> bool:
    saved = alert.query
    members = Membership.objects.filter(
        user=saved.owner_id, user__is_active=True, project=saved.project_id
    )
    if not members.exists():
        alerts.stop(alert, "Its owner does not belong to the project any more.")
        return False
    try:
        with patience.in_time():
            if saved.text != alert.text:
                begun, look = _start(saved), None
            else:
                begun, look = None, _judged(alert, settled, said)
    except _LateError as late:
        log.info("alert_waits", alert=str(alert.pk), because=str(late))
        return False
    except Fault as fault:
        alerts.stop(alert, fault.sentence)
        return False
    except patience.Overran:
        log.warning(
            "alert_overran", alert=str(alert.pk), limit_s=settings.GATEBOOK_SEARCH_TIMEOUT_S
        )
        alerts.failed(alert, _too_slow())
        return False
    if begun is not None:
        alerts.begin_again(alert, begun)
    return look is not None and alerts.looked(alert, look) and bool(look.new)


def _judged(alert: Alert, settled: int, said: _Said) -> Look:
    """What is new of an alert's query."""
    now, place = max(now_us(), alert.looked_at_us), alert.place
    asked = _understand(alert.text, alert.query, now)
    words = asked.context.indexes.get(WORDS)
    if words is not None and words.missing:
        raise _LateError(words.note)
    settled = _settled(asked, settled)
    until = max(
        place, min(settled, place + (SPAN >> (3 * alert.failures)))
    )  # a smaller step after one too long
    if asked.entity.name == "event":
        rows = asking.matches(asked).filter(opened_position__gt=place, opened_position__lte=until)
        entries = rows.exclude(kind__in=_OURS).order_by("-opened_position")
        new = list(entries.values_list("opened_position", flat=True)[: asking.COUNTED + 1])
        return _told(asked, until, [], new)
    of = said.of(asked, place, until)
    matching: set[int] = set()
    for part in _parts([pk for pk, _position in of]):
        met = asking.matches(asked).filter(pk__listed=part)
        matching.update(met.values_list("opened_position", flat=True))
    matching.update(_by_time_alone(asked, alert.looked_at_us))
    before = alerts.known(alert)
    new = sorted(matching.difference(before), reverse=True)
    known = alerts.remembered(before, {position for _pk, position in of}, list(matching))
    return _told(asked, until, known, new)


def _settled(asked: Asked, settled: int) -> int:
    """Up to where the journal is settled and read by every index that the query goes by.

    What is said beyond may not be found by its words yet, nor as done again.
    """
    followed = (
        one.position for one in asked.context.indexes.values() if one.index in (WORDS, REPEATS)
    )
    return min([settled, *followed])


def _told(asked: Asked, until: int, known: Sequence[int], new: list[int]) -> Look:
    now, words = asked.context.now_us, ""
    if new:
        with suppress(Fault):  # too long for one more condition, or not to be known as of a moment
            words = pinned.pinned(asked.text, now, until)
    most = asking.COUNTED
    return Look(until, now, asked.entity.name, known, new[:most], len(new) > most, words)


# What time alone makes match. -------------------------------------------------------------------------------------


def _by_time_alone(asked: Asked, then_us: int) -> list[int]:
    """Positions of rows that match and would not as of `then_us`, newest first."""
    entity, rows = asked.entity, asked.entity.of(asked.context.project)
    then = Context(
        asked.context.project, then_us, names=asked.context.names, grouped=asked.context.grouped
    )
    nodes = [
        one
        for one in reading.conjuncts(asked.query)
        if not isinstance(one, Words) and not _only_ends(one, entity)
    ]
    began = NOTHING
    for test, before in zip(
        reading.tests(nodes, entity, asked.context), reading.tests(nodes, entity, then), strict=True
    ):
        if _sql(rows.filter(test.q)) != _sql(rows.filter(before.q)):
            began |= ~before.q
    if began is NOTHING:
        return []
    found: list[int] = []
    for arm in asking.arms(asked):
        newest = (
            arm.filter(began).order_by("-opened_position").values_list("opened_position", flat=True)
        )
        found += newest[: asking.COUNTED + 1]
    return found


def _only_ends(node: Node, entity: Entity) -> bool:
    """Whether a condition can cease to hold as time goes by, and cannot begin to: `since:7d`, `planned:7d`."""
    if not isinstance(node, Term) or node.name in ("is", "has", "until"):
        return False
    if node.name == "since":
        return True
    kind = entity.known(node.name)
    is_time = isinstance(kind.inner if isinstance(kind, Several) else kind, Time)
    ages = [one for one in node.values if one.form != "field" and values.is_age(one)]
    return is_time and len(node.values) == 1 == len(ages) and not node.operator


def _sql(rows: "QuerySet[Any]") -> object:
    """What the database would be asked."""
    try:
        return rows.order_by().values("pk").query.sql_with_params()
    except (EmptyResultSet, FullResultSet) as known:
        return type(known)


def _parts(ids: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for first in range(0, len(ids), _CHUNK):
        yield ids[first : first + _CHUNK]


def _too_slow() -> str:
    limit_s = settings.GATEBOOK_SEARCH_TIMEOUT_S
    return f"It takes longer than {limit_s:g} s to ask. Narrow it: name a tool, a session, or a time as since:7d."
