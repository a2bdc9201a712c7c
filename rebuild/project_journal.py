"""The entries of Gatebook itself about a project's people, settings and controls."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import QuerySet

from accounts.models import Project
from journal.entries import SYSTEM_SOURCE, compute_commitment
from journal.models import Body, Entry
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from rebuild.registry import RebuildBatch
from rebuild.short_entries import FullForms
from rebuild.unreadable_entries import READING_ERRORS, UnreadableEntry

EARLIER_VERSION: Final = "the entry is of a version that did not record it"
ERASED: Final = "the body of its entry is erased"
NO_PERSON: Final = "the pseudonym stands for no account"
_BODIES_AT_ONCE: Final = 500
_FEW: Final = 500  # entries of a project that are read at once for all its tables
_LAST: Final = ("received_us", "facts")
_NEAR_US: Final = 60_000_000
_IDS: Final = ("project", "subject", "session", "effect")


@dataclass(frozen=True, slots=True)
class ProjectEntry:
    """One entry; `body` is None once it is erased, or where it does not fit its commitment."""

    position: int
    project: UUID
    event_id: str
    kind: str
    subject: UUID | None
    session: UUID | None
    effect: UUID | None
    actor: str
    received_us: int
    facts: Mapping[str, Any]
    body: Mapping[str, Any] | None

    def read(self, name: str, unknown: dict[str, str], column: str = "") -> Any:
        """Return a value of the body; where it is erased, add the column to `unknown`."""
        if self.body is None or name not in self.body:
            unknown[column or name] = ERASED if self.body is None else EARLIER_VERSION
            return None
        return self.body[name]


def load_project_entries(
    batch: RebuildBatch, kinds: Sequence[str], *, of_archives: bool = False
) -> list[ProjectEntry]:
    """Return the project's own entries of these kinds, in order.

    An archive holds what another installation recorded, and nothing there decides. What this
    installation recorded about the archive itself, such as its members, is read with `of_archives`.
    """
    if batch.project is None or (is_archive(batch) and not of_archives):
        return []
    key = ("entries", *kinds)
    if key not in batch.cache and (few := _load_few_entries(batch)) is not None:
        batch.cache[key] = [entry for entry in few if entry.kind in kinds]
    if key not in batch.cache:
        of_project = Entry.objects.filter(project=batch.project)
        batch.cache[key] = list(_read_entries(of_project, kinds))
    entries: list[ProjectEntry] = batch.cache[key]
    return entries


def _load_few_entries(batch: RebuildBatch) -> list[ProjectEntry] | None:
    """Return the entries of all kinds of a project that has few; None if each table reads its own.

    Each table reads its own also where one entry cannot be read: the others can be compared.
    """
    if batch.sessions:  # of many batches, each with few tables
        return None
    if "few" not in batch.cache:
        of_project = Entry.objects.filter(project__in=[batch.project])
        batch.cache["few"] = None
        with suppress(*READING_ERRORS):
            entries = list(islice(_read_entries(of_project), _FEW + 1))
            batch.cache["few"] = entries if len(entries) <= _FEW else None
    few: list[ProjectEntry] | None = batch.cache["few"]
    return few


def match_clock(stored: int | None, entry: ProjectEntry) -> int:
    """Return the time of a row if it is near that of its entry; else that of the entry.

    The two clocks are read one after the other, in either order.
    """
    is_near = stored is not None and abs(stored - entry.received_us) <= _NEAR_US
    return stored if is_near and stored is not None else entry.received_us


def iterate_project_entries(
    batch: RebuildBatch, kinds: Sequence[str], *, bodies_at_once: int = _BODIES_AT_ONCE
) -> Iterator[ProjectEntry]:
    """Yield the entries of these kinds of the project, also of an archive, and keep none."""
    of_project = Entry.objects.filter(project__in=[batch.project])
    return _read_entries(of_project, kinds, bodies_at_once)


def load_installation_entries(kinds: Sequence[str]) -> list[ProjectEntry]:
    """Return the entries of these kinds of every project, in order, also those of archives."""
    return list(_read_entries(Entry.objects.all(), kinds))


def is_archive(batch: RebuildBatch) -> bool:
    """Return True if the batch's project contains imported bundles."""
    if "archive" not in batch.cache:
        archives = Project.objects.filter(archive=True)
        batch.cache["archive"] = batch.project in archives.values_list("pk", flat=True)
    return bool(batch.cache["archive"])


def _read_entries(
    entries: "QuerySet[Entry]",
    kinds: Sequence[str] | None = None,
    bodies_at_once: int = _BODIES_AT_ONCE,
) -> Iterator[ProjectEntry]:
    """Yield the entries (of these kinds) of this installation: a bundle may hold any in any lane.

    Entries that lack facts which earlier ones have are left out, and named by short_entries.py.
    """
    forms = FullForms()
    own = entries.filter(IS_OF_A_RARE_KIND, lane="system", source=SYSTEM_SOURCE)
    rows = (own if kinds is None else own.filter(kind__in=kinds)).order_by("position")
    names = (
        "position",
        "project",
        "event_id",
        "kind",
        "subject",
        "session",
        "effect",
        "actor",
        *_LAST,
    )
    stored = rows.values_list(*names, "body_commit").iterator(_BODIES_AT_ONCE)
    while part := list(islice(stored, bodies_at_once)):
        bodies = Body.objects.filter(entry__in=[row[0] for row in part])
        texts = {
            position: (bytes(salt), text)
            for position, salt, text in bodies.values_list("entry_id", "salt", "text")
        }
        for *row, commitment in part:
            salt, text = texts.get(row[0], (b"", ""))
            # A body counts only if it fits its commitment, which the seal covers.
            fits = compute_commitment(salt, text) == bytes(commitment or b"")
            columns = dict(zip(names, row, strict=True))
            shown = columns["position"], columns["kind"], columns["facts"]
            facts = columns["facts"] = forms.read_full_facts(*shown)
            if facts is None:
                continue
            for name in _IDS:
                if not isinstance(columns[name], UUID | None):
                    raise UnreadableEntry(columns["position"], f"its {name} is no UUID")
            yield ProjectEntry(**columns, body=_read_body(row[0], text) if fits and text else None)


def _read_body(position: int, text: str) -> dict[str, Any]:
    try:
        body = orjson.loads(text)
    except ValueError as error:
        raise UnreadableEntry(position, "its body is no JSON") from error
    if not isinstance(body, dict):
        raise UnreadableEntry(position, "its body is no JSON object")
    return body
