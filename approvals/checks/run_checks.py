"""Run all checks on requests: load what they compare, in a constant number of queries."""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
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
    NameFacts,
    find_lookalikes,
    load_name_facts,
)

log = logging.getLogger(__name__)
CHECK_FAILED: Final = "check_failed"
# Check -> what it finds. Votes store these keys; pages and docs list them.
CHECKS: Final[dict[str, str]] = {
    LOOKALIKE: "A name has letters that look like others, or looks like a name used before.",
    NEAR_NAME: "A new name differs by one or two characters from a name used before.",
    FIRST_USE: "No effect ran with this recipient's domain, account or cluster before.",
    "contradiction": "The claim contradicts the arguments.",
    "test_run": "The tests that the claim names failed or ran elsewhere.",
    earlier_denials.DENIED_BEFORE: "People refused the same, or something about the same thing.",
    "missing_evidence": "The rule requires evidence that the request does not carry.",
    "removed_commits": "A push is forced, and nobody sent the list of commits that it removes.",
    outliers.STANDS_OUT: "One of several alike has another cluster, account, owner or size.",
    CHECK_FAILED: "A check could not compare the request.",
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
        for check, find in (
            (LOOKALIKE, partial(find_lookalikes, request, names)),
            ("contradiction", partial(find_contradictions, request, seen[request.gate])),
            (
                earlier_denials.DENIED_BEFORE,
                partial(earlier_denials.find_earlier_denials, request, denials),
            ),
            (
                "missing_evidence",
                partial(missing_evidence.find_missing_evidence, request, evidence),
            ),
        ):
            listed += _run_check(check, find)
    try:
        apart = list(outliers.find_outliers(requests, siblings))
    except Exception:
        log.exception("a check failed: %s", outliers.STANDS_OUT)
        apart = [(request, _describe_failure(outliers.STANDS_OUT)) for request in requests]
    for request, result in apart:
        results[request.gate].append(result)
    return {
        gate: tuple(sorted(listed, key=lambda result: LEVELS.index(result.level)))
        for gate, listed in results.items()
        if listed
    }


def check_letters(request: CheckedRequest) -> list[CheckResult]:
    """Return which names of a request hold letters that look like others. No query.

    For lists that run no checks: names used before are not compared.
    """
    return _run_check(LOOKALIKE, partial(find_lookalikes, request, NameFacts()))


def _run_check(check: str, find: Callable[[], Iterable[CheckResult]]) -> list[CheckResult]:
    """Return what a check finds; a check that fails is a warning, never an unreachable page."""
    try:
        return list(find())
    except Exception:
        log.exception("a check failed: %s", check)
        return [_describe_failure(check)]


def _describe_failure(check: str) -> CheckResult:
    return CheckResult(
        CHECK_FAILED,
        "warning",
        short="not checked",
        title="A check failed on this request:",
        sentence=f"It is unknown whether this holds: {CHECKS[check]} Compare it yourself.",
    )
