"""The decisions on a plan, as tables: context in, decision out, without a database."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import pytest

from approvals.gates.gates import GateDraft
from approvals.models import Exemption
from approvals.plan_command import (
    PermissionContext,
    PlanContext,
    PlanDecision,
    decide_plan,
    find_plan_refusal,
)
from approvals.policies.engine import CompiledPolicy, PolicyDecision, PolicyInput, Requirement
from approvals.policies.policy_evaluation import (
    ActivePolicy,
    CommandContext,
    PlanPayload,
    PolicyEvaluation,
)
from ledger.circuit_breakers import CircuitOpen
from ledger.commands import Plan, PlannedEffect
from ledger.permissions import Grant
from ledger.refusals import KEY_REUSED, SESSION_ENDED_REFUSAL, STOPPED_REFUSAL
from ledger.store.effect_rows import EffectRow
from sessions.writers import LEASE_LOST_TEXT, StaleEpoch

pytestmark = pytest.mark.once
NOW: Final = 1_000_000_000_000_000
S: Final = 1_000_000
SESSION, EFFECT, GATE, DENIED, POLICY, EXEMPTION = (UUID(int=number) for number in range(1, 7))
PLAN: Final = Plan(SESSION, "e-1", "git.push", "v1:1", {})
COMPENSATION: Final = replace(PLAN, values={"compensates_id": UUID(int=9)})
INPUT: Final = PolicyInput(
    tool="git.push",
    repository="",
    ref="",
    ref_class="",
    environment="",
    resource="",
    tool_class="idempotent",
    reversibility="compensable",
    declared=True,
    risk="medium",
    agent="tester",
    labels={},
    arguments={},
)
REQUIREMENT: Final = Requirement(minimum=2, decide_within_s=60)
EXEMPTED: Final = Exemption(id=EXEMPTION, ends_at_us=NOW + 5 * S)
FRESH: Final = {"ref_class": "production"}  # what a repeated plan reads again


def evaluation(outcome: str, mode: str = "enforce") -> PolicyEvaluation:
    policy = ActivePolicy(POLICY, "basic@3", mode, CompiledPolicy(()))
    requirement = REQUIREMENT if outcome == "ask" else None
    return PolicyEvaluation(policy, INPUT, PolicyDecision(outcome, "push", requirement))


def policy_outcome(outcome: str, *, policy_enforced: bool = True) -> dict[str, Any]:
    return {
        "policy_outcome": outcome,
        "policy_rule": "basic@3/push",
        "policy_tool_class": "idempotent/compensable",
        "policy_parts_digest": "",
        "policy_enforced": policy_enforced,
    }


def context(outcome: str = "", mode: str = "enforce", **fields: Any) -> PermissionContext:
    base = PermissionContext(True, NOW, PlanPayload({}), GATE)
    return replace(base, evaluation=evaluation(outcome, mode) if outcome else None, **fields)


OBSERVED: Final = Grant("granted", "observe")
ALLOWED: Final = Grant("granted", "policy")
DENIED_BY_RULE: Final = Grant("denied", "policy")
DENIED_BY_PEOPLE: Final = Grant("denied", "ruling", DENIED.hex)
EXEMPT: Final = Grant("granted", "exemption", EXEMPTION.hex, NOW + 5 * S)
PENDING: Final = Grant("pending", "policy", GATE.hex, NOW + 60 * S)
DRAFT: Final = GateDraft(GATE, POLICY, "push", REQUIREMENT)


@pytest.mark.parametrize(
    ("loaded", "columns", "grant", "exemption", "gate"),
    [
        pytest.param(context(), {}, OBSERVED, None, None, id="no policy"),
        pytest.param(
            context("ask", "observe"), policy_outcome("ask", policy_enforced=False), OBSERVED, None, None,
            id="an observed policy stores its result only",
        ),
        pytest.param(context("allow"), policy_outcome("allow"), ALLOWED, None, None, id="allow"),
        pytest.param(context("deny"), policy_outcome("deny"), DENIED_BY_RULE, None, None, id="deny"),
        pytest.param(
            context("deny", exemption=EXEMPTED), policy_outcome("deny"), DENIED_BY_RULE, None, None,
            id="no exemption suspends a denial",
        ),
        pytest.param(context("ask"), policy_outcome("ask"), PENDING, None, DRAFT, id="ask"),
        pytest.param(
            context("ask", exemption=EXEMPTED), policy_outcome("ask"), EXEMPT, EXEMPTED, None,
            id="an exemption suspends the question",
        ),
        pytest.param(
            context("allow", denied_gate=DENIED), policy_outcome("allow"), DENIED_BY_PEOPLE, None, None,
            id="a denial for the session counts more than a rule",
        ),
        pytest.param(
            context(denied_gate=DENIED), {}, DENIED_BY_PEOPLE, None, None,
            id="a denial for the session counts without a policy",
        ),
        pytest.param(
            context("ask", columns=FRESH), FRESH | policy_outcome("ask"), PENDING, None, DRAFT,
            id="a repeated plan",
        ),
        pytest.param(
            context("ask", requests_permission=False), policy_outcome("ask"), None, None, None,
            id="another effect of the intent comes first",
        ),
    ],
)  # fmt: skip
def test_the_permission_of_a_plan(
    loaded: PermissionContext,
    columns: Mapping[str, Any],
    grant: Grant | None,
    exemption: Exemption | None,
    gate: GateDraft | None,
) -> None:
    assert decide_plan(loaded) == PlanDecision(columns, grant, exemption, gate)


def test_after_an_exemption_ended_people_decide() -> None:
    loaded = context("ask", exemption=EXEMPTED)
    assert decide_plan(replace(loaded, exemption=None)).grant == PENDING


def stored(intent: str = "v1:1", **fields: Any) -> EffectRow:
    names = (EFFECT, UUID(int=20), SESSION, UUID(int=21), "e-1", 7, NOW, NOW)
    return EffectRow(*names, intent_digest=intent, planned_mark="0", **fields)


ENDED: Final = CommandContext(None, session_ended=True)
RUNNING: Final = CommandContext(None)
NEW: Final = PlannedEffect(EFFECT)
DECIDED: Final = PlannedEffect(EFFECT, stored(), is_undecided=False, requests_permission=False)
OTHER_INTENT: Final = PlannedEffect(EFFECT, stored("v1:2"))
PAUSE: Final = CircuitOpen("git.push", 5, NOW + 30 * S, NOW)
STALE: Final = StaleEpoch(1, 2)


@pytest.mark.parametrize(
    ("plan", "loaded", "refusal"),
    [
        (PLAN, PlanContext(RUNNING, NEW), None),
        (PLAN, PlanContext(RUNNING, DECIDED), None),
        (PLAN, PlanContext(ENDED, NEW), SESSION_ENDED_REFUSAL),
        (PLAN, PlanContext(ENDED, DECIDED), None),
        (COMPENSATION, PlanContext(ENDED, NEW), None),
        (PLAN, PlanContext(RUNNING, NEW, is_stopped=True), STOPPED_REFUSAL),
        (PLAN, PlanContext(RUNNING, NEW, is_stopped=True, pause=PAUSE), STOPPED_REFUSAL),
        (PLAN, PlanContext(ENDED, NEW, is_stopped=True), SESSION_ENDED_REFUSAL),
        (PLAN, PlanContext(RUNNING, NEW, pause=PAUSE), PAUSE),
        (PLAN, PlanContext(RUNNING, OTHER_INTENT), KEY_REUSED),
        (PLAN, PlanContext(RUNNING, OTHER_INTENT, is_stopped=True), STOPPED_REFUSAL),
    ],
)
def test_the_refusal_of_a_plan(plan: Plan, loaded: PlanContext, refusal: object) -> None:
    assert find_plan_refusal(plan, loaded) is refusal


@pytest.mark.parametrize("command", [RUNNING, ENDED])
def test_a_lost_lease_refuses_a_plan_before_all_else(command: CommandContext) -> None:
    refusal = find_plan_refusal(PLAN, PlanContext(command, OTHER_INTENT, STALE, True, PAUSE))
    assert not isinstance(refusal, Exception)
    assert refusal is not None
    assert refusal.code == "LEASE_LOST"
    assert refusal.sentence.startswith(LEASE_LOST_TEXT)
    assert ("to_compensate" in refusal.sentence) is command.session_ended
