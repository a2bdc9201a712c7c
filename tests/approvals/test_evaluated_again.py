"""Permission is evaluated again at its use when a tool was declared anew, or patterns of refs changed,
since the plan."""

from typing import Any

import pytest
from django.db import transaction

from accounts import repositories
from approvals import exemptions
from approvals.gates.statuses import US
from approvals.models import Gate
from approvals.policies import policy_inputs
from db.clock import now_us
from ledger.models import Attempt, Effect, Tool
from ledger.tools import cache
from tests.api.api_client import code
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import Desk

pytestmark = pytest.mark.django_db
RULES = """
name: house
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
def desk(quiet: Desk) -> Desk:
    """Reversible tools are let go, but for production; note.write is one."""
    quiet.rules(RULES)
    quiet.declare("note.write", "reversible")
    return quiet


def plan(desk: Desk, effect_key: str = "e-1", **fields: Any) -> dict[str, Any]:
    return desk.plan(effect_key, tool="note.write", **fields)


def dispatch(desk: Desk, effect: dict[str, Any]) -> Any:
    body = {"process": "p-1", "intent_digest": effect["intent_digest"]}
    return desk.agent.post(f"/effects/{effect['id']}/dispatch", body)


def declare_anew(reversibility: str = "reversible", tool_class: str = "idempotent") -> None:
    Tool.objects.filter(name="note.write").update(
        reversibility=reversibility, tool_class=tool_class
    )
    cache.clear_tool_cache()


def patterns(desk: Desk, production: str) -> None:
    repositories.change_ref_patterns(
        desk.house.repository, production=production, protected="", actor="tests"
    )


def taken_back(desk: Desk, planned: dict[str, Any]) -> None:
    refused = dispatch(desk, planned)
    assert (code(refused), refused.json()["reason"]) == ((409, "GATE_GONE"), "requirement_changed")
    assert not Attempt.objects.exists()
    assert desk.effect(planned).permission == "none"


def test_what_is_as_it_was_planned_is_not_evaluated_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan(desk, **TOPIC)
    assert (desk.effect(planned).policy_tool_class, desk.effect(planned).ref_patterns_version) == (
        "idempotent/reversible",
        1,
    )
    monkeypatch.delattr(
        policy_inputs, "build_stored_policy_input"
    )  # whoever judges again reads the plan by it
    assert dispatch(desk, planned).status_code == 200


@pytest.mark.parametrize("removed", [False, True])
def test_permission_by_policy_ends_with_the_declaration_that_earned_it(
    desk: Desk, removed: bool
) -> None:
    planned = plan(desk)
    assert planned["answer"] == "proceed"
    if removed:
        Tool.objects.all().delete()
        cache.clear_tool_cache()
    else:
        declare_anew("irreversible")
    taken_back(desk, planned)
    again = plan(desk)
    assert again["answer"] == "wait"
    gate, effect = desk.gate(again), desk.effect(again)
    assert (gate.reversibility, gate.step_up, effect.policy_outcome) == (
        "irreversible",
        "typed_digest",
        "ask",
    )
    assert effect.policy_tool_class == (
        "opaque/irreversible" if removed else "idempotent/irreversible"
    )
    assert desk.answer(gate, "reviewer", step_up="typed_digest").refusal is None
    assert dispatch(desk, again).status_code == 200


def test_a_tool_that_no_longer_only_reads_is_asked_about(desk: Desk) -> None:
    """No rule speaks of a compensable tool: it passed because it was declared to change nothing."""
    declare_anew("compensable", "read_only")
    planned = plan(desk)
    assert planned["answer"] == "proceed"
    declare_anew("compensable", "idempotent")
    taken_back(desk, planned)


def test_another_declaration_of_which_the_same_follows_changes_nothing(desk: Desk) -> None:
    planned = plan(desk)
    declare_anew("reversible", "idempotency_key")
    assert dispatch(desk, planned).status_code == 200


def test_permission_by_ruling_is_measured_by_what_it_now_is(desk: Desk) -> None:
    declare_anew("compensable")
    planned = plan(desk)
    desk.answer(desk.gate(planned), "reviewer")
    declare_anew("irreversible")
    taken_back(desk, planned)
    assert Gate.objects.get().reason == "requirement_changed"


def test_permission_by_ruling_stands_where_every_yes_gave_what_would_be_asked_now(
    desk: Desk,
) -> None:
    declare_anew("compensable")
    planned = plan(desk)
    desk.answer(desk.gate(planned), "reviewer", step_up="typed_digest")
    declare_anew("irreversible")
    assert dispatch(desk, planned).status_code == 200


def test_a_proof_is_not_enough_where_words_are_wanting(desk: Desk) -> None:
    declare_anew("compensable")
    planned = plan(desk)
    desk.answer(desk.gate(planned), "reviewer", reason="", step_up="typed_digest")
    declare_anew("irreversible")
    taken_back(desk, planned)


def test_a_ref_that_became_production_is_asked_about_and_asked_once(desk: Desk) -> None:
    planned = plan(desk, **TOPIC)
    assert planned["answer"] == "proceed"
    patterns(desk, "main\ntopic")
    taken_back(desk, planned)
    again = plan(desk, **TOPIC)
    assert again["answer"] == "wait"
    effect = desk.effect(again)
    assert (effect.ref_class, effect.ref_patterns_version) == (
        "production",
        2,
    )  # it came again, and is stamped again
    desk.answer(desk.gate(again), "reviewer", step_up="typed_digest")
    assert dispatch(desk, again).status_code == 200
    assert Gate.objects.count() == 1


def test_patterns_that_leave_the_ref_alone_change_nothing(desk: Desk) -> None:
    planned = plan(desk, **TOPIC)
    patterns(desk, "main\nlive")
    assert dispatch(desk, planned).status_code == 200
    effect = desk.effect(planned)
    assert (effect.ref_class, effect.ref_patterns_version) == (
        "other",
        1,
    )  # the past is not rewritten


def test_an_approved_push_to_what_became_production_takes_more(desk: Desk) -> None:
    declare_anew("compensable")
    planned = plan(desk, **TOPIC)
    desk.answer(desk.gate(planned), "reviewer")
    patterns(desk, "topic")
    taken_back(desk, planned)


def test_an_exemption_from_one_rule_is_none_from_another_that_now_asks_too(desk: Desk) -> None:
    declare_anew("irreversible")
    with transaction.atomic():
        exemptions.create_exemption(
            desk.project,
            tool="note.write",
            rule="final",
            reason="a release is going on",
            ends_at_us=now_us() + 60 * US,
            user=desk.user("administrator"),
            **proved(),
        )
    planned = plan(desk, **TOPIC)
    assert planned["permission_basis"] == "exemption"
    patterns(desk, "topic")
    taken_back(desk, planned)


def test_a_project_that_observes_judges_nothing_again(quiet: Desk) -> None:
    quiet.rules(RULES, mode="observe")
    quiet.declare("note.write", "reversible")
    planned = plan(quiet)
    declare_anew("irreversible")
    assert dispatch(quiet, planned).status_code == 200


def test_what_was_reported_keeps_its_policy_tool_class(desk: Desk) -> None:
    desk.agent.session("s-1")
    fact = {
        "id": "p",
        "kind": "effect.planned",
        "session": "s-1",
        "effect_key": "e-9",
        "tool": "note.write",
    }
    assert desk.agent.report([{**fact, "arguments": {}}]).status_code == 200
    assert Effect.objects.get().policy_tool_class == "idempotent/reversible"
