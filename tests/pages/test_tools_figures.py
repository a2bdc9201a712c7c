"""The tools page: each number of a tool equals its search."""

import re

from django.urls import reverse

from db.clock import now_us
from db.whole_days import build_period
from display.display_state import ENDED_IN_ERROR
from investigation.query import execute
from pages.tools.tool_figures import load_tool_figures
from tests.approvals.conftest import quiet
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.linked_numbers import check_linked_numbers
from tests.pages.people import Organization
from tests.pages.sample_data import fill
from tests.query.test_overview_numbers import list_numbers

__all__ = ["quiet"]


def test_every_number_of_a_tool_equals_its_search(
    quiet: InboxScenario, organization: Organization
) -> None:
    fill(quiet.agent)
    page = organization.client("viewer").get("/tools/").text
    numbers = check_linked_numbers(page, quiet.project)
    by_end = {query.split()[0]: number for query, number in numbers.items() if "state" not in query}
    assert by_end["tool:deploy.run"] == 3
    assert any(query.endswith(" state:unknown") for query in numbers)
    assert any(query.endswith(f" {ENDED_IN_ERROR}") for query in numbers)


def test_an_error_is_no_success(quiet: InboxScenario, organization: Organization) -> None:
    """It happened and ended with an error: failed on every page that counts."""
    agent = quiet.agent
    agent.session("errors")
    for number, outcome in enumerate(("ok", "error", "error")):
        planned = agent.plan(f"{number}", "errors", tool="test.run", arguments={"n": number})
        agent.dispatch(planned)
        agent.acknowledge(planned, outcome=outcome)
    (figures,) = load_tool_figures(quiet.project, build_period(now_us()))
    assert (figures.succeeded, figures.failed, figures.unknown) == (1, 2, 0)
    client = organization.client("viewer")
    failed = f"tool:test.run {build_period(now_us()).text} {ENDED_IN_ERROR}"
    assert check_linked_numbers(client.get("/tools/").text, quiet.project)[failed] == 2
    page = client.get(reverse("agent", args=[organization.agent.pk])).text
    assert check_linked_numbers(page, quiet.project)[f"agent:deploy-7 {failed}"] == 2
    assert "2 of 3" in " ".join(re.sub(r"<[^>]+>", " ", page).split())
    board = client.get("/?view=table").text
    by_condition = dict(list_numbers(board))
    failed_today = next(query for query in by_condition if query.startswith(ENDED_IN_ERROR))
    assert by_condition[failed_today] == 2
    assert execute.count_matches(execute.compile_query(failed_today, quiet.project, now_us())) == (
        2,
        False,
    )


def test_a_call_without_an_outcome_lowers_no_share_of_success(
    quiet: InboxScenario, organization: Organization
) -> None:
    agent, client = quiet.agent, organization.client("viewer")
    agent.session("shares")
    first = agent.plan("first", "shares", tool="note.write", arguments={"n": 1})
    assert "no answer yet" in client.get("/tools/").text
    agent.dispatch(first)
    agent.acknowledge(first)
    agent.plan("second", "shares", tool="note.write", arguments={"n": 2})
    (figures,) = load_tool_figures(quiet.project, build_period(now_us()))
    assert (figures.calls, figures.answered, figures.succeeded) == (2, 1, 1)
    page = client.get("/tools/").text
    assert "100" in page.partition('data-label="Succeeded"')[2].partition("</td>")[0]
