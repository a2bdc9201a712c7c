"""Notifications of the browser, and one hand on a phone."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.approvals.live_fixture import LiveInbox, touch, watched

pytestmark = pytest.mark.browser

FAKE = """
window.shown = [];
window.badge = 0;
window.Notification = class {
  static permission = "default";
  static async requestPermission() { return (this.permission = "granted"); }
  constructor(text, options) {
    document.documentElement.dataset.shown = window.shown.push([text, options.body]);
  }
};
navigator.setAppBadge = async (count) => { window.badge = count; };
navigator.clearAppBadge = async () => { window.badge = 0; };
"""
HIDE = 'Object.defineProperty(document, "hidden", { value: true, configurable: true })'
LOOK = 'document.querySelector("#rail").dispatchEvent(new Event("counts"))'


def test_a_browser_notifies_only_after_its_reader_turned_it_on(
    live_inbox: LiveInbox, new_page: Callable[..., Page], complaints: list[str]
) -> None:
    page = live_inbox.enter(watched(new_page(), complaints))
    page.add_init_script(FAKE)
    page.clock.install()
    page.goto(f"{live_inbox.server.url}/settings/reviewing/")
    expect(page.get_by_text("Off in this browser.")).to_be_visible()
    assert page.evaluate("[window.shown.length, window.badge]") == [0, 0]
    page.get_by_role("button", name="Turn on in this browser").click()
    expect(page.get_by_text("On in this browser.")).to_be_visible()
    waiting = int(page.locator("#rail").get_attribute("data-waiting") or 0)
    assert page.evaluate("window.badge") == waiting
    page.evaluate(HIDE)  # before the request, or a poll of the visible page counts it
    live_inbox.ask("browser", "mail.send", {"subject": "SECRET"}, target={"environment": "tab"})
    page.clock.run_for(61_000)  # a hidden page asks once a minute
    page.evaluate(LOOK)
    expect(page.locator("html")).to_have_attribute("data-shown", "1")
    text = f"{waiting + 1} requests wait for approval"
    assert page.evaluate("window.shown[0]") == [text, "Open your queue in Gatebook."]
    assert page.evaluate("window.badge") == waiting + 1
    page.evaluate("Object.defineProperty(document, 'hidden', { value: false })")
    page.get_by_role("button", name="Turn off in this browser").click()
    assert page.evaluate("window.badge") == 0


def test_a_phone_approves_with_one_hand(
    live_inbox: LiveInbox, new_page: Callable[..., Page], complaints: list[str]
) -> None:
    live_inbox.ask("phone", "mail.send", {"subject": "By thumb"}, target={"environment": "phone"})
    page = live_inbox.enter(
        watched(new_page(viewport={"width": 390, "height": 844}, has_touch=True), complaints)
    )
    page.goto(live_inbox.gate_url("phone"))
    for name in ("Deny", "Approve"):
        button = page.locator(".dock").get_by_role("button", name=name)
        box = button.bounding_box()
        assert box is not None
        assert box["height"] >= 44
        assert box["y"] > 844 / 2  # within reach of the thumb
        assert box["y"] + box["height"] <= 844
    page.get_by_label("Reason").fill("agreed in INC-204")
    touch(page)
    page.locator(".dock").get_by_role("button", name="Approve").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Approve exactly this?")
    password = page.get_by_label("Your password")
    expect(password).to_have_attribute("autocomplete", "current-password")
    expect(page.locator("[autocomplete=username]")).to_have_value("rita")
    for field in (password, page.get_by_role("button", name="Approve mail.send")):
        box = field.bounding_box()
        assert box is not None
        assert box["height"] >= 44
    facts = page.get_by_text("By thumb").first
    expect(facts).to_be_visible()
    approve = page.get_by_role("button", name="Approve mail.send").bounding_box()
    assert approve is not None
    assert 844 / 2 < approve["y"] <= 844 - approve["height"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
