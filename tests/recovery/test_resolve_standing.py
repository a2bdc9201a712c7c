"""Which effects people may resolve: escalated ones, and ones in doubt if they insist."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from ledger.resolutions import (
    ANSWERS,
    ResolutionInput,
    ResolvePrompt,
    decide_resolution,
    evaluate_prompt,
)
from ledger.verdicts import table
from ledger.verdicts.table import ToolProperties, VerdictInput
from tests.recovery.test_verdict_texts import NOW, random_case

pytestmark = pytest.mark.once
LOST = VerdictInput(state="dispatched", permission="used", permission_basis="observe", attempts=1)


def evaluate(case: VerdictInput, deadline_us: int | None = NOW - 1) -> ResolvePrompt:
    return evaluate_prompt(case, table.decide_verdict(case, NOW), deadline_us, NOW)


@pytest.mark.parametrize(
    ("changes", "refused", "against"),
    [
        ({}, "", ""),
        ({"state": "failed", "outcome": "unknown", "failure_reason": "timeout"}, "", ""),
        ({"state": "acknowledged", "outcome": "unknown"}, "", ""),
        ({"is_stopped": True}, "", ""),  # a stop does not affect a resolution
        ({"lease_elsewhere": True}, "", "holds the lease"),
        ({"means": ToolProperties(tool_class="read_only")}, "", "can settle this without a person"),
        (
            {"resolution": "compensate", "resolved_attempt": 1},
            "",
            "compensation was already requested",
        ),
        (
            {
                "state": "failed",
                "outcome": "error",
                "failure_reason": "rejected",
                "earlier_in_doubt": True,
            },
            "",
            "",
        ),
        (
            {"state": "failed", "outcome": "error", "failure_reason": "rejected"},
            "did not happen",
            "",
        ),
        ({"state": "acknowledged", "outcome": "ok"}, "was acknowledged", ""),
        ({"state": "superseded"}, "Nothing to resolve", ""),
        ({"state": "compensated"}, "Nothing to resolve", ""),
        ({"compensation": LOST}, "compensation is open", ""),
        ({"state": "planned", "attempts": 0, "permission": "granted"}, "never dispatched", ""),
    ],
)
def test_the_prompt_depends_on_the_state_of_the_effect(
    changes: dict[str, Any], refused: str, against: str
) -> None:
    prompt = evaluate(replace(LOST, **changes))
    assert refused in prompt.refused
    assert against in prompt.against
    assert (bool(prompt.refused), bool(prompt.against)) == (bool(refused), bool(against))
    assert prompt.only == ANSWERS


def test_before_the_deadline_a_resolution_must_insist_or_is_refused() -> None:
    assert "may still arrive" in evaluate(LOST, NOW + 1).against
    assert (
        "can still check"
        in evaluate(replace(LOST, means=ToolProperties(tool_class="read_only")), NOW + 1).refused
    )


def test_an_effect_that_was_not_dispatched_can_only_be_abandoned() -> None:
    spent = VerdictInput(state="planned", permission="used", permission_basis="ruling")
    assert table.decide_verdict(spent, NOW).answer == "escalate"
    assert evaluate(spent).only == ("abandoned",)


def test_after_a_failed_compensation_it_cannot_be_requested_again() -> None:
    undo = replace(LOST, resolution="compensate", resolved_attempt=1, undoing_failed=True)
    assert evaluate(undo).only == ("happened", "not_happened", "abandoned")
    assert evaluate(replace(undo, state="acknowledged", outcome="ok")).only == ("happened",)


def test_every_escalated_effect_can_be_resolved() -> None:
    """An escalation without a possible answer would stay open forever."""
    random = Random(7)
    ended = 0
    for _ in range(8_000):
        case = replace(
            random_case(random), same_intent=True
        )  # a person resolves the planned intent
        if case.state == "planned":
            case = replace(case, attempts=0)
        elif case.attempts == 0:
            continue
        if case.compensation is not None:
            continue  # the compensation is resolved instead
        if table.decide_verdict(case, NOW).answer == "escalate":
            ended += 1
            assert not evaluate(case).refused, case
    assert ended > 200


@pytest.mark.parametrize(
    ("prompt", "changes", "code"),
    [
        (ResolvePrompt(), {}, None),
        (ResolvePrompt(), {"seen_version": 3}, "stale_view"),
        (ResolvePrompt("Its outcome is known."), {}, "not_asked"),
        (ResolvePrompt("Its outcome is known."), {"seen_version": 3}, "stale_view"),
        (ResolvePrompt(), {"answer": "perhaps"}, "answer"),
        (ResolvePrompt(only=("abandoned",)), {}, "answer"),
        (ResolvePrompt(against="A report may still arrive."), {}, "insist"),
        (ResolvePrompt(against="A report may still arrive."), {"insists": True}, None),
        (ResolvePrompt(), {"rationale": "because"}, "rationale_required"),
        (ResolvePrompt(), {"rationale": "x" * 4001}, "rationale_required"),
        (ResolvePrompt(), {"reference": "two\nlines"}, "reference"),
        (ResolvePrompt(), {"evidence": "x" * 4001}, "evidence"),
    ],
)
def test_a_resolution_is_refused_with_a_code(
    prompt: ResolvePrompt, changes: dict[str, Any], code: str | None
) -> None:
    resolution = replace(ResolutionInput("happened", "seen in the provider's log", 4), **changes)
    refusal = decide_resolution(4, prompt, resolution)
    assert (refusal and refusal.code) == code
