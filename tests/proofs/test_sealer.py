"""The job that seals: every committed entry once, in order of position, whatever overlaps."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, connections, transaction
from django.test import Client

from db import raw_sql
from journal import entries
from journal.models import Entry
from journal.running_writers import load_last_position
from monitoring.models import JobHeartbeat
from proofs import merkle, seal_lag, sealer, tree_heads, tree_store
from proofs.leaf import LEAF_FIELDS, encode_leaf, hash_leaf
from proofs.models import SealedEntry
from tests.journal.committed import committed, together
from tests.journal.drafts import draft, new_project

POSTGRESQL = connection.vendor == "postgresql"
# A transaction of a test ends by itself after this time, when the test has failed.
PATIENCE_S = 300
__all__ = ["committed"]


def append(*names: str) -> list[int]:
    """Write entries in a transaction of their own; return their positions."""
    with transaction.atomic():
        drafts = [draft(name, project=new_project(), producer_seq=2**60) for name in names]
        return [written.position for written in entries.append_entries(drafts, 1)]


def read_leaf(entry: Entry) -> bytes:
    """Return the leaf of an entry by way of the model."""
    names = {"id": "event_id"}
    return encode_leaf({name: getattr(entry, names.get(name, name)) for name in LEAF_FIELDS})


def check_tree() -> None:
    """Check that all entries are sealed once, in order, and that the tiles have their hashes."""
    stored = list(Entry.objects.order_by("position"))
    sealed = list(SealedEntry.objects.order_by("log_index").values_list("log_index", "entry_id"))
    assert sealed == [(index, entry.position) for index, entry in enumerate(stored)]
    hashes = [hash_leaf(read_leaf(entry)) for entry in stored]
    root = merkle.compute_root(len(stored), tree_store.open_tiles())
    assert root == merkle.compute_root_of_hashes(hashes)


@pytest.fixture(autouse=True)
def _own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealer, "_recorded_s", float("-inf"))
    monkeypatch.setattr(seal_lag, "LATE_US", 10**18)  # entries of tests are old
    monkeypatch.setattr(tree_heads, "sign_due_head", lambda: None)


@pytest.mark.django_db
def test_entries_are_sealed_once_in_batches_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    if POSTGRESQL:  # this transaction's entries are no other writer's
        monkeypatch.setattr(sealer, "load_running_writers", frozenset)
    sealer.seal_journal()
    start = tree_store.load_tree_end().size
    monkeypatch.setattr(sealer, "_BATCH_ENTRIES", {connection.vendor: 300})
    for number in (1, 254, 1, 600):
        append(*(f"{number} {index}" for index in range(number)))
        assert sealer.seal_journal() == number
        assert sealer.seal_journal() == 0
    assert tree_store.load_tree_end() == (start + 856, load_last_position())
    check_tree()


def test_sealers_at_the_same_time_seal_each_entry_once(committed: None) -> None:
    append(*(f"entry {index}" for index in range(700)))

    def seal_until_empty() -> int:
        total = 0
        while tree_store.load_tree_end().position < load_last_position():
            total += sealer.seal_journal()
        return total

    sealed = together(*[seal_until_empty] * 3)
    assert sum(sealed) == 700
    check_tree()


@contextmanager
def open_transaction(name: str, project: UUID | None = None) -> Iterator[Callable[[], Any]]:
    """Write an entry in another connection; the yielded function commits it."""
    written, may_end = threading.Event(), threading.Event()

    def write() -> None:
        try:
            with transaction.atomic():
                entries.append_entries([draft(name, project=project or new_project())], 1)
                written.set()
                may_end.wait(timeout=PATIENCE_S)
        finally:
            connections.close_all()

    thread = threading.Thread(target=write)
    thread.start()
    assert written.wait(timeout=PATIENCE_S)

    def commit() -> None:
        may_end.set()
        thread.join(timeout=PATIENCE_S)

    try:
        yield commit
    finally:
        commit()


@pytest.mark.skipif(not POSTGRESQL, reason="SQLite has one writer")
def test_late_committers_leave_no_gap_and_hold_up_only_what_follows_them(committed: None) -> None:
    append("first")
    assert sealer.seal_journal() == 1
    with open_transaction("slow") as commit_slow:
        append("after the slow one")
        assert sealer.seal_journal() == 0  # an entry may still appear before it
        with open_transaction("overlapping") as commit_overlapping:
            append("last")
            assert sealer.seal_journal() == 0
            commit_slow()
            # The transaction that began later does not hold up what the first one did.
            assert sealer.seal_journal() == 2
            commit_overlapping()
    assert sealer.seal_journal() == 2
    check_tree()


@pytest.mark.skipif(not POSTGRESQL, reason="SQLite stores no transaction ids")
def test_entries_of_a_restored_dump_are_sealed_once_whatever_their_transaction_ids(
    committed: None,
) -> None:
    """Another cluster's ids may be in the future or the past of this one, and are met again."""
    (first,) = append("sealed before the dump")
    sealer.seal_journal()
    same = "project, source, claimed_source, kind, actor, lane, received_us, facts, schema_version"
    (now,) = raw_sql.fetch_rows("SELECT pg_current_xact_id()::text::bigint")[0]
    for number, txid in enumerate((2**62, 3, now + 2, now + 3)):
        raw_sql.execute_write(
            f"INSERT INTO journal_entry ({same}, id, txid) SELECT {same}, 'restored {number}',"
            f" '{txid}' FROM journal_entry WHERE position = {first}"
        )
    assert sealer.seal_journal() == 4
    append(*"abc")
    for name in "defgh":  # these transactions have the ids of restored entries
        append(name)
    assert sealer.seal_journal() == 8
    assert sealer.seal_journal() == 0
    check_tree()


@pytest.mark.skipif(not POSTGRESQL, reason="SQLite has one writer")
def test_transactions_that_read_or_roll_back_hold_up_nothing(committed: None) -> None:
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT 1")
    reading, may_end = threading.Event(), threading.Event()

    def read() -> None:
        with transaction.atomic():
            Entry.objects.count()
            raw_sql.fetch_rows("SELECT pg_current_xact_id()")  # an id of its own, but no entry
            savepoint = transaction.savepoint()
            entries.append_entries([draft("rolled back", project=new_project())], 1)
            transaction.savepoint_rollback(savepoint)
            reading.set()
            may_end.wait(timeout=PATIENCE_S)
        connections.close_all()

    thread = threading.Thread(target=read)
    thread.start()
    assert reading.wait(timeout=PATIENCE_S)
    try:
        append("while another reads")
        assert sealer.seal_journal() == 1
    finally:
        may_end.set()
        thread.join(timeout=PATIENCE_S)
    check_tree()


def test_an_entry_that_waits_too_long_fails_the_job(
    committed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    append("old")
    monkeypatch.setattr(seal_lag, "LATE_US", 10_000_000)
    monkeypatch.setattr(sealer, "find_final_position", lambda: 0)
    with pytest.raises(sealer.SealLagError, match=r"waits [0-9]+ s for its seal"):
        sealer.seal_and_record()
    waits: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0)
            return len(waits) == 3

    assert sealer.run_sealer(Stop(), 60) == 0
    assert len(waits) == 3, "a run goes on while entries wait"
    heartbeat = JobHeartbeat.objects.get(name="seal")
    assert heartbeat.error == "SealLagError"
    numbers = read_metrics()
    assert numbers["gatebook_seal_lag_seconds"] > 10
    assert (numbers["gatebook_seal_late"], numbers["gatebook_sealed_entries"]) == (1, 0)
    assert numbers['gatebook_job_in_trouble{job="seal"}'] == 1
    monkeypatch.undo()
    sealer.seal_journal()
    numbers = read_metrics()
    assert (numbers["gatebook_seal_lag_seconds"], numbers["gatebook_seal_late"]) == (0, 0)
    assert numbers["gatebook_sealed_entries"] == 1


def read_metrics() -> dict[str, float]:
    """Read /metrics as Prometheus does: one name and one number a line."""
    answer = Client().get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_a_run_stays_while_entries_arrive_and_ends_when_asked(committed: None) -> None:
    stop = threading.Event()
    assert sealer.run_sealer(stop, 60) == 0  # nothing to seal: it does not stay
    append("one")
    stop.set()
    assert sealer.run_sealer(stop, 60) == 1
    assert sealer._running.acquire(blocking=False)
    try:
        assert sealer.run_sealer(stop, 60) == 0, "another thread of this process seals"
    finally:
        sealer._running.release()
