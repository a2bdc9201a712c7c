"""Stream the results of a query as CSV, NDJSON or a zip of both, in constant memory.

An export is as of one journal position, taken before the first row is read. Rows opened later are
not included; rows that change later are rebuilt from the journal (investigation/query/stream.py).

CSV follows RFC 4180: UTF-8 without a byte order mark, CRLF, quotes where needed. A text that begins
with = + - @ tab or CR gets a leading apostrophe so that no spreadsheet reads it as a formula;
numbers stay numbers. NDJSON has one object per line, as in the API, and the address of its proof.
"""

import csv
import hashlib
import io
import tempfile
import zipfile
from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import IO, Any, Final

import orjson
from django.conf import settings
from django.urls import reverse

from accounts.models import Project
from display.index_progress import IndexProgress
from investigation.query import execute, result_columns, stream
from investigation.query.column_types import Reader, format_moment_us
from investigation.query.execute import CompiledQuery
from investigation.query.parser.ast import QueryError
from investigation.query.permalink import pin_query
from journal.models import Entry
from proofs import proof_document
from proofs.models import TreeHead

VERSION: Final = 1
FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r")
TYPES: Final = {
    "csv": "text/csv; charset=utf-8",
    "ndjson": "application/x-ndjson",
    "bundle": "application/zip",
}
ENDINGS: Final = {"csv": "csv", "ndjson": "ndjson", "bundle": "zip"}
MAX_PROOFS: Final = 20_000  # rows of a zip whose entries are proved, the newest ones
_PIECE: Final = 65_536
_PROOFS_AT_ONCE: Final = 500
# The column with the address of the proof of the row's entry: a table file has no place for it.
PROOF: Final = "proof"

Limit = Callable[[], AbstractContextManager[Any]]


@dataclass(slots=True)
class ExportPlan:
    """An export to write. `text` has no ages; `position` is the last journal position included."""

    project: Project
    text: str
    format: str
    position: int
    now_us: int
    who: str  # user name and pseudonym of the person
    columns: tuple[str, ...] = ()  # those that CSV and NDJSON have; empty for all
    late: bool = False  # an index of the query had not reached `position` at the request

    @property
    def compiled(self) -> CompiledQuery:
        """The parsed query. Raises QueryError."""
        return execute.compile_query(self.text, self.project, self.now_us, self.position)


def late_indexes(search: CompiledQuery) -> list[IndexProgress]:
    """List the indexes of a query that have not read the journal up to its position."""
    return [index for index in search.indexes if index.missing]


def count_export_rows(export: ExportPlan) -> int:
    """Count the rows of an export, or its groups."""
    search = export.compiled
    if search.query.grouping is not None:
        groups = execute.load_results(
            search, result_columns.prepare_rows(search.entity.name)
        ).groups
        return len(groups.rows) if groups is not None else 0
    return execute.matching_rows(search).count()


def export_pieces(
    export: ExportPlan, tell: Callable[[int], None] = lambda _rows: None, limit: Limit = nullcontext
) -> Iterator[bytes]:
    """Yield the file in pieces. Calls `tell` with the rows done; reads rows within `limit()`.

    The indexes of the query must have reached the export's position (`late_indexes`).
    """
    search = export.compiled
    if export.format == "bundle":
        positions = array("q")
        exported = _export_rows(export, search, tell, limit, positions)
        yield from _bundle_pieces(export, search, exported, positions)
        return
    names, rows = list_column_names(search, export), _export_rows(export, search, tell, limit)
    if export.format == "csv":
        yield _csv_line(names)
    for chunk in rows:
        yield b"".join(_to_csv(row) if export.format == "csv" else _to_ndjson(row) for row in chunk)


def list_column_names(search: CompiledQuery, export: ExportPlan) -> list[str]:
    """List the columns of the rows, `proof` last, or of the groups."""
    grouping = search.query.grouping
    if grouping is not None:
        return [*(name for name, _ in grouping.names), *map(str, grouping.aggregates)]
    reader = Reader(export.project, export.now_us)
    names = [column.name for column in result_columns.visible_columns(search.entity.name, reader)]
    return [*(name for name in names if not export.columns or name in export.columns), PROOF]


def _export_rows(
    export: ExportPlan,
    search: CompiledQuery,
    tell: Callable[[int], None],
    limit: Limit,
    positions: "array[int] | None" = None,
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows in chunks; add the positions of their entries to `positions`."""
    entity, reader, done = search.entity.name, Reader.of_context(search.context), 0
    if search.query.grouping is not None:
        with limit():
            groups = execute.load_results(search, result_columns.prepare_rows(entity)).groups
        names = list_column_names(search, export)
        json_rows = (
            [dict(zip(names, row, strict=True)) for row in result_columns.groups_to_json(groups)]
            if groups is not None
            else []
        )
        tell(len(json_rows))
        yield json_rows
        return
    names = [name for name in list_column_names(search, export) if name != PROOF]
    path = reverse("proof", urlconf=settings.ROOT_URLCONF, args=[0])
    address = f"{settings.GATEBOOK_URL}{path.removesuffix('0/')}"
    chunks = stream.stream_matches(search, result_columns.prepare_rows(entity))
    while True:
        with limit():
            chunk = next(chunks, None)
            if chunk is None:
                return
            json_rows = [
                {
                    **result_columns.row_to_json(entity, row, reader, names),
                    PROOF: f"{address}{row.opened_position}/",
                }
                for row in chunk
            ]
        if positions is not None:
            positions.extend(row.opened_position for row in chunk)
        done += len(json_rows)
        tell(done)
        yield json_rows


def _to_ndjson(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)


def _to_csv(row: dict[str, Any]) -> bytes:
    return _csv_line([result_columns.flatten_value(value) for value in row.values()])


def _csv_line(values: list[Any]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerow([escape_formula(value) for value in values])
    return out.getvalue().encode("utf-8", "backslashreplace")


def escape_formula(value: Any) -> Any:
    """Return a cell value that no spreadsheet reads as a formula."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULAS) else value


class _ZipBuffer(io.RawIOBase):
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


def _bundle_pieces(
    export: ExportPlan,
    search: CompiledQuery,
    rows: Iterator[list[dict[str, Any]]],
    positions: "array[int]",
) -> Iterator[bytes]:
    out, number = _ZipBuffer(), 0
    hashes: dict[str, Any] = {}
    # Rows are read once: the CSV goes to a temporary file and follows the NDJSON.
    with (
        tempfile.TemporaryFile() as csv_file,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file,
    ):
        csv_file.write(_csv_line(list_column_names(search, export)))
        kept = _PartDigest()
        with file.open("rows.ndjson", "w", force_zip64=True) as part:
            for chunk in rows:
                number += len(chunk)
                kept.add(part, b"".join(_to_ndjson(row) for row in chunk))
                csv_file.write(b"".join(_to_csv(row) for row in chunk))
                yield out.fetch()
        hashes["rows.ndjson"] = kept.to_json()
        csv_file.seek(0)
        kept = _PartDigest()
        with file.open("rows.csv", "w", force_zip64=True) as part:
            while piece := csv_file.read(_PIECE):
                kept.add(part, piece)
                yield out.fetch()
        hashes["rows.csv"] = kept.to_json()
        kept = _PartDigest()
        with file.open("query.txt", "w") as part:
            kept.add(part, f"{export.text}\n".encode())
        hashes["query.txt"] = kept.to_json()
        head = proof_document.load_covering_head(export.position)
        if head is not None and positions:
            kept = _PartDigest()
            with file.open("proof.json", "w", force_zip64=True) as part:
                for piece in _proof_pieces(export.project, head, positions):
                    kept.add(part, piece)
                    yield out.fetch()
            hashes["proof.json"] = kept.to_json()
        file.writestr(
            "about.json",
            orjson.dumps(_about_json(export, search, number, hashes), option=orjson.OPT_INDENT_2),
        )
        yield out.fetch()
    yield out.fetch()


def _proof_pieces(project: Project, head: TreeHead, positions: "array[int]") -> Iterator[bytes]:
    """Yield proof.json: the entry that each row is about, or that opened it, with its proof.

    Bodies are withheld: the columns of an export are what the person asked for.
    """
    described = orjson.dumps(proof_document.describe_head(head))
    yield described[:-1] + b',"entries":['
    chosen, separator = sorted(set(positions[:MAX_PROOFS])), b"\n"
    for start in range(0, len(chosen), _PROOFS_AT_ONCE):
        part = chosen[start : start + _PROOFS_AT_ONCE]
        entries = Entry.objects.filter(project=project.id, position__in=part).order_by("position")
        for row in proof_document.prove_entries(head, list(entries)):
            yield separator + orjson.dumps(row)
            separator = b",\n"
    yield b'],\n"erased":[]}\n'


def _pinned_query(export: ExportPlan) -> str | None:
    """Return the query that always finds the same rows; None if it cannot be pinned."""
    try:
        return pin_query(export.text, export.now_us, export.position)
    except QueryError:
        return None


class _PartDigest:
    """Size and hash of a part of the zip file."""

    def __init__(self) -> None:
        self.size, self.digest = 0, hashlib.sha256()

    def add(self, part: IO[bytes], data: bytes) -> None:
        """Write data to the part."""
        part.write(data)
        self.size += len(data)
        self.digest.update(data)

    def to_json(self) -> dict[str, Any]:
        """Return size in bytes and SHA-256 of the part."""
        return {"bytes": self.size, "sha256": self.digest.hexdigest()}


def _about_json(
    export: ExportPlan, search: CompiledQuery, number: int, hashes: dict[str, Any]
) -> dict[str, Any]:
    return {
        "gatebook_export": VERSION,
        "project": {"id": str(export.project.id), "name": export.project.name},
        "query": export.text,
        "pinned": _pinned_query(export),
        "entity": search.entity.name,
        "as_of": export.position,
        "indexes": [index.as_json for index in search.indexes],
        "asked_at": format_moment_us(export.now_us),
        "asked_by": export.who,
        "rows": number,
        "columns": list_column_names(search, export),
        "files": hashes,
    }
