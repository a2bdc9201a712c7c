"""Proof that an approval needs while checks of its request warn, and the names to type. Pure.

Only `load_request_checks` reads the database. Nothing here lowers a proof: what a rule and the
severity of the effect need is needed with or without warnings.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from string import ascii_uppercase
from typing import Any, Final

from approvals.checks import run_checks
from approvals.checks.check_results import CheckResult
from approvals.checks.checked_request import build_checked_request
from approvals.models import Gate
from approvals.policies import policy_evaluation
from approvals.policies.engine import Requirement

# Checks that compare a requested name with a known one.
NAME_CHECKS: Final = ("lookalike", "lookalike_letters", "near_name")
REQUESTED: Final = "Requested"  # labels of the values that they compare
KNOWN: Final = "Known"
MAX_NAMES: Final = 10  # names to type for one approval; further ones need no typing
MAX_TYPED_CHARACTERS: Final = 1000
_SHOWN_CHARACTERS: Final = 120  # of a typed name that a refusal repeats
_DOMAIN: Final = re.compile(r"[^\s/@:]+\.[^\s/@:.]{2,}")


@dataclass(frozen=True, slots=True)
class NameToType:
    """A requested name that a check takes for another, and the known names it resembles."""

    requested: str
    known_names: tuple[str, ...] = ()

    @property
    def noun(self) -> str:
        """What the name is: address, domain or name."""
        if "@" in self.requested:
            return "address"
        return "domain" if _DOMAIN.fullmatch(self.requested) else "name"


@dataclass(frozen=True, slots=True)
class ApprovalProof:
    """What an approval needs: the step-up, and names typed from the reviewer's own records."""

    step_up: str
    names: tuple[NameToType, ...] = ()


def load_request_checks(
    gate: Gate, effect: Any, plan: Mapping[str, Any] | None = None
) -> tuple[CheckResult, ...]:
    """Run all checks on the request of a gate and its effect, as of now.

    `plan` is the body of its plan if it was read already.
    """
    plan = policy_evaluation.load_plan_body(gate.plan_position) if plan is None else plan
    checked = build_checked_request(gate, effect, plan)
    return run_checks.check_requests(gate.project_id, [checked]).get(gate.id, ())


def list_warnings(results: Iterable[CheckResult]) -> tuple[str, ...]:
    """Return the check ids of the results that warn, sorted; one for each warning."""
    return tuple(sorted(result.check for result in results if result.is_warning))


def find_unseen_warnings(
    results: Iterable[CheckResult], shown: Sequence[str]
) -> tuple[CheckResult, ...]:
    """Return the warnings that a page with the warnings `shown` did not have."""
    remaining = Counter(shown)
    unseen = []
    for result in results:
        if result.is_warning and remaining[result.check]:
            remaining[result.check] -= 1
        elif result.is_warning:
            unseen.append(result)
    return tuple(unseen)


def decide_approval_proof(
    requirement: Requirement, results: Sequence[CheckResult]
) -> ApprovalProof:
    """Decide the proof of an approval: that of the rule, raised if a check warns."""
    if not requirement.proof_on_warning or not any(result.is_warning for result in results):
        return ApprovalProof(requirement.step_up)
    names = _list_names(results) if requirement.proof_on_warning == "typed_name" else ()
    return ApprovalProof(requirement.step_up_when_warned(), names)


def _list_names(results: Iterable[CheckResult]) -> tuple[NameToType, ...]:
    """Return each requested name of a lookalike or near name once, with its known names."""
    known_by_requested: dict[str, list[str]] = {}
    for result in results:
        if result.check not in NAME_CHECKS or not result.is_warning:
            continue
        requested = [line.value for line in result.compared if line.label == REQUESTED]
        known_names = [line.value for line in result.compared if line.label == KNOWN]
        for value in requested:
            known_by_requested.setdefault(value, []).extend(known_names)
    return tuple(
        NameToType(requested, tuple(dict.fromkeys(names)))
        for requested, names in list(known_by_requested.items())[:MAX_NAMES]
    )


def find_wrong_names(names: Sequence[NameToType], typed: Sequence[str]) -> dict[int, str]:
    """Return why typed names are refused, by number; empty if each equals the requested one."""
    padded = [*typed, *[""] * len(names)]
    refusals = {
        number: explain_typed_name(name, padded[number]) for number, name in enumerate(names)
    }
    return {number: refusal for number, refusal in refusals.items() if refusal}


def explain_typed_name(name: NameToType, typed: str) -> str:
    """Return why `typed` does not confirm `name`; empty if it equals the requested name.

    A to Z count as a to z. No other letter is taken for another.
    """
    entered, requested = _fold_name(typed), _fold_name(name.requested)
    if entered == requested:
        return ""
    if not entered:
        return f"Type the {name.noun} from your own records, not from this page."
    shown = typed.strip()[:_SHOWN_CHARACTERS]
    if entered in map(_fold_name, name.known_names) or _is_near(entered, requested):
        difference = describe_difference(entered, requested)
        return (
            f"You typed {shown}. The request goes to another {name.noun}, {difference}. "
            "Deny it, or ask for changes: the agent can request it again with the name you know."
        )
    return (
        f"You typed {shown}, which is not the requested {name.noun}. "
        "Check your records. If the names differ, deny the request."
    )


def _is_near(typed: str, requested: str) -> bool:
    """Return True if all but a few characters at one place are equal: the known name, probably."""
    least = max(len(typed), len(requested)) - _MAX_DIFFERENT
    start = _count_common_start(typed, requested)
    end = _count_common_start(typed[start:][::-1], requested[start:][::-1])
    return len(typed) > _MAX_DIFFERENT and start + end >= least


_MAX_DIFFERENT: Final = 3  # characters


def _count_common_start(first: str, second: str) -> int:
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def describe_difference(typed: str, requested: str) -> str:
    """Describe the first difference of two names: whose letter 2 is Cyrillic."""
    if len(typed) != len(requested):
        return f"which has {len(requested)} characters and not {len(typed)}"
    at = next(
        (at for at, (old, new) in enumerate(zip(typed, requested, strict=True)) if old != new), 0
    )
    new, old = requested[at], typed[at]
    if new.isalpha() and old.isalpha() and _name_script(new) != _name_script(old):
        return f"whose letter {at + 1} is {_name_script(new)}"
    return f"whose letter {at + 1} is “{new}” and not “{old}”"


def _name_script(letter: str) -> str:
    """Return the first word of a letter's Unicode name, which is its script: Cyrillic."""
    return unicodedata.name(letter, f"U+{ord(letter):04X}").split()[0].capitalize()


def _fold_name(text: str) -> str:
    """Fold A to Z, in which checks see no difference.

    Unicode's own folding would take a Kelvin sign for a k, and a ß for ss.
    """
    return text.strip().translate(_CAPITALS)


_CAPITALS: Final = {ord(letter): letter.lower() for letter in ascii_uppercase}
