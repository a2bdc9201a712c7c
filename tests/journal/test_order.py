"""Order keys of facts, and derived ids, which are the same for every writer."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.ids import derive_uuid, new_uuid7
from journal.order_keys import is_earlier_mark, make_order_key

pytestmark = pytest.mark.once
PLAIN = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)
SEQUENCES = st.none() | st.integers(0, 2**63 - 1)
FACTS = st.tuples(st.sampled_from(["command", "evidence"]), SEQUENCES, PLAIN, PLAIN)


@given(FACTS, FACTS)
def test_two_facts_have_one_order_and_only_the_same_fact_has_the_same_key(
    mark: tuple,  # type: ignore[type-arg]
    other: tuple,  # type: ignore[type-arg]
) -> None:
    assert (make_order_key(*mark) == make_order_key(*other)) == (mark == other)
    first = is_earlier_mark(make_order_key(*mark), make_order_key(*other))
    second = is_earlier_mark(make_order_key(*other), make_order_key(*mark))
    assert first + second == (mark != other)


def test_a_bar_in_a_name_does_not_make_two_facts_one() -> None:
    assert make_order_key("evidence", None, "a|b", "c") != make_order_key(
        "evidence", None, "a", "b|c"
    )


def test_a_command_is_before_every_report() -> None:
    assert is_earlier_mark(
        make_order_key("command", None, "z", "z"), make_order_key("evidence", 0, "a", "a")
    )


def test_sequences_are_numbers_and_none_is_last() -> None:
    keys = [make_order_key("evidence", seq, "robot", "x") for seq in (0, 9, 10, 2**63 - 1, None)]
    assert keys == sorted(keys)


def test_an_empty_mark_is_none() -> None:
    assert is_earlier_mark("a", "")
    assert not is_earlier_mark("", "a")
    assert not is_earlier_mark("", "")
    assert not is_earlier_mark("a", "a")


def test_the_longest_key_fits_its_column() -> None:
    from ledger.models import Effect

    longest = make_order_key("evidence", 2**63 - 1, "s" * 160, "i" * 64)
    assert len(longest) <= (Effect._meta.get_field("planned_mark").max_length or 0)


@given(st.uuids(), st.lists(PLAIN, min_size=1, max_size=3))
def test_a_derived_id_is_a_function_of_parent_and_names(parent: UUID, names: list[str]) -> None:
    derived = derive_uuid(parent, *names)
    assert derived == derive_uuid(parent, *names)
    assert derived.version == 8
    assert derived != derive_uuid(parent, *names, "more")


@given(st.lists(PLAIN, min_size=2, max_size=2, unique=True))
def test_ids_of_one_session_share_a_prefix_and_sessions_do_not(keys: list[str]) -> None:
    project = new_uuid7()
    session, other = (derive_uuid(project, "session", key) for key in keys)
    assert session.bytes[:6] not in (other.bytes[:6], project.bytes[:6])
    assert {derive_uuid(session, key).bytes[:6] for key in keys} == {session.bytes[:6]}


def test_uuid7_rises() -> None:
    made = [new_uuid7() for _ in range(10_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert {made_id.version for made_id in made} == {7}
