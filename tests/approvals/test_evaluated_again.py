"""Permission is evaluated again at its use if the tool or patterns of refs changed since the
plan."""

from typing import Any

import pytest
from django.db import transaction

from accounts import repositories
from approvals import exemptions
from approvals.gates.statuses import US
from approvals.models import Gate
from approvals.policies import policy_evaluation
from db.clock import now_us
from ledger.models import Attempt, Effect, Tool
from ledger.tools import cache
from tests.api.api_client import code
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import InboxScenario
from tests.rows_with_entries import change_tools, remove_tools

pytestmark = pytest.mark.django_db
RULES = """
name: basic
rules:
  - id: harmless
    title: What can be put back
    match: {reversibility: [reversible]}
    outcome: allow
  - id: production
    title: A production branch
    match: {ref_classes: [production]}
    outcome: require
  - id: final
    title: What cannot be undone
    match: {reversibility: [irreversible]}
    outcome: require
    exemptible: irreversible
"""
TOPIC: dict[str, Any] = {"target": {"repository": "web", "ref": "topic"}}


@pytest.fixture
def inbox(quiet: InboxScenario) -> InboxScenario:
    """Reversible tools are allowed, except in production; note.write is reversible."""
    quiet.rules(RULES)
    quiet.declare("note.write", "reversible")
    return quiet


def plan(inbox: InboxScenario, effect_key: str = "e-1", **fields: Any) -> dict[str, Any]:
    return inbox.plan(effect_key, tool="note.write", **fields)


def dispatch(inbox: InboxScenario, effect: dict[str, Any]) -> Any:
    body = {"process": "p-1", "intent_digest": effect["intent_digest"]}
    return inbox.agent.post(f"/effects/{effect['id']}/dispatch", body)


def redeclare_tool(reversibility: str = "reversible", tool_class: str = "idempotent") -> None:
    change_tools(
        Tool.objects.filter(name="note.write"), reversibility=reversibility, tool_class=tool_class
    )
    cache.clear_tool_cache()


def patterns(inbox: InboxScenario, production: str) -> None:
    repositories.change_ref_patterns(
        inbox.organization.repository, production=production, protected="", actor="tests"
    )


def taken_back(inbox: InboxScenario, planned: dict[str, Any]) -> None:
    refused = dispatch(inbox, planned)
    assert (code(refused), refused.json()["reason"]) == ((409, "GATE_GONE"), "requirement_changed")
    assert not Attempt.objects.exists()
    assert inbox.effect(planned).permission == "none"


def test_an_unchanged_plan_is_not_evaluated_again(
    inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan(inbox, **TOPIC)
    assert (
        inbox.effect(planned).policy_tool_class,
        inbox.effect(planned).ref_patterns_version,
    ) == (
        "idempotent/reversible",
        1,
    )
    monkeypatch.delattr(
        policy_evaluation, "build_stored_policy_input"
    )  # the evaluation at dispatch reads the plan by it
    assert dispatch(inbox, planned).status_code == 200


@pytest.mark.parametrize("removed", [False, True])
def test_permission_by_policy_ends_with_the_declaration_that_earned_it(
    inbox: InboxScenario, removed: bool
) -> None:
    planned = plan(inbox)
    assert planned["answer"] == "proceed"
    if removed:
        remove_tools(Tool.objects.all())
        cache.clear_tool_cache()
    else:
        redeclare_tool("irreversible")
    taken_back(inbox, planned)
    again = plan(inbox)
    assert again["answer"] == "wait"
    gate, effect = inbox.gate(again), inbox.effect(again)
    assert (gate.reversibility, gate.step_up, effect.policy_outcome) == (
        "irreversible",
        "typed_digest",
        "ask",
    )
    assert effect.policy_tool_class == (
        "opaque/irreversible" if removed else "idempotent/irreversible"
    )
    assert inbox.answer(gate, "reviewer", step_up="typed_digest").refusal is None
    assert dispatch(inbox, again).status_code == 200


def test_a_tool_that_no_longer_only_reads_needs_approval(inbox: InboxScenario) -> None:
    """No rule matches a compensable tool: the plan passed because the tool was declared to only
    read."""
    redeclare_tool("compensable", "read_only")
    planned = plan(inbox)
    assert planned["answer"] == "proceed"
    redeclare_tool("compensable", "idempotent")
    taken_back(inbox, planned)


def test_a_declaration_with_the_same_result_changes_nothing(inbox: InboxScenario) -> None:
    planned = plan(inbox)
    redeclare_tool("reversible", "idempotency_key")
    assert dispatch(inbox, planned).status_code == 200


def test_permission_by_ruling_is_checked_against_the_present_declaration(
    inbox: InboxScenario,
) -> None:
    redeclare_tool("compensable")
    planned = plan(inbox)
    inbox.answer(inbox.gate(planned), "reviewer")
    redeclare_tool("irreversible")
    taken_back(inbox, planned)
    assert Gate.objects.get().reason == "requirement_changed"


def test_a_ruling_still_counts_if_every_vote_meets_the_new_requirement(
    inbox: InboxScenario,
) -> None:
    redeclare_tool("compensable")
    planned = plan(inbox)
    inbox.answer(inbox.gate(planned), "reviewer", step_up="typed_digest")
    redeclare_tool("irreversible")
    assert dispatch(inbox, planned).status_code == 200


def test_a_proof_does_not_replace_a_required_reason(inbox: InboxScenario) -> None:
    redeclare_tool("compensable")
    planned = plan(inbox)
    inbox.answer(inbox.gate(planned), "reviewer", reason="", step_up="typed_digest")
    redeclare_tool("irreversible")
    taken_back(inbox, planned)


def test_a_ref_that_became_production_needs_approval_and_only_once(inbox: InboxScenario) -> None:
    planned = plan(inbox, **TOPIC)
    assert planned["answer"] == "proceed"
    patterns(inbox, "main\ntopic")
    taken_back(inbox, planned)
    again = plan(inbox, **TOPIC)
    assert again["answer"] == "wait"
    effect = inbox.effect(again)
    assert (effect.ref_class, effect.ref_patterns_version) == (
        "production",
        2,
    )  # it came again, and is stamped again
    inbox.answer(inbox.gate(again), "reviewer", step_up="typed_digest")
    assert dispatch(inbox, again).status_code == 200
    assert Gate.objects.count() == 1


def test_patterns_that_do_not_match_the_ref_change_nothing(inbox: InboxScenario) -> None:
    planned = plan(inbox, **TOPIC)
    patterns(inbox, "main\nlive")
    assert dispatch(inbox, planned).status_code == 200
    effect = inbox.effect(planned)
    assert (effect.ref_class, effect.ref_patterns_version) == (
        "other",
        1,
    )  # the past is not rewritten


def test_an_approved_push_to_a_ref_that_became_production_needs_more(inbox: InboxScenario) -> None:
    redeclare_tool("compensable")
    planned = plan(inbox, **TOPIC)
    inbox.answer(inbox.gate(planned), "reviewer")
    patterns(inbox, "topic")
    taken_back(inbox, planned)


def test_an_exemption_from_one_rule_does_not_cover_another_new_rule(inbox: InboxScenario) -> None:
    redeclare_tool("irreversible")
    with transaction.atomic():
        exemptions.create_exemption(
            inbox.project,
            tool="note.write",
            rule="final",
            reason="a release is going on",
            ends_at_us=now_us() + 60 * US,
            user=inbox.user("administrator"),
            **proved(),
        )
    planned = plan(inbox, **TOPIC)
    assert planned["permission_basis"] == "exemption"
    patterns(inbox, "topic")
    taken_back(inbox, planned)


def test_a_project_that_observes_evaluates_nothing_again(quiet: InboxScenario) -> None:
    quiet.rules(RULES, mode="observe")
    quiet.declare("note.write", "reversible")
    planned = plan(quiet)
    redeclare_tool("irreversible")
    assert dispatch(quiet, planned).status_code == 200


def test_a_reported_effect_keeps_its_policy_tool_class(inbox: InboxScenario) -> None:
    inbox.agent.session("s-1")
    fact = {
        "id": "p",
        "kind": "effect.planned",
        "session": "s-1",
        "effect_key": "e-9",
        "tool": "note.write",
    }
    assert inbox.agent.report([{**fact, "arguments": {}}]).status_code == 200
    assert Effect.objects.get().policy_tool_class == "idempotent/reversible"
