"""Keys, scrolling and buttons of the inbox, in a real browser."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.approvals.live_fixture import BURIED, LiveInbox, still, watched

pytestmark = pytest.mark.browser

HEIGHT = "document.documentElement.scrollHeight"
# Elements of the card that scroll by themselves.
INNER_SCROLLERS = """() => [...document.querySelectorAll(".gate *")].filter(element => {
    const {overflowX, overflowY} = getComputedStyle(element)
    const scrolls = [overflowX, overflowY].some(value => value === "auto" || value === "scroll")
    const {scrollHeight, clientHeight, scrollWidth, clientWidth} = element
    return scrolls && element.checkVisibility() && !element.matches("textarea")
        && (scrollHeight > clientHeight + 1 || scrollWidth > clientWidth + 1)
}).map(element => element.className)"""


def inbox(live_inbox: LiveInbox, page: Page, query: str = "") -> Page:
    """The inbox, with its first request open next to it."""
    page.goto(f"{live_inbox.server.url}/approvals/{query}")
    expect(page.locator("#pane .gate-title")).to_be_visible()
    page.wait_for_load_state("networkidle")
    return page


def test_keys_answer_only_the_open_request_and_the_page_shows_the_answer(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    page = inbox(
        live_inbox, live_inbox.enter(watched(browser_page, complaints)), "?repo=payments-api"
    )
    rows = page.locator(".entry h3 a")
    opened, other = rows.nth(0), rows.nth(1)
    approve = page.locator("#pane [value=approve]")
    hint, reason = page.locator("#pane .hint"), page.get_by_label("Reason")
    page.keyboard.press("y")
    expect(reason).to_be_focused()
    expect(hint).to_have_text(f"Ctrl+Enter: {(approve.text_content() or '').strip()}, Esc: back")
    expect(page.locator("[data-chosen]")).to_have_attribute("value", "approve")
    page.keyboard.press("Escape")
    expect(page.locator("#pane .gate-title")).to_be_focused()
    expect(page.locator("[data-chosen]")).to_have_count(0)
    page.keyboard.press("d")
    expect(page.locator("[data-chosen]")).to_have_attribute("value", "deny")
    page.keyboard.press("Escape")
    page.keyboard.press("j")  # begins at the open request
    expect(other).to_be_focused()
    expect(page.locator(".entry[aria-current] h3 a").first).to_have_attribute(
        "href", opened.get_attribute("href") or ""
    )
    page.keyboard.press("y")  # another row: it opens, and the key is no answer
    expect(page.locator(".entry[aria-current] h3 a").first).to_have_attribute(
        "href", other.get_attribute("href") or ""
    )
    expect(page.locator("#pane .gate-title")).to_be_focused()
    expect(page.locator("[data-chosen]")).to_have_count(0)
    reason.focus()
    page.keyboard.press("Control+Enter")
    expect(hint).to_contain_text("means nothing yet")
    expect(page.locator("#pane .gate-line")).to_contain_text("awaiting approval")


@pytest.mark.once
def test_next_to_the_list_the_facts_scroll_and_the_document_never_does(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    page = live_inbox.enter(watched(browser_page, complaints))
    for name in ("push", "buried"):
        inbox(live_inbox, page, f"?open={live_inbox.plans[name]['gate']['id']}")
        assert page.evaluate(HEIGHT) == 720, name
    inbox(live_inbox, page, f"?open={live_inbox.plans['diff']['gate']['id']}")
    assert page.evaluate(HEIGHT) == 720
    facts = page.locator("#pane .facts")
    for key, moves in (("PageDown", True), ("Home", False), ("End", True), ("PageUp", True)):
        page.keyboard.press(key)
        assert (facts.evaluate("element => element.scrollTop") > 0) is moves, key
    expect(page.get_by_role("button", name="Deny", exact=True)).to_be_in_viewport(ratio=1)


@pytest.mark.once
def test_a_field_made_larger_survives_the_next_request(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    page = inbox(live_inbox, live_inbox.enter(watched(browser_page, complaints)))
    page.get_by_label("Reason").evaluate(
        "element => { element.style.height = '120px' }"
    )  # as dragging its corner does
    page.locator(".entry h3 a").nth(1).click()
    expect(page.locator(".entry[aria-current] h3 a")).to_have_attribute(
        "href", page.locator(".entry h3 a").nth(1).get_attribute("href") or ""
    )
    page.wait_for_load_state("networkidle")


@pytest.mark.once
def test_buttons_that_wait_for_input_show_a_hint(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    page = live_inbox.enter(watched(browser_page, complaints))
    still(page)
    page.goto(live_inbox.gate_url("mail"))
    hint, deny = page.locator(".decide .hint"), page.get_by_role("button", name="Deny", exact=True)
    page.clock.run_for(300)
    expect(hint).to_be_empty()  # most hands move before it could be read
    page.clock.run_for(500)
    expect(hint).to_have_text(
        "The buttons wait, so that no click approves by accident:"
        " move the pointer, touch the page or press a key."
    )
    expect(deny).to_be_disabled()
    page.mouse.move(300, 300)
    page.mouse.move(310, 310)
    expect(deny).to_be_enabled()
    expect(hint).to_be_empty()


@pytest.mark.once
def test_without_a_script_no_script_action_is_offered(
    live_inbox: LiveInbox, new_page: Callable[..., Page]
) -> None:
    page = live_inbox.enter(new_page(java_script_enabled=False))
    page.goto(f"{live_inbox.server.url}/approvals/")
    expect(page.get_by_text("it opens on its own page")).to_be_visible()
    for words in ("to review it here", "Pause updates"):
        expect(page.get_by_text(words)).to_be_hidden()
    expect(page.locator(".inbox .keys")).to_be_hidden()


@pytest.mark.once
def test_no_request_opens_by_itself_with_open_none(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    page = live_inbox.enter(watched(browser_page, complaints))
    page.goto(f"{live_inbox.server.url}/approvals/?open=none")
    page.wait_for_load_state("networkidle")
    expect(page.get_by_text("Select a request to review it here.")).to_be_visible()
    expect(page.locator("#pane .gate")).to_have_count(0)


@pytest.mark.once
def test_the_heads_of_every_fact_are_aligned_with_their_columns(
    live_inbox: LiveInbox, browser_page: Page, complaints: list[str]
) -> None:
    page = live_inbox.enter(watched(browser_page, complaints))
    page.goto(live_inbox.gate_url("mail"))
    page.locator(".gate-ref a").first.click()
    table = page.locator("table.facts")
    expect(table.locator(".fact-row").first).to_be_visible()
    heads = table.locator("thead th").evaluate_all(
        "all => all.map(element => element.getBoundingClientRect().right)"
    )
    cells = table.locator(".fact-row").first.locator("th, td")
    assert heads == cells.evaluate_all(
        "all => all.map(element => element.getBoundingClientRect().right)"
    )


@pytest.mark.once
@pytest.mark.parametrize("width", [390, 1280])
def test_a_diff_needs_no_scrolling_of_its_own(
    live_inbox: LiveInbox, new_page: Callable[..., Page], complaints: list[str], width: int
) -> None:
    page = live_inbox.enter(watched(new_page(viewport={"width": width, "height": 844}), complaints))
    page.goto(live_inbox.gate_url("diff"))
    assert page.evaluate("document.documentElement.scrollWidth") == width
    diff = page.locator("#diff .diff").first
    expect(diff).to_be_visible()
    assert diff.evaluate(
        """element => {
            for (let box = element; box !== document.body; box = box.parentElement)
                if (getComputedStyle(box).overflowY === "auto" && box.scrollHeight > box.clientHeight)
                    return false;
            return element.scrollWidth <= element.clientWidth;
        }"""
    )
    columns = diff.locator("tr.add").first.locator("td:visible").count()
    assert columns == (3 if width == 390 else 4)  # one column of line numbers on a phone


@pytest.mark.once
def test_the_decision_is_always_in_view_on_a_phone_and_nothing_scrolls_inside(
    live_inbox: LiveInbox, new_page: Callable[..., Page], complaints: list[str]
) -> None:
    page = live_inbox.enter(watched(new_page(viewport={"width": 390, "height": 844}), complaints))
    for name in ("buried", "diff"):
        page.goto(live_inbox.gate_url(name))
        assert page.evaluate(INNER_SCROLLERS) == [], name
        for answer in ("deny", "request_changes", "approve"):
            button = page.locator(f".dock [value={answer}]")
            expect(button).to_be_in_viewport(ratio=1)
            size = button.bounding_box()
            assert size
            assert size["height"] >= 44, (name, answer)
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight / 2)")
        expect(page.locator(".dock [value=deny]")).to_be_in_viewport(ratio=1)
    with page.expect_download() as saved:
        page.goto(live_inbox.gate_url("buried"))
        page.get_by_role("link", name="command as text").click()
    assert saved.value.path().read_text() == BURIED
    page.get_by_role("link", name="full arguments, 401 lines").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Full arguments of g_")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.locator(".agent").text_content() == BURIED
