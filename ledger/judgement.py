"""What the policy said of an effect's plans: of several that were reported, the strictest that counts stands."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from journal.order import is_of_a_command
from ledger.rows import EffectRow

_STRICTNESS: Final = {"ask": 1, "deny": 2}


class Judgement(NamedTuple):
    """The columns that a plan gets from the policy in force when it came; as they are where none was asked."""

    judged: str = ""
    judged_by: str = ""
    judged_as: str = ""
    enforced: bool = False

    @property
    def strictness(self) -> int:
        """How much more than to go on the policy asked for; 0 also where its word did not count."""
        return _STRICTNESS.get(self.judged, 0) if self.enforced else 0


def of(effect: EffectRow) -> Judgement:
    """The judgement that stands."""
    return Judgement(effect.judged, effect.judged_by, effect.judged_as, effect.enforced)


def said_of(plan: Mapping[str, Any]) -> Judgement:
    """What the policy said of one plan, by its columns."""
    return Judgement(**{name: plan[name] for name in Judgement._fields if name in plan})


def standing(
    effect: EffectRow, plan: Mapping[str, Any], *, wins: bool, by_command: bool
) -> Judgement:
    """What stands once another `plan` of an effect that has one was told; `wins` is whether it takes that one's place.

    A command was given leave, or not, for what it asked: what is reported beside it moves nothing. Which of several
    reported plans ran, nobody can say: so the strictest judgement stands, whichever of them comes first by its mark.
    """
    reported, current = said_of(plan), of(effect)
    if by_command:
        return reported if wins else current
    if is_of_a_command(effect.planned_mark):
        return current
    if reported.strictness != current.strictness:
        return max(reported, current, key=_strictness)
    if reported.strictness:
        return min(reported, current)  # two rules alike: always the same of them
    return reported if wins else current


def _strictness(judgement: Judgement) -> int:
    return judgement.strictness
