"""Records how a call ended.

A result of a dispatched effect acknowledges it. A result of an effect that was not permitted shows
that the client ran it anyway, and one of an effect that was never planned is evidence.
"""

from typing import Any, Final, NamedTuple
from uuid import UUID

from api.endpoint import Call
from approvals import gated_commands
from db import raw_sql
from db.ids import derive_uuid
from hooks.coding_agents import rewritten_calls
from hooks.coding_agents.call_intents import CallIntent
from hooks.coding_agents.call_results import CallResult
from hooks.coding_agents.hook_events import HookEvent
from hooks.coding_agents.hook_facts import build_fact, record_facts
from hooks.coding_agents.hook_sessions import (
    build_fact_key,
    build_origin,
    ensure_session,
    list_family,
)
from hooks.coding_agents.planned_calls import build_call_key, build_call_meta
from ledger import commands
from ledger.models import Attempt, Effect
from ledger.open_effects import MAY_BE_OPEN
from ledger.store import reader
from ledger.store.effect_rows import AttemptRow, EffectRow, vendor_id
from sessions import lookup

# Plain SQL, because every tool call waits for it.
_RECORDED_SQL: Final = "SELECT 1 FROM journal_entry WHERE project = %s AND source = %s"


class _Finding(NamedTuple):
    """The effect of a result, and the attempt that it ends."""

    row: EffectRow
    attempt: AttemptRow | None


def record_result(call: Call, event: HookEvent, intent: CallIntent, result: CallResult) -> str:
    """Record the result of a call; return what the user should read, or nothing."""
    session = ensure_session(call, event)
    finding = _find_attempt(call.project, session, event, intent)
    if finding is None:
        if event.call_id or result.reason != "rejected":
            effect_key = _choose_effect_key(session, event, intent)
            if not _is_recorded(call, _list_result_keys(event, intent, effect_key, None)):
                _record_evidence(call, event, intent, result, effect_key, None)
        return ""
    row, attempt = finding
    if attempt is None:
        # It did not run, as it had to. `gatebook exec` dispatches its effect before it runs it.
        is_gated = bool(rewritten_calls.find_effect_key(_read_shell_command(event)))
        if result.reason == "rejected" or is_gated:
            _record_repetition(call, event, intent, result, row)
            return ""
        _record_evidence(call, event, intent, result, row.effect_key, row)
        return (
            f"e_{row.opened_position} ({row.tool}) was executed without Gatebook's permission."
            " Reviewers see it."
        )
    if attempt.is_open:
        if not _is_recorded(call, _list_result_keys(event, intent, row.effect_key, row)):
            _answer_attempt(call, event, intent, result, row, attempt)
    else:
        _record_repetition(call, event, intent, result, row)
    return ""


def _find_attempt(
    project: UUID, session: UUID, event: HookEvent, intent: CallIntent
) -> _Finding | None:
    """Return the effect that a call was planned as, and the attempt that the call is."""
    rewritten = rewritten_calls.find_effect_key(_read_shell_command(event))
    if rewritten or event.call_id:
        effect_key = rewritten or build_call_key(event, intent)
        identity = derive_uuid(session, effect_key)
        row = reader.lock_effects([identity]).get(identity)
        if row is not None and (rewritten or row.intent_digest == intent.digest):
            return _Finding(row, _choose_attempt(row, event))
    return _find_continued(project, session, event, intent)


def _read_shell_command(event: HookEvent) -> str:
    command = event.input.get("command") if isinstance(event.input, dict) else None
    return command if isinstance(command, str) else ""


def _choose_attempt(row: EffectRow, event: HookEvent) -> AttemptRow | None:
    """Return the attempt that this call began, else the newest."""
    attempts = reader.load_attempts([row.id]).get(row.id, {}) if row.attempt_count else {}
    own = [attempt for attempt in attempts.values() if _is_own(attempt, event)]
    return own[-1] if own else attempts.get(row.attempt_count)


def _is_own(attempt: AttemptRow | Attempt, event: HookEvent) -> bool:
    return attempt.process.rpartition("@")[0] == event.call_label


def _find_continued(
    project: UUID, session: UUID, event: HookEvent, intent: CallIntent
) -> _Finding | None:
    """Return the effect that another call had planned and that this call continued.

    It is of this session, its parent or their other subagents: another session may use the same
    call ids. Without call ids, the oldest open attempt of the intent is the one that ended.
    """
    root = lookup.derive_session_id(project, event.parent_key) if event.parent_key else session
    effects = Effect.objects.filter(
        MAY_BE_OPEN,
        session__in=list_family(project, root),
        intent_digest=intent.digest,
        state="dispatched",
    )
    attempts = Attempt.objects.filter(effect__in=effects.values("id"), is_open=True).select_related(
        "effect"
    )
    for attempt in attempts.order_by("effect__opened_position", "number")[:50]:
        effect = attempt.effect
        if _is_own(attempt, event) if event.call_id else effect.session_id == session:
            row = reader.lock_effects([effect.id])[effect.id]
            return _Finding(row, reader.load_attempts([row.id])[row.id][attempt.number])
    return None


def _build_result_key(
    event: HookEvent, intent: CallIntent, effect_key: str, kind: str, attempt: int
) -> str:
    """Return the journal key of a result; equal for two deliveries of one hook."""
    if event.call_id:
        parts: tuple[object, ...] = (event.session_key, effect_key, attempt, event.process)
    else:
        parts = (event.session_key, intent.digest, event.delivery)
    return build_fact_key(kind, *parts)


def _list_result_keys(
    event: HookEvent, intent: CallIntent, effect_key: str, row: EffectRow | None
) -> list[str]:
    """Return the keys that this result may have been recorded under."""
    count = row.attempt_count if row is not None else 1
    return [
        _build_result_key(event, intent, effect_key, kind, number)
        for kind in ("effect.acknowledged", "effect.failed")
        for number in range(1, max(count, 1) + 1)
    ]


def _is_recorded(call: Call, keys: list[str]) -> bool:
    places = ", ".join(["%s"] * len(keys))
    sql = f"{_RECORDED_SQL} AND id IN ({places}) LIMIT 1"
    parameters = [vendor_id(call.project), call.token.agent_name, *keys]
    return bool(raw_sql.fetch_rows(sql, parameters))


def _choose_effect_key(session: UUID, event: HookEvent, intent: CallIntent) -> str:
    """Return the effect key of a call that was never planned."""
    if event.call_id:
        return build_call_key(event, intent)
    rows = Effect.objects.filter(session=session, intent_digest=intent.digest)
    return build_call_key(event, intent, rows.count())


def _answer_attempt(
    call: Call,
    event: HookEvent,
    intent: CallIntent,
    result: CallResult,
    row: EffectRow,
    attempt: AttemptRow,
) -> None:
    """End an open attempt: acknowledge it, or report why it failed."""
    kind = "effect.failed" if result.reason else "effect.acknowledged"
    body: dict[str, Any] = {"kind": kind, "effect": str(row.id), "attempt": attempt.number}
    if result.reason:
        body |= {"reason": result.reason, "detail": result.result}
    else:
        body |= {"outcome": result.outcome, "result": result.result}
        if result.reference:
            body["external_reference"] = result.reference
    duration = event.fields.get("duration_ms")
    if isinstance(duration, int):
        body["duration_ms"] = duration
    key = _build_result_key(event, intent, row.effect_key, kind, attempt.number)
    origin = build_origin(call, event, key, body)
    if result.reason:
        commands.fail_attempt(
            origin,
            row.id,
            attempt=attempt.number,
            reason=result.reason,
        )
        return
    gated_commands.acknowledge_with_gates(
        origin,
        row.id,
        attempt=attempt.number,
        outcome=result.outcome,
        external_reference=result.reference,
    )


def _record_evidence(
    call: Call,
    event: HookEvent,
    intent: CallIntent,
    result: CallResult,
    effect_key: str,
    row: EffectRow | None,
) -> None:
    """Record a call that ran without permission, or that was never planned."""
    base: dict[str, Any] = {"effect_key": effect_key}
    facts = []

    def add(kind: str, values: dict[str, Any]) -> None:
        key = _build_result_key(event, intent, effect_key, kind, 1)
        facts.append(build_fact(event, kind, key, event.session_key, base | values))

    if row is None:
        planned: dict[str, Any] = {
            "tool": intent.tool,
            "arguments": intent.arguments,
            "free_text": intent.free_text,
            "meta": build_call_meta(event, intent),
        }
        if event.call_id:
            planned["call_id"] = event.call_id
        if event.turn:
            planned["turn"] = event.turn
        if intent.why:
            planned["why"] = intent.why
        if intent.target is not None:
            planned["target"] = {
                name: value
                for name in intent.target.__struct_fields__
                if (value := getattr(intent.target, name)) is not None
            }
        add("effect.planned", planned)
    if result.reason != "rejected":
        add("effect.dispatched", {"attempt": 1, "process": event.process})
    if result.reason:
        add("effect.failed", {"attempt": 1, "reason": result.reason, "detail": result.result})
    else:
        values = {"attempt": 1, "outcome": result.outcome, "result": result.result}
        if result.reference:
            values["external_reference"] = result.reference
        add("effect.acknowledged", values)
    record_facts(call, facts)


def _record_repetition(
    call: Call, event: HookEvent, intent: CallIntent, result: CallResult, row: EffectRow
) -> None:
    """Record a result of an attempt that has ended, or the refusal of a call that never ran.

    A hook that comes twice changes nothing.
    """
    if _is_recorded(call, _list_result_keys(event, intent, row.effect_key, row)):
        return
    key = build_fact_key("hook.tool_result", row.id, event.name, event.process)
    values = {
        "client": event.client,
        "effect_key": row.effect_key,
        "tool_use_id": event.call_id,
        "event": event.name,
        "result": result.result,
    }
    record_facts(call, [build_fact(event, "hook.tool_result", key, event.session_key, values)])
