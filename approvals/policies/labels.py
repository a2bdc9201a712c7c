"""Text of what a rule matches and requires. Pure; templates escape every piece."""

import json
from dataclasses import dataclass, field
from typing import Any, Final

from approvals.gates.statuses import RISKS
from approvals.policies.engine import RequiredEvidence, Requirement

_LISTS: Final = {
    "tools": "tool",
    "operations": "operation",
    "repositories": "repository",
    "refs": "ref",
    "environments": "environment",
    "resources": "resource",
    "agents": "agent",
    "ref_classes": "ref class",
    "reversibility": "reversibility",
}
_OPERATORS: Final = {
    "eq": "is",
    "ne": "is not",
    "in": "is one of",
    "lt": "is less than",
    "lte": "is at most",
    "gt": "is more than",
    "gte": "is at least",
    "contains": "contains",
    "prefix": "begins with",
    "cidr": "is an address in",
}
_PER: Final = {
    "tool": "with this tool",
    "agent": "with this tool by the agent",
    "session": "with this tool in the session",
    "project": "in the project",
}
_PARTIES: Final = {
    "requester": "the requester",
    "session_owner": "the session owner",
    "agent_owner": "the agent owner",
}
_STEP_UPS: Final = {
    "reauth": "with a password",
    "typed_digest": "with a password and the intent code",
}

WARNED_PROOF_LABELS: Final = {
    "reauth": "a password",
    "typed_digest": "a password and the intent code",
    "typed_name": "a password, the intent code and the name typed from your own records",
}


@dataclass(frozen=True, slots=True)
class ConditionText:
    """One condition: its label, operator, and globs or values."""

    label: str
    verb: str = ""
    values: list[str] = field(default_factory=list)


def describe_conditions(match: dict[str, Any]) -> list[ConditionText]:
    """Return the conditions of a rule, all of which must hold; no condition means all."""
    phrases = [
        ConditionText(label, "", list(match[key])) for key, label in _LISTS.items() if key in match
    ]
    if "risk_at_least" in match or "risk_at_most" in match:
        least, most = match.get("risk_at_least", RISKS[0]), match.get("risk_at_most", RISKS[-1])
        phrases.append(
            ConditionText("risk", "", list(RISKS[RISKS.index(least) : RISKS.index(most) + 1]))
        )
    phrases += [
        ConditionText(f"label {name}", "", [glob]) for name, glob in match.get("labels", {}).items()
    ]
    phrases += [_describe_argument(condition) for condition in match.get("arguments", ())]
    if "rate" in match:
        rate = match["rate"]
        window = f"within {format_duration(rate['within_s'])} {_PER[rate['per']]}"
        phrases.append(ConditionText(f"once {rate['over']} were planned {window}"))
    if "session_effects_over" in match:
        phrases.append(
            ConditionText(
                f"once {match['session_effects_over']} effects were planned in the session"
            )
        )
    return phrases


SAME_CALL_UNKNOWN: Final = "while the outcome of the same call in another session is unknown"


def describe_requirement(requirement: Requirement) -> str:
    """Describe what a rule requires, as a list of fragments."""
    named = [*(f"team {name}" for name in requirement.teams), *requirement.people]
    names = " or ".join(named) or "any reviewer"
    people = f"{requirement.minimum} people" if requirement.minimum > 1 else "1 person"
    parts = [f"{people} ({names})"]
    if requirement.step_up in _STEP_UPS:
        parts.append(_STEP_UPS[requirement.step_up])
    if requirement.distinct_from:
        parts.append(f"not {', '.join(_PARTIES[party] for party in requirement.distinct_from)}")
    if requirement.rationale != "none":
        ticket = f", with a ticket like {requirement.ticket}" if requirement.ticket else ""
        when = "a reason" if requirement.rationale == "always" else "a reason to deny"
        parts.append(f"{when} of {requirement.rationale_characters} characters or more{ticket}")
    if requirement.evidence:
        parts.append(f"the request names {describe_evidence(requirement.evidence)}")
    if requirement.proof_on_warning:
        parts.append(
            f"if there is a warning, with {WARNED_PROOF_LABELS[requirement.proof_on_warning]}"
        )
    if requirement.deny_threshold > 1:
        parts.append(f"{requirement.deny_threshold} denials to deny")
    parts.append(f"decide within {format_duration(requirement.decide_within_s)}")
    parts.append(f"approval valid {format_duration(requirement.valid_for_s)}")
    return "\N{NO-BREAK SPACE}· ".join(parts)


def describe_evidence(evidence: RequiredEvidence) -> str:
    """List what a request must carry: a ticket like OPS-*, removed commits, row count."""
    parts = [f"a ticket like {glob}" for glob in evidence.tickets]
    flags = {
        "removed commits": evidence.removed_commits,
        "plan hash": evidence.plan_hash,
        "row count": evidence.row_count,
    }
    parts += [name for name, is_required in flags.items() if is_required]
    return ", ".join([*parts, *map(format_argument_path, evidence.arguments)])


def format_argument_path(path: str) -> str:
    """Format the path of an argument as words: `plan_hash` as plan hash."""
    return path.replace("_", " ").replace("-", " ")


def format_duration(seconds: int) -> str:
    """Format a length of time in the largest exact unit: 90 s, 10 min, 1 h, 2 d."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds % size == 0 and seconds:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _describe_argument(condition: dict[str, Any]) -> ConditionText:
    operator = next(key for key in condition if key != "path")
    label = f"argument {condition['path']}"
    if operator == "exists":
        return ConditionText(label, "is there" if condition[operator] else "is not there")
    values = condition[operator] if isinstance(condition[operator], list) else [condition[operator]]
    return ConditionText(
        label, _OPERATORS[operator], [json.dumps(value, ensure_ascii=False) for value in values]
    )
