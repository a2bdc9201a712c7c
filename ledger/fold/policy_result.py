"""Policy results of reported plans: the strictest enforced one counts."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple

from journal.order_keys import is_command_mark
from ledger.store.effect_rows import EffectRow

_STRICTNESS: Final = {"ask": 1, "deny": 2}


class PolicyResult(NamedTuple):
    """The policy columns of a plan; the defaults apply where no policy was evaluated."""

    policy_outcome: str = ""
    policy_rule: str = ""
    policy_tool_class: str = ""
    policy_enforced: bool = False
    policy_parts_digest: str = ""

    @property
    def strictness(self) -> int:
        """How restrictive the policy's outcome is; 0 if it was not enforced."""
        return _STRICTNESS.get(self.policy_outcome, 0) if self.policy_enforced else 0


def policy_result_of_effect(effect: EffectRow) -> PolicyResult:
    """Return the current policy result of an effect."""
    return PolicyResult(
        effect.policy_outcome,
        effect.policy_rule,
        effect.policy_tool_class,
        effect.policy_enforced,
        effect.policy_parts_digest,
    )


def policy_result_of_plan(plan: Mapping[str, Any]) -> PolicyResult:
    """Return the policy result in the columns of one plan."""
    return PolicyResult(**{name: plan[name] for name in PolicyResult._fields if name in plan})


def resolve_policy_result(
    effect: EffectRow, plan: Mapping[str, Any], *, wins: bool, by_command: bool
) -> PolicyResult:
    """Return the policy result after another `plan`, which `wins` or loses.

    A command was decided for what it requested, so reports never change its result. Which of
    several reported plans ran is unknown, so the strictest result counts, whatever their order.
    """
    reported, current = policy_result_of_plan(plan), policy_result_of_effect(effect)
    if by_command:
        return reported if wins else current
    if is_command_mark(effect.planned_mark):
        return current
    if reported.strictness != current.strictness:
        return max(reported, current, key=attrgetter("strictness"))
    if reported.strictness:
        return min(reported, current)  # of two equally strict rules always the same
    return reported if wins else current
