"""The inbox's address and typed text, in a real browser: history restores both."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.approvals.live_fixture import LiveInbox, touch, watched
from tests.approvals.test_hands_browser import inbox
from tests.approvals.test_pane_browser import expect_open, href

pytestmark = pytest.mark.browser


def of(url: str) -> str:
    """The id of the gate at `url`."""
    return url.rstrip("/").rpartition("/")[2]


def open_row(page: Page, row: int) -> str:
    """Open the request of a row; return its address."""
    url = href(page, row)
    page.locator(".entry h3 a").nth(row).click()
    expect_open(page, url)
    return url


@pytest.mark.once
def test_the_open_request_is_in_the_address_and_history_walks_through_them(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    page = inbox(
        live_inbox, live_inbox.enter(watched(browser_page, complaints)), "?repo=payments-api"
    )
    first, reason = href(page, 0), page.get_by_label("Reason")
    expect(page).to_have_url(re.compile(rf"\?repo=payments-api&open={of(first)}$"))
    reason.fill("of the first")
    second = open_row(page, 1)
    expect(page).to_have_url(re.compile(rf"\?repo=payments-api&open={of(second)}$"))
    expect(reason).to_have_value("")
    reason.fill("of the second")
    third = open_row(page, 2)
    page.go_back()
    expect_open(page, second)
    expect(reason).to_have_value("of the second")
    page.reload()
    expect_open(page, second)
    expect(reason).to_have_value("of the second")
    page.go_back()
    expect_open(page, first)
    expect(reason).to_have_value("of the first")
    page.go_forward()
    expect_open(page, second)
    page.go_forward()
    expect_open(page, third)
    expect(reason).to_have_value("")


def test_typed_text_survives_the_clock_a_refusal_and_a_reload(
    live_inbox: LiveInbox, new_page: Callable[..., Page], complaints: list[str]
) -> None:
    live_inbox.ask("draft", "mail.send", {"subject": "Draft"}, target={"environment": "draft"})
    page = live_inbox.enter(watched(new_page(timezone_id="Asia/Kathmandu"), complaints), "sam")
    page.goto(live_inbox.gate_url("draft"))
    reason = page.get_by_label("Reason")
    reason.fill("half a thought")
    page.get_by_role("button", name="Local").click()
    expect(page.get_by_role("button", name="Local")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".clock time")).to_contain_text("+5:45")
    expect(reason).to_have_value("half a thought")
    page.get_by_role("button", name="UTC").click()
    expect(page.get_by_role("button", name="UTC")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".clock time")).to_contain_text("UTC")
    page.evaluate("document.querySelector('[name=seen]').value = 'stale'")
    touch(page)
    page.get_by_role("button", name="Deny", exact=True).click()
    expect(page.get_by_text("Your answer was not recorded.")).to_be_visible()
    expect(reason).to_have_value("half a thought")
    page.get_by_role("button", name="Relative").click()
    expect(page.get_by_role("button", name="Relative")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="UTC").click()
    expect(page.get_by_role("button", name="UTC")).to_have_attribute("aria-pressed", "true")
    page.goto(page.url)  # the address of the answer, read
    expect(page).to_have_url(live_inbox.gate_url("draft"))
    expect(reason).to_have_value("half a thought")
    touch(page)
    page.get_by_role("button", name="Deny", exact=True).click()
    expect(page.get_by_role("status").first).to_contain_text("is recorded as entry")
    page.goto(live_inbox.gate_url("draft"))  # an answer leads on to the next request
    expect(page.locator(".quorum")).to_contain_text("half a thought")
    drafts = page.evaluate("Object.keys(sessionStorage).filter(key => key.startsWith('draft:'))")
    assert drafts == []  # a recorded answer is no draft
