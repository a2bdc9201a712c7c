"""Batches of bounded size: a few sessions at a time, in the order of their ids.

Sessions are those that the journal or the table has, because either may lack one.
"""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any, Final
from uuid import UUID

from django.db import connection

from accounts.models import SAMPLE_IDS, Project
from db import raw_sql
from db.ids import derive_uuid
from journal.models import Entry
from journal.summaries import parse_body
from ledger.fold import effect_state
from ledger.models import Effect
from rebuild.registry import RebuildBatch, Unit
from rebuild.unreadable_entries import READING_ERRORS
from sessions.models import Session

MAX_BATCH_ENTRIES: Final = 10_000  # entries of the sessions of a batch; one session may have more
MAX_BATCH_SESSIONS: Final = 200
MAX_SESSION_ENTRIES: Final = 20_000  # a longer session is checked in parts
_AT_ONCE: Final = 500
_COUNT: Final = (
    "SELECT session, COUNT(*) FROM journal_entry WHERE session IS NOT NULL{after}{spelled}"
    " GROUP BY session ORDER BY session LIMIT %s"
)
_STORED: Final = (
    "SELECT id, project_id FROM agent_sessions_session WHERE id IS NOT NULL{after}{spelled}"
    " ORDER BY id LIMIT %s"
)
# SQLite orders ids as texts, and takes any. Other spellings are named by rebuild/stored_values.py.
_SPELLED: Final = {
    "sqlite": " AND length(CAST({column} AS blob)) = 32 AND {column} NOT GLOB '*[^0-9a-f]*'",
    "postgresql": "",
}


def list_batches(
    project: UUID | None, after: UUID | None = None
) -> Iterator[tuple[Unit, RebuildBatch]]:
    """Yield what is checked: installation, projects, sessions after `after`, and relations.

    With a `project` only its own. A run that resumes after a session has checked the sessions
    before it, and checks all else again: that takes little time, and decides most.
    """
    if project is None:
        yield "installation", RebuildBatch(None)
    projects = Project.objects.order_by("id").values_list("id", flat=True)
    for identity in projects if project is None else [project]:
        if isinstance(identity, UUID):  # else named by rebuild/stored_values.py
            yield "project", RebuildBatch(identity)
    for batch in _list_session_batches(project, after):
        yield "session", batch
    yield "relations", RebuildBatch(project)


def count_sessions(project: UUID | None) -> int:
    """Return how many sessions are stored, for a progress bar."""
    rows = Session.objects.all() if project is None else Session.objects.filter(project=project)
    return rows.count()


def _list_session_batches(project: UUID | None, after: UUID | None) -> Iterator[RebuildBatch]:
    sessions: list[UUID] = []
    entries, batch_project = 0, None
    for session, its_project, count in _list_sessions(after):
        if project is not None and its_project != project:
            continue
        is_full = entries + count > MAX_BATCH_ENTRIES or len(sessions) >= MAX_BATCH_SESSIONS
        if sessions and (its_project != batch_project or is_full):
            yield RebuildBatch(batch_project, tuple(sessions))
            sessions, entries = [], 0
        batch_project = its_project
        sessions.append(session)
        entries += count
    if sessions:
        yield RebuildBatch(batch_project, tuple(sessions))


def split_batch(batch: RebuildBatch) -> Iterator[RebuildBatch]:
    """Yield a batch, or the parts of one long session; its own row comes first.

    An effect is in the part of those that it compensates, because they change together. Of a long
    session only the ids of its effects are in memory together.
    """
    if len(batch.sessions) != 1:
        yield batch
        return
    session = raw_sql.vendor_id(batch.sessions[0])
    total = int(raw_sql.fetch_rows(_TOTAL, [session])[0][0])
    if total <= MAX_SESSION_ENTRIES:
        yield batch
        return
    counts = {
        raw_sql.read_uuid(effect): int(count)
        for effect, count in raw_sql.fetch_rows(_EFFECT_COUNTS, [session])
    }
    opened = int(raw_sql.fetch_rows(_OPENED, [session])[0][0])
    yield RebuildBatch(batch.project, batch.sessions, is_rest=True, effect_count=opened)
    stored = Effect.objects.filter(session=batch.sessions[0]).values_list("id", flat=True)
    for effect in stored.iterator(2_000):
        counts.setdefault(effect, 0)
    part: list[UUID] = []
    entries = 0
    for group in _group_linked(counts, _load_links(batch.sessions[0])):
        size = sum(counts[effect] for effect in group)
        is_full = entries + size > MAX_BATCH_ENTRIES or len(part) + len(group) > _MOST_EFFECTS
        if part and is_full:
            yield RebuildBatch(batch.project, batch.sessions, effects=frozenset(part))
            part, entries = [], 0
        part += group
        entries += size
    yield RebuildBatch(batch.project, batch.sessions, effects=frozenset(part))


_MOST_EFFECTS: Final = 3_000
_TOTAL: Final = "SELECT COUNT(*) FROM journal_entry WHERE session = %s"
_EFFECT_COUNTS: Final = (
    "SELECT effect, COUNT(*) FROM journal_entry WHERE session = %s AND effect IS NOT NULL"
    " GROUP BY effect"
)
_OPENED: Final = (
    "SELECT COUNT(DISTINCT effect) FROM journal_entry WHERE session = %s AND lane <> 'claim'"
    " AND ((kind = 'effect.named' AND lane = 'system') OR (lane <> 'system' AND kind IN"
    f" ({', '.join(repr(kind) for kind in sorted(effect_state.REPORTABLE_KINDS))})))"
)
_LINKS: Final = (
    "SELECT lane, effect, text FROM journal_entry JOIN journal_body ON entry_id = position"
    " WHERE session = %s AND kind = 'effect.planned' AND text LIKE '%\"compensates\":%'"
)


def _load_links(session: UUID) -> list[tuple[UUID, UUID]]:
    """Return each effect that compensates another, with that one."""
    links = []
    for lane, effect, text in raw_sql.fetch_rows(_LINKS, [raw_sql.vendor_id(session)]):
        target = parse_body(text).get("compensates")
        if isinstance(target, str) and target:
            other = UUID(target) if lane == "command" else derive_uuid(session, target)
            links.append((raw_sql.read_uuid(effect), other))
    stored = Effect.objects.filter(session=session, compensates__isnull=False)
    links += stored.values_list("id", "compensates_id")
    return links


def _group_linked(
    effects: Iterable[UUID], links: Iterable[tuple[UUID, UUID]]
) -> Iterator[list[UUID]]:
    """Yield the effects in groups that links connect, nearly all of them alone."""
    group_of: dict[UUID, list[UUID]] = {}
    for effect, other in links:
        first, second = (group_of.setdefault(key, [key]) for key in (effect, other))
        if first is not second:
            first += second
            group_of.update(dict.fromkeys(second, first))
    done: set[UUID] = set()
    listed = set(effects)
    for effect in listed:
        if effect not in done:
            group = [key for key in group_of.get(effect, [effect]) if key in listed]
            done.update(group if len(group) > 1 else ())
            yield group


def _list_sessions(after: UUID | None) -> Iterator[tuple[UUID, UUID, int]]:
    """Yield (session, project, entries) in the order of ids, from journal and table.

    The first part has no lower bound: no id, not even that of zeros, is left out.
    """
    archives = set(Project.objects.filter(archive=True).values_list("id", flat=True))
    while True:
        counts = {
            raw_sql.read_uuid(session): int(count)
            for session, count in _read_sessions(_COUNT, "session", after)
        }
        stored = {
            raw_sql.read_uuid(session): _read_project(project)
            for session, project in _read_sessions(_STORED, "id", after)
        }
        if not counts and not stored:
            return
        # Beyond the last of a full part, the other may have sessions that were not read yet.
        ends = [max(part) for part in (counts, stored) if len(part) == _AT_ONCE]
        last = min(ends, default=max(chain(counts, stored)))
        listed = [session for session in sorted({*counts, *stored}) if session <= last]
        for session in listed:
            project = _find_project(session, stored.get(session), archives)
            yield session, project, counts.get(session, 0)
        after = last


def _read_sessions(text: str, column: str, after: UUID | None) -> list[tuple[Any, ...]]:
    """Return up to `_AT_ONCE` rows of sessions after one, in the order of their ids."""
    bound = [] if after is None else [raw_sql.vendor_id(after)]
    spelled = _SPELLED[connection.vendor].format(column=column)
    query = text.replace("{after}", f" AND {column} > %s" if bound else "")
    return raw_sql.fetch_rows(query.replace("{spelled}", spelled), [*bound, _AT_ONCE])


def _read_project(stored: Any) -> UUID | None:
    """Return the project of a session; None where it cannot be read."""
    try:
        return raw_sql.read_uuid(stored)
    except READING_ERRORS:
        return None


def _find_project(session: UUID, stored: UUID | None, archives: Collection[Any]) -> Any:
    """Return the project of a session's first entry.

    The rows of samples are not compared, and those of archives only with their import. So both the
    entry and the row must name the sample or the archive.
    """
    entries = Entry.objects.filter(session=session).order_by("position")
    first = entries.values_list("project", flat=True).first()
    if not isinstance(first, UUID):  # a text that is no UUID decides nothing
        return stored
    is_moved = stored is not None and (first.int in SAMPLE_IDS or first in archives)
    return stored if is_moved else first
