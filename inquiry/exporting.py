"""Writes what a query finds as CSV, NDJSON or a bundle of both: all of it, piece by piece, none of it held in memory.

An export is as of one position of the journal, taken before the first row is read: what is opened meanwhile is not in
it, and what changes meanwhile is told as it stood, made again from the journal (see query/streaming.py).

CSV follows RFC 4180: UTF-8 without a byte order mark, CRLF, quotes where they are needed. A text that begins with one
of = + - @ tab or CR gets an apostrophe before it, so that no spreadsheet takes it for a formula; numbers stay numbers.
NDJSON is as the API tells rows, one object a line, and changes nothing.
"""

import csv
import hashlib
import io
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import IO, Any, Final

import orjson

from inquiry import columns
from inquiry.column import Reader, moment
from inquiry.models_exports import FORMATS
from inquiry.pinned import absolute, pinned
from inquiry.progress import Progress
from inquiry.query import asking, streaming
from inquiry.query.asking import Asked
from inquiry.query.tree import Fault
from journal import horizon
from sessions.models import Project

VERSION: Final = 1
FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")
TYPES: Final = {
    "csv": "text/csv; charset=utf-8",
    "ndjson": "application/x-ndjson",
    "bundle": "application/zip",
}
ENDINGS: Final = {"csv": "csv", "ndjson": "ndjson", "bundle": "zip"}
_PIECE: Final = 65_536

Limit = Callable[[], AbstractContextManager[Any]]


@dataclass(slots=True)
class Wanted:
    """What is to be written. `text` has no ages; `position` is the last that is in it."""

    project: Project
    text: str
    format: str
    position: int
    now_us: int
    who: str  # user name and pseudonym of whoever asked
    late: bool = (
        False  # an index by which it is answered had not read up to `position` when it was asked
    )

    @property
    def asked(self) -> Asked:
        """The query, understood. Raises Fault."""
        return asking.understand(self.text, self.project, self.now_us, self.position)


def wanted(project: Project, text: str, form: str, now_us: int, who: str) -> Wanted:
    """An export of `text` as of now. Raises Fault for what is no query, KeyError for a format that does not exist."""
    FORMATS[form]
    if not text.strip():
        raise Fault(0, 0, "The query is empty. Name what to export, as effect or session.")
    found = Wanted(project, absolute(text, now_us), form, horizon.last_position(), now_us, who)
    found.late = bool(late(found.asked))
    return found


def late(asked: Asked) -> list[Progress]:
    """The indexes that an answer goes by and that have not read all of the journal that it is about."""
    return [one for one in asked.context.indexes.values() if one.missing]


def count(export: Wanted) -> int:
    """How many rows it will have; of groups how many groups."""
    asked = export.asked
    if asked.query.grouping is not None:
        groups = asking.answer(asked, columns.rows(asked.entity.name)).groups
        return len(groups.rows) if groups is not None else 0
    return asking.matches(asked).count()


def pieces(
    export: Wanted, tell: Callable[[int], None] = lambda _rows: None, limit: Limit = nullcontext
) -> Iterator[bytes]:
    """The file, piece by piece. `tell` hears how many rows are done; each reading of rows runs within `limit()`.

    Raises Fault where an index has not read what the export is about.
    """
    asked = export.asked
    for one in late(asked):
        raise Fault(0, 0, f"{one.note} Ask for the export again when they are indexed.")
    if export.format == "bundle":
        yield from _bundle(export, asked, _rows(export, asked, tell, limit))
        return
    names, rows = _names(asked, export), _rows(export, asked, tell, limit)
    if export.format == "csv":
        yield _line(names)
    for chunk in rows:
        yield b"".join(_csv(row) if export.format == "csv" else _json(row) for row in chunk)


def _names(asked: Asked, export: Wanted) -> list[str]:
    grouping = asked.query.grouping
    if grouping is not None:
        return [*(name for name, _ in grouping.names), *map(str, grouping.aggregates)]
    return [
        one.name for one in columns.of(asked.entity.name, Reader(export.project, export.now_us))
    ]


def _rows(
    export: Wanted, asked: Asked, tell: Callable[[int], None], limit: Limit
) -> Iterator[list[dict[str, Any]]]:
    entity, reader, done = asked.entity.name, Reader(export.project, export.now_us), 0
    reader.follow(asked.context)
    if asked.query.grouping is not None:
        with limit():
            groups = asking.answer(asked, columns.rows(entity)).groups
        names = _names(asked, export)
        told = (
            [dict(zip(names, row, strict=True)) for row in columns.groups_told(groups)]
            if groups is not None
            else []
        )
        tell(len(told))
        yield told
        return
    chunks = streaming.stream(asked, columns.rows(entity))
    while True:
        with limit():
            chunk = next(chunks, None)
            if chunk is None:
                return
            told = [columns.told(entity, row, reader) for row in chunk]
        done += len(told)
        tell(done)
        yield told


def _json(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def _csv(row: dict[str, Any]) -> bytes:
    return _line([columns.flat(value) for value in row.values()])


def _line(values: list[Any]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerow([safe(value) for value in values])
    return out.getvalue().encode("utf-8", "backslashreplace")


def safe(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value


# The bundle. --------------------------------------------------------------------------------------------------------


class _Out(io.RawIOBase):
    """What a zip file is written to: it keeps the pieces until they are fetched."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.kept.append(bytes(data))
        return len(data)

    def fetch(self) -> bytes:
        """What was written since the last time."""
        found = b"".join(self.kept)
        self.kept.clear()
        return found


def _bundle(export: Wanted, asked: Asked, rows: Iterator[list[dict[str, Any]]]) -> Iterator[bytes]:
    out, number = _Out(), 0
    hashes: dict[str, Any] = {}
    # Rows are read once: the table is kept aside while the objects are written, and follows them.
    with (
        tempfile.TemporaryFile() as aside,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file,
    ):
        aside.write(_line(_names(asked, export)))
        kept = _Kept()
        with file.open("rows.ndjson", "w", force_zip64=True) as part:
            for chunk in rows:
                number += len(chunk)
                kept.add(part, b"".join(_json(row) for row in chunk))
                aside.write(b"".join(_csv(row) for row in chunk))
                yield out.fetch()
        hashes["rows.ndjson"] = kept.told()
        aside.seek(0)
        kept = _Kept()
        with file.open("rows.csv", "w", force_zip64=True) as part:
            while piece := aside.read(_PIECE):
                kept.add(part, piece)
                yield out.fetch()
        hashes["rows.csv"] = kept.told()
        kept = _Kept()
        with file.open("query.txt", "w") as part:
            kept.add(part, f"{export.text}\n".encode())
        hashes["query.txt"] = kept.told()
        file.writestr(
            "about.json",
            orjson.dumps(_about(export, asked, number, hashes), option=orjson.OPT_INDENT_2),
        )
        yield out.fetch()
    yield out.fetch()


def _pinned(export: Wanted) -> str | None:
    """What finds the same rows for ever; None where nobody could know as of a moment what is asked."""
    try:
        return pinned(export.text, export.now_us, export.position)
    except Fault:
        return None


class _Kept:
    """Counts and hashes what goes into a part."""

    def __init__(self) -> None:
        self.size, self.digest = 0, hashlib.sha256()

    def add(self, part: IO[bytes], data: bytes) -> None:
        """Write it."""
        part.write(data)
        self.size += len(data)
        self.digest.update(data)

    def told(self) -> dict[str, Any]:
        """Size in bytes and SHA-256 of all that was written."""
        return {"bytes": self.size, "sha256": self.digest.hexdigest()}


def _about(export: Wanted, asked: Asked, number: int, hashes: dict[str, Any]) -> dict[str, Any]:
    return {
        "gatebook_export": VERSION,
        "project": {"id": str(export.project.id), "name": export.project.name},
        "query": export.text,
        "pinned": _pinned(export),
        "entity": asked.entity.name,
        "as_of": export.position,
        "indexes": [one.as_json for one in asked.context.indexes.values()],
        "asked_at": moment(export.now_us),
        "asked_by": export.who,
        "rows": number,
        "columns": _names(asked, export),
        "files": hashes,
    }
