"""The job that counts previews and carries out confirmed requests, in bounded batches.

Each batch stores where it ended in its own transaction, so that a run that is killed continues. A
batch that runs twice finds nothing the second time.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection

from accounts.people import ensure_pseudonym
from db import jobs as db_job_heartbeats
from db import raw_sql, retry
from db.clock import now_us
from erasure import erasure_files, erasure_journal, person_erasure, storage_scrub
from erasure.erasure_requests import (
    finish_count,
    has_signed_counts,
    list_covered_projects,
    record_request_entry,
    require_recorded_request,
    save_counts,
    save_request,
    sum_counts,
    sum_held,
    write_journal_line,
)
from erasure.models import ErasureRequest
from erasure.row_erasure import ErasureOrder, erase_matches
from erasure.row_scan import Match, Subject, Window, find_window, load_subject
from erasure.text_columns import TEXT_TABLES
from investigation.fulltext import indexer
from journal import text_caches
from monitoring import job_heartbeats
from sessions import artifacts

log = structlog.get_logger("gatebook.erasure")
JOB_NAME: Final = "erasures"
RUN_LIMIT_S: Final = 2.0  # seconds per run in the job worker, which has other jobs
ClassCounts = dict[str, dict[str, int]]  # class of the preview -> rows, held, kept
BATCH_ROWS: Final = 100  # rows that one transaction erases
_LOCK: Final = 478_341_591_397  # PostgreSQL's advisory locks are numbers
# After the tables: bytes of artifacts, then exports and mails. Last, effects are indexed again
# whose words went and whose texts stay, such as those with the words in another order.
_ARTIFACTS: Final = len(TEXT_TABLES)
_FILES: Final = _ARTIFACTS + 1
_INDEX: Final = _FILES + 1


@db_job_heartbeats.record_run(JOB_NAME)
def run_erasures(most_s: float | None = None) -> int:
    """Continue what is due, for at most `most_s` seconds; return how many requests moved on."""
    job_heartbeats.record_heartbeat(JOB_NAME)
    ends = None if most_s is None else time.monotonic() + most_s
    moved, failure = 0, None
    with _hold_lock() as is_alone:
        if not is_alone:
            return 0
        due = ErasureRequest.objects.filter(
            state__in=("counting", "confirmed", "running", "scrubbing")
        ).order_by("requested_position")
        for row in list(due[:20]):
            try:
                moved += _run_request(row, ends)
            except Exception as error:  # the other requests go on
                failure = error
                log.exception("erasure_failed", request=str(row.id))
                save_request(row, error=type(error).__name__[:200])
    if failure is not None:
        raise failure
    return moved


@contextmanager
def _hold_lock() -> Iterator[bool]:
    """Let only one process run erasures; the lock goes with the process."""
    if connection.vendor == "postgresql":
        ((is_alone,),) = raw_sql.fetch_rows("SELECT pg_try_advisory_lock(%s)", [_LOCK])
        try:
            yield bool(is_alone)
        finally:
            if is_alone:
                raw_sql.fetch_rows("SELECT pg_advisory_unlock(%s)", [_LOCK])
        return
    handle = os.open(settings.VAR_DIR / "erasure.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def _run_request(row: ErasureRequest, ends: float | None) -> bool:
    """Continue one request; return whether its state changed."""
    before = row.state
    if row.state == "counting":
        _count(row, ends)
    if row.state in ("confirmed", "running"):
        require_recorded_request(row)
    if row.state == "confirmed":
        write_journal_line(row)
        save_request(row, state="running", progress={}, erased_counts={}, error="")
    if row.state == "running":
        _erase(row, ends)
    if row.state == "scrubbing" and not storage_scrub.scrub_storage(list_changed_tables(row)):
        save_request(row, state="done", scrubbed_at_us=now_us(), error="")
    return row.state != before


def _count(row: ErasureRequest, ends: float | None) -> None:
    """Count the preview."""
    subject = load_subject(row)
    if not has_signed_counts(row):  # it begins, or the row was changed since
        row.progress, row.counts = {}, {}
    step, after = _read_progress(row)
    counts: ClassCounts = dict(row.counts) if (step, after) != (0, None) else {}
    while step <= _FILES:
        last = None
        if step < _ARTIFACTS:
            table = TEXT_TABLES[step]
            window = find_window(table, subject, after)
            counts.update(_count_window(counts, table.text_class, window))
            last = window.last
        elif step == _ARTIFACTS:
            last = _count_artifacts(subject, after, counts)
        else:
            exports = erasure_files.count_exports(subject.project)
            mails = len(erasure_files.find_mail_files(subject))
            counts.update(add_counts(counts, "exports", rows=exports))
            counts.update(add_counts(counts, "notifications", rows=mails))
        step, after = (step, last) if last is not None else (step + 1, None)
        save_counts(row, progress=_write_progress(step, after), counts=counts)
        if _is_over(ends):
            return
    finish_count(row)


def _erase(row: ErasureRequest, ends: float | None) -> None:
    """Erase what the request covers, and record it."""
    subject, order = load_subject(row), build_order(row)
    step, after = _read_progress(row)
    if step == 0 and after is None and row.person is not None:
        person_erasure.end_person_access(row.person, actor=order.actor)
    storage_scrub.prepare_connection()
    counts: ClassCounts = dict(row.erased_counts)
    while step <= _INDEX:
        if step < _ARTIFACTS:
            last = _erase_window(row, subject, order, step, after, counts)
        elif step == _ARTIFACTS:
            last = _erase_artifacts(row, subject, after, counts)
        elif step == _INDEX:
            last = indexer.index_lacking_effects(subject.project, after)
        else:
            last = None
            counts.update(
                add_counts(counts, "exports", rows=erasure_files.stop_exports(subject.project))
            )
            for mail in erasure_files.find_mail_files(subject):
                mail.unlink(missing_ok=True)
                counts.update(add_counts(counts, "notifications", rows=1))
        step, after = (step, last) if last is not None else (step + 1, None)
        save_request(row, progress=_write_progress(step, after), erased_counts=counts)
        if _is_over(ends) and step <= _INDEX:
            return
    _finish(row, subject, order)


def build_order(row: ErasureRequest) -> ErasureOrder:
    """Return who erases and why, for the rows of Erasure."""
    if row.confirmed_by is None:
        raise ValueError(f"erasure {row.requested_position} is not confirmed")
    reason = f"erasure {row.requested_position}: {row.reason}"[:200]

    def note_bodies(bodies: list[list[Any]]) -> None:
        erasure_journal.append_line("bodies", row.id, entries=bodies)

    return ErasureOrder(ensure_pseudonym(row.confirmed_by), reason, note_bodies)


def _erase_window(
    row: ErasureRequest,
    subject: Subject,
    order: ErasureOrder,
    step: int,
    after: Any,
    counts: ClassCounts,
) -> Any:
    """Erase one window of a table, in transactions of bounded size; return its last key."""
    table = TEXT_TABLES[step]
    window = find_window(table, subject, after)
    matches = [match for match in window.matches if match.columns and not match.is_held]
    for start in range(0, len(matches), BATCH_ROWS):
        batch = matches[start : start + BATCH_ROWS]

        def work(batch: list[Match] = batch) -> ClassCounts:
            erase_matches(table, subject, batch, order)
            # Rows that went are not found again, so they are counted where they go.
            stored = add_counts(counts, table.text_class, rows=len(batch))
            save_request(row, erased_counts=stored, progress=_write_progress(step, after))
            return stored

        counts.update(retry.run_with_retry(work))
    held = sum(match.is_held for match in window.matches)
    kept = sum(match.is_kept for match in window.matches)
    counts.update(add_counts(counts, table.text_class, held=held, kept=kept))
    return window.last


def _erase_artifacts(
    row: ErasureRequest, subject: Subject, after: Any, counts: ClassCounts
) -> UUID | None:
    window = erasure_files.find_artifacts(subject, after)
    for artifact in window.erased:
        digest = erasure_journal.digest_artifact(artifact.project_id, artifact.sha256)
        erasure_journal.append_line("artifact", row.id, artifact=digest)
        artifacts.delete_content(artifact.project_id, artifact.sha256)
    counts.update(
        add_counts(
            counts, "artifacts", rows=len(window.erased), held=window.held, kept=window.shared
        )
    )
    return window.last


def _count_artifacts(subject: Subject, after: Any, counts: ClassCounts) -> UUID | None:
    window = erasure_files.find_artifacts(subject, after)
    counts.update(
        add_counts(
            counts, "artifacts", rows=len(window.erased), held=window.held, kept=window.shared
        )
    )
    return window.last


def _finish(row: ErasureRequest, subject: Subject, order: ErasureOrder) -> None:
    """Erase the person's account and the request's words, and append `erasure.executed`."""
    counts: ClassCounts = row.erased_counts

    def work() -> None:
        if row.person is not None:
            row.erased_counts = _erase_late_sign_ins(counts, subject, order)
            person_erasure.erase_account(row.person)
        position = record_executed(row, order.actor)
        save_request(
            row,
            state="scrubbing",
            words=[],
            progress={},
            erased_counts=row.erased_counts,
            executed_at_us=now_us(),
            executed_position=position,
            error="",
        )

    retry.run_with_retry(work)
    erasure_journal.append_line("executed", row.id, counts=sum_counts(row.erased_counts))
    text_caches.clear_text_caches()


def _erase_late_sign_ins(counts: ClassCounts, subject: Subject, order: ErasureOrder) -> ClassCounts:
    """Erase what the person tried at the sign-in since its tables were read; return all counts.

    The closed account keeps its name until the end of the erasure, so wrong passwords count for it.
    """
    for table in TEXT_TABLES:
        after, is_last = None, not table.sign_in_name
        while not is_last:
            window = find_window(table, subject, after)
            matches = [match for match in window.matches if match.columns and not match.is_held]
            erase_matches(table, subject, matches, order)
            counts = add_counts(counts, table.text_class, rows=len(matches))
            after, is_last = window.last, window.last is None
    return counts


def record_executed(row: ErasureRequest, actor: str) -> int:
    """Append `erasure.executed` with the counts to the journal of every covered project."""
    facts = {
        "request": row.id.hex,
        "counts": sum_counts(row.erased_counts),
        "held": sum_held(row.erased_counts),
    }
    return record_request_entry(
        "erasure.executed",
        row.id,
        list_covered_projects(row.project),
        actor=actor,
        facts=facts,
        body={},
        session=row.session_id,
    )


def list_changed_tables(row: ErasureRequest) -> list[str]:
    """Return the tables of the classes that changed, for the rewriting of their files."""
    classes = {name for name, count in row.erased_counts.items() if count.get("rows")}
    tables = [table.model._meta.db_table for table in TEXT_TABLES if table.text_class in classes]
    return [*dict.fromkeys([*tables, ErasureRequest._meta.db_table])]


def _count_window(counts: ClassCounts, text_class: str, window: Window) -> ClassCounts:
    return add_counts(
        counts,
        text_class,
        rows=sum(bool(match.columns) and not match.is_held for match in window.matches),
        held=sum(match.is_held for match in window.matches),
        kept=sum(match.is_kept for match in window.matches),
    )


def add_counts(counts: ClassCounts, text_class: str, **added: int) -> ClassCounts:
    """Return the numbers of all classes with `rows`, `held` and `kept` added to one. Pure."""
    before = counts.get(text_class) or {"rows": 0, "held": 0, "kept": 0}
    numbers = {name: number + added.get(name, 0) for name, number in before.items()}
    return {**counts, text_class: numbers}


def _is_over(ends: float | None) -> bool:
    return ends is not None and time.monotonic() > ends


def _write_progress(step: int, after: Any) -> dict[str, Any]:
    name = "" if step >= _ARTIFACTS else TEXT_TABLES[step].label
    return {"step": step, "table": name, "after": str(after) if after is not None else None}


def _read_progress(row: ErasureRequest) -> tuple[int, Any]:
    """Return where to continue. A release may have added or moved tables: the name counts."""
    stored = row.progress
    if not stored:
        return 0, None
    step, after = int(stored["step"]), stored["after"]
    if stored.get("table"):
        labels = [table.label for table in TEXT_TABLES]
        # Tables that the release put before the last one are not read yet: begin again.
        if labels[step : step + 1] != [stored["table"]]:
            return 0, None
        column = TEXT_TABLES[step].model._meta.pk
        return step, column.to_python(after) if after is not None and column else None
    return step, UUID(after) if after else None
