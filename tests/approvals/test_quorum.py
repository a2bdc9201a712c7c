"""Which approvals count: of people who may rule when the quorum is counted, and when permission is
used."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import F

from accounts import people, teams
from accounts.models import Agent, Team
from approvals.gates.statuses import US
from approvals.labels import UNCOUNTED_LABELS
from approvals.models import Gate, Vote
from approvals.voting import quorum, votes
from db.clock import now_us
from journal.models import Entry
from sessions.models import Session
from tests.api.api_client import code
from tests.approvals.inbox_scenario import RULES, InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from tests.matrices import keep_core
from tests.rows_with_entries import add_row, change_agents, change_gates

pytestmark = pytest.mark.django_db
LEADS = RULES.replace("require: {minimum: 2,", "require: {minimum: 2, teams: [leads],")
NAMED = RULES.replace("require: {minimum: 2,", "require: {minimum: 2, people: [ann, ben, cid],")


def demoted(inbox: InboxScenario, name: str) -> None:
    people.change_project_role(inbox.person(name), "viewer", actor="tests")


def removed(inbox: InboxScenario, name: str) -> None:
    people.remove_project_member(inbox.person(name), actor="tests")


def deactivated(inbox: InboxScenario, name: str) -> None:
    people.close_account(name)


def owner_now(inbox: InboxScenario, name: str) -> None:
    Session.objects.update(owner=inbox.user(name))


def owner_of_the_agent_now(inbox: InboxScenario, name: str) -> None:
    change_agents(Agent.objects.filter(name="deploy-7"), owner=inbox.user(name))


def requester_now(inbox: InboxScenario, name: str) -> None:
    Session.objects.update(on_behalf_of=inbox.user(name))


def out_of_the_team(inbox: InboxScenario, name: str) -> None:
    teams.remove_team_member(Team.objects.get(), inbox.person(name), actor="tests")


def without_a_team(inbox: InboxScenario, _name: str) -> None:
    teams.delete_team(Team.objects.get(), actor="tests")


LEAVING: dict[str, tuple[str, Callable[[InboxScenario, str], None], str]] = {
    "demoted": (RULES, demoted, "no_reviewer"),
    "removed": (RULES, removed, "no_reviewer"),
    "deactivated": (RULES, deactivated, "no_reviewer"),
    "owner of the session": (RULES, owner_now, "part_in_it"),
    "owner of the agent": (RULES, owner_of_the_agent_now, "part_in_it"),
    "on whose behalf": (RULES, requester_now, "part_in_it"),
    "out of the team": (LEADS, out_of_the_team, "not_asked"),
    "the team is gone": (LEADS, without_a_team, "not_asked"),
    "removed from the team and the project": (LEADS, removed, "no_reviewer"),
    "one of the named, removed": (NAMED, removed, "no_reviewer"),
}


@pytest.fixture
def team(inbox: InboxScenario) -> Team:
    """Three reviewers: ann, ben and cid, all members of the team leads."""
    team = teams.create_team(inbox.project, "leads")
    for name in ("ann", "ben", "cid"):
        teams.add_team_member(team, inbox.person(name))
    return team


def dispatch(inbox: InboxScenario, effect: dict[str, Any]) -> Any:
    return inbox.agent.post(
        f"/effects/{effect['id']}/dispatch",
        {"process": "p-1", "intent_digest": effect["intent_digest"]},
    )


def request_deployment(inbox: InboxScenario, rules: str = RULES) -> tuple[dict[str, Any], Gate]:
    """A deployment that needs two approvals."""
    if rules != RULES:
        inbox.rules(rules)
    planned = inbox.plan(tool="deploy")
    return planned, inbox.gate(planned)


def approve_by_page(inbox: InboxScenario, gate: Gate, name: str) -> str:
    """Approve as a person through their page; return the gate's status afterwards."""
    client = Reviewer(inbox, name)
    assert client.answer(gate).status_code == 302
    return Gate.objects.get(id=gate.id).status


@pytest.mark.once  # both databases' counts are compared below
@pytest.mark.parametrize(
    "how",
    keep_core(
        LEAVING,
        ["demoted", "owner of the agent", "out of the team", "one of the named, removed"],
    ),
)
def test_a_voter_who_may_no_longer_rule_does_not_count(
    inbox: InboxScenario, team: Team, how: str
) -> None:
    rules, permission, fault = LEAVING[how]
    _, gate = request_deployment(inbox, rules)
    inbox.person("dot", "administrator")
    inbox.answer(gate, "ann")
    permission(inbox, "ann")
    if how == "the team is gone":
        again = teams.create_team(inbox.project, "leads")
        for name in ("ben", "cid"):
            teams.add_team_member(again, inbox.person(name))
    assert approve_by_page(inbox, gate, "ben") == "pending"
    html = Reviewer(inbox, "dot").page(url_of(gate))
    assert f"no longer counts: {words(fault)}" in html
    assert "1 of 2" in html
    assert approve_by_page(inbox, gate, "cid") == "approved"
    first = Vote.objects.get(gate=gate, user__username="ann")  # it is shown, and never deleted
    ruled = Entry.objects.get(kind="gate.ruled", subject=gate.id).facts
    assert f'"uncounted":{{"{first.id.hex}":"{fault}"}}' in ruled


def words(fault: str) -> str:
    return UNCOUNTED_LABELS[fault]


def test_a_voter_who_comes_back_counts_again(inbox: InboxScenario, team: Team) -> None:
    _, gate = request_deployment(inbox)
    approve_by_page(inbox, gate, "ann")
    demoted(inbox, "ann")
    people.change_project_role(inbox.person("ann"), "operator", actor="tests")
    assert approve_by_page(inbox, gate, "ben") == "approved"


def test_a_denial_counts_whoever_gave_it(inbox: InboxScenario, team: Team) -> None:
    inbox.rules(RULES.replace("require: {minimum: 2,", "require: {minimum: 2, deny_threshold: 2,"))
    _, gate = request_deployment(inbox)
    inbox.answer(gate, "ann", "deny", "not on a Friday")
    removed(inbox, "ann")
    inbox.answer(gate, "ben", "deny", "not on a Friday")
    assert Gate.objects.get(id=gate.id).status == "denied"


@pytest.mark.once  # both databases' counts are compared below
@pytest.mark.parametrize(
    "how",
    keep_core(
        [how for how in LEAVING if how != "on whose behalf"],  # which the digest binds
        ["removed", "owner of the session", "the team is gone", "deactivated"],
    ),
)
def test_permission_whose_quorum_no_longer_counts_is_not_used(
    inbox: InboxScenario, team: Team, how: str
) -> None:
    rules, permission, fault = LEAVING[how]
    planned, gate = request_deployment(inbox, rules)
    for name in ("ann", "ben"):
        inbox.answer(gate, name)
    permission(inbox, "ann")
    assert "Not enough of these votes still count" in Reviewer(inbox, "administrator").page(
        url_of(gate)
    )
    refused = dispatch(inbox, planned)
    assert (code(refused), refused.json()["reason"]) == ((409, "GATE_GONE"), "quorum_lost")
    stored, effect = Gate.objects.get(id=gate.id), inbox.effect(planned)
    assert (stored.status, stored.reason, effect.permission, effect.permission_basis) == (
        "revoked",
        "quorum_lost",
        "none",
        "revoked",
    )
    assert f'"{fault}"' in Entry.objects.get(kind="gate.revoked", subject=gate.id).facts
    assert f"did not count: {words(fault)}" in Reviewer(inbox, "administrator").page(url_of(gate))
    assert inbox.agent.get(f"/gates/{gate.id}").json()["reason"] == "quorum_lost"
    again = inbox.plan(tool="deploy")
    assert (again["answer"], again["gate"]["id"] != planned["gate"]["id"]) == ("wait", True)


def test_permission_that_more_people_gave_than_were_needed_outlives_one_of_them(
    inbox: InboxScenario, team: Team
) -> None:
    """One approval did not count when two others were enough; whether it counts later changes
    nothing."""
    planned, gate = request_deployment(inbox)
    approve_by_page(inbox, gate, "ann")
    demoted(inbox, "ann")
    for name in ("ben", "cid"):
        approve_by_page(inbox, gate, name)
    people.change_project_role(inbox.person("ann"), "reviewer", actor="tests")
    demoted(inbox, "ben")
    assert dispatch(inbox, planned).status_code == 200
    assert "did not count: no longer a reviewer of this project" in Reviewer(inbox, "cid").page(
        url_of(gate)
    )


def test_a_used_permission_is_not_shown_as_uncounted_afterwards(
    inbox: InboxScenario, team: Team
) -> None:
    planned, gate = request_deployment(inbox)
    for name in ("ann", "ben"):
        approve_by_page(inbox, gate, name)
    assert dispatch(inbox, planned).status_code == 200
    removed(inbox, "ann")
    page = Reviewer(inbox, "administrator").page(url_of(gate))
    assert "count:" not in page
    assert "2 of 2" in page


def test_a_person_who_left_cannot_answer_from_an_open_page(
    inbox: InboxScenario, team: Team
) -> None:
    """The view read the membership before; the service reads it again."""
    _, gate = request_deployment(inbox)
    membership = inbox.person("ann")
    seen = inbox.shown(gate)
    removed(inbox, "ann")
    with transaction.atomic():
        outcome = votes.cast_vote(gate, membership, "approve", "agreed in INC-204", seen)
    assert outcome.refusal is not None
    assert outcome.refusal[0] == "not_eligible"
    assert not Vote.objects.exists()


def test_the_inbox_counts_only_valid_approvals(inbox: InboxScenario, team: Team) -> None:
    _, gate = request_deployment(inbox)
    approve_by_page(inbox, gate, "ann")
    client = Reviewer(inbox, "cid")
    assert quorum.load_approvals([gate.id])[gate.id][0].fault == ""
    assert "1 of 2 approvals" in client.page("/approvals/")
    demoted(inbox, "ann")
    assert "0 of 2 approvals" in client.page("/approvals/")


# --- straight to the database -----------------------------------------------------------------------------------------


def refused(name: str, write: Callable[[], Any]) -> None:
    with pytest.raises((IntegrityError, DatabaseError), match=name), transaction.atomic():
        write()


def vote(inbox: InboxScenario, gate: Gate, person: str, **values: Any) -> Callable[[], Any]:
    now = now_us()
    fields = {
        "project": inbox.project,
        "gate": gate,
        "user": inbox.user(person),
        "actor": "p_x",
        "answer": "approve",
        "card_sha256": "c" * 64,
        "shown_version": 1,
        "shown_digest": gate.digest,
        "shown_at_us": now,
        "view_complete": True,
        "position": 1,
        "voted_at_us": now,
    }
    return lambda: add_row(Vote(**{**fields, **values}))


def approve(gate: Gate) -> Callable[[], Any]:
    now = gate.requested_at_us + 1
    values = {
        "status": "approved",
        "decided_at_us": now,
        "permission_until_us": now + gate.valid_for_s * US,
    }
    return lambda: change_gates(Gate.objects.filter(id=gate.id), **values)


@pytest.mark.parametrize("how", LEAVING)
def test_the_database_counts_as_the_code_does(inbox: InboxScenario, team: Team, how: str) -> None:
    rules, permission, fault = LEAVING[how]
    _, gate = request_deployment(inbox, rules)
    vote(inbox, gate, "ann")()
    vote(inbox, gate, "ben")()
    user = inbox.user("ann")
    permission(inbox, "ann")
    faults = {
        approval.user: approval.fault for approval in quorum.load_approvals([gate.id])[gate.id]
    }
    assert faults[user.pk] == fault
    refused("gate_is_approved_by_its_quorum", approve(gate))
    if how == "the team is gone":
        return
    vote(inbox, gate, "cid")()
    assert approve(gate)() == 1


def test_the_database_refuses_approvals_of_ineligible_people(
    inbox: InboxScenario, team: Team
) -> None:
    _, gate = request_deployment(inbox, LEADS)
    constraint = "approver_is_eligible"
    for name in ("viewer", "reviewer", "administrator", "neighbour"):
        refused(constraint, vote(inbox, gate, name))
    deactivated(inbox, "ann")
    refused(constraint, vote(inbox, gate, "ann"))
    vote(inbox, gate, "ben")()
    vote(inbox, gate, "reviewer", answer="deny")()


def test_a_team_of_another_project_is_another_team(inbox: InboxScenario, team: Team) -> None:
    _, gate = request_deployment(inbox, LEADS)
    with transaction.atomic():
        also = people.add_project_member(inbox.organization.other, "reviewer", "reviewer")
        teams.add_team_member(teams.create_team(inbox.organization.other, "leads"), also)
    refused("approver_is_eligible", vote(inbox, gate, "reviewer"))


def test_the_database_refuses_an_approval_of_a_new_owner(inbox: InboxScenario, team: Team) -> None:
    _, gate = request_deployment(inbox)
    owner_now(inbox, "ann")
    refused("approver_is_not_a_party", vote(inbox, gate, "ann"))


def test_an_approval_is_not_moved_about(inbox: InboxScenario, team: Team) -> None:
    """An update cannot turn an approval into a second approval of the same gate, or lend its
    votes."""
    _, gate = request_deployment(inbox)
    vote(inbox, gate, "ann")()
    other = inbox.gate(inbox.plan("e-2", tool="deploy", arguments={"ref": "topic"}))
    vote(inbox, other, "ben")()
    refused("gate_is_approved_by_its_quorum", approve(gate))
    refused("vote_never_changes", lambda: Vote.objects.filter(gate=other).update(gate=gate))
    one_less = Gate.objects.filter(id=gate.id)
    refused("gate_terms_never_change", lambda: one_less.update(minimum=F("minimum") - 1))


def test_a_person_who_leaves_before_the_ruling_causes_a_recount(
    inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schema refuses a count that was a moment too early; the person who answered never
    notices."""
    gate = inbox.gate(inbox.plan("e1", tool="deploy"))
    assert inbox.answer(gate, "ann").refusal is None
    original_load = quorum.load_approvals
    counted: list[int] = []

    def early(gates: Any) -> Any:
        counted.append(len(counted))
        if len(counted) > 1:
            demoted(inbox, "ann")  # again: the transaction of the first count was rolled back
            return original_load(gates)
        approvals = original_load(gates)
        demoted(inbox, "ann")
        return approvals

    rita = Reviewer(inbox)
    seen = rita.seen(gate)
    monkeypatch.setattr(quorum, "load_approvals", early)
    assert rita.answer(gate, seen=seen).status_code == 302
    gate.refresh_from_db()
    assert (gate.status, Vote.objects.filter(gate=gate).count(), len(counted)) == ("pending", 2, 2)
