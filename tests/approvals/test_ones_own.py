"""Where a rule lets people approve their own requests, the parties that it excludes still may
not."""

from collections.abc import Callable

import pytest
from django.db import DatabaseError, IntegrityError, transaction

from accounts.models import Agent
from approvals.models import Gate, Vote
from approvals.voting import quorum
from db.clock import now_us
from sessions.models import Session
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from tests.rows_with_entries import add_row, change_agents

pytestmark = pytest.mark.django_db
OWN = """
name: own
rules:
  - id: notes
    title: Notes
    match: {{tools: [note.write], risk_at_most: low}}
    outcome: require
    require: {{self_approval: true{more}}}
"""
PARTIES = ("requester", "session_owner", "agent_owner")


def becomes(inbox: InboxScenario, name: str, party: str) -> None:
    """Make a person one party and no other, as of now."""
    user = inbox.user(name)
    Session.objects.update(
        on_behalf_of=user if party == "requester" else None,
        owner=user if party == "session_owner" else None,
    )
    change_agents(
        Agent.objects.filter(name="deploy-7"), owner=user if party == "agent_owner" else None
    )


@pytest.fixture
def request_note(inbox: InboxScenario) -> Callable[..., Gate]:
    """Return a function that requests a note under a rule that excludes the named parties."""

    def ask(named: tuple[str, ...] | None, party: str, minimum: int = 1) -> Gate:
        more = "" if named is None else f", distinct_from: [{', '.join(named)}]"
        inbox.rules(OWN.format(more=f"{more}, minimum: {minimum}"))
        inbox.declare("note.write", "reversible")
        inbox.agent.session("s-1")
        if party:
            becomes(inbox, "reviewer", party)
        return inbox.gate(inbox.agent.plan(tool="note.write"))

    return ask


@pytest.mark.parametrize("party", PARTIES)
@pytest.mark.parametrize("named", [None, (), *((party,) for party in PARTIES), PARTIES])
def test_a_self_approval_rule_excludes_the_named_parties(
    inbox: InboxScenario,
    request_note: Callable[..., Gate],
    named: tuple[str, ...] | None,
    party: str,
) -> None:
    gate = request_note(named, party)
    assert gate.self_approval
    refusal = inbox.answer(gate, "reviewer").refusal
    if named is None or party not in named:
        assert refusal is None
        assert inbox.gate({"id": str(gate.effect_id)}).status == "approved"
        return
    assert refusal is not None
    assert refusal[0] == "self_approval"
    assert inbox.answer(gate, "administrator").refusal is None


def by_hand(inbox: InboxScenario, gate: Gate, name: str, *, own: bool = False) -> None:
    now = now_us()
    with transaction.atomic():
        add_row(
            Vote(
                project=inbox.project,
                gate=gate,
                user=inbox.user(name),
                actor="p_x",
                answer="approve",
                card_sha256="c" * 64,
                shown_version=1,
                shown_digest=gate.digest,
                shown_at_us=now,
                view_complete=True,
                position=1,
                voted_at_us=now,
                own=own,
            )
        )


@pytest.mark.parametrize("party", PARTIES)
def test_the_database_excludes_the_named_parties(
    inbox: InboxScenario, request_note: Callable[..., Gate], party: str
) -> None:
    gate = request_note((party,), party)
    with pytest.raises((DatabaseError, IntegrityError), match="approver_is_not_a_party"):
        by_hand(inbox, gate, "reviewer", own=True)
    by_hand(inbox, gate, "administrator")


@pytest.mark.parametrize("party", PARTIES)
def test_only_an_approval_of_an_own_request_is_marked(
    inbox: InboxScenario, request_note: Callable[..., Gate], party: str
) -> None:
    gate = request_note(None, party)
    for name, own in (("reviewer", False), ("administrator", True)):
        with pytest.raises(
            (DatabaseError, IntegrityError), match="approval_of_own_request_is_marked"
        ):
            by_hand(inbox, gate, name, own=own)
    by_hand(inbox, gate, "administrator")
    assert inbox.answer(gate, "reviewer").refusal is None
    assert [vote.own for vote in Vote.objects.order_by("voted_at_us")] == [False, True]


@pytest.mark.parametrize("party", PARTIES)
def test_an_approver_who_becomes_a_named_party_does_not_count(
    inbox: InboxScenario, request_note: Callable[..., Gate], party: str
) -> None:
    """The vote yes came while no approver was a party; it counts while that holds, or the rule
    permits it."""
    gate = request_note((party,), "", minimum=2)
    assert inbox.answer(gate, "reviewer").refusal is None
    for now, fault in (
        (party, "part_in_it"),
        *((party_name, "") for party_name in PARTIES if party_name != party),
    ):
        becomes(inbox, "reviewer", now)
        assert [party_name.fault for party_name in quorum.load_approvals([gate.id])[gate.id]] == [
            fault
        ]
    becomes(inbox, "administrator", party)
    assert inbox.answer(gate, "administrator").refusal is not None


@pytest.mark.parametrize("named", ["session_owner", "agent_owner"])
def test_the_page_names_the_excluded_parties(
    inbox: InboxScenario, request_note: Callable[..., Gate], named: str
) -> None:
    page = Reviewer(inbox, "administrator").page(url_of(request_note((named,), "session_owner")))
    assert ("(not reviewer" in page) == (named == "session_owner")
