"""Replays under an approval: it is for one attempt, and few rows of the table reuse it."""

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from accounts import agents, people, tokens
from approvals.models import Gate
from ledger.models import Attempt
from tests.api.api_client import Caller, code
from tests.approvals.conftest import quiet as quiet
from tests.approvals.inbox_scenario import InboxScenario
from tests.recovery.remote import declare, replay, row, verdict
from tests.sessions.team_helpers import one_team

pytestmark = pytest.mark.django_db
REQUIRED = """
name: basic
rules:
  - {id: all, title: All, match: {}, outcome: require, require: {minimum: 1}}
"""
STRICTER = REQUIRED.replace("minimum: 1", "minimum: 2")
LAX = "name: basic\nrules:\n  - {id: all, title: All, match: {}, outcome: allow}\n"
DENIED = "name: basic\nrules:\n  - {id: all, title: All, match: {}, outcome: deny}\n"


@pytest.fixture
def inbox(quiet: InboxScenario) -> InboxScenario:
    """An inbox where everything needs approval, with the tools of these tests."""
    quiet.rules(REQUIRED)
    declare(quiet.project)
    return quiet


def dispatch_approved(inbox: InboxScenario, tool: str, **fields: Any) -> dict[str, Any]:
    """Plan, approve and dispatch an effect without a further report."""
    effect = inbox.plan(tool=tool, **fields)
    gate = Gate.objects.filter(effect=effect["id"]).first()
    if gate is not None:
        assert inbox.answer(gate, "reviewer").refusal is None
    inbox.agent.dispatch(effect)
    return effect


def attempt_rows(effect: dict[str, Any]) -> list[tuple[int, str, str]]:
    rows = Attempt.objects.filter(effect=effect["id"]).order_by("number")
    return [(attempt.number, attempt.verdict_row, attempt.permission) for attempt in rows]


def test_a_row_that_cannot_act_twice_reuses_the_permission(inbox: InboxScenario) -> None:
    effect = dispatch_approved(inbox, "pay.keyed")
    assert verdict(inbox.agent, effect)["needs_permission"] is False
    assert replay(inbox.agent, effect).status_code == 200
    assert attempt_rows(effect) == [(1, "", "used"), (2, "17", "used")]
    gate = inbox.gate(effect)
    assert (gate.status, gate.used_attempt) == ("used", 1)
    assert Gate.objects.count() == 1


def test_any_other_row_needs_a_new_approval(inbox: InboxScenario) -> None:
    effect = dispatch_approved(inbox, "file.put", target={"resource": "x"})
    current = verdict(inbox.agent, effect)
    assert (current["verdict"], current["row"], current["needs_permission"]) == (
        "replay",
        "15",
        True,
    )
    assert code(replay(inbox.agent, effect)) == (409, "NO_PERMISSION")
    again = inbox.plan(tool="file.put", target={"resource": "x"})
    assert (again["answer"], again["permission"]) == ("ambiguous", "pending")
    assert again["verdict"]["reason"] == "GATE_PENDING"
    assert code(replay(inbox.agent, effect)) == (409, "GATE_PENDING")
    assert inbox.answer(inbox.gate(effect), "reviewer").refusal is None
    assert row(inbox.agent, effect) == ("replay", "15", "PUT_LATEST")
    assert verdict(inbox.agent, effect)["needs_permission"] is False
    assert replay(inbox.agent, effect).status_code == 200
    assert attempt_rows(effect) == [(1, "", "used"), (2, "15", "used")]
    gates = list(Gate.objects.order_by("opened_position").values_list("status", "used_attempt"))
    assert gates == [("used", 1), ("used", 2)]
    assert inbox.agent.acknowledge(effect, 2)["state"] == "acknowledged"
    assert inbox.effect(effect).violates is False


def test_a_report_of_the_agent_counts_after_a_new_permission_request(
    inbox: InboxScenario,
) -> None:
    effect = dispatch_approved(inbox, "file.put", target={"resource": "x"})
    inbox.plan(tool="file.put", target={"resource": "x"})
    late = inbox.agent.post(f"/effects/{effect['id']}/acknowledge", {"attempt": 1, "outcome": "ok"})
    assert (late.status_code, late.json()["state"]) == (202, "acknowledged")
    assert row(inbox.agent, effect) == ("skip", "7", "DONE")
    assert inbox.gate(effect).status == "cancelled"


def test_a_denied_replay_does_not_run_and_the_attempt_stays_in_doubt(inbox: InboxScenario) -> None:
    effect = dispatch_approved(inbox, "file.put", target={"resource": "x"})
    inbox.plan(tool="file.put", target={"resource": "x"})
    assert inbox.answer(inbox.gate(effect), "reviewer", "deny").refusal is None
    assert row(inbox.agent, effect) == ("escalate", "4", "GATE_DENIED")
    assert code(replay(inbox.agent, effect)) == (409, "GATE_DENIED")
    assert len(attempt_rows(effect)) == 1


def test_a_repeated_plan_opens_no_gate_if_the_row_needs_none(inbox: InboxScenario) -> None:
    effect = dispatch_approved(inbox, "pay.keyed")
    again = inbox.plan(tool="pay.keyed")
    assert (again["answer"], again["permission"]) == ("ambiguous", "used")
    assert inbox.effect(effect).state == "dispatched"
    assert Gate.objects.count() == 1


def test_stricter_rules_need_a_new_approval_before_a_replay(inbox: InboxScenario) -> None:
    effect = dispatch_approved(inbox, "pay.keyed")
    inbox.rules(STRICTER)
    refused = replay(inbox.agent, effect)
    assert (code(refused), refused.json()["reason"]) == ((409, "GATE_GONE"), "requirement_changed")
    assert refused.json()["verdict"]["needs_permission"] is True
    assert inbox.gate(effect).status == "used"
    again = inbox.plan(tool="pay.keyed")
    assert again["permission"] == "pending"
    assert inbox.answer(inbox.gate(effect), "reviewer").refusal is None
    assert code(replay(inbox.agent, effect)) == (409, "GATE_PENDING")
    inbox.person("second")
    assert inbox.answer(inbox.gate(effect), "second").refusal is None
    assert replay(inbox.agent, effect).status_code == 200
    assert (
        Attempt.objects.get(effect=effect["id"], number=2).remote_key
        == verdict(inbox.agent, effect)["remote_key"]
    )


def test_permission_by_policy_is_reused_by_every_row_until_rules_deny_it(
    inbox: InboxScenario,
) -> None:
    inbox.rules(LAX)
    effect = dispatch_approved(inbox, "file.put", target={"resource": "x"})
    assert verdict(inbox.agent, effect)["needs_permission"] is False
    inbox.rules(DENIED)
    refused = replay(inbox.agent, effect)
    assert (code(refused), refused.json()["reason"]) == ((409, "GATE_GONE"), "requirement_changed")
    assert inbox.plan(tool="file.put", target={"resource": "x"})["permission"] == "denied"
    assert row(inbox.agent, effect)[2] == "GATE_DENIED"


def test_the_approval_of_an_inactive_approver_no_longer_counts(inbox: InboxScenario) -> None:
    effect = dispatch_approved(inbox, "pay.keyed")
    member = inbox.person("reviewer")
    people.close_account(member.user.username)
    refused = replay(inbox.agent, effect)
    assert (code(refused), refused.json()["reason"]) == ((409, "GATE_GONE"), "quorum_lost")


def test_other_preconditions_than_the_approved_ones_are_refused(inbox: InboxScenario) -> None:
    effect = inbox.plan(tool="file.put", preconditions={"etag": "a"})
    inbox.answer(inbox.gate(effect), "reviewer")
    body = {
        "process": "p-1",
        "intent_digest": effect["intent_digest"],
        "preconditions": {"etag": "a"},
    }
    assert inbox.agent.post(f"/effects/{effect['id']}/dispatch", body).status_code == 200
    assert row(inbox.agent, effect) == ("replay", "14", "CONDITIONAL_PUT")
    refused = replay(inbox.agent, effect, preconditions={"etag": "b"})
    assert (code(refused), refused.json()["reason"]) == (
        (409, "INTENT_MISMATCH"),
        "precondition_changed",
    )
    assert replay(inbox.agent, effect, preconditions={"etag": "a"}).status_code == 200


def test_permission_of_one_agent_is_not_used_by_another(inbox: InboxScenario) -> None:
    effect = dispatch_approved(inbox, "pay.keyed")
    with transaction.atomic():
        token = tokens.issue_token(
            agents.ensure_agent(inbox.project, "another"), expires_in=None, actor="tests"
        )
    one_team("deploy-7", "another")
    other = Caller(token, app=inbox.agent.client._transport.app)  # type: ignore[attr-defined]
    assert code(replay(other, effect)) == (409, "NO_PERMISSION")


def test_the_database_rejects_reuse_of_an_approval_by_another_row(
    inbox: InboxScenario,
) -> None:
    effect = dispatch_approved(inbox, "pay.keyed")
    first = Attempt.objects.get(effect=effect["id"])
    Attempt.objects.filter(id=first.id).update(is_open=False, replaced=True)
    columns = {
        "project_id": first.project_id,
        "effect_id": first.effect_id,
        "number": 2,
        "remote_key": "another",
        "lane": "command",
        "permission": "used",
        "dispatched_mark": "m",
        "replaces": 1,
    }
    with (
        pytest.raises(IntegrityError, match="permission_by_ruling_is_reused_by_few_rows"),
        transaction.atomic(),
    ):
        Attempt.objects.create(**columns, verdict_row="15")
    Attempt.objects.create(**columns, verdict_row="17")
