"""The fold on rows alone: every order and repetition of an effect's facts gives the same state."""

import random
from collections.abc import Iterator
from itertools import permutations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ledger.fold import effect_state
from ledger.states import OUTCOME_OF_STATE
from ledger.store.effect_rows import AttemptRow, EffectRow
from tests.ledger.fact_strategies import Said, deliveries, fold_reports, state, stories
from tests.matrices import count_examples

pytestmark = pytest.mark.once  # no database
ONE_EFFECT = stories(keys=["push"], most=9)


def check_that_order_does_not_matter(reports: list[Said], chance: random.Random) -> None:
    """The property: another delivery of the same facts gives the same state."""
    expected = state(*fold_reports([reports]))
    for _ in range(4):
        assert state(*fold_reports(deliveries(reports, chance))) == expected


@given(ONE_EFFECT, st.randoms(use_true_random=False))
@settings(max_examples=count_examples(40, 120), deadline=None)
def test_every_delivery_of_the_same_facts_gives_one_state(
    reports: list[Said], chance: random.Random
) -> None:
    check_that_order_does_not_matter(reports, chance)


FOUR = [
    Said(
        "d", "push", "effect.planned", producer_seq=1, fields={"tool": "git.push"}, occurred_us=10
    ),
    Said("c", "push", "effect.dispatched", producer_seq=2, occurred_us=20),
    Said(
        "b", "push", "effect.failed", producer_seq=3, occurred_us=30, fields={"reason": "timeout"}
    ),
    Said(
        "a",
        "push",
        "effect.acknowledged",
        fields={"outcome": "ok", "external_reference": "9f2"},
        attempt=2,
    ),
]
# Four facts with two values for each register: the value with the smaller key must win.
RIVALS = [
    Said("d", "push", "effect.planned", fields={"tool": "git.push", "turn": "t-1"}),
    Said("a", "push", "effect.planned", producer_seq=7, fields={"tool": "git.push"}),
    Said("c", "push", "effect.acknowledged", fields={"outcome": "ok"}, source="tester"),
    Said("b", "push", "effect.acknowledged", fields={"outcome": "error"}, source="tester/hook"),
]


def orders(reports: list[Said]) -> Iterator[tuple[int, ...]]:
    """Every order of the facts when each is sent twice, as indexes, once."""
    twice = sorted([*range(len(reports)), *range(len(reports))])
    yield from sorted(set(permutations(twice)))


@pytest.mark.parametrize("reports", [FOUR, RIVALS], ids=["four facts", "rivals"])
def test_all_2520_orders_of_four_facts_sent_twice_give_one_state(reports: list[Said]) -> None:
    expected = state(*fold_reports([reports]))
    counted = 0
    for order in orders(reports):
        counted += 1
        assert state(*fold_reports([[reports[index]] for index in order])) == expected, order
    assert counted == 2_520


def last_to_arrive(mark: str, _other: str) -> bool:
    """The mutant of `is_earlier_mark`: the last report to arrive wins."""
    return bool(mark)


@pytest.mark.parametrize("reports", [FOUR, RIVALS], ids=["four facts", "rivals"])
def test_a_fold_that_keeps_the_last_report_to_arrive_is_caught(
    monkeypatch: pytest.MonkeyPatch, reports: list[Said]
) -> None:
    """The mutant passes only where no two facts set the same register; the property finds it."""
    monkeypatch.setattr(effect_state, "is_earlier_mark", last_to_arrive)
    states = [
        state(*fold_reports([[reports[index]] for index in order])) for order in orders(reports)
    ]
    differs = any(result != states[0] for result in states)
    assert differs == (reports is RIVALS)

    @given(ONE_EFFECT, st.randoms(use_true_random=False))
    @settings(
        max_examples=300,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    def property_of_the_mutant(reports: list[Said], chance: random.Random) -> None:
        check_that_order_does_not_matter(reports, chance)

    with pytest.raises(AssertionError):
        property_of_the_mutant()


@given(ONE_EFFECT)
@settings(max_examples=count_examples(20, 60), deadline=None)
def test_the_fold_makes_only_states_that_the_schema_allows(reports: list[Said]) -> None:
    effect, attempts = fold_reports([reports])
    assert effect.outcome in OUTCOME_OF_STATE[effect.state]
    assert sum(row.is_open for row in attempts.values()) <= 1
    assert effect.attempt_count == max(attempts, default=0)
    if effect.state in ("dispatched", "acknowledged", "failed"):
        assert effect.permission == "observed"
    for row in attempts.values():
        assert row.is_open <= (row.number == effect.attempt_count)
        assert not (row.is_open and row.replaced)


def test_a_fact_of_an_unknown_kind_changes_nothing() -> None:
    reports = [*FOUR[:2], Said("x", "push", "effect.probed"), Said("y", "push", "effect.named")]
    assert state(*fold_reports([reports])) == state(*fold_reports([FOUR[:2]]))


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([], "planned"),
        (["planned"], "planned"),
        (["dispatched"], "dispatched"),
        (["planned", "dispatched"], "dispatched"),
        (["dispatched", "failed"], "failed"),
        (["failed"], "failed"),
        (["acknowledged"], "acknowledged"),
        (["dispatched", "failed", "acknowledged"], "acknowledged"),
        (["planned", "superseded"], "superseded"),
        (["dispatched", "superseded"], "dispatched"),
        (["acknowledged", "superseded"], "acknowledged"),
        (["dispatched", "failed", "superseded"], "failed"),
        (["dispatched", "rejected", "superseded"], "superseded"),
    ],
)
def test_state_is_the_first_match_of_the_table(kinds: list[str], expected: str) -> None:
    fields = {
        "planned": {"tool": "t"},
        "acknowledged": {"outcome": "ok"},
        "failed": {"reason": "error"},
    }
    reports = [
        Said(kind, "push", f"effect.{kind}", fields=fields.get(kind, {}))
        for kind in kinds
        if kind != "rejected"
    ]
    if "rejected" in kinds:
        reports.append(Said("r", "push", "effect.failed", fields={"reason": "rejected"}))
    for order in permutations(reports):
        effect, _attempts = fold_reports([order])
        assert effect.state == expected, order
        # A violation is never removed, so a rejection does not clear a report that came before it.
        assert effect.violates is ("superseded" in kinds and kinds[0] != "planned"), order


def test_the_highest_attempt_sets_the_state_of_a_failed_or_dispatched_effect() -> None:
    reports = [
        Said("a", "push", "effect.failed", fields={"reason": "rejected"}),
        Said("b", "push", "effect.dispatched", attempt=2),
    ]
    effect, attempts = fold_reports([reports])
    assert (effect.state, effect.attempt_count, effect.failure_reason) == ("dispatched", 2, "")
    assert [row.is_open for row in attempts.values()] == [False, True]


def test_an_attempt_without_further_reports_is_replaced_by_the_next() -> None:
    reports = [
        Said("a", "push", "effect.dispatched"),
        Said("b", "push", "effect.dispatched", attempt=2),
    ]
    _effect, attempts = fold_reports([reports])
    assert [(row.is_open, row.replaced) for row in attempts.values()] == [
        (False, True),
        (True, False),
    ]


def test_two_acknowledged_attempts_are_a_violation() -> None:
    reports = [
        Said(str(n), "push", "effect.acknowledged", attempt=n, fields={"outcome": "ok"})
        for n in (1, 2)
    ]
    effect, attempts = fold_reports([reports])
    assert effect.violates
    assert effect_state.derive_state(effect, attempts, 60) == ["acknowledged_twice"]


def test_each_attempt_has_its_own_remote_key() -> None:
    reports = [Said(str(n), "push", "effect.dispatched", attempt=n) for n in (1, 2, 3)]
    _effect, attempts = fold_reports([reports])
    assert len({row.remote_key for row in attempts.values()}) == 3
    assert all(len(row.remote_key) <= 64 for row in attempts.values())


def test_the_columns_that_follow_delivery_are_columns() -> None:
    columns = {*EffectRow.__dataclass_fields__, *AttemptRow.__dataclass_fields__}
    assert columns >= effect_state.DELIVERY_COLUMNS
