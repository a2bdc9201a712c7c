"""Load the rows and entries that verdicts depend on: one query for each kind.

Nothing is written or guessed: what the journal does not contain stays missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import Case, F, Q, QuerySet, When, Window
from django.db.models.functions import RowNumber

from db import long_numbers, raw_sql
from db.compiled_query import CompiledQuerySet
from db.raw_sql import vendor_id
from journal.models import Body, Entry
from ledger.models import Attempt, Effect
from ledger.store.effect_rows import AttemptRow, EffectRow, to_uuid
from sessions.models import Lease

MAX_ATTEMPTS_LOADED: Final = 50  # of each effect: unanswered ones first, then the newest
_MOST_PROBES: Final = 2_000
_NEWEST_ON_RESOURCE: Final = 500
_RELEASES_READ: Final = 10_000
_AT_ONCE: Final = 1_000  # an upper bound of the attempts that are stored at the same moment
AnyEffect = Effect | EffectRow
AnyAttempt = Attempt | AttemptRow


@dataclass(frozen=True, slots=True)
class Probe:
    """A reported probe. It began at `began_us` or later; None: unknown."""

    attempt: int
    result: str
    began_us: int | None
    position: int


def is_in_doubt(row: AnyEffect) -> bool:
    """True if the effect was dispatched and its row shows no known outcome."""
    return row.state == "dispatched" or (
        row.state in ("failed", "acknowledged") and row.outcome == "unknown"
    )


def last_send_us(attempt: AnyAttempt) -> int | None:
    """Return a time after which the attempt did not begin."""
    return attempt.received_us if attempt.received_us is not None else attempt.heard_us


def load_compensations(effects: Sequence[AnyEffect]) -> dict[UUID, list[Effect]]:
    """Return compensations of effects in doubt or to be undone, oldest first."""
    targets = [
        row.id
        for row in effects
        if row.attempt_count
        and (row.state in ("dispatched", "failed") or is_in_doubt(row) or row.resolution)
    ]
    compensations: dict[UUID, list[Effect]] = {}
    for row in _COMPENSATIONS.rows(effects=targets) if targets else ():
        if row.compensates_id is not None:
            compensations.setdefault(row.compensates_id, []).append(row)
    return compensations


def _compensations(effects: Sequence[UUID]) -> "QuerySet[Effect]":
    return Effect.objects.filter(compensates__in=effects, lane="command").order_by(
        "opened_position"
    )


_ANSWERED: Final = Q(failure_reason="rejected") | (~Q(acknowledged_mark="") & ~Q(outcome="unknown"))
_PLACE: Final = Window(
    RowNumber(),
    partition_by=[F("effect")],
    order_by=[Case(When(_ANSWERED, then=1), default=0), F("number").desc()],
)


def load_newest_attempts(effects: Sequence[AnyEffect]) -> dict[UUID, list[AnyAttempt]]:
    """Return the attempts of each effect, newest first, at most MAX_ATTEMPTS_LOADED.

    Many attempts of one effect never hide those of another, and answered ones never hide others.
    """
    attempts: dict[UUID, list[AnyAttempt]] = {}
    for row in _ATTEMPTS.rows(effects=[row.id for row in effects]) if effects else ():
        attempts.setdefault(row.effect_id, []).append(row)
    return attempts


def _attempts(effects: Sequence[UUID]) -> "QuerySet[Attempt]":
    rows = Attempt.objects.filter(effect__in=effects).annotate(place=_PLACE)
    return rows.filter(place__lte=MAX_ATTEMPTS_LOADED).order_by("-number")


def load_probes(effects: Sequence[UUID]) -> dict[UUID, list[Probe]]:
    """Return the reported probes of each effect, from the facts of the journal."""
    probes: dict[UUID, list[Probe]] = {}
    if not effects:
        return probes
    for position, effect, facts in _PROBES.rows(effects=effects):
        values = orjson.loads(facts)
        if effect is not None:
            probe = Probe(values["attempt"], values["result"], values.get("began_us"), position)
            probes.setdefault(effect, []).append(probe)
    return probes


def _probes(effects: Sequence[UUID]) -> "QuerySet[Entry, tuple[int, UUID | None, str]]":
    entries = (
        Entry.objects.filter(effect__in=effects, kind="effect.probed")
        .exclude(lane="claim")
        .order_by("-position")
    )
    return entries.values_list("position", "effect", "facts")[:_MOST_PROBES]


def load_late_reports(effects: Sequence[UUID]) -> set[UUID]:
    """Return the effects that a worker without a valid lease reported as executed."""
    if not effects:
        return set()
    reports = [(effect, orjson.loads(facts)) for effect, facts in _FENCED.rows(effects=effects)]
    return {
        effect
        for effect, facts in reports
        if effect is not None
        and facts.get("kind") == "effect.acknowledged"
        and not facts.get("kept")
        and "standing" not in facts  # a claim of another agent is no evidence
    }


def _fenced(effects: Sequence[UUID]) -> "QuerySet[Entry, tuple[UUID | None, str]]":
    entries = Entry.objects.filter(effect__in=effects, kind="integrity.fenced", lane="system")
    return entries.values_list("effect", "facts")


# Effects with a later dispatch on their resource. Without a resource, everything that the tool
# touches counts as one.
_LATER: Final = """
SELECT mine.id FROM ledger_effect mine WHERE mine.id IN ({marks}) AND EXISTS (
  SELECT 1 FROM (
    SELECT other.id FROM ledger_effect other
    WHERE other.project_id = mine.project_id AND other.{column} = mine.{column}
      AND other.id <> mine.id {named}
    ORDER BY other.opened_position DESC LIMIT {most}
  ) newest JOIN ledger_attempt attempt ON attempt.effect_id = newest.id
  WHERE COALESCE(attempt.received_us, attempt.heard_us) >= (
    SELECT MAX(COALESCE(own.received_us, own.heard_us, 0))
    FROM ledger_attempt own WHERE own.effect_id = mine.id
  ) AND attempt.failure_reason <> 'rejected'
)
"""


def find_overtaken(
    effects: Sequence[AnyEffect], attempts: Mapping[UUID, Sequence[AnyAttempt]]
) -> set[UUID]:
    """Return the effects whose resource or tool has a later dispatch."""
    overtaken = {
        row.id
        for row in effects
        if any(last_send_us(attempt) is None for attempt in attempts.get(row.id, ())[:1])
    }
    named = [row.id for row in effects if row.resource]
    unnamed = [row.id for row in effects if not row.resource]
    for ids, column, condition in (
        (named, "resource", "AND other.resource <> ''"),
        (unnamed, "tool", ""),
    ):
        for start in range(0, len(ids), 500):
            part = ids[start : start + 500]
            text = _LATER.format(
                marks=", ".join(["%s"] * len(part)),
                column=column,
                named=condition,
                most=_NEWEST_ON_RESOURCE,
            )
            overtaken |= _ids(text, part)
            remaining = [effect for effect in part if effect not in overtaken]
            query = _MORE.format(
                marks=", ".join(["%s"] * len(remaining)),
                column=column,
                named=condition,
                most=_NEWEST_ON_RESOURCE,
            )
            crowded = _ids(query, remaining) if remaining else set()
            if crowded:
                overtaken |= _released_since(
                    [row for row in effects if row.id in crowded], attempts, column
                )
    return overtaken


# Effects on whose resource more were planned than are loaded: an old one may be dispatched late.
_MORE: Final = """
SELECT mine.id FROM ledger_effect mine WHERE mine.id IN ({marks}) AND (
  SELECT other.id FROM ledger_effect other
  WHERE other.project_id = mine.project_id AND other.{column} = mine.{column}
    AND other.id <> mine.id {named}
  ORDER BY other.opened_position DESC LIMIT 1 OFFSET {most}
) IS NOT NULL
"""
_SINCE: Final = """
SELECT effect.{column}, effect.id, COALESCE(attempt.received_us, attempt.heard_us, 0)
FROM ledger_attempt attempt JOIN ledger_effect effect ON effect.id = attempt.effect_id
WHERE attempt.id > %s AND attempt.project_id = %s AND attempt.failure_reason <> 'rejected'
ORDER BY attempt.id LIMIT {most}
"""


def _released_since(
    effects: Sequence[AnyEffect], attempts: Mapping[UUID, Sequence[AnyAttempt]], column: str
) -> set[UUID]:
    """Return the effects that a later dispatch overtook; all if too many."""
    last_attempts = {
        row.id: max(attempts[row.id], key=_sent) for row in effects if attempts.get(row.id)
    }
    since = (
        min(
            (attempt.id for attempt in last_attempts.values() if isinstance(attempt, Attempt)),
            default=0,
        )
        - _AT_ONCE
    )
    text = _SINCE.format(column=column, most=_RELEASES_READ + 1)
    released = raw_sql.fetch_rows(text, [since, vendor_id(effects[0].project_id)])
    if len(released) > _RELEASES_READ:
        return {row.id for row in effects}
    touched: dict[str, list[tuple[UUID | None, int]]] = {}
    for name, effect, at_us in released:
        touched.setdefault(name, []).append((to_uuid(effect), at_us))
    return {
        row.id
        for row in effects
        for other, at_us in touched.get(getattr(row, column), ())
        if other != row.id
        and (row.id not in last_attempts or at_us >= _sent(last_attempts[row.id]))
    }


def _sent(attempt: AnyAttempt) -> int:
    return last_send_us(attempt) or 0


def _ids(text: str, effects: Sequence[UUID]) -> set[UUID]:
    return {
        identity
        for row in raw_sql.fetch_rows(text, [vendor_id(effect) for effect in effects])
        if (identity := to_uuid(row[0])) is not None
    }


def load_plan_bodies(effects: Sequence[AnyEffect]) -> dict[UUID, dict[str, Any]]:
    """Return the body of each effect's plan; those that were erased are absent. One query."""
    positions = {row.plan_position: row.id for row in effects if row.plan_position is not None}
    if not positions:
        return {}
    bodies = _BODIES.rows(positions=list(positions))
    plans = ((positions[entry], long_numbers.parse_json(text)) for entry, text in bodies)
    return {effect: plan for effect, plan in plans if isinstance(plan, dict)}


def _bodies(positions: Sequence[int]) -> "QuerySet[Body, tuple[int, str]]":
    return Body.objects.filter(entry__in=positions).values_list("entry", "text")


def load_leases(effects: Sequence[AnyEffect]) -> Mapping[UUID, Lease]:
    """Return the lease that covers each effect: of its task, else its session."""
    if not effects:
        return {}
    sessions = list({row.session_id for row in effects})
    tasks = list({row.task_id for row in effects if row.task_id is not None})
    acquired = (
        _LEASES_WITH_TASKS.rows(sessions=sessions, tasks=tasks)
        if tasks
        else _LEASES.rows(sessions=sessions)
    )
    lease_by_subject = {lease.task_id or lease.session_id: lease for lease in acquired}
    leases = {
        row.id: lease_by_subject.get(row.task_id) or lease_by_subject.get(row.session_id)
        for row in effects
    }
    return {effect: lease for effect, lease in leases.items() if lease is not None}


def _of_sessions(sessions: Sequence[UUID]) -> "QuerySet[Lease]":
    return Lease.objects.filter(session__in=sessions, kind="session")


def _of_both(sessions: Sequence[UUID], tasks: Sequence[UUID]) -> "QuerySet[Lease]":
    return Lease.objects.filter(
        Q(session__in=sessions, kind="session") | Q(task__in=tasks, kind="task")
    )


def load_next_acquisitions(
    attempts: Mapping[UUID, Sequence[AnyAttempt]], leases: Mapping[UUID, Lease]
) -> dict[tuple[UUID, int], int]:
    """Return when each lease was next acquired after an attempt's epoch."""
    wanted = {
        (lease.id, attempt.lease_epoch + 1)
        for effect, tried in attempts.items()
        if (lease := leases.get(effect)) is not None
        for attempt in tried
        if attempt.lease_epoch is not None and attempt.lease_epoch < lease.epoch
    }
    if not wanted:
        return {}
    acquisitions = _ACQUIRED.rows(
        leases=list({lease for lease, _ in wanted}), epochs=list({epoch for _, epoch in wanted})
    )
    return {
        (lease, epoch): at_us for lease, epoch, at_us in acquisitions if (lease, epoch) in wanted
    }


def _acquired(
    leases: Sequence[UUID], epochs: Sequence[int]
) -> "QuerySet[Entry, tuple[UUID | None, int | None, int]]":
    entries = Entry.objects.filter(
        kind="lease.acquired", lane="command", subject__in=leases, lease_epoch__in=epochs
    )
    return entries.values_list("subject", "lease_epoch", "received_us")


# Compiled once: a refused dispatch computes its verdict under the write lock.
_COMPENSATIONS: Final = CompiledQuerySet(_compensations, effects=[UUID])
_ATTEMPTS: Final = CompiledQuerySet(_attempts, effects=[UUID])
_PROBES: Final = CompiledQuerySet(_probes, effects=[UUID])
_FENCED: Final = CompiledQuerySet(_fenced, effects=[UUID])
_BODIES: Final = CompiledQuerySet(_bodies, positions=[int])
_LEASES: Final = CompiledQuerySet(_of_sessions, sessions=[UUID])
_LEASES_WITH_TASKS: Final = CompiledQuerySet(_of_both, sessions=[UUID], tasks=[UUID])
_ACQUIRED: Final = CompiledQuerySet(_acquired, leases=[UUID], epochs=[int])
