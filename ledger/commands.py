"""The command lane of the ledger: the agent asks and obeys. Compare-and-set, then the fold; a refusal is an answer.

Every verb must run inside the door's transaction. A refusal that leaves a trace is returned (the door commits it); an
exception leaves nothing. `Repeated` means that the key of the command is in the book already.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.db import connection

from journal import entries, sql
from journal.clock import now_us
from journal.entries import Status
from journal.ids import derived
from journal.order import is_of_a_command
from ledger import effects, fold
from ledger.fold import Fact, Observe
from ledger.rows import AttemptRow, EffectRow, columns, vendor_id
from ledger.states import OPEN
from sessions.origin import Origin, Repeated


class Grant(NamedTuple):
    """Leave for one attempt, as approvals decided it. `ref` is opaque to the ledger."""

    leave: str
    basis: str
    ref: str = ""
    until_us: int | None = None


class Refusal(NamedTuple):
    """A code of protocol.md with its sentence, and as `reason` why leave was not there, in a word of approvals.md."""

    code: str
    sentence: str
    reason: str = ""


Decide = Callable[[EffectRow | None], Grant]  # what leave an effect gets that needs it; None where it is new
Check = Callable[[EffectRow], Refusal | None]  # a last look at an effect, its row locked, before its leave is used


@dataclass(slots=True)
class Plan:
    """An intention, read and resolved by the door."""

    session: UUID
    effect_key: str
    tool: str
    intent_digest: str
    values: dict[str, Any]  # the other columns a plan sets, by name


@dataclass(slots=True)
class Answered:
    """What became of a command. `status` is the HTTP status; `refusal` a code of protocol.md with its sentence."""

    effect: EffectRow
    status: int = 200
    refusal: Refusal | None = None
    created: bool = False
    attempt: AttemptRow | None = None
    open_effect: UUID | None = None
    position: int = 0  # of the plan's entry


_PLANNED_LIST: Final = ", ".join(columns(EffectRow))


def plan(origin: Origin, wish: Plan, decide: Decide, observe: Observe) -> Answered:
    """Write down an intention before it happens; the effect is released only by what `decide` answers.

    `decide` is asked only when leave is needed. The session row must be locked by the caller, so that two plans of one
    intent cannot miss each other.
    """
    identity = derived(wish.session, wish.effect_key)
    own, siblings = _related(identity, wish)
    if own is not None and own.planned_mark and own.intent_digest != wish.intent_digest:
        _trace(origin, own, "key_reuse")
        sentence = "This effect key stands for another tool or other arguments; use a new key for a new intent."
        return Answered(own, 422, Refusal("key_reuse", sentence))
    ambiguous = _still_open(siblings, wish)
    if own is None or not is_of_a_command(own.planned_mark):
        return _first_plan(origin, wish, decide, observe, own, identity, ambiguous)
    origin.lane = "evidence"  # asked again: kept, but the plan that was accepted stands
    appended = entries.append(
        [origin.draft("effect.planned", session=own.session_id, effect=identity)], origin.received_us
    )
    if appended[0].status is Status.CONFLICT:
        raise Repeated
    needs_leave = _needs_leave(own, origin.received_us)
    if not needs_leave or ambiguous is not None:
        return Answered(own, 200, open_effect=ambiguous if needs_leave else None)
    # The same intent; what does not belong to it (free text, preconditions) is from now on as it was asked last.
    own.plan_position, own.replanned = appended[0].position, True
    change_leave(own, decide(own), origin.received_us)
    return Answered(own, 200, position=appended[0].position)


def lapsed(row: EffectRow, now_us: int) -> bool:
    """True when leave was given and its time is over; whoever reads treats a passed deadline as passed."""
    return row.lapsed(now_us)


def _needs_leave(row: EffectRow, now_us: int) -> bool:
    """True when nothing of the effect is under way, and leave for its next attempt is neither given nor asked for."""
    over = row.leave == "granted" and lapsed(row, now_us)
    standing = row.leave in ("granted", "pending") and not over
    rejected = row.state == "failed" and row.failure_reason == "rejected" and not standing
    return rejected or (row.state == "planned" and (row.leave == "held" or over))


def _first_plan(
    origin: Origin,
    wish: Plan,
    decide: Decide,
    observe: Observe,
    own: EffectRow | None,
    identity: UUID,
    ambiguous: UUID | None,
) -> Answered:
    released = ambiguous is None and (own is None or own.leave == "held")
    facts: dict[str, Any] = {"intent": wish.intent_digest}
    grant = decide(own) if released else None
    if grant is not None:
        facts |= _said_of_leave(grant, wish.values)
    draft = origin.draft("effect.planned", facts=_json(facts), session=wish.session, effect=identity)
    appended = entries.append([draft], origin.received_us)[0]
    if appended.status is not Status.CREATED:
        raise Repeated
    created = own is None
    if own is None:
        own = EffectRow(
            id=identity,
            project_id=origin.project,
            session_id=wish.session,
            agent_id=origin.agent,
            effect_key=wish.effect_key,
            opened_position=appended.position,
            received_us=origin.received_us,
            changed_us=origin.received_us,
        )
    attempts = effects.load_attempts([identity])[identity] if own.attempt_count else {}
    values = {"tool": wish.tool, "intent_digest": wish.intent_digest, **wish.values}
    if grant is not None:
        own.leave, own.leave_basis, own.leave_ref, own.leave_until_us = grant
    _fold(own, attempts, _fact(origin, "effect.planned", appended.position, 1, values), observe)
    if grant is None and ambiguous is None and _needs_leave(own, origin.received_us):
        change_leave(own, decide(own), origin.received_us)  # reported before, and rejected
    return Answered(own, 201 if created else 200, created=created, open_effect=ambiguous, position=appended.position)


def dispatch(
    origin: Origin, effect: UUID, *, process: str, asked: Callable[[str], str], check: Check, observe: Observe
) -> Answered:
    """Use the leave and open the next attempt, in one transaction. Repeats the grant only to the very same asker.

    `asked` gives the intent digest of what is about to run, for the tool that was planned; `check` may refuse what
    still looks granted here. Raises LookupError when the project has no such effect.
    """
    row, attempts = _locked(origin, effect)
    if row.intent_digest != asked(row.tool):
        _trace(origin, row, "INTENT_MISMATCH")
        sentence = "These are not the arguments that were planned; plan them as a new effect and ask for leave."
        return Answered(row, 409, Refusal("INTENT_MISMATCH", sentence, "digest_mismatch"))
    refused = check(row)
    if refused is not None:
        return Answered(row, 409, refused)
    current = attempts.get(row.attempt_count)
    if current is not None and current.is_open:
        same_asker = (current.dispatch_key, current.process, current.lease_epoch) == (
            origin.key,
            process,
            origin.lease_epoch,
        )
        if not same_asker:
            return Answered(row, 409, _ALREADY_DISPATCHED)
        draft = origin.draft("effect.dispatched", session=row.session_id, effect=row.id, attempt=current.number)
        if entries.append([draft], origin.received_us)[0].status is not Status.DUPLICATE:
            raise Repeated
        return Answered(row, 200, attempt=current)
    if row.state not in ("planned", "failed"):
        return Answered(row, 409, _ALREADY_DISPATCHED if row.attempt_count else _wrong_state(row))
    if row.leave != "granted":
        return Answered(row, 409, _no_leave(row))
    if row.state == "failed" and row.outcome == "unknown":
        return Answered(row, 409, _ALREADY_DISPATCHED)  # it seemed rejected when leave for another attempt was given
    if row.compensates_id is not None and effects.another_compensation_is_open(row):
        return Answered(row, 409, COMPENSATION_OPEN)
    number = row.attempt_count + 1
    draft = origin.draft("effect.dispatched", session=row.session_id, effect=row.id, attempt=number)
    appended = entries.append([draft], origin.received_us)[0]
    if appended.status is Status.DUPLICATE:
        return Answered(row, 409, _ALREADY_DISPATCHED)  # this key opened an attempt that is closed by now
    if appended.status is Status.CONFLICT:
        raise Repeated
    fact = _fact(origin, "effect.dispatched", appended.position, number, {"process": process})
    _fold(row, attempts, fact, observe)
    return Answered(row, 200, attempt=attempts[number])


def acknowledge(
    origin: Origin, effect: UUID, *, attempt: int, outcome: str, external_reference: str, observe: Observe
) -> Answered:
    """Record the outcome of an open attempt; for one that is no longer open it is kept as late evidence (202)."""
    facts = {"outcome": outcome}
    values = {"outcome": outcome, "external_reference": external_reference}
    return _answer_attempt(origin, effect, "effect.acknowledged", attempt, facts, values, observe)


def fail(origin: Origin, effect: UUID, *, attempt: int, reason: str, observe: Observe) -> Answered:
    """Record that an attempt failed: rejected (nothing happened), timeout or error (nobody knows)."""
    return _answer_attempt(origin, effect, "effect.failed", attempt, {"reason": reason}, {"reason": reason}, observe)


def supersede(origin: Origin, effect: UUID, observe: Observe) -> Answered:
    """Withdraw an effect that has not happened. One that may have happened cannot be wished away: 409."""
    row, attempts = _locked(origin, effect)
    if row.state not in ("planned", "superseded") and (row.state, row.failure_reason) != ("failed", "rejected"):
        return Answered(row, 409, _wrong_state(row))
    position = _append(origin, "effect.superseded", row, None, {})
    _fold(row, attempts, _fact(origin, "effect.superseded", position, 1, {}), observe)
    return Answered(row, 200)


def _answer_attempt(
    origin: Origin,
    effect: UUID,
    kind: str,
    attempt: int,
    facts: dict[str, Any],
    values: dict[str, Any],
    observe: Observe,
) -> Answered:
    row, attempts = _locked(origin, effect)
    current = attempts.get(attempt)
    if current is None:
        sentence = f"Attempt {attempt} was never dispatched here; dispatch first, or report it to /events as evidence."
        return Answered(row, 409, Refusal("NOT_DISPATCHED", sentence))
    late = not current.is_open
    if late:
        origin.lane = "evidence"
    position = _append(origin, kind, row, attempt, facts)
    _fold(row, attempts, _fact(origin, kind, position, attempt, values), observe)
    return Answered(row, 202 if late else 200, attempt=attempts[attempt])


def _fold(row: EffectRow, attempts: dict[int, AttemptRow], fact: Fact, observe: Observe) -> None:
    compensated = {row.id: row.compensates_id} if row.compensates_id is not None else {}
    names = fold.apply(row, attempts, fact, observe) + effects.claims(row, fact) + effects.settle(row, attempts)
    rows, tried = {row.id: row}, {row.id: attempts}
    if compensated or row.compensates_id is not None:
        effects.compensate(rows, tried, compensated)
    touched = [attempts[fact.attempt]] if fact.attempt in attempts else []
    if row.replanned:
        touched = list(attempts.values())  # what the plan says may show under which leave they ran
    before = attempts.get(fact.attempt - 1)
    if before is not None:
        touched.insert(0, before)  # an attempt that this one replaces
    effects.write(rows.values(), touched)
    effects.tell([effects.Breach(row, name) for name in dict.fromkeys(names)], fact.received_us)


def _append(origin: Origin, kind: str, row: EffectRow, attempt: int | None, facts: dict[str, Any]) -> int:
    draft = origin.draft(kind, facts=_json(facts), session=row.session_id, effect=row.id, attempt=attempt)
    appended = entries.append([draft], origin.received_us)[0]
    if appended.status is not Status.CREATED:
        raise Repeated
    return appended.position


def give_leave(row: EffectRow, grant: Grant, received_us: int) -> None:
    """Let a locked effect stand under `grant`; the entry that says why is the caller's."""
    row.leave, row.leave_basis, row.leave_ref, row.leave_until_us = grant
    row.changed_us = max(row.changed_us, received_us)
    effects.write([row], [])


def change_leave(row: EffectRow, grant: Grant, received_us: int) -> None:
    """Let a locked effect stand under `grant`, given or taken back, and say so in the book."""
    facts = _json(_said_of_leave(grant, {name: getattr(row, name) for name in _JUDGEMENT}))
    entries.record(
        row.project_id,
        "effect.granted",
        event_id=entries.keyed_digest("granted", str(row.id), str(row.version)),
        text=_json({"effect": row.id, **orjson.loads(facts)}),
        received_us=received_us,
        facts=facts,
        session=row.session_id,
        effect=row.id,
    )
    give_leave(row, grant, received_us)


_JUDGEMENT: Final = ("judged", "judged_by", "enforced")


def _said_of_leave(grant: Grant, judgement: Mapping[str, Any]) -> dict[str, Any]:
    """What the book keeps of leave: the word, its basis, what it refers to and until when, and what the policy said."""
    said = {"leave": grant.leave, "basis": grant.basis, "ref": grant.ref, "until_us": grant.until_us}
    said |= {name: judgement.get(name) for name in _JUDGEMENT}
    return {name: value for name, value in said.items() if value}


def _trace(origin: Origin, row: EffectRow, refusal: str) -> None:
    """Keep a refused command as evidence; its key is not consumed."""
    entries.record(
        row.project_id,
        "integrity.conflict",
        event_id=entries.keyed_digest("refused", refusal, origin.source, origin.key, origin.text),
        text=origin.text,
        received_us=origin.received_us,
        actor=origin.actor,
        facts=_json({"refused": refusal}),
        session=row.session_id,
        effect=row.id,
    )


def _related(identity: UUID, wish: Plan) -> tuple[EffectRow | None, list[EffectRow]]:
    """In one reading: the effect itself, and open effects of the same intent in its session."""
    lock = " FOR UPDATE" if connection.vendor == "postgresql" else ""
    states = ", ".join(f"'{state}'" for state in OPEN)
    found = sql.rows(
        f"SELECT {_PLANNED_LIST} FROM ledger_effect WHERE id = %s"
        f" OR (session_id = %s AND intent_digest = %s AND state IN ({states})) ORDER BY id{lock}",
        [vendor_id(identity), vendor_id(wish.session), wish.intent_digest],
    )
    rows = [effects.effect_row(values) for values in found]
    own = next((row for row in rows if row.id == identity), None)
    return own, [row for row in rows if row.id != identity]


def _still_open(siblings: list[EffectRow], wish: Plan) -> UUID | None:
    """The first effect of the same intent whose fate is open and which is no sibling of the same turn."""
    turn = wish.values.get("turn") or ""
    for row in siblings:
        undecided = row.state in ("planned", "dispatched") or (row.state == "failed" and row.outcome == "unknown")
        if undecided and not (turn and row.turn == turn):
            return row.id
    return None


def _locked(origin: Origin, effect: UUID) -> tuple[EffectRow, dict[int, AttemptRow]]:
    row = effects.load([effect]).get(effect)
    if row is None or row.project_id != origin.project:
        raise LookupError(effect)
    attempts = effects.load_attempts([effect]).get(effect, {}) if row.attempt_count else {}
    return row, attempts


def _fact(
    origin: Origin,
    kind: str,
    position: int,
    attempt: int,
    values: dict[str, Any],
) -> Fact:
    return Fact(
        kind=kind,
        mark=origin.mark,
        lane=origin.lane,
        key=origin.key,
        position=position,
        received_us=origin.received_us,
        told_us=origin.told_us,
        attempt=attempt,
        imports=origin.imports,
        lease_epoch=origin.lease_epoch,
        agent=origin.agent,
        values=values,
    )


COMPENSATION_OPEN: Final = Refusal(
    "COMPENSATION_OPEN",
    "Another compensation of this effect is open; finish or supersede it first.",
)
_ALREADY_DISPATCHED: Final = Refusal(
    "ALREADY_DISPATCHED",
    "Another process or key dispatched an attempt before; do not act, report what you know of it.",
    "already_used",
)


_GONE: Final = ("cancelled", "revoked", "lapsed", "returned")


def _wrong_state(row: EffectRow) -> Refusal:
    sentence = f"The effect is {row.state}; this command does not apply to it. Read it and decide anew."
    return Refusal("WRONG_STATE", sentence)


def _no_leave(row: EffectRow) -> Refusal:
    """The refusal that fits the leave."""
    if row.leave == "pending":
        return Refusal("GATE_PENDING", "People have not ruled yet; wait and ask again.", "not_resolved")
    if row.leave == "refused" and row.leave_basis == "expired":
        sentence = "Nobody ruled in time, and that is a no; do not act. Supersede the effect, or plan another."
        return Refusal("GATE_EXPIRED", sentence, "expired")
    if row.leave == "refused":
        sentence = "Leave was refused; do not act. Supersede the effect or plan another."
        return Refusal("GATE_DENIED", sentence, "denied")
    if row.leave_basis in _GONE:
        sentence = f"The leave is gone ({row.leave_basis}); do not act. Plan the effect again to ask anew."
        return Refusal("GATE_GONE", sentence, row.leave_basis)
    sentence = "This effect has no leave; plan it again and act only when the answer is proceed."
    return Refusal("NO_LEAVE", sentence, "not_resolved")


def answer(effect: EffectRow, open_effect: UUID | None = None) -> str:
    """What the agent may do now: proceed | wait | blocked | done | ambiguous. Follows from state and leave alone."""
    if effect.state in ("compensated", "superseded"):
        return "done"
    if effect.state == "acknowledged":
        return "ambiguous" if effect.outcome == "unknown" else "done"
    if effect.state == "dispatched" or (effect.state == "failed" and effect.outcome == "unknown"):
        return "ambiguous"
    if effect.leave == "granted":
        return "wait" if lapsed(effect, now_us()) else "proceed"
    if effect.leave == "pending":
        return "blocked" if lapsed(effect, now_us()) else "wait"  # nobody ruled in time
    if open_effect is not None:
        return "ambiguous"
    gone = effect.leave == "held" and effect.leave_basis in _GONE
    return "blocked" if gone or effect.leave == "refused" or effect.state == "failed" else "wait"


def _json(facts: dict[str, Any]) -> str:
    return orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode()
