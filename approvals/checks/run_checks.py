"""Run all checks on requests: load what they compare, in a constant number of queries."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from approvals.checks import earlier_denials
from approvals.checks.checked_request import CheckedRequest
from approvals.checks.results import LEVELS, CheckResult

# Check -> what it finds. Votes store these keys; pages and docs list them.
CHECKS: Final[dict[str, str]] = {
    earlier_denials.DENIED_BEFORE: "People refused the same, or something about the same thing.",
}


def check_requests(
    project: UUID, requests: Sequence[CheckedRequest]
) -> dict[UUID, tuple[CheckResult, ...]]:
    """Return the results of all checks by gate, the gravest first; gates without any are absent.

    The number of queries does not depend on the number of requests.
    """
    results: dict[UUID, list[CheckResult]] = {request.gate: [] for request in requests}
    denials = earlier_denials.load_earlier_denials(project, requests)
    for request in requests:
        results[request.gate].extend(earlier_denials.find_earlier_denials(request, denials))
    return {
        gate: tuple(sorted(listed, key=lambda result: LEVELS.index(result.level)))
        for gate, listed in results.items()
        if listed
    }
