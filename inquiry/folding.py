"""Collapse consecutive equal effects into one row of the compact view. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from inquiry.bars import Bar, Lanes

FOLDS: Final = {"tool": "Same tool", "same": "Same call", "none": "Nothing"}


@dataclass(slots=True)
class Group:
    """Consecutive equal effects of one lane.

    `unfolded` if the group was expanded by its link.
    """

    bars: list[Bar]
    unfolded: bool = False

    @property
    def first(self) -> Bar:
        return self.bars[0]

    @property
    def last(self) -> Bar:
        return self.bars[-1]

    @property
    def calls(self) -> int:
        """Count different calls by intent; a call without a plan counts as its own."""
        return len({bar.effect.intent_digest or bar.effect.id for bar in self.bars})


def fold_of(text: str, otherwise: str = "tool") -> str:
    """Return the folding, a key of FOLDS; `otherwise` if `text` is unknown."""
    return text if text in FOLDS else otherwise


def groups(lanes: Lanes, by: str = "tool", unfold: str = "") -> list[Group]:
    """Return the bars newest first, grouped by lane, tool and state.

    With `same` also by intent.

    The group that begins with the effect whose handle is `unfold` is expanded.
    """

    def alike(bar: Bar) -> tuple[Any, ...]:
        effect = bar.effect
        key = (lanes.lane_of(bar), effect.tool, bar.state, effect.outcome, effect.violates)
        if by == "none":
            return (effect.id,)
        return (*key, effect.intent_digest or effect.id) if by == "same" else key

    result: list[Group] = []
    for _, run in groupby(reversed(lanes.bars), key=alike):
        run_bars: Sequence[Bar] = list(run)[::-1]
        if unfold and len(run_bars) > 1 and str(run_bars[0].effect) == unfold:
            result += [Group([bar], unfolded=True) for bar in reversed(run_bars)]
        else:
            result.append(Group(list(run_bars)))
    return result
