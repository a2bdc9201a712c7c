"""Data of the page that compares two sessions.

First effects, gates and voters of each.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet

from approvals.models import Gate, Vote
from inquiry import comparing, shown, timeline
from inquiry.comparing import MOST, Call, Line
from journal import gists
from ledger.models import Effect
from sessions.models import Session

GATES: Final = 2 * MOST  # gates of both sessions that are read
_READ: Final = ("intent_digest", "dispatched_at_us", "settled_at_us")


@dataclass(slots=True)
class Side:
    """One of the two sessions.

    Its calls in the order Gatebook received them, and totals.
    """

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

    left: Side
    right: Side
    lines: list[Line]
    gates_cut: bool  # more gates than are read: waiting times and reviewers are incomplete


def compare(left: Session, right: Session, now_us: int) -> Comparison:
    """Compare the first MOST effects of two sessions of the member's project."""
    gates = list(
        Gate.objects.filter(session__in=[left.id, right.id])
        .order_by("opened_position")
        .values("id", "effect_id", "requested_at_us", "decided_at_us", "ended_at_us")[: GATES + 1]
    )
    voters = _voters([gate["id"] for gate in gates[:GATES]])
    waits: dict[UUID, int] = {}
    reviewers: dict[UUID, set[str]] = {}
    for gate in gates[:GATES]:
        until_us = gate["decided_at_us"] or gate["ended_at_us"] or now_us
        waits[gate["effect_id"]] = waits.get(gate["effect_id"], 0) + max(
            until_us - gate["requested_at_us"], 0
        )
        reviewers.setdefault(gate["effect_id"], set()).update(voters.get(gate["id"], ()))
    left_side, right_side = (
        _side(left, waits, reviewers, now_us),
        _side(right, waits, reviewers, now_us),
    )
    return Comparison(
        left_side,
        right_side,
        comparing.lines(left_side.calls, right_side.calls),
        len(gates) > GATES,
    )


def add_gists(compared: Iterable[Line]) -> None:
    """Set `gist`, a one-line summary of the call, on each line's effect.

    `gist` is None without a readable plan. One query for the rows shown: the plans of two long
    sessions are many megabytes.
    """
    calls = [line.one.effect for line in compared]
    heads = dict(
        Effect.objects.filter(id__in=[effect.id for effect in calls])
        .annotate(plan_head=gists.plan_heads())
        .values_list("id", "plan_head")
    )
    for effect in calls:
        effect.gist = gists.gist_of(heads.get(effect.id))


def _voters(gates: list[UUID]) -> dict[UUID, list[str]]:
    names: dict[UUID, list[str]] = {}
    if gates:
        votes = Vote.objects.filter(gate__in=gates).order_by("position")
        for gate, name in votes.values_list("gate_id", "user__username"):
            names.setdefault(gate, []).append(name)
    return names


def _side(
    session: Session, waits: dict[UUID, int], reviewers: dict[UUID, set[str]], now_us: int
) -> Side:
    effects = list(_effects(session)[: MOST + 1])
    calls = [
        Call(
            effect,
            shown.shown_state(effect, now_us),
            waits.get(effect.id),
            tuple(sorted(reviewers.get(effect.id, ()))),
            _took(effect),
        )
        for effect in effects[:MOST]
    ]
    return Side(session, calls, len(effects) > MOST)


def _effects(session: Session) -> "QuerySet[Any]":
    columns = (*timeline.SHOWN, *_READ)
    return Effect.objects.filter(session=session).only(*columns).order_by("opened_position")


def _took(effect: Effect) -> int | None:
    if effect.dispatched_at_us is None or effect.settled_at_us is None:
        return None
    return max(effect.settled_at_us - effect.dispatched_at_us, 0)
