"""Small graph of an effect: what caused it, its attempts, what undoes it, the same call elsewhere.

Pure. Three columns: causes on the left, this effect with its attempts, and what follows from it on
the right. The table of related effects on the same page has the same rows. Geometry in per cent and
pixels, as in the timeline.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.utils.safestring import SafeString

from display.display_state import derive_shown_state
from pages.timeline.svg_layout import plain_label
from web.templatetags.gatebook import state_style
from web.untrusted_text import format_markup

ROW: Final = 46  # height of a node with its words, pixels
MOST_NODES: Final = 6  # of one column; the table lists all
MOST_ATTEMPTS: Final = 6
_LEFT, _MIDDLE, _RIGHT = 2, 37, 70  # where columns begin, per cent


@dataclass(frozen=True, slots=True)
class RelatedNode:
    """Another effect, how it is related, and its page."""

    effect: Any
    how: str
    link: str


@dataclass(frozen=True, slots=True)
class RelationGraph:
    """The markup of the graph, its height in pixels, and how many nodes are left out."""

    inner: SafeString
    height: int
    left_out: int


def draw_relations(
    effect: Any,
    attempts: Sequence[Any],
    before: Sequence[RelatedNode],
    after: Sequence[RelatedNode],
    now_us: int,
) -> RelationGraph | None:
    """Return the graph; None if nothing is related and there is at most one attempt."""
    if not before and not after and len(attempts) < 2:
        return None
    causes, effects = before[:MOST_NODES], after[:MOST_NODES]
    tries = attempts[-MOST_ATTEMPTS:]
    rows = max(len(causes), len(effects), 1)
    height = max(rows * ROW, ROW + 18 * len(tries)) + 8
    middle = ROW // 2
    parts: list[SafeString] = []
    for column, nodes in ((_LEFT, causes), (_RIGHT, effects)):
        for number, node in enumerate(nodes):
            y = number * ROW + middle
            ends = (_LEFT + 26, _MIDDLE - 1) if column == _LEFT else (_MIDDLE + 26, _RIGHT - 1)
            parts.append(_line(ends, (y, middle) if column == _LEFT else (middle, y)))
            parts.append(_node(node.effect, node.how, column, y, now_us, node.link))
    parts.append(_node(effect, "this effect", _MIDDLE, middle, now_us))
    for number, attempt in enumerate(tries):
        outcome = attempt.outcome or attempt.failure_reason or "no answer"
        words = f"attempt {attempt.number}: {outcome}"
        form = '<text class="dim" x="{}%" y="{}" dx="20">{}</text>'
        parts.append(format_markup(form, str(_MIDDLE), str(middle + 34 + 18 * number), words))
    left_out = len(before) + len(after) - len(causes) - len(effects)
    return RelationGraph(SafeString("".join(parts)), height, left_out)


def _line(x: tuple[float, float], y: tuple[int, int]) -> SafeString:
    form = '<line class="edge" x1="{}%" x2="{}%" y1="{}" y2="{}"/>'
    return format_markup(form, str(x[0]), str(x[1]), str(y[0]), str(y[1]))


def _node(effect: Any, how: str, x: int, y: int, now_us: int, link: str = "") -> SafeString:
    """Return shape, name and relation of an effect; a link if it has an address."""
    word = derive_shown_state(effect, now_us)
    css, shape = state_style(word, effect.outcome, effect.permission)
    name = f"{effect} {plain_label(effect.tool or 'plan not arrived', 22)}, {word}"
    form = (
        '<svg class="pin {}" x="{}%" y="{}"><use href="#{}" x="0" y="-7" width="14" height="14"/>'
        '</svg><text class="note-plain" x="{}%" y="{}" dx="20">{}</text>'
        '<text class="dim" x="{}%" y="{}" dx="20">{}</text>'
    )
    place, above, below = str(x), str(y + 4), str(y + 18)
    drawn = format_markup(form, css, place, str(y), shape, place, above, name, place, below, how)
    return format_markup('<a href="{}">{}</a>', link, drawn) if link else drawn
