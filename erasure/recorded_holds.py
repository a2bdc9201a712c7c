"""Compares the legal holds in force with the journal, before any text goes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet

from accounts.models import Project
from erasure.models import LegalHold
from journal import entries
from journal.models import Entry
from ledger.partial_indexes import IS_OF_A_RARE_KIND

_FIND_WHO: Final = (
    "Nothing was erased. Find who changed the row, then run `manage.py rebuild --check`, or set the"
    " hold again and release the former one. If the pepper was replaced, every hold of words"
    " differs like this: set each of them again, then release the former ones."
)


def digest_hold_words(words: Sequence[str]) -> str:
    """Return what an entry says of the words of a hold; empty for a held session."""
    return entries.keyed_digest("hold", *words) if words else ""


class HoldNotRecorded(Exception):
    """A legal hold that the journal has in force has no row or another one, or has no entry."""

    def __init__(self, difference: str) -> None:
        super().__init__(f"{difference} {_FIND_WHO}")
        self.difference = difference


def load_recorded_holds(project: UUID | None) -> list[LegalHold]:
    """Return the holds in force, of one project or of all. Raises HoldNotRecorded.

    The returned rows are those that were compared, so a row that is changed afterwards, for as long
    as the job runs, has no effect on it.
    """
    recorded = _load_entries("erasure.hold_set", project)
    rows = load_stored_holds(project)
    require_recorded_holds(rows, recorded, project)
    return rows


def load_stored_holds(project: UUID | None) -> list[LegalHold]:
    """Return the rows of holds in force, of one project or of all, as they are."""
    holds = LegalHold.objects.filter(released_at_us=None)
    return list(holds.filter(project=project) if project is not None else holds)


def require_recorded_holds(
    rows: Sequence[LegalHold], recorded: Sequence[Mapping[str, Any]], project: UUID | None
) -> None:
    """Check the rows in force against the entries of holds. Raises HoldNotRecorded.

    `recorded` was read before the rows, and releases are read after them: a hold that is set or
    released in between is neither missing nor needed.
    """
    in_force = {row.set_position: row for row in rows}
    set_positions = {entry["position"] for entry in recorded}
    if added := [position for position in in_force if position not in set_positions]:
        set_positions |= {entry["position"] for entry in _load_entries("erasure.hold_set", project)}
        if unknown := [position for position in added if position not in set_positions]:
            raise HoldNotRecorded(f"A legal hold names the entry {unknown[0]}, which sets no hold.")
    missing = [entry for entry in recorded if not _is_row_of(in_force, entry)]
    if not missing:
        return
    released = {
        json.loads(entry["facts"])["hold"]
        for entry in _load_entries("erasure.hold_released", project)
    }
    for entry in missing:
        if entry["position"] not in released:
            raise HoldNotRecorded(
                f"The journal has a legal hold in force (entry {entry['position']}), but its row"
                f" was changed, emptied, released or removed without an entry."
            )


def _is_row_of(in_force: dict[int, LegalHold], entry: Mapping[str, Any]) -> bool:
    """Return True if the hold of `entry` has its row in force, which keeps the same texts."""
    row, facts = in_force.get(entry["position"]), json.loads(entry["facts"])
    if row is None or row.project_id != entry["project"] or row.kind != facts["subject"]:
        return False
    if row.session_id != entry["session"]:
        return False
    # Entries of an earlier version have no digest of the words.
    return row.kind == "session" or facts.get("words") in (None, digest_hold_words(row.words))


def _load_entries(kind: str, project: UUID | None) -> Sequence[Mapping[str, Any]]:
    """Return the entries that this Gatebook wrote, not those of an imported archive."""
    rows: QuerySet[Entry] = Entry.objects.filter(
        IS_OF_A_RARE_KIND, kind=kind, lane="system", source=entries.SYSTEM_SOURCE
    )
    # All projects are named, because the index of rare kinds begins with the project.
    projects = (
        [project] if project is not None else list(Project.objects.values_list("pk", flat=True))
    )
    rows = rows.filter(project__in=projects)
    return list(rows.order_by("position").values("position", "project", "session", "facts"))
