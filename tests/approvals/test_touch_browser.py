"""Reviewing with a finger, on a phone: the next request is never under the same tap."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.approvals.live_fixture import LiveInbox, still, watched

pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
INERT = "The buttons wait, so that no tap approves by accident: touch the page once."


def answer_button(page: Page, answer: str) -> Locator:
    """The visible button of an answer: in the sticky bar, or at the end of the page."""
    return page.locator(f"[name=answer][value={answer}]:visible")


def hint_of(page: Page) -> Locator:
    return page.locator(".hint:visible", has_text=re.compile("."))


def tap_middle(page: Page, wanted: Locator) -> None:
    """Tap an element in view where it is, whether or not it is enabled. Scrolls nothing."""
    expect(wanted).to_be_in_viewport(ratio=1)
    box = wanted.bounding_box()
    assert box
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


@pytest.mark.once
def test_a_first_touch_enables_the_buttons_and_presses_none(
    live_inbox: LiveInbox, new_page: Callable[..., Page], complaints: list[str]
) -> None:
    page = live_inbox.enter(watched(new_page(**PHONE), complaints))
    still(page)
    url = live_inbox.gate_url("mail")
    page.goto(url)
    deny = answer_button(page, "deny")
    tap_middle(page, deny)
    page.clock.run_for(600)
    tap_middle(page, deny)  # both within 700 ms
    expect(deny).to_be_disabled()
    page.clock.run_for(200)
    expect(deny).to_be_enabled()  # 700 ms are over, and the page was touched
    page.reload()
    page.clock.run_for(800)
    expect(deny).to_be_disabled()
    expect(hint_of(page)).to_have_text(INERT)
    page.evaluate("scrollTo(0, 200)")
    scrolled = page.evaluate("scrollY")
    assert scrolled == 200
    tap_middle(page, deny)
    expect(deny).to_be_enabled()
    expect(hint_of(page)).to_have_text("The buttons work now: press again.")
    assert abs(page.evaluate("scrollY") - scrolled) <= 1
    assert page.url == url
    expect(page.locator(".dock a[href='#reason']")).to_have_text(re.compile(r"Reason\s+required"))
    tap_middle(page, deny)  # without a reason: nothing is sent
    expect(page.locator("#e-reason")).to_have_text("Add a reason to deny.")
    expect(page.locator("#e-reason")).to_be_in_viewport(ratio=1)
    expect(page.get_by_label("Reason")).to_be_focused()
    assert page.url == url


@pytest.mark.once
def test_a_touch_elsewhere_enables_the_buttons(
    live_inbox: LiveInbox, new_page: Callable[..., Page], complaints: list[str]
) -> None:
    page = live_inbox.enter(watched(new_page(**PHONE), complaints))
    page.goto(live_inbox.gate_url("mail"))
    page.wait_for_load_state("networkidle")
    expect(hint_of(page)).to_have_text(INERT)
    scrolled = page.evaluate("scrollY")
    page.touchscreen.tap(120, 250)
    expect(answer_button(page, "deny")).to_be_enabled()
    expect(hint_of(page)).to_have_count(0)
    assert page.evaluate("scrollY") == scrolled


def test_after_an_answer_the_next_request_stands_there_and_waits_for_a_new_touch(
    live_inbox: LiveInbox, new_page: Callable[..., Page], complaints: list[str]
) -> None:
    for number in range(3):
        name = f"thumb-{number}"
        live_inbox.ask(name, "mail.send", {"subject": name}, target={"repository": "thumb"})
    page = live_inbox.enter(watched(new_page(**PHONE), complaints))
    page.goto(f"{live_inbox.server.url}/approvals/?repo=thumb")
    page.wait_for_load_state("networkidle")
    first = live_inbox.gate_url("thumb-0")
    page.locator(".entry h3 a", has_text="mail.send").first.tap()
    expect(page).to_have_url(f"{first}?from=list&repo=thumb")
    page.get_by_label("Reason").fill("not before the review")
    page.touchscreen.tap(120, 250)
    deny = answer_button(page, "deny")
    expect(deny).to_be_enabled()
    votes: list[str] = []
    page.on(
        "request",
        lambda request: votes.append(request.url) if request.method == "POST" else None,
    )
    deny.scroll_into_view_if_needed()
    box = deny.bounding_box()
    assert box
    where = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    held: list[Route] = []
    page.route("**/vote/", lambda route: held.append(route))  # the next page comes after both taps
    with page.expect_request("**/vote/"):
        page.touchscreen.tap(*where)
        page.touchscreen.tap(*where)  # a double tap answers once
    while not held:
        page.wait_for_timeout(20)
    for route in held:
        route.continue_()
    second = live_inbox.gate_url("thumb-1")
    expect(page).to_have_url(re.compile(re.escape(second)))
    page.wait_for_load_state("networkidle")
    assert votes == [f"{first}vote/"]
    title = page.locator(".gate-title")
    expect(title).to_be_focused()
    expect(title).to_be_in_viewport(ratio=1)
    expect(page.locator("ul.flash")).to_contain_text("is recorded as entry")
    box = title.bounding_box()
    assert box
    assert box["y"] < 150, box  # the request is at the top, under the message
    expect(page.get_by_label("Reason")).to_have_value("")
    expect(deny).to_be_disabled()
    page.touchscreen.tap(*where)  # the same place, after 700 ms
    expect(deny).to_be_enabled()
    page.wait_for_timeout(300)
    assert page.url.startswith(second)
    assert votes == [f"{first}vote/"]


def test_the_last_answer_leads_back_to_the_list_and_a_pause_keeps_the_way(
    live_inbox: LiveInbox, new_page: Callable[..., Page], complaints: list[str]
) -> None:
    live_inbox.ask("way", "issue.close", {"issue": 700}, target={"repository": "way"})
    page = live_inbox.enter(watched(new_page(**PHONE), complaints))
    page.goto(f"{live_inbox.server.url}/approvals/?repo=way")
    page.wait_for_load_state("networkidle")
    page.locator(".entry h3 a").first.tap()
    page.get_by_label("Reason").fill("not stale at all")
    page.get_by_role("button", name="Extend 15 min").tap()
    expect(page.get_by_text("Extended by 15 minutes.")).to_be_visible()
    expect(page).to_have_url(re.compile(r"\?repo=way&from=list$"))
    expect(page.get_by_label("Reason")).to_have_value("not stale at all")
    page.touchscreen.tap(120, 250)
    expect(answer_button(page, "deny")).to_be_enabled()
    answer_button(page, "deny").tap()
    expect(page.get_by_text("is recorded as entry")).to_be_visible()
    expect(page).to_have_url(re.compile(r"from=list|open=none"))
