"""What is known of effects, made ready for the verdict table: a constant number of queries for any number of them.

ledger/known.py reads; nothing here writes, and what the book does not say reaches the table as missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from uuid import UUID

from journal.order import attempt_of, is_of_a_command
from ledger import declared, holds, known, verdicts
from ledger.known import Look, Row, Tried
from ledger.known import is_in_doubt as is_in_doubt
from ledger.models_holds import Hold
from ledger.settling import to_settle as to_settle
from ledger.verdicts import Case, Verdict
from sessions import leases
from sessions.models_leases import Lease

US: Final = 1_000_000


class Doubt(NamedTuple):
    """An attempt that may have happened, and the key under which the remote met it."""

    number: int
    remote_key: str


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict and all that it depended on. `in_doubt` are the attempts that may have happened, in order."""

    verdict: Verdict
    case: Case
    in_doubt: tuple[Doubt, ...] = ()
    attempt: int = 0  # that a probe or an answer is about; 0 where there is none
    compensation: UUID | None = None  # the open effect that row 11 speaks of

    @property
    def remote_key(self) -> str:
        """The key to look for; of a replay with the same key, the one it uses again."""
        return next((doubt.remote_key for doubt in self.in_doubt if doubt.number == self.attempt), "")


Dead = Mapping[int, int | None]  # when everything sent by an attempt is dead, by number; None where nobody can say


def judge(
    project: UUID,
    effects: Sequence[Row],
    now_us: int,
    process: str | None = "",
    *,
    same_intent: bool = True,
    stops: Sequence[Hold] | None = None,
) -> dict[UUID, Judged]:
    """The verdict on each of `effects`, all of one project, for a worker that calls itself `process`.

    A lease that `process` holds is its own; to a worker without a name every live lease is somebody else's. With None
    no lease is looked at: the door has compared epochs already. Who knows the `stops` in force spares a query.
    """
    undoing = known.compensations_of([row for row in effects if getattr(row, "has_undoing", True)])
    asked = last = _open_ones(undoing)
    for _ in range(_DEEPEST):  # what undoes may be undone itself, and so on
        below = known.compensations_of(last)
        last = _open_ones(below)
        undoing |= below
        asked += last
    facts = _Facts.read(project, [*effects, *asked], process, stops)

    def one(row: Row, same: bool, deep: int) -> Judged:
        mine = undoing.get(row.id, [])
        still = [other for other in mine if _is_open(other)] if deep <= _DEEPEST + 1 else []
        inner = one(still[-1], True, deep + 1).case if still else None
        said = _judge_one(row, facts, now_us, same, inner, mine)
        return replace(said, compensation=still[-1].id) if still and said.verdict.row == "11" else said

    return {row.id: one(row, same_intent, 1) for row in effects}


_DEEPEST: Final = 3  # compensations of compensations that are looked at; each is judged by itself all the same


def _open_ones(undoing: Mapping[UUID, Sequence[Row]]) -> list[Row]:
    return [row for rows in undoing.values() for row in rows if _is_open(row)]


def may_have_happened(row: Row, now_us: int) -> bool:
    """True when any attempt of the effect is in doubt, also one before the last."""
    return bool(judge(row.project_id, [row], now_us, None)[row.id].in_doubt)


def _is_open(compensation: Row) -> bool:
    """True while a compensation may still come to pass: planned with leave or a hope of it, or in doubt."""
    if compensation.state == "planned":
        return compensation.leave != "refused"
    if compensation.state == "failed" and compensation.failure_reason == "rejected":
        means = declared.tool(compensation.project_id, compensation.tool).means
        return compensation.attempt_count < means.max_attempts and compensation.leave != "refused"
    return is_in_doubt(compensation)


@dataclass(slots=True)
class _Facts:
    """What was read for a set of effects."""

    attempts: dict[UUID, list[Tried]]
    looks: dict[UUID, list[Look]]
    late: set[UUID]
    overtaken: set[UUID]
    guarded: set[UUID]
    stops: Sequence[Hold]
    leases: Mapping[UUID, Lease]
    acquired: Mapping[tuple[UUID, int], int]
    process: str | None

    @classmethod
    def read(
        cls,
        project: UUID,
        effects: Sequence[Row],
        process: str | None,
        stops: Sequence[Hold] | None,
    ) -> "_Facts":
        """Read for `effects` what their verdicts ask for; what no row of the table would look at is left unread."""
        tried = [row for row in effects if row.state in ("dispatched", "failed", "acknowledged")]
        doubtful = [row for row in tried if not (row.state == "acknowledged" and row.outcome != "unknown")]
        attempts = known.attempts_of(doubtful)
        means = {row.id: declared.tool(project, row.tool).means for row in doubtful}
        natural = [row for row in doubtful if means[row.id].tool_class == "natural"]
        held = known.leases_of([row for row in effects if getattr(row, "has_lease", True)])
        return cls(
            attempts=attempts,
            looks=known.looks_of([row.id for row in doubtful if means[row.id].probe]),
            late=known.reported_late([row.id for row in doubtful if getattr(row, "has_fenced", True)]),
            overtaken=known.overtaken_of(natural, attempts),
            guarded=known.guarded_of(natural),
            stops=holds.live(project) if stops is None else stops,
            leases=held,
            acquired=known.acquisitions_after(attempts, held),
            process=process,
        )


def _judge_one(
    row: Row, facts: _Facts, now_us: int, same_intent: bool, compensation: Case | None, undoing: Sequence[Row]
) -> Judged:
    means = declared.tool(row.project_id, row.tool).means
    tried = facts.attempts.get(row.id, [])
    lease = facts.leases.get(row.id)
    looks = _counting_looks(facts.looks.get(row.id, []), undoing)
    dead_us = {one.number: _dead_after(one, lease, facts.acquired, now_us, means.request_lifetime_s) for one in tried}
    doubts = _in_doubt(row, tried, looks, dead_us)
    asked = _to_look_for(doubts, tried, looks, dead_us)
    last = _last_look(asked, tried, looks)
    # Where as many are in doubt as are read, there may be more of them that nobody looked at.
    crowded = len(tried) >= known.MOST_ATTEMPTS and all(_is_unanswered(one) for one in tried)
    fences = [dead_us[doubt.number] for doubt in doubts]
    others = facts.process is not None and lease is not None and lease.process != facts.process
    elsewhere = others and lease is not None and leases.is_live(lease, now_us)
    case = Case(
        state=row.state,
        outcome=row.outcome,
        failure_reason=row.failure_reason,
        leave=row.leave,
        leave_basis=row.leave_basis,
        leave_until_us=row.leave_until_us,
        same_intent=same_intent,
        attempts=row.attempt_count,
        earlier_in_doubt=crowded or any(doubt.number < row.attempt_count for doubt in doubts),
        keys_in_doubt=max(len({doubt.remote_key for doubt in doubts}), 1),
        first_us=_first_use(asked, tried) if len(tried) < known.MOST_ATTEMPTS else None,
        last_us=_latest(fences, means.request_lifetime_s),
        reference=bool(row.external_reference),
        precondition=row.id in facts.guarded,
        later_on_resource=row.id in facts.overtaken,
        resolution=row.resolution,
        resolved_attempt=attempt_of(row.resolved_mark),
        late_evidence=row.id in facts.late,
        probe=last.found if last is not None else "",
        probed_us=last.began_us if last is not None else None,
        probe_errors=_errors(asked, tried, looks),
        on_hold=_is_held(row, facts.stops),
        lease_elsewhere=elsewhere,
        lease_until_us=lease.expires_at_us if lease is not None and elsewhere else None,
        means=means,
        compensation=compensation,
        undoing_failed=compensation is None and any(_came_to_nothing(one) for one in undoing),
    )
    found = verdicts.verdict(case, now_us)
    return Judged(found, case, tuple(doubts), asked.number if asked is not None else row.attempt_count)


def _in_doubt(row: Row, tried: Sequence[Tried], looks: Sequence[Look], dead_us: Dead) -> list[Doubt]:
    """The attempts that may have happened, in order, one for each that is neither answered nor settled otherwise."""
    denied = attempt_of(row.resolved_mark) if row.resolution == "not_happened" else 0
    settled = max(row.undone, denied)
    silent = [one for one in tried if one.number > settled and _is_unanswered(one)]
    absent = {key for key in {one.remote_key for one in silent} if _is_absent(key, silent, tried, looks, dead_us)}
    # What was looked for and is not there is settled, but for the last one: what follows from that the table says.
    return [
        Doubt(one.number, one.remote_key)
        for one in sorted(silent, key=_number)
        if one.remote_key not in absent or one.number == row.attempt_count
    ]


def _is_unanswered(one: Tried) -> bool:
    if one.acknowledged_mark and one.outcome != "unknown":
        return False
    return one.failure_reason != "rejected"


def _is_absent(
    key: str, silent: Sequence[Tried | Doubt], tried: Sequence[Tried], looks: Sequence[Look], dead_us: Dead
) -> bool:
    """True when the last look for `key` found nothing, and began after all of `silent` sent under it was dead."""
    numbers = {one.number for one in tried if one.remote_key == key}
    of_key = [look for look in looks if look.attempt in numbers]
    last = max(of_key, key=_by_beginning, default=None)
    unanswered = {one.number for one in silent}
    fences = [dead_us[one.number] for one in tried if one.remote_key == key and one.number in unanswered]
    if last is None or last.found != "miss" or last.began_us is None:
        return False
    return all(fence is not None and last.began_us >= fence for fence in fences)


def _to_look_for(doubts: Sequence[Doubt], tried: Sequence[Tried], looks: Sequence[Look], dead_us: Dead) -> Doubt | None:
    """The attempt whose key is to be looked for next: the newest, unless that is settled and an older is not."""
    for doubt in reversed(doubts):
        if not _is_absent(doubt.remote_key, doubts, tried, looks, dead_us):
            return doubt
    return doubts[-1] if doubts else None


def _of_key(asked: Doubt | None, tried: Sequence[Tried], looks: Sequence[Look]) -> list[Look]:
    """The looks for the key of an attempt, in the order in which they began."""
    if asked is None:
        return []
    numbers = {one.number for one in tried if one.remote_key == asked.remote_key}
    return sorted((look for look in looks if look.attempt in numbers), key=_by_beginning)


def _last_look(asked: Doubt | None, tried: Sequence[Tried], looks: Sequence[Look]) -> Look | None:
    """The last look for the key of an attempt."""
    found = _of_key(asked, tried, looks)
    return found[-1] if found else None


def _errors(asked: Doubt | None, tried: Sequence[Tried], looks: Sequence[Look]) -> int:
    count = 0
    for look in reversed(_of_key(asked, tried, looks)):
        if look.found != "error":
            break
        count += 1
    return count


def _counting_looks(looks: Sequence[Look], undoing: Sequence[Row]) -> list[Look]:
    """The looks that still say something: where what was too many has been undone since, one looks anew."""
    undone = [one.changed_us for one in undoing if one.undoes == 0 and one.state == "acknowledged"]
    since = max(undone, default=None)
    return [look for look in looks if since is None or (look.began_us is not None and look.began_us >= since)]


def _by_beginning(look: Look) -> tuple[int, int]:
    return (look.began_us if look.began_us is not None else -1, look.position)


def _number(one: Tried) -> int:
    return one.number


def _first_use(asked: Doubt | None, tried: Sequence[Tried]) -> int | None:
    """A moment before which the key in doubt was not used. Of a report only its producer can know it."""
    if asked is None:
        return None
    begun = []
    for one in tried:
        if one.remote_key != asked.remote_key:
            continue
        if one.lane == "command":
            begun.append(one.received_us)
        elif one.dispatched_at_us is not None and one.received_us is not None:
            begun.append(min(one.dispatched_at_us, one.received_us))
        else:
            begun.append(None)
    return None if None in begun or not begun else min(at for at in begun if at is not None)


def _latest(fences: Sequence[int | None], lifetime_s: int) -> int | None:
    """The last moment at which anything was sent, of the fences that count from such moments."""
    known = [fence for fence in fences if fence is not None]
    return max(known) - lifetime_s * US if known and len(known) == len(fences) else None


def _dead_after(
    one: Tried, lease: Lease | None, acquired: Mapping[tuple[UUID, int], int], now_us: int, lifetime_s: int
) -> int | None:
    """When everything that an attempt sent is dead: a request's life after the last moment at which it was sent.

    That is its dispatch, or the word that it failed. Where whoever dispatched it held a lease and is gone, it is the
    last sign of life: the last beat under that epoch, or at the latest the first acquisition after that epoch. Later
    acquisitions say nothing of it: otherwise workers that live shorter than a request would never settle it.
    """
    sent = known.sent_at_latest(one)
    if sent is None:
        return None
    signs = [sent]
    if one.failed_at_us is not None and is_of_a_command(one.failed_mark):
        signs.append(one.failed_at_us)
    elif lease is not None and one.lease_epoch is not None:
        if one.lease_epoch < lease.epoch:
            signs.append(acquired.get((lease.id, one.lease_epoch + 1), lease.acquired_at_us))
        elif lease.process == one.process and lease.released_at_us is None and not leases.is_live(lease, now_us):
            signs.append(lease.beat_at_us)
    return max(signs) + lifetime_s * US


def _is_held(row: Row, stops: Sequence[Hold]) -> bool:
    return bool(stops) and holds.covering(stops, row.session_id, row.agent_id, row.tool, row.id) is not None


def _came_to_nothing(compensation: Row) -> bool:
    """True for a compensation that was denied, went wrong, or was refused until no attempt was left."""
    if compensation.state == "planned":
        return compensation.leave == "refused"
    if compensation.state == "acknowledged":
        return compensation.outcome == "error"
    return compensation.state == "failed" and not _is_open(compensation)
