"""A request that entries grant without the votes that it asks for is named."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction

from accounts.models import Membership
from approvals.gates import gates
from approvals.models import Gate
from approvals.voting import votes
from approvals.voting.votes import VoteDecision
from db import triggers
from db.clock import now_us
from ledger import permissions
from ledger.permissions import Grant
from rebuild.registry import list_row_checks
from sessions.models import Session
from tests.approvals.inbox_scenario import InboxScenario
from tests.rebuild.test_forged_rows import forge, run
from tests.rebuild.test_rebuilt_stories import list_differences
from tests.rows_with_entries import change_roles

pytestmark = pytest.mark.django_db


@contextmanager
def without_triggers() -> Iterator[None]:
    """Act as the owner of the database, who removed what it refuses."""
    tables = [check.table for check in list_row_checks()]
    with transaction.atomic(), triggers.suspend_triggers(connection, tables):
        yield


def name_unfounded() -> list[str]:
    """The keys of the requests that the check names; it names nothing else."""
    named = list_differences()
    assert {row["difference"] for row in named} <= {"unfounded"}, named
    return [row["key"]["id"] for row in named]


def test_a_minimum_lowered_for_a_moment_is_named(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan(tool="deploy"))
    assert gate.minimum == 2
    forge(("UPDATE approvals_gate SET minimum = 1",))
    gate.refresh_from_db()
    assert inbox.answer(gate, "reviewer").refusal is None
    forge(("UPDATE approvals_gate SET minimum = 2",))
    gate.refresh_from_db()
    assert (gate.status, gate.minimum) == ("approved", 2)
    assert name_unfounded() == [str(gate.id)]
    code, text = run()
    assert (code, "unfounded: approvals_gate" in text) == (1, True), text


def test_a_grant_without_a_vote_is_named(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan())
    with without_triggers():
        row, locked, at_us = gates.lock_gate(gate)
        gates.approve_gate(row, locked, at_us, 0)
    assert {row["difference"] for row in list_differences()} == {"unfounded", "changed"}
    # The application's role writes the ruling, too: then the rows follow from the entries.
    ruled = inbox.gate(inbox.plan("e-2", arguments={"command": "git push origin two"}))
    with without_triggers():
        votes._record_vote_entry(
            ruled, "gate.ruled", inbox.user("reviewer"), {"ruling": "approved", "votes": 1}, {}
        )
        row, locked, at_us = gates.lock_gate(ruled)
        gates.approve_gate(row, locked, at_us, 0)
    named = [row["key"]["id"] for row in list_differences() if row["difference"] == "unfounded"]
    assert sorted(named) == sorted(map(str, (gate.id, ruled.id)))


def test_a_permission_by_a_ruling_without_votes_is_named(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan())
    with without_triggers():
        row = gates.lock_gate(gate).row
        permissions.change_permission(row, Grant("granted", "ruling", gate.id.hex), now_us())
    assert name_unfounded() == [str(gate.id)]


def test_what_ran_past_a_request_that_was_cancelled_is_no_grant(inbox: InboxScenario) -> None:
    first = inbox.plan()
    inbox.answer(inbox.gate(first), "reviewer")
    inbox.agent.dispatch(first)
    inbox.agent.fail(first, "rejected")
    gate = inbox.gate(inbox.plan())
    facts: tuple[dict[str, Any], ...] = (
        {"id": "late", "kind": "effect.acknowledged", "outcome": "ok"},
        {"id": "second", "kind": "effect.dispatched", "attempt": 2},
    )
    for fact in facts:
        item = {"session": "s-1", "effect_key": "e-1", **fact}
        assert inbox.agent.report([item]).status_code == 200
    gate.refresh_from_db()
    assert (gate.status, gate.reason) == ("cancelled", "happened")
    effect = inbox.effect(first)
    assert (effect.permission, effect.permission_basis) == ("bypassed", "ruling")
    assert effect.permission_ref == gate.id.hex
    assert name_unfounded() == []


def test_an_approval_by_a_party_of_the_request_is_named(
    inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = inbox.plan()
    reviewer = inbox.user("reviewer")
    inbox.agent.session("s-2", owner="reviewer")
    assert Session.objects.get(key="s-2").owner == reviewer
    gate = inbox.gate(inbox.agent.plan("own", session="s-2"))
    decision = VoteDecision(ruling="approved", votes=1)
    monkeypatch.setattr(votes, "decide_vote", lambda _context, _ballot: decision)
    with without_triggers():
        inbox.answer(gate, "reviewer")
        inbox.answer(inbox.gate(planned), "reviewer")
    assert Gate.objects.filter(status="approved").count() == 2
    assert name_unfounded() == [str(gate.id)]


def test_votes_that_no_longer_counted_do_not_ground_a_grant(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan(tool="deploy"))
    inbox.answer(gate, "ann")
    change_roles(Membership.objects.filter(pk=inbox.person("ann").pk), "viewer")
    inbox.answer(gate, "bob")
    assert Gate.objects.get(id=gate.id).status == "pending"
    inbox.answer(gate, "cyd")
    assert Gate.objects.get(id=gate.id).status == "approved"
    assert list_differences() == []
    # The same with only two votes, one of which did not count: the minimum was lowered.
    short = inbox.gate(inbox.plan("short", tool="deploy", arguments={"command": "deploy"}))
    inbox.answer(short, "dan")
    change_roles(Membership.objects.filter(pk=inbox.person("dan").pk), "viewer")
    forge(("UPDATE approvals_gate SET minimum = 1 WHERE status = 'pending'",))
    inbox.answer(short, "bob")
    forge(("UPDATE approvals_gate SET minimum = 2",))
    assert name_unfounded() == [str(short.id)]
