"""Ticks of the inbox, in a real browser: none is lost on the way, and each can be taken back."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.approvals.live_fixture import LiveInbox, touch, watched
from tests.approvals.test_hands_browser import inbox

pytestmark = pytest.mark.browser


def tick_of(page: Page, live_inbox: LiveInbox, name: str) -> Locator:
    """The tick box of a request in the list."""
    gate = live_inbox.plans[name]["gate"]["id"]
    return page.locator(f".inbox-list [name=gate][value='{gate}']")


def ask_to_write(live_inbox: LiveInbox, name: str, repository: str) -> None:
    """Request something that can be decided together with others; no other test denies it."""
    arguments = {"file_path": f"docs/{name}.md", "content": f"# {name}"}
    live_inbox.ask(name, "Write", arguments, target={"repository": repository})


def go_back(page: Page) -> None:
    """Leave the batch page without an answer."""
    back = page.locator("main").locator("a, button", has_text=re.compile("^Go back$"))
    back.click()
    expect(page).to_have_url(re.compile(r"/approvals/(\?|$)"))
    page.wait_for_load_state("load")


def test_the_way_back_from_a_batch_keeps_the_ticks_and_each_can_be_unticked(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    names = [f"back-{number}" for number in range(3)]
    for name in names:
        ask_to_write(live_inbox, name, "back")
    page = inbox(live_inbox, live_inbox.enter(watched(browser_page, complaints)), "?repo=back")
    page.locator(".entry summary").click()
    for name in names:
        tick_of(page, live_inbox, name).check()
    page.get_by_role("button", name="Review selected").click()
    expect(page).to_have_url(re.compile("/approvals/batch/confirm/"))
    go_back(page)
    for name in names:
        expect(tick_of(page, live_inbox, name)).to_be_visible()  # the group is open
        expect(tick_of(page, live_inbox, name)).to_be_checked()
    tick_of(page, live_inbox, names[1]).uncheck()
    page.reload()
    expect(tick_of(page, live_inbox, names[1])).not_to_be_checked()
    for name in (names[0], names[2]):
        expect(tick_of(page, live_inbox, name)).to_be_checked()
    page.get_by_role("button", name="Review selected").click()
    expect(page.locator("main")).to_contain_text("2")
    go_back(page)
    expect(tick_of(page, live_inbox, names[0])).to_be_checked()
    expect(tick_of(page, live_inbox, names[1])).not_to_be_checked()


def test_an_answer_in_the_pane_keeps_the_ticks_of_others(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    for number in range(3):
        ask_to_write(live_inbox, f"kept-{number}", "kept")
    page = live_inbox.enter(watched(browser_page, complaints))
    inbox(live_inbox, page, f"?repo=kept&open={live_inbox.plans['kept-0']['gate']['id']}")
    page.locator(".entry summary").click()
    tick_of(page, live_inbox, "kept-2").check()
    touch(page)
    page.locator("#pane [value=approve]").click()
    expect(page.get_by_text("is recorded as entry")).to_be_visible()
    expect(tick_of(page, live_inbox, "kept-2")).to_be_checked()
    expect(tick_of(page, live_inbox, "kept-1")).not_to_be_checked()
