"""The page of a reviewer: answers with their speed, sittings, and who may read it."""

from types import SimpleNamespace
from typing import Any

import time_machine
from django.urls import reverse

from pages.people.reviewer_answers import PAUSE_US, measure_speed, split_sittings
from tests.approvals.conftest import inbox, quiet
from tests.approvals.inbox_scenario import InboxScenario

__all__ = ["inbox", "quiet"]
S = 1_000_000


def make_vote(shown_us: int, took_us: int) -> Any:
    return SimpleNamespace(shown_at_us=shown_us, voted_at_us=shown_us + took_us)


def test_a_sitting_ends_with_a_pause_and_is_measured_for_itself() -> None:
    fast = [make_vote(n * 10 * S, S) for n in range(5)]
    later = [make_vote(PAUSE_US + (100 + n * 60) * S, 20 * S) for n in range(3)]
    sittings = split_sittings([*later[::-1], *fast[::-1]])
    assert [len(sitting.answers) for sitting in sittings] == [3, 5]
    speed = sittings[1].speed
    assert (speed.median_us, speed.quick, speed.longest_pause_us) == (S, 5, 10 * S)
    assert measure_speed([]).median_us is None


def test_a_person_operators_and_administrators_read_answers_that_link_to_requests(
    inbox: InboxScenario,
) -> None:
    gate = inbox.gate(inbox.plan(tool="git.push", arguments=["a"]))
    shown = inbox.shown(gate)
    with time_machine.travel(shown.at_us / S + 1, tick=False):
        inbox.answer(gate, "reviewer", "deny", shown=shown)
    path = reverse("reviewer", args=[inbox.user("reviewer").pk])
    readers = {
        role: inbox.organization.client(role).get(path)
        for role in ("viewer", "reviewer", "operator", "administrator")
    }
    statuses = {role: answer.status_code for role, answer in readers.items()}
    assert statuses == {"viewer": 404, "reviewer": 200, "operator": 200, "administrator": 200}
    page = readers["operator"].text
    assert reverse("gate", args=[gate.id]) in page
    assert "In this period of work" in page
    for url in (
        reverse("gate", args=[gate.id]),
        reverse("gate_people", args=[gate.id]),
        reverse("session_people", args=[gate.session_id]),
    ):
        pages = {role: inbox.organization.client(role).get(url).text for role in readers}
        linked = {role: f'href="{path}"' in page for role, page in pages.items()}
        assert linked == {role: status == 200 for role, status in statuses.items()}, url
    neighbour = inbox.organization.neighbour.user.pk
    assert (
        inbox.organization.client("administrator").get(f"/people/{neighbour}/").status_code == 404
    )
