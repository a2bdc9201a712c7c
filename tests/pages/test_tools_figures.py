"""The tools page: each number of a tool equals its search."""

from db.clock import now_us
from db.whole_days import build_period
from pages.tools.tool_figures import load_tool_figures
from tests.approvals.conftest import quiet
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.linked_numbers import check_linked_numbers
from tests.pages.people import Organization
from tests.pages.sample_data import fill

__all__ = ["quiet"]


def test_every_number_of_a_tool_equals_its_search(
    quiet: InboxScenario, organization: Organization
) -> None:
    fill(quiet.agent)
    page = organization.client("viewer").get("/tools/").text
    numbers = check_linked_numbers(page, quiet.project)
    by_end = {query.split()[0]: number for query, number in numbers.items() if "state" not in query}
    assert by_end["tool:deploy.run"] == 3
    states = [query.split()[-1] for query in numbers if "state:" in query]
    assert {"state:failed", "state:unknown"} <= set(states)


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
