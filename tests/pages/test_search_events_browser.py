"""The search box in a browser: completion, and the histogram that loads after the page."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Page, expect

from tests.api.api_client import Caller
from tests.config.server import Server
from tests.pages.sample_data import many
from tests.pages.test_frame_browser import enter, violations_by_day_and_night

pytestmark = [pytest.mark.browser, pytest.mark.once]


def test_the_box_completes_and_only_enter_searches(
    live_server_process: Server, new_page: Callable[..., Page]
) -> None:
    agent = Caller(live_server_process.token("deploy-7"), address=live_server_process.url)
    many(agent, "completed", 60, answered=60)
    messages: list[str] = []
    page = enter(
        new_page(viewport={"width": 390, "height": 800}, reduced_motion="reduce"),
        live_server_process,
    )
    page.on("console", lambda message: messages.append(message.text))
    page.goto(f"{live_server_process.url}/search/?q=session:completed")
    expect(page.locator("svg.histogram a").first).to_be_attached()
    expect(
        page.get_by_role("navigation", name="Facets").get_by_role("link", name="tool.3")
    ).to_be_visible()
    box, options = (
        page.get_by_role("combobox", name="Query"),
        page.locator(".completions").get_by_role("option"),
    )
    box.focus()
    page.keyboard.press("End")
    page.keyboard.type(" tool:tool.3")
    expect(options).to_have_text([re.compile("tool.3")])
    button = page.get_by_role("button", name="Search", exact=True).bounding_box()
    covers = page.locator(".completions").bounding_box()
    assert button
    assert covers
    assert (
        covers["y"] + covers["height"] <= button["y"]
        or button["y"] + button["height"] <= covers["y"]
    )
    assert violations_by_day_and_night(page) == []
    page.keyboard.press("Escape")
    expect(options).to_have_count(0)
    for _ in "3":
        page.keyboard.press("Backspace")
    expect(options).to_have_count(7)
    expect(page).to_have_url(re.compile("q=session:completed$"))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(box).to_have_value(re.compile(r"^session:completed tool:tool\.\d $"))
    page.keyboard.press("Escape")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"q=session%3Acompleted\+tool%3Atool\.\d"))
    page.locator("svg.histogram a").first.dispatch_event("click")
    expect(page.get_by_role("combobox", name="Query")).to_have_value(re.compile("since:.* until:"))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    # The browser copies the link if it can.
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{live_server_process.url}/search/link/?q=session:completed")
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert (
        page.evaluate("navigator.clipboard.readText()")
        == page.get_by_label("Address").input_value()
    )
    assert messages == []


def test_bars_narrow_to_a_range_by_mouse_and_by_keys(
    live_server_process: Server, new_page: Callable[..., Page]
) -> None:
    agent = Caller(live_server_process.token("deploy-7"), address=live_server_process.url)
    many(agent, "brushed", 12, answered=12)
    page = enter(new_page(viewport={"width": 1280, "height": 800}), live_server_process)
    address = f"{live_server_process.url}/search/?q=session:brushed&dense=1"
    box, bars = page.get_by_role("combobox", name="Query"), page.locator(".brush")

    def open_bars() -> tuple[int, int]:
        """Open the search; return the start and the width of the bars in microseconds."""
        page.goto(address)
        expect(bars).to_have_class(re.compile("is-ready"))
        return int(bars.get_attribute("data-from") or 0), int(bars.get_attribute("data-step") or 0)

    def expect_range(first: int, last: int) -> None:
        """Expect the query to be limited to these bars."""
        us = [start + step * number for number in (first, last + 1)]
        moments = [datetime.fromtimestamp(each / 1_000_000, UTC) for each in us]
        since, until = (re.sub(":00Z$", "Z", f"{each:%Y-%m-%dT%H:%M:%SZ}") for each in moments)
        expect(box).to_have_value(f"session:brushed since:{since} until:{until}")
        expect(page).to_have_url(re.compile("dense=1"))

    start, step = open_bars()
    slots = int(bars.get_attribute("data-slots") or 0)
    drawn = bars.locator("svg.histogram").bounding_box()
    assert drawn

    def find_middle(slot: int) -> float:
        return drawn["x"] + (slot + 0.5) * drawn["width"] / slots

    # Drag with the mouse, from the right to the left; the words show the range before it applies.
    y = drawn["y"] + drawn["height"] / 2
    page.mouse.move(find_middle(slots - 2), y)
    page.mouse.down()
    page.mouse.move(find_middle(slots // 2), y)
    page.mouse.move(find_middle(1), y)
    expect(bars.get_by_role("status")).to_have_text(re.compile(r"^\d{4}-.* to \d{4}-.* UTC$"))
    page.mouse.up()
    expect_range(1, slots - 2)
    # By keys: the first bar, two more with Shift. Escape cancels.
    start, step = open_bars()
    bars.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    expect(bars.get_by_role("status")).to_have_text("")
    page.keyboard.press("ArrowRight")
    for _ in range(2):
        page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Enter")
    expect_range(0, 2)


def test_the_usual_table_is_not_cut_off(
    live_server_process: Server, new_page: Callable[..., Page]
) -> None:
    agent = Caller(live_server_process.token("deploy-7"), address=live_server_process.url)
    many(agent, "wide", 12, answered=12)
    page = enter(new_page(viewport={"width": 1280, "height": 800}), live_server_process)
    page.goto(f"{live_server_process.url}/search/?q=effect")
    table = page.get_by_role("region", name="Table of effects found")
    expect(table.get_by_role("columnheader", name="Permission")).to_be_visible()
    hidden = table.evaluate("element => element.scrollWidth - element.clientWidth")
    assert hidden <= 0
