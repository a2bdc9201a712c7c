"""The stuck board in a real browser: both themes, two widths, with and without JavaScript."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from tests.api.api_client import Caller
from tests.config.server import Server
from tests.matrices import keep_core
from tests.pages.test_frame_browser import enter, violations_by_day_and_night

pytestmark = pytest.mark.browser
# Move the stored times back, so the ages on the page are right.
LATER: Final = """
from django.db import transaction
from tests.recovery.stuck_helpers import pass_by
from monitoring.stuck import sweeper
with transaction.atomic():
    pass_by(1900, agent="night-9")
sweeper.sweep_stuck()
sweeper.sweep_stuck()
print(sweeper.sweep_stuck())
"""


@pytest.fixture(scope="module")
def stuck(live_server_process: Server) -> dict[str, Any]:
    """An installation with stuck sessions by most of the rules."""
    server = live_server_process
    agent = Caller(server.token("night-9"), address=server.url)
    made: dict[str, Any] = {}
    for key, title in (
        ("dead", "Nightly dependency bump"),
        ("orphan", "Migrate the invoices"),
        ("wedged", "Triage"),
    ):
        made[key] = agent.session(f"stuck-{key}", mode="leased", title=title)
        lease = agent.post("/leases", {"session": made[key]["id"], "process": "w-4", "ttl_s": 600})
        assert lease.status_code == 201, lease.text
    made["late"] = agent.session("stuck-late", mode="leased", title="Write the release notes")
    made["mail"] = agent.session("stuck-mail", title="Tell the customers")
    for n in range(2):
        effect = agent.plan(
            f"mail-{n}", made["mail"]["id"], tool="mail.send", arguments={"to": 412 + n}
        )
        agent.dispatch(effect)
    server.run(LATER)
    return made


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """Collect the messages of the console and the content security policy; must stay empty."""
    messages: list[str] = []
    yield messages
    assert messages == []


@pytest.mark.once
@pytest.mark.parametrize(
    ("width", "one_in"), keep_core([(390, 1), (1280, 1), (1280, 6)], [(1280, 6)])
)
def test_the_board_and_its_pages_are_accessible(
    live_server_process: Server,
    stuck: dict[str, Any],
    new_page: Callable[..., Page],
    complaints: list[str],
    width: int,
    one_in: int,
) -> None:
    page = enter(
        new_page(viewport={"width": width, "height": 800}, reduced_motion="reduce"),
        live_server_process,
        complaints,
    )
    violations = []
    session = stuck["dead"]["id"]
    for path in (
        "/stuck/",
        f"/stuck/S7/{session}/?do=release",
        f"/stuck/S7/{session}/?do=snooze",
        "/stuck/?mine=1",
    )[::one_in]:
        page.goto(live_server_process.url + path)
        violations += violations_by_day_and_night(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    page.goto(f"{live_server_process.url}/sessions/{session}/stuck/")
    violations += violations_by_day_and_night(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert violations == []


@pytest.mark.matrix
def test_a_stuck_session_is_handled_without_javascript(
    live_server_process: Server, stuck: dict[str, Any], new_page: Callable[..., Page]
) -> None:
    page = enter(new_page(java_script_enabled=False), live_server_process)
    page.goto(live_server_process.url)
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Stuck").click()
    row = page.get_by_role("row").filter(has_text="Migrate the invoices")
    row.get_by_role("link", name="snooze").click()
    page.get_by_label("Reason").fill("the invoices wait for the auditors")
    page.get_by_role("button", name="Snooze").click()
    expect(page.get_by_text("Snoozed.")).to_be_visible()
    expect(page.get_by_text("1 snoozed")).to_be_visible()
    row = page.get_by_role("row").filter(has_text="Nightly dependency bump")
    row.get_by_role("link", name="Release lease").click()
    page.get_by_label("Reason").fill("w-4 is gone")
    page.get_by_role("button", name="Release the lease").click()
    expect(page.get_by_text("Lease released. Any worker can take over")).to_be_visible()
    assert stuck["dead"]["id"] not in page.content() or "Nightly" not in page.content()
