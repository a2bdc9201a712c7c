"""The job that seals: it appends new journal entries to the tree, and signs its heads.

It runs after the commits of others and takes no lock that they wait for. It reads up to a position
below which no entry can appear any more (journal/running_writers.py), in the order of positions, so
late committers leave no gap. If two processes seal, one finds that the tree has grown.
"""

import threading
import time
from typing import Any, Final

import structlog
from django.db import connection, transaction

from db import jobs, raw_sql
from journal.running_writers import load_last_position, load_running_writers
from proofs import merkle, seal_lag, tree_heads
from proofs.leaf import encode_leaf_row, hash_leaf, list_leaf_columns
from proofs.tree_store import (
    SealDamageError,
    StoredTiles,
    check_tree_end,
    load_progress,
    load_tree_end,
    lock_tree,
    store_progress,
    store_sealed_entries,
)

log = structlog.get_logger("gatebook.jobs")

JOB_NAME: Final = "seal"
# Entries per transaction. SQLite has one writer, so other writers wait for a transaction.
_BATCH_ENTRIES: Final = {"postgresql": 5_000, "sqlite": 1_000}
_PASS_S: Final = 5.0
# Seconds that a pass waits for short transactions that write to the journal.
_WAIT_FOR_WRITERS_S: Final = 0.2
_FIRST_POLL_S: Final = 0.005  # doubled each time
# While entries arrive, a run stays and seals again after this time; few entries can wait longer.
_PAUSE_S, _PAUSE_FOR_FEW_S, _FEW = 0.2, 0.5, 500
STAYS_S: Final = 1.0  # a run ends when nothing arrived for so long; the job clock starts the next
# A heartbeat and a result of each pass would cost more than a pass.
_RECORD_EVERY_S: Final = 5.0

_READ: Final = (
    "SELECT entry.position, {columns} FROM journal_entry entry"
    " WHERE entry.position > %s AND entry.position <= %s ORDER BY entry.position LIMIT %s"
)

_running = threading.Lock()
_recorded_s = float("-inf")


class SealLagError(RuntimeError):
    """Entries wait for their seal too long. The text says what holds it up."""


def run_sealer(stop: threading.Event, most_s: float, stays_s: float = STAYS_S) -> int:
    """Seal while entries arrive, until `stop` is set or `most_s` seconds; return their number.

    Ends when none arrived for `stays_s`, and at once if none waits. Returns 0 at once if another
    thread of this process seals.
    """
    if not _running.acquire(blocking=False):
        return 0
    try:
        ends_s = time.monotonic() + most_s
        arrived_s, total = float("-inf"), 0
        while True:
            is_late, sealed = False, 0
            try:
                sealed = seal_and_record()
            except SealLagError:  # recorded; it passes only if the run goes on
                is_late = True
            total += sealed
            now_s = time.monotonic()
            if sealed or is_late:
                arrived_s = now_s
            if now_s - arrived_s > stays_s or now_s > ends_s:
                return total
            if stop.wait(_PAUSE_FOR_FEW_S if sealed < _FEW else _PAUSE_S):
                return total
    finally:
        _running.release()


def seal_and_record() -> int:
    """Seal once, and record the job's heartbeat and result every few seconds.

    A failure is recorded and raised each time.
    """
    global _recorded_s
    if time.monotonic() - _recorded_s < _RECORD_EVERY_S:
        try:
            return seal_journal()
        except Exception as error:
            _recorded_s = float("-inf")
            _record_failure(error)
            raise
    jobs.send_job_heartbeat(JOB_NAME)
    with jobs.record_run(JOB_NAME):
        sealed = seal_journal()
    _recorded_s = time.monotonic()
    return sealed


def _record_failure(error: Exception) -> None:
    try:
        with jobs.record_run(JOB_NAME):
            raise error
    except type(error):
        log.warning("seal_failed", error=f"{type(error).__name__}: {error}"[:300])


def seal_journal() -> int:
    """Seal entries for a few seconds at most, sign a head if one is due; return their number.

    Raises SealLagError when an entry waits for too long, and SealKeyError when the key of tree
    heads is missing; everything else is done first. Raises SealDamageError where it cannot seal.
    """
    final = find_final_position()
    total, ends_s = 0, time.monotonic() + _PASS_S
    while time.monotonic() < ends_s:
        sealed = seal_batch(final)
        total += sealed
        if sealed < _BATCH_ENTRIES[connection.vendor]:
            break
    tree_heads.sign_due_head()
    lag = seal_lag.load_seal_lag()
    if lag.is_late:
        writers = len(load_running_writers())
        raise SealLagError(
            f"An entry waits {lag.age_us // 1_000_000} s for its seal;"
            f" {writers} transactions that write to the journal still run."
        )
    return total


def seal_backlog() -> None:
    """Seal until nothing waits, and sign a head over all of it.

    No job may follow that signs one ten seconds later. Raises SealLagError where entries wait for
    a transaction, SealKeyError and SealDamageError.
    """
    while True:
        size = load_tree_end().size
        try:
            if not seal_and_record():
                break
        except SealLagError:
            if load_tree_end().size == size:
                raise
    tree_heads.sign_due_head(grown_every_us=0)


def find_final_position() -> int:
    """Return a position up to which every entry that will ever exist is visible.

    Waits a moment for transactions that write now. What a slow one holds up is stored, so that
    others that overlap it cannot hold it up for longer.
    """
    last = load_last_position()
    writers = load_running_writers()
    if not writers:
        return last
    ends_s = time.monotonic() + _WAIT_FOR_WRITERS_S
    running, poll_s = writers, _FIRST_POLL_S
    while time.monotonic() < ends_s:
        time.sleep(poll_s)
        poll_s *= 2
        running = load_running_writers()
        if not writers & running:
            return last
    position, awaited = load_progress()
    if awaited & running:
        return 0
    store_progress(last, writers & running)
    return min(position, last)  # a stored position beyond the journal is no result of this job


def seal_batch(final: int) -> int:
    """Append the next entries up to position `final` to the tree; return their number.

    Raises SealDamageError.
    """
    end = load_tree_end()
    if end.position >= final:
        return 0
    rows = raw_sql.fetch_rows(
        _READ.format(columns=list_leaf_columns(connection.vendor)),
        [end.position, final, _BATCH_ENTRIES[connection.vendor]],
    )
    if not rows:
        return 0
    hashes = [_hash_row(*row) for row in rows]
    with transaction.atomic():
        if not lock_tree() or load_tree_end() != end:
            return 0  # Another process seals.
        tiles = StoredTiles()
        check_tree_end(end, tiles.read_tile)
        merkle.append_leaves(end.size, hashes, tiles)
        store_sealed_entries(end.size, [row[0] for row in rows])
    return len(rows)


def _hash_row(position: int, *values: Any) -> bytes:
    try:
        return hash_leaf(encode_leaf_row(values))
    except (TypeError, ValueError) as error:
        raise SealDamageError(
            f"Entry #{position} cannot be sealed: {error}. Gatebook did not write it so. Nothing"
            " from this entry on is sealed until the owner of the database corrects or removes it."
        ) from None
