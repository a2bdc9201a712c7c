"""The one writer of Anchor: publishes tree heads to the anchors of GATEBOOK_ANCHORS.

Every attempt is a row: a receipt, or why there is none. A failed anchor is tried again after 5 s,
then twice as late each time, at most every hour. Each anchor works in a thread of its own, so that
one that hangs delays neither the others nor the sealer.
"""

import fcntl
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import orjson
import structlog
from django.conf import settings
from django.db import connections

from db import jobs, raw_sql
from db.clock import now_us
from db.text import to_column_text
from proofs import merkle
from proofs.anchors.anchor_settings import KINDS, load_anchor_settings
from proofs.anchors.published_head import (
    AnchorContradicts,
    AnchorFailed,
    AnchorTarget,
    LastReceipt,
    PublishedHead,
)
from proofs.models import Anchor, TreeHead
from proofs.tree_store import open_tiles

JOB: Final = "anchors"
HEADS_AT_ONCE: Final = 100
WORK_S: Final = 20.0  # after this an anchor that is behind continues in the next run
WAIT_S: Final = 2.0  # how long the job waits for its anchors
FIRST_DELAY_US: Final = 5_000_000
MAX_DELAY_US: Final = 3_600_000_000
ALARM_FAILURES: Final = 3  # a single failure is tried again before anybody is alarmed
_COUNTED_FAILURES: Final = 20
ERROR_CHARACTERS: Final = 500
CONTRADICTION: Final = "Contradiction: "  # begins the stored error

log = structlog.get_logger("gatebook.anchors")


class AnchorsFailing(Exception):
    """Tree heads reach an anchor no more; pages, /readyz and the log name the job."""


class AnchorsContradict(AnchorsFailing):
    """An anchor holds another history than this database, or lost what it held."""


class AnchorState(NamedTuple):
    """How an anchor of the settings fares. `failures`: since the last success, at most 20."""

    target: AnchorTarget
    last: Anchor | None  # the last success
    failure: Anchor | None  # the last failure, if it is newer
    failures: int

    @property
    def is_alarmed(self) -> bool:
        """Whether it failed often enough to alarm people, or holds another history."""
        return self.failures >= ALARM_FAILURES or self.contradicts

    @property
    def contradicts(self) -> bool:
        """Whether what it holds is not the beginning of this history."""
        return self.failure is not None and self.failure.error.startswith(CONTRADICTION)

    @property
    def retry_at_us(self) -> int:
        """When it is tried again after a failure; 0 without one."""
        if self.failure is None:
            return 0
        return self.failure.anchored_at_us + find_retry_delay_us(self.failures)

    def is_due(self, now: int) -> bool:
        """Whether to publish now. A clock that was set back delays nothing."""
        if self.failure is not None:
            return not self.failure.anchored_at_us <= now < self.retry_at_us
        if self.last is None or not self.target.every_s:
            return True
        since_us = now - self.last.anchored_at_us
        return not 0 <= since_us < self.target.every_s * 1_000_000


class StoredTree:
    """The tree of this database, for anchors that compare it or prove its growth."""

    def __init__(self) -> None:
        self._read_tile = open_tiles()

    def compute_root(self, size: int) -> bytes:
        """Return the root of the first `size` entries."""
        return merkle.compute_root(size, self._read_tile)

    def prove_consistency(self, old_size: int, new_size: int) -> Sequence[bytes]:
        """Return the consistency proof between two sizes."""
        return merkle.build_consistency_proof(old_size, new_size, self._read_tile)


def find_retry_delay_us(failures: int) -> int:
    """Return how long an anchor waits after so many failures."""
    return min(FIRST_DELAY_US << min(max(failures - 1, 0), 20), MAX_DELAY_US)


def load_anchor_states() -> list[AnchorState]:
    """Return the state of each configured anchor. Two queries, none without anchors."""
    targets = load_anchor_settings().targets
    if not targets:
        return []
    names = raw_sql.to_array_parameter(target.name for target in targets)
    numbers = {
        row[0]: row[1:]
        for row in raw_sql.fetch_rows(_STATES.format(wanted=raw_sql.wanted_table("text")), [names])
    }
    ids = [number for row in numbers.values() for number in row[:2] if number is not None]
    rows = {row.id: row for row in Anchor.objects.filter(id__in=ids)}
    states = []
    for target in targets:
        last, newest, failures = numbers.get(target.name, (None, None, 0))
        failure = rows.get(newest) if failures else None
        states.append(AnchorState(target, rows.get(last), failure, failures))
    return states


_STATES: Final = f"""
SELECT state.key, state.last, state.newest,
  (SELECT count(*) FROM (SELECT 1 FROM proofs_anchor
    WHERE name = state.key AND id > coalesce(state.last, 0) LIMIT {_COUNTED_FAILURES}) AS failed)
FROM (SELECT key,
  (SELECT id FROM proofs_anchor WHERE name = key AND error = '' ORDER BY id DESC LIMIT 1) AS last,
  (SELECT id FROM proofs_anchor WHERE name = key ORDER BY id DESC LIMIT 1) AS newest
  FROM {{wanted}}) AS state
"""


def publish_due_heads() -> int:
    """Publish new heads to the anchors that are due, and wait for them for at most WAIT_S.

    Returns how many anchors are at work or done. Anchors that fail are reported as a failing job.
    """
    jobs.send_job_heartbeat(JOB)
    threads = []
    try:
        with jobs.record_run(JOB):
            states = load_anchor_states()
            now = now_us()
            for state in states:
                if state.is_due(now) and load_pending_heads(state, most=1):
                    work = threading.Thread(target=_publish_apart, args=[state.target], daemon=True)
                    work.start()
                    threads.append(work)
            deadline = time.monotonic() + WAIT_S
            for work in threads:
                work.join(max(deadline - time.monotonic(), 0))
            if any(state.contradicts for state in states):
                raise AnchorsContradict
            if any(state.is_alarmed for state in states):
                raise AnchorsFailing
    except AnchorsFailing:
        pass  # `record_run` has stored it; the log has the reason of each attempt
    return len(threads)


def publish_now(target: AnchorTarget) -> AnchorState:
    """Publish all pending heads to one anchor, whether it is due or not; return its new state."""
    with _claimed(target):
        deadline = time.monotonic() + WORK_S
        while publish_some(target) == HEADS_AT_ONCE and time.monotonic() < deadline:
            pass
    return next(state for state in load_anchor_states() if state.target == target)


def publish_some(target: AnchorTarget) -> int:
    """Publish up to HEADS_AT_ONCE pending heads and store a row for each; return their number."""
    state = next(state for state in load_anchor_states() if state.target == target)
    heads = load_pending_heads(state)
    if not heads:
        return 0
    published = 0
    try:
        receipts = KINDS[target.kind].publish(target, heads, _read_last(state), StoredTree())
        for taken, receipt in zip(heads, receipts, strict=True):
            _store(target, taken, receipt=receipt)
            published += 1
    except Exception as error:
        reason = _describe_failure(error)
        head = heads[min(published, len(heads) - 1)]
        _store(target, head, error=reason)
        log.error(
            "anchor_failed",
            anchor=target.name,
            kind=target.kind,
            head=head.number,
            failures=state.failures + 1,
            error=reason[:ERROR_CHARACTERS],
        )
        return published
    if state.failures:
        log.warning("anchor_recovered", anchor=target.name, after_failures=state.failures)
    return published


def load_pending_heads(state: AnchorState, *, most: int = HEADS_AT_ONCE) -> list[PublishedHead]:
    """Return the heads that an anchor lacks, the oldest first.

    A new anchor begins with the newest head, which covers all entries before it. So does a witness,
    which cosigns nothing older, and an anchor with `every=`.
    """
    after = state.last.tree_head_id if state.last is not None else 0
    heads = TreeHead.objects.filter(id__gt=after)
    takes_newest = not after or state.target.every_s or state.target.kind == "witness"
    rows = heads.order_by("-id")[:1] if takes_newest else heads.order_by("id")[:most]
    return [
        PublishedHead(row.id, row.key_name, row.size, bytes(row.root), row.made_at_us, row.note)
        for row in rows
    ]


def _publish_apart(target: AnchorTarget) -> None:
    """Publish in a thread of its own, with a database connection of its own."""
    try:
        publish_now(target)
    except BlockingIOError:
        pass  # another thread or process is at it
    except Exception as error:  # a thread has nobody above it who would report this
        log.error("anchor_broken", anchor=target.name, error=f"{type(error).__name__}: {error}")
    finally:
        connections.close_all()


@contextmanager
def _claimed(target: AnchorTarget) -> Iterator[None]:
    """Keep an anchor for this thread. Raises BlockingIOError where it is taken."""
    folder = Path(settings.VAR_DIR) / "anchors"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder / f"{target.name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _read_last(state: AnchorState) -> LastReceipt | None:
    if state.last is None:
        return None
    head = TreeHead.objects.get(id=state.last.tree_head_id)
    return LastReceipt(head.id, head.size, head.note, orjson.loads(state.last.receipt))


def _describe_failure(error: Exception) -> str:
    """Return what is stored; a fault of ours must not look like an anchor that works."""
    if isinstance(error, AnchorContradicts):
        return f"{CONTRADICTION}{error}"
    return str(error) if isinstance(error, AnchorFailed) else f"{type(error).__name__}: {error}"


def _store(
    target: AnchorTarget, head: PublishedHead, *, receipt: str = "", error: str = ""
) -> None:
    Anchor.objects.bulk_create(
        [
            Anchor(
                tree_head_id=head.number,
                name=target.name,
                kind=target.kind,
                anchored_at_us=now_us(),
                receipt=receipt,
                error=to_column_text(error)[:ERROR_CHARACTERS] or ("" if receipt else "unknown"),
            )
        ],
        ignore_conflicts=True,  # another node stored the same success
    )
