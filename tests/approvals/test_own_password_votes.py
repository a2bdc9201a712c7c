"""No vote or resolution counts under a password that somebody else set: by page, service and
trigger."""

from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, transaction
from django.urls import reverse

from accounts import people
from approvals.models import Gate, Vote
from approvals.voting import votes
from ledger import resolutions
from ledger.models import Effect
from ledger.resolutions import ResolutionInput
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.test_gate_triggers import vote
from tests.recovery.resolver import mail
from tests.rows_with_entries import mark_own_password

__all__ = ["mail"]
pytestmark = pytest.mark.django_db


@pytest.fixture
def gate(inbox: InboxScenario) -> Gate:
    return inbox.gate(inbox.plan())


def give_password(inbox: InboxScenario, name: str) -> None:
    """Set the password of `name` as the administrator."""
    by = inbox.person("administrator").user
    with transaction.atomic():
        people.reset_member_password(inbox.person(name), by, actor=people.ensure_pseudonym(by))


@pytest.mark.parametrize("answer", ["approve", "deny", "deny_session", "request_changes"])
def test_a_vote_under_a_given_password_is_refused_by_the_service(
    inbox: InboxScenario, gate: Gate, answer: str
) -> None:
    give_password(inbox, "reviewer")
    outcome = inbox.answer(gate, "reviewer", answer)
    assert outcome.refusal is not None
    assert outcome.refusal[0] == "own_password"
    assert not Vote.objects.exists()
    with transaction.atomic():
        people.change_own_password(inbox.user("reviewer"), "orbit-lantern-slate-43")
    assert inbox.answer(gate, "reviewer", answer).refusal is None


@pytest.mark.parametrize("answer", ["approve", "deny"])
def test_the_database_refuses_such_a_vote_past_all_code(
    inbox: InboxScenario, gate: Gate, answer: str
) -> None:
    write = vote(inbox, gate, "reviewer", answer=answer)
    give_password(inbox, "reviewer")
    with (
        pytest.raises((IntegrityError, DatabaseError), match="voter_has_own_password"),
        transaction.atomic(),
    ):
        write()
    mark_own_password(inbox.user("reviewer"))
    write()
    assert Vote.objects.count() == 1


def test_an_administrator_is_not_a_second_reviewer_by_a_reset(inbox: InboxScenario) -> None:
    inbox.rules()
    gate = inbox.gate(inbox.plan(tool="deploy"))
    assert gate.minimum == 2
    assert inbox.answer(gate, "administrator").refusal is None
    give_password(inbox, "reviewer")
    client = inbox.organization.client("reviewer")  # as the administrator, who saw the password
    for url in (reverse("gate", args=[gate.id]), reverse("gate_vote", args=[gate.id])):
        for method in ("get", "post"):
            answer = getattr(client, method)(url, {"answer": "approve", "settled": "1"})
            assert (answer.status_code, answer["Location"]) == (302, reverse("password"))
    assert inbox.answer(gate, "reviewer").refusal is not None
    gate.refresh_from_db()
    assert (gate.status, Vote.objects.filter(gate=gate).count()) == ("pending", 1)


def test_an_approval_given_before_a_reset_still_counts(inbox: InboxScenario, gate: Gate) -> None:
    gate = inbox.gate(inbox.plan("e-2", tool="deploy"))
    inbox.answer(gate, "reviewer")
    give_password(inbox, "reviewer")
    assert inbox.answer(gate, "administrator").refusal is None
    gate.refresh_from_db()
    assert gate.status == "approved"


@pytest.mark.parametrize("verb", ["revoke_approval", "extend_deadline"])
def test_nor_is_permission_taken_back_or_prolonged(
    inbox: InboxScenario, gate: Gate, verb: str
) -> None:
    if verb == "revoke_approval":
        inbox.answer(gate, "administrator")
    give_password(inbox, "reviewer")
    more: tuple[Any, ...] = ("not now after all",) if verb == "revoke_approval" else ()
    with transaction.atomic():
        outcome = getattr(votes, verb)(gate, inbox.person("reviewer"), *more)
    assert outcome.refusal is not None
    assert outcome.refusal[0] == "own_password"


def test_nothing_is_resolved_under_a_given_password(mail: Effect, quiet: InboxScenario) -> None:
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


def test_the_page_marks_voters_whose_password_was_set_before_a_vote(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan(tool="deploy"))
    give_password(inbox, "reviewer")
    with transaction.atomic():
        people.change_own_password(inbox.user("reviewer"), "orbit-lantern-slate-43")
    inbox.answer(gate, "reviewer")
    page = inbox.organization.client("viewer").get(reverse("gate", args=[gate.id])).text
    assert "administrator set this person's password" in page
    other = inbox.gate(inbox.plan("e-2"))
    inbox.answer(other, "administrator")
    assert (
        "set this person"
        not in inbox.organization.client("viewer").get(reverse("gate", args=[other.id])).text
    )
