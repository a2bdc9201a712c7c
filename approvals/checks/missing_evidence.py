"""The missing-evidence check: what the rule requires of the request itself, and was not sent.

Only the request's own fields count, never the reviewer's reason: the agent must bring the evidence
before a person looks. A forced push without the list of the commits that it removes is a warning
under every rule.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final
from uuid import UUID

from approvals.checks.check_results import CheckResult
from approvals.checks.checked_request import CheckedRequest
from approvals.diff.destructive_pushes import PushFlags, read_push_flags
from approvals.diff.hidden_characters import iterate_strings
from approvals.models import Gate
from approvals.policies.engine import NO_EVIDENCE, RequiredEvidence
from approvals.policies.labels import format_argument_path
from db.compiled_query import CompiledQuerySet

MISSING_EVIDENCE: Final = "missing_evidence"
REMOVED_COMMITS: Final = "removed_commits"
PLAN_HASH_NAMES: Final = (
    "plan_hash",
    "plan_sha256",
    "plan_sha",
    "plan_digest",
    "plan_checksum",
    "plan_file_sha256",
    "plan_file_hash",
)
ROW_COUNT_NAMES: Final = (
    "row_count",
    "rows",
    "expected_rows",
    "affected_rows",
    "rows_affected",
    "estimated_rows",
    "expected_row_count",
    "rowcount",
)
_STATEMENTS: Final = ("sql", "query", "statement", "statements", "queries", "command", "cmd")
_PLANNERS: Final = r"(?:terraform|tofu|opentofu|terragrunt|pulumi|cdktf|cdk)"
_PLANNER: Final = re.compile(rf"(?<![a-z]){_PLANNERS}(?![a-z])")
_READING_VERBS: Final = {"plan", "preview", "show", "validate", "output", "diff", "init", "fmt"}
# A statement that changes rows, wherever one begins in a text.
_MUTATION: Final = re.compile(
    r"(?:^|[;(\"'\n])[^\S\n]*(?:with\b.{0,2000}?\)\s*)?"
    r"(?:update\s+\S+\s+(?:as\s+\w+\s+)?set|delete\s+from|insert\s+into|replace\s+into|merge\s+into"
    r"|truncate)\b",
    re.IGNORECASE | re.DOTALL,
)
_SEPARATORS: Final = re.compile(r"[\s,;:()\[\]{}<>\"'`|/\\#=&?!@]+")
_EDGES: Final = ".,;:()[]{}<>\"'`!?"
_WORD: Final = re.compile(r"[a-z0-9]+")
_MAX_NAMED: Final = 8  # missing items that the line names


@dataclass(frozen=True, slots=True)
class RequestEvidence:
    """What a request's rule requires of it, and the fields of its session that may carry it."""

    required: RequiredEvidence = NO_EVIDENCE
    session_title: str = ""
    session_labels: Mapping[str, Any] = field(default_factory=dict)


_UNREQUIRED: Final = RequestEvidence()


def load_required_evidence(
    project: UUID, requests: Sequence[CheckedRequest]
) -> dict[UUID, RequestEvidence]:
    """Load what the gates' requirements demand, by gate. One query.

    The requirement is the one bound to the gate, so later rules change no waiting request.
    """
    loaded = {}
    for gate, requirement, title, labels in _REQUIREMENTS.rows(
        project=project, gates=[request.gate for request in requests]
    ):
        if "evidence" in requirement:
            loaded[gate] = RequestEvidence(
                RequiredEvidence.of(requirement["evidence"]),
                title or "",
                labels if isinstance(labels, dict) else {},
            )
    return loaded


def _select_requirements(project: UUID, gates: Sequence[UUID]) -> Any:
    return Gate.objects.filter(project=project, id__in=gates).values_list(
        "id", "requirement", "session__title", "session__labels"
    )


_REQUIREMENTS: Final = CompiledQuerySet(_select_requirements, project=UUID, gates=[UUID])


def find_missing_evidence(
    request: CheckedRequest, facts: Mapping[UUID, RequestEvidence]
) -> Iterator[CheckResult]:
    """Find what the request does not carry: a list of removed commits, then what its rule requires.

    Pure. Yields nothing for a request whose arguments were not read.
    """
    if request.arguments is None:
        return
    sent = facts.get(request.gate, _UNREQUIRED)
    push = read_push_flags(request.tool, request.arguments, request.preconditions, request.ref)
    if push.forced_by and not push.is_reported:
        yield _report_removed_commits(push, is_required=sent.required.removed_commits)
    missing = list(_list_missing(request, sent, push)) if sent.required else []
    if missing:
        yield _report_missing(missing)


def _report_removed_commits(push: PushFlags, *, is_required: bool) -> CheckResult:
    wanted = "; the rule requires one" if is_required else ""
    return CheckResult(
        REMOVED_COMMITS,
        "warning",
        "may remove commits",
        "May remove commits: not reported.",
        f"{push.forced_by} forces the push; the agent sent no list of removed commits{wanted}. "
        "Assume it removes some.",
        concerns="changes",
    )


def _report_missing(missing: Sequence[str]) -> CheckResult:
    named = ", ".join(missing[:_MAX_NAMED])
    if len(missing) > _MAX_NAMED:
        named += f" and {len(missing) - _MAX_NAMED} more"
    first = missing[0].partition(" (")[0]
    short = (
        f"no {first}"
        if len(missing) == 1 and len(first) <= 20
        else (
            f"{len(missing)} things not provided" if len(missing) > 1 else "evidence not provided"
        )
    )
    return CheckResult(
        MISSING_EVIDENCE,
        "warning",
        short,
        f"Not provided: {named}.",
        "Assume the worst.",
        concerns="evidence",
    )


def _list_missing(request: CheckedRequest, sent: RequestEvidence, push: PushFlags) -> Iterator[str]:
    required = sent.required
    for glob in required.tickets:
        if not _has_ticket(request, sent, glob):
            yield f"ticket (the rule requires {glob.replace('*', '…')})"
    if (
        required.removed_commits
        and not push.is_reported
        and not push.forced_by  # reported by a warning of its own
        and (push.deleted_by or not push.pushes)
    ):
        yield "removed commits"
    if required.plan_hash and _is_planner(request) and not _has_value(request, PLAN_HASH_NAMES):
        yield "plan hash"
    if required.row_count and _is_mutation(request) and not _has_value(request, ROW_COUNT_NAMES):
        yield "row count"
    for path in required.arguments:
        if not _has_argument(request, path):
            yield format_argument_path(path)


def _has_ticket(request: CheckedRequest, sent: RequestEvidence, glob: str) -> bool:
    """Return True if a word of the request's own fields matches `glob` and more than its start."""
    start = re.split(r"[*?\[]", glob, maxsplit=1)[0]
    least = len(glob.rstrip("*")) + glob.endswith("*")  # OPS- alone names no ticket

    def matches(word: str) -> bool:
        return len(word) >= least and fnmatchcase(word, glob)

    return any(
        matches(word)
        for text in _iterate_texts(request, sent)
        if start in text
        for word in _split_words(text)
    )


def _iterate_texts(request: CheckedRequest, sent: RequestEvidence) -> Iterator[str]:
    yield from (request.claim, request.repository, request.ref, request.environment)
    yield from (request.resource, sent.session_title)
    yield from iterate_strings(dict(sent.session_labels))
    yield from iterate_strings(dict(request.preconditions))
    yield from iterate_strings(request.arguments)


def _split_words(text: str) -> Iterator[str]:
    """Yield the words of a text, first without and then with separators inside them."""
    for word in _SEPARATORS.split(text):
        yield word.strip(_EDGES)
    for word in text.split():
        yield word.strip(_EDGES)


def _is_planner(request: CheckedRequest) -> bool:
    """Return True if a terraform-like tool would apply something, and not only show it."""
    tool = request.tool.casefold()
    lines = [
        line
        for name in ("command", "cmd", "commands", "script", "run", "args", "argv")
        if isinstance(request.arguments, Mapping)
        for line in _join_commands(request.arguments.get(name))
    ]
    if _PLANNER.search(tool):
        return not _READING_VERBS.intersection(_WORD.findall(tool))
    for line in lines:
        match = _PLANNER.search(line)
        if match and not _READING_VERBS.intersection(line[match.end() :].split()[:2]):
            return True
    return False


def _join_commands(value: Any) -> list[str]:
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        value = " ".join(value)
    return re.split(r"[;&|\n]+", value.casefold()) if isinstance(value, str) else []


def _is_mutation(request: CheckedRequest) -> bool:
    """Return True if a SQL statement of the arguments changes rows."""
    if not isinstance(request.arguments, Mapping):
        return isinstance(request.arguments, str) and bool(_MUTATION.search(request.arguments))
    return any(
        _MUTATION.search(text)
        for name in _STATEMENTS
        for text in iterate_strings(request.arguments.get(name))
    )


def _has_value(request: CheckedRequest, names: Sequence[str]) -> bool:
    return any(_has_argument(request, name) for name in names)


def _has_argument(request: CheckedRequest, path: str) -> bool:
    """Return True if arguments or preconditions have a value at a dot path; 0 and false count."""
    return any(
        _find_value(source, path) not in (None, "", [], {})
        for source in (request.arguments, request.preconditions)
    )


def _find_value(source: Any, path: str) -> Any:
    value = source
    for step in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value.strip() if isinstance(value, str) else value
