"""The fold of resolutions: their effect on the rows of an effect in every order of facts."""

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
from ledger.fold import effect_state
from ledger.fold.effect_state import Fact
from ledger.store.effect_rows import AttemptRow, EffectRow
from tests.ledger.fact_strategies import SESSION, Said, state

pytestmark = pytest.mark.once
RELEASED = Said("d", "push", "effect.dispatched", producer_seq=1)
TIMED_OUT = Said("t", "push", "effect.failed", producer_seq=2, fields={"reason": "timeout"})
UNKNOWN = Said("u", "push", "effect.acknowledged", fields={"outcome": "unknown"})
OK = Said("a", "push", "effect.acknowledged", fields={"outcome": "ok", "external_reference": "9f2"})
OK_WITHOUT_REFERENCE = Said(
    "0", "push", "effect.acknowledged", fields={"outcome": "ok"}
)  # its mark is earlier
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


def resolution(answer: str, attempt: int = 1, position: int = 50, lane: str = "system") -> Fact:
    """Return the fact of a resolution whose entry is at `position`."""
    mark = make_resolution_key(attempt, position, SYSTEM_SOURCE, "w")
    values = {"answer": answer, "external_reference": "msg-77" if answer == "happened" else ""}
    return Fact(
        "effect.resolved", mark, lane, "w", position, position, position, attempt, values=values
    )


def fold_facts(*facts: Said | Fact) -> tuple[EffectRow, dict[int, AttemptRow], list[str]]:
    """Fold each of `facts` in its own delivery; return the rows and the violations at the end."""
    effect = EffectRow(SESSION, SESSION, SESSION, SESSION, "push", 1, 1, 1)
    attempts: dict[int, AttemptRow] = {}
    names: list[str] = []
    for position, item in enumerate(facts, 1):
        fact = item if isinstance(item, Fact) else item.fact(SESSION, position)
        effect_state.fold_fact(effect, attempts, fact)
        names = effect_state.derive_state(effect, attempts, 60)
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
def test_each_answer_gives_a_timed_out_attempt_its_state(
    answer: str, expected: tuple[str, ...]
) -> None:
    effect, attempts, names = fold_facts(RELEASED, TIMED_OUT, resolution(answer))
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
        [UNKNOWN],
        [OK],
        [REJECTED],
        AGAIN,
        [OK, REJECTED, *AGAIN],
        [OK, OK_WITHOUT_REFERENCE, UNKNOWN],
    ],
)
@pytest.mark.parametrize("answer", ["happened", "not_happened", "compensate", "abandoned"])
def test_the_order_of_a_resolution_and_late_reports_does_not_matter(
    answer: str, late: list[Said]
) -> None:
    """As-of views and repairs fold the same facts, possibly in another order."""
    facts: list[Said | Fact] = [resolution(answer), *late]
    states: list[Any] = []
    for order in permutations(facts):
        effect, attempts, names = fold_facts(RELEASED, *order)
        states.append((state(effect, attempts), names))
    assert all(result == states[0] for result in states)


@pytest.mark.parametrize(
    ("facts", "violations"),
    [
        ([resolution("not_happened"), OK], ["happened_after_all"]),
        ([resolution("happened"), OK], []),
        ([resolution("happened"), REJECTED], ["rejected_after_all"]),
        ([resolution("not_happened"), UNKNOWN], []),
        ([resolution("not_happened"), *AGAIN], []),
        ([resolution("not_happened"), *AGAIN, OK], ["acknowledged_twice", "happened_after_all"]),
        ([resolution("happened"), *AGAIN], ["acknowledged_twice"]),
        (
            [AGAIN[0], resolution("not_happened", 2), OK],
            ["happened_after_all"],
        ),  # the answer covers earlier attempts too
        ([AGAIN[0], resolution("happened", 2), OK], []),  # the answer does not name the attempt
        ([resolution("abandoned"), OK], ["happened_after_abandoned"]),
        ([resolution("abandoned"), REJECTED], []),
        ([resolution("abandoned"), UNKNOWN], []),
        ([resolution("compensate"), OK], []),
    ],
)
def test_a_report_against_a_resolution_is_a_violation(
    facts: list[Said | Fact], violations: list[str]
) -> None:
    effect, _, names = fold_facts(RELEASED, *facts)
    assert names == violations
    assert effect.violates == bool(violations)


def test_a_rejection_contradicts_a_resolution_despite_an_earlier_mark() -> None:
    """A recorded violation is never removed, so it must not depend on the batches."""
    for order in permutations([TIMED_OUT, REJECTED]):
        assert fold_facts(RELEASED, resolution("happened"), *order)[0].violates, order
    effect, attempts, _ = fold_facts(RELEASED, resolution("happened"), TIMED_OUT)
    names = effect_state.fold_fact(effect, attempts, REJECTED.fact(SESSION, 9))
    assert names == ["rejected_after_all"]


def test_the_later_resolution_counts_and_a_later_attempt_comes_first() -> None:
    effect, *_ = fold_facts(
        RELEASED, resolution("compensate"), resolution("abandoned", position=60)
    )
    assert effect.resolution == "abandoned"
    effect, *_ = fold_facts(
        RELEASED, AGAIN[0], resolution("compensate", 2, 55), resolution("not_happened", 1, 60)
    )
    assert (effect.resolution, attempt_of_resolution(effect.resolved_mark)) == ("compensate", 2)


def test_a_resolution_closes_the_attempt() -> None:
    """The grant of an open attempt is repeated to its process, so a resolved one must be closed."""
    for answer in ("happened", "not_happened", "compensate", "abandoned"):
        _, attempts, _ = fold_facts(RELEASED, resolution(answer))
        assert not attempts[1].is_open, answer


def test_the_retry_after_not_happened_is_used_by_the_next_attempt() -> None:
    effect, *_ = fold_facts(RELEASED, resolution("not_happened"))
    assert not effect_state.is_retry_exhausted(effect)
    effect, *_ = fold_facts(
        RELEASED, resolution("not_happened"), replace(REJECTED, id="x", attempt=2)
    )
    assert effect_state.is_retry_exhausted(effect)


def test_no_report_is_a_resolution() -> None:
    effect, *_ = fold_facts(RELEASED, resolution("abandoned", lane="evidence"))
    assert (effect.resolution, effect.state) == ("", "dispatched")
    assert "effect.resolved" not in effect_state.REPORTABLE_KINDS


def test_a_resolution_comes_before_every_command_and_report() -> None:
    mark = make_resolution_key(3, 99, SYSTEM_SOURCE, "z" * 32)
    assert is_resolution_mark(mark)
    assert not is_command_mark(mark)
    for lane in ("command", "evidence"):
        assert is_earlier_mark(mark, make_order_key(lane, 0, "a", "a"))
        assert not is_resolution_mark(make_order_key(lane, 0, "!", "!"))
        assert attempt_of_resolution(make_order_key(lane, 7, "a", "a")) == 0
    assert (attempt_of_resolution(mark), attempt_of_resolution("")) == (3, 0)
