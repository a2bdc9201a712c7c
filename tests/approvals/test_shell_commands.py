"""A shell command is held if a rule holds any of its calls."""

from typing import Any

import pytest

from approvals.models import Gate
from approvals.policies import policy_evaluation
from approvals.policies.engine import ExemptionRequirement, PlanRate, Requirement, evaluate_rules
from approvals.policies.policy_evaluation import list_other_calls
from approvals.voting.eligibility import load_current_requirement
from ledger.models import Attempt, Effect, Tool
from ledger.tools import cache
from shell.map_command import MAX_PARTS, map_command
from shell.mapping import DEFAULT_MAPPING
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.policy_factories import no_earlier_plans, rules, wish
from tests.rows_with_entries import change_tools

STRICT: dict[str, Any] = Requirement(minimum=2).as_dict()
RULES = """
name: basic
rules:
  - id: pushes
    title: A push
    match: {tools: [git.push]}
    outcome: require
  - id: deletions
    title: A deletion
    match: {tools: [kubectl.delete]}
    outcome: deny
  - id: bulk
    title: Whole tables
    match: {tools: [sql.run], arguments: [{path: sql, contains: drop}]}
    outcome: deny
  - id: others
    title: What the shell does
    match: {tools: ["shell.*", "git.read"]}
    outcome: allow
"""


def map_plan(command: str) -> dict[str, Any]:
    mapped = map_command(command, mapping=DEFAULT_MAPPING)
    return {"tool": mapped.tool, "arguments": mapped.arguments}


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (("allow", "allow"), ("allow", "r0")),
        (("allow", "require"), ("ask", "r1")),
        (("require", "allow"), ("ask", "r0")),
        (("require", "deny"), ("deny", "r1")),
        (("deny", "require"), ("deny", "r0")),
        (("allow", "deny"), ("deny", "r1")),
    ],
)
def test_the_strictest_call_decides(outcomes: tuple[str, str], expected: tuple[str, str]) -> None:
    compiled = rules(
        *(
            {"outcome": outcome, "match": {"tools": [tool]}}
            for outcome, tool in zip(outcomes, ("one", "two"), strict=True)
        )
    )
    command = wish(tool="one", parts=(wish(tool="two"),))
    decision = evaluate_rules(compiled, command, "enforce", no_earlier_plans)
    assert (decision.outcome, decision.rule) == expected


def test_what_both_calls_ask_for_applies_together() -> None:
    compiled = rules(
        {"outcome": "require", "match": {"tools": ["one"]}},
        {
            "outcome": "require",
            "match": {"tools": ["two"]},
            "require": STRICT,
            "exemptible": "never",
        },
    )
    for first, second in (("one", "two"), ("two", "one")):
        command = wish(tool=first, parts=(wish(tool=second),))
        decision = evaluate_rules(compiled, command, "enforce", no_earlier_plans)
        assert decision.requirement == Requirement(minimum=2)
        assert (decision.rule, set(decision.asking)) == ("r1", {"r0", "r1"})
        assert decision.suspension == ExemptionRequirement(2, allowed=False)


def test_a_call_that_cannot_be_evaluated_asks_and_nothing_exempts_it() -> None:
    def fail(_rate: PlanRate) -> int:
        raise RuntimeError

    rate = {"over": 1, "within_s": 60, "per": "tool"}
    compiled = rules(
        {"outcome": "allow", "match": {"tools": ["one"]}},
        {"outcome": "allow", "match": {"tools": ["two"], "rate": rate}},
    )
    command = wish(tool="one", parts=(wish(tool="two"),))
    decision = evaluate_rules(compiled, command, "enforce", fail)
    assert (decision.outcome, decision.asking) == ("ask", ())
    assert decision.error.startswith("rule r1")


def test_calls_that_are_not_described_count_as_unparsed() -> None:
    command = "; ".join(f"echo {number}" for number in range(MAX_PARTS + 5))
    plan = map_plan(f"{command}; git push")
    tools = [call.tool for call in list_other_calls(plan["tool"], plan["arguments"])]
    assert "shell.unparsed" in tools


@pytest.mark.parametrize("arguments", [None, [], {"parts": 3}, {"parts": [3, {"tool": 4}]}])
def test_arguments_without_calls_have_none(arguments: Any) -> None:
    assert list_other_calls("one", arguments) == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("command", "permission"),
    [
        ("./build.sh", "granted"),
        ("./build.sh; git push origin main", "pending"),
        ("GIT_SSH=x git push origin :main", "pending"),
        ("git push --dry-run; ./build.sh; git push", "pending"),
        ("./build.sh && kubectl delete namespace shop", "denied"),
        ("./build.sh; git push; psql -c 'drop table orders'", "denied"),
        (f"psql -c '{'select 1; ' * 500}'", "pending"),
    ],
)
def test_a_command_waits_or_is_denied_for_any_of_its_calls(
    quiet: InboxScenario, command: str, permission: str
) -> None:
    quiet.rules(RULES)
    effect = quiet.plan("e-1", target=None, **map_plan(command))
    assert effect["permission"] == permission
    assert Effect.objects.get(id=effect["id"]).permission == permission
    assert Gate.objects.count() == (permission == "pending")


@pytest.mark.django_db
def test_a_request_is_as_grave_as_its_gravest_call(quiet: InboxScenario) -> None:
    quiet.rules(RULES)
    quiet.declare("git.push", "irreversible")
    quiet.declare("shell.run", "reversible")
    quiet.plan("e-1", target=None, **map_plan("./build.sh; git push origin main"))
    assert Gate.objects.get().reversibility == "irreversible"


BUILD_AND_PUSH = "./build.sh; git push origin topic"
PERMANENT = """
name: permanent
rules:
  - id: harmless
    title: What can be put back
    match: {reversibility: [reversible]}
    outcome: allow
  - id: others
    title: The rest
    match: {reversibility: [compensable, irreversible]}
    outcome: require
"""


@pytest.fixture
def declared(quiet: InboxScenario) -> InboxScenario:
    """A project that allows what can be put back, like both calls of BUILD_AND_PUSH."""
    quiet.rules(PERMANENT)
    quiet.declare("shell.run", "reversible")
    quiet.declare("git.push", "reversible")
    return quiet


def redeclare_part(reversibility: str) -> None:
    """Declare git.push again, which is not the main call of BUILD_AND_PUSH."""
    change_tools(Tool.objects.filter(name="git.push"), reversibility=reversibility)
    cache.clear_tool_cache()


def plan_both(inbox: InboxScenario) -> dict[str, Any]:
    effect = inbox.plan("e-1", target=None, **map_plan(BUILD_AND_PUSH))
    assert effect["tool"] == "shell.run"
    return effect


def dispatch_command(inbox: InboxScenario, effect: dict[str, Any]) -> Any:
    body = {"process": "p-1", "intent_digest": effect["intent_digest"]}
    return inbox.agent.post(f"/effects/{effect['id']}/dispatch", body)


@pytest.mark.django_db
def test_permission_ends_with_the_declaration_of_any_call(declared: InboxScenario) -> None:
    planned = plan_both(declared)
    assert planned["answer"] == "proceed"
    redeclare_part("irreversible")
    refused = dispatch_command(declared, planned)
    assert refused.status_code == 409
    assert refused.json()["reason"] == "requirement_changed"
    assert Attempt.objects.count() == 0
    again = plan_both(declared)
    assert (again["answer"], declared.gate(again).reversibility) == ("wait", "irreversible")


@pytest.mark.django_db
def test_a_command_with_unchanged_declarations_is_not_evaluated_again(
    declared: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan_both(declared)
    assert declared.effect(planned).policy_parts_digest
    monkeypatch.delattr(policy_evaluation, "build_stored_policy_input")
    assert dispatch_command(declared, planned).status_code == 200


@pytest.mark.django_db
def test_an_effect_without_other_calls_reads_no_plan_at_dispatch(
    declared: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = declared.plan("e-1", target=None, **map_plan("./build.sh"))
    assert declared.effect(planned).policy_parts_digest == ""
    monkeypatch.delattr(policy_evaluation, "load_plan_body")
    assert dispatch_command(declared, planned).status_code == 200


@pytest.mark.django_db
def test_an_approval_counts_only_for_the_declarations_that_reviewers_saw(
    declared: InboxScenario,
) -> None:
    redeclare_part("compensable")
    planned = plan_both(declared)
    gate = declared.gate(planned)
    assert declared.answer(gate, "reviewer").refusal is None
    redeclare_part("irreversible")
    refused = dispatch_command(declared, planned)
    assert refused.json()["reason"] == "requirement_changed"
    gate.refresh_from_db()
    assert (gate.status, gate.reason) == ("revoked", "requirement_changed")


@pytest.mark.django_db
def test_a_waiting_request_needs_the_proof_of_its_gravest_call_now(
    declared: InboxScenario,
) -> None:
    redeclare_part("compensable")
    gate = declared.gate(plan_both(declared))
    assert load_current_requirement(gate).step_up != "typed_digest"
    redeclare_part("irreversible")
    gate.effect.refresh_from_db()
    assert load_current_requirement(gate).step_up == "typed_digest"
    assert declared.answer(gate, "reviewer").refusal is not None
    assert declared.answer(gate, "reviewer", step_up="typed_digest").refusal is None
