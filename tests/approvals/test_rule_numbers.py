"""The policy page: what each rule did, each number with its search."""

from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.linked_numbers import check_linked_numbers


def test_every_number_of_a_rule_equals_its_search(inbox: InboxScenario) -> None:
    for number, answer in enumerate(("approve", "deny", "request_changes", "")):
        gate = inbox.gate(inbox.plan(f"e-{number}", tool="git.push", arguments=[number]))
        if answer:
            inbox.answer(gate, "rita", answer)
    inbox.plan("read", tool="file.read", arguments=["a"])
    page = inbox.organization.client("viewer").get("/approvals/policies/").text
    numbers = check_linked_numbers(page, inbox.project)
    ends = {query.split()[-1]: number for query, number in numbers.items()}
    assert (ends["ruling:denied"], ends["ruling:changes_requested"], ends["status:pending"]) == (
        1,
        1,
        1,
    )
    assert any(query.startswith('rule:["basic@1/push"]') for query in numbers)
    row = page.partition("Last denial</th>")[2]
    assert "datetime=" in row.partition('data-label="Last denial"')[2].partition("</td>")[0]
