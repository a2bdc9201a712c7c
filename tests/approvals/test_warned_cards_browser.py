"""Cards with warnings in a real browser: accessible, aligned, and decided under the thumb."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from django.urls import reverse
from playwright.sync_api import Browser, Page, expect

from approvals.models import Gate
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.live_fixture import LiveInbox
from tests.approvals.reviewer import url_of
from tests.approvals.test_hands_browser import INNER_SCROLLERS
from tests.approvals.test_warned_cards import CLAIM, LOOKALIKE, RESULTS, checks_report
from tests.matrices import keep_core
from tests.pages.test_frame_browser import violations_by_day_and_night
from tests.visual.pictures import open_page
from tests.visual.sample import PageAddress

pytestmark = pytest.mark.browser

COLOURS = "all => all.map(each => getComputedStyle(each).color)"
BROKEN_DURATIONS = r"""element => {
  const broken = [], walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    for (const match of walker.currentNode.data.matchAll(/\d+\s(?:min|h|s|d)\b/g)) {
      const range = document.createRange();
      range.setStart(walker.currentNode, match.index);
      range.setEnd(walker.currentNode, match.index + match[0].length);
      if (new Set([...range.getClientRects()].map(box => box.top)).size > 1) broken.push(match[0]);
    }
  }
  return broken;
}"""
LEFT = "all => all.map(element => Math.round(element.getBoundingClientRect().left))"


@pytest.fixture
def mail(inbox: InboxScenario) -> Gate:
    inbox.declare("mail.send", "irreversible")
    arguments = {"to": f"ann@{LOOKALIKE}", "dry_run": False, "subject": "November"}
    target = {"repository": "web", "ref": "refs/heads/main"}
    return inbox.gate(
        inbox.plan("mail", tool="mail.send", arguments=arguments, why=CLAIM, target=target)
    )


@pytest.mark.once
@pytest.mark.parametrize("width", keep_core([1280, 390, 320], [320]))
def test_a_card_with_warnings_is_accessible_and_fits(
    inbox: InboxScenario, mail: Gate, browser: Browser, width: int
) -> None:
    client = inbox.organization.client("reviewer")
    violations = []
    for url in (url_of(mail), f"{reverse('inbox')}?open={mail.id}"):
        address = PageAddress("card", "reviewer", url)
        with (
            checks_report(RESULTS),
            open_page(browser, client, address, width, datetime.now(UTC)) as page,
        ):
            page.clock.resume()  # the rules wait for timers
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            violations += violations_by_day_and_night(page)
            if url != url_of(mail):
                continue
            odd = page.locator(".spelled mark")
            assert len(set(odd.evaluate_all(LEFT))) == 1, "letters stand under each other"
            for part in (".findings", ".dock [value=deny]" if width < 928 else "[value=deny]"):
                expect(page.locator(part).first).to_be_in_viewport()
            if width < 928:
                assert page.evaluate(INNER_SCROLLERS) == []
                expect(page.locator(".decide .answers")).to_be_hidden()
            else:
                expect(page.locator(".fact-4")).to_be_in_viewport(ratio=1)
                expect(page.locator(".dock")).to_be_hidden()
    assert violations == []


def test_without_script_a_missing_reason_is_asked_for_at_its_field(
    live_inbox: LiveInbox, new_page: Callable[..., Page]
) -> None:
    live_inbox.ask("dock", "mail.send", {"subject": "Dock"}, target={"environment": "dock"})
    page = live_inbox.enter(
        new_page(java_script_enabled=False, viewport={"width": 390, "height": 844})
    )
    page.goto(live_inbox.gate_url("dock"))
    page.locator(".dock").get_by_role("button", name="Deny").click()
    reason = page.get_by_label("Reason")
    expect(page.get_by_text("Add a reason to deny.").last).to_be_visible()
    expect(reason).to_be_focused()
    expect(reason).to_be_in_viewport(ratio=1)
    reason.fill("not in this form")
    page.locator(".dock").get_by_role("button", name="Deny").click()
    page.get_by_role("button", name="Deny mail.send").click()
    expect(page.get_by_text("is recorded as entry")).to_be_visible()
    page.goto(live_inbox.gate_url("dock"))
    expect(page.get_by_text("not in this form")).to_be_visible()


@pytest.mark.once
def test_on_a_narrow_page_the_hint_and_the_lines_of_warnings_hide_nothing(
    inbox: InboxScenario, mail: Gate, browser: Browser
) -> None:
    client = inbox.organization.client("reviewer")
    address = PageAddress("card", "reviewer", url_of(mail))
    with (
        checks_report(RESULTS),
        open_page(browser, client, address, 390, datetime.now(UTC)) as page,
    ):
        page.reload()
        page.clock.run_for(1_000)
        hint, dock = page.locator(".dock .hint"), page.locator(".dock")
        expect(hint).to_contain_text("The buttons wait")
        above, below = hint.bounding_box(), dock.bounding_box()
        assert above
        assert below
        assert above["y"] + above["height"] <= below["y"] + 0.5, "the double rule is in view"
        colours = page.locator(".dock button").evaluate_all(COLOURS)
        assert len(set(colours)) == 1, "no button that waits looks as if it worked"
        line = page.locator(".finding-lines a").first
        line.click()
        note = page.locator(f"[id='{(line.get_attribute('href') or '').removeprefix('#')}']")
        expect(note).to_be_in_viewport(ratio=1)
        shown = note.bounding_box()
        assert shown
        assert shown["y"] + shown["height"] <= below["y"], "the bar lies below the note"
    with (
        checks_report(RESULTS),
        open_page(browser, client, address, 1280, datetime.now(UTC)) as page,
    ):
        expect(page.locator(".finding-lines")).to_be_hidden()  # the notes are in view


@pytest.mark.once
def test_durations_stay_on_one_line(inbox: InboxScenario, mail: Gate, browser: Browser) -> None:
    client = inbox.organization.client("reviewer")
    late = replace(RESULTS[0], sentence="Denied 40 min ago, and 3 h 20 min before that. " * 3)
    address = PageAddress("card", "reviewer", url_of(mail))
    with (
        checks_report((late,)),
        open_page(browser, client, address, 320, datetime.now(UTC)) as page,
    ):
        for width in range(320, 400, 8):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.locator(".finding").evaluate(BROKEN_DURATIONS) == []
