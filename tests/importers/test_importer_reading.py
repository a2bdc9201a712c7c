"""Input of another format is refused with its line, before anything is sent."""

import contextlib
import copy
import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from importers import READERS
from importers.files import BadInputError, open_values
from importers.to_events import build_shipment, split_batches
from tests.importers.samples import FILES, RECORDED, json_lines, needs_recordings, write_lines

CLAUDE_LINE = json.dumps({"type": "progress", "sessionId": "s", "uuid": "u"}).encode() + b"\n"


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"", 1, "the file is empty"),
        (b"\n\n  \n", 3, "the file is empty"),
        (gzip.compress(b"", mtime=0), 1, "the file is empty"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", 1, "not text in UTF-8 (byte 0x89 at column 1)"),
        (b"\x00\x01\x02", 1, "not JSON: Expecting value (column 1)"),
        ('{"type": "ä"}'.encode("utf-16"), 1, "not text in UTF-8 (byte 0xff at column 1)"),
        (
            CLAUDE_LINE + b'{"type": "user", "sess\n',
            2,
            "not JSON: Invalid control character (column 23)",
        ),
        (CLAUDE_LINE * 3 + b"\xff\xfe\n", 4, "not text in UTF-8 (byte 0xff at column 1)"),
        (b"[\n1,\n2\n3\n]\n", 4, "not JSON: Expecting ',' delimiter (column 1)"),
        (b'{"type":' * 5000, 1, "the JSON is nested too deeply"),
        (b'{"type":' + b"9" * 5000 + b"}", 1, "the JSON contains a number with too many digits"),
    ],
)
def test_invalid_json_is_refused_with_its_line(
    tmp_path: Path, content: bytes, line: int, reason: str
) -> None:
    path = tmp_path / "input"
    path.write_bytes(content)
    with pytest.raises(BadInputError) as refused:
        list(open_values(path))
    assert (refused.value.line, refused.value.reason) == (line, reason)


@pytest.mark.parametrize("cut", [12, 100, -9])
def test_a_cut_gzip_stream_is_refused(tmp_path: Path, cut: int) -> None:
    whole = gzip.compress(CLAUDE_LINE * 50 + json.dumps({"noise": list(range(3000))}).encode())
    path = tmp_path / "cut.gz"
    path.write_bytes(whole[:cut])
    with pytest.raises(BadInputError, match="the gzip stream is truncated or damaged"):
        list(open_values(path))


def test_a_damaged_gzip_stream_is_refused(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(CLAUDE_LINE * 500))
    whole[len(whole) // 2] ^= 0xFF
    path = tmp_path / "damaged.gz"
    path.write_bytes(bytes(whole))
    with pytest.raises(
        BadInputError, match=r"gzip stream is truncated or damaged|not JSON|not text"
    ):
        list(open_values(path))


def test_separators_inside_texts_end_no_line_and_a_byte_order_mark_is_no_fault(
    tmp_path: Path,
) -> None:
    path = tmp_path / "separators.jsonl"
    path.write_bytes("\ufeff".encode() + '{"a": "x\u2028y\u0085z"}\r\n'.encode() + b'{"b": 1}')
    assert list(open_values(path)) == [(1, {"a": "x\u2028y\u0085z"}), (2, {"b": 1})]


@pytest.mark.parametrize("name", sorted(path.name for path in FILES.iterdir()))
@pytest.mark.parametrize("format_name", sorted(READERS))
def test_a_file_of_another_format_is_refused_at_its_first_line(format_name: str, name: str) -> None:
    if name.startswith(format_name):
        return
    with pytest.raises(BadInputError) as refused:
        READERS[format_name](FILES / name)
    assert refused.value.line == 1


@needs_recordings
@pytest.mark.parametrize("format_name", sorted(READERS))
@pytest.mark.parametrize("name", ["github-webhooks", "langfuse-traces", "otlp-examples"])
def test_recordings_that_are_no_trajectories_are_refused(format_name: str, name: str) -> None:
    with pytest.raises(BadInputError) as refused:
        READERS[format_name](RECORDED / name / f"{name}.jsonl.gz")
    assert refused.value.line == 1


@pytest.mark.parametrize("format_name", sorted(READERS))
@pytest.mark.parametrize(
    "stranger",
    [
        *(
            "{}",
            "[]",
            "null",
            "17",
            '"text"',
            '{"resourceSpans": []}',
            '{"_source": {"path": "x"}, "raw": {}}',
        ),
        # A history of requests and responses: each has a kind, but none is an event.
        '[{"kind": "request", "parts": []}, {"kind": "response", "parts": [{"part_kind": '
        '"tool-call"}]}]',
    ],
)
def test_other_json_is_refused_by_every_format(
    tmp_path: Path, format_name: str, stranger: str
) -> None:
    path = tmp_path / "stranger.json"
    path.write_text(stranger)
    with pytest.raises(BadInputError) as refused:
        READERS[format_name](path)
    assert refused.value.line == 1


def _places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path to every value inside `value`."""
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for name, child in children:
        yield (*place, name)
        yield from _places(child, (*place, name))


@pytest.mark.parametrize("path", sorted(FILES.iterdir()), ids=lambda path: path.stem)
def test_a_file_with_misplaced_values_is_read_or_refused(tmp_path: Path, path: Path) -> None:
    format_name = next(
        reader for reader in sorted(READERS, key=len, reverse=True) if path.name.startswith(reader)
    )
    chance = random.Random(path.name)
    lines = json_lines(path)
    places = [(line, place) for line, value in enumerate(lines) for place in _places(value)]
    for line, place in chance.sample(places, min(len(places), 120)):
        changed = copy.deepcopy(lines)
        holder = changed[line]
        for name in place[:-1]:
            holder = holder[name]
        holder[place[-1]] = chance.choice([None, 7, True, "x", [], {}, [{}], "\ud800\x00"])
        # Every value that is read can be sent.
        with contextlib.suppress(BadInputError):
            for trajectory in READERS[format_name](
                write_lines(tmp_path / "changed.jsonl", changed)
            ):
                assert list(split_batches(build_shipment(trajectory).facts))


@pytest.mark.parametrize(
    ("format_name", "line"),
    [
        ("claude-code", '{"type": "user", "sessionId": "s"}'),
        ("claude-code", '{"sessionId": "s"}'),
        ("pi", '{"type": "message"}'),
        ("tau-bench", '{"task_id": 1, "traj": ["not a message"]}'),
        ("intercode", '{"turn_history": {"actions": "ls"}}'),
        ("openhands", '{"history": [17]}'),
    ],
)
def test_a_bad_record_after_good_ones_is_named_by_its_line(
    tmp_path: Path, format_name: str, line: str
) -> None:
    good = (FILES / f"{format_name}.jsonl").read_text("utf-8").rstrip("\n")
    path = tmp_path / "mixed.jsonl"
    path.write_text(f"{good}\n{line}\n", "utf-8")
    with pytest.raises(BadInputError) as refused:
        READERS[format_name](path)
    assert refused.value.line == good.count("\n") + 2
