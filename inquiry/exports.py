"""The one writer of Export: asking for one, making it, and removing its file after a day.

One is made at a time, so that chores which people wait for keep their worker. Whoever makes it says every second that
they still do; when they were killed, it is taken up again from the beginning, and given up after the third time.
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
SILENT_US: Final = 60 * US  # after so long a silence whoever made it is held for dead
BEAT_S: Final = 1.0
TRIES: Final = 3
MOST: Final = 5  # unfinished ones of one person


class _LostError(Exception):
    """Another process took the export up: we were held for dead."""


def ask(membership: Membership, text: str, form: str) -> Export:
    """Ask for an export as of now. Raises Fault, and RefusedError when too many are under way."""
    unfinished = Export.objects.filter(project=membership.project, asked_by=membership.user)
    if unfinished.filter(state__in=["waiting", "running"]).count() >= MOST:
        raise RefusedError(f"{MOST} exports of yours are not finished yet. Wait for one of them.")
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
    """What an export would hold that the member asked for now. Raises Fault."""
    who = f"{membership.user.get_username()} ({pseudonym_of(membership.user)})"
    return exporting.wanted(membership.project, text, form, now_us(), who)


def note(membership: Membership, wanted: Wanted, subject: UUID) -> None:
    """Put on record that it was asked for: what, in which form, up to where."""
    facts = {"entity": wanted.asked.entity.name, "format": wanted.format, "as_of": wanted.position}
    looks.exported(
        membership.project_id, pseudonym_of(membership.user), wanted.text, facts, subject=subject
    )


def of(membership: Membership) -> "QuerySet[Export]":
    """The exports a member may fetch: their own; an administrator those of everybody in the project."""
    rows = (
        Export.objects.filter(project=membership.project)
        .select_related("asked_by")
        .order_by("-asked_at_us", "-id")
    )
    return rows if may(membership, "administrator") else rows.filter(asked_by=membership.user)


def path(export: Export) -> Path:
    """Where its file is, or will be."""
    return _folder() / f"{export.id.hex}.{exporting.ENDINGS[export.format]}"


@beating.watched("exports")
def run() -> int:
    """Make what is waiting, one after the other; remove what is older than a day. Returns how many were finished."""
    pulses.beat("exports")
    _remove_old()
    finished = 0
    while (export := _take()) is not None:
        finished += _make(export)
    return finished


def _take() -> Export | None:
    """The next export, taken for us; None when there is none, or another process makes one."""
    now = now_us()
    # A heartbeat far ahead of the clock is from before the clock was set back, and proves nothing.
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
                error="It was begun three times, and broken off each time.",
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
    """Write its file; False when it failed, or another took it up."""
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
    """Index up to the position of the export where its query goes by words or repeats."""
    if exporting.late(wanted.asked):
        indexing.index(upto=export.position, after_step=lambda: _beat(export))


def waits_for(export: Export) -> list[str]:
    """What has to be indexed before it is made, a sentence for each index."""
    try:
        asked = asking.understand(export.text, export.project, export.asked_at_us, export.position)
    except Fault:  # which ends it when it is made
        return []
    return [one.note for one in exporting.late(asked)]


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
        with suppress(FileNotFoundError):  # another process finished it, or was here first
            if part.stat().st_mtime < time.time() - KEPT.total_seconds():
                part.unlink()


def _folder() -> Path:
    folder = Path(settings.MEDIA_ROOT).parent / "exports"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


__all__ = ["ask", "note", "of", "path", "run", "waits_for", "wanted_by"]
