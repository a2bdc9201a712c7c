"""Policy evaluation: deny overrides, then the strictest ask, then allow; an error never allows."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.gates import statuses
from approvals.policies.engine import (
    DEFAULT_REQUIREMENT,
    CompiledPolicy,
    PlanRate,
    PolicyInput,
    Requirement,
    compute_risk,
    evaluate_rules,
    get_operation,
)
from ledger.states import REVERSIBILITIES
from tests.approvals.policy_factories import no_earlier_plans, rules, wish

ASK: dict[str, Any] = {"outcome": "require"}
STRICT = Requirement(minimum=2).as_dict()


def decide_outcome(
    compiled: CompiledPolicy, subject: PolicyInput | None = None, mode: str = "enforce"
) -> tuple[str, str]:
    decision = evaluate_rules(compiled, subject or wish(), mode, no_earlier_plans)
    return decision.outcome, decision.rule


def test_deny_overrides_every_rule_before_it() -> None:
    assert decide_outcome(
        rules({"outcome": "allow"}, {**ASK, "require": STRICT}, {"outcome": "deny"})
    ) == (
        "deny",
        "r2",
    )


def test_of_two_denials_the_earlier_is_named() -> None:
    assert decide_outcome(rules({"outcome": "deny"}, {"outcome": "deny"})) == ("deny", "r0")


def test_asking_is_stricter_than_allowing() -> None:
    assert decide_outcome(rules({"outcome": "allow"}, ASK)) == ("ask", "r1")


@pytest.mark.parametrize(
    "stricter",
    [
        {"minimum": 2},
        {"step_up": "reauth"},
        {"rationale": "always"},
        {"rationale_characters": 20},
        {"ticket": "INC-*"},
    ],
)
def test_of_two_rules_that_ask_the_stricter_wins_in_any_order(
    stricter: dict[str, Any],
) -> None:
    hard, soft = {**ASK, "require": Requirement(**stricter).as_dict()}, ASK
    for order in ([soft, hard], [hard, soft]):
        decision = evaluate_rules(rules(*order), wish(), "enforce", no_earlier_plans)
        assert decision.requirement == Requirement(**stricter)
        assert decision.asking == ("r0", "r1")


def test_more_people_count_before_step_up_and_step_up_before_rationale() -> None:
    asks = [
        Requirement(minimum=2),
        Requirement(step_up="typed_digest"),
        Requirement(rationale="always"),
    ]
    for order in permutations(asks):
        decision = evaluate_rules(
            rules(*({**ASK, "require": requirement.as_dict()} for requirement in order)),
            wish(),
            "enforce",
            no_earlier_plans,
        )
        assert decision.requirement == asks[0]
    assert (
        evaluate_rules(
            rules(*({**ASK, "require": requirement.as_dict()} for requirement in asks[:0:-1])),
            wish(),
            "enforce",
            no_earlier_plans,
        )[2]
        == (asks[1])
    )


def test_of_equal_asking_rules_the_earlier_is_named() -> None:
    leads, others = (Requirement(teams=(name,)).as_dict() for name in ("leads", "others"))
    assert decide_outcome(rules({**ASK, "require": leads}, {**ASK, "require": others})) == (
        "ask",
        "r0",
    )


@pytest.mark.parametrize(
    ("declared", "tool_class", "mode", "expected"),
    [
        (True, "idempotent", "enforce", "ask"),
        (True, "opaque", "enforce", "ask"),
        (True, "read_only", "enforce", "allow"),
        (False, "opaque", "enforce", "ask"),
        (False, "read_only", "enforce", "ask"),  # an undeclared tool, of which nothing is known
        (True, "opaque", "observe", "allow"),
        (False, "opaque", "observe", "allow"),
    ],
)
def test_a_plan_without_a_matching_rule(
    declared: bool, tool_class: str, mode: str, expected: str
) -> None:
    subject = wish(declared=declared, tool_class=tool_class)
    decision = evaluate_rules(
        rules({"match": {"tools": ["mail.*"]}, "outcome": "deny"}), subject, mode, no_earlier_plans
    )
    assert (decision.outcome, decision.rule) == (expected, "")
    assert decision.requirement == (DEFAULT_REQUIREMENT if expected == "ask" else None)


@pytest.mark.parametrize(
    ("match", "holds"),
    [
        ({}, True),
        ({"tools": ["git.push"]}, True),
        ({"tools": ["git.*"]}, True),
        ({"tools": ["mail.send", "git.p?sh"]}, True),
        ({"tools": ["Git.push"]}, False),
        ({"tools": ["git"]}, False),
        ({"operations": ["push"]}, True),
        ({"operations": ["git.push"]}, False),
        ({"tools": ["git.*"], "operations": ["pull"]}, False),
        ({"repositories": ["w*"]}, True),
        ({"repositories": ["api"]}, False),
        ({"refs": ["main"]}, True),
        ({"refs": ["refs/heads/main"]}, True),
        ({"refs": ["refs/*/main"]}, True),
        ({"refs": ["refs/tags/*"]}, False),
        ({"ref_classes": ["production", "protected"]}, True),
        ({"ref_classes": ["other"]}, False),
        ({"environments": ["*"]}, True),
        ({"environments": ["?*"]}, False),
        ({"resources": ["db/*"]}, False),
        ({"reversibility": ["compensable"]}, True),
        ({"reversibility": ["irreversible"]}, False),
        ({"risk_at_least": "high"}, True),
        ({"risk_at_least": "critical"}, False),
        ({"risk_at_most": "high"}, True),
        ({"risk_at_most": "medium"}, False),
        ({"agents": ["deploy-*"]}, True),
        ({"agents": ["deploy"]}, False),
        ({"labels": {"team": "w*"}}, True),
        ({"labels": {"team": "api"}}, False),
        ({"labels": {"squad": "*"}}, False),
        (
            {
                "tools": ["git.push"],
                "repositories": ["web"],
                "refs": ["main"],
                "agents": ["nobody"],
            },
            False,
        ),
    ],
)
def test_a_condition_matches_or_does_not(match: dict[str, Any], holds: bool) -> None:
    assert decide_outcome(rules({"match": match, "outcome": "deny"}))[0] == (
        "deny" if holds else "ask"
    )


ARGUMENTS = {
    "force": True,
    "count": 3,
    "price": 2.5,
    "to": "ada@example.org",
    "host": "10.1.2.3",
    "six": "::ffff:10.1.2.3",
    "6to4": "2002:a01:203::1",
    "nat64": "64:ff9b::10.1.2.3",
    "other": "2001:db8::10.1.2.3",
    "none": None,
    "list": ["a", 1, True],
    "deep": {"er": [{"at": "last"}]},
    "empty": {},
}


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ({"path": "force", "eq": True}, True),
        ({"path": "force", "eq": False}, False),
        ({"path": "force", "eq": 1}, None),
        ({"path": "force", "eq": "true"}, None),
        ({"path": "count", "eq": 3}, True),
        ({"path": "count", "eq": True}, None),
        ({"path": "none", "eq": None}, True),
        ({"path": "none", "eq": True}, False),
        ({"path": "force", "eq": None}, False),
        ({"path": "absent", "eq": None}, False),
        ({"path": "deep", "eq": "last"}, None),
        ({"path": "deep.er.0.at", "eq": "last"}, True),
        ({"path": "deep.er.1.at", "eq": "last"}, False),
        ({"path": "deep.er.at", "eq": "last"}, False),
        ({"path": "to.0", "eq": "a"}, False),
        ({"path": "count", "ne": 4}, True),
        ({"path": "count", "ne": 3}, False),
        ({"path": "count", "ne": "3"}, None),
        ({"path": "absent", "ne": 3}, True),
        ({"path": "count", "in": [1, 3]}, True),
        ({"path": "count", "in": [1, 2]}, False),
        ({"path": "count", "in": [True]}, None),
        ({"path": "count", "in": ["3", 3]}, True),
        ({"path": "none", "in": [1, None]}, True),
        ({"path": "count", "lt": 4}, True),
        ({"path": "count", "lt": 3}, False),
        ({"path": "count", "lte": 3}, True),
        ({"path": "price", "gt": 2}, True),
        ({"path": "price", "gte": 2.6}, False),
        ({"path": "force", "gt": 0}, None),
        ({"path": "to", "lt": 5}, None),
        ({"path": "none", "lt": 5}, None),
        ({"path": "absent", "gt": 5}, False),
        ({"path": "to", "exists": True}, True),
        ({"path": "none", "exists": True}, True),
        ({"path": "empty", "exists": True}, True),
        ({"path": "absent", "exists": False}, True),
        ({"path": "absent", "exists": True}, False),
        ({"path": "to", "contains": "@example"}, True),
        ({"path": "to", "contains": "@evil"}, False),
        ({"path": "to", "contains": 1}, None),
        ({"path": "list", "contains": "a"}, True),
        ({"path": "list", "contains": True}, True),
        ({"path": "list", "contains": "b"}, False),
        ({"path": "empty", "contains": "b"}, None),
        ({"path": "to", "prefix": "ada@"}, True),
        ({"path": "to", "prefix": "bob@"}, False),
        ({"path": "count", "prefix": "3"}, None),
        ({"path": "host", "cidr": ["10.0.0.0/8"]}, True),
        ({"path": "six", "cidr": ["10.0.0.0/8"]}, True),
        ({"path": "6to4", "cidr": ["10.0.0.0/8"]}, True),
        ({"path": "nat64", "cidr": ["10.0.0.0/8"]}, True),
        ({"path": "other", "cidr": ["10.0.0.0/8"]}, False),
        ({"path": "host", "cidr": ["192.168.0.0/16", "fe80::/10"]}, False),
        ({"path": "to", "cidr": ["10.0.0.0/8"]}, None),
        ({"path": "count", "cidr": ["0.0.0.0/8"]}, None),
    ],
)
def test_a_predicate_is_true_or_false_or_an_error(
    predicate: dict[str, Any], expected: bool | None
) -> None:
    subject = wish(arguments=ARGUMENTS)
    decision = evaluate_rules(
        rules({"match": {"arguments": [predicate]}, "outcome": "deny"}, {"outcome": "allow"}),
        subject,
        "enforce",
        no_earlier_plans,
    )
    assert decision.outcome == {True: "deny", False: "allow", None: "ask"}[expected]
    assert bool(decision.error) == (expected is None)


@pytest.mark.parametrize("arguments", [None, [], "text", 5, {}])
def test_arguments_of_any_shape_have_no_such_path(arguments: Any) -> None:
    subject = wish(arguments=arguments)
    compiled = rules(
        {"match": {"arguments": [{"path": "force", "eq": True}]}, "outcome": "deny"},
        {"outcome": "allow"},
    )
    assert decide_outcome(compiled, subject) == ("allow", "r1")


def test_an_allowing_rule_passes_only_what_it_can_evaluate() -> None:
    unequal = {"arguments": [{"path": "branch", "ne": "main"}]}
    assert decide_outcome(rules({"match": unequal, "outcome": "allow"})) == ("ask", "")
    assert decide_outcome(rules({"match": unequal, "outcome": "deny"})) == ("deny", "r0")


def test_one_condition_that_is_false_is_enough_for_no() -> None:
    match = {"arguments": [{"path": "refspec", "lt": 5}, {"path": "remote", "eq": "fork"}]}
    assert decide_outcome(rules({"match": match, "outcome": "allow"}), mode="observe") == (
        "allow",
        "",
    )
    seldom = {
        "arguments": [{"path": "refspec", "lt": 5}],
        "rate": {"over": 1, "within_s": 60, "per": "tool"},
    }
    assert decide_outcome(rules({"match": seldom, "outcome": "allow"}), mode="observe") == (
        "allow",
        "",
    )


@pytest.mark.parametrize("outcome", ["allow", "require", "deny"])
@pytest.mark.parametrize("mode", statuses.POLICY_MODES)
def test_an_evaluation_error_asks_or_denies_and_names_its_cause(outcome: str, mode: str) -> None:
    faulty = rules(
        {"match": {"arguments": [{"path": "remote", "gt": 5}]}, "outcome": outcome},
        {"outcome": "allow"},
    )
    decision = evaluate_rules(faulty, wish(), mode, no_earlier_plans)
    assert (decision.outcome, decision.rule, decision.requirement, decision.asking) == (
        "ask",
        "r0",
        DEFAULT_REQUIREMENT,
        (),
    )
    assert (
        decision.error == "rule r0: argument remote is text, which cannot be compared with a number"
    )
    denied = evaluate_rules(faulty, wish(reversibility="irreversible"), mode, no_earlier_plans)
    assert (denied.outcome, denied.rule, denied.error) == ("deny", "r0", decision.error)


def test_a_counter_that_fails_lets_nothing_pass() -> None:
    def broken(_rate: PlanRate) -> int:
        raise RuntimeError("the database is away")

    rate_rule = {"match": {"rate": {"over": 5, "within_s": 60, "per": "agent"}}, "outcome": "allow"}
    decision = evaluate_rules(rules(rate_rule, {"outcome": "allow"}), wish(), "observe", broken)
    assert (decision.outcome, decision.error) == (
        "ask",
        "rule r0: could not be evaluated (RuntimeError)",
    )


@pytest.mark.parametrize(("before", "outcome"), [(4, "allow"), (5, "deny"), (6, "deny")])
def test_a_rate_matches_once_as_many_were_planned_before(before: int, outcome: str) -> None:
    rates: list[PlanRate] = []

    def counted(rate: PlanRate) -> int:
        rates.append(rate)
        return before

    rate_rule = {"match": {"rate": {"over": 5, "within_s": 60, "per": "agent"}}, "outcome": "deny"}
    assert (
        evaluate_rules(rules(rate_rule, {"outcome": "allow"}), wish(), "enforce", counted).outcome
        == outcome
    )
    assert rates == [PlanRate(5, 60, "agent")]


def test_a_long_session_is_counted_from_its_start_if_all_else_matches() -> None:
    rates: list[PlanRate] = []

    def counted(rate: PlanRate) -> int:
        rates.append(rate)
        return 200

    long = {"match": {"agents": ["deploy-7"], "session_effects_over": 200}, "outcome": "deny"}
    assert evaluate_rules(rules(long), wish(agent="other"), "observe", counted).outcome == "allow"
    assert rates == []
    assert evaluate_rules(rules(long), wish(), "observe", counted).outcome == "deny"
    assert rates == [PlanRate(200, 0, "session_effects")]


@pytest.mark.parametrize(
    ("reversibility", "environment", "ref_class", "declared", "risk"),
    [
        ("irreversible", "production", "", True, "critical"),
        ("irreversible", "", "production", True, "critical"),
        ("irreversible", "eu-prod", "other", True, "critical"),
        ("irreversible", "staging", "other", True, "high"),
        ("compensable", "PROD", "", True, "high"),
        ("reversible", "", "production", True, "high"),
        ("read", "live", "", True, "high"),
        ("compensable", "staging", "other", True, "medium"),
        ("reversible", "", "protected", True, "medium"),
        ("reversible", "", "", False, "medium"),
        ("reversible", "product-catalogue", "other", True, "low"),
        ("read", "", "", True, "low"),
    ],
)
def test_risk_is_computed(
    reversibility: str, environment: str, ref_class: str, declared: bool, risk: str
) -> None:
    assert compute_risk(reversibility, environment, ref_class, declared) == risk


@given(
    st.sampled_from(REVERSIBILITIES),
    st.text(),
    st.sampled_from(["", "other", "protected", "production"]),
    st.booleans(),
)
def test_an_agents_environment_only_raises_the_risk(
    reversibility: str, environment: str, ref_class: str, declared: bool
) -> None:
    without_environment = statuses.RISKS.index(compute_risk(reversibility, "", ref_class, declared))
    assert (
        statuses.RISKS.index(compute_risk(reversibility, environment, ref_class, declared))
        >= without_environment
    )


def test_an_operation_is_what_follows_the_last_dot() -> None:
    assert [get_operation(name) for name in ("git.push", "a.b.c", "Bash", "")] == [
        "push",
        "c",
        "Bash",
        "",
    ]
