"""A claim against the arguments: what contradicts it is a warning, and nothing else is."""

from typing import Any
from uuid import UUID

import pytest

from approvals.checks.check_results import LEVELS, CheckResult
from approvals.checks.checked_request import CheckedRequest
from approvals.checks.contradictions import find_contradictions
from tests.approvals.checks.claim_cases import HITS, NEAR_MISSES, Case

NOBODY = UUID(int=1)


def build_request(claim: str, tool: str, arguments: Any, **fields: Any) -> CheckedRequest:
    """A request of one call; `fields` are other fields of it."""
    defaults: dict[str, Any] = {
        "gate": NOBODY, "effect": NOBODY, "session": NOBODY, "agent": NOBODY,
        "opened_position": 2, "plan_position": 1, "requested_at_us": 1, "preconditions": {},
        "repository": "", "ref": "", "ref_class": "", "environment": "", "resource": "",
        "reversibility": "irreversible", "risk": "high", "policy_set": None, "rule": "",
        "intent_digest": "",
    }  # fmt: skip
    return CheckedRequest(tool=tool, arguments=arguments, claim=claim, **(defaults | fields))


def compare(case: Case) -> list[CheckResult]:
    """The contradictions of a case."""
    return list(
        find_contradictions(build_request(case.claim, case.tool, case.arguments, **case.fields))
    )


@pytest.mark.parametrize("case", HITS, ids=lambda case: case.claim or "environment")
def test_a_contradicted_claim_is_a_warning_beside_its_argument(case: Case) -> None:
    results = compare(case)
    assert (case.concerns, case.short) in [(each.concerns, each.short) for each in results], results
    for result in results:
        assert result.level in LEVELS
        assert len(result.short) <= 28
        assert result.title[-1] in ".:"
        if result.phrase is not None:
            start, end = result.phrase
            assert f"“{case.claim[start:end].strip()}”" in result.title


@pytest.mark.parametrize("case", NEAR_MISSES, ids=lambda case: case.claim or "no claim")
def test_a_claim_that_holds_or_means_something_else_is_quiet(case: Case) -> None:
    assert compare(case) == []
