"""The tools page: each number of a tool equals its search."""

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
