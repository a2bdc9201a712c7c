"""Arguments raise the severity of a request: at the plan, at the vote and at the dispatch."""

import re
from html import unescape
from typing import Any

import pytest
from django.db import transaction
from django.urls import reverse

from approvals.inbox import inbox_rows
from approvals.models import Gate
from approvals.policies import policy_evaluation
from approvals.policies.dry_run import prepare_dry_run
from approvals.review.card import build_card
from approvals.voting.eligibility import load_current_requirement
from ledger.models import Attempt, Effect, Tool
from ledger.tools import cache, registry, tools_yaml
from tests.api.api_client import code
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from tests.approvals.test_inbox_batch import ticks_of
from tests.pages.sample_data import erase_plan
from tests.rows_with_entries import change_tools

pytestmark = pytest.mark.django_db
RULES = """
name: basic
rules:
  - id: harmless
    title: What can be put back
    match: {reversibility: [read, reversible], risk_at_most: medium}
    outcome: allow
  - id: grave
    title: What cannot be undone
    match: {reversibility: [irreversible]}
    outcome: require
"""
TOOLS = """
tools:
  cluster.resize:
    class: idempotent
    reversibility: reversible
    raises:
      - {path: delete_volumes, eq: true, reversibility: irreversible, class: opaque}
      - {path: nodes, gt: 100, risk: critical}
  http.request:
    class: read_only
    raises:
      - {path: method, ne: GET, class: opaque, reversibility: irreversible}
"""
GRAVE: dict[str, Any] = {"cluster": "staging-1", "delete_volumes": True}
MILD: dict[str, Any] = {"cluster": "staging-1", "delete_volumes": False}


def declare(inbox: InboxScenario, text: str = TOOLS) -> None:
    with transaction.atomic():
        registry.declare_tools(inbox.project, tools_yaml.parse_tools_yaml(text))
    cache.clear_tool_cache()


@pytest.fixture
def inbox(quiet: InboxScenario) -> InboxScenario:
    quiet.rules(RULES)
    declare(quiet)
    return quiet


def plan(inbox: InboxScenario, arguments: Any = None, key: str = "e-1", **fields: Any) -> Any:
    arguments = MILD if arguments is None else arguments
    return inbox.plan(key, **{"tool": "cluster.resize", "arguments": arguments, **fields})


def dispatch(inbox: InboxScenario, effect: dict[str, Any], **fields: Any) -> Any:
    body = {"process": "p-1", "intent_digest": effect["intent_digest"], **fields}
    return inbox.agent.post(f"/effects/{effect['id']}/dispatch", body)


def page_words(rita: Reviewer, gate: Gate) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", "", rita.page(url_of(gate)))))


def test_an_argument_decides_which_rule_asks(inbox: InboxScenario) -> None:
    assert plan(inbox)["answer"] == "proceed"
    grave = plan(inbox, GRAVE, "e-2")
    assert grave["answer"] == "wait"
    gate = inbox.gate(grave)
    assert (gate.rule, gate.reversibility, gate.risk) == ("grave", "irreversible", "high")
    assert inbox.effect(grave).policy_tool_class == "opaque/irreversible"
    many = plan(inbox, {"nodes": 101}, "e-3")  # no rule allows a critical risk
    assert (inbox.gate(many).reversibility, inbox.gate(many).risk) == ("reversible", "critical")


def test_a_value_that_cannot_be_compared_raises(inbox: InboxScenario) -> None:
    for number, value in enumerate(("true", 1, None, ["yes"])):
        effect = plan(inbox, {"delete_volumes": value}, f"e-{number}")
        if value is None:  # null can be compared, and differs from true
            assert effect["answer"] == "proceed"
        else:
            assert inbox.gate(effect).reversibility == "irreversible"


def test_the_card_says_why_and_it_belongs_to_what_is_hashed(inbox: InboxScenario) -> None:
    gate = inbox.gate(plan(inbox, GRAVE))
    words = page_words(Reviewer(inbox), gate)
    assert "Raised to irreversible: delete_volumes is true." in words
    assert "Raised to class opaque: delete_volumes is true." in words
    card = build_card(Gate.objects.select_related("effect__repository").get(id=gate.id))
    raised = [line for line in card.undo if line.label.startswith("Raised")]
    assert [line.text for line in raised] == ["delete_volumes is true."] * 2
    assert not any(line in card.names for line in raised)


def test_a_condition_declared_later_raises_what_waits(inbox: InboxScenario) -> None:
    inbox.rules("name: all\nrules:\n- {id: all, title: All, match: {}, outcome: require}\n")
    declare(inbox, "tools: {cluster.resize: {class: idempotent, reversibility: reversible}}")
    gate = inbox.gate(plan(inbox, GRAVE))
    assert gate.reversibility == "reversible"
    before = load_current_requirement(gate)
    declare(inbox)
    severity = policy_evaluation.compute_current_severity(gate)
    assert severity == ("irreversible", "high")
    after = load_current_requirement(gate)
    assert (before.step_up, after.step_up) == ("none", "typed_digest")
    (row,) = inbox_rows.load_inbox_rows([gate.id])
    assert row.now == severity
    assert not row.groups


def test_a_condition_declared_later_takes_permission_by_policy_back(inbox: InboxScenario) -> None:
    declare(inbox, "tools: {cluster.resize: {class: idempotent, reversibility: reversible}}")
    effects = [plan(inbox, GRAVE), plan(inbox, {"nodes": 101}, "e-2"), plan(inbox, MILD, "e-3")]
    assert {effect["answer"] for effect in effects} == {"proceed"}
    declare(inbox)
    for effect in effects[:2]:
        refused = dispatch(inbox, effect)
        assert (code(refused), refused.json()["reason"]) == (
            (409, "GATE_GONE"),
            "requirement_changed",
        )
    assert not Attempt.objects.exists()
    assert dispatch(inbox, effects[2]).status_code == 200


def test_a_crash_follows_the_raised_class(inbox: InboxScenario) -> None:
    inbox.rules(RULES, mode="observe")
    verdicts = {}
    for key, arguments in (("e-1", MILD), ("e-2", GRAVE)):
        effect = plan(inbox, arguments, key, target={"resource": key})
        assert dispatch(inbox, effect).status_code == 200
        answer = inbox.agent.get(f"/effects/{effect['id']}/verdict").json()
        verdicts[key] = (answer["verdict"], answer["row"])
    assert verdicts == {"e-1": ("replay", "15"), "e-2": ("escalate", "26")}


def test_a_crash_without_the_plan_follows_the_worst_class(inbox: InboxScenario) -> None:
    effect = plan(inbox)
    assert dispatch(inbox, effect).status_code == 200
    erase_plan(inbox.effect(effect).id)
    answer = inbox.agent.get(f"/effects/{effect['id']}/verdict").json()
    assert (answer["verdict"], answer["row"]) == ("escalate", "26")


def test_equal_calls_elsewhere_count_only_if_their_class_was_raised(inbox: InboxScenario) -> None:
    inbox.rules(RULES, mode="observe")
    for method, number in (("GET", 0), ("POST", 1)):
        request = {"tool": "http.request", "arguments": {"method": method, "url": "/orders"}}
        first = plan(inbox, key=f"{method}-1", **request)
        assert dispatch(inbox, first).status_code == 200
        inbox.agent.session("s-2")
        second = inbox.agent.plan(f"{method}-2", "s-2", **request)
        assert len(second.get("same_calls", ())) == number


def test_a_raised_call_is_told_to_the_next_worker_as_done(inbox: InboxScenario) -> None:
    inbox.rules(RULES, mode="observe")
    for method in ("GET", "POST"):
        effect = plan(inbox, {"method": method}, method, tool="http.request")
        dispatch(inbox, effect)
        inbox.agent.acknowledge(effect)
    session = Effect.objects.values_list("session", flat=True).first()
    answer = inbox.agent.get(f"/sessions/{session}/resume").json()
    assert [done["effect_key"] for done in answer["done"]] == ["POST"]


def test_a_dry_run_sees_raised_severities(inbox: InboxScenario) -> None:
    plan(inbox)
    plan(inbox, GRAVE, "e-2")
    draft = RULES.replace("outcome: require", "outcome: deny")
    run = prepare_dry_run(inbox.project, draft)
    assert [(change.handle, change.before, change.after) for change in run] == [
        (str(inbox.effect({"id": str(Effect.objects.get(effect_key="e-2").id)})), "ask", "deny")
    ]


def test_reversible_requests_with_a_raised_one_are_not_decided_together(
    inbox: InboxScenario,
) -> None:
    inbox.rules("name: all\nrules:\n- {id: all, title: All, match: {}, outcome: require}\n")
    declare(inbox, "tools: {cluster.resize: {class: idempotent, reversibility: reversible}}")
    gates = [inbox.gate(plan(inbox, {"n": 1})), inbox.gate(plan(inbox, GRAVE, "e-2"))]
    declare(inbox)
    rita = Reviewer(inbox)
    rita.client.post(reverse("batch"), {"gate": [str(gate.id) for gate in gates]})
    page = rita.page(reverse("batch_confirm"))
    assert ticks_of(page) == [str(gates[0].id)]


@pytest.mark.usefixtures("remembered")
def test_conditions_cost_no_query_where_a_tool_has_none(
    inbox: InboxScenario, django_assert_num_queries: Any
) -> None:
    inbox.rules("name: all\nrules:\n- {id: all, title: All, match: {}, outcome: require}\n")
    gate = inbox.gate(plan(inbox, GRAVE))
    effect = Effect.objects.get(id=gate.effect_id)
    cache.load_tool(gate.project_id, gate.tool)
    with django_assert_num_queries(1):  # the plan
        policy_evaluation.compute_current_severity(gate, effect)  # type: ignore[arg-type]
    change_tools(Tool.objects.all(), raises=[])
    cache.clear_tool_cache()
    cache.load_tool(gate.project_id, gate.tool)
    with django_assert_num_queries(0):
        policy_evaluation.compute_current_severity(gate, effect)  # type: ignore[arg-type]
