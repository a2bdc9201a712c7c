"""A reviewer without a pointer, in a real browser: after each step the focus is where the next step
begins."""

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.approvals.live_fixture import LiveInbox, still, watched
from tests.approvals.test_hands_browser import inbox
from tests.approvals.test_pane_browser import expect_open
from tests.pages.people import PASSWORD

pytestmark = pytest.mark.browser

FEW = 4  # tabs to the next wanted element


def tab_to(page: Page, wanted: Locator) -> None:
    """Reach an element by a few tabs."""
    for _ in range(FEW):
        page.keyboard.press("Tab")
        if wanted.evaluate("element => element === document.activeElement"):
            return
    expect(wanted).to_be_focused(timeout=1)


def test_each_step_of_an_approval_begins_where_the_focus_is(
    live_inbox: LiveInbox, browser_page: Page
) -> None:
    commits = [{"sha": "9d02a77", "title": "squash: settle to even", "author": "deploy-7"}]
    arguments = {"command": "git push --force origin main", "commits": commits}
    live_inbox.ask("focus", "git.push", arguments, target={"repository": "focus", "ref": "main"})
    live_inbox.ask("focus-2", "issue.close", {"issue": 78}, target={"repository": "focus"})
    page = inbox(live_inbox, live_inbox.enter(browser_page), "?repo=focus")
    expect_open(page, live_inbox.gate_url("focus").removeprefix(live_inbox.server.url))
    page.keyboard.press("y")
    page.keyboard.type("agreed in INC-204")
    expect(page.locator("#pane [value=approve]")).to_be_enabled()
    page.keyboard.press("Control+Enter")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("Approve exactly this?")
    expect(heading).to_be_focused()
    expect(page.locator("main")).not_to_contain_text("fact 2")
    expect(page.locator(".args")).to_contain_text("shown under What changes")
    expect(page.get_by_role("heading", name="What changes")).to_be_visible()
    expect(page.get_by_role("region", name="What changes")).to_contain_text(
        "squash: settle to even"
    )
    code = page.get_by_label("to confirm")
    tab_to(page, code)
    page.keyboard.type("zzzz")
    password = page.get_by_label("Your password")
    tab_to(page, password)
    page.keyboard.type(PASSWORD)
    approve = page.get_by_role("button", name="Approve despite 1 warning")
    expect(approve).to_be_enabled()
    page.keyboard.press("Enter")
    expect(page.get_by_text("The code does not match.")).to_be_visible()
    expect(code).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.type(page.locator("label[for=code] code").text_content() or "")
    tab_to(page, password)
    page.keyboard.type(PASSWORD)
    expect(approve).to_be_enabled()
    tab_to(page, approve)
    page.keyboard.press("Enter")
    expect(page.get_by_text("is recorded as entry")).to_be_visible()
    expect(page.locator("#pane .gate-title")).to_be_focused()
    inbox(live_inbox, page, f"?repo=focus&open={live_inbox.plans['focus-2']['gate']['id']}")
    page.evaluate("document.querySelector('#pane [name=seen]').value = 'stale'")
    page.keyboard.press("d")
    page.keyboard.type("not stale at all")
    expect(page.locator("#pane [value=deny]")).to_be_enabled()
    page.keyboard.press("Control+Enter")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("Your answer was not recorded.")
    expect(alert).to_be_focused()
    page.keyboard.press("d")
    expect(page.locator(".decide [value=deny]")).to_be_enabled()
    page.keyboard.press("Control+Enter")
    expect(page.locator("ul.flash")).to_contain_text("is recorded as entry")
    expect(page.locator(".gate-title")).to_be_focused()  # of the next request
    page.goto(page.url)
    expect(page.locator("body")).to_be_focused()  # where nothing was sent, a page begins at its top


@pytest.mark.once
def test_an_answer_without_its_reason_stays_in_the_pane_and_asks_for_it(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    page = live_inbox.enter(watched(browser_page, complaints))
    inbox(live_inbox, page, f"?open={live_inbox.plans['push']['gate']['id']}")
    url, reason, message = page.url, page.get_by_label("Reason"), page.locator("#e-reason")
    page.mouse.move(300, 300)
    page.mouse.move(310, 300)
    for name, verb in (
        ("deny", "deny"),
        ("request_changes", "ask for changes"),
        ("approve", "approve"),
    ):
        page.locator(f"#pane .answers [value={name}]").click()
        expect(message).to_have_text(f"Add a reason to {verb}.")
        expect(reason).to_be_focused()
        expect(reason).to_have_attribute("aria-invalid", "true")
        expect(page.locator("#live")).to_have_text(f"Add a reason to {verb}.")
    assert page.url == url
    expect(page.locator(".inbox-list .entry").first).to_be_visible()
    reason.press_sequentially("n")
    expect(message).to_have_count(0)
    expect(reason).not_to_have_attribute("aria-invalid", "true")


@pytest.mark.once
def test_a_comment_is_in_view_after_it_was_sent(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    live_inbox.ask("remark", "issue.close", {"issue": 79}, target={"repository": "remark"})
    page = live_inbox.enter(watched(browser_page, complaints))
    inbox(live_inbox, page, "?repo=remark")
    page.get_by_label("Comment").fill("Ask the owner first.")
    page.get_by_role("button", name="Comment", exact=True).click()
    expect(page.locator("#pane .gate-comment")).to_be_in_viewport(ratio=1)
    expect(page.get_by_text("Comment recorded.")).to_be_visible()


def test_a_swap_keeps_the_focus_or_moves_it_to_a_neighbour(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    page = live_inbox.enter(watched(browser_page, complaints))
    still(page)
    inbox(live_inbox, page)
    tools = page.locator("#rail").get_by_role("link", name="Tools")
    tools.focus()
    live_inbox.ask(
        "swapped", "mail.send", {"subject": "swapped"}, target={"environment": "swapped"}
    )
    with page.expect_response(
        lambda response: "/navigation/counts/" in response.url and response.status == 200
    ):
        page.clock.run_for(15_100)
    expect(page.locator("#rail").get_by_role("link", name="Tools")).to_be_focused()
    show = page.locator("#news a")
    show.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".entry", has_text="swapped")).to_be_visible()
    expect(page.locator(".entry h3 a").first).to_be_focused()
