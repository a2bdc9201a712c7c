"""The pane next to the list, in a real browser: mark, content and buttons belong to one request.

Answers are delayed or refused on the way, as a slow line or a restarting server would do.
"""

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.approvals.live_fixture import LiveInbox, touch, watched
from tests.approvals.test_hands_browser import inbox
from tests.matrices import keep_core

pytestmark = pytest.mark.browser

# Presses what a selector finds as soon as it exists, and returns what it was.
PRESSED_AT_ONCE = """selector => new Promise(done => {
    const look = () => {
        const it = document.querySelector(selector)
        if (!it) return
        seen.disconnect()
        it.click()
        done(it.textContent)
    }
    const seen = new MutationObserver(look)
    seen.observe(document.body, {childList: true, subtree: true})
    look()
})"""


def href(page: Page, row: int) -> str:
    return page.locator(".entry h3 a").nth(row).get_attribute("href") or ""


def expect_open(page: Page, url: str) -> None:
    """The list marks the request at `url` and no other, and the pane shows it with active
    buttons."""
    expect(page.locator(".entry[aria-current]")).to_have_count(1)
    expect(page.locator(".entry[aria-current] > h3 a")).to_have_attribute("href", url)
    expect(page.locator("#pane .gate-line a.push")).to_have_attribute("href", url)
    expect(page.locator("#pane")).not_to_have_attribute("inert", re.compile(".*"))


@pytest.mark.once
def test_while_another_request_loads_no_button_can_be_pressed(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    page = inbox(
        live_inbox, live_inbox.enter(watched(browser_page, complaints)), "?repo=payments-api"
    )
    first, second = href(page, 0), href(page, 1)
    expect_open(page, first)
    approve = page.locator("#pane [value=approve]")
    box = approve.bounding_box()
    assert box
    delayed: list[Route] = []
    page.route(f"**{second}", lambda route: delayed.append(route))
    with page.expect_request(f"**{second}"):
        page.locator(".entry h3 a").nth(1).click()
    expect(page.locator("#pane")).to_have_attribute("inert", "")
    expect(page.locator(".entry[aria-current] > h3 a")).to_have_attribute("href", first)
    address = page.url
    page.keyboard.press("y")  # on the row that was chosen
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("y")  # and on no row
    page.keyboard.press("Control+Enter")
    page.mouse.click(box["x"] + 5, box["y"] + 5)
    expect(page.get_by_label("Reason")).not_to_be_focused()
    expect(page.locator("[data-chosen]")).to_have_count(0)
    assert page.url == address
    assert len(delayed) == 1
    delayed[0].continue_()
    expect_open(page, second)
    expect(page.locator("#pane .gate-line")).to_contain_text("awaiting approval")


@pytest.mark.once
def test_the_last_of_two_that_were_chosen_opens(live_inbox: LiveInbox, browser_page: Page) -> None:
    page = inbox(live_inbox, live_inbox.enter(browser_page), "?repo=payments-api")
    second, third = href(page, 1), href(page, 2)
    page.route(f"**{second}", lambda route: None)  # never answered
    with page.expect_request(f"**{second}"):
        page.locator(".entry h3 a").nth(1).click()
    page.locator(".entry h3 a").nth(2).click()
    expect_open(page, third)
    page.unroute_all(behavior="ignoreErrors")


@pytest.mark.once
@pytest.mark.parametrize(
    "trouble", keep_core(["500", "404", "unreachable", "signed out"], ["500", "signed out"])
)
def test_a_request_that_does_not_open_keeps_the_previous_and_shows_an_error(
    live_inbox: LiveInbox, browser_page: Page, trouble: str
) -> None:
    page = inbox(live_inbox, live_inbox.enter(browser_page), "?repo=payments-api")
    first, second = href(page, 0), href(page, 1)
    page.get_by_label("Reason").fill("half a thought")
    cookies = page.context.cookies()
    if trouble == "signed out":
        page.context.clear_cookies()
    elif trouble == "unreachable":
        page.route(f"**{second}", lambda route: route.abort())
    else:
        page.route(
            f"**{second}", lambda route: route.fulfill(status=int(trouble), body="<p>no</p>")
        )
    page.locator(".entry h3 a").nth(1).click()
    alert = page.locator("#pane").get_by_role("alert")
    expect(alert).to_contain_text("The request that you chose did not open")
    expect(alert.get_by_role("link", name="Open it as a page")).to_have_attribute("href", second)
    expect_open(page, first)
    expect(page.get_by_label("Reason")).to_have_value("half a thought")
    touch(page)
    page.unroute_all()
    page.context.add_cookies(cookies)  # type: ignore[arg-type]  # cookies as read before
    page.locator(".entry h3 a").nth(1).click()
    expect_open(page, second)
    expect(alert).to_have_count(0)


def test_a_new_list_does_not_change_the_request_that_is_open(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    page = live_inbox.enter(watched(browser_page, complaints))
    page.clock.install()
    inbox(live_inbox, page)
    opened = href(page, 1)
    page.locator(".entry h3 a").nth(1).click()
    expect_open(page, opened)
    reason = page.get_by_label("Reason")
    reason.fill("half a thought")
    box = page.locator(".inbox-list [name=gate]").first
    box.check()
    live_inbox.ask("later", "mail.send", {"subject": "One more"}, target={"environment": "later"})
    page.clock.run_for(10_100)
    assert page.evaluate(PRESSED_AT_ONCE, "#news a") == "1 new request. Show it"
    expect(page.locator(".entry", has_text="One more")).to_be_visible()
    expect_open(page, opened)
    expect(reason).to_have_value("half a thought")
    expect(box).to_be_checked()
    page.evaluate("document.activeElement.blur()")
    for name in ("Resume updates", "Pause updates"):
        page.keyboard.press(".")
        expect(page.get_by_role("link", name=name)).to_be_visible()
        expect_open(page, opened)
        expect(reason).to_have_value("half a thought")


@pytest.mark.once
def test_a_list_that_cannot_be_fetched_stays(live_inbox: LiveInbox, browser_page: Page) -> None:
    page = inbox(live_inbox, live_inbox.enter(browser_page))
    opened, rows = href(page, 0), page.locator(".entry").count()
    page.get_by_label("Reason").fill("half a thought")
    page.context.clear_cookies()
    page.get_by_role("link", name="Pause updates").click()
    expect(page.locator("#stale")).to_contain_text("The list is as it was")
    expect(page.locator(".entry")).to_have_count(rows)
    expect_open(page, opened)
    expect(page.get_by_label("Reason")).to_have_value("half a thought")


def test_an_extension_needs_no_reason(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    live_inbox.ask("more-time", "issue.close", {"issue": 12}, target={"repository": "more"})
    page = inbox(live_inbox, live_inbox.enter(watched(browser_page, complaints)), "?repo=more")
    page.get_by_label("Reason").fill("half a thought")
    page.get_by_role("button", name="Extend 15 min").click()
    expect(page.get_by_text("Extended by 15 minutes.")).to_be_visible()
    expect(page.get_by_label("Reason")).to_have_value("half a thought")
    expect(page.locator("#pane .gate-title")).to_contain_text("issue.close")
