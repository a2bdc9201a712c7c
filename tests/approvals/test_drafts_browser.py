"""Drafts of a reason, in a real browser: one that comes back says so and can be discarded."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.approvals.live_fixture import LiveInbox, still, touch, watched
from tests.approvals.test_hands_browser import inbox
from tests.approvals.test_pane_browser import expect_open, href

pytestmark = pytest.mark.browser

BACK = re.compile(r"^\s*Your draft\s+from \d\d:\d\d UTC\s+is back\.\s*Discard\s*$")
STORED = "Object.keys(sessionStorage).filter(key => key.startsWith('draft:'))"


@pytest.mark.once
def test_a_draft_that_comes_back_says_from_when_and_can_be_discarded(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    page = inbox(
        live_inbox, live_inbox.enter(watched(browser_page, complaints)), "?repo=payments-api"
    )
    reason, notice = page.get_by_label("Reason"), page.locator(".draft-back")
    first, second = href(page, 0), href(page, 1)
    expect(notice).to_be_hidden()
    reason.fill("half a thought")
    expect(notice).to_be_hidden()  # it was never away
    for row, url, back in ((1, second, False), (0, first, True)):
        page.locator(".entry h3 a").nth(row).click()
        expect_open(page, url)
        expect(notice).to_be_visible(visible=back)
    expect(notice).to_have_text(BACK)
    expect(reason).to_have_value("half a thought")
    page.reload()
    expect(notice).to_have_text(BACK)
    reason.press("End")
    reason.type("s")  # who goes on with it needs no notice
    expect(notice).to_be_hidden()
    page.reload()
    notice.get_by_role("button", name="Discard").click()
    expect(reason).to_have_value("")
    expect(reason).to_be_focused()
    expect(notice).to_be_hidden()
    assert page.evaluate(STORED) == []
    page.reload()
    expect(page.locator("#pane .gate-title")).to_be_visible()
    expect(reason).to_have_value("")
    expect(notice).to_be_hidden()


@pytest.mark.matrix
@pytest.mark.parametrize("has_script", [True, False])
def test_a_draft_that_the_server_kept_is_discarded_there(
    live_inbox: LiveInbox, new_page: Callable[..., Page], has_script: bool
) -> None:
    name = f"kept-draft-{has_script}"
    live_inbox.ask(name, "mail.send", {"subject": name}, target={"environment": name})
    page = live_inbox.enter(new_page(java_script_enabled=has_script))
    page.goto(live_inbox.gate_url(name))
    reason, notice = page.get_by_label("Reason"), page.locator(".draft-back")
    expect(notice).to_be_hidden()
    reason.fill("half a thought")
    page.get_by_role("button", name="Extend 15 min").click()
    expect(notice).to_have_text(BACK)
    if has_script:
        page.evaluate("sessionStorage.clear()")  # as in another browser
        page.reload()
        expect(notice).to_have_text(BACK)
        with page.expect_response(lambda response: "/draft/discard/" in response.url):
            notice.get_by_role("button", name="Discard").click()
    else:
        notice.get_by_role("button", name="Discard").click()
        expect(page).to_have_url(live_inbox.gate_url(name))
    expect(reason).to_have_value("")
    page.reload()
    expect(reason).to_have_value("")
    expect(notice).to_be_hidden()


def test_a_request_that_ends_says_so_when_the_page_is_looked_at_and_keeps_the_reason(
    live_inbox: LiveInbox, new_page: Callable[..., Page], complaints: list[str]
) -> None:
    live_inbox.ask("ends", "mail.send", {"subject": "ends"}, target={"environment": "ends"})
    page = live_inbox.enter(watched(new_page(), complaints))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    still(page)
    page.goto(live_inbox.gate_url("ends"))
    page.get_by_label("Reason").fill("half a thought")
    other = live_inbox.enter(watched(new_page(), complaints), "sam")
    other.goto(live_inbox.gate_url("ends"))
    other.get_by_label("Reason").fill("not before the review")
    touch(other)
    other.locator("[value=deny]:visible").click()
    expect(other.get_by_text("Your answer on")).to_be_visible()
    # The clock stands still: only the look at the page asks the server.
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.locator("#gate-news")).to_contain_text("sam denied this request")
    expect(page.locator("[data-settle]")).to_have_count(0)
    expect(page.locator(".draft-text")).to_have_text("half a thought")
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "half a thought"


def test_a_deadline_that_passes_closes_the_form_at_once(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    live_inbox.ask(
        "overdue", "mail.send", {"subject": "overdue"}, target={"environment": "overdue"}
    )
    page = live_inbox.enter(watched(browser_page, complaints))
    still(page)
    page.goto(live_inbox.gate_url("overdue"))
    page.get_by_label("Reason").fill("half a thought")
    page.locator(".clock span[data-left]").evaluate("element => { element.dataset.left = 2 }")
    with page.expect_response(lambda response: "since=" in response.url and "in=" in response.url):
        page.clock.run_for(3_100)
    for button in page.locator("#decide button").all():
        expect(button).to_be_disabled()
