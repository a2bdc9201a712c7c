"""Data of the page that compares two sessions.

First effects, gates and voters of each.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet

from approvals.models import Gate, Vote
from display import display_state, effect_table
from journal import summaries
from ledger.models import Effect
from pages.compare import diff
from pages.compare.diff import MAX_EFFECTS, Call, ComparisonLine
from sessions.models import Session

MAX_GATES: Final = 2 * MAX_EFFECTS  # gates of both sessions that are read
_READ: Final = ("intent_digest", "dispatched_at_us", "settled_at_us")


@dataclass(slots=True)
class ComparedSession:
    """One of the two sessions: its calls as Gatebook received them, and totals."""

    session: Session
    calls: list[Call] = field(default_factory=list)
    cut: bool = False  # there are more effects than are compared

    @property
    def attempts(self) -> int:
        return sum(call.effect.attempt_count for call in self.calls)

    @property
    def waited_us(self) -> int:
        return sum(call.waited_us or 0 for call in self.calls)

    @property
    def took_us(self) -> int:
        return sum(call.took_us or 0 for call in self.calls)

    @property
    def reviewers(self) -> list[str]:
        return sorted({name for call in self.calls for name in call.reviewers})

    @property
    def problems(self) -> int:
        """Count effects that failed, had an error or have an unknown outcome."""
        return sum(
            call.state in ("failed", "unknown") or call.effect.outcome == "error"
            for call in self.calls
        )


@dataclass(slots=True)
class Comparison:
    """Two sessions side by side."""

    left: ComparedSession
    right: ComparedSession
    lines: list[ComparisonLine]
    gates_cut: bool  # more gates than are read: waiting times and reviewers are incomplete


def compare_sessions(left: Session, right: Session, now_us: int) -> Comparison:
    """Compare the first MAX_EFFECTS effects of two sessions of the member's project."""
    gates = list(
        Gate.objects.filter(session__in=[left.id, right.id])
        .order_by("opened_position")
        .values("id", "effect_id", "requested_at_us", "decided_at_us", "ended_at_us")[
            : MAX_GATES + 1
        ]
    )
    voters = _load_voters([gate["id"] for gate in gates[:MAX_GATES]])
    waits: dict[UUID, int] = {}
    reviewers: dict[UUID, set[str]] = {}
    for gate in gates[:MAX_GATES]:
        until_us = gate["decided_at_us"] or gate["ended_at_us"] or now_us
        waits[gate["effect_id"]] = waits.get(gate["effect_id"], 0) + max(
            until_us - gate["requested_at_us"], 0
        )
        reviewers.setdefault(gate["effect_id"], set()).update(voters.get(gate["id"], ()))
    left_side, right_side = (
        _load_side(left, waits, reviewers, now_us),
        _load_side(right, waits, reviewers, now_us),
    )
    return Comparison(
        left_side,
        right_side,
        diff.merge_lines(left_side.calls, right_side.calls),
        len(gates) > MAX_GATES,
    )


def add_call_summaries(compared: Iterable[ComparisonLine]) -> None:
    """Set `gist`, a one-line summary of the call, on each line's effect.

    `gist` is None without a readable plan. One query for the rows shown: the plans of two long
    sessions are many megabytes.
    """
    calls = [line.call.effect for line in compared]
    heads = dict(
        Effect.objects.filter(id__in=[effect.id for effect in calls])
        .annotate(plan_head=summaries.select_plan_heads())
        .values_list("id", "plan_head")
    )
    for effect in calls:
        effect.gist = summaries.summarize_plan_head(heads.get(effect.id))


def _load_voters(gates: list[UUID]) -> dict[UUID, list[str]]:
    names: dict[UUID, list[str]] = {}
    if gates:
        votes = Vote.objects.filter(gate__in=gates).order_by("position")
        for gate, name in votes.values_list("gate_id", "user__username"):
            names.setdefault(gate, []).append(name)
    return names


def _load_side(
    session: Session, waits: dict[UUID, int], reviewers: dict[UUID, set[str]], now_us: int
) -> ComparedSession:
    effects = list(_session_effects(session)[: MAX_EFFECTS + 1])
    calls = [
        Call(
            effect,
            display_state.derive_shown_state(effect, now_us),
            waits.get(effect.id),
            tuple(sorted(reviewers.get(effect.id, ()))),
            _duration_us(effect),
        )
        for effect in effects[:MAX_EFFECTS]
    ]
    return ComparedSession(session, calls, len(effects) > MAX_EFFECTS)


def _session_effects(session: Session) -> "QuerySet[Any]":
    columns = (*effect_table.EFFECT_TABLE_COLUMNS, *_READ)
    return Effect.objects.filter(session=session).only(*columns).order_by("opened_position")


def _duration_us(effect: Effect) -> int | None:
    if effect.dispatched_at_us is None or effect.settled_at_us is None:
        return None
    return max(effect.settled_at_us - effect.dispatched_at_us, 0)
