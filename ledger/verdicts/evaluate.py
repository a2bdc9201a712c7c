"""Build the inputs of the verdict table for many effects and evaluate it.

A constant number of queries, for any number of effects. ledger/verdicts/verdict_inputs.py loads
the rows; nothing is written, and what the journal does not contain stays missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

from journal.order_keys import attempt_of_resolution, is_command_mark
from ledger import stops as ledger_stops
from ledger.models import Stop
from ledger.tools import cache
from ledger.verdicts import table, verdict_inputs
from ledger.verdicts.table import Verdict, VerdictInput
from ledger.verdicts.verdict_inputs import AnyAttempt, AnyEffect, Probe
from sessions import lease_queries
from sessions.models import Lease

US: Final = 1_000_000


class UncertainAttempt(NamedTuple):
    """An attempt that may have happened, and its remote key."""

    number: int
    remote_key: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A verdict and its inputs; `in_doubt`: attempts that may have happened."""

    verdict: Verdict
    case: VerdictInput
    in_doubt: tuple[UncertainAttempt, ...] = ()
    attempt: int = 0  # the attempt to probe or report on; 0 if there is none
    compensation: UUID | None = None  # the open compensation of row 11

    @property
    def remote_key(self) -> str:
        """The key to probe for; of a replay with the same key, that key."""
        return next(
            (doubt.remote_key for doubt in self.in_doubt if doubt.number == self.attempt), ""
        )


# By attempt number: the end of its in-flight window; None if unknown.
WindowEnds = Mapping[int, int | None]


def evaluate_effects(
    project: UUID,
    effects: Sequence[AnyEffect],
    now_us: int,
    process: str | None = "",
    *,
    same_intent: bool = True,
    stops: Sequence[Stop] | None = None,
) -> dict[UUID, Evaluation]:
    """Return the verdict on each of a project's `effects` for worker `process`.

    A lease of `process` is its own. For "" every live lease belongs to another worker. For None
    leases are ignored: the endpoint has compared epochs. Passing `stops` in force saves a query.
    """
    undoing = verdict_inputs.load_compensations(
        [row for row in effects if getattr(row, "has_undoing", True)]
    )
    related = newest = _open_rows(undoing)
    for _ in range(_MAX_DEPTH):  # a compensation may itself be compensated, and so on
        deeper = verdict_inputs.load_compensations(newest)
        newest = _open_rows(deeper)
        undoing |= deeper
        related += newest
    facts = _VerdictFacts.read(project, [*effects, *related], process, stops)

    def evaluate_row(row: AnyEffect, intent_matches: bool, depth: int) -> Evaluation:
        compensations = undoing.get(row.id, [])
        open_compensations: list[AnyEffect] = []
        if depth <= _MAX_DEPTH + 1:
            open_compensations = [other for other in compensations if _is_open(other)]
        if not open_compensations:
            return _evaluate_effect(row, facts, now_us, intent_matches, None, compensations)
        last = open_compensations[-1]
        inner = evaluate_row(last, True, depth + 1).case
        evaluation = _evaluate_effect(row, facts, now_us, intent_matches, inner, compensations)
        is_row_11 = evaluation.verdict.row == "11"
        return replace(evaluation, compensation=last.id) if is_row_11 else evaluation

    return {row.id: evaluate_row(row, same_intent, 1) for row in effects}


# Levels of compensations that are evaluated with an effect.
_MAX_DEPTH: Final = 3


def _open_rows(undoing: Mapping[UUID, Sequence[AnyEffect]]) -> list[AnyEffect]:
    return [row for rows in undoing.values() for row in rows if _is_open(row)]


def may_have_happened(row: AnyEffect, now_us: int) -> bool:
    """True if any attempt of the effect is in doubt, including earlier ones."""
    return bool(evaluate_effects(row.project_id, [row], now_us, None)[row.id].in_doubt)


def _is_open(compensation: AnyEffect) -> bool:
    """True while a compensation may still happen: planned and not denied, or in doubt."""
    if compensation.state == "planned":
        return compensation.permission != "denied"
    if compensation.state == "failed" and compensation.failure_reason == "rejected":
        means = cache.load_tool(compensation.project_id, compensation.tool).means
        return (
            compensation.attempt_count < means.max_attempts and compensation.permission != "denied"
        )
    return verdict_inputs.is_in_doubt(compensation)


@dataclass(slots=True)
class _VerdictFacts:
    """What was loaded for a set of effects."""

    attempts: dict[UUID, list[AnyAttempt]]
    probes: dict[UUID, list[Probe]]
    late: set[UUID]
    overtaken: set[UUID]
    conditional: set[UUID]
    declarations: Mapping[UUID, cache.CachedDeclaration]  # of the calls that ran
    stops: Sequence[Stop]
    leases: Mapping[UUID, Lease]
    acquired: Mapping[tuple[UUID, int], int]
    process: str | None

    @classmethod
    def read(
        cls,
        project: UUID,
        effects: Sequence[AnyEffect],
        process: str | None,
        stops: Sequence[Stop] | None,
    ) -> "_VerdictFacts":
        """Load the inputs of the verdicts on `effects`, and nothing that no row would use."""
        tried = [row for row in effects if row.state in ("dispatched", "failed", "acknowledged")]
        doubtful = [
            row for row in tried if not (row.state == "acknowledged" and row.outcome != "unknown")
        ]
        attempts = verdict_inputs.load_newest_attempts(doubtful)
        declarations, plans = _load_declarations(project, tried)
        means = {row.id: declarations[row.id].means for row in doubtful}
        idempotent = [row for row in doubtful if means[row.id].tool_class == "idempotent"]
        unread = [row for row in idempotent if row.id not in plans]
        plans |= verdict_inputs.load_plan_bodies(unread)
        acquired_leases = verdict_inputs.load_leases(
            [row for row in effects if getattr(row, "has_lease", True)]
        )
        return cls(
            attempts=attempts,
            probes=verdict_inputs.load_probes([row.id for row in doubtful if means[row.id].probe]),
            late=verdict_inputs.load_late_reports(
                [row.id for row in doubtful if getattr(row, "has_fenced", True)]
            ),
            overtaken=verdict_inputs.find_overtaken(idempotent, attempts),
            # An erased plan has no preconditions.
            conditional={
                row.id for row in idempotent if plans.get(row.id, {}).get("preconditions")
            },
            declarations=declarations,
            stops=ledger_stops.load_stops(project) if stops is None else stops,
            leases=acquired_leases,
            acquired=verdict_inputs.load_next_acquisitions(attempts, acquired_leases),
            process=process,
        )


def load_call_declarations(
    project: UUID, effects: Sequence[AnyEffect]
) -> dict[UUID, cache.CachedDeclaration]:
    """Return the declaration of each effect's tool, raised by the arguments of its plan.

    At most one query, and none unless a tool has conditions that raise its class.
    """
    return _load_declarations(project, effects)[0]


def _load_declarations(
    project: UUID, effects: Sequence[AnyEffect]
) -> tuple[dict[UUID, cache.CachedDeclaration], dict[UUID, dict[str, Any]]]:
    """Return the declarations by effect, and the plans that were read for them.

    The present conditions apply also to effects that were planned before them, as does the present
    class. An erased plan raises what any arguments could raise.
    """
    declarations = {row.id: cache.load_tool(project, row.tool) for row in effects}
    raisable = [row for row in effects if declarations[row.id].raises_class]
    plans = verdict_inputs.load_plan_bodies(raisable)
    for row in raisable:
        plan = plans.get(row.id)
        arguments = None if plan is None else plan.get("arguments", {})
        declarations[row.id] = declarations[row.id].raise_by_arguments(arguments)
    return declarations, plans


def _evaluate_effect(
    row: AnyEffect,
    facts: _VerdictFacts,
    now_us: int,
    same_intent: bool,
    compensation: VerdictInput | None,
    compensations: Sequence[AnyEffect],
) -> Evaluation:
    declaration = facts.declarations.get(row.id) or cache.load_tool(row.project_id, row.tool)
    means = declaration.means
    attempts = facts.attempts.get(row.id, [])
    lease = facts.leases.get(row.id)
    probes = _valid_probes(facts.probes.get(row.id, []), compensations)
    ends_by_number = {
        attempt.number: _window_end_of(
            attempt, lease, facts.acquired, now_us, means.request_lifetime_s
        )
        for attempt in attempts
    }
    uncertain = _uncertain_attempts(row, attempts, probes, ends_by_number)
    target = _attempt_to_probe(uncertain, attempts, probes, ends_by_number)
    last_probe = _last_probe_of(target, attempts, probes)
    # If every loaded attempt is unanswered, there may be more that were not loaded.
    crowded = len(attempts) >= verdict_inputs.MAX_ATTEMPTS_LOADED and all(
        _is_unanswered(attempt) for attempt in attempts
    )
    window_ends = [ends_by_number[attempt.number] for attempt in uncertain]
    is_other_process = (
        facts.process is not None and lease is not None and lease.process != facts.process
    )
    lease_elsewhere = (
        is_other_process and lease is not None and lease_queries.is_lease_live(lease, now_us)
    )
    case = VerdictInput(
        state=row.state,
        outcome=row.outcome,
        failure_reason=row.failure_reason,
        permission=row.permission,
        permission_basis=row.permission_basis,
        permission_until_us=row.permission_until_us,
        same_intent=same_intent,
        attempts=row.attempt_count,
        earlier_in_doubt=crowded
        or any(attempt.number < row.attempt_count for attempt in uncertain),
        keys_in_doubt=max(len({attempt.remote_key for attempt in uncertain}), 1),
        first_us=_first_use_of(target, attempts)
        if len(attempts) < verdict_inputs.MAX_ATTEMPTS_LOADED
        else None,
        last_us=_last_sent(window_ends, means.request_lifetime_s),
        reference=bool(row.external_reference),
        precondition=row.id in facts.conditional,
        later_on_resource=row.id in facts.overtaken,
        resolution=row.resolution,
        resolved_attempt=attempt_of_resolution(row.resolved_mark),
        late_evidence=row.id in facts.late,
        probe=last_probe.result if last_probe is not None else "",
        probed_us=last_probe.began_us if last_probe is not None else None,
        probe_errors=_count_errors(target, attempts, probes),
        is_stopped=_is_stopped(row, facts.stops),
        lease_elsewhere=lease_elsewhere,
        lease_until_us=lease.expires_at_us if lease is not None and lease_elsewhere else None,
        means=means,
        compensation=compensation,
        undoing_failed=compensation is None and any(_has_failed(other) for other in compensations),
    )
    decision = table.decide_verdict(case, now_us)
    return Evaluation(
        decision, case, tuple(uncertain), target.number if target is not None else row.attempt_count
    )


def _uncertain_attempts(
    row: AnyEffect, attempts: Sequence[AnyAttempt], probes: Sequence[Probe], window_ends: WindowEnds
) -> list[UncertainAttempt]:
    """Return the attempts that may have happened, in order."""
    denied = attempt_of_resolution(row.resolved_mark) if row.resolution == "not_happened" else 0
    settled = max(row.undone, denied)
    unanswered = [
        attempt for attempt in attempts if attempt.number > settled and _is_unanswered(attempt)
    ]
    absent = {
        key
        for key in {attempt.remote_key for attempt in unanswered}
        if _is_absent(key, unanswered, attempts, probes, window_ends)
    }
    # A proven absence settles an attempt, except the last: the table decides what follows from it.
    return [
        UncertainAttempt(attempt.number, attempt.remote_key)
        for attempt in sorted(unanswered, key=attrgetter("number"))
        if attempt.remote_key not in absent or attempt.number == row.attempt_count
    ]


def _is_unanswered(attempt: AnyAttempt) -> bool:
    if attempt.acknowledged_mark and attempt.outcome != "unknown":
        return False
    return attempt.failure_reason != "rejected"


def _is_absent(
    key: str,
    uncertain: Sequence[AnyAttempt | UncertainAttempt],
    attempts: Sequence[AnyAttempt],
    probes: Sequence[Probe],
    ends_by_number: WindowEnds,
) -> bool:
    """True if the last probe missed and began after the window of `uncertain`."""
    numbers = {attempt.number for attempt in attempts if attempt.remote_key == key}
    of_key = [probe for probe in probes if probe.attempt in numbers]
    last_probe = max(of_key, key=_probe_start, default=None)
    unanswered = {attempt.number for attempt in uncertain}
    window_ends = [
        ends_by_number[attempt.number]
        for attempt in attempts
        if attempt.remote_key == key and attempt.number in unanswered
    ]
    if last_probe is None or last_probe.result != "miss" or last_probe.began_us is None:
        return False
    return all(end is not None and last_probe.began_us >= end for end in window_ends)


def _attempt_to_probe(
    uncertain: Sequence[UncertainAttempt],
    attempts: Sequence[AnyAttempt],
    probes: Sequence[Probe],
    ends_by_number: WindowEnds,
) -> UncertainAttempt | None:
    """Return the attempt to probe next: the newest that is not settled."""
    for attempt in reversed(uncertain):
        if not _is_absent(attempt.remote_key, uncertain, attempts, probes, ends_by_number):
            return attempt
    return uncertain[-1] if uncertain else None


def _probes_of_key(
    target: UncertainAttempt | None, attempts: Sequence[AnyAttempt], probes: Sequence[Probe]
) -> list[Probe]:
    """Return the probes for the key of an attempt, in the order in which they began."""
    if target is None:
        return []
    numbers = {attempt.number for attempt in attempts if attempt.remote_key == target.remote_key}
    return sorted((probe for probe in probes if probe.attempt in numbers), key=_probe_start)


def _last_probe_of(
    target: UncertainAttempt | None,
    attempts: Sequence[AnyAttempt],
    reported_probes: Sequence[Probe],
) -> Probe | None:
    """Return the last probe for the key of an attempt."""
    probes = _probes_of_key(target, attempts, reported_probes)
    return probes[-1] if probes else None


def _count_errors(
    target: UncertainAttempt | None, attempts: Sequence[AnyAttempt], probes: Sequence[Probe]
) -> int:
    count = 0
    for probe in reversed(_probes_of_key(target, attempts, probes)):
        if probe.result != "error":
            break
        count += 1
    return count


def _valid_probes(probes: Sequence[Probe], compensations: Sequence[AnyEffect]) -> list[Probe]:
    """Return the probes that still count: those after the last compensation of extras."""
    undone = [
        compensation.changed_us
        for compensation in compensations
        if compensation.undoes == 0 and compensation.state == "acknowledged"
    ]
    since = max(undone, default=None)
    return [
        probe
        for probe in probes
        if since is None or (probe.began_us is not None and probe.began_us >= since)
    ]


def _probe_start(probe: Probe) -> tuple[int, int]:
    return (probe.began_us if probe.began_us is not None else -1, probe.position)


def _first_use_of(target: UncertainAttempt | None, attempts: Sequence[AnyAttempt]) -> int | None:
    """Return a time at or before the key's first use, or None if unknown."""
    if target is None:
        return None
    starts = []
    for attempt in attempts:
        if attempt.remote_key != target.remote_key:
            continue
        if attempt.lane == "command":
            starts.append(attempt.received_us)
        elif attempt.dispatched_at_us is not None and attempt.received_us is not None:
            starts.append(min(attempt.dispatched_at_us, attempt.received_us))
        else:
            starts.append(None)
    return None if None in starts or not starts else min(at for at in starts if at is not None)


def _last_sent(window_ends: Sequence[int | None], lifetime_s: int) -> int | None:
    """Return the last time anything was sent, from the ends of windows."""
    known_ends = [end for end in window_ends if end is not None]
    return (
        max(known_ends) - lifetime_s * US
        if known_ends and len(known_ends) == len(window_ends)
        else None
    )


def _window_end_of(
    attempt: AnyAttempt,
    lease: Lease | None,
    acquired: Mapping[tuple[UUID, int], int],
    now_us: int,
    lifetime_s: int,
) -> int | None:
    """Return the end of an attempt's in-flight window.

    The last send is the dispatch or the reported failure. If the dispatching worker held a lease
    and is gone, it is the worker's last heartbeat under that epoch, or at the latest the first
    acquisition after that epoch. Later acquisitions do not count: otherwise workers that live
    shorter than a request would never settle it.
    """
    sent = verdict_inputs.last_send_us(attempt)
    if sent is None:
        return None
    last_signs = [sent]
    if attempt.failed_at_us is not None and is_command_mark(attempt.failed_mark):
        last_signs.append(attempt.failed_at_us)
    elif lease is not None and attempt.lease_epoch is not None:
        if attempt.lease_epoch < lease.epoch:
            last_signs.append(
                acquired.get((lease.id, attempt.lease_epoch + 1), lease.acquired_at_us)
            )
        elif (
            lease.process == attempt.process
            and lease.released_at_us is None
            and not lease_queries.is_lease_live(lease, now_us)
        ):
            last_signs.append(lease.heartbeat_at_us)
    return max(last_signs) + lifetime_s * US


def _is_stopped(row: AnyEffect, stops: Sequence[Stop]) -> bool:
    return (
        bool(stops)
        and ledger_stops.find_covering_stop(stops, row.session_id, row.agent_id, row.tool, row.id)
        is not None
    )


def _has_failed(compensation: AnyEffect) -> bool:
    """True if a compensation was denied, failed, or has no attempts left."""
    if compensation.state == "planned":
        return compensation.permission == "denied"
    if compensation.state == "acknowledged":
        return compensation.outcome == "error"
    return compensation.state == "failed" and not _is_open(compensation)
