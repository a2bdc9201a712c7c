"""What a person's word does to the rows of an effect, whatever comes before it, after it, and in
which order."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from journal.entries import SYSTEM_SOURCE
from journal.order_keys import (
    attempt_of_resolution,
    is_command_mark,
    is_earlier_mark,
    is_resolution_mark,
    make_order_key,
    make_resolution_key,
)
from ledger.fold import apply
from ledger.fold.apply import Fact
from ledger.store.effect_rows import AttemptRow, EffectRow
from tests.ledger.fact_strategies import SESSION, Said, state

pytestmark = pytest.mark.once
RELEASED = Said("d", "push", "effect.dispatched", producer_seq=1)
TIMED_OUT = Said("t", "push", "effect.failed", producer_seq=2, fields={"reason": "timeout"})
DOES_NOT_KNOW = Said("u", "push", "effect.acknowledged", fields={"outcome": "unknown"})
DID = Said(
    "a", "push", "effect.acknowledged", fields={"outcome": "ok", "external_reference": "9f2"}
)
DID_UNNAMED = Said(
    "0", "push", "effect.acknowledged", fields={"outcome": "ok"}
)  # before it by its mark
REJECTED = Said("r", "push", "effect.failed", producer_seq=3, fields={"reason": "rejected"})
AGAIN = [
    Said("e", "push", "effect.dispatched", attempt=2),
    Said(
        "f",
        "push",
        "effect.acknowledged",
        attempt=2,
        fields={"outcome": "ok", "external_reference": "9f3"},
    ),
]


def word(answer: str, attempt: int = 1, position: int = 50, lane: str = "system") -> Fact:
    """A person's word, as its entry at `position` has it."""
    mark = make_resolution_key(attempt, position, SYSTEM_SOURCE, "w")
    values = {"answer": answer, "external_reference": "msg-77" if answer == "happened" else ""}
    return Fact(
        "effect.resolved", mark, lane, "w", position, position, position, attempt, values=values
    )


def folded(*told: Said | Fact) -> tuple[EffectRow, dict[int, AttemptRow], list[str]]:
    """The rows after each of `told` arrived in a delivery of its own, and the violations that they
    show at the end."""
    effect = EffectRow(SESSION, SESSION, SESSION, SESSION, "push", 1, 1, 1)
    attempts: dict[int, AttemptRow] = {}
    names: list[str] = []
    for position, one in enumerate(told, 1):
        fact = one if isinstance(one, Fact) else one.fact(SESSION, position)
        apply.fold_fact(effect, attempts, fact, lambda *_: apply.Observation("observed", "observe"))
        names = apply.derive_state(effect, attempts, 60)
    return effect, attempts, names


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("happened", ("acknowledged", "ok", "", "msg-77")),
        ("not_happened", ("failed", "error", "rejected", "")),
        ("compensate", ("failed", "unknown", "timeout", "")),
        ("abandoned", ("superseded", "unknown", "", "")),
    ],
)
def test_what_each_answer_makes_of_an_attempt_that_timed_out(
    answer: str, expected: tuple[str, ...]
) -> None:
    effect, attempts, names = folded(RELEASED, TIMED_OUT, word(answer))
    assert (
        effect.state,
        effect.outcome,
        effect.failure_reason,
        effect.external_reference,
    ) == expected
    assert (effect.resolution, attempts[1].is_open, names) == (answer, False, [])


@pytest.mark.parametrize(
    "late",
    [
        [],
        [TIMED_OUT],
        [DOES_NOT_KNOW],
        [DID],
        [REJECTED],
        AGAIN,
        [DID, REJECTED, *AGAIN],
        [DID, DID_UNNAMED, DOES_NOT_KNOW],
    ],
)
@pytest.mark.parametrize("answer", ["happened", "not_happened", "compensate", "abandoned"])
def test_the_order_in_which_it_is_told_does_not_matter(answer: str, late: list[Said]) -> None:
    """As-of views and repairs fold the same facts again, perhaps in another order."""
    facts: list[Said | Fact] = [word(answer), *late]
    states: list[Any] = []
    for order in permutations(facts):
        effect, attempts, names = folded(RELEASED, *order)
        states.append((state(effect, attempts), names))
    assert all(one == states[0] for one in states)


@pytest.mark.parametrize(
    ("told", "violations"),
    [
        ([word("not_happened"), DID], ["happened_after_all"]),
        ([word("happened"), DID], []),
        ([word("happened"), REJECTED], ["rejected_after_all"]),
        ([word("not_happened"), DOES_NOT_KNOW], []),
        ([word("not_happened"), *AGAIN], []),
        ([word("not_happened"), *AGAIN, DID], ["acknowledged_twice", "happened_after_all"]),
        ([word("happened"), *AGAIN], ["acknowledged_twice"]),
        (
            [AGAIN[0], word("not_happened", 2), DID],
            ["happened_after_all"],
        ),  # none of those before it either
        ([AGAIN[0], word("happened", 2), DID], []),  # which of them, the person did not say
        ([word("abandoned"), DID], ["happened_after_abandoned"]),
        ([word("abandoned"), REJECTED], []),
        ([word("abandoned"), DOES_NOT_KNOW], []),
        ([word("compensate"), DID], []),
    ],
)
def test_a_report_against_a_resolution_is_a_violation(
    told: list[Said | Fact], violations: list[str]
) -> None:
    effect, _, names = folded(RELEASED, *told)
    assert names == violations
    assert effect.violates == bool(violations)


def test_a_rejection_contradicts_a_person_also_where_an_earlier_mark_says_otherwise() -> None:
    """One after the other, and in one batch: a violation that was told stays told, so it may not hang
    on that."""
    for order in permutations([TIMED_OUT, REJECTED]):
        assert folded(RELEASED, word("happened"), *order)[0].violates, order
    effect, attempts, _ = folded(RELEASED, word("happened"), TIMED_OUT)
    names = apply.fold_fact(
        effect, attempts, REJECTED.fact(SESSION, 9), lambda *_: apply.Observation("", "")
    )
    assert names == ["rejected_after_all"]


def test_of_two_resolutions_the_later_stands_and_the_attempt_goes_before_the_time() -> None:
    effect, *_ = folded(RELEASED, word("compensate"), word("abandoned", position=60))
    assert effect.resolution == "abandoned"
    effect, *_ = folded(RELEASED, AGAIN[0], word("compensate", 2, 55), word("not_happened", 1, 60))
    assert (effect.resolution, attempt_of_resolution(effect.resolved_mark)) == ("compensate", 2)


def test_an_attempt_is_no_longer_open_once_a_person_spoke_of_it() -> None:
    """The grant of an open attempt is repeated to whoever got it; this one must not be acted upon
    again."""
    for answer in ("happened", "not_happened", "compensate", "abandoned"):
        _, attempts, _ = folded(RELEASED, word(answer))
        assert not attempts[1].is_open, answer


def test_replay_once_is_spent_by_the_next_attempt() -> None:
    effect, *_ = folded(RELEASED, word("not_happened"))
    assert not apply.is_retry_exhausted(effect)
    effect, *_ = folded(RELEASED, word("not_happened"), replace(REJECTED, id="x", attempt=2))
    assert apply.is_retry_exhausted(effect)


def test_no_report_is_a_resolution() -> None:
    effect, *_ = folded(RELEASED, word("abandoned", lane="evidence"))
    assert (effect.resolution, effect.state) == ("", "dispatched")
    assert "effect.resolved" not in apply.REPORTABLE_KINDS


def test_a_resolution_comes_before_every_command_and_report() -> None:
    said = make_resolution_key(3, 99, SYSTEM_SOURCE, "z" * 32)
    assert is_resolution_mark(said)
    assert not is_command_mark(said)
    for lane in ("command", "evidence"):
        assert is_earlier_mark(said, make_order_key(lane, 0, "a", "a"))
        assert not is_resolution_mark(make_order_key(lane, 0, "!", "!"))
        assert attempt_of_resolution(make_order_key(lane, 7, "a", "a")) == 0
    assert (attempt_of_resolution(said), attempt_of_resolution("")) == (3, 0)
