"""Times in the reader's clock, in a real browser: deadlines and column heads agree with the
clock."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.approvals.live_fixture import LiveInbox, watched

pytestmark = pytest.mark.browser

# A moment of the page in the browser's own clock.
LOCAL = """node => {
    const two = number => String(number).padStart(2, "0"), at = new Date(node.dateTime)
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`
    return [day, `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`]
}"""


@pytest.mark.once
def test_deadlines_and_heads_follow_the_clock_that_is_chosen(
    live_inbox: LiveInbox, new_page: Callable[..., Page], complaints: list[str]
) -> None:
    page = live_inbox.enter(watched(new_page(timezone_id="Asia/Kathmandu"), complaints), "alice")
    page.goto(live_inbox.gate_url("push"))
    deadline, moment = page.locator(".clock > span"), page.locator(".clock time")
    _, local = moment.evaluate(LOCAL)
    utc = (moment.get_attribute("datetime") or "")[11:19]
    expect(deadline).to_contain_text(f"Expires {utc} UTC", use_inner_text=True)
    page.get_by_role("button", name="Local").click()
    expect(page.get_by_role("button", name="Local")).to_have_attribute("aria-pressed", "true")
    expect(deadline).to_contain_text(
        re.compile(rf"Expires {local} (GMT)?\+5:45"), use_inner_text=True
    )
    expect(page.locator("body")).not_to_contain_text(f"{local} UTC")
    page.locator(".gate-ref a").last.click()  # its session
    head = page.locator(".timeline thead th", has_text="Planned")
    first = page.locator(".timeline tbody time").first
    day, clock = first.evaluate(LOCAL)
    expect(head).not_to_contain_text("UTC")
    expect(head).to_contain_text(day)
    expect(first).to_contain_text(clock)
    page.get_by_role("button", name="Relative").click()
    expect(first).to_have_text(re.compile(r"^\d+\s(s|min|h) ago$"))
    expect(head).to_have_text("Planned")
    page.goto(live_inbox.gate_url("push"))
    expect(deadline).to_contain_text(
        re.compile(r"Expires in \d+\s(min|h)\b(?! UTC)"), use_inner_text=True
    )
    page.get_by_role("button", name="UTC").click()
    expect(page.get_by_role("button", name="UTC")).to_have_attribute("aria-pressed", "true")
