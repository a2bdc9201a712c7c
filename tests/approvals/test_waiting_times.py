"""How long requests waited: each bar equals its search, median and p95 are nearest ranks."""

import time_machine

from approvals.waiting_times import find_bar, find_quantile
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.linked_numbers import check_linked_numbers

US = 1_000_000


def test_each_bar_of_the_decided_list_links_to_its_requests(inbox: InboxScenario) -> None:
    gates = [
        inbox.gate(inbox.plan(f"e-{number}", tool="git.push", arguments=[number]))
        for number in range(4)
    ]
    for gate, waited_s in zip(gates, (1, 3, 100, 700), strict=True):
        with time_machine.travel(gate.requested_at_us / US + waited_s, tick=False):
            inbox.answer(gate, "rita")
    client = inbox.organization.client("viewer")
    numbers = check_linked_numbers(client.get("/approvals/?state=decided").text, inbox.project)
    assert sorted(numbers.values(), reverse=True)[:5] == [4, 1, 1, 1, 1]
    of_tool = client.get("/approvals/?state=decided&tool=git.push").text
    assert check_linked_numbers(of_tool, inbox.project)
    other = client.get("/approvals/?state=decided&rule=deploy").text
    assert "No request was decided" in other


def test_a_wait_on_a_limit_belongs_to_the_longer_bar_and_quantiles_are_nearest_ranks() -> None:
    assert [find_bar(s * US) for s in (0, 1, 2, 14, 15, 90_000)] == [0, 0, 1, 2, 3, 9]
    waits = list(range(1, 21))
    assert (find_quantile(waits, 50), find_quantile(waits, 95), find_quantile([], 50)) == (
        10,
        19,
        None,
    )
