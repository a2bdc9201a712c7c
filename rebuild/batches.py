"""Batches of bounded size: a few sessions at a time, in the order of their ids.

Sessions are those that the journal or the table has, because either may lack one.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final
from uuid import UUID

from accounts.models import Project
from db import raw_sql
from journal.models import Entry
from rebuild.registry import RebuildBatch, Unit
from sessions.models import Session

MAX_BATCH_ENTRIES: Final = 10_000  # entries of the sessions of a batch; one session may have more
MAX_BATCH_SESSIONS: Final = 200
_AT_ONCE: Final = 500
NO_SESSION: Final = UUID(int=0)
_COUNT: Final = (
    "SELECT session, COUNT(*) FROM journal_entry WHERE session IS NOT NULL AND session > %s"
    " GROUP BY session ORDER BY session LIMIT %s"
)


def list_batches(
    project: UUID | None, after: UUID = NO_SESSION
) -> Iterator[tuple[Unit, RebuildBatch]]:
    """Yield what is checked: the installation, each project, then their sessions after `after`.

    With a `project` only its own. A run that resumes after a session has checked the others.
    """
    if after == NO_SESSION:
        if project is None:
            yield "installation", RebuildBatch(None)
        projects = Project.objects.order_by("id").values_list("id", flat=True)
        for identity in projects if project is None else [project]:
            yield "project", RebuildBatch(identity)
    for batch in _list_session_batches(project, after):
        yield "session", batch


def count_sessions(project: UUID | None) -> int:
    """Return how many sessions are stored, for a progress bar."""
    rows = Session.objects.all() if project is None else Session.objects.filter(project=project)
    return rows.count()


def _list_session_batches(project: UUID | None, after: UUID) -> Iterator[RebuildBatch]:
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


def _list_sessions(after: UUID) -> Iterator[tuple[UUID, UUID, int]]:
    """Yield (session, project, entries) in the order of ids, from journal and table."""
    while True:
        counts = {
            raw_sql.read_uuid(session): int(count)
            for session, count in raw_sql.fetch_rows(_COUNT, [raw_sql.vendor_id(after), _AT_ONCE])
        }
        stored = dict(
            Session.objects.filter(id__gt=after)
            .order_by("id")
            .values_list("id", "project_id")[:_AT_ONCE]
        )
        if not counts and not stored:
            return
        # Beyond the last of a full part, the other may have sessions that were not read yet.
        ends = [max(part) for part in (counts, stored) if len(part) == _AT_ONCE]
        last = min(ends, default=max(chain(counts, stored)))
        listed = [session for session in sorted({*counts, *stored}) if session <= last]
        for session in listed:
            project = _find_project(session) if session in counts else stored[session]
            yield session, project, counts.get(session, 0)
        after = last


def _find_project(session: UUID) -> Any:
    """Return the project of a session's first entry."""
    entries = Entry.objects.filter(session=session).order_by("position")
    return entries.values_list("project", flat=True).first()
