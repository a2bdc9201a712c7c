"""Folding repeats: effects in a row that are alike are one row of the compact view, and unfold by a link. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from inquiry.bars import Bar, Lanes

FOLDS: Final = {"tool": "One tool", "same": "The same call", "none": "Nothing"}


@dataclass(slots=True)
class Group:
    """Effects of one lane in a row that stand alike; `unfolded` for one of a group that was opened by its link."""

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
        """How many different calls these are, by their intents; one whose plan did not arrive is its own."""
        return len({bar.effect.intent_digest or bar.effect.id for bar in self.bars})


def fold_of(text: str, otherwise: str = "tool") -> str:
    """What is folded: a key of FOLDS; `otherwise` when `text` says nothing known."""
    return text if text in FOLDS else otherwise


def groups(lanes: Lanes, by: str = "tool", unfold: str = "") -> list[Group]:
    """The bars newest first: those of one lane, tool and state in a row are one, with `same` only where intents are
    equal. The group that begins with the effect whose handle is `unfold` is shown one by one.
    """

    def alike(bar: Bar) -> tuple[Any, ...]:
        effect = bar.effect
        key = (lanes.lane_of(bar), effect.tool, bar.state, effect.outcome, effect.violates)
        if by == "none":
            return (effect.id,)
        return (*key, effect.intent_digest or effect.id) if by == "same" else key

    found: list[Group] = []
    for _, run in groupby(reversed(lanes.bars), key=alike):
        same: Sequence[Bar] = list(run)[::-1]
        if unfold and len(same) > 1 and str(same[0].effect) == unfold:
            found += [Group([bar], unfolded=True) for bar in reversed(same)]
        else:
            found.append(Group(list(same)))
    return found
