"""Decides on a call before it runs: plan it, ask people, dispatch it or deny it.

A hook before a call comes before the client's own permissions, so it plans the call. Where
Gatebook permits it, the call counts as dispatched from the answer on: a run without a report would
stay unnoticed. All writes of one hook are one transaction, with the session's row locked.

A model names a repeated call by a new id. So a call meets the effects of its intent that are open:
one that waits for people is continued, and one that a dead process may have executed is settled
first, by the verdict table. Equal calls of one turn are legitimate.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import Q, QuerySet

from accounts.models import Repository
from api.endpoint import Call
from api.plan_columns import build_plan_columns, load_target_columns
from api.schemas import core
from approvals import dispatch_command, gated_commands, plan_command
from approvals.dispatch_command import DispatchArguments, DispatchRequest
from approvals.policies.policy_evaluation import PlanPayload
from db import raw_sql
from db.clock import now_us
from db.compiled_query import CompiledQuerySet
from db.ids import derive_uuid
from hooks.coding_agents import call_words, settled_calls
from hooks.coding_agents.call_intents import CallIntent
from hooks.coding_agents.hook_answers import HookAnswer
from hooks.coding_agents.hook_events import HookEvent
from hooks.coding_agents.hook_facts import record_status
from hooks.coding_agents.hook_sessions import (
    build_fact_key,
    build_meta,
    build_origin,
    ensure_session,
    list_family,
)
from hooks.coding_agents.rewritten_calls import rewrite_input
from ledger import permissions, refusals
from ledger.circuit_breakers import CircuitOpen
from ledger.commands import CommandResult, Plan
from ledger.models import Effect
from ledger.open_effects import MAY_BE_OPEN
from ledger.partial_indexes import HAS_CALL_ID
from ledger.states import MOVED_PERMISSIONS, OPEN_STATES
from ledger.store import reader
from ledger.store.effect_rows import AttemptRow, EffectRow, vendor_id
from ledger.verdicts import evaluate, verdict_inputs
from sessions import lookup, sessions
from sessions.capacity import PlansThrottled


class HookOptions(NamedTuple):
    """How the client is configured, from the hook's address and the command `gatebook hook`."""

    allows: bool = False  # a permitted call is not asked about again by the client
    defers: bool = False  # the client can put a call off and end
    rewrites: bool = False  # the command `gatebook exec` runs permitted shell commands


class _Case(NamedTuple):
    """A call with what decides on it."""

    call: Call
    event: HookEvent
    intent: CallIntent
    options: HookOptions
    session: UUID


MAX_OPEN: Final = 50  # effects of one intent
# Plain or compiled SQL, because every tool call waits for it.
_PLANNED_SQL: Final = "SELECT 1 FROM ledger_effect WHERE id = %s"


def decide_call(
    call: Call, event: HookEvent, intent: CallIntent, options: HookOptions
) -> HookAnswer:
    """Plan a call and answer whether it may run now. Runs in the hook's transaction."""
    session = ensure_session(call, event)
    case = _Case(call, event, intent, options, session)
    effect_key, stored = _find_effect(case)
    if stored is not None:
        return _answer_stored(case, stored)
    equal_calls = _load_open_effects(case)
    own = equal_calls.own
    if equal_calls.doubtful and intent.changes_outside:
        return _settle(case, equal_calls.doubtful[0])
    if equal_calls.settled is not None and intent.changes_outside:
        settled_calls.record_answer(call, event, equal_calls.settled)
        words = settled_calls.load_resolver_words(equal_calls.settled)
        return HookAnswer("deny", call_words.describe_settled(equal_calls.settled, words))
    waiting = _choose_waiting(case, own)
    if waiting is not None:
        return _answer_stored(case, waiting)
    denials = [row for row in own if row.state == "planned" and row.permission == "denied"]
    refused = [call_words.describe_denial(call, row) for row in denials]
    for row in denials:
        _withdraw(case, row)  # a person was asked in another turn: this asks again
    answer = _answer_planned(case, _plan(case, effect_key))
    if refused and answer.decision in ("deny", "defer"):
        return answer._replace(reason=f"{answer.reason}\nBefore: {refused[-1]}")
    return answer


def build_call_key(event: HookEvent, intent: CallIntent, ordinal: int = 0) -> str:
    """Return the effect key of a call: its id, its intent, and how often both came before."""
    return f"{event.call_id or 'call'}:{intent.digest[3:19]}:{ordinal}"


def _find_effect(case: _Case) -> tuple[str, UUID | None]:
    """Return the effect key of a call, and its effect if it was planned before.

    Without a call id the ordinal among the session's calls of this intent stands for it, and the
    time of the delivery shows that a hook came twice.
    """
    event, intent = case.event, case.intent
    if event.call_id:
        effect_key = build_call_key(event, intent)
        identity = derive_uuid(case.session, effect_key)
        is_planned = raw_sql.fetch_rows(_PLANNED_SQL, [vendor_id(identity)])
        return effect_key, identity if is_planned else None
    rows = Effect.objects.filter(session=case.session, intent_digest=intent.digest)
    same = rows.filter(HAS_CALL_ID, call_id=event.delivery).order_by("-opened_position")
    stored = same.values_list("id", flat=True).first() if event.delivery else None
    return build_call_key(event, intent, rows.count()), stored


def _select_open_calls(digest: Any, session: Any) -> QuerySet[Effect, UUID]:
    rows = Effect.objects.filter(MAY_BE_OPEN, session=session, intent_digest=digest)
    return _limit_calls(rows.filter(state__in=OPEN_STATES).order_by("opened_position"))


def _select_uncertain_calls(digest: Any, family: Any) -> QuerySet[Effect, UUID]:
    rows = Effect.objects.filter(MAY_BE_OPEN, session__in=family, intent_digest=digest)
    uncertain = Q(state="dispatched") | Q(state="failed", outcome="unknown")
    return _limit_calls(rows.filter(uncertain).order_by("opened_position"))


def _select_settled_calls(digest: Any, family: Any) -> QuerySet[Effect, UUID]:
    rows = Effect.objects.filter(session__in=family, intent_digest=digest)
    # The newest is the one that the model may not know.
    return _limit_calls(rows.filter(settled_calls.MAY_BE_SETTLED).order_by("-opened_position"))


def _limit_calls(rows: QuerySet[Effect]) -> QuerySet[Effect, UUID]:
    return rows.values_list("id", flat=True)[:MAX_OPEN]


_OPEN_CALLS: Final = CompiledQuerySet(_select_open_calls, digest=str, session=UUID)
_UNCERTAIN_CALLS: Final = CompiledQuerySet(_select_uncertain_calls, digest=str, family=[UUID])
_SETTLED_CALLS: Final = CompiledQuerySet(_select_settled_calls, digest=str, family=[UUID])


class _OpenEffects(NamedTuple):
    """Effects of one intent, in the order of their plans."""

    own: Sequence[EffectRow] = ()  # of the session, open and not in doubt
    doubtful: Sequence[EffectRow] = ()  # that an older process may have executed
    settled: EffectRow | None = None  # by others, which the model does not know


def _load_open_effects(case: _Case) -> _OpenEffects:
    """Return the effects of this intent that the call meets.

    Subagents and their parent are one family: after a crash a new subagent repeats the call.
    """
    call, intent = case.call, case.intent
    root = case.session
    if case.event.parent_key:
        root = lookup.derive_session_id(call.project, case.event.parent_key)
    values, family = {"digest": intent.digest}, list_family(call.project, root)
    identities = {
        *_OPEN_CALLS.rows(session=case.session, **values),
        *_UNCERTAIN_CALLS.rows(family=family, **values),
        *_SETTLED_CALLS.rows(family=family, **values),
    }
    if not identities:
        return _OpenEffects()
    rows = sorted(reader.lock_effects(identities).values(), key=_get_position)
    attempts = reader.load_attempts([row.id for row in rows if row.attempt_count])
    doubtful = [
        row
        for row in rows
        if verdict_inputs.is_in_doubt(row) and not _is_of_turn(case, row, attempts.get(row.id, {}))
    ]
    own = [
        row
        for row in rows
        if row.session_id == case.session
        and row.state in OPEN_STATES
        and not verdict_inputs.is_in_doubt(row)
    ]
    settled = settled_calls.find_unknown_settlement(call, case.event, rows, attempts)
    return _OpenEffects(own, doubtful, settled)


def _get_position(row: EffectRow) -> int:
    return row.opened_position


def _is_of_turn(case: _Case, row: EffectRow, attempts: dict[int, AttemptRow]) -> bool:
    """True if the last attempt began in the turn of this hook: that process is alive."""
    moment = _split_process(case.event.process)[1]
    last = attempts.get(row.attempt_count)
    if not case.event.turn or last is None:
        return False
    return _split_process(last.process)[1] == moment


def _split_process(process: str) -> tuple[str, str]:
    label, _, moment = process.rpartition("@")
    return label, moment


def _choose_waiting(case: _Case, own: Sequence[EffectRow]) -> UUID | None:
    """Return the effect that this call continues: permission was requested and not used."""
    turn = case.event.turn
    for row in reversed(own):
        is_planned = row.state == "planned" and row.lane == "command"
        if not is_planned and row.permission not in ("granted", "pending"):
            continue
        is_of_turn = bool(turn) and row.turn == turn
        if row.permission == "denied" and not is_of_turn:
            continue
        if row.permission == "granted" and is_of_turn and case.options.rewrites:
            continue  # an equal call of this turn, which `gatebook exec` has not begun yet
        if _has_same_target(case, row):
            return row.id
    return None


def _has_same_target(case: _Case, row: EffectRow) -> bool:
    """True if the call acts on the target that the effect was planned for.

    The same command in the same folder pushes elsewhere after `git checkout` or `git remote
    set-url`, and permission holds only for what the person saw.
    """
    target = case.intent.target or core.Target()
    name = None
    if row.repository_id is not None:
        name = Repository.objects.values_list("name", flat=True).get(id=row.repository_id)
    planned = (name or "", row.ref, row.environment, row.resource)
    now = (target.repository, target.ref, target.environment, target.resource)
    return planned == tuple(value or "" for value in now)


def _withdraw(case: _Case, row: EffectRow) -> None:
    key = build_fact_key("effect.superseded", row.id, row.version)
    body = {"kind": "effect.superseded", "effect": str(row.id)}
    gated_commands.supersede_with_gates(build_origin(case.call, case.event, key, body), row.id)


def _answer_stored(case: _Case, identity: UUID) -> HookAnswer:
    """Answer about an effect that was planned before, by its present state."""
    row = reader.lock_effects([identity])[identity]
    attempts = reader.load_attempts([identity]).get(identity, {}) if row.attempt_count else {}
    last = attempts.get(row.attempt_count)
    # The hook came twice. After the result of a call that changes something outside, it is another
    # call that the model names alike.
    may_repeat = last is not None and (last.is_open or not case.intent.changes_outside)
    if last is not None and may_repeat and _is_same_delivery(case.event, last):
        return _permit(case, row)
    if row.state == "planned" or (row.state == "failed" and row.failure_reason == "rejected"):
        if not _has_same_target(case, row):
            return HookAnswer("deny", call_words.describe_other_target(row))
        # An attempt that did not happen has used its permission.
        needs_permission = row.permission in ("none", *MOVED_PERMISSIONS) or (
            row.permission == "granted" and permissions.is_permission_expired(row, now_us())
        )
        if needs_permission:
            return _answer_planned(case, _plan(case, row.effect_key, row))
        return _answer_planned(case, CommandResult(row))
    if row.state == "acknowledged" and row.outcome != "unknown":
        return HookAnswer("deny", call_words.describe_done(row, last))
    if row.state in ("superseded", "compensated"):
        return HookAnswer("deny", call_words.describe_closed(row))
    return _settle(case, row)


def _is_same_delivery(event: HookEvent, attempt: AttemptRow) -> bool:
    """True if the hook that began this attempt has come again.

    A hook without a turn may come from another process, which repeats the call.
    """
    return bool(event.turn or event.delivery) and attempt.process == event.process


def _settle(case: _Case, row: EffectRow) -> HookAnswer:
    """Answer a call whose intent may have been executed, by the verdict on that effect."""
    evaluation = evaluate.evaluate_effects(case.call.project, [row], now_us(), None)[row.id]
    verdict = evaluation.verdict
    if verdict.answer == "ask" or (verdict.answer == "replay" and verdict.needs_new_permission):
        result = _plan(case, row.effect_key, row)
        if result.refusal is not None:
            return HookAnswer("deny", result.refusal.sentence)
        row = result.effect
        verdict = evaluate.evaluate_effects(case.call.project, [row], now_us(), None)[
            row.id
        ].verdict
    may_run = verdict.answer == "execute" or (
        verdict.answer == "replay" and not verdict.needs_new_permission
    )
    if may_run and not _has_same_target(case, row):
        return HookAnswer("deny", call_words.describe_other_target(row))
    if verdict.answer == "execute":
        return _dispatch(case, row)
    if may_run:
        return _dispatch(case, row, replays=row.attempt_count)
    if verdict.reason == "GATE_PENDING":
        return _wait(case, row)
    return HookAnswer("deny", call_words.describe_doubt(row, verdict))


def _plan(case: _Case, effect_key: str, row: EffectRow | None = None) -> CommandResult:
    """Plan the effect of a call; `row` is the effect if it was planned before.

    Raises PlansThrottled and CircuitOpen.
    """
    call, event, intent = case.call, case.event, case.intent
    session = case.session if row is None else row.session_id
    if row is not None and session != case.session:
        sessions.lock_session_row(call.project, session, call.received_us, new_effects=0)
    call_id = event.call_id or event.delivery
    fields = core.PlanFields(
        tool=intent.tool,
        arguments=intent.arguments,
        effect_key=effect_key,
        call_id=call_id or None,
        turn=event.turn or None,
        target=intent.target,
        why=intent.why or None,
        free_text=intent.free_text,
    )
    values = build_plan_columns(fields, call.redactions) | load_target_columns(
        call.project, session, intent.target, intent.arguments
    )
    plan = Plan(session, effect_key, intent.tool, intent.digest, values, is_guarded=False)
    identity = derive_uuid(session, effect_key)
    version = 0 if row is None else row.version
    body = _build_plan_body(case, effect_key)
    origin = build_origin(call, event, build_fact_key("effect.planned", identity, version), body)
    repository = (intent.target.repository or "") if intent.target is not None else ""
    result = plan_command.plan_with_policy(origin, plan, PlanPayload(intent.arguments, repository))
    if result.created:
        sessions.add_effect_counts({session: 1})
    return result


def build_call_meta(event: HookEvent, intent: CallIntent) -> dict[str, Any]:
    """Return what people see with a plan: the client's tool, and where its target is from."""
    meta: dict[str, Any] = {"client": event.program, "client_tool": event.tool}
    if intent.sources:
        meta["target_sources"] = intent.sources
    return meta | build_meta(event)


def _build_plan_body(case: _Case, effect_key: str) -> dict[str, Any]:
    """Return the stored body of a plan, with what people see of it."""
    event, intent = case.event, case.intent
    target = intent.target
    named = (
        {}
        if target is None
        else {
            name: value
            for name in target.__struct_fields__
            if (value := getattr(target, name)) is not None
        }
    )
    body: dict[str, Any] = {
        "kind": "effect.planned",
        "session": event.session_key,
        "tool": intent.tool,
        "arguments": intent.arguments,
        "effect_key": effect_key,
        "call_id": event.call_id,
        "turn": event.turn,
        "why": intent.why,
        "free_text": intent.free_text,
        "target": named,
        "meta": build_call_meta(event, intent),
    }
    return {name: value for name, value in body.items() if value not in ("", [], {}, None)} | {
        "arguments": intent.arguments
    }


def _answer_planned(case: _Case, result: CommandResult) -> HookAnswer:
    """Answer by what an effect that has not begun may do now."""
    row = result.effect
    if result.refusal is not None:
        return HookAnswer("deny", result.refusal.sentence)
    answer = permissions.agent_answer(row, result.open_effect)
    if answer == "proceed":
        # A secret that was redacted is missing in the intent, so that no command can repeat it.
        is_exact = case.intent.is_mapped and not case.call.redactions
        if case.options.rewrites and is_exact and case.intent.changes_outside:
            return _rewrite(case, row)
        return _dispatch(case, row)
    if answer == "wait":
        return _wait(case, row)
    return HookAnswer("deny", call_words.describe_denial(case.call, row))


def _rewrite(case: _Case, row: EffectRow) -> HookAnswer:
    """Answer with a command that dispatches the effect itself, just before it acts."""
    session_key = case.event.session_key
    updated = rewrite_input(case.event, case.intent, session_key, row.effect_key)
    is_approved = _may_allow(case, row) or row.permission_basis == "ruling"
    # The clients take an updated input only together with a decision.
    return HookAnswer("allow" if is_approved else "none", updated_input=updated)


def _wait(case: _Case, row: EffectRow) -> HookAnswer:
    """Answer a call that people must decide on. A hook never waits for them itself."""
    record_status(
        case.call, case.event, case.session, f"approval of {call_words.format_effect_handle(row)}"
    )
    words = call_words.describe_wait(row, case.options.defers)
    return HookAnswer("defer" if case.options.defers else "deny", words)


def _dispatch(case: _Case, row: EffectRow, replays: int | None = None) -> HookAnswer:
    """Use the permission of an effect; the call may run after this answer."""
    call, event, intent = case.call, case.event, case.intent
    key = build_fact_key("effect.dispatched", row.id, row.attempt_count + 1, event.process)
    body = {
        "kind": "effect.dispatched",
        "effect": str(row.id),
        "process": event.process,
        "intent_digest": intent.digest,
    }
    request = DispatchRequest(
        row.id,
        event.process,
        lambda _tool: intent.digest,
        arguments=DispatchArguments(intent.arguments, bool(intent.free_text)),
        replays=replays,
    )
    result = dispatch_command.dispatch_with_policy(build_origin(call, event, key, body), request)
    if result.refusal is None:
        return _permit(case, result.effect)
    if result.refusal.code == "GATE_GONE" and replays is None:
        again = _plan(case, row.effect_key, result.effect)
        if permissions.agent_answer(again.effect, again.open_effect) == "wait":
            return _wait(case, again.effect)
    own_key, stored = _find_effect(case)
    if result.refusal == refusals.ARGUMENTS_CHANGED and stored is None:
        _withdraw(case, result.effect)  # people saw other words: this asks again
        return _answer_planned(case, _plan(case, own_key))
    return HookAnswer("deny", result.refusal.sentence)


def _permit(case: _Case, row: EffectRow) -> HookAnswer:
    """Answer that Gatebook permits the call.

    What people approved runs without another prompt. Of any other call the client decides by its
    own permissions, unless the operator wants otherwise.
    """
    if row.permission_basis == "ruling":
        record_status(case.call, case.event, case.session, "")
        return HookAnswer(
            "allow", f"Approved in Gatebook ({call_words.format_effect_handle(row)})."
        )
    return HookAnswer("allow" if _may_allow(case, row) else "none")


def _may_allow(case: _Case, row: EffectRow) -> bool:
    """True if enforced rules decide alone, as the hook's address asks for."""
    return case.options.allows and row.policy_enforced


def describe_pause(pause: PlansThrottled | CircuitOpen) -> HookAnswer:
    """Return the answer to a call whose plan is paused."""
    words = f"{pause.sentence} Try again in {pause.retry_after_s} s."
    return HookAnswer("deny", words)
