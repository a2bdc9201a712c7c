"""The one writer of Export: request, write, and remove the file after a day.

One export is written at a time, so that other jobs keep their workers. The writer sends a heartbeat
every second; after a crash the export restarts, and after three attempts it fails.
"""

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog
from django.conf import settings
from django.db.models import Q, QuerySet

from accounts.access import has_role
from accounts.models import Membership, Project
from accounts.people import ensure_pseudonym
from db import jobs as db_job_heartbeats
from db.clock import now_us
from db.errors import ChangeRefused
from display import access_log
from investigation.exports import export_writer
from investigation.exports.export_writer import ExportPlan
from investigation.fulltext import indexer
from investigation.models import FORMATS, Export
from investigation.query import execute
from investigation.query.parser.ast import QueryError
from investigation.query.permalink import load_pinned_position, make_ages_absolute
from monitoring import job_heartbeats

log = structlog.get_logger("gatebook.exports")
US: Final = 1_000_000
RETENTION: Final = timedelta(days=1)
SILENT_US: Final = 60 * US  # a writer silent for longer counts as dead
HEARTBEAT_S: Final = 1.0
MAX_TRIES: Final = 3
MAX_UNFINISHED: Final = 5  # unfinished exports per person


class _LostError(Exception):
    """Another process took over the export because this one was silent too long."""


def request_export(
    membership: Membership, text: str, form: str, columns: Sequence[str] = ()
) -> Export:
    """Request an export as of now. Raises QueryError, ChangeRefused with too many unfinished."""
    unfinished = Export.objects.filter(project=membership.project, asked_by=membership.user)
    if unfinished.filter(state__in=["waiting", "running"]).count() >= MAX_UNFINISHED:
        raise ChangeRefused(
            f"You have {MAX_UNFINISHED} unfinished exports. Wait until one is done."
        )
    wanted = plan_member_export(membership, text, form, columns)
    made = Export.objects.create(
        project=membership.project,
        asked_by=membership.user,
        text=wanted.text,
        format=form,
        columns=",".join(wanted.columns),
        position=wanted.position,
        asked_at_us=wanted.now_us,
    )
    record_export(membership, wanted, made.id)
    return made


def plan_member_export(
    membership: Membership, text: str, form: str, columns: Sequence[str] = ()
) -> ExportPlan:
    """Plan an export as of now. Raises QueryError, KeyError for an unknown format.

    Names in `columns` that the rows do not have are ignored.
    """
    FORMATS[form]
    if not text.strip():
        raise QueryError(
            0, 0, "The query is empty. Name what to export, for example effect or session."
        )
    who = f"{membership.user.get_username()} ({ensure_pseudonym(membership.user)})"
    at_us = now_us()
    export = ExportPlan(
        membership.project,
        make_ages_absolute(text, at_us),
        form,
        load_pinned_position(),
        at_us,
        who,
    )
    search = export.compiled
    if form != "bundle" and search.query.grouping is None:
        names = export_writer.list_column_names(search, export)
        export.columns = tuple(name for name in names if name in columns)
    export.late = bool(export_writer.late_indexes(search))
    return export


def record_export(membership: Membership, wanted: ExportPlan, subject: UUID) -> None:
    """Record the export in the access log: query, format and position."""
    facts = {
        "entity": wanted.compiled.entity.name,
        "format": wanted.format,
        "as_of": wanted.position,
    }
    access_log.record_export_access(
        membership.project_id,
        ensure_pseudonym(membership.user),
        wanted.text,
        facts,
        subject=subject,
    )


def list_visible_exports(membership: Membership) -> "QuerySet[Export]":
    """Query the exports a member can fetch: own ones; as administrator all of the project."""
    rows = (
        Export.objects.filter(project=membership.project)
        .select_related("asked_by")
        .order_by("-asked_at_us", "-id")
    )
    return rows if has_role(membership, "administrator") else rows.filter(asked_by=membership.user)


def export_path(export: Export) -> Path:
    """Return the path of the export's file."""
    return _export_folder() / f"{export.id.hex}.{export_writer.ENDINGS[export.format]}"


@db_job_heartbeats.record_run("exports")
def run_exports() -> int:
    """Write the waiting exports one by one and remove old files. Return how many finished."""
    job_heartbeats.record_heartbeat("exports")
    _remove_old_files()
    finished = 0
    while (export := _claim_export()) is not None:
        finished += _write_export(export)
    return finished


def _claim_export() -> Export | None:
    """Claim the next export; None if none waits or another process writes one."""
    now = now_us()
    # A heartbeat far ahead of the clock predates a clock change and proves nothing.
    alive = Q(state="running", heartbeat_at_us__range=(now - SILENT_US, now + SILENT_US))
    if Export.objects.filter(alive).exists():
        return None
    unfinished = Export.objects.filter(state__in=["waiting", "running"]).order_by(
        "asked_at_us", "id"
    )
    for export in unfinished.select_related("project", "asked_by")[:10]:
        if export.tries >= MAX_TRIES:
            _end_export(
                export,
                export.tries,
                state="failed",
                error="The export was interrupted three times. Request it again.",
            )
            continue
        free = Export.objects.filter(pk=export.pk, tries=export.tries).filter(
            Q(state="waiting") | (Q(state="running") & ~alive)
        )
        if free.update(state="running", tries=export.tries + 1, heartbeat_at_us=now, rows_done=0):
            export.tries += 1
            return export
    return None


def _write_export(export: Export) -> bool:
    """Write the file of an export; return False if it failed or another process took over."""
    project: Project = export.project
    who = f"{export.asked_by.get_username()} ({ensure_pseudonym(export.asked_by)})"
    wanted = ExportPlan(
        project, export.text, export.format, export.position, export.asked_at_us, who
    )
    wanted.columns = tuple(filter(None, export.columns.split(",")))
    part = export_path(export).with_suffix(f".{os.getpid()}-{export.tries}.part")
    try:
        _wait_for_indexes(export, wanted)
        _send_heartbeat(export, rows_in_all=export_writer.count_export_rows(wanted))
        digest, size = hashlib.sha256(), 0
        with part.open("xb") as file:
            for piece in _pieces_with_heartbeat(export, wanted):
                file.write(piece)
                digest.update(piece)
                size += len(piece)
            file.flush()
            os.fsync(file.fileno())
        part.replace(export_path(export))
        if _end_export(export, export.tries, state="done", size=size, sha256=digest.hexdigest()):
            return True
        if Export.objects.filter(pk=export.pk, state="failed").exists():
            export_path(export).unlink(missing_ok=True)  # stopped by an erasure
        return False
    except _LostError:
        log.warning("export_lost", export=str(export.id))
        return False
    except QueryError as fault:
        _end_export(export, export.tries, state="failed", error=fault.sentence[:300])
        return False
    finally:
        part.unlink(missing_ok=True)


def _wait_for_indexes(export: Export, wanted: ExportPlan) -> None:
    """Update the full-text and duplicate indexes up to the export's position if it needs them.

    Raises QueryError if an index still lags.
    """
    if export_writer.late_indexes(wanted.compiled):
        indexer.update_index(upto=export.position, after_step=lambda: _send_heartbeat(export))
    for index in export_writer.late_indexes(wanted.compiled):
        raise QueryError(0, 0, f"{index.note} Export again when they are indexed.")


def index_notes(export: Export) -> list[str]:
    """Return a sentence for each index that must catch up before the export starts."""
    try:
        search = execute.compile_query(
            export.text, export.project, export.asked_at_us, export.position
        )
    except QueryError:  # the export fails with this fault when it runs
        return []
    return [index.note for index in export_writer.late_indexes(search)]


def _pieces_with_heartbeat(export: Export, wanted: ExportPlan) -> Iterator[bytes]:
    last = time.monotonic()

    def tell(rows: int) -> None:
        nonlocal last
        if time.monotonic() - last >= HEARTBEAT_S:
            last = time.monotonic()
            _send_heartbeat(export, rows_done=rows)
        export.rows_done = rows

    return export_writer.export_pieces(wanted, tell)


def _send_heartbeat(export: Export, **values: int) -> None:
    job_heartbeats.record_heartbeat("exports")
    claimed = Export.objects.filter(pk=export.pk, tries=export.tries, state="running")
    if not claimed.update(heartbeat_at_us=now_us(), **values):
        raise _LostError


def _end_export(export: Export, tries: int, *, state: str, **values: int | str) -> bool:
    done = {"rows_done": export.rows_done} if state == "done" else {}
    changed = Export.objects.filter(pk=export.pk, tries=tries, state__in=["waiting", "running"])
    return bool(changed.update(state=state, ended_at_us=now_us(), **done, **values))


def _remove_old_files() -> None:
    before = now_us() - int(RETENTION.total_seconds()) * US
    for export in Export.objects.filter(state="done", ended_at_us__lt=before).order_by(
        "ended_at_us"
    )[:100]:
        export_path(export).unlink(missing_ok=True)
        Export.objects.filter(pk=export.pk, state="done").update(state="gone")
    for part in _export_folder().glob("*.part"):
        with suppress(FileNotFoundError):  # another process finished or removed it
            if part.stat().st_mtime < time.time() - RETENTION.total_seconds():
                part.unlink()


def discard_exports(rows: "QuerySet[Export]", why: str) -> int:
    """Stop these exports and delete their files, for an erasure; return their number."""
    discarded = list(rows)
    for export in discarded:
        state = "gone" if export.state == "done" else "failed"
        values = {"state": state} | ({"error": why} if state == "failed" else {})
        changed = Export.objects.filter(pk=export.pk, state=export.state)
        changed.update(**values, ended_at_us=export.ended_at_us or now_us())
        export_path(export).unlink(missing_ok=True)
        for part in _export_folder().glob(f"{export.id.hex}.*.part"):
            part.unlink(missing_ok=True)
    return len(discarded)


def _export_folder() -> Path:
    folder = Path(settings.MEDIA_ROOT).parent / "exports"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


__all__ = [
    "discard_exports",
    "export_path",
    "index_notes",
    "list_visible_exports",
    "plan_member_export",
    "record_export",
    "request_export",
    "run_exports",
]
