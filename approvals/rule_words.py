"""Says in words what a rule matches and asks for. Pure; templates show every piece as text."""

import json
from dataclasses import dataclass, field
from typing import Any, Final

from approvals.requirement import Requirement
from approvals.states import RISKS

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
    "session_owner": "the session's owner",
    "agent_owner": "the agent's owner",
}
_STEP_UPS: Final = {
    "reauth": "with their password",
    "typed_digest": "with their password and the typed code",
}


@dataclass(frozen=True, slots=True)
class Phrase:
    """One condition: what it looks at, how, and the globs or values it has."""

    label: str
    verb: str = ""
    values: list[str] = field(default_factory=list)


def conditions(match: dict[str, Any]) -> list[Phrase]:
    """The conditions of a rule, all of which must hold; none for a rule that covers everything."""
    found = [Phrase(label, "", list(match[key])) for key, label in _LISTS.items() if key in match]
    if "risk_at_least" in match or "risk_at_most" in match:
        least, most = match.get("risk_at_least", RISKS[0]), match.get("risk_at_most", RISKS[-1])
        found.append(Phrase("risk", "", list(RISKS[RISKS.index(least) : RISKS.index(most) + 1])))
    found += [Phrase(f"label {name}", "", [glob]) for name, glob in match.get("labels", {}).items()]
    found += [_argument(one) for one in match.get("arguments", ())]
    if "rate" in match:
        rate = match["rate"]
        found.append(
            Phrase(
                f"once {rate['over']} were planned within {length(rate['within_s'])} {_PER[rate['per']]}"
            )
        )
    if "session_effects_over" in match:
        found.append(
            Phrase(f"once {match['session_effects_over']} effects were planned in the session")
        )
    return found


SAME_CALL_UNKNOWN: Final = "while nobody knows what became of the same call in another session"


def asks(needed: Requirement) -> str:
    """What a rule that asks for leave asks for, as one sentence without its beginning."""
    whom = (
        " or ".join([*(f"team {name}" for name in needed.teams), *needed.people]) or "any reviewer"
    )
    people = f"{needed.minimum} people" if needed.minimum > 1 else "one person"
    parts = [f"{people} ({whom})"]
    if needed.step_up in _STEP_UPS:
        parts.append(_STEP_UPS[needed.step_up])
    if needed.distinct_from:
        parts.append(f"not {', '.join(_PARTIES[party] for party in needed.distinct_from)}")
    if needed.rationale != "none":
        ticket = f", with a ticket like {needed.ticket}" if needed.ticket else ""
        when = "a reason" if needed.rationale == "always" else "a reason for a no"
        parts.append(f"{when} of {needed.rationale_characters} characters or more{ticket}")
    if needed.deny_threshold > 1:
        parts.append(f"{needed.deny_threshold} must say no to refuse it")
    parts.append(f"within {length(needed.decide_within_s)}")
    parts.append(f"leave lasts {length(needed.leave_for_s)}")
    return "; ".join(parts)


def length(seconds: int) -> str:
    """A length of time in the largest unit that tells it whole: 90 s, 10 min, 1 h, 2 d."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds % size == 0 and seconds:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _argument(one: dict[str, Any]) -> Phrase:
    name = next(key for key in one if key != "path")
    label = f"argument {one['path']}"
    if name == "exists":
        return Phrase(label, "is there" if one[name] else "is not there")
    values = one[name] if isinstance(one[name], list) else [one[name]]
    return Phrase(
        label, _OPERATORS[name], [json.dumps(value, ensure_ascii=False) for value in values]
    )
