"""What a policy says: deny overrides, then the strictest ask, then allow; what cannot be evaluated never lets pass."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals import states
from approvals.matching import Compiled, Judgement, Rate, Wish, compile_rules, judge, operation_of, risk_of
from approvals.requirement import DEFAULT, Requirement, is_stricter
from ledger.states import REVERSIBILITIES
from tests.approvals.wishes import never, rules, wish

ASK: dict[str, Any] = {"outcome": "require"}
STRICT = Requirement(minimum=2).as_dict()


def said(compiled: Compiled, one: Wish | None = None, mode: str = "enforce") -> tuple[str, str]:
    judgement = judge(compiled, one or wish(), mode, never)
    return judgement.outcome, judgement.rule


def test_deny_overrides_whatever_stands_before_it() -> None:
    assert said(rules({"outcome": "allow"}, {**ASK, "require": STRICT}, {"outcome": "deny"})) == ("deny", "r2")


def test_of_two_denials_the_earlier_is_named() -> None:
    assert said(rules({"outcome": "deny"}, {"outcome": "deny"})) == ("deny", "r0")


def test_asking_is_stricter_than_allowing() -> None:
    assert said(rules({"outcome": "allow"}, ASK)) == ("ask", "r1")


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
def test_of_two_rules_that_ask_the_stricter_wins_wherever_it_stands(stricter: dict[str, Any]) -> None:
    hard, soft = {**ASK, "require": Requirement(**stricter).as_dict()}, ASK
    for order in ([soft, hard], [hard, soft]):
        judgement = judge(rules(*order), wish(), "enforce", never)
        assert judgement.requirement == Requirement(**stricter)
        assert judgement.asking == ("r0", "r1")


def test_more_people_count_before_step_up_and_step_up_before_rationale() -> None:
    asks = [Requirement(minimum=2), Requirement(step_up="typed_digest"), Requirement(rationale="always")]
    for order in permutations(asks):
        judgement = judge(rules(*({**ASK, "require": one.as_dict()} for one in order)), wish(), "enforce", never)
        assert judgement.requirement == asks[0]
    assert (
        judge(rules(*({**ASK, "require": one.as_dict()} for one in asks[:0:-1])), wish(), "enforce", never)[2]
        == (asks[1])
    )


def test_of_equal_rules_that_ask_the_earlier_is_named() -> None:
    leads, others = (Requirement(teams=(name,)).as_dict() for name in ("leads", "others"))
    assert said(rules({**ASK, "require": leads}, {**ASK, "require": others})) == ("ask", "r0")


@pytest.mark.parametrize(
    ("declared", "tool_class", "mode", "expected"),
    [
        (True, "natural", "enforce", "ask"),
        (True, "opaque", "enforce", "ask"),
        (True, "read_only", "enforce", "allow"),
        (False, "opaque", "enforce", "ask"),
        (False, "read_only", "enforce", "ask"),  # nobody declared it, so nothing is known of it
        (True, "opaque", "observe", "allow"),
        (False, "opaque", "observe", "allow"),
    ],
)
def test_what_no_rule_speaks_of(declared: bool, tool_class: str, mode: str, expected: str) -> None:
    one = wish(declared=declared, tool_class=tool_class)
    judgement = judge(rules({"match": {"tools": ["mail.*"]}, "outcome": "deny"}), one, mode, never)
    assert (judgement.outcome, judgement.rule) == (expected, "")
    assert judgement.requirement == (DEFAULT if expected == "ask" else None)


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
        ({"tools": ["git.push"], "repositories": ["web"], "refs": ["main"], "agents": ["nobody"]}, False),
    ],
)
def test_a_condition_holds_or_it_does_not(match: dict[str, Any], holds: bool) -> None:
    assert said(rules({"match": match, "outcome": "deny"}))[0] == ("deny" if holds else "ask")


ARGUMENTS = {
    "force": True, "count": 3, "price": 2.5, "to": "ada@example.org", "host": "10.1.2.3", "six": "::ffff:10.1.2.3",
    "none": None, "list": ["a", 1, True], "deep": {"er": [{"at": "last"}]}, "empty": {},
}  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "expected"),
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
        ({"path": "host", "cidr": ["192.168.0.0/16", "fe80::/10"]}, False),
        ({"path": "to", "cidr": ["10.0.0.0/8"]}, None),
        ({"path": "count", "cidr": ["0.0.0.0/8"]}, None),
    ],
)
def test_a_predicate_holds_or_does_not_or_cannot_be_answered(asked: dict[str, Any], expected: bool | None) -> None:
    one = wish(arguments=ARGUMENTS)
    judgement = judge(
        rules({"match": {"arguments": [asked]}, "outcome": "deny"}, {"outcome": "allow"}), one, "enforce", never
    )
    assert judgement.outcome == {True: "deny", False: "allow", None: "ask"}[expected]
    assert bool(judgement.error) == (expected is None)


@pytest.mark.parametrize("arguments", [None, [], "text", 5, {}])
def test_arguments_of_any_shape_have_no_such_path(arguments: Any) -> None:
    one = wish(arguments=arguments)
    asked = rules({"match": {"arguments": [{"path": "force", "eq": True}]}, "outcome": "deny"}, {"outcome": "allow"})
    assert said(asked, one) == ("allow", "r1")


def test_a_rule_that_allows_lets_pass_only_what_it_has_seen() -> None:
    unequal = {"arguments": [{"path": "branch", "ne": "main"}]}
    assert said(rules({"match": unequal, "outcome": "allow"})) == ("ask", "")
    assert said(rules({"match": unequal, "outcome": "deny"})) == ("deny", "r0")


def test_one_condition_that_is_false_is_enough_for_no() -> None:
    match = {"arguments": [{"path": "refspec", "lt": 5}, {"path": "remote", "eq": "fork"}]}
    assert said(rules({"match": match, "outcome": "allow"}), mode="observe") == ("allow", "")
    seldom = {"arguments": [{"path": "refspec", "lt": 5}], "rate": {"over": 1, "within_s": 60, "per": "tool"}}
    assert said(rules({"match": seldom, "outcome": "allow"}), mode="observe") == ("allow", "")


@pytest.mark.parametrize("outcome", ["allow", "require", "deny"])
@pytest.mark.parametrize("mode", states.MODES)
def test_what_cannot_be_evaluated_asks_or_denies_and_says_why(outcome: str, mode: str) -> None:
    faulty = rules({"match": {"arguments": [{"path": "remote", "gt": 5}]}, "outcome": outcome}, {"outcome": "allow"})
    asked = judge(faulty, wish(), mode, never)
    assert (asked.outcome, asked.rule, asked.requirement, asked.asking) == ("ask", "r0", DEFAULT, ())
    assert asked.error == "rule r0: argument remote is text, which is neither more nor less than a number"
    denied = judge(faulty, wish(reversibility="irreversible"), mode, never)
    assert (denied.outcome, denied.rule, denied.error) == ("deny", "r0", asked.error)


def test_a_counter_that_fails_lets_nothing_pass() -> None:
    def broken(_rate: Rate) -> int:
        raise RuntimeError("the database is away")

    often = {"match": {"rate": {"over": 5, "within_s": 60, "per": "agent"}}, "outcome": "allow"}
    judgement = judge(rules(often, {"outcome": "allow"}), wish(), "observe", broken)
    assert (judgement.outcome, judgement.error) == ("ask", "rule r0: could not be evaluated (RuntimeError)")


@pytest.mark.parametrize(("before", "outcome"), [(4, "allow"), (5, "deny"), (6, "deny")])
def test_a_rate_holds_once_as_many_were_planned_before(before: int, outcome: str) -> None:
    asked: list[Rate] = []

    def counted(rate: Rate) -> int:
        asked.append(rate)
        return before

    often = {"match": {"rate": {"over": 5, "within_s": 60, "per": "agent"}}, "outcome": "deny"}
    assert judge(rules(often, {"outcome": "allow"}), wish(), "enforce", counted).outcome == outcome
    assert asked == [Rate(5, 60, "agent")]


def test_a_long_session_is_counted_since_it_began_and_only_where_all_else_holds() -> None:
    asked: list[Rate] = []

    def counted(rate: Rate) -> int:
        asked.append(rate)
        return 200

    long = {"match": {"agents": ["deploy-7"], "session_effects_over": 200}, "outcome": "deny"}
    assert judge(rules(long), wish(agent="other"), "observe", counted).outcome == "allow"
    assert asked == []
    assert judge(rules(long), wish(), "observe", counted).outcome == "deny"
    assert asked == [Rate(200, 0, "session_effects")]


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
def test_risk_is_computed(reversibility: str, environment: str, ref_class: str, declared: bool, risk: str) -> None:
    assert risk_of(reversibility, environment, ref_class, declared) == risk


@given(
    st.sampled_from(REVERSIBILITIES),
    st.text(),
    st.sampled_from(["", "other", "protected", "production"]),
    st.booleans(),
)
def test_what_an_agent_says_of_the_environment_only_raises_the_risk(
    reversibility: str, environment: str, ref_class: str, declared: bool
) -> None:
    known = states.RISKS.index(risk_of(reversibility, "", ref_class, declared))
    assert states.RISKS.index(risk_of(reversibility, environment, ref_class, declared)) >= known


def test_an_operation_is_what_follows_the_last_dot() -> None:
    assert [operation_of(name) for name in ("git.push", "a.b.c", "Bash", "")] == ["push", "c", "Bash", ""]


# Whatever rules there are, in whatever order.

REQUIREMENTS = st.builds(
    Requirement,
    teams=st.sampled_from([(), ("leads",), ("leads", "ops")]),
    people=st.sampled_from([(), ("ada",)]),
    minimum=st.integers(1, 3),
    step_up=st.sampled_from(states.STEP_UPS),
    rationale=st.sampled_from(states.RATIONALES),
    rationale_characters=st.integers(0, 20),
    ticket=st.sampled_from(["", "INC-*"]),
    deny_threshold=st.integers(1, 2),
    leave_for_s=st.sampled_from([60, 600]),
    decide_within_s=st.sampled_from([60, 3600]),
    self_approval=st.booleans(),
)
PREDICATES = st.sampled_from(
    [
        {"path": "remote", "eq": "origin"}, {"path": "remote", "eq": True}, {"path": "remote", "gt": 5},
        {"path": "absent", "exists": True}, {"path": "absent", "ne": 1}, {"path": "refspec", "prefix": "+"},
        {"path": "refspec", "cidr": ["10.0.0.0/8"]},
    ]
)  # fmt: skip
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
    def whole(given_: tuple[dict[str, Any], str, Requirement]) -> dict[str, Any]:
        match, outcome, required = given_
        asks = required.as_dict() if outcome == "require" else None
        return {"match": match, "outcome": outcome, "require": asks}

    return st.tuples(MATCHES, st.sampled_from(outcomes), REQUIREMENTS).map(whole)


RULES = st.lists(rule_of(("allow", "deny", "require")), max_size=5)
WISHES = st.builds(
    wish,
    reversibility=st.sampled_from(REVERSIBILITIES),
    tool_class=st.sampled_from(["read_only", "opaque"]),
    declared=st.booleans(),
    risk=st.sampled_from(states.RISKS),
)
BEFORE = st.integers(0, 5)
MODE = st.sampled_from(states.MODES)


def judged(given_: list[dict[str, Any]], one: Wish, mode: str, before: int) -> Judgement:
    return judge(rules(*given_), one, mode, lambda _rate: before)


def rank(judgement: Judgement) -> tuple[Any, ...]:
    """Sorts judgements from the laxest; what nobody wrote a rule for counts no more than its outcome."""
    strictness = judgement.requirement.strictness if judgement.requirement and judgement.rule else ()
    return states.OUTCOMES.index(judgement.outcome), strictness


@given(RULES, rule_of(("deny",)), st.integers(0, 5), WISHES, MODE, BEFORE)
def test_a_rule_more_that_denies_never_loosens(
    given_: list[dict[str, Any]], more: dict[str, Any], at: int, one: Wish, mode: str, before: int
) -> None:
    with_it = [*given_[:at], more, *given_[at:]]
    assert rank(judged(with_it, one, mode, before))[0] >= rank(judged(given_, one, mode, before))[0]


@given(RULES, rule_of(("require",)), st.integers(0, 5), WISHES, MODE, BEFORE)
def test_a_rule_more_that_asks_never_loosens(
    given_: list[dict[str, Any]], more: dict[str, Any], at: int, one: Wish, mode: str, before: int
) -> None:
    with_it = [*given_[:at], more, *given_[at:]]
    assert rank(judged(with_it, one, mode, before)) >= rank(judged(given_, one, mode, before))


@given(RULES, st.randoms(use_true_random=False), WISHES, MODE, BEFORE)
def test_the_order_of_rules_changes_no_outcome(
    given_: list[dict[str, Any]], chance: Any, one: Wish, mode: str, before: int
) -> None:
    shuffled = list(given_)
    chance.shuffle(shuffled)
    assert rank(judged(shuffled, one, mode, before)) == rank(judged(given_, one, mode, before))


@given(RULES, rule_of(("allow", "deny", "require")), WISHES, MODE)
def test_an_error_never_lets_pass(given_: list[dict[str, Any]], faulty: dict[str, Any], one: Wish, mode: str) -> None:
    faulty = faulty | {"match": {"arguments": [{"path": "remote", "gt": 5}]}}
    judgement = judged([*given_, faulty], one, mode, 5)
    assert judgement.outcome == ("deny" if one.reversibility == "irreversible" else judgement.outcome) != "allow"
    assert judgement.error or judgement.outcome == "deny"


@given(RULES, WISHES, MODE, BEFORE)
def test_the_same_question_has_the_same_answer(given_: list[dict[str, Any]], one: Wish, mode: str, before: int) -> None:
    compiled = compile_rules({"rules": [{"id": f"r{n}", **each} for n, each in enumerate(given_)]})
    assert judge(compiled, one, mode, lambda _rate: before) == judge(compiled, one, mode, lambda _rate: before)
    assert judge(compiled, one, mode, lambda _rate: before).outcome == judged(given_, one, mode, before).outcome


# What a grant is bound to.


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
        {"leave_for_s": 60},
        {"self_approval": False},
        {"distinct_from": ("requester", "session_owner", "agent_owner")},
    ],
)
def test_each_field_can_make_a_requirement_stricter(change: dict[str, Any]) -> None:
    old: dict[str, Any] = {
        "teams": ("leads",), "minimum": 2, "step_up": "reauth", "deny_threshold": 2, "ticket": "INC-*",
        "decide_within_s": 3600, "leave_for_s": 600, "self_approval": True, "distinct_from": ("requester",),
    }  # fmt: skip
    before, after = Requirement(**old), Requirement(**(old | change))
    assert is_stricter(after, before)
    assert before.hash != after.hash


@pytest.mark.parametrize(
    "change",
    [
        {}, {"minimum": 1}, {"step_up": "none"}, {"deny_threshold": 3}, {"rationale": "none"}, {"ticket": ""},
        {"teams": ("leads", "ops")}, {"people": ("ada",)}, {"teams": ()}, {"leave_for_s": 6000}, {"distinct_from": ()},
    ],
)  # fmt: skip
def test_what_is_provably_laxer_is_not_stricter(change: dict[str, Any]) -> None:
    old: dict[str, Any] = {
        "teams": ("leads",),
        "minimum": 2,
        "step_up": "reauth",
        "deny_threshold": 2,
        "ticket": "INC-*",
    }
    assert not is_stricter(Requirement(**(old | change)), Requirement(**old))


@given(REQUIREMENTS, REQUIREMENTS, REQUIREMENTS)
def test_not_stricter_is_an_order(one: Requirement, two: Requirement, three: Requirement) -> None:
    assert not is_stricter(one, one)
    if not is_stricter(two, one) and not is_stricter(three, two):
        assert not is_stricter(three, one)
