"""Pages of policies, exemptions and teams in a browser: accessibility and no JavaScript."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.approvals.confirm_helpers import code_in
from tests.config.server import Server
from tests.matrices import keep_core
from tests.pages.test_frame_browser import complaints, enter, violations_wide_and_narrow

__all__ = ["complaints"]
pytestmark = pytest.mark.browser

PROJECT = "policies in a browser"
PAGES = (
    "/approvals/policies/",
    "/approvals/policies/draft/",
    "/approvals/exemptions/",
    "/approvals/exemptions/grant/",
    "/settings/teams/",
)
HOUSE = f"""
from django.contrib.auth.models import User
from django.db import transaction
from approvals import exemptions
from approvals.policies import policies
from db.clock import now_us
from accounts import people
from accounts import projects
from accounts import teams
from tests.approvals.confirm_helpers import proved
with transaction.atomic():
    project = projects.find_project({PROJECT!r})
    if project is None:
        project = projects.create_project({PROJECT!r})
        member = people.add_project_member(project, "%s", "administrator")
        text = open("docs/examples/policies.yaml").read()
        policies.activate_policy_set(project, policies.load_policy_set(project, text), "observe")
        teams.add_team_member(teams.create_team(project, "team-leads"), member)
        teams.create_team(project, "nobody-yet")
        exemptions.create_exemption(project, tool="git.*", rule="push-to-production", repository="web", user=member.user,
                         reason="The release train of Friday.", ends_at_us=now_us() + 3_600_000_000, **proved())
"""


@pytest.fixture(scope="module")
def server(live_server_process: Server) -> Server:
    """Create a project of its own for these pages, so that every table has rows."""
    live_server_process.run(HOUSE % live_server_process.administrator)
    return live_server_process


def enter_project(page: Page, server: Server, complaints: list[str] | None = None) -> Page:
    """Sign in and switch to that project."""
    enter(page, server, complaints).goto(server.url)
    page.get_by_label("Project", exact=True).select_option(label=PROJECT)
    with page.expect_navigation():  # wait for the switch before the next request
        page.get_by_role("button", name="Switch").click()
    return page


@pytest.mark.once
@pytest.mark.parametrize("one_in", keep_core([8, 1], [8]))
def test_every_page_is_accessible(
    server: Server, browser_page: Page, complaints: list[str], one_in: int
) -> None:
    page = enter_project(browser_page, server, complaints)
    violations = []
    for path in PAGES[::one_in]:
        page.goto(server.url + path)
        violations += violations_wide_and_narrow(page)
    page.goto(server.url + PAGES[0])
    # A click returns before the next page has loaded.
    with page.expect_navigation():
        page.get_by_role("link", name="acme@1").first.click()
    violations += violations_wide_and_narrow(page)
    with page.expect_navigation():
        page.get_by_role("link", name=re.compile("in force…|Change the mode…")).click()
    violations += violations_wide_and_narrow(page)
    assert violations == []


@pytest.mark.matrix
def test_a_draft_comes_into_force_without_javascript(
    server: Server, new_page: Callable[..., Page]
) -> None:
    page = enter_project(new_page(java_script_enabled=False), server)
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Policies").click()
    page.get_by_role("link", name="Draft and dry run").click()
    draft = page.get_by_label("Rules, as YAML")
    text = draft.input_value()
    assert "id: push-to-production" in text, "a draft begins with what is in force"
    draft.fill(text.replace("outcome: require", "outcome: ask", 1))
    page.get_by_role("button", name="Test against history").click()
    expect(page.locator(".errorlist")).to_contain_text(
        re.compile(r"Line \d+: .*'ask'; choose one of allow, deny, require")
    )
    draft = page.get_by_label("Rules, as YAML")
    draft.fill(text.replace("over: 20", "over: 7"))
    page.get_by_role("button", name="Test against history").click()
    expect(page.get_by_role("heading", name="Dry run")).to_be_visible()
    page.get_by_role("button", name="Save as new version").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(r"acme@\d+"))
    expect(page.get_by_text("not in force", exact=True)).to_be_visible()
    page.get_by_role("link", name="in force…").click()
    page.get_by_label("Enforce").check()
    page.get_by_role("button", name="in force").click()
    expect(page.locator(".flash")).to_contain_text("is in force now, in mode enforce.")
    expect(
        page.get_by_text("once 7 were planned within 1 h with this tool by the agent")
    ).to_be_visible()


@pytest.mark.matrix
def test_an_exemption_is_granted_and_revoked_without_javascript(
    server: Server, new_page: Callable[..., Page]
) -> None:
    page = enter_project(new_page(java_script_enabled=False), server)
    page.goto(server.url + PAGES[2])
    page.get_by_role("link", name="Grant an exemption").click()
    page.get_by_label("Tool").fill("deploy.*")
    page.get_by_label("Reason").fill("too short")
    page.get_by_role("button", name="Grant exemption").click()
    expect(page.get_by_role("alert")).to_contain_text("Give a reason of 10")
    page.get_by_label("Reason").fill("The move to the new rack, INC-311.")
    page.get_by_role("button", name="Grant exemption").click()
    page.get_by_role("button", name="Go back").click()
    expect(page.get_by_label("Reason")).to_have_value("The move to the new rack, INC-311.")
    page.get_by_role("button", name="Grant exemption").click()
    page.get_by_label("to confirm").fill(code_in(page.content()))
    if (password := page.get_by_label("Your password")).count():  # else it still counts
        password.fill(server.password)
    page.get_by_role("button", name="Grant exemption").click()
    expect(page.locator(".flash")).to_contain_text("until the exemption ends.")
    page.get_by_role("link", name="Revoke the exemption of deploy.*").click()
    page.get_by_role("button", name="End exemption").click()
    expect(page.locator(".flash")).to_contain_text("The rules require approval again")
    expect(page.get_by_role("link", name="Revoke the exemption of deploy.*")).to_have_count(0)


@pytest.mark.once
def test_a_form_does_nothing_after_another_tab_has_switched_the_project(
    server: Server, browser_page: Page
) -> None:
    page = enter_project(browser_page, server)
    page.goto(server.url + PAGES[3])
    page.get_by_label("Tool").fill("*")
    page.get_by_label("Reason").fill("The move to the new rack, INC-312.")
    tab = page.context.new_page()
    tab.goto(server.url + "/tools/")
    tab.get_by_label("Project", exact=True).select_option(label="default")
    with tab.expect_navigation():
        tab.get_by_role("button", name="Switch").click()
    with page.expect_navigation():
        page.get_by_role("button", name="Grant exemption").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(
        "This form was opened in another project"
    )
    expect(page.get_by_label("Reason")).to_have_value("The move to the new rack, INC-312.")
    assert violations_wide_and_narrow(page) == []
    with page.expect_navigation():
        page.get_by_role("button", name=f"Switch back to {PROJECT}").click()
    page.goto(server.url + PAGES[2])
    expect(page.get_by_text(f"of {PROJECT}", exact=True)).to_be_visible()
    expect(page.get_by_text("INC-312")).to_have_count(0)
