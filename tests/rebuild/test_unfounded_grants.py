"""A request that entries grant without the votes that it asks for is named."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from accounts import people, teams
from accounts.models import Membership, TeamMember
from approvals import exemptions
from approvals.gates import gates
from approvals.gates.statuses import US
from approvals.models import Exemption, Gate, Vote
from approvals.voting import votes
from approvals.voting.votes import VoteDecision
from db import triggers
from db.clock import now_us
from erasure import erasure_requests
from erasure.models import ErasureRequest
from journal import erasures
from journal.models import Entry
from ledger import permissions
from ledger.models import Effect
from ledger.permissions import Grant
from rebuild import past_voters
from rebuild.registry import list_row_checks
from sessions.models import Session
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import InboxScenario
from tests.erasure.conftest import own_folder as own_folder
from tests.erasure.conftest import run_all
from tests.rebuild.test_forged_rows import forge, run
from tests.rebuild.test_rebuilt_stories import list_differences
from tests.recovery.resolver import Resolver
from tests.rows_with_entries import change_roles

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("own_folder")]


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


def name_unfounded_rows() -> set[tuple[str, str]]:
    """Return table and key of the rows that the check names; it names nothing else."""
    named = list_differences()
    assert {row["difference"] for row in named} <= {"unfounded"}, named
    return {(row["table"], row["key"]["id"]) for row in named}


def set_role(member: Membership, role: str) -> None:
    """Give a member another role as the owner of the database, without an entry."""
    with without_triggers():
        Membership.objects.filter(pk=member.pk).update(role=role)


def list_votes(gate: Gate) -> list[str]:
    """Return the ids of a request's votes in order."""
    rows = Vote.objects.filter(gate=gate).order_by("position")
    return [str(vote) for vote in rows.values_list("id", flat=True)]


def test_a_role_given_for_the_moment_of_a_vote_is_named(inbox: InboxScenario) -> None:
    vic = inbox.person("vic", "viewer")
    denied = inbox.gate(inbox.plan())
    gate = inbox.gate(inbox.plan("e-2", arguments={"command": "git push origin two"}))
    set_role(vic, "reviewer")
    assert inbox.answer(gate, "vic").refusal is None
    assert inbox.answer(denied, "vic", "deny").refusal is None
    set_role(vic, "viewer")
    assert name_unfounded_rows() == {
        ("approvals_gate", str(gate.id)),
        *(("approvals_vote", vote) for vote in (*list_votes(gate), *list_votes(denied))),
    }
    code, text = run("--check")
    assert (code, "unfounded: approvals_vote" in text) == (1, True), text


def test_a_voter_who_lost_the_role_long_before_the_grant_is_named(
    inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = inbox.gate(inbox.plan(tool="deploy"))
    inbox.answer(gate, "ann")
    ann = inbox.person("ann")
    change_roles(Membership.objects.filter(pk=ann.pk), "viewer")
    set_role(ann, "reviewer")
    inbox.answer(gate, "bob")
    set_role(ann, "viewer")
    assert Gate.objects.get(id=gate.id).status == "approved"
    # A role that is taken while others vote may still count: their transactions overlap.
    assert name_unfounded_rows() == set()
    monkeypatch.setattr(past_voters, "LATENESS_US", 0)
    assert name_unfounded_rows() == {("approvals_gate", str(gate.id))}


@pytest.mark.matrix
def test_a_team_joined_for_the_moment_of_a_vote_is_named(inbox: InboxScenario) -> None:
    inbox.rules(RULES_OF_TEAMS)
    team = teams.create_team(inbox.project, "release")
    teams.create_team(inbox.project, "other")
    ann, bob = inbox.person("ann"), inbox.person("bob")
    teams.add_team_member(team, ann)
    gates_by_voter = {
        name: inbox.gate(inbox.plan(name, arguments={"command": f"git push origin {name}"}))
        for name in ("ann", "bob", "cyd")
    }
    assert inbox.answer(gates_by_voter["ann"], "ann").refusal is None
    assert inbox.answer(gates_by_voter["cyd"], "cyd").refusal is None  # a person of the rule
    with without_triggers():
        TeamMember.objects.create(project=inbox.project, team=team, membership=bob)
        assert inbox.answer(gates_by_voter["bob"], "bob").refusal is None
        TeamMember.objects.filter(membership=bob).delete()
    forged = gates_by_voter["bob"]
    named = {("approvals_gate", str(forged.id)), ("approvals_vote", list_votes(forged)[0])}
    assert name_unfounded_rows() == named
    # What follows later changes nothing of the past: people leave, teams end, texts expire.
    with transaction.atomic():
        teams.delete_team(team, actor="gatebook")
        for person in ("ann", "cyd"):
            people.remove_project_member(inbox.person(person), actor="gatebook")
    assert name_unfounded_rows() == named
    # Where the names are erased, the person has the benefit of the doubt.
    for position in Entry.objects.filter(kind="admin.team_created").values_list("position"):
        with transaction.atomic():
            erasures.erase_body(
                inbox.project.id, position[0], reason="t-1", actor="p_1", now_us=now_us()
            )
    assert name_unfounded_rows() == named  # bob was in no team at all


def test_an_approval_by_who_resolved_an_earlier_attempt_is_named(
    inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = inbox.plan()
    inbox.answer(inbox.gate(planned), "reviewer")
    inbox.agent.dispatch(planned)
    Effect.objects.filter(id=planned["id"]).update(deadline_us=now_us() - 1)
    effect = inbox.effect(planned)
    Resolver(inbox, "administrator").resolve(effect, "not_happened", insists="1")
    again = inbox.gate(inbox.plan())
    assert again.status == "pending"
    decision = VoteDecision(ruling="approved", votes=1)
    monkeypatch.setattr(votes, "decide_vote", lambda _context, _ballot: decision)
    with without_triggers():
        inbox.answer(again, "administrator")
    assert name_unfounded_rows() == {("approvals_gate", str(again.id))}


def test_an_exemption_granted_with_a_role_of_the_moment_is_named(inbox: InboxScenario) -> None:
    vic, operator = inbox.person("vic", "viewer"), inbox.person("olga", "operator")

    def ask(user: User) -> Exemption:
        return exemptions.create_exemption(
            inbox.project,
            tool="deploy",
            reason="The release train, INC-204.",
            ends_at_us=now_us() + 3600 * US,
            user=user,
            **proved(),
        )

    genuine, forged = ask(operator.user), ask(operator.user)
    assert (genuine.minimum, forged.in_force_at_us) == (2, None)
    assert exemptions.confirm_exemption_grant(genuine, inbox.user("administrator"), **proved())
    assert name_unfounded_rows() == set()
    set_role(vic, "operator")
    assert exemptions.confirm_exemption_grant(forged, vic.user, **proved())
    set_role(vic, "viewer")
    named = list_differences()
    assert {row["difference"] for row in named} == {"unfounded"}
    assert [(row["table"], next(iter(row["key"].values()))) for row in named] == [
        (table, str(forged.id)) for table in ("approvals_exemption", "approvals_exemptionvote")
    ]
    # With a minimum that was lowered for the moment the application grants it alone.
    alone = ask(operator.user)
    with without_triggers():
        Exemption.objects.filter(pk=alone.pk).update(minimum=1)
        assert exemptions.confirm_exemption_grant(alone, inbox.user("administrator"), **proved())
        Exemption.objects.filter(pk=alone.pk).update(minimum=2)
    assert len(list_differences()) == 2


@pytest.mark.matrix
def test_an_erasure_confirmed_with_a_role_of_the_moment_is_named(inbox: InboxScenario) -> None:
    first, vic = inbox.user("administrator"), inbox.person("vic", "viewer")
    second = inbox.person("adam", "administrator")
    texts: dict[str, Any] = {"project": inbox.project, "words": ["jane@example.com"]}
    of_person = {"project": None, "person": inbox.person("vera").user}
    genuine, forged, everywhere = (
        erasure_requests.request_erasure(first, reason="ticket 88", **covered)
        for covered in (texts, texts, of_person)
    )
    run_all()  # counts the previews

    def confirm(row: ErasureRequest, user: User) -> None:
        row.refresh_from_db()
        erasure_requests.confirm_erasure(row.pk, user, erasure_requests.digest_counts(row))

    confirm(genuine, second.user)
    confirm(everywhere, second.user)
    set_role(vic, "administrator")
    confirm(forged, vic.user)
    set_role(vic, "viewer")
    assert name_unfounded_rows() == {("erasure_erasurerequest", str(forged.pk))}


def set_active(user: User, is_active: bool) -> None:
    """Close or open an account as the owner of the database, without an entry."""
    with without_triggers():
        User.objects.filter(pk=user.pk).update(is_active=is_active)


@pytest.mark.matrix
def test_decisions_with_a_closed_account_are_named(
    inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    olga, second = inbox.person("olga", "operator").user, inbox.person("adam", "administrator").user
    administrator = inbox.user("administrator")
    earlier = inbox.gate(inbox.plan())
    assert inbox.answer(earlier, "ann").refusal is None
    terms: dict[str, Any] = {
        "tool": "deploy",
        "reason": "The release train, INC-204.",
        "ends_at_us": now_us() + 3600 * US,
    }
    exemption = exemptions.create_exemption(inbox.project, user=administrator, **terms, **proved())
    requests = [
        erasure_requests.request_erasure(administrator, reason="ticket 88", **covered)
        for covered in (
            {"project": inbox.project, "words": ["jane@example.com"]},
            {"project": None, "person": inbox.person("vera").user},
        )
    ]
    run_all()  # counts the previews
    for name in ("ann", "olga", "adam"):
        people.close_account(name)
    gate = inbox.gate(inbox.plan("e-2", arguments={"command": "git push origin two"}))
    assert inbox.answer(gate, "ann").refusal is not None
    for user in (inbox.user("ann"), olga, second):
        set_active(user, is_active=True)
    assert inbox.answer(gate, "ann").refusal is None
    assert exemptions.confirm_exemption_grant(exemption, olga, **proved())
    for row in requests:
        row.refresh_from_db()
        erasure_requests.confirm_erasure(row.pk, second, erasure_requests.digest_counts(row))
    for user in (inbox.user("ann"), olga, second):
        set_active(user, is_active=False)
    # An account that is closed while its owner decides may still count: transactions overlap.
    assert list_differences() == []
    monkeypatch.setattr(past_voters, "LATENESS_US", 0)
    named = list_differences()
    assert {row["difference"] for row in named} == {"unfounded"}
    assert {(row["table"], next(iter(row["key"].values()))) for row in named} == {
        ("approvals_gate", str(gate.id)),
        ("approvals_vote", list_votes(gate)[0]),
        ("approvals_exemption", str(exemption.id)),
        ("approvals_exemptionvote", str(exemption.id)),
        *(("erasure_erasurerequest", str(row.pk)) for row in requests),
    }
    # Whose account is open again decides as before.
    for name in ("ann", "olga", "adam"):
        people.open_account(name)
    third = inbox.gate(inbox.plan("e-3", arguments={"command": "git push origin three"}))
    assert inbox.answer(third, "ann").refusal is None
    assert len(list_differences()) == len(named)


RULES_OF_TEAMS: Final = """
name: teams
rules:
  - id: push
    title: A push to a protected branch
    match: {tools: [git.push]}
    outcome: require
    require: {teams: [release], people: [cyd], minimum: 1}
"""
