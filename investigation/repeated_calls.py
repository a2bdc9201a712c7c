"""Effects of several sessions that ran the same call, whatever became of them.

`ledger/same_calls.py` links those of which one began while the other's outcome was unknown. These
are all others: the calls that `duplicate:call` compares, of tools that must not repeat a call.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from display import effect_runs
from investigation.fulltext import duplicate_index
from investigation.models import RepeatedOccurrence
from ledger.models import Effect
from ledger.same_calls import REPEATABLE_CLASSES, SameCallLink
from ledger.tools import cache
from web.templatetags.gatebook import elapsed

MAX_REPEATS: Final = 3  # on either side of an effect, and calls of a session
MAX_OWN_CALLS: Final = 1_000  # of a session, the newest: those compared with other sessions
MAX_NEAR: Final = 20  # equal calls that are read after the first one


class RepeatedCall(NamedTuple):
    """An effect and another one with the same call in another session."""

    effect: Any
    other: Any
    is_earlier: bool  # the other was first seen before

    @property
    def ahead_us(self) -> int:
        """How long before the effect the other ran; of one without a run, its plan counts."""
        return _read_run_us(self.effect) - _read_run_us(self.other)

    @property
    def distance(self) -> str:
        """How long before or after the effect the other ran: 6 min 31 s earlier."""
        return f"{elapsed(abs(self.ahead_us))} {'earlier' if self.ahead_us > 0 else 'later'}"

    @property
    def is_identical(self) -> bool:
        """Whether the intents are equal; others differ only in what comparisons leave out."""
        return bool(self.effect.intent_digest == self.other.intent_digest)

    @property
    def relation(self) -> str:
        """How the other is related to the effect."""
        return f"{'same' if self.is_identical else 'similar'} call, {self.distance}"

    @property
    def words(self) -> str:
        """That the other ran, as the effect's page flags it."""
        return f"{'the same' if self.is_identical else 'a similar'} call ran, {self.distance}"

    def to_json(self) -> dict[str, Any]:
        """Serialize for an API answer; the other effect as in `same_calls`."""
        link = SameCallLink(self.other, self.is_earlier, self.other.opened_position)
        own = {"effect": str(self.effect.id), "handle": str(self.effect), "tool": self.effect.tool}
        return own | {"other": link.to_json()}


def load_repeats_of_effect(effect: Any, linked: Collection[UUID] = ()) -> list[RepeatedCall]:
    """Return the nearest effects with the same call in other sessions, without those `linked`.

    Two queries if a similar effect ran, otherwise none.
    """
    if not effect.again or not _must_not_repeat(effect):
        return []
    same = duplicate_index.same_occurrences([effect.opened_position], "call")
    same = same.exclude(session=effect.session_id)
    before = same.filter(position__lt=effect.opened_position).order_by("-position")
    after = same.filter(position__gt=effect.opened_position).order_by("position")
    rows = [
        row
        for side in (before, after)
        for row in _load_effects(effect.project_id, side.values("position")[:MAX_REPEATS])
    ]
    return [
        RepeatedCall(effect, row, row.opened_position < effect.opened_position)
        for row in sorted(rows, key=lambda row: row.opened_position)
        if row.id not in linked
    ]


def find_nearest_call(effect: Any, repeats: Iterable[RepeatedCall]) -> RepeatedCall | None:
    """Return the same call that ran nearest to the effect, else a similar one, or None.

    Calls that may repeat are not named. At most two queries, if a similar effect ran and `repeats`,
    those of other sessions, are none.
    """
    nearest = min(repeats, key=_rank_repeat, default=None)
    if nearest is not None or not effect.again or not _must_not_repeat(effect):
        return nearest
    same = duplicate_index.same_occurrences([effect.opened_position], "call")
    before = same.filter(position__lt=effect.opened_position).order_by("-position")
    after = same.filter(position__gt=effect.opened_position).order_by("position")
    for side, is_earlier in ((before, True), (after, False)):
        for row in _load_effects(effect.project_id, side.values("position")[:1]):
            return RepeatedCall(effect, row, is_earlier)
    return None


def _rank_repeat(repeat: RepeatedCall) -> tuple[bool, int]:
    return not repeat.is_identical, abs(repeat.ahead_us)


def load_repeats_of_session(session: Any) -> list[RepeatedCall]:
    """Return the newest calls of a session that other sessions made too. At most two queries."""
    calls = select_repeats_elsewhere(session.id)
    pairs = [(call.position, call.before, call.after) for call in calls[: 4 * MAX_REPEATS]]
    if not pairs:
        return []
    positions = {place for pair in pairs for place in pair if place is not None}
    rows = {row.opened_position: row for row in _load_effects(session.project_id, positions)}
    return list(_pair_effects(pairs, rows))[:MAX_REPEATS]


def select_repeats_elsewhere(session: UUID) -> "QuerySet[Any]":
    """Return the newest calls of a session that other sessions made too, newest first.

    Each with the positions of the nearest such effects `before` and `after` it. Read-only calls do
    not count, and of equal calls only the first. The session's own rows are read once, for its
    newest MAX_OWN_CALLS calls; each of these takes a few index look-ups, also if the session
    repeated it very often: MAX_NEAR rows after the first call are read, then those after the last.
    """
    same = RepeatedOccurrence.objects.filter(digest=OuterRef("digest"), sort="call")
    elsewhere = same.exclude(session=session)
    before = elsewhere.filter(position__lt=OuterRef("position")).order_by("-position")
    near = RepeatedOccurrence.objects.filter(
        digest=OuterRef(OuterRef("digest")),
        sort="call",
        position__gt=OuterRef(OuterRef("position")),
    ).order_by("position")
    soon_after = RepeatedOccurrence.objects.filter(pk__in=near.values("pk")[:MAX_NEAR])
    soon_after = soon_after.exclude(session=session).order_by("position")
    last = same.filter(session=session).order_by("-nth")
    later = elsewhere.filter(position__gt=OuterRef("last")).order_by("position")
    own_calls = RepeatedOccurrence.objects.filter(session=session, sort="call", nth=1)
    newest = own_calls.order_by("-position").values("pk")[:MAX_OWN_CALLS]
    repeated: QuerySet[Any] = (
        RepeatedOccurrence.objects.filter(pk__in=newest)
        .annotate(last=Subquery(last.values("position")[:1]))
        .annotate(
            before=Subquery(before.values("position")[:1]),
            after=Coalesce(
                Subquery(soon_after.values("position")[:1]),
                Subquery(later.values("position")[:1]),
            ),
        )
    )
    repeated = repeated.filter(Q(before__isnull=False) | Q(after__isnull=False))
    return repeated.order_by("-position")


def _pair_effects(
    pairs: Iterable[tuple[int, int | None, int | None]], rows: dict[int, Any]
) -> Iterable[RepeatedCall]:
    for position, before, after in pairs:
        effect = rows.get(position)
        if effect is None or not _must_not_repeat(effect):
            continue
        if before in rows:
            yield RepeatedCall(effect, rows[before], True)
        elif after in rows:
            yield RepeatedCall(effect, rows[after], False)


def _load_effects(project: UUID, positions: Any) -> Iterable[Any]:
    """Return effects by positions, or by a query of them."""
    effects = Effect.objects.filter(opened_position__in=positions, project=project)
    return effect_runs.annotate_runs(effects).select_related("session")


def _read_run_us(effect: Any) -> int:
    ran_us = effect_runs.read_run_times(effect).ran_us
    return int(effect.received_us if ran_us is None else ran_us)


def _must_not_repeat(effect: Any) -> bool:
    """Return whether a second call of the tool would act a second time."""
    declaration = cache.load_tool(effect.project_id, effect.tool)
    return declaration.tool_class not in REPEATABLE_CLASSES or bool(declaration.raises_class)
