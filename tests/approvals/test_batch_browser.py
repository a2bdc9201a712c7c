"""The page that decides a set, in a real browser: on a phone, without script, by ticks."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.approvals.live_fixture import LiveInbox, watched
from tests.matrices import keep_core
from tests.pages.test_frame_browser import violations_by_day_and_night

pytestmark = pytest.mark.browser

WIDTH = "document.documentElement.scrollWidth"
LONG = "exports/2026/11/" + "deep/" * 12 + "customers.csv"


@pytest.fixture
def ask_set(live_inbox: LiveInbox) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    """Plan requests of one shape; the last is in production. Withdraw them after the test."""
    planned: list[dict[str, Any]] = []

    def ask(name: str, alike: int) -> list[dict[str, Any]]:
        live_inbox.agent.session(name)
        clusters = ["staging-eu-2"] * alike + ["prod-eu-1"]
        for number, cluster in enumerate(clusters):
            arguments = {
                "kind": "PersistentVolumeClaim",
                "namespace": "batch",
                "volume": f"{name}-cache-{number}",
                "cluster": cluster,
                "size": "2,048 GiB" if cluster.startswith("prod") else f"{20 + number} GiB",
                "path": f"{LONG}-{name}-{number}",  # a denial counts for its file
                "backup": "Fri 02:00",
            }
            why = "Unused staging volumes, not mounted for 30 days."
            planned.append(
                live_inbox.agent.plan(
                    f"{name}-{number}",
                    name,  # a session of its own: others withdrew requests in theirs
                    tool="issue.close",
                    arguments=arguments,
                    why=why,
                    target={"repository": name},
                )
            )
        return planned

    yield ask
    for effect in planned:
        live_inbox.agent.post(f"/effects/{effect['id']}/supersede")


def open_set(live_inbox: LiveInbox, page: Page, name: str) -> None:
    """Open the page of a set by its button in the inbox."""
    page.goto(f"{live_inbox.server.url}/approvals/?repo={name}")
    page.get_by_role("button", name="together…").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("issue.close")


def arm(page: Page) -> None:
    """Move the pointer, so that the answers open."""
    page.mouse.move(200, 200)
    page.mouse.move(210, 210)


@pytest.mark.once
@pytest.mark.parametrize("width", keep_core([390, 1280], [390]))
def test_a_set_is_accessible_and_never_scrolls_sideways(
    live_inbox: LiveInbox,
    new_page: Callable[..., Page],
    complaints: list[str],
    ask_set: Callable[..., list[dict[str, Any]]],
    width: int,
) -> None:
    ask_set(f"wide-{width}", 24)
    page = live_inbox.enter(watched(new_page(viewport={"width": width, "height": 844}), complaints))
    open_set(live_inbox, page, f"wide-{width}")
    assert page.evaluate(WIDTH) == width
    expect(page.locator(".set input[type=checkbox]")).to_have_count(24)
    expect(page.locator(".set .out input")).to_have_count(0)
    expect(page.locator(".set .out")).to_contain_text("others: staging-eu-2")
    arm(page)
    answers = ".dock" if width == 390 else ".decide"
    approve = page.locator(f"{answers} [value=approve]")
    expect(approve).to_be_in_viewport(ratio=1)
    expect(approve).to_be_enabled()
    other = page.locator(".decide [value=approve]" if width == 390 else ".dock")
    expect(other).to_be_hidden()
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert page.evaluate(WIDTH) == width
    page.mouse.wheel(0, 20_000)
    assert violations_by_day_and_night(page) == []
    if width == 390:
        page.set_viewport_size({"width": 320, "height": 600})
        assert page.evaluate(WIDTH) == 320


@pytest.mark.once
def test_ticks_are_counted_and_only_these_are_decided(
    live_inbox: LiveInbox,
    new_page: Callable[..., Page],
    complaints: list[str],
    ask_set: Callable[..., list[dict[str, Any]]],
) -> None:
    planned = ask_set("counted", 5)
    page = live_inbox.enter(watched(new_page(viewport={"width": 390, "height": 844}), complaints))
    open_set(live_inbox, page, "counted")
    boxes = page.locator(".set input[type=checkbox]")
    boxes.nth(2).uncheck()
    expect(page.locator(".handles li:visible")).to_have_count(4)
    page.locator(".dock [href='#reason']").click()
    page.get_by_label("Reason").fill("not before the audit")
    page.get_by_role("button", name="Go back").click()
    ticked = page.locator(".inbox-list [name=gate]:checked")
    expect(ticked).to_have_count(4)
    page.get_by_role("button", name="Review selected…").click()
    expect(page.locator(".handles li:visible")).to_have_count(4)
    expect(page.get_by_label("Reason")).to_have_value("not before the audit")
    arm(page)
    page.locator(".dock [value=deny]").click()
    expect(page.get_by_text("4 answers are recorded, each with your reason.")).to_be_visible()
    states = [live_inbox.agent.get(f"/effects/{effect['id']}").json() for effect in planned]
    assert [state["permission"] for state in states] == [
        *("denied", "denied", "pending", "denied", "denied", "pending")
    ]


@pytest.mark.once
def test_a_set_is_decided_without_script(
    live_inbox: LiveInbox,
    new_page: Callable[..., Page],
    ask_set: Callable[..., list[dict[str, Any]]],
) -> None:
    ask_set("plainly", 4)
    page = live_inbox.enter(
        new_page(viewport={"width": 390, "height": 844}, java_script_enabled=False)
    )
    open_set(live_inbox, page, "plainly")
    page.get_by_label("Reason").fill("stale since March")
    page.get_by_role("button", name="Untick all").click()
    expect(page.get_by_text("none: tick a row")).to_be_visible()
    page.locator(".dock [value=approve]").click()
    expect(page.get_by_text("Tick at least one request.")).to_be_visible()
    page.get_by_role("button", name="Tick all 4 similar").click()
    expect(page.locator(".set input:checked")).to_have_count(4)
    page.locator(".set input").nth(3).uncheck()
    page.locator(".dock [value=approve]").click()
    expect(page.get_by_text("3 answers are recorded, each with your reason.")).to_be_visible()
