"""Stream the results of a query as CSV, NDJSON or a zip of both, in constant memory.

An export is as of one journal position, taken before the first row is read. Rows opened later are
not included; rows that change later are rebuilt from the journal (see query/streaming.py).

CSV follows RFC 4180: UTF-8 without a byte order mark, CRLF, quotes where needed. A text that begins
with = + - @ tab or CR gets a leading apostrophe so that no spreadsheet reads it as a formula;
numbers stay numbers. NDJSON has one object per line, as in the API, unchanged.
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
    """An export to write. `text` has no ages; `position` is the last journal position included."""

    project: Project
    text: str
    format: str
    position: int
    now_us: int
    who: str  # user name and pseudonym of the person
    late: bool = False  # an index of the query had not reached `position` at the request

    @property
    def asked(self) -> Asked:
        """The parsed query. Raises Fault."""
        return asking.understand(self.text, self.project, self.now_us, self.position)


def wanted(project: Project, text: str, form: str, now_us: int, who: str) -> Wanted:
    """Plan an export of `text` as of now. Raises Fault for a bad query, KeyError for a format."""
    FORMATS[form]
    if not text.strip():
        raise Fault(0, 0, "The query is empty. Name what to export, for example effect or session.")
    export = Wanted(project, absolute(text, now_us), form, horizon.last_position(), now_us, who)
    export.late = bool(late(export.asked))
    return export


def late(search: Asked) -> list[Progress]:
    """List the indexes of a query that have not read the journal up to its position."""
    return [index for index in search.context.indexes.values() if index.missing]


def count(export: Wanted) -> int:
    """Count the rows of an export, or its groups."""
    search = export.asked
    if search.query.grouping is not None:
        groups = asking.answer(search, columns.rows(search.entity.name)).groups
        return len(groups.rows) if groups is not None else 0
    return asking.matches(search).count()


def pieces(
    export: Wanted, tell: Callable[[int], None] = lambda _rows: None, limit: Limit = nullcontext
) -> Iterator[bytes]:
    """Yield the file in pieces. Calls `tell` with the rows done; reads rows within `limit()`.

    Raises Fault if an index has not reached the export's position.
    """
    search = export.asked
    for index in late(search):
        raise Fault(0, 0, f"{index.note} Export again when they are indexed.")
    if export.format == "bundle":
        yield from _bundle(export, search, _rows(export, search, tell, limit))
        return
    names, rows = _names(search, export), _rows(export, search, tell, limit)
    if export.format == "csv":
        yield _line(names)
    for chunk in rows:
        yield b"".join(_csv(row) if export.format == "csv" else _json(row) for row in chunk)


def _names(search: Asked, export: Wanted) -> list[str]:
    grouping = search.query.grouping
    if grouping is not None:
        return [*(name for name, _ in grouping.names), *map(str, grouping.aggregates)]
    return [
        column.name
        for column in columns.of(search.entity.name, Reader(export.project, export.now_us))
    ]


def _rows(
    export: Wanted, search: Asked, tell: Callable[[int], None], limit: Limit
) -> Iterator[list[dict[str, Any]]]:
    entity, reader, done = search.entity.name, Reader(export.project, export.now_us), 0
    reader.follow(search.context)
    if search.query.grouping is not None:
        with limit():
            groups = asking.answer(search, columns.rows(entity)).groups
        names = _names(search, export)
        json_rows = (
            [dict(zip(names, row, strict=True)) for row in columns.groups_told(groups)]
            if groups is not None
            else []
        )
        tell(len(json_rows))
        yield json_rows
        return
    chunks = streaming.stream(search, columns.rows(entity))
    while True:
        with limit():
            chunk = next(chunks, None)
            if chunk is None:
                return
            json_rows = [columns.told(entity, row, reader) for row in chunk]
        done += len(json_rows)
        tell(done)
        yield json_rows


def _json(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def _csv(row: dict[str, Any]) -> bytes:
    return _line([columns.flat(value) for value in row.values()])


def _line(values: list[Any]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerow([safe(value) for value in values])
    return out.getvalue().encode("utf-8", "backslashreplace")


def safe(value: Any) -> Any:
    """Return a cell value that no spreadsheet reads as a formula."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value


class _Out(io.RawIOBase):
    """Write target of a zip file that buffers pieces until they are fetched."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.kept.append(bytes(data))
        return len(data)

    def fetch(self) -> bytes:
        """Return the bytes written since the last call."""
        data = b"".join(self.kept)
        self.kept.clear()
        return data


def _bundle(export: Wanted, search: Asked, rows: Iterator[list[dict[str, Any]]]) -> Iterator[bytes]:
    out, number = _Out(), 0
    hashes: dict[str, Any] = {}
    # Rows are read once: the CSV goes to a temporary file and follows the NDJSON.
    with (
        tempfile.TemporaryFile() as csv_file,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file,
    ):
        csv_file.write(_line(_names(search, export)))
        kept = _Kept()
        with file.open("rows.ndjson", "w", force_zip64=True) as part:
            for chunk in rows:
                number += len(chunk)
                kept.add(part, b"".join(_json(row) for row in chunk))
                csv_file.write(b"".join(_csv(row) for row in chunk))
                yield out.fetch()
        hashes["rows.ndjson"] = kept.told()
        csv_file.seek(0)
        kept = _Kept()
        with file.open("rows.csv", "w", force_zip64=True) as part:
            while piece := csv_file.read(_PIECE):
                kept.add(part, piece)
                yield out.fetch()
        hashes["rows.csv"] = kept.told()
        kept = _Kept()
        with file.open("query.txt", "w") as part:
            kept.add(part, f"{export.text}\n".encode())
        hashes["query.txt"] = kept.told()
        file.writestr(
            "about.json",
            orjson.dumps(_about(export, search, number, hashes), option=orjson.OPT_INDENT_2),
        )
        yield out.fetch()
    yield out.fetch()


def _pinned(export: Wanted) -> str | None:
    """Return the query that always finds the same rows; None if it cannot be pinned."""
    try:
        return pinned(export.text, export.now_us, export.position)
    except Fault:
        return None


class _Kept:
    """Size and hash of a part of the zip file."""

    def __init__(self) -> None:
        self.size, self.digest = 0, hashlib.sha256()

    def add(self, part: IO[bytes], data: bytes) -> None:
        """Write data to the part."""
        part.write(data)
        self.size += len(data)
        self.digest.update(data)

    def told(self) -> dict[str, Any]:
        """Return size in bytes and SHA-256 of the part."""
        return {"bytes": self.size, "sha256": self.digest.hexdigest()}


def _about(export: Wanted, search: Asked, number: int, hashes: dict[str, Any]) -> dict[str, Any]:
    return {
        "gatebook_export": VERSION,
        "project": {"id": str(export.project.id), "name": export.project.name},
        "query": export.text,
        "pinned": _pinned(export),
        "entity": search.entity.name,
        "as_of": export.position,
        "indexes": [index.as_json for index in search.context.indexes.values()],
        "asked_at": moment(export.now_us),
        "asked_by": export.who,
        "rows": number,
        "columns": _names(search, export),
        "files": hashes,
    }
