"""The proof of an approval while checks warn: raised by the rule, enforced at the vote, recorded."""

import json
import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from django.urls import reverse

from approvals.checks import run_checks
from approvals.checks.check_results import CheckResult, Compared
from approvals.checks.checked_request import CheckedRequest
from approvals.models import Gate, Vote
from approvals.policies.engine import (
    RequiredEvidence,
    Requirement,
    evaluate_rules,
    is_stricter_requirement,
)
from approvals.review import card
from approvals.voting.votes import ShownGate
from approvals.voting.warned_proof import (
    NameToType,
    decide_approval_proof,
    explain_typed_name,
    find_unseen_warnings,
    list_warnings,
)
from db.clock import now_us
from journal.models import Body, Entry
from tests.approvals.inbox_scenario import RULES, InboxScenario
from tests.approvals.policy_factories import loaded, no_earlier_plans, wish
from tests.approvals.reviewer import Reviewer, url_of
from tests.approvals.test_inbox_facts import plainly
from tests.pages.people import PASSWORD

KNOWN = "northwind-audit.com"
REQUESTED = "n\u043erthwind-audit.com"  # a Cyrillic letter
LOOKALIKE = CheckResult(
    "lookalike",
    "danger",
    "lookalike letter",
    "Lookalike domain: 1 letter is Cyrillic.",
    "It looks like a domain you have used, but is another one.",
    concerns="arguments.to",
    compared=(Compared("Requested", REQUESTED, "", (1,)), Compared("Known", KNOWN)),
)
OTHER = CheckResult("said_against_seen", "warning", "not docs only", "Claim “docs only”: no.")
NOTICE = CheckResult("first_use", "notice", "first use", "First use of the domain.")
RAISED = RULES.replace("{minimum: 1, rationale", "{proof_on_warning: PROOF, minimum: 1, rationale")


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[CheckResult]:
    """The results of the checks of every request; tests add to them."""
    results: list[CheckResult] = []

    def check_requests(
        _project: UUID, requests: Sequence[CheckedRequest]
    ) -> dict[UUID, tuple[CheckResult, ...]]:
        return {request.gate: tuple(results) for request in requests if results}

    monkeypatch.setattr(run_checks, "check_requests", check_requests)
    return results


def proofs(gate: Gate) -> dict[str, str]:
    return {"code": card.confirmation_code(gate.effect.intent_digest), "password": PASSWORD}


# --- decided without a database ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step_up", "on_warning", "results", "expected"),
    [
        ("none", "", [OTHER], "none"),
        ("none", "reauth", [], "none"),
        ("none", "reauth", [NOTICE], "none"),
        ("none", "reauth", [OTHER], "reauth"),
        ("typed_digest", "reauth", [OTHER], "typed_digest"),  # never lowered
        ("reauth", "typed_digest", [LOOKALIKE], "typed_digest"),
        ("none", "typed_name", [OTHER], "typed_digest"),
        ("none", "typed_name", [LOOKALIKE], "typed_digest"),
    ],
)
def test_a_warning_raises_the_proof_as_the_rule_says(
    step_up: str, on_warning: str, results: list[CheckResult], expected: str
) -> None:
    requirement = Requirement(step_up=step_up, proof_on_warning=on_warning)
    assert decide_approval_proof(requirement, results).step_up == expected


def test_only_lookalikes_and_near_names_are_typed_and_each_once() -> None:
    requirement = Requirement(proof_on_warning="typed_name")
    near = CheckResult(
        "near_name",
        "warning",
        "near name",
        "Near name.",
        compared=(Compared("Requested", "prod-eu2"), Compared("Known", "prod-eu1")),
    )
    names = decide_approval_proof(requirement, [LOOKALIKE, OTHER, LOOKALIKE, near]).names
    assert names == (NameToType(REQUESTED, (KNOWN,)), NameToType("prod-eu2", ("prod-eu1",)))
    assert decide_approval_proof(Requirement(proof_on_warning="reauth"), [LOOKALIKE]).names == ()


@pytest.mark.parametrize(
    ("requested", "known_name", "typed", "refusal"),
    [
        (REQUESTED, KNOWN, REQUESTED, ""),
        (REQUESTED, KNOWN, f" {REQUESTED.upper()[:1]}{REQUESTED[1:]} ", ""),
        ("prod-eu2", "prod-eu1", "prod-eu2", ""),
        (
            REQUESTED,
            KNOWN,
            "Northwind-Audit.com",
            "You typed Northwind-Audit.com. The request goes to another domain, whose letter 2 is "
            "Cyrillic. Deny it, or",
        ),
        (
            "prod-eu2",
            "prod-eu1",
            "prod-eu1",
            "You typed prod-eu1. The request goes to another name, whose letter 8 is “2” and not",
        ),
        ("acme.co", "acme.com", "acme.com", "another domain, which has 7 characters and not 8."),
        (
            f"billing@{REQUESTED}",
            f"billing@{KNOWN}",
            f"billing@{KNOWN}",
            "The request goes to another address, whose letter 10 is Cyrillic.",
        ),
        (REQUESTED, "", KNOWN, "another domain, whose letter 2 is Cyrillic."),  # none is listed
        (REQUESTED, KNOWN, "", "Type the domain from your own records, not from this page."),
        (REQUESTED, KNOWN, "example.com", "which is not the requested domain. Check your records."),
        ("\u212aelvin.com", "kelvin.com", "kelvin.com", "another domain"),  # folds to k elsewhere
        ("strasse.de", "stra\u00dfe.de", "stra\u00dfe.de", "another domain"),
        ("prod-eu2", "prod-eu1", "Prod-EU2", ""),
    ],
)
def test_a_typed_name_is_compared_letter_by_letter(
    requested: str, known_name: str, typed: str, refusal: str
) -> None:
    sentence = explain_typed_name(NameToType(requested, (known_name,)), typed)
    assert refusal in sentence
    assert bool(sentence) == bool(refusal)


def test_warnings_are_unseen_by_number_and_check() -> None:
    results = [LOOKALIKE, LOOKALIKE, OTHER, NOTICE]
    assert list_warnings(results) == ("lookalike", "lookalike", "said_against_seen")
    assert find_unseen_warnings(results, list_warnings(results)) == ()
    assert find_unseen_warnings(results, ("lookalike", "said_against_seen")) == (LOOKALIKE,)
    assert find_unseen_warnings([], ("lookalike",)) == ()
    assert find_unseen_warnings([NOTICE], ()) == ()


def test_the_warned_proof_and_evidence_of_every_rule_that_asks_apply_together() -> None:
    rules = """
name: two
rules:
  - {id: two, title: T, match: {}, outcome: require, require: {minimum: 2}}
  - id: name
    title: N
    match: {tools: [git.push]}
    outcome: require
    require: {proof_on_warning: typed_name, evidence: {ticket: "OPS-*"}}
  - id: hash
    title: H
    match: {tools: [git.push]}
    outcome: require
    require: {proof_on_warning: reauth, evidence: {plan_hash: true, arguments: [row_count]}}
"""
    decision = evaluate_rules(loaded(rules), wish(), "enforce", no_earlier_plans)
    requirement = decision.requirement
    assert requirement is not None
    assert (decision.rule, requirement.minimum) == ("two", 2)
    assert requirement.proof_on_warning == "typed_name"
    assert requirement.evidence == RequiredEvidence(
        tickets=("OPS-*",), plan_hash=True, arguments=("row_count",)
    )
    assert Requirement.of(requirement.as_dict()) == requirement


def test_rules_without_these_words_keep_their_hash() -> None:
    stored = Requirement().as_dict()
    assert "evidence" not in stored
    assert "proof_on_warning" not in stored
    assert Requirement(proof_on_warning="reauth").hash != Requirement().hash


def test_more_evidence_or_proof_is_stricter_and_less_is_not() -> None:
    lax, ticket = Requirement(), Requirement(evidence=RequiredEvidence(tickets=("OPS-*",)))
    name, code = Requirement(proof_on_warning="typed_name"), Requirement(step_up="typed_digest")
    for new, old, expected in (
        (ticket, lax, True),
        (lax, ticket, False),
        (name, lax, True),
        (name, code, True),
        (Requirement(proof_on_warning="typed_digest"), code, False),
        (Requirement(proof_on_warning="reauth"), name, False),
    ):
        assert is_stricter_requirement(new, old) == expected


# --- votes and pages --------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_a_warned_approval_without_the_raised_proof_is_refused_at_the_vote(
    inbox: InboxScenario, warnings: list[CheckResult]
) -> None:
    inbox.rules(RAISED.replace("PROOF", "typed_digest"))
    gate = inbox.gate(inbox.plan())
    warnings.append(OTHER)
    for proof in ("none", "reauth"):
        refusal = inbox.answer(gate, "reviewer", step_up=proof).refusal
        assert refusal == (
            "step_up_required",
            "To approve this, give the intent code and your password.",
        )
    assert not Vote.objects.exists()
    assert inbox.answer(gate, "reviewer", step_up="typed_digest").refusal is None
    assert Vote.objects.get().step_up == "typed_digest"


@pytest.mark.django_db
def test_a_denial_needs_no_more_proof_despite_warnings_that_appeared(
    inbox: InboxScenario, rita: Reviewer, warnings: list[CheckResult]
) -> None:
    inbox.rules(RAISED.replace("PROOF", "typed_name"))
    gate = inbox.gate(inbox.plan())
    seen = rita.seen(gate)
    warnings.append(LOOKALIKE)
    assert rita.answer(gate, "deny", seen=seen).status_code == 302
    assert Vote.objects.get().answer == "deny"


@pytest.mark.django_db
def test_a_warning_that_the_page_did_not_show_refuses_the_approval(
    inbox: InboxScenario, rita: Reviewer, warnings: list[CheckResult]
) -> None:
    gate = inbox.gate(inbox.plan())
    seen = rita.seen(gate)
    warnings.append(OTHER)
    refused = rita.answer(gate, seen=seen)
    assert refused.status_code == 409
    page = plainly(refused.content.decode())
    assert "A check of this request warns since you opened your page." in page
    assert "Warning not shown Claim “docs only”: no." in page
    assert not Vote.objects.exists()
    # The service refuses it too: another process may have stored the fact that warns.
    shown = ShownGate(gate.version, gate.digest, "c" * 64, True, now_us())
    refusal = inbox.answer(gate, "reviewer", shown=shown).refusal
    assert refusal is not None
    assert refusal[0] == "stale_view"


@pytest.mark.django_db
def test_a_warning_that_appears_before_the_confirm_page_is_sent_refuses_its_password(
    inbox: InboxScenario, rita: Reviewer, warnings: list[CheckResult]
) -> None:
    inbox.rules(RULES.replace("{minimum: 1, rationale", "{step_up: reauth, minimum: 1, rationale"))
    gate = inbox.gate(inbox.plan())
    rita.answer(gate)
    shown = rita.draft(gate)
    warnings.append(OTHER)
    answer = rita.client.post(
        reverse("gate_confirm", args=[gate.id]), {"seen_draft": shown, "password": "wrong"}
    )
    assert answer.status_code == 409
    assert "Wrong password" not in answer.content.decode()
    assert 'name="password"' not in answer.content.decode()
    assert not Vote.objects.exists()


@pytest.mark.django_db
def test_a_warned_approval_is_confirmed_on_a_page_that_repeats_the_warnings(
    inbox: InboxScenario, rita: Reviewer, warnings: list[CheckResult]
) -> None:
    warnings += [LOOKALIKE, OTHER, NOTICE]
    gate = inbox.gate(inbox.plan())
    confirm = rita.answer(gate)  # with the script's mark: no step-up is needed
    assert confirm["Location"] == reverse("gate_confirm", args=[gate.id])
    page = plainly(rita.page(confirm["Location"]))
    assert "Lookalike domain: 1 letter is Cyrillic." in page
    assert "Approve despite 2 warnings" in page
    assert not Vote.objects.exists()
    assert rita.confirm(gate).status_code == 302
    assert Vote.objects.get().step_up == "none"


@pytest.mark.django_db
def test_a_lookalike_is_approved_only_with_the_requested_name_typed(
    inbox: InboxScenario, rita: Reviewer, warnings: list[CheckResult]
) -> None:
    inbox.rules(RAISED.replace("PROOF", "typed_name"))
    warnings += [LOOKALIKE, OTHER]
    gate = inbox.gate(inbox.plan())
    assert "To approve, you type: the domain, from your own records" in plainly(
        rita.page(url_of(gate))
    )
    rita.answer(gate)
    confirm = rita.page(reverse("gate_confirm", args=[gate.id]))
    assert "The requested domain, typed from your own records" in confirm
    fields = proofs(gate)
    refused = rita.confirm(gate, **fields, **{"name-0": KNOWN})
    page = plainly(refused.content.decode())
    assert refused.status_code == 422
    assert f"You typed {KNOWN}. The request goes to another domain, whose letter 2 is" in page
    assert "Cyrillic. Deny it, or ask for changes" in page
    assert rita.confirm(gate, **fields).status_code == 422
    assert not Vote.objects.exists()
    refusal = inbox.answer(gate, "reviewer", step_up="typed_digest", typed_names=[KNOWN]).refusal
    assert refusal is not None
    assert refusal[0] == "step_up_required"
    # The name alone is not enough: the code and the password come after it.
    assert rita.confirm(gate, **{"name-0": REQUESTED}).status_code == 422
    assert rita.confirm(gate, **fields, **{"name-0": REQUESTED}).status_code == 302
    vote = Vote.objects.get()
    entry = Entry.objects.get(position=vote.position)
    facts = json.loads(entry.facts)
    assert facts["warnings"] == ["lookalike", "said_against_seen"]
    assert (facts["proof"], facts["step_up"]) == ("typed_name", "typed_digest")
    assert facts["password_for"] == "this"
    assert json.loads(Body.objects.get(entry=entry).text)["typed_names"] == [REQUESTED]
    record = plainly(rita.page(url_of(gate)))
    assert "The page showed 2 warnings: lookalike, said against seen." in record
    assert "The voter typed from own records" in record


@pytest.mark.django_db
def test_a_wrong_name_is_refused_before_the_password_is_read(
    inbox: InboxScenario, rita: Reviewer, warnings: list[CheckResult]
) -> None:
    inbox.rules(RAISED.replace("PROOF", "typed_name"))
    warnings.append(LOOKALIKE)
    gate = inbox.gate(inbox.plan())
    rita.answer(gate)
    for _ in range(6):  # five wrong passwords would lock the sign-in
        answer = rita.confirm(gate, password="wrong", **{"name-0": KNOWN})
        assert "Wrong password" not in answer.content.decode()
    assert rita.confirm(gate, **proofs(gate), **{"name-0": REQUESTED}).status_code == 302


@pytest.mark.django_db
def test_a_warning_that_appears_while_a_batch_is_open_keeps_its_request_out(
    inbox: InboxScenario, rita: Reviewer, warnings: list[CheckResult]
) -> None:
    inbox.declare("note.write", "reversible")
    note = "  - {id: note, title: N, match: {tools: [note.write]}, outcome: require}\n"
    inbox.rules(RULES + note)
    gates = [
        inbox.gate(inbox.plan(f"e-{n}", tool="note.write", arguments={"n": n})) for n in range(2)
    ]
    rita.client.post(reverse("batch"), {"gate": [str(gate.id) for gate in gates]})
    page = rita.page(reverse("batch_confirm"))
    tokens = dict(re.findall(r'name="(seen-[0-9a-f]+)" value="([^"]+)"', page))
    warnings.append(OTHER)
    fields = {"answer": "approve", "reason": "all fine", **tokens}
    refused = rita.client.post(reverse("batch_confirm"), fields)
    assert refused.status_code == 409
    assert not Vote.objects.exists()


@pytest.mark.django_db
def test_the_record_of_an_ordinary_vote_says_that_nothing_warned(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    gate = inbox.gate(inbox.plan(arguments={"command": "git push origin main"}))
    rita.answer(gate)
    facts: dict[str, Any] = json.loads(
        Entry.objects.get(position=Vote.objects.get().position).facts
    )
    assert (facts["warnings"], facts["proof"]) == ([], "none")
    assert "The page showed no warning." in plainly(rita.page(url_of(gate)))
