"""The proof that an approval needs is decided when the gate opens; page, service and database
enforce it."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import time_machine
from django.db import DatabaseError, IntegrityError, transaction
from django.urls import reverse

from accounts import repositories
from approvals.gates.statuses import US
from approvals.models import Gate, Vote
from approvals.policies.engine import Requirement
from approvals.review import card
from db.clock import now_us
from journal.models import Entry
from ledger.models import Tool
from ledger.tools import cache
from tests.approvals.inbox_scenario import RULES, InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from tests.pages.people import PASSWORD
from tests.rows_with_entries import add_row, change_tools

pytestmark = pytest.mark.django_db
REAUTH = RULES.replace("minimum: 1, rationale", "step_up: reauth, minimum: 1, rationale")
MAIN: dict[str, Any] = {"target": {"repository": "web", "ref": "main"}}  # production
TOPIC: dict[str, Any] = {"target": {"repository": "web", "ref": "topic"}}


def redeclare_tool(name: str, reversibility: str) -> None:
    change_tools(Tool.objects.filter(name=name), reversibility=reversibility)
    cache.clear_tool_cache()


@pytest.mark.parametrize(
    ("reversibility", "risk", "step_up", "rationale"),
    [
        ("reversible", "low", "none", "on_deny"),
        ("compensable", "medium", "none", "on_deny"),
        ("compensable", "high", "typed_digest", "on_deny"),
        ("irreversible", "high", "typed_digest", "always"),
        ("irreversible", "critical", "typed_digest", "always"),
        ("irreversible", "medium", "typed_digest", "always"),
        ("compensable", "critical", "typed_digest", "always"),
    ],
)
def test_the_requirements_that_no_rule_can_remove(
    reversibility: str, risk: str, step_up: str, rationale: str
) -> None:
    lax = Requirement(self_approval=True)
    needed = lax.strengthened(reversibility, risk)
    assert (needed.step_up, needed.rationale, needed.self_approval) == (
        step_up,
        rationale,
        risk == "low",
    )
    requirement = Requirement(step_up="reauth", rationale="always").strengthened(
        reversibility, risk
    )
    assert (requirement.step_up, requirement.rationale) == (
        "reauth" if step_up == "none" else step_up,
        "always",
    )


def test_high_risk_takes_the_code_and_a_password_though_it_can_be_undone(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    gate = inbox.gate(inbox.plan(**MAIN))
    assert (gate.risk, gate.reversibility) == ("high", "compensable")
    assert (gate.requirement["step_up"], gate.step_up, gate.reason_of_yes) == (
        "typed_digest",
        "typed_digest",
        0,
    )
    assert gate.requirement_hash == Requirement.of(gate.requirement).hash
    for proof in ("none", "reauth"):
        assert inbox.answer(gate, "reviewer", step_up=proof).refusal[0] == "step_up_required"  # type: ignore[index]
    rita.answer(gate)
    assert rita.confirm(gate, password=PASSWORD).status_code == 422
    assert not Vote.objects.exists()
    fields = {"code": card.confirmation_code(gate.effect.intent_digest), "password": PASSWORD}
    assert rita.confirm(gate, **fields).status_code == 302
    assert Vote.objects.get().step_up == "typed_digest"
    assert Gate.objects.get().status == "approved"


def test_a_rule_that_requires_only_the_password_gets_only_that(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.rules(REAUTH)
    gate = inbox.gate(inbox.plan())
    page = rita.page(url_of(gate))
    needs = page.partition('<div class="needs">')[2].partition("</div>")[0]
    assert "your password" in needs
    assert "the code" not in needs
    assert inbox.answer(gate, "reviewer").refusal[0] == "step_up_required"  # type: ignore[index]
    confirm = rita.answer(gate)["Location"]
    html = rita.page(confirm)
    assert ('name="password"' in html, 'name="code"' in html) == (True, False)
    assert rita.confirm(gate, password="guess").status_code == 422
    assert not Vote.objects.exists()
    assert rita.confirm(gate, password=PASSWORD).status_code == 302
    assert Vote.objects.get().step_up == "reauth"
    assert "Password given" in rita.page(url_of(gate))
    # A password is good for five minutes; then the confirm page asks again.
    again = inbox.gate(inbox.plan("e-2", arguments={"ref": "topic"}))
    needs = rita.page(url_of(again)).partition('<div class="needs">')[2].partition("</div>")[0]
    assert re.search(r"Password given at <time [^>]*>\d\d:\d\d</time>\.", needs)
    assert "you type" not in needs
    confirm = rita.answer(again)["Location"]
    html = rita.page(confirm)
    assert 'name="password"' not in html
    assert re.search(r"it counts until\s+<time [^>]*>\d\d:\d\d</time>\.", html)
    assert rita.confirm(again).status_code == 302
    assert Gate.objects.get(id=again.id).status == "approved"


def test_a_recent_password_does_not_approve_from_a_page_that_shows_a_denial(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    """No input is needed for five minutes, so a confirm page in a second window is one press
    away."""
    inbox.rules(REAUTH)
    first = inbox.gate(inbox.plan())
    rita.answer(first)
    assert rita.confirm(first, password=PASSWORD).status_code == 302
    gate = inbox.gate(inbox.plan("e-2", arguments={"ref": "topic"}))
    rita.answer(gate, "deny", "not to topic", settled="")
    shown = rita.draft(gate)
    confirm = rita.answer(gate)["Location"]
    assert 'name="password"' not in rita.page(confirm)
    assert rita.client.post(confirm, {"seen_draft": shown}).status_code == 409
    assert not Vote.objects.filter(gate=gate).exists()


def test_a_denial_needs_no_proof(inbox: InboxScenario, rita: Reviewer) -> None:
    gate = inbox.gate(inbox.plan(tool="mail.send"))
    assert rita.answer(gate, "deny").status_code == 302
    assert (Vote.objects.get().step_up, Gate.objects.get().status) == ("none", "denied")


def test_a_request_that_needs_a_password_is_not_in_a_batch(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.declare("note.write", "reversible")
    rules = (
        RULES + "  - {id: note, title: N, match: {tools: [note.write]}, outcome: require, require: "
        "{step_up: reauth}}\n"
    )
    inbox.rules(rules)
    gates = [
        inbox.gate(inbox.plan(f"e-{n}", tool="note.write", arguments={"n": n})) for n in range(2)
    ]
    assert {gate.risk for gate in gates} == {"low"}
    rita.client.post(reverse("batch"), {"gate": [str(gate.id) for gate in gates]})
    assert rita.client.get(reverse("batch_confirm")).status_code == 409


# --- changes while a gate waits ---------------------------------------------------------------------------------------


def test_a_tool_declared_again_raises_the_step_up_of_an_approval(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    planned = inbox.plan()
    gate = inbox.gate(planned)
    seen = rita.seen(gate)
    redeclare_tool("git.push", "irreversible")
    stale = rita.answer(gate, seen=seen)
    assert stale.status_code == 409  # the card shows now that it cannot be undone
    assert inbox.answer(gate, "reviewer").refusal[0] == "step_up_required"  # type: ignore[index]
    assert (
        inbox.answer(gate, "reviewer", reason="", step_up="typed_digest").refusal[0]  # type: ignore[index]
        == "rationale_required"
    )
    confirm = rita.answer(gate)["Location"]
    assert 'name="code"' in rita.page(confirm)
    fields = {"code": card.confirmation_code(gate.effect.intent_digest), "password": PASSWORD}
    assert rita.confirm(gate, **fields).status_code == 302
    assert (Gate.objects.get().status, Gate.objects.get().step_up) == ("approved", "none")
    body = {"process": "p-1", "intent_digest": planned["intent_digest"]}
    assert inbox.agent.post(f"/effects/{planned['id']}/dispatch", body).status_code == 200


@pytest.mark.parametrize(
    ("ticket", "step_up", "characters", "met"),
    [
        ("", "typed_digest", 10, ("typed_digest", "always")),
        ("", "none", 10, ("reauth", "always")),
        ("", "typed_digest", 9, ("typed_digest", "on_deny")),
        ("INC-*", "typed_digest", 40, ("typed_digest", "on_deny")),  # no one checked the ticket
    ],
)
def test_an_unrequired_proof_or_ticket_counts(
    ticket: str, step_up: str, characters: int, met: tuple[str, str]
) -> None:
    requirement = Requirement(step_up="reauth", ticket=ticket).met_by(step_up, characters)
    assert (requirement.step_up, requirement.rationale) == met


def test_other_patterns_of_refs_raise_the_step_up_of_an_approval(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    gate = inbox.gate(inbox.plan(**TOPIC))
    assert (gate.risk, gate.step_up) == ("medium", "none")
    seen = rita.seen(gate)
    repositories.change_ref_patterns(
        inbox.organization.repository, production="topic", protected="", actor="tests"
    )
    assert rita.answer(gate, seen=seen).status_code == 409
    assert "production, by patterns v2" in rita.page(url_of(gate))
    assert inbox.answer(gate, "reviewer").refusal[0] == "step_up_required"  # type: ignore[index]
    assert inbox.answer(gate, "reviewer", step_up="typed_digest").refusal is None


def test_a_laxer_declaration_later_lowers_nothing(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan(tool="mail.send"))
    inbox.declare("mail.send", "reversible")
    assert inbox.answer(gate, "reviewer").refusal[0] == "step_up_required"  # type: ignore[index]


def test_a_request_raised_above_low_risk_allows_no_self_approval(inbox: InboxScenario) -> None:
    inbox.declare("note.write", "reversible")
    own = (
        "  - {id: own, title: O, match: {tools: [note.write], risk_at_most: low}, outcome: require,"
    )
    own += " require: {self_approval: true}}\n"
    inbox.rules(RULES + own)
    first, second = (
        inbox.gate(inbox.plan(f"e-{n}", tool="note.write", arguments={"n": n})) for n in range(2)
    )
    assert inbox.answer(first, "operator").refusal is None  # the owner of the agent
    redeclare_tool("note.write", "compensable")
    assert inbox.answer(second, "operator").refusal[0] == "self_approval"  # type: ignore[index]


# --- straight to the database -----------------------------------------------------------------------------------------


def vote(inbox: InboxScenario, gate: Gate, **values: Any) -> Callable[[], Any]:
    now = now_us()
    fields = {
        "project": inbox.project,
        "gate": gate,
        "user": inbox.user("reviewer"),
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


@pytest.mark.parametrize(
    ("step_up", "characters"),
    [("none", 40), ("reauth", 40), ("typed_digest", 9), ("typed_digest", 0)],
)
def test_the_database_refuses_an_approval_with_too_little_step_up(
    inbox: InboxScenario, step_up: str, characters: int
) -> None:
    gate = inbox.gate(inbox.plan(tool="mail.send"))
    assert (gate.step_up, gate.reason_of_yes) == ("typed_digest", 10)
    with (
        pytest.raises((IntegrityError, DatabaseError), match="approval_has_the_required_proof"),
        transaction.atomic(),
    ):
        vote(inbox, gate, step_up=step_up, reason_characters=characters)()
    vote(inbox, gate, step_up=step_up, reason_characters=characters, answer="deny")()


def test_the_database_accepts_an_approval_with_enough_step_up(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan(tool="mail.send"))
    vote(inbox, gate, step_up="typed_digest", reason_characters=10)()
    inbox.rules(REAUTH)
    gate = inbox.gate(inbox.plan("e-2", arguments={"ref": "topic"}))
    vote(inbox, gate, step_up="typed_digest")()


def test_the_proof_is_recorded_with_the_time_of_the_password(
    inbox: InboxScenario, final: Gate, rita: Reviewer
) -> None:
    """The second answer needs no password again: its record contains the password's age."""
    began = now_us() // US
    other = inbox.gate(
        inbox.plan("other", tool="drop.table", arguments={"command": "DROP TABLE carts"})
    )
    for number, gate in enumerate((final, other)):
        with time_machine.travel(began + 240 * number, tick=False):
            rita.answer(gate)
            given = {} if number else {"password": PASSWORD}
            assert (
                rita.confirm(
                    gate, code=card.confirmation_code(gate.effect.intent_digest), **given
                ).status_code
                == 302
            )
    first, second = Vote.objects.order_by("position")
    assert (first.step_up, second.step_up) == ("typed_digest", "typed_digest")
    assert first.password_at_us == second.password_at_us == began * US
    facts = [
        json.loads(text)
        for text in Entry.objects.filter(kind="gate.voted").values_list("facts", flat=True)
    ]
    assert {text["password_at_us"] for text in facts} == {began * US}
    pages = [rita.page(url_of(gate)) for gate in (final, other)]
    assert "Password given for this answer" in pages[0]
    assert "Password given 4 min" in pages[1]
    assert "not for this answer; it counts for 5 minutes" in pages[1]
    assert [text["password_for"] for text in facts] == ["this", "earlier"]
    assert "with code and password" not in pages[1]
