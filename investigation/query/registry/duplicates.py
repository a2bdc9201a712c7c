"""Duplicate calls: `duplicate:` of effects, `repeats:` and `is:looped` of sessions.

All tests read only rows that never change, so a link to an answer shows the same after a loop has
ended.
"""

from array import array
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.db.models.expressions import Combinable

from accounts.models import Project
from investigation.fulltext import duplicate_index
from investigation.models import FirstOccurrence, RepeatedOccurrence
from investigation.query.fields.related import RelatedRows
from investigation.query.fields.row_tests import NO_ROWS, CompileContext, RowTest
from investigation.query.fields.types import Choice, MultiValue, Number
from investigation.query.parser.ast import Term
from investigation.query.registry.common import find_effect_id
from ledger.models import Effect
from ledger.partial_indexes import IS_REPEATED
from monitoring import job_heartbeats
from monitoring.models import StuckEpisode

# Most effects that are selected by a list of positions; with more, each row is tested.
MAX_LISTED_POSITIONS: Final = 10_000
_CALL_SORTS: Final = ("call", "read")
DUPLICATE_SORTS: Final = (
    (
        "call",
        "another effect with the same tool and arguments ran, ignoring blanks and request names",
    ),
    ("target", "another effect of the same tool ran on the same resource"),
)


@dataclass(frozen=True, slots=True)
class DuplicateChoice(Choice):
    """What an effect has in common with another one, in any session."""

    kind: ClassVar[str] = "choice"

    def compared(self) -> Combinable | None:
        return None

    def present(self) -> RowTest:
        rows = RepeatedOccurrence.objects.filter(sort__in=[word for word, _ in DUPLICATE_SORTS])
        return RowTest(Q(opened_position__in=rows.order_by().values("position")), lasts=True)

    def _read(self, term: Term, context: CompileContext) -> RowTest:
        rows = RepeatedOccurrence.objects.filter(
            project=context.project, sort__in=self.keys(term)
        ).order_by()
        if context.upto is not None:
            rows = rows.filter(repeat_position__lte=context.upto)
        if context.lowest is not None:
            rows = rows.filter(position__gt=context.lowest)
        positions = list(rows.values_list("position", flat=True)[: MAX_LISTED_POSITIONS + 1])
        if len(positions) <= MAX_LISTED_POSITIONS:
            return RowTest(
                Q(opened_position__listed=array("q", positions)), indexed=True, lasts=True
            )
        # One page of matches does not need all positions.
        lookup = "gathered" if context.grouped else "in"
        return RowTest(
            Q(**{f"opened_position__{lookup}": rows.values("position")}), indexed=True, lasts=True
        )


def duplicate_field() -> DuplicateChoice:
    return DuplicateChoice(
        "duplicate",
        "Duplicate",
        "it ran, and so did a similar effect in any session; excludes read_only tools",
        choices=DUPLICATE_SORTS,
        compared_late=True,
        index="repeated_by_position",
    )


@dataclass(frozen=True, slots=True)
class SameCall(RelatedRows):
    """The named effects and all effects that ran with the same call, by the moment of the query.

    Groups are named by the first effect that ran with the call.
    """

    def grouped(self) -> Combinable:
        first = FirstOccurrence.objects.filter(digest=OuterRef("digest")).values("position")
        same = RepeatedOccurrence.objects.filter(
            position=OuterRef("opened_position"), sort__in=_CALL_SORTS
        )
        return Subquery(same.values(first=Subquery(first)))

    def format_group_key(self, key: Any) -> Any:
        """Return the handle of the first effect. Positions order e_92 before e_101."""
        return None if key is None else f"e_{key}"

    def present(self) -> RowTest:
        rows = RepeatedOccurrence.objects.filter(sort__in=_CALL_SORTS)
        return RowTest(Q(opened_position__in=rows.order_by().values("position")), lasts=True)

    def _read(self, term: Term, context: CompileContext) -> RowTest:
        source_positions = set[int]()
        for value in term.values:
            effect = find_effect_id(context.project, value.text)
            if effect is None:
                context.notes.append(
                    f"“{value.text[:60]}” was not found. {self.name} takes {self.called}."
                )
            else:
                source_positions.add(
                    Effect.objects.values_list("opened_position", flat=True).get(id=effect)
                )
        repeated = duplicate_index.same_occurrences(source_positions, *_CALL_SORTS).order_by()
        if context.upto is not None:
            repeated = repeated.filter(repeat_position__lte=context.upto)
        positions = (
            list(repeated.values_list("position", flat=True)[: MAX_LISTED_POSITIONS + 1])
            if source_positions
            else []
        )
        if len(positions) <= MAX_LISTED_POSITIONS:
            named_positions = source_positions.union(positions)
            q = (
                Q(opened_position__listed=array("q", named_positions))
                if named_positions
                else NO_ROWS
            )
            return RowTest(q, lambda row: row.opened_position in named_positions, indexed=True)
        lookup = "gathered" if context.grouped else "in"
        same_call = Q(**{f"opened_position__{lookup}": repeated.values("position")})
        return RowTest(
            same_call | Q(opened_position__listed=array("q", source_positions)),
            indexed=True,
            lasts=True,
        )


def _repeated_calls(project: Project | None) -> "QuerySet[Any]":
    rows = RepeatedOccurrence.objects.filter(IS_REPEATED, sort="call")
    return rows.filter(project=project) if project is not None else rows


def repeats_field() -> MultiValue:
    return MultiValue(
        "repeats",
        "Repeats",
        "how often the session made the same call (see duplicate:call), from 2 on",
        rows=_repeated_calls,
        reported_at="reported_position",
        lasts=True,
        link="session_id",
        reach="repeated_occurrences",
        some=True,
        left=(("nth__gt", 1), ("sort", "call")),
        inner=Number("repeats", "Repeats", path="nth", nullable=False),
        compared_late=True,
        index="repeated_by_count",
    )


def looped_test(context: CompileContext) -> RowTest:
    """Return the test for sessions that were ever reported as looping."""
    context.goes_by(job_heartbeats.load_stuck_check_progress(context.now_us))
    raised = StuckEpisode.objects.filter(
        project=context.project, rule="S5", raised_position__isnull=False
    )
    if context.upto is not None:
        raised = raised.filter(raised_position__lte=context.upto)
    return RowTest(Q(pk__in=raised.order_by().values("session")), indexed=True, lasts=True)
