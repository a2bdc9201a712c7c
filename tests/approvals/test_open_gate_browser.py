"""An open request that somebody else decides, in a real browser: no button stays active, no text is
lost."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.approvals.live_fixture import LiveInbox, touch, watched
from tests.approvals.test_hands_browser import inbox
from tests.approvals.test_pane_browser import expect_open

pytestmark = pytest.mark.browser


def deny(live_inbox: LiveInbox, page: Page, name: str) -> None:
    """Deny a request as the person of `page`."""
    page.goto(live_inbox.gate_url(name))
    page.get_by_label("Reason").fill("not before the review")
    touch(page)
    page.get_by_role("button", name="Deny", exact=True).click()
    expect(page.get_by_text("Your answer on")).to_be_visible()


@pytest.mark.parametrize("where", ["page", "pane"])
def test_a_request_that_somebody_else_decides_is_updated_where_it_is_open(
    live_inbox: LiveInbox, new_page: Callable[..., Page], complaints: list[str], where: str
) -> None:
    name = f"seen-{where}"
    live_inbox.ask(
        name, "mail.send", {"subject": name, "note": "\u202eraw"}, target={"environment": name}
    )
    page = live_inbox.enter(watched(new_page(), complaints))
    page.clock.install()
    if where == "pane":
        inbox(live_inbox, page, f"?open={live_inbox.plans[name]['gate']['id']}")
        expect_open(page, live_inbox.gate_url(name).removeprefix(live_inbox.server.url))
    else:
        page.goto(live_inbox.gate_url(name))
    reason = page.get_by_label("Reason")
    page.get_by_label("I have seen the hidden character").check()
    reason.fill("half a thought")
    reason.evaluate("element => element.setSelectionRange(4, 4)")
    extend(live_inbox, name)
    with page.expect_response(lambda response: "since=" in response.url and "in=" in response.url):
        page.clock.run_for(5_100)
    expect(page.locator("#gate-news")).to_have_text("The deadline of this request moved.")
    expect(reason).to_be_focused()
    expect(reason).to_have_value("half a thought")
    assert reason.evaluate("element => element.selectionStart") == 4
    expect(page.get_by_label("I have seen the hidden character")).to_be_checked()
    deny(live_inbox, live_inbox.enter(watched(new_page(), complaints), "sam"), name)
    page.clock.run_for(5_100)
    news = page.locator("#gate-news")
    expect(news).to_contain_text("sam denied this request")
    expect(news).to_be_focused()
    expect(page.locator("[data-settle]")).to_have_count(0)
    expect(page.locator(".gate-line")).to_contain_text("denied")
    expect(page.locator(".quorum")).to_contain_text("sam denied")
    expect(page.locator(".ended time")).to_be_visible()
    expect(page.get_by_text("Your draft reason: half a thought")).to_be_visible()
    if where == "page":
        expect(page).to_have_title(re.compile("g_.*, denied"))


def extend(live_inbox: LiveInbox, name: str) -> None:
    """Extend the deadline as sam."""
    live_inbox.server.run(
        "from approvals.voting import votes; from approvals.models import Gate\n"
        "from accounts.models import Membership\n"
        f"gate = Gate.objects.get(id={live_inbox.plans[name]['gate']['id']!r})\n"
        "votes.extend_deadline(gate, Membership.objects.get(user__username='sam', "
        "project=gate.project_id))"
    )


def test_title_and_rail_of_any_page_count_a_new_request_before_it_is_clicked(
    live_inbox: LiveInbox, new_page: Callable[..., Page], complaints: list[str]
) -> None:
    page = live_inbox.enter(watched(new_page(), complaints))
    for path in ("/tools/", "/approvals/"):
        page.clock.install()
        page.goto(live_inbox.server.url + path)
        page.wait_for_load_state("networkidle")
        count = page.locator("#rail .count").first
        before = int((count.text_content() or "0").split()[0])
        expect(page).to_have_title(re.compile(rf"^\({before}\) "))
        name = f"counted-{path.strip('/')}"
        live_inbox.ask(name, "mail.send", {"subject": name}, target={"environment": name})
        page.clock.run_for(15_100)
        expect(count).to_contain_text(str(before + 1))
        expect(page).to_have_title(re.compile(rf"^\({before + 1}\) (?!\()"))
        expect(page.locator("#rail [aria-current]")).to_have_count(1)
    page.context.clear_cookies()  # signed out in another tab: an unknown count is not shown
    for _ in range(2):
        with page.expect_response(lambda response: "/navigation/counts/" in response.url):
            page.clock.run_for(15_100)
    expect(page.locator("#rail[data-stale]")).to_have_count(1)
    expect(page).to_have_title(re.compile(r"^Approvals"))
