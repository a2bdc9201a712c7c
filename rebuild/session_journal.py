"""The entries of a batch of sessions, with their bodies.

A body counts if it fits the commitment of its entry. The texts of one that was erased, is missing
or was changed are unknown; the verifier tells these apart.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final
from uuid import UUID

from db import long_numbers, raw_sql
from investigation.history.past_entries import PastEntry
from journal.entries import Origin, compute_commitment
from journal.imported_entries import is_imported_source
from journal.models import Erasure
from ledger.store.effect_rows import to_uuid
from rebuild.project_journal import is_archive
from rebuild.registry import RebuildBatch
from rebuild.unreadable_entries import UnreadableEntry, is_left_out, read_entry_facts

ERASED: Final = "its body was erased"
CHANGED: Final = "its body is missing or does not fit its commitment"
_COLUMNS: Final = (
    "position, kind, lane, source, id, producer_seq, occurred_us, received_us, lease_epoch,"
    " session, effect, attempt, subject, actor, facts, claimed_source, body_commit, salt, text"
)
_WIDTH: Final = len(PastEntry._fields)
_SELECT: Final = (
    f"SELECT {_COLUMNS} FROM journal_entry LEFT JOIN journal_body ON entry_id = position"
    " WHERE session = %s AND lane <> 'claim'{part} ORDER BY position"
)
# Of a long session: what is about no effect, its first fact, and plans that name a task.
_REST: Final = (
    " AND (effect IS NULL OR kind NOT IN ('effect.planned', 'effect.dispatched',"
    " 'effect.acknowledged', 'effect.failed')"
    " OR (kind = 'effect.planned' AND (text IS NULL OR text LIKE '%\"task\":%'))"
    " OR position IN (SELECT position FROM journal_entry first WHERE first.session ="
    " journal_entry.session AND first.lane IN ('command', 'evidence') ORDER BY position LIMIT 1))"
)
_ERASED: Final = (
    "SELECT entry_id FROM journal_erasure JOIN journal_entry ON position = entry_id"
    " WHERE session = %s"
)


# What agents do outside of any session.
SESSIONLESS_KINDS: Final = (
    "capacity.reported",
    "lease.acquired",
    "lease.lost",
    "lease.released",
    "message.read",
    "message.sent",
)
_SESSIONLESS: Final = (
    f"SELECT {_COLUMNS} FROM journal_entry LEFT JOIN journal_body ON entry_id = position"
    " WHERE project = %s AND session IS NULL AND lane <> 'claim' AND kind IN"
    f" ({', '.join(repr(kind) for kind in SESSIONLESS_KINDS)}) AND NOT (kind IN ('effect.planned',"
    " 'effect.dispatched', 'effect.acknowledged', 'effect.failed')) ORDER BY position"
)


class SessionJournal:
    """The entries of one session in the order of the journal, but claims."""

    def __init__(
        self,
        project: UUID,
        session: UUID,
        effects: frozenset[UUID] | None = None,
        *,
        is_rest: bool = False,
    ) -> None:
        self._start(project, session)
        condition, parameters = "", [raw_sql.vendor_id(session)]
        if is_rest:
            condition = _REST
        elif effects is not None:
            marks = ", ".join(["%s"] * len(effects))
            condition = f" AND (effect IS NULL OR effect IN ({marks}))"
            parameters += [raw_sql.vendor_id(effect) for effect in sorted(effects)]
        self._read(raw_sql.fetch_rows(_SELECT.replace("{part}", condition), parameters))

    def _start(self, project: UUID, session: UUID) -> None:
        self.project = project
        self.session = session
        self.entries: list[PastEntry] = []
        self._texts: dict[int, str] = {}
        self._claimed_sources: dict[int, str] = {}
        self._imported: set[int] = set()
        self._without_text: list[int] = []
        self._erased: set[int] | None = None

    def _read(self, rows: Iterable[tuple[Any, ...]]) -> None:
        for row in rows:
            if is_left_out(row[0]):
                continue
            entry = _read_entry(row)
            claimed_source, commitment, salt, text = row[_WIDTH:]
            if is_imported_source(entry.source):
                self._imported.add(entry.position)
            if claimed_source:
                self._claimed_sources[entry.position] = claimed_source
            if entry.kind.startswith("access."):
                continue
            self.entries.append(entry)
            if text is not None and bytes(commitment or b"") == compute_commitment(
                bytes(salt), text
            ):
                self._texts[entry.position] = text
            else:
                self._without_text.append(entry.position)

    @property
    def is_imported(self) -> bool:
        """Return True for a session of a bundle: its history is that of another Gatebook."""
        return bool(self._imported)

    def list_entries(self, *kinds: str) -> Iterator[PastEntry]:
        """Yield the entries whose kinds begin with one of `kinds`."""
        return (entry for entry in self.entries if entry.kind.startswith(kinds))

    def has_body(self, position: int) -> bool:
        """Return True if the body of an entry can be read."""
        return position in self._texts

    def read_body(self, position: int) -> dict[str, Any]:
        """Return the body of an entry; empty if it cannot be read."""
        text = self._texts.get(position)
        if text is None:
            return {}
        try:
            value = long_numbers.parse_json(text)
        except ValueError as error:
            raise UnreadableEntry(position, "its body is no JSON") from error
        return value if isinstance(value, dict) else {}

    def read_text(self, position: int) -> str:
        """Return the text of an entry's body; empty if it cannot be read."""
        return self._texts.get(position, "")

    def explain_missing_body(self, position: int) -> str:
        """Return why the body of an entry cannot be read."""
        if self._erased is None:
            self._erased = self._load_erased()
        return ERASED if position in self._erased else CHANGED

    def _load_erased(self) -> set[int]:
        rows = raw_sql.fetch_rows(_ERASED, [raw_sql.vendor_id(self.session)])
        return {int(row[0]) for row in rows}

    def build_origin(self, entry: PastEntry) -> Origin:
        """Return the origin of an agent's entry, as the fold of the session's tables takes it."""
        return Origin(
            project=self.project,
            agent=entry.agent or UUID(int=0),
            source=entry.source,
            actor=entry.actor,
            lane="command" if entry.lane == "command" else "evidence",
            key=entry.event_id,
            text="",
            received_us=entry.received_us,
            claimed_source=self._claimed_sources.get(entry.position, ""),
            occurred_us=entry.occurred_us,
            producer_seq=entry.producer_seq,
            lease_epoch=entry.lease_epoch,
        )


class SessionlessJournal(SessionJournal):
    """A project's entries of agents outside of any session."""

    def __init__(self, project: UUID) -> None:
        self._start(project, UUID(int=0))
        self._read(raw_sql.fetch_rows(_SESSIONLESS, [raw_sql.vendor_id(project)]))

    def _load_erased(self) -> set[int]:
        rows = Erasure.objects.filter(entry__in=self._without_text)
        return set(rows.values_list("entry", flat=True))


def list_agent_journals(batch: RebuildBatch) -> list[SessionJournal]:
    """Return the journals of the batch: of its sessions, or of its project outside of sessions."""
    if batch.sessions:
        return list(load_session_journals(batch).values())
    if batch.project is None or is_archive(batch):
        return []
    if "sessionless" not in batch.cache:
        batch.cache["sessionless"] = SessionlessJournal(batch.project)
    return [batch.cache["sessionless"]]


def load_session_journals(batch: RebuildBatch) -> dict[UUID, SessionJournal]:
    """Return the journals of the batch's sessions, read once for all its checks."""
    if "journals" not in batch.cache:
        if batch.project is None:
            raise ValueError("A batch of sessions has a project.")
        batch.cache["journals"] = {
            session: SessionJournal(batch.project, session, batch.effects, is_rest=batch.is_rest)
            for session in batch.sessions
        }
    journals: dict[UUID, SessionJournal] = batch.cache["journals"]
    return journals


def _read_entry(row: tuple[Any, ...]) -> PastEntry:
    values = list(row[:_WIDTH])
    for index in _IDS:
        if values[index] is not None:
            values[index] = _read_id(row[0], PastEntry._fields[index], values[index])
    values[-1] = read_entry_facts(row[0], values[-1])
    return PastEntry._make(values)


def _read_id(position: int, name: str, value: Any) -> UUID | None:
    try:
        return to_uuid(value)
    except (ValueError, AttributeError, TypeError) as error:
        raise UnreadableEntry(position, f"its {name} is no UUID") from error


_IDS: Final = [PastEntry._fields.index(name) for name in ("session", "effect", "subject")]
