"""Charts in a browser: labels that do not overlap, fills without colour, tables, touch."""

from types import SimpleNamespace

import pytest
from playwright.sync_api import Page

from pages.timeline.bars import Bar, SessionEvent, Step, TimelineWindow
from pages.timeline.svg import draw_timeline
from tests.pages.drawn_labels import find_overlaps, read_labels, show_drawing

pytestmark = [pytest.mark.browser, pytest.mark.once]
MINUTE = 60_000_000


def draw_bar(number: int, *minutes: int) -> Bar:
    """Return an acknowledged effect that was planned and answered at these minutes."""
    effect = SimpleNamespace(
        id=number, tool="git.push", task_id=None, attempt_count=1, violates=False, outcome="ok"
    )
    steps = [
        Step(at * MINUTE, what, 1, number, at * MINUTE, "command")
        for at, what in zip(minutes, ("planned", "acknowledged"), strict=True)
    ]
    return Bar(effect, steps, "acknowledged", "main")


@pytest.mark.parametrize("gap_hours", [2, 5, 14, 40])
def test_the_words_of_a_gap_lie_on_no_hour_of_the_map(browser_page: Page, gap_hours: int) -> None:
    end = 45 + gap_hours * 60
    bars = [draw_bar(1, 0, 20), draw_bar(2, 30, 40), draw_bar(3, end, end + 30)]
    acquired = SessionEvent(0, "lease.acquired", 1, "{}", 1)
    drawing = draw_timeline(
        TimelineWindow("server", bars=bars, session_events=[acquired]), str, running=False
    )
    assert drawing is not None
    drawing.heads = []  # the names of the lanes need a page
    context = {"drawing": drawing, "zoom": {}}
    for width, media in ((1076, "screen"), (366, "screen"), (700, "print")):
        browser_page.emulate_media(media=media)  # type: ignore[arg-type]
        show_drawing(browser_page, "pages/timeline/_lanes.html", context, width, "lanes")
        map_box = browser_page.locator(".minimap").bounding_box()
        assert map_box is not None
        assert (map_box["width"] == 278) == (width == 366)
        assert find_overlaps(browser_page, ".minimap") == [], (width, media)
        labels = read_labels(browser_page, ".minimap")
        assert any(label[0].isdigit() and ":" in label for label in labels), labels
        assert any("cut out" in label for label in labels) or width == 366, labels
