"""The one writer of Export: request, write, and remove the file after a day.

One export is written at a time, so that other jobs keep their workers. The writer sends a heartbeat
every second; after a crash the export restarts, and after three attempts it fails.
"""

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog
from django.conf import settings
from django.db.models import Q, QuerySet

from inquiry import exporting, looks
from inquiry.exporting import Wanted
from inquiry.models_exports import Export
from inquiry.query import asking
from inquiry.query.tree import Fault
from inquiry.stuck import pulses
from inquiry.words import indexing
from journal import beating
from journal.clock import now_us
from sessions.access import may
from sessions.models import Membership, Project
from sessions.people import pseudonym_of
from sessions.refused import RefusedError

log = structlog.get_logger("gatebook.exports")
US: Final = 1_000_000
KEPT: Final = timedelta(days=1)
SILENT_US: Final = 60 * US  # a writer silent for longer counts as dead
BEAT_S: Final = 1.0
TRIES: Final = 3
MOST: Final = 5  # unfinished exports per person


class _LostError(Exception):
    """Another process took over the export because this one was silent too long."""


def ask(membership: Membership, text: str, form: str) -> Export:
    """Request an export as of now. Raises Fault, or RefusedError with too many unfinished ones."""
    unfinished = Export.objects.filter(project=membership.project, asked_by=membership.user)
    if unfinished.filter(state__in=["waiting", "running"]).count() >= MOST:
        raise RefusedError(f"You have {MOST} unfinished exports. Wait until one is done.")
    wanted = wanted_by(membership, text, form)
    made = Export.objects.create(
        project=membership.project,
        asked_by=membership.user,
        text=wanted.text,
        format=form,
        position=wanted.position,
        asked_at_us=wanted.now_us,
    )
    note(membership, wanted, made.id)
    return made


def wanted_by(membership: Membership, text: str, form: str) -> Wanted:
    """Plan an export of a member as of now. Raises Fault."""
    who = f"{membership.user.get_username()} ({pseudonym_of(membership.user)})"
    return exporting.wanted(membership.project, text, form, now_us(), who)


def note(membership: Membership, wanted: Wanted, subject: UUID) -> None:
    """Record the export in the access log: query, format and position."""
    facts = {"entity": wanted.asked.entity.name, "format": wanted.format, "as_of": wanted.position}
    looks.exported(
        membership.project_id, pseudonym_of(membership.user), wanted.text, facts, subject=subject
    )


def of(membership: Membership) -> "QuerySet[Export]":
    """Query the exports a member can fetch: own ones; as administrator all of the project."""
    rows = (
        Export.objects.filter(project=membership.project)
        .select_related("asked_by")
        .order_by("-asked_at_us", "-id")
    )
    return rows if may(membership, "administrator") else rows.filter(asked_by=membership.user)


def path(export: Export) -> Path:
    """Return the path of the export's file."""
    return _folder() / f"{export.id.hex}.{exporting.ENDINGS[export.format]}"


@beating.watched("exports")
def run() -> int:
    """Write the waiting exports one by one and remove old files. Return how many finished."""
    pulses.beat("exports")
    _remove_old()
    finished = 0
    while (export := _take()) is not None:
        finished += _make(export)
    return finished


def _take() -> Export | None:
    """Claim the next export; None if none waits or another process writes one."""
    now = now_us()
    # A heartbeat far ahead of the clock predates a clock change and proves nothing.
    alive = Q(state="running", beat_at_us__range=(now - SILENT_US, now + SILENT_US))
    if Export.objects.filter(alive).exists():
        return None
    unfinished = Export.objects.filter(state__in=["waiting", "running"]).order_by(
        "asked_at_us", "id"
    )
    for export in unfinished.select_related("project", "asked_by")[:10]:
        if export.tries >= TRIES:
            _end(
                export,
                export.tries,
                state="failed",
                error="The export was interrupted three times. Request it again.",
            )
            continue
        free = Export.objects.filter(pk=export.pk, tries=export.tries).filter(
            Q(state="waiting") | (Q(state="running") & ~alive)
        )
        if free.update(state="running", tries=export.tries + 1, beat_at_us=now, rows_done=0):
            export.tries += 1
            return export
    return None


def _make(export: Export) -> bool:
    """Write the file of an export; return False if it failed or another process took over."""
    project: Project = export.project
    who = f"{export.asked_by.get_username()} ({pseudonym_of(export.asked_by)})"
    wanted = Wanted(project, export.text, export.format, export.position, export.asked_at_us, who)
    part = path(export).with_suffix(f".{os.getpid()}-{export.tries}.part")
    try:
        _wait_for_indexes(export, wanted)
        _beat(export, rows_in_all=exporting.count(wanted))
        digest, size = hashlib.sha256(), 0
        with part.open("xb") as file:
            for piece in _pieces(export, wanted):
                file.write(piece)
                digest.update(piece)
                size += len(piece)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path(export))
        return _end(export, export.tries, state="done", size=size, sha256=digest.hexdigest())
    except _LostError:
        log.warning("export_lost", export=str(export.id))
        return False
    except Fault as fault:
        _end(export, export.tries, state="failed", error=fault.sentence[:300])
        return False
    finally:
        part.unlink(missing_ok=True)


def _wait_for_indexes(export: Export, wanted: Wanted) -> None:
    """Update the full-text and duplicate indexes up to the export's position if it needs them."""
    if exporting.late(wanted.asked):
        indexing.index(upto=export.position, after_step=lambda: _beat(export))


def waits_for(export: Export) -> list[str]:
    """Return a sentence for each index that must catch up before the export starts."""
    try:
        search = asking.understand(export.text, export.project, export.asked_at_us, export.position)
    except Fault:  # the export fails with this fault when it runs
        return []
    return [index.note for index in exporting.late(search)]


def _pieces(export: Export, wanted: Wanted) -> Iterator[bytes]:
    last = time.monotonic()

    def tell(rows: int) -> None:
        nonlocal last
        if time.monotonic() - last >= BEAT_S:
            last = time.monotonic()
            _beat(export, rows_done=rows)
        export.rows_done = rows

    return exporting.pieces(wanted, tell)


def _beat(export: Export, **values: int) -> None:
    pulses.beat("exports")
    if not _mine(export, export.tries).update(beat_at_us=now_us(), **values):
        raise _LostError


def _end(export: Export, tries: int, *, state: str, **values: int | str) -> bool:
    done = {"rows_done": export.rows_done} if state == "done" else {}
    changed = Export.objects.filter(pk=export.pk, tries=tries, state__in=["waiting", "running"])
    return bool(changed.update(state=state, ended_at_us=now_us(), **done, **values))


def _mine(export: Export, tries: int) -> "QuerySet[Export]":
    return Export.objects.filter(pk=export.pk, tries=tries, state="running")


def _remove_old() -> None:
    before = now_us() - int(KEPT.total_seconds()) * US
    for export in Export.objects.filter(state="done", ended_at_us__lt=before).order_by(
        "ended_at_us"
    )[:100]:
        path(export).unlink(missing_ok=True)
        Export.objects.filter(pk=export.pk, state="done").update(state="gone")
    for part in _folder().glob("*.part"):
        with suppress(FileNotFoundError):  # another process finished or removed it
            if part.stat().st_mtime < time.time() - KEPT.total_seconds():
                part.unlink()


def _folder() -> Path:
    folder = Path(settings.MEDIA_ROOT).parent / "exports"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


__all__ = ["ask", "note", "of", "path", "run", "waits_for", "wanted_by"]
