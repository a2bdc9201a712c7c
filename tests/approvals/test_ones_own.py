"""Where people may approve what is their own, those whom the rule keeps away all the same may not."""

from collections.abc import Callable

import pytest
from django.db import DatabaseError, IntegrityError, transaction

from accounts.models import Agent
from approvals.models import Gate, Vote
from approvals.voting import quorum
from db.clock import now_us
from sessions.models import Session
from tests.approvals.inbox_scenario import Desk
from tests.approvals.reviewer import Reviewer, url_of

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


def becomes(desk: Desk, name: str, party: str) -> None:
    """Let a person be the one party alone, as of now."""
    user = desk.user(name)
    Session.objects.update(
        on_behalf_of=user if party == "requester" else None,
        owner=user if party == "session_owner" else None,
    )
    Agent.objects.filter(name="deploy-7").update(owner=user if party == "agent_owner" else None)


@pytest.fixture
def asked(desk: Desk) -> Callable[..., Gate]:
    """Asks for a note under a rule that keeps away whom it names, in a session where `name` is one
    party."""

    def ask(named: tuple[str, ...] | None, party: str, minimum: int = 1) -> Gate:
        more = "" if named is None else f", distinct_from: [{', '.join(named)}]"
        desk.rules(OWN.format(more=f"{more}, minimum: {minimum}"))
        desk.declare("note.write", "reversible")
        desk.agent.session("s-1")
        if party:
            becomes(desk, "reviewer", party)
        return desk.gate(desk.agent.plan(tool="note.write"))

    return ask


@pytest.mark.parametrize("party", PARTIES)
@pytest.mark.parametrize("named", [None, (), *((one,) for one in PARTIES), PARTIES])
def test_a_rule_that_lets_people_approve_their_own_keeps_away_whom_it_names(
    desk: Desk, asked: Callable[..., Gate], named: tuple[str, ...] | None, party: str
) -> None:
    gate = asked(named, party)
    assert gate.self_approval
    refusal = desk.answer(gate, "reviewer").refusal
    if named is None or party not in named:
        assert refusal is None
        assert desk.gate({"id": str(gate.effect_id)}).status == "approved"
        return
    assert refusal is not None
    assert refusal[0] == "self_approval"
    assert desk.answer(gate, "administrator").refusal is None


def by_hand(desk: Desk, gate: Gate, name: str, *, own: bool = False) -> None:
    now = now_us()
    with transaction.atomic():
        Vote.objects.create(
            project=desk.project,
            gate=gate,
            user=desk.user(name),
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


@pytest.mark.parametrize("party", PARTIES)
def test_the_database_keeps_away_whom_the_rule_names(
    desk: Desk, asked: Callable[..., Gate], party: str
) -> None:
    gate = asked((party,), party)
    with pytest.raises((DatabaseError, IntegrityError), match="approver_is_not_a_party"):
        by_hand(desk, gate, "reviewer", own=True)
    by_hand(desk, gate, "administrator")


@pytest.mark.parametrize("party", PARTIES)
def test_a_yes_to_ones_own_says_so_and_no_other_does(
    desk: Desk, asked: Callable[..., Gate], party: str
) -> None:
    gate = asked(None, party)
    for name, own in (("reviewer", False), ("administrator", True)):
        with pytest.raises(
            (DatabaseError, IntegrityError), match="approval_of_own_request_is_marked"
        ):
            by_hand(desk, gate, name, own=own)
    by_hand(desk, gate, "administrator")
    assert desk.answer(gate, "reviewer").refusal is None
    assert [vote.own for vote in Vote.objects.order_by("voted_at_us")] == [False, True]


@pytest.mark.parametrize("party", PARTIES)
def test_who_comes_to_be_named_no_longer_counts(
    desk: Desk, asked: Callable[..., Gate], party: str
) -> None:
    """The yes was given while nobody was a party; it counts for as long as that is so, or the rule
    does not mind."""
    gate = asked((party,), "", minimum=2)
    assert desk.answer(gate, "reviewer").refusal is None
    for now, fault in ((party, "part_in_it"), *((one, "") for one in PARTIES if one != party)):
        becomes(desk, "reviewer", now)
        assert [one.fault for one in quorum.load_approvals([gate.id])[gate.id]] == [fault]
    becomes(desk, "administrator", party)
    assert desk.answer(gate, "administrator").refusal is not None


@pytest.mark.parametrize("named", ["session_owner", "agent_owner"])
def test_the_page_names_those_whom_the_rule_keeps_away(
    desk: Desk, asked: Callable[..., Gate], named: str
) -> None:
    page = Reviewer(desk, "administrator").page(url_of(asked((named,), "session_owner")))
    assert ("(not reviewer" in page) == (named == "session_owner")
