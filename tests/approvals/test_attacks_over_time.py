"""Ways round a gate that use other rules, an exemption, a late report or a clock."""

from typing import Any

import pytest
import time_machine
from django.db import transaction

from approvals import exemptions
from approvals.gates.statuses import OPEN_STATUSES, US
from approvals.models import Gate
from db.clock import now_us
from ledger.models import Attempt
from tests.api.api_client import code
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import RULES, InboxScenario
from tests.approvals.test_attacks import ALLOW, approved, dispatch, fact, rejected

pytestmark = pytest.mark.django_db


# --- policy, clocks, exemptions ---------------------------------------------------------------------------------------


def test_permission_by_rules_in_between_is_no_permission_by_the_first_ones(
    inbox: InboxScenario,
) -> None:
    """The plan was evaluated by the first rules; permission came from the second; the first are
    active again."""
    planned = inbox.plan()
    inbox.answer(inbox.gate(planned), "reviewer", "request_changes", "squash first")
    inbox.rules(ALLOW)
    assert inbox.plan()["answer"] == "proceed"
    inbox.rules()
    assert code(dispatch(inbox, planned)) == (409, "GATE_GONE")


def test_a_gate_of_rules_in_between_is_measured_by_the_first_ones(inbox: InboxScenario) -> None:
    strict = RULES.replace("minimum: 1", "minimum: 2")
    inbox.rules(strict)
    planned = inbox.plan()
    inbox.answer(inbox.gate(planned), "reviewer", "request_changes", "squash first")
    inbox.rules()
    approved(inbox)
    inbox.rules(strict)
    refused = dispatch(inbox, planned)
    assert (code(refused), refused.json()["reason"]) == ((409, "GATE_GONE"), "requirement_changed")


def test_what_was_planned_while_observing_and_then_returned_ran_without_approval(
    quiet: InboxScenario,
) -> None:
    quiet.rules(mode="observe")
    quiet.declare("git.push")
    planned = quiet.plan()
    quiet.rules()
    assert code(dispatch(quiet, planned)) == (409, "GATE_GONE")
    quiet.answer(quiet.gate(quiet.plan()), "reviewer", "request_changes", "squash first")
    quiet.agent.report([fact("d", "effect.dispatched")])
    effect = quiet.effect(planned)
    assert (effect.permission, effect.violates) == ("bypassed", True)


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_denied_for_good_outlives_a_laxer_policy(inbox: InboxScenario, mode: str) -> None:
    planned = inbox.plan("e-1")
    inbox.answer(inbox.gate(planned), "reviewer", "deny_session", "never in this session")
    inbox.agent.post(f"/effects/{planned['id']}/supersede")
    inbox.rules(ALLOW, mode)
    again = inbox.plan("e-2")
    assert (again["answer"], again["permission"]) == ("blocked", "denied")


def test_a_denial_for_the_session_reaches_the_same_call_of_the_same_turn(
    inbox: InboxScenario,
) -> None:
    """Two calls of one turn request the same; one is denied for the session, and the other may not
    run."""
    first, other = inbox.plan("e-1", turn="t-1"), inbox.plan("e-2", turn="t-1")
    inbox.answer(inbox.gate(other), "administrator")
    inbox.answer(inbox.gate(first), "reviewer", "deny_session", "never in this session")
    assert dispatch(inbox, other).status_code == 409
    assert not Attempt.objects.exists()


def test_permission_that_had_expired_is_not_used_by_a_report(inbox: InboxScenario) -> None:
    planned = approved(inbox)
    with time_machine.travel((inbox.gate(planned).permission_until_us or 0) / US + 1, tick=False):
        inbox.agent.report([fact("d", "effect.dispatched")])
    effect = inbox.effect(planned)
    assert (inbox.gate(planned).status, effect.permission, effect.violates) == (
        "expired_unused",
        "bypassed",
        True,
    )


def test_a_passed_deadline_is_not_recorded_as_a_cancellation(inbox: InboxScenario) -> None:
    planned = inbox.plan()
    with time_machine.travel(inbox.gate(planned).decide_by_us / US + 1, tick=False):
        inbox.agent.report([fact("d", "effect.dispatched")])
    assert (inbox.gate(planned).status, inbox.effect(planned).permission) == ("expired", "bypassed")


def exempted(inbox: InboxScenario, **scope: Any) -> Any:
    with transaction.atomic():
        return exemptions.create_exemption(
            inbox.project,
            tool="git.push",
            reason="a release is going on",
            ends_at_us=now_us() + 60 * US,
            user=inbox.user("administrator"),
            **scope,
            **proved(),
        )


def test_an_exemption_from_one_rule_is_none_from_another_that_came_later(
    inbox: InboxScenario,
) -> None:
    exempted(inbox, rule="push")
    planned = inbox.plan()
    assert planned["permission_basis"] == "exemption"
    inbox.rules(RULES.replace("id: push", "id: freeze"))
    assert code(dispatch(inbox, planned)) == (409, "GATE_GONE")


def test_an_exemption_that_ended_is_no_gate(inbox: InboxScenario) -> None:
    exemption = exempted(inbox)
    planned = inbox.plan()
    with time_machine.travel(exemption.ends_at_us / US + 1, tick=False):
        assert code(dispatch(inbox, planned)) == (409, "GATE_GONE")
    assert "gate" not in inbox.agent.get(f"/effects/{planned['id']}").json()


# --- what stays permitted ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lane", ["command", "evidence"])
@pytest.mark.parametrize("decided", [False, True])
def test_a_late_report_of_an_attempt_ends_the_gate_for_the_next(
    inbox: InboxScenario, lane: str, decided: bool
) -> None:
    planned = approved(inbox)
    rejected(inbox, planned)
    first = inbox.gate(planned)
    inbox.plan()
    second = inbox.gate(planned)
    if decided:
        inbox.answer(second, "reviewer")
    if lane == "command":
        late = inbox.agent.post(
            f"/effects/{planned['id']}/acknowledge", {"attempt": 1, "outcome": "ok"}
        )
        assert late.status_code == 202
    else:
        inbox.agent.report([fact("a", "effect.acknowledged", outcome="ok")])
    second.refresh_from_db()
    effect = inbox.effect(planned)
    assert (effect.state, effect.permission, effect.permission_ref) == (
        "acknowledged",
        "used",
        first.id.hex,
    )
    assert (second.status, second.used_attempt) == ("cancelled", None)
    assert not Gate.objects.filter(status__in=OPEN_STATUSES).exists()


def test_an_attempt_that_was_only_observed_ends_the_gate_for_the_next_too(
    quiet: InboxScenario,
) -> None:
    quiet.agent.session("s-1")
    quiet.agent.report(
        [
            fact("p", "effect.planned", tool="git.push", arguments={"ref": "main"}),
            fact("d", "effect.dispatched"),
            fact("f", "effect.failed", reason="rejected"),
        ]
    )
    quiet.rules()
    quiet.declare("git.push")
    planned = quiet.plan()
    assert planned["answer"] == "wait"
    quiet.agent.report([fact("a", "effect.acknowledged", outcome="ok")])
    assert quiet.effect(planned).permission == "observed"
    assert quiet.gate(planned).status == "cancelled"


@pytest.mark.parametrize("lane", ["command", "evidence"])
@pytest.mark.parametrize("decided", [False, True])
def test_a_withdrawn_effect_keeps_no_permission(
    inbox: InboxScenario, lane: str, decided: bool
) -> None:
    planned = approved(inbox) if decided else inbox.plan()
    if lane == "command":
        inbox.agent.post(f"/effects/{planned['id']}/supersede")
    else:
        inbox.agent.report([fact("s", "effect.superseded")])
    effect = inbox.effect(planned)
    assert (effect.state, effect.permission, effect.permission_basis) == (
        "superseded",
        "none",
        "cancelled",
    )
    assert inbox.gate(planned).status == "cancelled"


def test_an_effect_that_may_have_happened_is_not_repeated(quiet: InboxScenario) -> None:
    quiet.agent.session("s-1")
    quiet.agent.report(
        [
            fact("p", "effect.planned", tool="git.push", arguments={"ref": "main"}),
            fact("d", "effect.dispatched"),
            fact("z", "effect.failed", reason="rejected"),
        ]
    )
    planned = quiet.plan()
    assert planned["answer"] == "proceed"
    quiet.agent.report([fact("a", "effect.failed", reason="timeout")])
    assert code(dispatch(quiet, planned)) == (409, "ALREADY_DISPATCHED")
