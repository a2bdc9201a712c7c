"""The ids of the rules, with the words of the stuck board."""

from collections.abc import Mapping
from typing import Any, Final

RULES: Final[dict[str, str]] = {
    "S1": "Never started",
    "S2": "Worker gone: lease expired",
    "S3": "Alive, no progress",
    "S4": "Outcome unknown",
    "S5": "Looping: retrying without progress",
    "S6": "Waiting for approval: over half of its time has passed",
    "S7": "No worker took over",
    "S8": "Old worker still writing",
    "S10": "No reports from an active agent",
}


def name_rule(facts: Mapping[str, Any]) -> str:
    """Return id and words of the rule that an entry of a stuck session names."""
    rule = str(facts.get("rule", ""))
    return f"{rule} {RULES.get(rule, '')}".strip()
