"""Reads trajectory files: plain or gzip, JSON lines or one JSON value."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from db.text import describe_json_type
from importers.trajectory import DistinctKeys, Json, Trajectory

_GZIP_MAGIC = b"\x1f\x8b"


class BadInputError(Exception):
    """The input has another format. `line` counts from 1; `reason` has no full stop."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


@dataclass(slots=True, frozen=True)
class Document:
    """One JSON value of a file with its line and its published origin."""

    line: int
    origin: dict[str, Json] | None
    raw: Json


@dataclass(slots=True, frozen=True)
class TruncatedLine:
    """A truncated last line: its number from 1 and its size in bytes."""

    line: int
    size: int

    def __str__(self) -> str:
        unit = "byte" if self.size == 1 else "bytes"
        return f"line {self.line:,} is truncated; its {self.size:,} {unit} were skipped"


class Trajectories(list[Trajectory]):
    """The trajectories of a file; `torn` is its truncated last line, if any."""

    torn: TruncatedLine | None = None


class JsonValues:
    """The JSON values of a file: one per line, or one over all lines.

    A last line without a line end that is not JSON is skipped, and is `torn` after iteration.
    Iterating raises BadInputError for other text that is not JSON in UTF-8, for a truncated gzip
    stream and for a file without a value; OSError if the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.torn: TruncatedLine | None = None

    def __iter__(self) -> Iterator[tuple[int, Json]]:
        for number, line, value in _iterate_values(self._path):
            if line is not None:
                self.torn = TruncatedLine(number, len(line))
                return
            yield number, value


def open_values(path: Path) -> JsonValues:
    """Return the JSON values of the file."""
    return JsonValues(path)


def _iterate_values(path: Path) -> Iterator[tuple[int, bytes | None, Json]]:
    """Yield (line number, None, value); (number, bytes, None) if truncated."""
    with path.open("rb") as raw:
        compressed = raw.read(2) == _GZIP_MAGIC
        raw.seek(0)
        stream = cast(BinaryIO, gzip.GzipFile(fileobj=raw) if compressed else raw)
        number = 0
        has_value = False
        for number, line in _read_lines(stream):
            may_be_torn = has_value and not line.endswith(b"\n")
            try:
                text = _decode_line(line, number)
            except BadInputError:
                if may_be_torn:
                    yield number, line, None
                    return
                raise
            if not text.strip():
                continue
            try:
                value = _parse_json(text)
            except json.JSONDecodeError as fault:
                if may_be_torn:
                    yield number, line, None
                    return
                if has_value:
                    raise BadInputError(number, _syntax_reason(fault)) from None
                # Pretty-printed JSON: the value continues on the next lines.
                rest = "".join(
                    _decode_line(next_line, line_number)
                    for line_number, next_line in _read_lines(stream, after=number)
                )
                yield number, None, _parse_document(text + rest, number)
                return
            except (ValueError, RecursionError) as fault:
                raise BadInputError(number, _unreadable_reason(fault)) from None
            has_value = True
            yield number, None, value
        if not has_value:
            raise BadInputError(max(number, 1), "the file is empty")


def read_documents(
    values: Iterable[tuple[int, Json]], describes: Callable[[Json], bool]
) -> Iterator[Document]:
    """Yield the documents in the values of a file; `describes` recognizes a document.

    A document may be wrapped in `{"_source": {...}, "raw": ...}`, in a list, or in an object.
    """
    for line, value in values:
        origin: dict[str, Json] | None = None
        if isinstance(value, dict) and isinstance(value.get("_source"), dict) and "raw" in value:
            origin, value = value["_source"], value["raw"]
        if describes(value):
            yield Document(line, origin, value)
            continue
        documents = (
            value
            if isinstance(value, list)
            else list(value.values())
            if isinstance(value, dict)
            else []
        )
        if not documents or not all(describes(document) for document in documents):
            raise BadInputError(line, _wrong_format_reason(value))
        # Documents with the same origin are distinguished by their index as a fragment.
        for index, document in enumerate(documents):
            path_of = origin.get("path") if origin else None
            document_origin = (
                {**origin, "path": f"{path_of}#{index}"}
                if origin and isinstance(path_of, str)
                else origin
            )
            yield Document(line, document_origin, document)


def collect_trajectories(
    path: Path,
    describes: Callable[[Json], bool],
    parse: Callable[[Document], Trajectory],
    gather: Callable[[Iterator[Document]], Iterator[Document]] = iter,
) -> Trajectories:
    """Return one trajectory with its own key per distinct document with calls."""
    keys, values = DistinctKeys(), open_values(path)
    trajectories = Trajectories()
    for document in gather(read_documents(values, describes)):
        trajectory = parse(document)
        if trajectory.calls and keys.admit(trajectory, document.raw):
            trajectories.append(trajectory)
    trajectories.torn = values.torn
    return trajectories


def build_origin_labels(origin: dict[str, Json] | None) -> dict[str, Json]:
    """Return the origin of a document as session labels, without the commit."""
    if origin is None:
        return {}
    return {"origin": origin.get("repo"), "origin_path": origin.get("path")}


def _read_lines(stream: BinaryIO, after: int = 0) -> Iterator[tuple[int, bytes]]:
    number = after
    while True:
        try:
            line = stream.readline()  # splits at \n only, because U+2028 and \r may occur in JSON
        except (EOFError, zlib.error, gzip.BadGzipFile) as fault:
            reason = str(fault).rstrip(".")
            raise BadInputError(
                number + 1, f"the gzip stream is truncated or damaged ({reason})"
            ) from None
        if not line:
            return
        number += 1
        yield number, line


def _decode_line(line: bytes, number: int) -> str:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as fault:
        reason = f"not text in UTF-8 (byte 0x{line[fault.start]:02x} at column {fault.start + 1})"
        raise BadInputError(number, reason) from None
    return text.removeprefix("\ufeff") if number == 1 else text


def _parse_json(text: str) -> Json:
    return json.loads(text)


def _parse_document(text: str, first_line: int) -> Json:
    try:
        return _parse_json(text)
    except json.JSONDecodeError as fault:
        raise BadInputError(first_line + fault.lineno - 1, _syntax_reason(fault)) from None
    except (ValueError, RecursionError) as fault:
        raise BadInputError(first_line, _unreadable_reason(fault)) from None


def _syntax_reason(fault: json.JSONDecodeError) -> str:
    return f"not JSON: {fault.msg.removesuffix(' at')} (column {fault.colno})"


def _unreadable_reason(fault: Exception) -> str:
    if isinstance(fault, RecursionError):
        return "the JSON is nested too deeply"
    return "the JSON contains a number with too many digits"


def _wrong_format_reason(value: Json) -> str:
    if isinstance(value, dict):
        names = ", ".join(sorted(str(name) for name in value)[:8])
        return f"not a document of this format (an object with {names or 'no fields'})"
    return f"not a document of this format ({describe_json_type(value)})"
