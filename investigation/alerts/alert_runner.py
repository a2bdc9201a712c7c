"""Job that evaluates saved-query alerts for matches new since the last check.

A row is new if it matches now and did not at the last check. A row can start to match in two ways:
an entry names it (every entry stable since the last check's position), or time alone makes it
match, for example by a passed deadline. The second kind are rows that match now, but with their
present columns would not match as of the last check's time.

Rows that matched when alerts were turned on, or that were reported, are remembered while they
match. A row is reported again if it stopped matching and returns. A row that matched only between
two checks is not reported. Writes go through investigation/alerts/alerts.py.
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

from accounts.models import Membership
from db import jobs as db_job_heartbeats
from db.clock import now_us
from db.errors import ChangeRefused
from display import time_limit
from display.index_progress import FIELDS, REPEATS, WORDS
from investigation.alerts import alerts
from investigation.alerts.alerts import AlertStart, CheckResult
from investigation.exports import export_writer
from investigation.fulltext import indexer
from investigation.models import Alert, SavedQuery
from investigation.query import compiler, execute, permalink
from investigation.query.entity_registry import Entity
from investigation.query.execute import CompiledQuery
from investigation.query.fields.row_tests import NO_ROWS, CompileContext
from investigation.query.fields.types import MultiValue, Time
from investigation.query.parser import values
from investigation.query.parser.ast import Node, QueryError, Term, TextWords
from journal import running_writers
from journal.models import Entry
from monitoring import job_heartbeats
from proofs.stable_position import PATIENCE_S, load_stable_position

log = structlog.get_logger("gatebook.alerts")
NAME: Final = "alerts"
EVERY_S: Final = 60
RUN_LIMIT_S: Final = 10.0  # a run of the job worker starts no further check after this time
MAX_SPAN: Final = 100_000  # positions read by one check
_CHUNK: Final = 5_000  # rows evaluated by one statement
# The column by which an entry names rows of an entity, and the matching column of the row. Gates
# are named by the entries of their effect.
_NAMING_COLUMNS: Final = {
    "effect": ("effect", "pk"),
    "session": ("session", "pk"),
    "gate": ("effect", "effect__id"),
    "exemption": ("subject", "pk"),
}
_READ_KINDS: Final = (
    "access.searched",
    "access.viewed",
    "access.exported",
)  # reads, which change no row
_ALERT_KINDS: Final = (alerts.RAISED, alerts.STOPPED)  # an alert on these would raise itself


class _LateError(Exception):
    """An index of the query is too far behind: the check waits and changes nothing."""


@dataclass(slots=True)
class AlertRun:
    """Counts of one run: checks made, and checks that reported matches."""

    checks: int = 0
    notified: int = 0


@dataclass(slots=True)
class _NamedRows:
    """Rows named by recent entries, loaded once for all queries that start at one position."""

    rows: dict[tuple[UUID, str, int, int], list[tuple[Any, int]]] = field(default_factory=dict)

    def of(self, search: CompiledQuery, place: int, until: int) -> list[tuple[Any, int]]:
        """Load ids and positions of the project's rows named between two positions."""
        project, entity = search.context.project, search.entity
        key = (project.id, entity.name, place, until)
        if key not in self.rows:
            named_by, column = _NAMING_COLUMNS[entity.name]
            entries = Entry.objects.filter(
                project=project.id, position__gt=place, position__lte=until
            )
            entries = entries.filter(**{f"{named_by}__isnull": False}).exclude(kind__in=_READ_KINDS)
            ids = list(entries.order_by().values_list(named_by, flat=True).distinct())
            positions: list[tuple[Any, int]] = []
            for part in _chunks(ids):
                rows = entity.select_project_rows(project).filter(**{f"{column}__listed": part})
                positions += rows.values_list("pk", "opened_position")
            self.rows[key] = positions
        return self.rows[key]


@db_job_heartbeats.record_run(NAME)
def run_alerts(most_s: float = RUN_LIMIT_S) -> AlertRun:
    """Check the queries with alerts on, for at most `most_s` seconds; the next run continues."""
    job_heartbeats.record_heartbeat(NAME, usual_s=EVERY_S)
    ends, stable, named_rows, done = (
        time.monotonic() + most_s,
        running_writers.wait_until_stable(running_writers.load_last_position()),
        _NamedRows(),
        AlertRun(),
    )
    waiting = Alert.objects.filter(stopped_at_us__isnull=True).order_by(
        "failures", "checked_at_us", "id"
    )
    for pk in list(waiting.values_list("pk", flat=True)):
        if time.monotonic() > ends:
            break
        alert = Alert.objects.select_related("query__project", "query__owner").filter(pk=pk).first()
        if alert is None or alert.stopped_at_us is not None:
            continue
        done.checks += 1
        try:
            done.notified += _check_alert(alert, stable, named_rows)
        except Exception as error:  # one query must not block the others
            log.exception("alert_failed", alert=str(alert.pk), error=type(error).__name__)
            alerts.record_failure(
                alert,
                f"The query failed ({type(error).__name__}). See the operator's log.",
            )
    return done


def start_alert(saved: SavedQuery) -> AlertStart:
    """Return the starting point of alerts turned on now. Raises ChangeRefused if impossible."""
    try:
        with time_limit.limit_search(saved.owner_id, waits_for_slot=True):
            return _start_alert(saved)
    except QueryError as fault:
        raise ChangeRefused(fault.sentence) from None
    except _LateError as late:
        raise ChangeRefused(f"{late} Try again when they are indexed.") from None
    except time_limit.TooManyQueries:
        raise ChangeRefused("Too many searches are running. Try again in a moment.") from None
    except time_limit.QueryTimeout:
        raise ChangeRefused(_timeout_text()) from None


def _start_alert(saved: SavedQuery) -> AlertStart:
    at_us, place = now_us(), load_stable_position(PATIENCE_S)
    search = _parse_query(saved.text, saved, at_us)
    late = [
        index
        for index in export_writer.late_indexes(search)
        if index.missing > indexer.MAX_UNINDEXED_ENTRIES
    ]
    if late:
        raise _LateError(late[0].note)
    rows: list[tuple[Any, ...]] = []
    if search.entity.name != "event":  # entries never match twice
        rows, _more = execute.load_newest_values(search, ("opened_position",), alerts.MAX_KNOWN)
    return AlertStart(
        saved.text, _stable_position(search, place), at_us, [row[0] for row in reversed(rows)]
    )


def _parse_query(text: str, saved: SavedQuery, at_us: int) -> CompiledQuery:
    search = execute.compile_query(text, saved.project, at_us)
    if search.query.grouping is not None:
        raise QueryError(
            0,
            len(text),
            "Alerts cannot watch groups. Save the query without `|`.",
        )
    if search.query.asof is not None:
        raise QueryError(
            0, len(text), "Alerts cannot watch a past moment. Save the query without `asof:`."
        )
    return search


def _check_alert(alert: Alert, stable: int, named_rows: _NamedRows) -> bool:
    saved = alert.query
    members = Membership.objects.filter(
        user=saved.owner_id, user__is_active=True, project=saved.project_id
    )
    if not members.exists():
        alerts.stop_alert(alert, "The owner is no longer a member of the project.")
        return False
    try:
        with time_limit.limit_time():
            if saved.text != alert.text:
                begun, look = _start_alert(saved), None
            else:
                begun, look = None, _evaluate_alert(alert, stable, named_rows)
    except _LateError as late:
        log.info("alert_waits", alert=str(alert.pk), because=str(late))
        return False
    except QueryError as fault:
        alerts.stop_alert(alert, fault.sentence)
        return False
    except time_limit.QueryTimeout:
        log.warning(
            "alert_overran", alert=str(alert.pk), limit_s=settings.GATEBOOK_SEARCH_TIMEOUT_S
        )
        alerts.record_failure(alert, _timeout_text())
        return False
    if begun is not None:
        alerts.restart_alert(alert, begun)
    return look is not None and alerts.store_check(alert, look) and bool(look.new)


def _evaluate_alert(alert: Alert, stable: int, named_rows: _NamedRows) -> CheckResult:
    """Evaluate an alert's query and return the new matches."""
    now, place = max(now_us(), alert.checked_at_us), alert.place
    search = _parse_query(alert.text, alert.query, now)
    for index in search.indexes:
        if index.index == WORDS and index.missing:
            raise _LateError(index.note)
    stable = _stable_position(search, stable)
    span = MAX_SPAN >> (3 * alert.failures)  # a smaller step after a timeout
    until = max(place, min(stable, place + span))
    if search.entity.name == "event":
        rows = execute.matching_rows(search).filter(
            opened_position__gt=place, opened_position__lte=until
        )
        entries = rows.exclude(kind__in=_ALERT_KINDS).order_by("-opened_position")
        new = list(entries.values_list("opened_position", flat=True)[: execute.COUNT_LIMIT + 1])
        return _check_result(search, until, [], new)
    of = named_rows.of(search, place, until)
    matching: set[int] = set()
    for part in _chunks([pk for pk, _position in of]):
        met = execute.matching_rows(search).filter(pk__listed=part)
        matching.update(met.values_list("opened_position", flat=True))
    matching.update(_newly_matching_by_time(search, alert.checked_at_us))
    before = alerts.known_positions(alert)
    new = sorted(matching.difference(before), reverse=True)
    known_positions = alerts.merge_known(before, {position for _pk, position in of}, list(matching))
    return _check_result(search, until, known_positions, new)


def _stable_position(search: CompiledQuery, stable: int) -> int:
    """Return the position up to which the journal is stable and indexed for the query.

    Later entries may not be found yet by their words or as duplicates.
    """
    followed = (
        index.position for index in search.indexes if index.index in (WORDS, REPEATS, FIELDS)
    )
    return min([stable, *followed])


def _check_result(
    search: CompiledQuery, until: int, known_positions: Sequence[int], new: list[int]
) -> CheckResult:
    now, words = search.context.now_us, ""
    if new:
        with suppress(QueryError):  # too long for another condition, or unknown in the past
            words = permalink.pin_query(search.text, now, until)
    most = execute.COUNT_LIMIT
    return CheckResult(
        until, now, search.entity.name, known_positions, new[:most], len(new) > most, words
    )


def _newly_matching_by_time(search: CompiledQuery, then_us: int) -> list[int]:
    """Return positions of rows that match now but not as of `then_us`, newest first."""
    entity, rows = search.entity, search.entity.select_project_rows(search.context.project)
    then = CompileContext(
        search.context.project, then_us, names=search.context.names, grouped=search.context.grouped
    )
    nodes = [
        node
        for node in compiler.top_level_conditions(search.query)
        if not isinstance(node, TextWords) and not _can_only_end(node, entity)
    ]
    began = NO_ROWS
    for test, before in zip(
        compiler.compile_conditions(nodes, entity, search.context),
        compiler.compile_conditions(nodes, entity, then),
        strict=True,
    ):
        if _compiled_sql(rows.filter(test.q)) != _compiled_sql(rows.filter(before.q)):
            began |= ~before.q
    if began is NO_ROWS:
        return []
    positions: list[int] = []
    for arm in execute.disjoint_querysets(search):
        newest = (
            arm.filter(began).order_by("-opened_position").values_list("opened_position", flat=True)
        )
        positions += newest[: execute.COUNT_LIMIT + 1]
    return positions


def _can_only_end(node: Node, entity: Entity) -> bool:
    """Return whether time can only end a condition, as `since:7d` or `planned:7d`."""
    if not isinstance(node, Term) or node.name in ("is", "has", "until"):
        return False
    if node.name == "since":
        return True
    kind = entity.find_field(node.name)
    is_time = isinstance(kind.inner if isinstance(kind, MultiValue) else kind, Time)
    ages = [
        value for value in node.values if value.form != "field" and values.is_written_as_age(value)
    ]
    return is_time and len(node.values) == 1 == len(ages) and not node.operator


def _compiled_sql(rows: "QuerySet[Any]") -> object:
    """Return SQL and parameters of a query."""
    try:
        return rows.order_by().values("pk").query.sql_with_params()
    except (EmptyResultSet, FullResultSet) as constant:
        return type(constant)


def _chunks(ids: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for first in range(0, len(ids), _CHUNK):
        yield ids[first : first + _CHUNK]


def _timeout_text() -> str:
    limit_s = settings.GATEBOOK_SEARCH_TIMEOUT_S
    return (
        f"The query takes longer than {limit_s:g} s."
        " Add a filter such as a tool, a session or `since:7d`."
    )
