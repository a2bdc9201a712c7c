"""A gate from its request to its end, through the agents' endpoints and people's services."""

from typing import Any

import pytest
import time_machine

from approvals.gates import gates
from approvals.gates.statuses import US
from approvals.models import Gate, Vote
from journal.models import Entry, Outbox
from ledger.models import Attempt, Effect
from tests.api.api_client import code
from tests.approvals.inbox_scenario import RULES, InboxScenario

pytestmark = pytest.mark.django_db


def dispatch(inbox: InboxScenario, effect: dict[str, Any], **fields: Any) -> Any:
    body = {"process": "p-1", "intent_digest": effect["intent_digest"], **fields}
    return inbox.agent.post(f"/effects/{effect['id']}/dispatch", body)


def kinds(gate: Gate) -> list[str]:
    return list(
        Entry.objects.filter(subject=gate.id).order_by("position").values_list("kind", flat=True)
    )


def test_a_push_waits_is_approved_used_and_done(inbox: InboxScenario) -> None:
    planned = inbox.plan()
    assert (planned["answer"], planned["permission"]) == ("wait", "pending")
    gate = inbox.gate(planned)
    assert planned["gate"]["id"] == str(gate.id)
    assert gate.status == "pending"
    assert code(dispatch(inbox, planned)) == (409, "GATE_PENDING")

    assert inbox.answer(gate, "reviewer").refusal is None
    gate.refresh_from_db()
    effect = inbox.effect(planned)
    assert (gate.status, effect.permission, effect.permission_basis) == (
        "approved",
        "granted",
        "ruling",
    )
    assert (
        effect.permission_until_us
        == gate.permission_until_us
        == (gate.decided_at_us or 0) + gate.valid_for_s * US
    )

    assert dispatch(inbox, planned).status_code == 200
    gate.refresh_from_db()
    effect.refresh_from_db()
    assert (gate.status, gate.used_attempt, effect.permission, effect.state) == (
        "used",
        1,
        "used",
        "dispatched",
    )
    assert Attempt.objects.get(effect=effect).permission == "used"
    assert kinds(gate) == [
        "gate.requested",
        "gate.voted",
        "gate.ruled",
        "effect.granted",
        "gate.used",
    ]
    inbox.agent.acknowledge(planned)
    assert inbox.effect(planned).state == "acknowledged"


def test_an_allowed_plan_is_granted_at_once_and_its_rule_is_stored(inbox: InboxScenario) -> None:
    planned = inbox.plan(tool="file.read")
    effect = inbox.effect(planned)
    assert (planned["answer"], effect.permission_basis) == ("proceed", "policy")
    assert (effect.policy_outcome, effect.policy_rule, effect.policy_enforced) == (
        "allow",
        "basic@1/reads",
        True,
    )
    assert dispatch(inbox, planned).status_code == 200
    assert not Gate.objects.exists()


def test_a_plan_denied_by_policy_opens_no_gate(inbox: InboxScenario) -> None:
    planned = inbox.plan(tool="git.tag")
    assert (planned["answer"], planned["permission"], planned["permission_basis"]) == (
        "blocked",
        "denied",
        "policy",
    )
    assert code(dispatch(inbox, planned)) == (409, "GATE_DENIED")
    assert not Gate.objects.exists()


def test_an_unmatched_mutating_tool_needs_approval(inbox: InboxScenario) -> None:
    planned = inbox.plan(tool="mail.send")
    gate = inbox.gate(planned)
    assert (planned["permission"], gate.rule, gate.reversibility) == ("pending", "", "irreversible")
    assert (
        gate.requirement["step_up"] == "typed_digest"
    )  # the tool is unknown: the worst is assumed


def test_a_project_that_observes_permits_and_counts_what_would_need_approval(
    quiet: InboxScenario,
) -> None:
    quiet.rules(mode="observe")
    effect = quiet.effect(quiet.plan())
    assert (
        effect.permission,
        effect.permission_basis,
        effect.policy_outcome,
        effect.policy_enforced,
    ) == (
        "granted",
        "observe",
        "ask",
        False,
    )
    assert not Gate.objects.exists()


@pytest.mark.parametrize(
    ("answer", "status", "permission"),
    [
        ("deny", "denied", "denied"),
        ("deny_session", "denied_session", "denied"),
        ("request_changes", "changes_requested", "none"),
    ],
)
def test_a_denial_ends_the_gate_and_blocks_the_dispatch(
    inbox: InboxScenario, answer: str, status: str, permission: str
) -> None:
    planned = inbox.plan()
    gate = inbox.gate(planned)
    inbox.answer(gate, "reviewer", answer, "rewrites released history")
    gate.refresh_from_db()
    effect = inbox.effect(planned)
    assert (gate.status, effect.permission) == (status, permission)
    assert dispatch(inbox, planned).status_code == 409
    assert inbox.effect(planned).state == "planned"


def test_denied_for_good_refuses_the_same_for_the_rest_of_the_session(inbox: InboxScenario) -> None:
    planned = inbox.plan("e-1")
    inbox.answer(inbox.gate(planned), "reviewer", "deny_session", "never on a Friday")
    inbox.agent.post(f"/effects/{planned['id']}/supersede")
    again = inbox.plan("e-2")
    assert (again["answer"], again["permission"], again["gate"]["id"]) == (
        "blocked",
        "denied",
        planned["gate"]["id"],
    )
    other = inbox.plan("e-3", arguments={"ref": "topic"})
    assert other["answer"] == "wait"
    assert Gate.objects.count() == 2


def test_after_a_request_for_changes_the_agent_may_request_again(inbox: InboxScenario) -> None:
    planned = inbox.plan()
    first = inbox.gate(planned)
    inbox.answer(first, "reviewer", "request_changes", "squash first, please")
    assert inbox.agent.get(f"/effects/{planned['id']}").json()["answer"] == "blocked"
    again = inbox.plan()
    second = inbox.gate(again)
    assert (again["answer"], second.id != first.id) == ("wait", True)
    inbox.answer(second, "reviewer")
    assert dispatch(inbox, planned).status_code == 200


def test_a_passed_deadline_counts_before_any_job_runs(inbox: InboxScenario) -> None:
    planned = inbox.plan()
    gate = inbox.gate(planned)
    with time_machine.travel(gate.decide_by_us / US + 1, tick=False):
        assert inbox.answer(gate, "reviewer").refusal == (
            "expired",
            "This request expired 0 s ago. It was not approved.",
        )
        assert code(dispatch(inbox, planned)) == (409, "GATE_EXPIRED")
    assert not Vote.objects.exists()
    assert Gate.objects.get().status == "expired"


def test_the_job_expires_late_gates_once(inbox: InboxScenario) -> None:
    gate, approved = (
        inbox.gate(inbox.plan("e-1")),
        inbox.gate(inbox.plan("e-2", arguments={"ref": "topic"})),
    )
    inbox.answer(approved, "reviewer")
    approved.refresh_from_db()
    with time_machine.travel(
        max(gate.decide_by_us, approved.permission_until_us or 0) / US + 1, tick=False
    ):
        assert gates.expire_due_gates() == 2
        assert gates.expire_due_gates() == 0
    assert dict(Gate.objects.values_list("id", "status")) == {
        gate.id: "expired",
        approved.id: "expired_unused",
    }
    for resolved in (gate, approved):
        assert Outbox.objects.filter(
            topic="gate.resolved", deduplication_key__contains=resolved.id.hex
        ).exists()


def test_permission_that_expired_unused_may_be_requested_again(inbox: InboxScenario) -> None:
    planned = inbox.plan()
    gate = inbox.gate(planned)
    inbox.answer(gate, "reviewer")
    gate.refresh_from_db()
    with time_machine.travel((gate.permission_until_us or 0) / US + 1, tick=False):
        assert inbox.agent.get(f"/effects/{planned['id']}").json()["answer"] == "wait"
        assert code(dispatch(inbox, planned)) == (409, "GATE_GONE")
        assert inbox.plan()["answer"] == "wait"
    assert [row.status for row in Gate.objects.order_by("opened_position")] == [
        "expired_unused",
        "pending",
    ]


def test_permission_is_used_once(inbox: InboxScenario) -> None:
    planned = inbox.plan()
    inbox.answer(inbox.gate(planned), "reviewer")
    assert dispatch(inbox, planned).status_code == 200
    assert code(dispatch(inbox, planned, process="p-2")) == (409, "ALREADY_DISPATCHED")
    inbox.agent.fail(planned, "rejected")
    assert code(dispatch(inbox, planned)) == (409, "NO_PERMISSION")
    assert inbox.plan()["answer"] == "wait"  # a new attempt needs new permission
    assert Gate.objects.count() == 2


def test_two_people_are_two_people(inbox: InboxScenario) -> None:
    planned = inbox.plan(tool="deploy")
    gate = inbox.gate(planned)
    assert inbox.answer(gate, "reviewer").refusal is None
    assert inbox.answer(gate, "reviewer").refusal[0] == "duplicate_vote"  # type: ignore[index]
    assert Gate.objects.get().status == "pending"
    assert inbox.answer(gate, "administrator").refusal is None
    assert Gate.objects.get().status == "approved"


def test_the_owner_of_the_agent_may_deny_and_not_approve(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan())
    assert inbox.answer(gate, "operator").refusal[0] == "self_approval"  # type: ignore[index]
    assert inbox.answer(gate, "viewer").refusal[0] == "not_eligible"  # type: ignore[index]
    assert not Vote.objects.exists()
    assert inbox.answer(gate, "operator", "deny", "I take it back").refusal is None
    assert Gate.objects.get().status == "denied"


def test_a_stale_page_decides_nothing(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan(tool="deploy"))
    seen = inbox.shown(gate)
    inbox.answer(gate, "reviewer")
    assert inbox.answer(gate, "administrator", shown=seen).refusal[0] == "stale_view"  # type: ignore[index]
    cut = inbox.shown(gate, complete=False)
    assert inbox.answer(gate, "administrator", shown=cut).refusal[0] == "stale_view"  # type: ignore[index]
    assert Vote.objects.count() == 1


def test_an_irreversible_effect_needs_a_code_and_a_reason(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan(tool="mail.send"))
    assert inbox.answer(gate, "reviewer").refusal[0] == "step_up_required"  # type: ignore[index]
    proven = {"step_up": "typed_digest"}
    assert inbox.answer(gate, "reviewer", reason="", **proven).refusal[0] == "rationale_required"  # type: ignore[index]
    assert inbox.answer(gate, "reviewer", **proven).refusal is None
    assert Vote.objects.get().step_up == "typed_digest"


def test_other_arguments_than_those_seen_are_refused(inbox: InboxScenario) -> None:
    planned = inbox.plan()
    inbox.answer(inbox.gate(planned), "reviewer")
    changed = dispatch(inbox, planned, intent_digest=None, arguments={"ref": "main", "force": True})
    assert code(changed) == (409, "INTENT_MISMATCH")
    assert inbox.effect(planned).state == "planned"


def test_preconditions_are_bound(inbox: InboxScenario) -> None:
    planned = inbox.plan(preconditions={"head": "4be1c9e"})
    inbox.answer(inbox.gate(planned), "reviewer")
    moved = dispatch(inbox, planned, preconditions={"head": "9d02a77"})
    assert (code(moved), moved.json()["reason"]) == (
        (409, "INTENT_MISMATCH"),
        "precondition_changed",
    )
    gate = Gate.objects.get()
    assert (gate.status, gate.reason, inbox.effect(planned).permission) == (
        "revoked",
        "precondition_changed",
        "none",
    )


def test_a_stricter_policy_takes_permission_back_and_an_unrelated_edit_does_not(
    inbox: InboxScenario,
) -> None:
    first, second = inbox.plan("e-1"), inbox.plan("e-2", arguments={"ref": "topic"})
    for planned in (first, second):
        inbox.answer(inbox.gate(planned), "reviewer")
    inbox.rules(RULES.replace("tools: [file.read]", "tools: [file.read, file.list]"))
    assert dispatch(inbox, first).status_code == 200
    inbox.rules(RULES.replace("minimum: 1", "minimum: 2"))
    refused = dispatch(inbox, second)
    assert (code(refused), refused.json()["reason"]) == ((409, "GATE_GONE"), "requirement_changed")
    assert inbox.gate(second).status == "revoked"


def test_permission_by_observing_ends_when_the_project_enforces(quiet: InboxScenario) -> None:
    planned = quiet.plan()
    assert planned["answer"] == "proceed"
    quiet.rules()
    assert code(dispatch(quiet, planned)) == (409, "GATE_GONE")
    assert quiet.plan()["answer"] == "wait"


def test_the_agent_that_withdraws_takes_its_gate_with_it(inbox: InboxScenario) -> None:
    planned = inbox.plan()
    inbox.agent.post(f"/effects/{planned['id']}/supersede")
    gate = Gate.objects.get()
    assert (gate.status, gate.reason, inbox.effect(planned).state) == (
        "cancelled",
        "superseded",
        "superseded",
    )


def test_a_session_that_ends_takes_its_gates_with_it(inbox: InboxScenario) -> None:
    planned = inbox.plan()
    session = inbox.agent.session("s-1")
    assert (
        inbox.agent.post(f"/sessions/{session['id']}/end", {"status": "completed"}).status_code
        == 200
    )
    gate = Gate.objects.get()
    assert (gate.status, gate.reason, inbox.effect(planned).permission_basis) == (
        "cancelled",
        "session_ended",
        "cancelled",
    )


def fact(identity: str, kind: str, effect_key: str = "e-1", **fields: Any) -> dict[str, Any]:
    return {"id": identity, "kind": kind, "session": "s-1", "effect_key": effect_key, **fields}


def test_an_effect_that_ran_while_its_gate_was_open_ran_without_approval(
    inbox: InboxScenario,
) -> None:
    planned = inbox.plan()
    inbox.agent.report(
        [fact("d", "effect.dispatched"), fact("a", "effect.acknowledged", outcome="ok")]
    )
    effect, gate = inbox.effect(planned), Gate.objects.get()
    assert (effect.state, effect.permission, effect.violates) == ("acknowledged", "bypassed", True)
    assert (gate.status, gate.reason) == ("cancelled", "bypassed")
    assert Entry.objects.filter(kind="integrity.violation", effect=effect.id).count() == 1


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("late_plan", [True, False])
def test_a_reported_effect_that_needed_permission_ran_without_approval(
    inbox: InboxScenario, together: bool, late_plan: bool
) -> None:
    facts = [
        fact("p", "effect.planned", tool="git.push", arguments={"ref": "main"}),
        fact("d", "effect.dispatched"),
        fact("a", "effect.acknowledged", outcome="ok"),
    ]
    if late_plan:
        facts = [*facts[1:], facts[0]]
    for batch in [facts] if together else [[item] for item in facts]:
        assert inbox.agent.report(batch).status_code == 200
    effect = Effect.objects.get()
    assert (effect.permission, effect.permission_basis, effect.violates) == (
        "bypassed",
        "policy",
        True,
    )
    assert Attempt.objects.get().permission == "bypassed"
    assert Entry.objects.filter(kind="integrity.violation").count() == 1


def test_a_reported_effect_that_was_allowed_is_observed(inbox: InboxScenario) -> None:
    inbox.agent.report(
        [
            fact("p", "effect.planned", tool="file.read", arguments={}),
            fact("d", "effect.dispatched"),
        ]
    )
    effect = Effect.objects.get()
    assert (effect.permission, effect.permission_basis, effect.violates) == (
        "observed",
        "policy",
        False,
    )


def test_evidence_uses_permission_that_was_given(inbox: InboxScenario) -> None:
    planned = inbox.plan()
    inbox.answer(inbox.gate(planned), "reviewer")
    inbox.agent.report([fact("d", "effect.dispatched")])
    gate = Gate.objects.get()
    assert (gate.status, gate.used_attempt, inbox.effect(planned).permission) == ("used", 1, "used")
