"""The search box in a browser: completion, and the histogram that loads after the page."""

import re
from collections.abc import Callable

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
