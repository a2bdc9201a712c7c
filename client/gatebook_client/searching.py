"""`gatebook search`: asks the book what the page Audit asks, by the same string, and prints rows or groups.

Nothing that an agent wrote reaches the terminal raw: whatever is no printable character is shown by its number.
"""

import argparse
import json
import sys
from typing import Final

from gatebook_client.client import Client
from gatebook_client.errors import GatebookError, Refused
from gatebook_client.values import Json

# What tells the rows of an entity apart at a glance; the rest is in --json.
SHOWN: Final = {
    "effect": ("effect", "at", "session", "state", "outcome", "leave", "tool", "reference"),
    "session": ("session", "at", "status", "agent", "effects", "key", "title"),
    "gate": ("gate", "at", "effect", "status", "tool", "asked", "reviewers"),
    "exemption": ("granted", "expires", "tool", "rule", "granter", "uses"),
    "event": ("position", "at", "kind", "actor", "session", "effect"),
}
WIDEST: Final = 60


class Unclear(GatebookError):
    """The query could not be read; the text shows it with a mark under the place."""


def run(client: Client, asked: argparse.Namespace) -> int:
    """Print what a query finds, a page of `--limit` rows or all; return 0. Raises Unclear, Refused, LedgerAway."""
    before = ""
    while True:
        found = _page(client, asked, before)
        if asked.json:
            _say(json.dumps(found, ensure_ascii=True))
        else:
            _print(found, first=not before)
        before = found["next"] or ""
        if not before or not asked.all:
            break
    if before and not asked.json:
        sys.stderr.write("gatebook: there is more; --all pages on\n")
    return 0


def _page(client: Client, asked: argparse.Namespace, before: str) -> Json:
    try:
        return client.wire.get("/search", q=asked.query, limit=asked.limit, before=before).body
    except Refused as refusal:
        if refusal.code != "query_invalid":
            raise
        at, length = int(refusal.problem["at"]), int(refusal.problem["length"])
        line = "".join(one if one.isprintable() else " " for one in asked.query)
        mark = " " * at + "^" * max(length, 1)
        stop = "" if refusal.sentence.endswith("?") else "."
        raise Unclear(f"{refusal.sentence}{stop}\n  {line}\n  {mark}") from None


def _print(found: Json, *, first: bool) -> None:
    for note in found["notes"] if first else ():
        sys.stderr.write(f"gatebook: {_plain(note)}\n")
    groups = found["groups"]
    names = groups["names"] if groups else [one for one in SHOWN[found["entity"]] if _any(found["rows"], one)]
    rows = groups["rows"] if groups else [[row.get(name) for name in names] for row in found["rows"]]
    cells = [[_cell(value) for value in row] for row in rows]
    head = [str(name) for name in names]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)] if head else []
    for row in [head, *cells] if first and cells else cells:
        _say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    if not cells and first and not found["next"]:
        sys.stderr.write("gatebook: nothing matches\n")


def _any(rows: list[Json], name: str) -> bool:
    return any(row.get(name) not in (None, "", []) for row in rows)


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = "; ".join(map(str, value)) if isinstance(value, list) else str(value)
    shown = _plain(text)
    return shown if len(shown) <= WIDEST else f"{shown[: WIDEST - 1]}…"


def _plain(text: str) -> str:
    """Control characters, escapes and overrides by their numbers."""
    return "".join(one if one.isprintable() else f"<U+{ord(one):04X}>" for one in text)


def _say(line: str) -> None:
    sys.stdout.write(f"{line.rstrip()}\n")
