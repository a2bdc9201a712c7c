"""Duplicate calls: `again:` of effects, `repeats:` and `is:looped` of sessions.

All tests read only rows that never change, so a link to an answer shows the same after a loop has
ended.
"""

from array import array
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from django.db.models import CharField, Func, OuterRef, Q, QuerySet, Subquery
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast

from inquiry import repeating
from inquiry.indexes import IS_REPEATED
from inquiry.models import StuckTransition
from inquiry.models_repeats import FirstDoing, RepeatedDoing
from inquiry.query.fields import NOTHING, Choice, Context, Test
from inquiry.query.kin import Kin
from inquiry.query.kinds import Number, Several
from inquiry.query.parts import effect_id
from inquiry.query.tree import Term
from inquiry.stuck import pulses
from ledger.models import Effect
from sessions.models import Project

# Most effects that are selected by a list of positions; with more, each row is tested.
LISTED: Final = 10_000
_CALL_SORTS: Final = ("call", "read")
DUPLICATE_SORTS: Final = (
    (
        "call",
        "another effect with the same tool and arguments ran, ignoring blanks and request names",
    ),
    ("target", "another effect of the same tool ran on the same resource"),
)


@dataclass(frozen=True, slots=True)
class Again(Choice):
    """What an effect has in common with another one, in any session."""

    kind: ClassVar[str] = "choice"

    def compared(self) -> Combinable | None:
        return None

    def present(self) -> Test:
        rows = RepeatedDoing.objects.filter(sort__in=[word for word, _ in DUPLICATE_SORTS])
        return Test(Q(opened_position__in=rows.order_by().values("position")), lasts=True)

    def _read(self, term: Term, context: Context) -> Test:
        rows = RepeatedDoing.objects.filter(
            project=context.project, sort__in=self.keys(term)
        ).order_by()
        if context.upto is not None:
            rows = rows.filter(again_position__lte=context.upto)
        if context.lowest is not None:
            rows = rows.filter(position__gt=context.lowest)
        positions = list(rows.values_list("position", flat=True)[: LISTED + 1])
        if len(positions) <= LISTED:
            return Test(Q(opened_position__listed=array("q", positions)), indexed=True, lasts=True)
        # One page of matches does not need all positions.
        lookup = "gathered" if context.grouped else "in"
        return Test(
            Q(**{f"opened_position__{lookup}": rows.values("position")}), indexed=True, lasts=True
        )


def again() -> Again:
    return Again(
        "again",
        "Duplicate",
        "it ran, and so did a similar effect in any session; excludes read_only tools",
        choices=DUPLICATE_SORTS,
        compared_late=True,
        index="repeated_by_position",
    )


@dataclass(frozen=True, slots=True)
class Like(Kin):
    """The named effects and all effects that ran with the same call, by the moment of the query.

    Groups are named by the first effect that ran with the call.
    """

    def grouped(self) -> Combinable:
        first = FirstDoing.objects.filter(digest=OuterRef("digest")).values("position")
        same = RepeatedDoing.objects.filter(
            position=OuterRef("opened_position"), sort__in=_CALL_SORTS
        )
        position = Cast(Subquery(same.values(first=Subquery(first))), CharField())
        return Func(position, template="'e_' || %(expressions)s", output_field=CharField())

    def present(self) -> Test:
        rows = RepeatedDoing.objects.filter(sort__in=_CALL_SORTS)
        return Test(Q(opened_position__in=rows.order_by().values("position")), lasts=True)

    def _read(self, term: Term, context: Context) -> Test:
        source_positions = set[int]()
        for value in term.values:
            effect = effect_id(context.project, value.text)
            if effect is None:
                context.notes.append(
                    f"“{value.text[:60]}” was not found. {self.name} takes {self.called}."
                )
            else:
                source_positions.add(
                    Effect.objects.values_list("opened_position", flat=True).get(id=effect)
                )
        repeated = repeating.like(source_positions, *_CALL_SORTS).order_by()
        if context.upto is not None:
            repeated = repeated.filter(again_position__lte=context.upto)
        positions = (
            list(repeated.values_list("position", flat=True)[: LISTED + 1])
            if source_positions
            else []
        )
        if len(positions) <= LISTED:
            named_positions = source_positions.union(positions)
            q = (
                Q(opened_position__listed=array("q", named_positions))
                if named_positions
                else NOTHING
            )
            return Test(q, lambda row: row.opened_position in named_positions, indexed=True)
        lookup = "gathered" if context.grouped else "in"
        same_call = Q(**{f"opened_position__{lookup}": repeated.values("position")})
        return Test(
            same_call | Q(opened_position__listed=array("q", source_positions)),
            indexed=True,
            lasts=True,
        )


def _repeats(project: Project | None) -> "QuerySet[Any]":
    rows = RepeatedDoing.objects.filter(IS_REPEATED, sort="call")
    return rows.filter(project=project) if project is not None else rows


def repeats() -> Several:
    return Several(
        "repeats",
        "Repeats",
        "how often the session made the same call (see again:call), from 2 on",
        rows=_repeats,
        told_at="told_position",
        lasts=True,
        link="session_id",
        reach="repeated_doings",
        some=True,
        left=(("nth__gt", 1), ("sort", "call")),
        inner=Number("repeats", "Repeats", path="nth", nullable=False),
        compared_late=True,
        index="repeated_by_count",
    )


def looped(context: Context) -> Test:
    """Return the test for sessions that were ever reported as looping."""
    context.goes_by(pulses.progress_of_checks(context.now_us))
    raised = StuckTransition.objects.filter(
        project=context.project, rule="S5", raised_position__isnull=False
    )
    if context.upto is not None:
        raised = raised.filter(raised_position__lte=context.upto)
    return Test(Q(pk__in=raised.order_by().values("session")), indexed=True, lasts=True)
