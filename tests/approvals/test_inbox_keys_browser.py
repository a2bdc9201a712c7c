"""Single keys of the inbox, in a real browser: each works wherever no text is typed."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.approvals.live_fixture import LiveInbox, watched
from tests.approvals.test_hands_browser import inbox

pytestmark = pytest.mark.browser

FOCUSED_ROW = "document.activeElement.closest('.entry')?.querySelector('h3 a').getAttribute('href')"


def visible_rows(page: Page) -> list[str]:
    """The addresses of the visible rows, in their order."""
    links = page.locator(".entry h3 a").all()
    return [link.get_attribute("href") or "" for link in links if link.is_visible()]


@pytest.mark.once
def test_with_a_tick_focused_keys_work_as_anywhere(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    page = inbox(live_inbox, live_inbox.enter(watched(browser_page, complaints)), "?repo=web")
    page.locator(".entry summary").click()
    tick, reason = page.locator(".inbox-list [name=gate]").nth(1), page.get_by_label("Reason")
    opened = page.locator("#pane .gate-line a.push").get_attribute("href")
    for key, answer in (("y", "approve"), ("d", "deny")):
        tick.focus()
        page.keyboard.press(key)
        expect(reason).to_be_focused()
        expect(reason).to_have_value("")
        expect(page.locator("[data-chosen]")).to_have_attribute("value", answer)
        page.keyboard.press("Escape")
    assert page.locator("#pane .gate-line a.push").get_attribute("href") == opened
    tick.focus()
    page.keyboard.press("x")
    expect(tick).to_be_checked()
    page.keyboard.press("Space")
    expect(tick).not_to_be_checked()
    page.locator(".entry.is-like h3 a").first.focus()
    page.keyboard.press("x")  # of the row, not of its group
    expect(tick).to_be_checked()
    expect(page.locator(".inbox-list [name=gate]:checked")).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.locator(".inbox-list [name=gate]:checked")).to_have_count(2)


@pytest.mark.once
def test_a_row_without_a_tick_says_that_it_is_decided_alone(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    page = inbox(
        live_inbox, live_inbox.enter(watched(browser_page, complaints)), "?repo=payments-api"
    )
    page.locator(".entry.is-final-entry h3 a").first.focus()
    page.keyboard.press("x")
    expect(page.locator("#live")).to_contain_text("decided alone")


@pytest.mark.once
def test_rows_of_an_open_group_are_walked_like_all_others(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    page = live_inbox.enter(watched(browser_page, complaints))
    page.goto(f"{live_inbox.server.url}/approvals/?open=none")
    page.wait_for_load_state("networkidle")
    closed = visible_rows(page)
    page.locator(".entry", has=page.locator("details")).locator("summary").first.click()
    rows = visible_rows(page)
    assert len(rows) == len(closed) + page.locator(".entry.is-like").count() > len(closed)
    page.evaluate("document.activeElement.blur()")
    down = []
    for _ in rows:
        page.keyboard.press("j")
        down.append(page.evaluate(FOCUSED_ROW))
    assert down == rows
    page.keyboard.press("j")
    assert page.evaluate(FOCUSED_ROW) == rows[-1]  # the last row stays
    up = [rows[-1]]
    for _ in rows[1:]:
        page.keyboard.press("k")
        up.append(page.evaluate(FOCUSED_ROW))
    assert up == rows[::-1]
    page.locator(".entry summary").first.focus()
    page.keyboard.press("j")
    expect(page.locator(".entry.is-like h3 a").first).to_be_focused()
    page.locator(".entry summary").first.focus()
    page.keyboard.press("k")  # the row that the group belongs to
    assert page.evaluate(FOCUSED_ROW) == rows[rows.index(visible_likes(page)[0]) - 1]
    page.locator(".entry summary").first.click()
    page.evaluate("document.activeElement.blur()")
    down = []
    for _ in closed:
        page.keyboard.press("j")
        down.append(page.evaluate(FOCUSED_ROW))
    assert down == closed


def visible_likes(page: Page) -> list[str]:
    """The addresses of the rows of open groups."""
    links = page.locator(".entry.is-like h3 a").all()
    return [link.get_attribute("href") or "" for link in links]


@pytest.mark.once
def test_help_on_the_keys_opens_over_the_page(
    live_inbox: LiveInbox, new_page: Callable[..., Page], complaints: list[str]
) -> None:
    page = inbox(live_inbox, live_inbox.enter(watched(new_page(), complaints)))
    address, row = page.url, page.locator(".entry h3 a").nth(1)
    row.focus()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_be_visible()
    expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    for _ in range(8):
        page.keyboard.press("Tab")
        assert page.evaluate(
            "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
    for key in ("j", "x", "d", "y"):  # the page below gets no key
        page.keyboard.press(key)
    expect(page.locator("[data-chosen]")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(row).to_be_focused()
    page.keyboard.press("?")
    page.keyboard.press("?")
    expect(dialog).to_be_hidden()
    expect(row).to_be_focused()
    assert page.url == address
    page.get_by_role("link", name="Help", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Help")
    plain = live_inbox.enter(new_page(java_script_enabled=False))
    plain.goto(f"{live_inbox.server.url}/approvals/")
    expect(plain.get_by_role("dialog")).to_have_count(0)
    plain.get_by_role("link", name="Help", exact=True).click()
    expect(plain.get_by_role("heading", name="Keys")).to_be_visible()


@pytest.mark.once
def test_keys_that_are_turned_off_do_nothing(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    page = live_inbox.enter(watched(browser_page, complaints), "sam")
    switch = page.locator("[name=single_keys]")
    page.goto(f"{live_inbox.server.url}/settings/shortcuts/")
    switch.uncheck()
    page.get_by_role("button", name="Save").click()
    try:
        inbox(live_inbox, page)
        tick = page.locator(".inbox-list [name=gate]").first
        tick.focus()
        for key in ("j", "k", "x", "y", "d", "?", "o", "."):
            page.keyboard.press(key)
        expect(tick).to_be_focused()
        expect(tick).not_to_be_checked()
        expect(page.locator("[data-chosen], dialog")).to_have_count(0)
        page.get_by_label("Reason").focus()
        page.keyboard.press("Control+Enter")
        expect(page.locator("#pane .hint")).to_have_text(
            "Ctrl+Enter means nothing: press a button."
        )
    finally:
        page.goto(f"{live_inbox.server.url}/settings/shortcuts/")
        switch.check()
        page.get_by_role("button", name="Save").click()
