"""First rules, proposed from the first effects of a project. Pure; writes YAML texts."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from approvals.policies.policies_yaml import LONGEST_GLOB

MAX_PROPOSALS: Final = 4
_GLOB_CHARACTERS: Final = str.maketrans({"*": "[*]", "?": "[?]", "[": "[[]"})


@dataclass(frozen=True, slots=True)
class SeenCall:
    """What an effect gives a rule: its tool and its target, empty where it names none."""

    tool: str
    repository: str = ""
    ref: str = ""
    environment: str = ""
    resource: str = ""

    @property
    def target_conditions(self) -> tuple[tuple[str, str], ...]:
        """The conditions that name this target: at most repository and ref, or one other."""
        if self.repository:
            named = (("repositories", self.repository), ("refs", self.ref))
        else:
            named = (("resources", self.resource), ("environments", self.environment))
        return tuple((key, value) for key, value in named if value)


@dataclass(frozen=True, slots=True)
class RuleProposal:
    """A policy with one rule that asks; everything else passes. `tool` is what it names, if any."""

    key: str
    ask: str  # completes “Ask me before …”
    tool: str
    target: str
    text: str

    @property
    def digest(self) -> str:
        """Binds the activation to the text that its page showed."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def propose_rules(calls: Iterable[SeenCall]) -> list[RuleProposal]:
    """Return proposals for the first calls: each tool, its target, then everything irreversible."""
    narrow: list[RuleProposal] = []
    seen: set[str] = set()
    for call in calls:
        glob = call.tool.translate(_GLOB_CHARACTERS)
        if call.tool in seen or not call.tool or len(glob) > LONGEST_GLOB:
            continue
        seen.add(call.tool)
        number = len(seen)
        narrow.append(_build(f"tool-{number}", "every call of", call.tool, "", [("tools", glob)]))
        conditions = [
            (key, value.translate(_GLOB_CHARACTERS)) for key, value in call.target_conditions
        ]
        if conditions and all(len(value) <= LONGEST_GLOB for _, value in conditions):
            target = " ".join(value for _, value in call.target_conditions)
            narrow.append(
                _build(f"target-{number}", "", call.tool, target, [("tools", glob), *conditions])
            )
    general = _build(
        "irreversible", "anything irreversible", "", "", [("reversibility", "irreversible")]
    )
    return [*narrow[: MAX_PROPOSALS - 1], general]


def _build(
    key: str, ask: str, tool: str, target: str, conditions: Sequence[tuple[str, str]]
) -> RuleProposal:
    title = " ".join(filter(None, ("Ask before", ask, tool, "on" if target else "", target)))
    match = ", ".join(
        f"{name}: [{value if name == 'reversibility' else json.dumps(value)}]"
        for name, value in conditions
    )
    text = (
        "name: first-rule\n"
        "rules:\n"
        "  - id: ask\n"
        f"    title: {json.dumps(title[:200])}\n"
        f"    match: {{{match}}}\n"
        "    outcome: require\n"
        "  - id: rest\n"
        "    title: Everything else\n"
        "    match: {}\n"
        "    outcome: allow\n"
    )
    return RuleProposal(key, ask, tool, target, text)
