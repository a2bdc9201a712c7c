"""The list of requests that a search finds: what was asked, of what, and when it was decided."""

from tests.approvals.conftest import inbox, quiet
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.people import Organization

__all__ = ["inbox", "quiet"]


def test_a_found_request_shows_its_target_arguments_and_decision(
    inbox: InboxScenario, organization: Organization
) -> None:
    target = {"repository": "web", "ref": "topic"}
    gate = inbox.gate(inbox.plan(tool="git.push", arguments={"note": "rounding"}, target=target))
    inbox.answer(gate, "rita")
    gate.refresh_from_db()
    page = organization.client("viewer").get("/search/?q=gate+tool:git.push").text
    row = page.partition(f'id="{gate}"')[2].partition("</tr>")[0]
    decided = row.partition('data-label="Requested, decided"')[2].partition("</td>")[0]
    assert "rounding" in row.partition('data-label="Arguments, target"')[2].partition("</td>")[0]
    assert "web" in row.partition('data-label="Arguments, target"')[2].partition("</td>")[0]
    assert "datetime=" in decided
