"""Read bodies and pages of rows: gists, cut JSON, excerpts and keyset paging."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from display import entry_bodies, handles
from display.keyset_pagination import MAX_POSITION, Window, load_keyset_page
from investigation.query.parser.ast import QueryError, QueryValue
from investigation.query.parser.values import parse_time
from journal import summaries
from sessions.models import Session
from tests.api.api_client import Caller

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(arguments=st.dictionaries(st.text(max_size=8), VALUES, max_size=5), data=st.data())
def test_a_body_cut_anywhere_can_still_be_read(
    arguments: dict[str, Any], data: st.DataObject
) -> None:
    text = json.dumps({"arguments": arguments, "tool": "shell"}, ensure_ascii=False, sort_keys=True)
    cut = data.draw(st.integers(len('{"arguments": {'), len(text)))
    extracted = summaries.extract_arguments(text[:cut])
    assert extracted is None or set(extracted) <= set(arguments)


@given(value=VALUES)
def test_a_gist_is_one_short_line(value: Any) -> None:
    line = summaries.summarize_arguments(value)
    assert len(line) <= summaries.MAX_SUMMARY_CHARACTERS
    assert len(line.splitlines()) <= 1


@pytest.mark.parametrize(
    ("arguments", "gist"),
    [
        ({"command": "git push origin main"}, "git push origin main"),
        ({"content": "x" * 300, "file_path": "a.py"}, "a.py  content=" + "x" * 105 + "…"),
        ({"description": "Push it", "command": "git push"}, "git push  description=Push it"),
        ({"a": 1, "b": [1, 2]}, "a=1  b=[1, 2]"),
        (
            {"commits": [{"sha": "c1c03a6"}], "refspec": "c1:main"},
            'refspec=c1:main  commits=[{"sha": "c1c03a6"}]',
        ),
        ({"a": "one\ntwo\n\n three"}, "one ⏎ two ⏎ three"),
        (["ls", "-l"], '["ls", "-l"]'),
        ("plain", "plain"),
        (None, ""),
        ({}, ""),
    ],
)
def test_the_gist_shows_what_a_call_does(arguments: Any, gist: str) -> None:
    assert summaries.summarize_arguments(arguments) == gist


@given(text=st.text(max_size=60), limit=st.integers(1, 50))
def test_an_excerpt_is_a_prefix_with_the_full_size(text: str, limit: int) -> None:
    piece = entry_bodies.cut_excerpt(text, limit)
    assert text.startswith(piece.text)
    assert piece.octets == len(text.encode())
    assert len(piece.text.encode()) <= limit
    assert piece.cut == (piece.text != text)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("48211", 48211),
        ("48 211", 48211),
        ("48\u202f211", 48211),
        ("e_48211", 48211),
        ("S_7", 7),
        (str(MAX_POSITION), MAX_POSITION),
        (str(MAX_POSITION + 1), None),
        ("-1", None),
        ("e48211", None),
        ("x_1", 1),
        ("y_1", None),
        ("٣", None),
        ("", None),
    ],
)
def test_positions_are_read_as_people_write_them(text: str, position: int | None) -> None:
    assert handles.parse_position(text) == position


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("1970-01-02", 86_400_000_000),
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("2h", 10**15 - 7_200_000_000),
        ("30M", 10**15 - 1_800_000_000),
        ("7d", 10**15 - 604_800_000_000),
    ],
)
def test_times_are_moments_or_ages(text: str, microseconds: int) -> None:
    assert parse_time(QueryValue(text, 0), 10**15).from_us == microseconds


@pytest.mark.parametrize("text", ["yesterday", "", "7 fortnights", "2026-13-01", "1e9"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(QueryError):
        parse_time(QueryValue(text, 0), 10**15)


@pytest.mark.django_db
def test_pages_around_before_and_after_meet(agent: Caller) -> None:
    for number in range(23):
        agent.session(f"n-{number:02}")
    rows = Session.objects.filter(key__startswith="n-")
    positions = sorted(rows.values_list("opened_position", flat=True), reverse=True)

    def cut(window: Window) -> list[int]:
        return [row.opened_position for row in load_keyset_page(rows, 5, window).rows]

    newest = load_keyset_page(rows, 5, Window())
    assert (newest.newer, newest.older) == (None, positions[4])
    assert cut(Window()) == positions[:5]
    for index, position in enumerate(positions):
        assert cut(Window(before=position)) == positions[index + 1 : index + 6]
        assert cut(Window(after=position)) == positions[max(0, index - 5) : index]
        around = cut(Window(at=position))
        assert position in around
        assert around == positions[positions.index(around[0]) :][: len(around)]
        assert len(around) == 5 or around[-1] == positions[-1]
    oldest = load_keyset_page(rows, 5, Window(before=positions[-6]))
    assert oldest.older is None
    assert oldest.newer == positions[-5]
    empty = load_keyset_page(rows, 5, Window(after=positions[0]))
    assert empty.rows == []
    assert cut(Window(before=empty.older)) == positions[:5]
