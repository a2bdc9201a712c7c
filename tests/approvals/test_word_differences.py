"""Which words of a changed line differ, at a bounded cost."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.diff.word_differences import (
    MAX_LINE_CHARACTERS,
    MAX_WORD_STEPS,
    WordBudget,
    find_changed_words,
)


@pytest.mark.parametrize(
    ("old", "new", "removed", "added"),
    [
        ("  replicas: 12", "  replicas: 2", ["12"], ["2"]),
        ("postgres://payments-ro.db", "postgres://payments-rw.db", ["ro"], ["rw"]),
        ("  if: ref_type == 'tag'", "  if: always()", ["ref_type == 'tag'"], ["always()"]),
        ('version = "3.4.1"', 'version = "3.4.7"', ["3.4.1"], ["3.4.7"]),
        ("host: paypal.com", "host: p\u0430ypal.com", ["paypal"], ["p\u0430ypal"]),
        ("a  b", "a b", ["  "], [" "]),
        ("f(a, b, c)", "f(a, x, c, d)", ["b"], ["x", ", d"]),
        ("delete from users", "delete from users where id = 1", [], [" where id = 1"]),
        # Lines that share next to nothing are no pair: the whole line differs.
        ("return amount", "raise ValueError(name)", [], []),
        ("x", "", [], []),
        ("same", "same", [], []),
    ],
)
def test_only_the_words_that_differ_are_marked(
    old: str, new: str, removed: list[str], added: list[str]
) -> None:
    spans = find_changed_words(old, new, WordBudget())
    assert [old[start:end] for start, end in spans[0]] == removed
    assert [new[start:end] for start, end in spans[1]] == added


LINES = st.text(st.sampled_from("ab .\u202e\u0301\t1"), max_size=30)


@given(LINES, LINES)
def test_what_is_not_marked_is_equal_in_both_lines(old: str, new: str) -> None:
    removed, added = find_changed_words(old, new, WordBudget())
    if not (removed or added):
        return
    rests = []
    for text, spans in ((old, removed), (new, added)):
        assert all(0 <= start < end <= len(text) for start, end in spans)
        assert all(left[1] <= right[0] for left, right in pairwise(spans))
        at, rest = 0, ""
        for start, end in spans:
            rest, at = rest + text[at:start], end
        rests.append(rest + text[at:])
    assert rests[0].replace(" ", "").replace("\t", "") == rests[1].replace(" ", "").replace(
        "\t", ""
    )


def test_long_lines_and_many_lines_are_compared_as_lines() -> None:
    long = "a b " * MAX_LINE_CHARACTERS
    assert find_changed_words(long, long + "c", WordBudget()) == ((), ())
    hostile = ("a b " * 100 + "x", "b a " * 100 + "y")
    budget = WordBudget()
    for _ in range(5_000):
        find_changed_words(*hostile, budget)
    assert budget.left <= 0
    assert budget.left > -MAX_WORD_STEPS
