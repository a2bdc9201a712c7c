"""The job that removes expired bodies with their salts and words, in bounded batches.

A batch is one transaction: the entry `retention.expired` with the positions, a row of Erasure for
each body, the deletions, and where the next batch begins. A run that is killed continues there.
"""

import time
from contextlib import suppress
from typing import Any, Final, NamedTuple
from uuid import UUID

import structlog
from django.db import transaction

from db import jobs as db_job_heartbeats
from db import raw_sql, retry
from db.clock import now_us
from db.ids import new_uuid7
from erasure import storage_scrub
from erasure.row_erasure import delete_answers, delete_index_rows
from erasure.row_scan import load_holds
from investigation.fulltext import indexer, store
from journal import body_partitions, entries, erasures, text_caches
from journal.models import Erasure
from monitoring import job_heartbeats
from proofs.stable_position import load_stable_position
from retention import retention_dry_run, retention_sets
from retention.body_scan import ClassedBody, find_window_end, load_project_holds, read_bodies
from retention.models import RetentionSet
from retention.recorded_tools import require_recorded_tools
from retention.retention_yaml import compute_cutoff_us, list_finite_classes
from sessions import artifacts
from sessions.models import Artifact

log = structlog.get_logger("gatebook.retention")
JOB_NAME: Final = "retention"
RUN_LIMIT_S: Final = 5.0  # seconds per run in the job worker, which has other jobs
WINDOW: Final = 1_000  # positions that one transaction reads
MAX_PAUSE_S: Final = 0.5  # between two transactions
# Keys of `progress`: artifacts whose bytes still go; whether partitions may have become empty.
_ARTIFACTS: Final = "artifacts"
_PARTITIONS: Final = "partitions"
_LAST_RECEIVED: Final = (
    "SELECT position FROM journal_entry WHERE received_us <= %s"
    " ORDER BY received_us DESC, position DESC LIMIT 1"  # entries of a batch share the moment
)


class ReplacedSet(Exception):
    """Another set is in force now; the next run follows it."""


class Expired(NamedTuple):
    """How many bodies went, in how many batches."""

    bodies: int
    batches: int

    def add(self, more: "Expired") -> "Expired":
        """Return the sums."""
        return Expired(self.bodies + more.bodies, self.batches + more.batches)


@db_job_heartbeats.record_run(JOB_NAME)
def run_retention(most_s: float | None = None) -> Expired:
    """Count new sets and remove what has expired, for at most `most_s` seconds.

    Returns how many bodies went, in how many batches. A project that fails stops no other one: its
    fault is raised at the end.
    """
    job_heartbeats.record_heartbeat(JOB_NAME)
    body_partitions.make_partitions()
    ends = None if most_s is None else time.monotonic() + most_s
    gone, failure = Expired(0, 0), None
    for row in retention_sets.list_due_dry_runs():
        try:
            is_counted = retention_dry_run.count_retention(row, ends)
        except Exception as error:  # the other sets and projects go on
            failure = error
            log.exception("retention_dry_run_failed", project=str(row.project_id))
        else:
            if not is_counted:
                break
    else:
        gone, fault = _expire_projects(ends)
        failure = fault or failure
    if gone.bodies:
        text_caches.clear_text_caches()
    if failure is not None:
        raise failure
    return gone


def _expire_projects(ends: float | None) -> tuple[Expired, Exception | None]:
    """Remove what has expired in each project; return how many bodies went, and the last fault."""
    gone, failure = Expired(0, 0), None
    for project in (
        RetentionSet.objects.exclude(activation_position=None)
        .order_by()
        .values_list("project", flat=True)
        .distinct()
    ):
        try:
            active = retention_sets.load_active_set(project)
            if active is not None:
                with suppress(ReplacedSet):
                    gone = gone.add(expire_project(active, ends))
        except Exception as error:  # the other projects go on
            failure = error
            log.exception("retention_failed", project=str(project))
        if ends is not None and time.monotonic() > ends:
            break
    return gone, failure


def expire_project(row: RetentionSet, ends: float | None = None) -> Expired:
    """Remove the expired bodies of one project; return how many went.

    Raises SetNotRecorded, HoldNotRecorded, ToolNotRecorded.
    """
    retention_sets.require_recorded_set(row)
    retention_sets.restart_after_release(row)
    storage_scrub.prepare_connection()
    delete_pending_artifacts(row)
    gone, now, last = Expired(0, 0), now_us(), load_stable_position()
    for name, keep in list_finite_classes(row.rules).items():
        cutoff = compute_cutoff_us(keep, now)
        rows = raw_sql.fetch_rows(_LAST_RECEIVED, [cutoff])
        end = min(int(rows[0][0]), last) if rows else 0
        while (position := int(row.progress.get(name, 0))) < end:
            started = time.monotonic()
            upto = find_window_end(position, end, WINDOW)
            went = expire_window(row, name, cutoff, position, upto)
            gone = gone.add(Expired(went, went > 0))
            delete_pending_artifacts(row)
            spent = time.monotonic() - started
            if ends is not None and started + spent > ends:
                return gone
            time.sleep(min(spent, MAX_PAUSE_S))  # agents' writes have half of the time
    if row.progress.get("words"):
        store.purge_erased_words()
        retention_sets.save_set(row, progress={**row.progress, "words": 0})
    if row.progress.get(_PARTITIONS) and body_partitions.drop_expired_partitions():
        retention_sets.save_set(row, progress={**row.progress, _PARTITIONS: 0})
    retention_sets.save_set(row, run_at_us=now_us())
    return gone


def expire_window(row: RetentionSet, name: str, cutoff: int, after: int, upto: int) -> int:
    """Remove the expired bodies of one class in one window; return how many went."""

    def work() -> tuple[int, dict[str, Any]]:
        current = RetentionSet.objects.select_for_update().get(pk=row.pk)
        active = retention_sets.load_active_set(row.project_id)
        if active is None or active.pk != row.pk:
            raise ReplacedSet
        if int(current.progress.get(name, 0)) != after:
            return 0, current.progress  # another run was faster
        store.lock_words()
        holds = load_project_holds(row.project_id)
        if any(rule["tool"] for rule in row.rules["rules"]):
            require_recorded_tools(row.project_id, after, upto)
        going = [
            body
            for body in read_bodies(
                row.project_id, row.rules, holds, after=after, upto=upto, received_us=cutoff
            )
            if body.text_class == name and not body.is_held
        ]
        progress = {**current.progress, name: upto}
        if going:
            _remove_bodies(row, name, going)
            progress |= {"words": 1, _PARTITIONS: 1}
            subjects = [body.subject for body in going if body.kind == "artifact.recorded"]
            progress[_ARTIFACTS] = [*progress.get(_ARTIFACTS, []), *filter(None, subjects)]
        retention_sets.save_set(current, progress=progress)
        return len(going), progress

    gone, progress = retry.run_with_retry(work)
    row.progress = progress
    return gone


def _remove_bodies(row: RetentionSet, name: str, going: list[ClassedBody]) -> None:
    positions = [body.position for body in going]
    facts = {
        "class": name,
        "set": row.pk.hex,
        "count": len(positions),
        "first": positions[0],
        "last": positions[-1],
        "positions": entries.write_positions(positions),
    }
    position = entries.record_system_entry(
        row.project_id,
        "retention.expired",
        event_id=new_uuid7().hex,
        text=entries.dump_sorted_json({"kind": "retention.expired", "class": name}),
        received_us=now_us(),
        facts=entries.dump_sorted_json(facts),
        subject=row.pk,
    ).position
    erasures.expire_bodies(
        row.project_id,
        positions,
        expired_by=position,
        reason=retention_sets.describe_class(row, name),
        now_us=now_us(),
    )
    delete_answers(row.project_id, [(body.source, body.event_id) for body in going])
    effects = sorted({body.effect for body in going if body.effect is not None})
    delete_index_rows([UUID(effect) for effect in effects])
    indexer.index_again(effects)


def delete_pending_artifacts(row: RetentionSet) -> None:
    """Delete the bytes of artifacts whose bodies expired, unless another artifact needs them."""
    pending = row.progress.get(_ARTIFACTS)
    if not pending:
        return
    held, _ = load_holds(row.project_id)
    for start in range(0, len(pending), 500):
        part = [UUID(subject) for subject in pending[start : start + 500]]
        # Also those that are not stored: a run that was killed may have left their files.
        expiring = Artifact.objects.filter(project=row.project_id, id__in=part)
        for sha256 in {artifact.sha256 for artifact in filter(artifacts.holds_bytes, expiring)}:
            same = Artifact.objects.filter(project=row.project_id, sha256=sha256)
            expired = Erasure.objects.filter(
                entry_id__in=list(same.values_list("opened_position", flat=True)[:500])
            )
            if same.filter(session__in=held).exists() or expired.count() < same.count():
                continue
            artifacts.delete_content(row.project_id, sha256)
    with transaction.atomic(durable=True):
        current = RetentionSet.objects.select_for_update().get(pk=row.pk)
        retention_sets.save_set(current, progress={**current.progress, _ARTIFACTS: []})
    row.progress = current.progress
