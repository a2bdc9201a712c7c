"""A confirm page whose request ends while a person types, in a real browser."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.approvals.live_fixture import LiveInbox, still, touch, watched

pytestmark = pytest.mark.browser


def test_the_fields_of_a_confirm_page_vanish_when_its_request_ends(
    live_inbox: LiveInbox, new_page: Callable[..., Page], complaints: list[str]
) -> None:
    target = {"environment": "confirming"}
    live_inbox.ask("confirming", "mail.send", {"subject": "confirming"}, target=target)
    page = live_inbox.enter(watched(new_page(), complaints))
    still(page)
    page.goto(live_inbox.gate_url("confirming"))
    page.get_by_label("Reason").fill("agreed with the team")
    page.clock.run_for(800)  # buttons wait so long
    touch(page)
    page.get_by_role("button", name="Approve").click()
    password = page.get_by_label("Your password")
    password.fill("half a pass")
    with page.expect_response(lambda response: "confirm/?since=" in response.url):
        page.clock.run_for(5_100)
    expect(password).to_have_value("half a pass")  # nothing changed: the page is left alone
    effect = live_inbox.plans["confirming"]["id"]
    assert live_inbox.agent.post(f"/effects/{effect}/supersede").status_code == 200
    live_inbox.ask("confirming-2", "mail.send", {"subject": "confirming"}, target=target)
    page.clock.run_for(5_100)
    heading = page.get_by_role("heading", name="Your answer was not recorded.")
    expect(heading).to_be_visible()
    expect(page.locator("#live")).to_contain_text("This request was cancelled")
    expect(page.locator("input[type=password]")).to_have_count(0)
    expect(page.get_by_text("Newer request for the same call:")).to_be_visible()
    page.locator(".successor a").click()
    page.wait_for_url(live_inbox.gate_url("confirming-2"))
