"""Of what people are asked: where the table ends at them, or where nobody knows and they insist; of
nothing else."""

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
from tests.recovery.test_verdict_texts import NOW, some

pytestmark = pytest.mark.once
LOST = VerdictInput(state="dispatched", permission="used", permission_basis="observe", attempts=1)


def asked(case: VerdictInput, deadline_us: int | None = NOW - 1) -> ResolvePrompt:
    return evaluate_prompt(case, table.decide_verdict(case, NOW), deadline_us, NOW)


@pytest.mark.parametrize(
    ("changes", "refused", "against"),
    [
        ({}, "", ""),
        ({"state": "failed", "outcome": "unknown", "failure_reason": "timeout"}, "", ""),
        ({"state": "acknowledged", "outcome": "unknown"}, "", ""),
        ({"is_stopped": True}, "", ""),  # what was is no matter of what may be
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
def test_of_what_people_are_asked(changes: dict[str, Any], refused: str, against: str) -> None:
    found = asked(replace(LOST, **changes))
    assert refused in found.refused
    assert against in found.against
    assert (bool(found.refused), bool(found.against)) == (bool(refused), bool(against))
    assert found.only == ANSWERS


def test_while_an_answer_may_be_on_its_way() -> None:
    assert "may still arrive" in asked(LOST, NOW + 1).against
    assert (
        "can still check"
        in asked(replace(LOST, means=ToolProperties(tool_class="read_only")), NOW + 1).refused
    )


def test_of_what_was_never_dispatched_one_can_only_let_go() -> None:
    spent = VerdictInput(state="planned", permission="used", permission_basis="ruling")
    assert table.decide_verdict(spent, NOW).answer == "escalate"
    assert asked(spent).only == ("abandoned",)


def test_where_undoing_it_came_to_nothing_one_does_not_ask_for_it_again() -> None:
    undo = replace(LOST, resolution="compensate", resolved_attempt=1, undoing_failed=True)
    assert asked(undo).only == ("happened", "not_happened", "abandoned")
    assert asked(replace(undo, state="acknowledged", outcome="ok")).only == ("happened",)


def test_where_the_table_ends_at_a_person_one_is_asked() -> None:
    """Whatever the case: an escalation that nobody may answer would stand for ever."""
    random = Random(7)
    ended = 0
    for _ in range(8_000):
        case = replace(some(random), same_intent=True)  # nobody who looks means another
        if case.state == "planned":
            case = replace(case, attempts=0)
        elif case.attempts == 0:
            continue
        if case.compensation is not None:
            continue  # they are asked of that
        if table.decide_verdict(case, NOW).answer == "escalate":
            ended += 1
            assert not asked(case).refused, case
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
