"""What was done more than once, as it can be asked for: of effects `again:`, of sessions `repeats:` and `is:looped`.

All of it goes by rows that never change, so that a link to an answer shows the same after a loop has ended.
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

LISTED: Final = 10_000  # effects that are found by their positions; of more, each row is asked
_CALLS: Final = ("call", "read")
DOINGS: Final = (
    (
        "call",
        "another effect with its tool and arguments ran, blanks and names of the request aside",
    ),
    ("target", "another effect of its tool ran on its resource"),
)


@dataclass(frozen=True, slots=True)
class Again(Choice):
    """What an effect has in common with another, in its session or any other."""

    kind: ClassVar[str] = "choice"

    def compared(self) -> Combinable | None:
        return None

    def present(self) -> Test:
        rows = RepeatedDoing.objects.filter(sort__in=[word for word, _ in DOINGS])
        return Test(Q(opened_position__in=rows.order_by().values("position")), lasts=True)

    def _read(self, term: Term, context: Context) -> Test:
        rows = RepeatedDoing.objects.filter(project=context.project, sort__in=self.keys(term)).order_by()
        if context.upto is not None:
            rows = rows.filter(again_position__lte=context.upto)
        if context.lowest is not None:
            rows = rows.filter(position__gt=context.lowest)
        few = list(rows.values_list("position", flat=True)[: LISTED + 1])
        if len(few) <= LISTED:
            return Test(Q(opened_position__listed=array("q", few)), indexed=True, lasts=True)
        how = "gathered" if context.grouped else "in"  # for one page of them not all need be gathered
        return Test(Q(**{f"opened_position__{how}": rows.values("position")}), indexed=True, lasts=True)


def again() -> Again:
    return Again(
        *(
            "again",
            "Done again",
            "it ran, and so did another like it, in whichever session; not where the tool is declared read_only",
        ),
        choices=DOINGS,
        compared_late=True,
        index="repeated_by_position",
    )


@dataclass(frozen=True, slots=True)
class Like(Kin):
    """The effects that are named and, however many, those that ran with the same call: as of a moment, by then.

    Groups are named by the first effect that ran with the call.
    """

    def grouped(self) -> Combinable:
        first = FirstDoing.objects.filter(digest=OuterRef("digest")).values("position")
        same = RepeatedDoing.objects.filter(position=OuterRef("opened_position"), sort__in=_CALLS)
        position = Cast(Subquery(same.values(first=Subquery(first))), CharField())
        return Func(position, template="'e_' || %(expressions)s", output_field=CharField())

    def present(self) -> Test:
        rows = RepeatedDoing.objects.filter(sort__in=_CALLS)
        return Test(Q(opened_position__in=rows.order_by().values("position")), lasts=True)

    def _read(self, term: Term, context: Context) -> Test:
        named = set[int]()
        for one in term.values:
            meant = effect_id(context.project, one.text)
            if meant is None:
                context.notes.append(f"“{one.text[:60]}” names nothing here; {self.name} takes {self.called}.")
            else:
                named.add(Effect.objects.values_list("opened_position", flat=True).get(id=meant))
        same = repeating.like(named, *_CALLS).order_by()
        if context.upto is not None:
            same = same.filter(again_position__lte=context.upto)
        few = list(same.values_list("position", flat=True)[: LISTED + 1]) if named else []
        if len(few) <= LISTED:
            places = named.union(few)
            q = Q(opened_position__listed=array("q", places)) if places else NOTHING
            return Test(q, lambda row: row.opened_position in places, indexed=True)
        how = "gathered" if context.grouped else "in"
        alike = Q(**{f"opened_position__{how}": same.values("position")})
        return Test(alike | Q(opened_position__listed=array("q", named)), indexed=True, lasts=True)


def _repeats(project: Project | None) -> "QuerySet[Any]":
    rows = RepeatedDoing.objects.filter(IS_REPEATED, sort="call")
    return rows.filter(project=project) if project is not None else rows


def repeats() -> Several:
    return Several(
        *("repeats", "Repeats", "how often it made one and the same call, as again:call, from 2 on"),
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
    """Sessions that the watch ever raised as looping."""
    context.goes_by(pulses.progress_of_checks(context.now_us))
    raised = StuckTransition.objects.filter(project=context.project, rule="S5", raised_position__isnull=False)
    if context.upto is not None:
        raised = raised.filter(raised_position__lte=context.upto)
    return Test(Q(pk__in=raised.order_by().values("session")), indexed=True, lasts=True)
