"""No vote or resolution counts under a password that somebody else set: by page, service and
trigger."""

from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, transaction
from django.urls import reverse

from accounts import people
from accounts.models import Person
from approvals.models import Gate, Vote
from approvals.voting import votes
from ledger import resolutions
from ledger.models import Effect
from ledger.resolutions import ResolutionInput
from tests.approvals.inbox_scenario import Desk
from tests.approvals.test_gate_triggers import vote
from tests.recovery.resolver import mail

__all__ = ["mail"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def gate(desk: Desk) -> Gate:
    return desk.gate(desk.plan())


def give_password(desk: Desk, name: str) -> None:
    """Set the password of `name` as the administrator."""
    by = desk.person("administrator").user
    with transaction.atomic():
        people.reset_member_password(desk.person(name), by, actor=people.ensure_pseudonym(by))


@pytest.mark.parametrize("answer", ["approve", "deny", "deny_session", "request_changes"])
def test_a_vote_under_a_given_password_is_refused_by_the_service(
    desk: Desk, gate: Gate, answer: str
) -> None:
    give_password(desk, "reviewer")
    outcome = desk.answer(gate, "reviewer", answer)
    assert outcome.refusal is not None
    assert outcome.refusal[0] == "own_password"
    assert not Vote.objects.exists()
    with transaction.atomic():
        people.change_own_password(desk.user("reviewer"), "orbit-lantern-slate-43")
    assert desk.answer(gate, "reviewer", answer).refusal is None


@pytest.mark.parametrize("answer", ["approve", "deny"])
def test_the_database_refuses_such_a_vote_past_all_code(
    desk: Desk, gate: Gate, answer: str
) -> None:
    write = vote(desk, gate, "reviewer", answer=answer)
    give_password(desk, "reviewer")
    with (
        pytest.raises((IntegrityError, DatabaseError), match="voter_has_own_password"),
        transaction.atomic(),
    ):
        write()
    Person.objects.filter(user=desk.user("reviewer")).update(password_is_own=True)
    write()
    assert Vote.objects.count() == 1


def test_an_administrator_is_not_a_second_reviewer_by_a_reset(desk: Desk) -> None:
    desk.rules()
    gate = desk.gate(desk.plan(tool="deploy"))
    assert gate.minimum == 2
    assert desk.answer(gate, "administrator").refusal is None
    give_password(desk, "reviewer")
    client = desk.house.client("reviewer")  # as the administrator, who saw the password
    for url in (reverse("gate", args=[gate.id]), reverse("gate_vote", args=[gate.id])):
        for method in ("get", "post"):
            answer = getattr(client, method)(url, {"answer": "approve", "settled": "1"})
            assert (answer.status_code, answer["Location"]) == (302, reverse("password"))
    assert desk.answer(gate, "reviewer").refusal is not None
    gate.refresh_from_db()
    assert (gate.status, Vote.objects.filter(gate=gate).count()) == ("pending", 1)


def test_an_approval_given_before_a_reset_still_counts(desk: Desk, gate: Gate) -> None:
    gate = desk.gate(desk.plan("e-2", tool="deploy"))
    desk.answer(gate, "reviewer")
    give_password(desk, "reviewer")
    assert desk.answer(gate, "administrator").refusal is None
    gate.refresh_from_db()
    assert gate.status == "approved"


@pytest.mark.parametrize("verb", ["revoke_approval", "extend_deadline"])
def test_nor_is_permission_taken_back_or_prolonged(desk: Desk, gate: Gate, verb: str) -> None:
    if verb == "revoke_approval":
        desk.answer(gate, "administrator")
    give_password(desk, "reviewer")
    more: tuple[Any, ...] = ("not now after all",) if verb == "revoke_approval" else ()
    with transaction.atomic():
        outcome = getattr(votes, verb)(gate, desk.person("reviewer"), *more)
    assert outcome.refusal is not None
    assert outcome.refusal[0] == "own_password"


def test_nothing_is_resolved_under_a_given_password(mail: Effect, quiet: Desk) -> None:
    give_password(quiet, "operator")
    resolution_input = ResolutionInput(
        "happened", "seen in the mailbox of the customer", mail.version
    )
    with transaction.atomic():
        done = resolutions.record_resolution(
            quiet.project.id, mail.id, resolution_input, quiet.user("operator")
        )
    assert done.refusal is not None
    assert done.refusal.code == "own_password"


def test_the_page_marks_voters_whose_password_was_set_before_a_vote(desk: Desk) -> None:
    gate = desk.gate(desk.plan(tool="deploy"))
    give_password(desk, "reviewer")
    with transaction.atomic():
        people.change_own_password(desk.user("reviewer"), "orbit-lantern-slate-43")
    desk.answer(gate, "reviewer")
    page = desk.house.client("viewer").get(reverse("gate", args=[gate.id])).text
    assert "administrator set this person's password" in page
    other = desk.gate(desk.plan("e-2"))
    desk.answer(other, "administrator")
    assert (
        "set this person"
        not in desk.house.client("viewer").get(reverse("gate", args=[other.id])).text
    )
