"""Run all checks on requests: load what they compare, in a constant number of queries."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from approvals.checks import earlier_denials, missing_evidence, outliers, set_queries
from approvals.checks.check_results import LEVELS, CheckResult
from approvals.checks.checked_request import CheckedRequest
from approvals.checks.contradiction_facts import load_contradiction_facts
from approvals.checks.contradictions import find_contradictions
from approvals.checks.lookalikes import (
    FIRST_USE,
    LOOKALIKE,
    NEAR_NAME,
    find_lookalikes,
    load_name_facts,
)

# Check -> what it finds. Votes store these keys; pages and docs list them.
CHECKS: Final[dict[str, str]] = {
    LOOKALIKE: "A name has letters that look like others, or looks like a name used before.",
    NEAR_NAME: "A new name differs by one or two characters from a name used before.",
    FIRST_USE: "No effect ran with this recipient's domain, account or cluster before.",
    "contradiction": "The claim contradicts the arguments.",
    "test_run": "The tests that the claim names failed or ran elsewhere.",
    earlier_denials.DENIED_BEFORE: "People refused the same, or something about the same thing.",
    "missing_evidence": "The rule wants evidence that the request does not carry.",
    "removed_commits": "A push is forced, and nobody sent the list of commits that it removes.",
    outliers.STANDS_OUT: "One of several alike has another cluster, account, owner or size.",
}


def check_requests(
    project: UUID, requests: Sequence[CheckedRequest]
) -> dict[UUID, tuple[CheckResult, ...]]:
    """Return the results of all checks by gate, the gravest first; gates without any are absent.

    The number of queries does not depend on the number of requests.
    """
    if not requests:
        return {}
    names = load_name_facts(project, requests)
    seen = load_contradiction_facts(project, requests)
    denials = earlier_denials.load_earlier_denials(project, requests)
    evidence = missing_evidence.load_required_evidence(project, requests)
    siblings = set_queries.load_siblings(project, requests)
    results: dict[UUID, list[CheckResult]] = {request.gate: [] for request in requests}
    for request in requests:
        listed = results[request.gate]
        listed += find_lookalikes(request, names)
        listed += find_contradictions(request, seen[request.gate])
        listed += earlier_denials.find_earlier_denials(request, denials)
        listed += missing_evidence.find_missing_evidence(request, evidence)
    for request, result in outliers.find_outliers(requests, siblings):
        results[request.gate].append(result)
    return {
        gate: tuple(sorted(listed, key=lambda result: LEVELS.index(result.level)))
        for gate, listed in results.items()
        if listed
    }
