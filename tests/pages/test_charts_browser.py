"""Charts in a browser: labels that do not overlap, fills without colour, tables, touch."""

import re
from types import SimpleNamespace
from uuid import uuid4

import pytest
from playwright.sync_api import Page

from approvals.waiting_times import WaitBar, WaitDistribution
from monitoring.stuck.board import CAUSES, Cause, CauseGroup, StuckRow
from monitoring.stuck.rules import RuleResult
from pages.stuck.clock_strip import draw_clock_strip
from pages.timeline.bars import Bar, SessionEvent, Step, TimelineWindow
from pages.timeline.svg import draw_timeline
from tests.pages.drawn_labels import SPACE_PX, WIDTHS, find_overlaps, read_labels, show_drawing
from web.templatetags.gatebook import elapsed

pytestmark = [pytest.mark.browser, pytest.mark.once]
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


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
        has_hours = any(re.fullmatch(r"\d\d:\d\d", label) for label in labels)
        # On a phone, two dates have no space next to the words.
        assert has_hours or (width, gap_hours) == (366, 40), labels
        assert any(re.search(r"\d (h|min).* cut( |$)", label) for label in labels), labels


def build_case(cause: Cause, waited_us: int, threshold_us: int, now: int) -> StuckRow:
    """Return an effect that is stuck since its threshold, found 10 minutes later."""
    began = now - waited_us
    reason = RuleResult(
        *(cause.rule, uuid4(), "effect", 1, began + threshold_us, []),
        name="e_12 git.push",
        began_us=began,
    )
    found_us = began + threshold_us + 10 * MINUTE
    return StuckRow(reason, None, cause.key, found_us=found_us)


@pytest.mark.parametrize("oldest", [50 * MINUTE, 5 * HOUR, 3 * DAY, 40 * DAY])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_clocks_of_stuck_cases_are_drawn_on_one_axis(
    browser_page: Page, width: int, oldest: int
) -> None:
    now = 1_800_000_000 * SECOND
    ages = (oldest, 45 * MINUTE)
    groups = [
        CauseGroup(
            cause, [build_case(cause, age, 30 * MINUTE, now) for age in ages], 2, now - oldest
        )
        for cause in CAUSES[:3]
    ]
    context = {"strip": draw_clock_strip(groups, now)}
    show_drawing(browser_page, "pages/stuck/_strip.html", context, width, "pictures")
    assert find_overlaps(browser_page, ".clocks") == []
    assert "1 min" in read_labels(browser_page, ".clocks")
    names = browser_page.locator(".clocks > p")
    lanes = browser_page.locator(".clocks > svg:not(.clock-axis)")
    assert names.count() == lanes.count() == 3
    for number in range(3):
        name, lane = names.nth(number).bounding_box(), lanes.nth(number).bounding_box()
        assert name
        assert lane
        if width > 600:
            assert name["x"] + name["width"] < lane["x"]
        else:
            assert name["y"] + name["height"] <= lane["y"]
            assert lane["width"] == width
    # Of two cases, the longer one ends further right; each is a link with its age.
    drawn = lanes.first.locator("a")
    ends = [drawn.nth(n).locator("circle").bounding_box() for n in range(2)]
    assert ends[0]
    assert ends[1]
    assert ends[0]["x"] > ends[1]["x"]
    for number, row in enumerate(groups[0].rows):
        case = drawn.nth(number)
        assert case.get_attribute("href") == f"/effects/{row.reason.subject}/"
        words = f"e_12 git.push: {elapsed(ages[number])}, threshold 30 min"
        assert case.locator("title").text_content() == words
        bar, tick = case.locator(".over").bounding_box(), case.locator(".found").bounding_box()
        assert bar
        assert tick
        assert bar["x"] < tick["x"] < bar["x"] + bar["width"]


PLATE_PX = 4  # how far a plate reaches below its word
# Of a line that ends in a word, or begins there, the word is on a plate.
CROSSED_WORDS = """() => [...document.querySelectorAll(".is-waits text")].filter((word) => {
  const box = word.getBoundingClientRect(), style = getComputedStyle(word);
  return box.width
    && [...document.querySelectorAll(".is-waits .limit")].some((line) => {
      const across = line.getBoundingClientRect();
      const isBehind = line.compareDocumentPosition(word) & Node.DOCUMENT_POSITION_FOLLOWING
        && style.paintOrder.startsWith("stroke") && parseFloat(style.strokeWidth) >= 4;
      return !isBehind && across.left > box.left && across.left < box.right
        && across.bottom > box.top && across.top < box.bottom;
    });
}).map((word) => word.textContent)"""


@pytest.mark.parametrize(
    ("median", "p95"), [(SECOND, 4 * SECOND), (MINUTE, HOUR), (5 * HOUR, DAY), (DAY, 50 * DAY)]
)
def test_the_words_of_waiting_times_lie_on_nothing(
    browser_page: Page, median: int, p95: int
) -> None:
    limits = ["< 2 s", "2 s", "5 s", "15 s", "1 min", "5 min", "15 min", "1 h", "4 h", "1 d"]
    bars = [WaitBar(label, 100, "gate") for label in limits]
    waits = WaitDistribution(bars, 1000, "gate", median, p95, is_cut=False)
    # The list of requests is narrow on wide pages too.
    for width in (319, *WIDTHS):
        show_drawing(
            browser_page, "approvals/inbox/_waits.html", {"waits": waits}, width, "pictures"
        )
        assert find_overlaps(browser_page, ".is-waits") == [], width
        assert browser_page.evaluate(CROSSED_WORDS) == [], width
        labels = read_labels(browser_page, ".is-waits")
        assert ("5 min" in labels) == (width > 600)
        assert "15 min" in labels
        drawing = browser_page.locator(".is-waits").bounding_box()
        assert drawing
        for word in browser_page.locator(".is-waits .plated").all():
            box = word.bounding_box()
            assert box
            assert drawing["x"] <= box["x"] <= box["x"] + box["width"] <= drawing["x"] + width
            highest = browser_page.locator(".is-waits .fill").first.bounding_box()
            assert highest
            assert highest["y"] > box["y"] + box["height"] - PLATE_PX - SPACE_PX
