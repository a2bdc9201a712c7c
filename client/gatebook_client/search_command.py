"""`gatebook search`: search the journal with a query of the Search page; print the rows.

Text from agents never reaches the terminal raw: characters that are not printable are shown by
their code points.
"""

import argparse
import json
import sys
from typing import Final

from gatebook_client.client import Client
from gatebook_client.errors import GatebookError, Refused
from gatebook_client.types import Json

# The columns shown for each entity; --json prints all fields.
COLUMNS: Final = {
    "effect": ("effect", "at", "session", "state", "outcome", "permission", "tool", "reference"),
    "session": ("session", "at", "status", "agent", "effects", "key", "title"),
    "gate": ("gate", "at", "effect", "status", "tool", "asked", "reviewers"),
    "exemption": ("granted", "expires", "tool", "rule", "granter", "uses"),
    "event": ("position", "at", "kind", "actor", "session", "effect"),
}
MAX_CELL_CHARS: Final = 60


class QueryError(GatebookError):
    """The query is not valid; the message shows it with a mark below the error."""


def run(client: Client, options: argparse.Namespace) -> int:
    """Print the rows that match a query, one page of `--limit` rows or all; return 0.

    Raises QueryError, Refused, ServerUnavailable.
    """
    before = ""
    while True:
        page = _load_page(client, options, before)
        if options.json:
            _print_line(json.dumps(page, ensure_ascii=True))
        else:
            _print_page(page, first=not before)
        before = page["next"] or ""
        if not before or not options.all:
            break
    if before and not options.json:
        sys.stderr.write("gatebook: more rows match; --all prints all pages\n")
    return 0


def _load_page(client: Client, options: argparse.Namespace, before: str) -> Json:
    try:
        return client.http.get("/search", q=options.query, limit=options.limit, before=before).body
    except Refused as refusal:
        if refusal.code != "query_invalid":
            raise
        at, length = int(refusal.problem["at"]), int(refusal.problem["length"])
        line = "".join(character if character.isprintable() else " " for character in options.query)
        mark = " " * at + "^" * max(length, 1)
        stop = "" if refusal.sentence.endswith("?") else "."
        raise QueryError(f"{refusal.sentence}{stop}\n  {line}\n  {mark}") from None


def _print_page(page: Json, *, first: bool) -> None:
    for note in page["notes"] if first else ():
        sys.stderr.write(f"gatebook: {_to_printable(note)}\n")
    groups = page["groups"]
    names = (
        groups["names"]
        if groups
        else [name for name in COLUMNS[page["entity"]] if _has_values(page["rows"], name)]
    )
    rows = groups["rows"] if groups else [[row.get(name) for name in names] for row in page["rows"]]
    cells = [[_format_cell(value) for value in row] for row in rows]
    head = [str(name) for name in names]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)] if head else []
    for row in [head, *cells] if first and cells else cells:
        _print_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    if not cells and first and not page["next"]:
        sys.stderr.write("gatebook: no rows match\n")


def _has_values(rows: list[Json], name: str) -> bool:
    return any(row.get(name) not in (None, "", []) for row in rows)


def _format_cell(value: object) -> str:
    if value is None:
        return ""
    text = "; ".join(map(str, value)) if isinstance(value, list) else str(value)
    shown = _to_printable(text)
    return shown if len(shown) <= MAX_CELL_CHARS else f"{shown[: MAX_CELL_CHARS - 1]}…"


def _to_printable(text: str) -> str:
    """Replace control characters, escapes and direction overrides by code points."""
    return "".join(
        character if character.isprintable() else f"<U+{ord(character):04X}>" for character in text
    )


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line.rstrip()}\n")
