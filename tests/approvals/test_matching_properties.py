"""Properties of any policy, with any rules, and of requirements by their strictness."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.gates import statuses
from approvals.policies.engine import (
    PolicyDecision,
    PolicyInput,
    Requirement,
    compile_rules,
    evaluate_rules,
    is_stricter_requirement,
)
from ledger.states import REVERSIBILITIES
from tests.approvals.policy_factories import rules, wish

# Any rules, in any order.

REQUIREMENTS = st.builds(
    Requirement,
    teams=st.sampled_from([(), ("leads",), ("leads", "ops")]),
    people=st.sampled_from([(), ("ada",)]),
    minimum=st.integers(1, 3),
    step_up=st.sampled_from(statuses.STEP_UPS),
    rationale=st.sampled_from(statuses.RATIONALES),
    rationale_characters=st.integers(0, 20),
    ticket=st.sampled_from(["", "INC-*"]),
    deny_threshold=st.integers(1, 2),
    valid_for_s=st.sampled_from([60, 600]),
    decide_within_s=st.sampled_from([60, 3600]),
    self_approval=st.booleans(),
)
PREDICATES = st.sampled_from(
    [
        {"path": "remote", "eq": "origin"},
        {"path": "remote", "eq": True},
        {"path": "remote", "gt": 5},
        {"path": "absent", "exists": True},
        {"path": "absent", "ne": 1},
        {"path": "refspec", "prefix": "+"},
        {"path": "refspec", "cidr": ["10.0.0.0/8"]},
    ]
)
MATCHES = st.fixed_dictionaries(
    {},
    optional={
        "tools": st.sampled_from([["git.push"], ["git.*"], ["mail.*"]]),
        "ref_classes": st.sampled_from([["production"], ["other"]]),
        "risk_at_least": st.sampled_from(["high", "critical"]),
        "arguments": st.lists(PREDICATES, min_size=1, max_size=2),
        "rate": st.just({"over": 3, "within_s": 60, "per": "tool"}),
    },
)


def rule_of(outcomes: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    def build_rule(given_: tuple[dict[str, Any], str, Requirement]) -> dict[str, Any]:
        match, outcome, required = given_
        asks = required.as_dict() if outcome == "require" else None
        return {"match": match, "outcome": outcome, "require": asks}

    return st.tuples(MATCHES, st.sampled_from(outcomes), REQUIREMENTS).map(build_rule)


RULES = st.lists(rule_of(("allow", "deny", "require")), max_size=5)
WISHES = st.builds(
    wish,
    reversibility=st.sampled_from(REVERSIBILITIES),
    tool_class=st.sampled_from(["read_only", "opaque"]),
    declared=st.booleans(),
    risk=st.sampled_from(statuses.RISKS),
)
BEFORE = st.integers(0, 5)
MODE = st.sampled_from(statuses.POLICY_MODES)


def policy_outcome(
    given_: list[dict[str, Any]], subject: PolicyInput, mode: str, before: int
) -> PolicyDecision:
    return evaluate_rules(rules(*given_), subject, mode, lambda _rate: before)


def rank(decision: PolicyDecision) -> tuple[Any, ...]:
    """Sort decisions from the laxest; without a matching rule only the outcome counts."""
    strictness = decision.requirement.strictness if decision.requirement and decision.rule else ()
    return ("allow", "ask", "deny").index(decision.outcome), strictness


@given(RULES, rule_of(("deny",)), st.integers(0, 5), WISHES, MODE, BEFORE)
def test_an_additional_denying_rule_never_loosens(
    given_: list[dict[str, Any]],
    more: dict[str, Any],
    at: int,
    subject: PolicyInput,
    mode: str,
    before: int,
) -> None:
    with_it = [*given_[:at], more, *given_[at:]]
    assert (
        rank(policy_outcome(with_it, subject, mode, before))[0]
        >= rank(policy_outcome(given_, subject, mode, before))[0]
    )


@given(RULES, rule_of(("require",)), st.integers(0, 5), WISHES, MODE, BEFORE)
def test_an_additional_asking_rule_never_loosens(
    given_: list[dict[str, Any]],
    more: dict[str, Any],
    at: int,
    subject: PolicyInput,
    mode: str,
    before: int,
) -> None:
    with_it = [*given_[:at], more, *given_[at:]]
    assert rank(policy_outcome(with_it, subject, mode, before)) >= rank(
        policy_outcome(given_, subject, mode, before)
    )


@given(RULES, st.randoms(use_true_random=False), WISHES, MODE, BEFORE)
def test_the_order_of_rules_changes_no_outcome(
    given_: list[dict[str, Any]], chance: Any, subject: PolicyInput, mode: str, before: int
) -> None:
    shuffled = list(given_)
    chance.shuffle(shuffled)
    assert rank(policy_outcome(shuffled, subject, mode, before)) == rank(
        policy_outcome(given_, subject, mode, before)
    )


@given(RULES, rule_of(("allow", "deny", "require")), WISHES, MODE)
def test_an_error_never_lets_pass(
    given_: list[dict[str, Any]], faulty: dict[str, Any], subject: PolicyInput, mode: str
) -> None:
    faulty = faulty | {"match": {"arguments": [{"path": "remote", "gt": 5}]}}
    decision = policy_outcome([*given_, faulty], subject, mode, 5)
    assert (
        decision.outcome
        == ("deny" if subject.reversibility == "irreversible" else decision.outcome)
        != "allow"
    )
    assert decision.error or decision.outcome == "deny"


@given(RULES, WISHES, MODE, BEFORE)
def test_the_same_question_has_the_same_answer(
    given_: list[dict[str, Any]], subject: PolicyInput, mode: str, before: int
) -> None:
    compiled = compile_rules({"rules": [{"id": f"r{n}", **each} for n, each in enumerate(given_)]})
    assert evaluate_rules(compiled, subject, mode, lambda _rate: before) == evaluate_rules(
        compiled, subject, mode, lambda _rate: before
    )
    assert (
        evaluate_rules(compiled, subject, mode, lambda _rate: before).outcome
        == policy_outcome(given_, subject, mode, before).outcome
    )


# The terms of a grant.


@pytest.mark.parametrize(
    "change",
    [
        {"teams": ("ops",)},
        {"minimum": 3},
        {"step_up": "typed_digest"},
        {"deny_threshold": 1},
        {"rationale": "always"},
        {"rationale_characters": 11},
        {"ticket": "CHG-*"},
        {"decide_within_s": 60},
        {"valid_for_s": 60},
        {"self_approval": False},
        {"distinct_from": ("requester", "session_owner", "agent_owner")},
    ],
)
def test_each_field_can_make_a_requirement_stricter(change: dict[str, Any]) -> None:
    old: dict[str, Any] = {
        "teams": ("leads",),
        "minimum": 2,
        "step_up": "reauth",
        "deny_threshold": 2,
        "ticket": "INC-*",
        "decide_within_s": 3600,
        "valid_for_s": 600,
        "self_approval": True,
        "distinct_from": ("requester",),
    }
    before, after = Requirement(**old), Requirement(**(old | change))
    assert is_stricter_requirement(after, before)
    assert before.hash != after.hash


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"minimum": 1},
        {"step_up": "none"},
        {"deny_threshold": 3},
        {"rationale": "none"},
        {"ticket": ""},
        {"teams": ("leads", "ops")},
        {"people": ("ada",)},
        {"teams": ()},
        {"valid_for_s": 6000},
        {"distinct_from": ()},
    ],
)
def test_a_provably_laxer_requirement_is_not_stricter(change: dict[str, Any]) -> None:
    old: dict[str, Any] = {
        "teams": ("leads",),
        "minimum": 2,
        "step_up": "reauth",
        "deny_threshold": 2,
        "ticket": "INC-*",
    }
    assert not is_stricter_requirement(Requirement(**(old | change)), Requirement(**old))


@given(REQUIREMENTS, REQUIREMENTS, REQUIREMENTS)
def test_not_stricter_is_an_order(first: Requirement, two: Requirement, three: Requirement) -> None:
    assert not is_stricter_requirement(first, first)
    if not is_stricter_requirement(two, first) and not is_stricter_requirement(three, two):
        assert not is_stricter_requirement(three, first)
