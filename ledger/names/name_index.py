"""The job that follows the journal and reads the names of plans into UsedName.

Its position is stored in the transaction of the names, so a kill leaves both or neither. If two
runs overlap, one finds that the position has moved and starts again. Imported and old plans are
read like new ones.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog
from django.db import connection, transaction

from db import jobs, raw_sql
from journal.running_writers import load_last_position, wait_until_stable
from ledger.names.lookalike_letters import compute_skeleton
from ledger.names.names_of_plan import find_plan_names
from ledger.names.near_names import compared_part, cut_pieces
from ledger.names.used_names import (
    NameUses,
    delete_all_names,
    find_erased_plans,
    load_names_position,
    lock_names,
    store_name_uses,
    store_names_position,
)

log = structlog.get_logger("gatebook.jobs")
JOB_NAME: Final = "name_index"
RUN_LIMIT_S: Final = 2.0  # seconds per run in the job worker, which has other jobs
# Entries per step. SQLite has one writer, so other writers wait for a step.
_STEP_ENTRIES: Final = {"postgresql": 2_000, "sqlite": 1_000}
_BODIES_AT_ONCE: Final = 200
_MAX_BODY_CHARACTERS: Final = 262_144
_ENTRIES: Final = (
    "SELECT position, kind, lane, CAST(project AS text), received_us FROM journal_entry"
    " WHERE position > %s AND position <= %s ORDER BY position LIMIT %s"
)
_BODIES: Final = (
    f"SELECT body.entry_id, substr(body.text, 1, {_MAX_BODY_CHARACTERS + 1})"
    " FROM {} CROSS JOIN journal_body body WHERE body.entry_id = wanted.key"
)


class _PlanTarget(msgspec.Struct):
    repository: Any = None


class _PlanBody(msgspec.Struct):
    """The fields of a plan that have names; all others are skipped."""

    arguments: Any = None
    target: _PlanTarget | None = None


_decode_plan: Final = msgspec.json.Decoder(_PlanBody).decode


@jobs.record_run(JOB_NAME)
def index_names(most_s: float | None = None) -> int:
    """Read the names of new plans, up to the journal's stable end or for `most_s` seconds.

    Returns the number of plans read.
    """
    jobs.send_job_heartbeat(JOB_NAME)
    ends = None if most_s is None else time.monotonic() + most_s
    plans, position = 0, load_names_position()
    if position > load_last_position():  # written by hand: what was read is not known
        log.error("position_beyond_journal", job=JOB_NAME, position=position)
        reset_name_index()
        position = 0
    while (stable := wait_until_stable(load_last_position())) > position:
        plans += _index_names_step(position, stable)
        position = load_names_position()
        if ends is not None and time.monotonic() > ends:
            break
    return plans


def reset_name_index() -> None:
    """Make the next run read all plans again. Until then no first use is reported."""
    with transaction.atomic():
        lock_names()
        delete_all_names()


def _index_names_step(start: int, stable: int) -> int:
    """Read the plans among the next entries after `start`; return their number."""
    most = _STEP_ENTRIES[connection.vendor]
    entries = raw_sql.fetch_rows(_ENTRIES, [start, stable, most])
    until = entries[-1][0] if len(entries) == most else stable
    plans = {
        position: (project, received_us)
        for position, kind, lane, project, received_us in entries
        if kind == "effect.planned" and lane != "claim"
    }
    bodies = _load_plan_bodies(sorted(plans))
    with transaction.atomic():
        lock_names()
        if load_names_position() != start:
            return 0  # Another run was faster.
        for position in find_erased_plans(list(bodies)):
            del bodies[position]
        store_name_uses(_collect_uses(plans, bodies).values())
        store_names_position(until)
    return len(plans)


def _load_plan_bodies(positions: Sequence[int]) -> dict[int, _PlanBody]:
    """Load the plans at these positions; erased, unreadable and huge ones are absent."""
    plans = {}
    for first in range(0, len(positions), _BODIES_AT_ONCE):
        part = positions[first : first + _BODIES_AT_ONCE]
        for position, text in raw_sql.fetch_rows(
            _BODIES.format(raw_sql.wanted_table("bigint")), [raw_sql.to_array_parameter(part)]
        ):
            if len(text) > _MAX_BODY_CHARACTERS:
                continue
            try:
                plans[position] = _decode_plan(text)
            except ValueError:  # Not a plan. Rare: bodies are validated on arrival.
                continue
    return plans


def _collect_uses(
    plans: Mapping[int, tuple[str, int]], bodies: Mapping[int, _PlanBody]
) -> dict[tuple[str, str, str], NameUses]:
    uses: dict[tuple[str, str, str], NameUses] = {}
    for position in sorted(bodies):
        project, received_us = plans[position]
        body = bodies[position]
        repository = body.target.repository if body.target is not None else None
        names = find_plan_names(body.arguments, repository if isinstance(repository, str) else "")
        for name in names:
            folded = name.folded
            if name.is_mentioned or not folded or not folded.isprintable():
                continue
            key = (project, name.kind, folded)
            if key not in uses:
                part = compared_part(name.kind, folded)
                pieces = cut_pieces(part) if part else ("", "", "")
                skeleton = compute_skeleton(folded)[:400]
                uses[key] = NameUses(*key, skeleton, pieces, [], received_us, received_us)
            uses[key].positions.append(position)
            uses[key].last_us = received_us
    return uses
