"""Job that evaluates saved-query alerts for matches new since the last check.

A row is new if it matches now and did not at the last check. A row can start to match in two ways:
an entry names it (every entry settled since the last check's position), or time alone makes it
match, for example by a passed deadline. The second kind are rows that match now, but with their
present columns would not match as of the last check's time.

Rows that matched when alerts were turned on, or that were reported, are remembered while they
match. A row is reported again if it stopped matching and returns. A row that matched only between
two checks is not reported. Writes go through inquiry/alerts.py.
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
MOMENT_S: Final = 10.0  # a run of the job worker starts no further check after this time
SPAN: Final = 100_000  # positions read by one check
_CHUNK: Final = 5_000  # rows evaluated by one statement
# The column by which an entry names rows of an entity, and the matching column of the row. Gates
# are named by the entries of their effect.
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
)  # reads, which change no row
_OURS: Final = (alerts.RAISED, alerts.STOPPED)  # an alert on these would raise itself


class _LateError(Exception):
    """An index of the query is too far behind: the check waits and changes nothing."""


@dataclass(slots=True)
class Ran:
    """Counts of one run: checks made, and checks that reported matches."""

    looks: int = 0
    told: int = 0


@dataclass(slots=True)
class _Said:
    """Rows named by recent entries, loaded once for all queries that start at one position."""

    rows: dict[tuple[UUID, str, int, int], list[tuple[Any, int]]] = field(default_factory=dict)

    def of(self, search: Asked, place: int, until: int) -> list[tuple[Any, int]]:
        """Load ids and positions of the project's rows named between two positions."""
        project, entity = search.context.project, search.entity
        key = (project.id, entity.name, place, until)
        if key not in self.rows:
            named_by, column = _SAID_BY[entity.name]
            entries = Entry.objects.filter(
                project=project.id, position__gt=place, position__lte=until
            )
            entries = entries.filter(**{f"{named_by}__isnull": False}).exclude(kind__in=_LOOKS)
            ids = list(entries.order_by().values_list(named_by, flat=True).distinct())
            positions: list[tuple[Any, int]] = []
            for part in _parts(ids):
                rows = entity.of(project).filter(**{f"{column}__listed": part})
                positions += rows.values_list("pk", "opened_position")
            self.rows[key] = positions
        return self.rows[key]


@beating.watched(NAME)
def run(most_s: float = MOMENT_S) -> Ran:
    """Check the queries with alerts on, for at most `most_s` seconds; the next run continues."""
    pulses.beat(NAME, usual_s=EVERY_S)
    ends, settled, named_rows, done = (
        time.monotonic() + most_s,
        horizon.last_position(),
        _Said(),
        Ran(),
    )
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
            done.told += _look(alert, settled, named_rows)
        except Exception as error:  # one query must not block the others
            log.exception("alert_failed", alert=str(alert.pk), error=type(error).__name__)
            alerts.failed(
                alert,
                f"The query failed ({type(error).__name__}). See the operator's log.",
            )
    return done


def start(saved: SavedQuery) -> Start:
    """Return the starting point of alerts turned on now. Raises RefusedError if impossible."""
    try:
        with patience.limit(saved.owner_id, in_turn=True):
            return _start(saved)
    except Fault as fault:
        raise RefusedError(fault.sentence) from None
    except _LateError as late:
        raise RefusedError(f"{late} Try again when they are indexed.") from None
    except patience.TooMany:
        raise RefusedError("Too many searches are running. Try again in a moment.") from None
    except patience.Overran:
        raise RefusedError(_too_slow()) from None


def _start(saved: SavedQuery) -> Start:
    at_us, place = now_us(), horizon.last_position()
    search = _understand(saved.text, saved, at_us)
    late = [index for index in exporting.late(search) if index.missing > indexing.FRESH]
    if late:
        raise _LateError(late[0].note)
    rows: list[tuple[Any, ...]] = []
    if search.entity.name != "event":  # entries never match twice
        rows, _more = asking.newest_first(search, ("opened_position",), alerts.KNOWN)
    return Start(saved.text, _settled(search, place), at_us, [row[0] for row in reversed(rows)])


def _understand(text: str, saved: SavedQuery, at_us: int) -> Asked:
    search = asking.understand(text, saved.project, at_us)
    if search.query.grouping is not None:
        raise Fault(
            0,
            len(text),
            "Alerts cannot watch groups. Save the query without `|`.",
        )
    if search.query.asof is not None:
        raise Fault(
            0, len(text), "Alerts cannot watch a past moment. Save the query without `asof:`."
        )
    return search


def _look(alert: Alert, settled: int, named_rows: _Said) -> bool:
    saved = alert.query
    members = Membership.objects.filter(
        user=saved.owner_id, user__is_active=True, project=saved.project_id
    )
    if not members.exists():
        alerts.stop(alert, "The owner is no longer a member of the project.")
        return False
    try:
        with patience.in_time():
            if saved.text != alert.text:
                begun, look = _start(saved), None
            else:
                begun, look = None, _judged(alert, settled, named_rows)
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


def _judged(alert: Alert, settled: int, named_rows: _Said) -> Look:
    """Evaluate an alert's query and return the new matches."""
    now, place = max(now_us(), alert.looked_at_us), alert.place
    search = _understand(alert.text, alert.query, now)
    words = search.context.indexes.get(WORDS)
    if words is not None and words.missing:
        raise _LateError(words.note)
    settled = _settled(search, settled)
    span = SPAN >> (3 * alert.failures)  # a smaller step after a timeout
    until = max(place, min(settled, place + span))
    if search.entity.name == "event":
        rows = asking.matches(search).filter(opened_position__gt=place, opened_position__lte=until)
        entries = rows.exclude(kind__in=_OURS).order_by("-opened_position")
        new = list(entries.values_list("opened_position", flat=True)[: asking.COUNTED + 1])
        return _told(search, until, [], new)
    of = named_rows.of(search, place, until)
    matching: set[int] = set()
    for part in _parts([pk for pk, _position in of]):
        met = asking.matches(search).filter(pk__listed=part)
        matching.update(met.values_list("opened_position", flat=True))
    matching.update(_by_time_alone(search, alert.looked_at_us))
    before = alerts.known(alert)
    new = sorted(matching.difference(before), reverse=True)
    known_positions = alerts.remembered(before, {position for _pk, position in of}, list(matching))
    return _told(search, until, known_positions, new)


def _settled(search: Asked, settled: int) -> int:
    """Return the position up to which the journal is settled and indexed for the query.

    Later entries may not be found yet by their words or as duplicates.
    """
    followed = (
        index.position
        for index in search.context.indexes.values()
        if index.index in (WORDS, REPEATS)
    )
    return min([settled, *followed])


def _told(search: Asked, until: int, known_positions: Sequence[int], new: list[int]) -> Look:
    now, words = search.context.now_us, ""
    if new:
        with suppress(Fault):  # too long for another condition, or unknown in the past
            words = pinned.pinned(search.text, now, until)
    most = asking.COUNTED
    return Look(until, now, search.entity.name, known_positions, new[:most], len(new) > most, words)


def _by_time_alone(search: Asked, then_us: int) -> list[int]:
    """Return positions of rows that match now but not as of `then_us`, newest first."""
    entity, rows = search.entity, search.entity.of(search.context.project)
    then = Context(
        search.context.project, then_us, names=search.context.names, grouped=search.context.grouped
    )
    nodes = [
        node
        for node in reading.conjuncts(search.query)
        if not isinstance(node, Words) and not _only_ends(node, entity)
    ]
    began = NOTHING
    for test, before in zip(
        reading.tests(nodes, entity, search.context),
        reading.tests(nodes, entity, then),
        strict=True,
    ):
        if _sql(rows.filter(test.q)) != _sql(rows.filter(before.q)):
            began |= ~before.q
    if began is NOTHING:
        return []
    positions: list[int] = []
    for arm in asking.arms(search):
        newest = (
            arm.filter(began).order_by("-opened_position").values_list("opened_position", flat=True)
        )
        positions += newest[: asking.COUNTED + 1]
    return positions


def _only_ends(node: Node, entity: Entity) -> bool:
    """Return whether time can only end a condition, as `since:7d` or `planned:7d`."""
    if not isinstance(node, Term) or node.name in ("is", "has", "until"):
        return False
    if node.name == "since":
        return True
    kind = entity.known(node.name)
    is_time = isinstance(kind.inner if isinstance(kind, Several) else kind, Time)
    ages = [value for value in node.values if value.form != "field" and values.is_age(value)]
    return is_time and len(node.values) == 1 == len(ages) and not node.operator


def _sql(rows: "QuerySet[Any]") -> object:
    """Return SQL and parameters of a query."""
    try:
        return rows.order_by().values("pk").query.sql_with_params()
    except (EmptyResultSet, FullResultSet) as constant:
        return type(constant)


def _parts(ids: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for first in range(0, len(ids), _CHUNK):
        yield ids[first : first + _CHUNK]


def _too_slow() -> str:
    limit_s = settings.GATEBOOK_SEARCH_TIMEOUT_S
    return (
        f"The query takes longer than {limit_s:g} s."
        " Add a filter such as a tool, a session or `since:7d`."
    )
