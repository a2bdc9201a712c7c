"""Endpoints for effects: plans, dispatches, outcomes, results, verdicts and probes."""

from typing import Any, Final
from uuid import UUID

import msgspec
from django.db.models import Q
from django.http import HttpResponse

from api.endpoint import Call, build_json_response, dispatch_by_method, get_endpoint, post_command
from api.idempotency import Reply
from api.pagination import build_page, check_choice, check_session_named, parse_parameters
from api.plan_columns import (
    build_plan_columns,
    compute_intent_digest,
    load_target_columns,
    resolve_effect_key,
)
from api.problems import NO_TASK_IN_SESSION_TEXT, Problem, build_not_found, check_meta
from api.redaction import redact
from api.schemas import core
from api.serializers import verdicts
from api.serializers.effects import (
    attempt_to_json,
    build_effect_refusal,
    effect_to_json,
    to_effect_row,
)
from approvals import dispatch_command, gated_commands, plan_command
from approvals.dispatch_command import DispatchArguments, DispatchRequest
from approvals.policies.policy_evaluation import PlanPayload, load_plan_body
from db import long_numbers
from db.clock import now_us
from db.ids import derive_uuid
from display import entry_bodies
from journal import sent_meta
from journal.entries import Origin
from ledger import (
    circuit_breakers,
    commands,
    permissions,
    probes,
    refusals,
    resolutions,
    same_calls,
)
from ledger.commands import CommandResult, Plan
from ledger.models import Attempt, Effect
from ledger.partial_indexes import (
    HAS_BAD_OUTCOME,
    HAS_CALL_ID,
    HAS_REFERENCE,
    IS_NOT_ACKNOWLEDGED,
)
from ledger.states import REPORTED_OUTCOMES, STATES
from ledger.tools import cache
from ledger.verdicts import evaluate
from recovery import detectors
from sessions import capacity, heartbeats, lookup, sessions, tasks, writers
from sessions.models import Task


def _record_plan(
    call: Call,
    fields: core.PlanFields,
    origin: Origin,
    reference: str,
    compensates: Effect | None,
) -> Reply:
    check_meta(fields.meta)
    digest = compute_intent_digest(fields.tool, fields.arguments, fields.free_text)
    # The effect is counted in advance, so that the session is locked and written once. The count is
    # corrected below if the effect is not new.
    session = sessions.lock_session_by_reference(
        call.project, reference, call.received_us, new_effects=1
    )
    if session is None:
        raise build_not_found("session")
    values = build_plan_columns(fields, call.redactions) | load_target_columns(
        call.project, session, fields.target, fields.arguments
    )
    if compensates is not None:
        values |= {"compensates_id": compensates.id, "undoes": _get_compensated_part(compensates)}
    if fields.parent_effect:
        values["parent_effect_id"] = _find_effect(call.project, fields.parent_effect).id
    task = _find_task(call.project, session, fields.task) if fields.task else None
    if task is not None:
        values["task_id"] = task.id
    plan = Plan(session, resolve_effect_key(fields, digest), fields.tool, digest, values)
    repository = (fields.target.repository or "") if fields.target is not None else ""
    try:
        answered = plan_command.plan_with_policy(
            origin, plan, PlanPayload(fields.arguments, repository, fields.preconditions)
        )
    except capacity.PlansThrottled as paced:
        raise Problem(
            429, "PACED", paced.sentence, headers={"Retry-After": str(paced.retry_after_s)}
        ) from None
    except circuit_breakers.CircuitOpen as paused:
        sentence, headers = paused.sentence, {"Retry-After": str(paused.retry_after_s)}
        raise Problem(429, "BREAKER_OPEN", sentence, headers=headers) from None
    if not answered.created:
        sessions.add_effect_counts({session: -1})
    elif task is not None and task.state == "done":
        detectors.check_session_controls(session, call.received_us)
    return _build_reply(answered, kept=False, redactions=call.redactions)


@post_command(core.PlanEffect, "effect.planned")
def plan_effect_endpoint(
    call: Call, fields: core.PlanEffect, origin: Origin, _path: dict[str, UUID]
) -> Reply:
    """Plan an effect before it happens. The answer says whether to proceed."""
    return _record_plan(call, fields, origin, fields.session, None)


@post_command(core.CompensateEffect, "effect.planned", effect="compensates")
def compensate_effect_endpoint(
    call: Call, fields: core.CompensateEffect, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Plan a compensation: an effect with its own permission. At most one may be open."""
    session = _find_effect(call.project, str(path["effect"])).session_id
    task = _find_task(call.project, session, fields.task).id if fields.task else None
    writers.require_writer(origin, session, "effect.planned", task=task, effect=path["effect"])
    # The lock serializes compensations of the same effect.
    sessions.lock_session_row(call.project, session, call.received_us, new_effects=0)
    target = _find_effect(call.project, str(path["effect"]))
    digest = compute_intent_digest(fields.tool, fields.arguments, fields.free_text)
    compensation = derive_uuid(target.session_id, resolve_effect_key(fields, digest))
    # A compensation that was only reported has no stored answer to return.
    if target.compensations.filter(id=compensation, lane="command").exists():
        return _record_plan(call, fields, origin, str(target.session_id), target)
    if target.state in ("planned", "superseded", "compensated"):
        return build_effect_refusal(
            CommandResult(to_effect_row(target), 409, refusals.refuse_compensation(target.state))
        )
    undecided = Q(state__in=("planned", "dispatched")) | Q(state="failed", outcome="unknown")
    if target.compensations.filter(undecided, lane="command").exists():
        return build_effect_refusal(
            CommandResult(to_effect_row(target), 409, refusals.COMPENSATION_OPEN)
        )
    return _record_plan(call, fields, origin, str(target.session_id), target)


def _get_compensated_part(target: Effect) -> int | None:
    """Return `undoes` of a compensation; None for the whole effect."""
    verdict = evaluate.evaluate_effects(target.project_id, [target], now_us(), None)[
        target.id
    ].verdict
    if verdict.answer != "compensate":
        return None
    return {"CANCEL_THEN_REDO": target.attempt_count, "DUPLICATE_FOUND": 0}.get(verdict.reason)


@post_command(core.DispatchEffect, "effect.dispatched")
def dispatch_effect_endpoint(
    call: Call, fields: core.DispatchEffect, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Use the permission. The agent may act only after a successful response."""
    if fields.arguments is msgspec.UNSET and fields.intent_digest is None:
        missing = refusals.INTENT_MISSING
        raise Problem(422, missing.code, missing.sentence, pointer="/intent_digest")

    def compute_digest_of_call(tool: str) -> str:
        """Return the digest of the call; empty if digest and arguments disagree."""
        if fields.arguments is msgspec.UNSET:
            return fields.intent_digest or ""
        computed = compute_intent_digest(tool, fields.arguments, fields.free_text)
        return computed if fields.intent_digest in (None, computed) else ""

    sent = (
        None
        if fields.arguments is msgspec.UNSET
        else DispatchArguments(fields.arguments, bool(fields.free_text))
    )
    request = DispatchRequest(
        path["effect"],
        fields.process,
        compute_digest_of_call,
        fields.preconditions,
        sent,
        fields.replays,
    )
    try:
        answered = dispatch_command.dispatch_with_policy(origin, request)
    except LookupError:
        raise build_not_found("effect") from None
    reply = _touch_and_reply(call, answered, kept=False, process=fields.process)
    if answered.refusal is None:
        # No request of this attempt may still be in flight after this many seconds.
        lifetime_s = cache.load_tool(call.project, answered.effect.tool).request_lifetime_s
        reply.body["request_lifetime_s"] = lifetime_s
    return reply


@post_command(core.AcknowledgeEffect, "effect.acknowledged")
def acknowledge_effect_endpoint(
    call: Call, fields: core.AcknowledgeEffect, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record the outcome of an attempt. A late one is kept as evidence (202).

    Acknowledgements are never blocked.
    """
    try:
        answered = gated_commands.acknowledge_with_gates(
            origin,
            path["effect"],
            attempt=fields.attempt,
            outcome=fields.outcome,
            external_reference=fields.external_reference or "",
        )
    except LookupError:
        raise build_not_found("effect") from None
    return _touch_and_reply(call, answered)


@post_command(core.FailEffect, "effect.failed")
def fail_effect_endpoint(
    call: Call, fields: core.FailEffect, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record that an attempt failed, and whether its outcome is known."""
    try:
        answered = commands.fail_attempt(
            origin,
            path["effect"],
            attempt=fields.attempt,
            reason=fields.reason,
        )
    except LookupError:
        raise build_not_found("effect") from None
    return _touch_and_reply(call, answered)


@post_command(core.SupersedeEffect, "effect.superseded")
def supersede_effect_endpoint(
    call: Call, _fields: core.SupersedeEffect, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Withdraw an effect that has not happened."""
    try:
        answered = gated_commands.supersede_with_gates(origin, path["effect"])
    except LookupError:
        raise build_not_found("effect") from None
    return _touch_and_reply(call, answered)


@get_endpoint
def get_effect(call: Call, effect: UUID) -> HttpResponse:
    """Return one effect with its newest attempts and latest human resolution."""
    row = _find_effect(call.project, str(effect))
    newest = list(row.attempts.order_by("-number")[: MAX_ATTEMPTS_SHOWN + 1])
    total = len(newest) if len(newest) <= MAX_ATTEMPTS_SHOWN else row.attempts.count()
    attempts = [attempt_to_json(attempt) for attempt in reversed(newest[:MAX_ATTEMPTS_SHOWN])]
    resolved = resolutions.load_resolutions(row)
    resolution = {"resolution": _resolution_to_json(resolved[0])} if resolved else {}
    duplicates = same_calls.same_calls_to_json(same_calls.load_links_of_effects([row.id]), row.id)
    return build_json_response(
        200,
        effect_to_json(row)
        | {"attempts": attempts, "attempts_in_all": total}
        | {"meta": sent_meta.load_effect_meta(row.id)}
        | resolution
        | duplicates,
    )


def _resolution_to_json(resolution: resolutions.Resolution) -> dict[str, Any]:
    """Serialize a human resolution.

    The person appears by pseudonym. The rationale stays in the journal entry at `position`.
    """
    return {
        "answer": resolution.answer,
        "by": resolution.actor,
        "at_us": resolution.at_us,
        "attempt": resolution.attempt,
        "position": resolution.position,
    }


MAX_ATTEMPTS_SHOWN: Final = 100
_FILTERS: Final = {
    "state",
    "tool",
    "external_reference",
    "effect_key",
    "call_id",
    "session",
    "outcome",
    "limit",
    "after",
}
# Conditions that let a partial index serve a filter. Most effects are acknowledged with outcome
# `ok`, so these values are not in the partial indexes.
_INDEX_CONDITIONS: Final = {
    "state": IS_NOT_ACKNOWLEDGED,
    "external_reference": HAS_REFERENCE,
    "outcome": HAS_BAD_OUTCOME,
}
_COMMON_VALUES: Final = (("state", "acknowledged"), ("outcome", "ok"))


@get_endpoint
def list_effects(call: Call) -> HttpResponse:
    """List effects of the project, newest first. Filters match exactly."""
    params = parse_parameters(call.request, _FILTERS)
    rows = Effect.objects.filter(project=call.project)
    check_choice(params, "state", STATES)
    check_choice(params, "outcome", REPORTED_OUTCOMES)
    for name in ("state", "tool", "external_reference", "outcome"):
        if name in params:
            rows = rows.filter(**{name: params[name]})
            if name in _INDEX_CONDITIONS and (name, params[name]) not in _COMMON_VALUES:
                rows = rows.filter(_INDEX_CONDITIONS[name])
    check_session_named(params, ("effect_key", "call_id"))
    if "session" in params:
        session = lookup.resolve_session_id(call.project, params["session"])
        rows = rows.filter(session=session)
        if "effect_key" in params:
            rows = rows.filter(id=derive_uuid(session, params["effect_key"]))
        if "call_id" in params:
            rows = rows.filter(HAS_CALL_ID, call_id=params["call_id"])
    return build_json_response(200, build_page(rows, params, effect_to_json))


effects_endpoint = dispatch_by_method(POST=plan_effect_endpoint, GET=list_effects)


def _build_reply(
    answered: CommandResult, *, kept: bool = True, redactions: int = 0, process: str | None = None
) -> Reply:
    if answered.refusal is not None:
        return build_effect_refusal(answered, process)
    body = effect_to_json(answered.effect)
    body["answer"] = permissions.agent_answer(answered.effect, answered.open_effect)
    if answered.attempt is not None:
        body |= {"attempt": answered.attempt.number, "remote_key": answered.attempt.remote_key}
    # Without an attempt the command is a plan; other commands name their attempt.
    if body["answer"] == "ambiguous" and answered.attempt is None:
        body |= _ambiguous_effect_to_json(answered)
    elif answered.same_calls:
        body |= _duplicates_to_json(answered)
    if redactions:
        body["redactions"] = redactions
    return Reply(answered.status, body, kept=kept)


def _ambiguous_effect_to_json(answered: CommandResult) -> dict[str, Any]:
    """Return the effect that makes a plan ambiguous, with its verdict.

    It is the planned effect itself, or another effect with the same intent.
    """
    effect_id = answered.open_effect
    row = answered.effect if effect_id is None else Effect.objects.get(id=effect_id)
    return {
        "open_effect": str(row.id),
        "verdict": verdicts.evaluate_verdict_json(answered.effect.project_id, row),
    }


def _duplicates_to_json(answered: CommandResult) -> dict[str, Any]:
    """Return possible duplicates in other sessions, with the verdict on the first one."""
    row = Effect.objects.get(id=answered.same_calls[0])
    links = same_calls.load_links_of_effects([answered.effect.id])
    verdict = verdicts.evaluate_verdict_json(answered.effect.project_id, row)
    return {
        "open_effect": str(row.id),
        "verdict": verdict,
        **same_calls.same_calls_to_json(links, answered.effect.id),
    }


def _touch_and_reply(
    call: Call, answered: CommandResult, *, kept: bool = True, process: str | None = None
) -> Reply:
    """Build the reply to a command about a stored effect, and touch its session."""
    effect = answered.effect
    leased = sessions.touch_session_nowait(call.project, effect.session_id, call.received_us)
    # A command without a lease epoch also counts as progress.
    if leased and kept and call.lease_epoch is None and answered.status == 200:
        heartbeats.record_progress(call.project, effect.session_id, task=effect.task_id)
    return _build_reply(answered, kept=kept, process=process)


def _find_effect(project: UUID, identity: str) -> Effect:
    try:
        effect = Effect.objects.filter(project=project, id=UUID(identity)).first()
    except ValueError:
        effect = None
    if effect is None:
        raise build_not_found("effect")
    return effect


def _find_task(project: UUID, session: UUID, reference: str) -> Task:
    stored = lookup.load_session(project, str(session))
    task = tasks.find_task(stored, reference)
    if task is None:
        raise Problem(422, "task_unknown", NO_TASK_IN_SESSION_TEXT, pointer="/task")
    return task


_PLAN_FIELDS = (
    "tool",
    "arguments",
    "target",
    "preconditions",
    "free_text",
    "call_id",
    "turn",
    "why",
    "meta",
)


@get_endpoint
def get_plan(call: Call, effect: UUID) -> HttpResponse:
    """Return the plan of an effect, redacted, to the agent that planned it.

    `arguments` is missing if the plan was reported without them or has been erased.
    """
    parse_parameters(call.request, set())
    row = Effect.objects.filter(project=call.project, id=effect, agent=call.token.agent).first()
    if row is None:
        raise Problem(
            404,
            "not_found",
            "No such effect planned by this agent.",
        )
    body = load_plan_body(row.plan_position)
    fields: dict[str, Any] = {
        name: body[name] for name in _PLAN_FIELDS if body.get(name) is not None
    }
    return build_json_response(
        200,
        {
            "effect": str(row.id),
            "effect_key": row.effect_key,
            "redactions": row.redactions,
            **({} if row.planned_at_us is None else {"planned_at_us": row.planned_at_us}),
            **fields,
        },
    )


@get_endpoint
def get_result(call: Call, effect: UUID) -> HttpResponse:
    """Return the stored outcome of an effect, redacted, to the agent that planned it.

    `stored` says what there is: `result`; `none`, where the report had none or a person or a probe
    settled the outcome; or `erased`.
    """
    parse_parameters(call.request, set())
    row = Effect.objects.filter(project=call.project, id=effect).first()
    if row is None:
        raise build_not_found("effect")
    if row.agent_id != call.token.agent:
        detail = "Another agent planned this effect. Only that agent can read its result."
        raise Problem(403, "OTHER_AGENT", detail)
    attempt = find_answered_attempt(row)
    if attempt is None and not row.outcome:
        detail = _NO_RESULT.get(row.state, _NO_RESULT["dispatched"])
        raise Problem(409, "NO_RESULT", detail)
    return build_json_response(200, _result_to_json(row, attempt))


_NO_RESULT = {
    "planned": "The effect was planned and has not run, so there is no result. Dispatch it first.",
    "superseded": "The effect was withdrawn and has not run, so there is no result.",
    "dispatched": (
        "The attempt has no report yet, so there is no result. Wait for it, or ask for the verdict"
        " on the effect."
    ),
}


def find_answered_attempt(effect: Effect) -> Attempt | None:
    """Return the attempt whose report has the outcome: the newest that was acknowledged.

    Without one, the newest that failed.
    """
    answered = effect.attempts.filter(answer_position__isnull=False).order_by("-number")
    return answered.exclude(acknowledged_mark="").first() or answered.first()


def _result_to_json(effect: Effect, attempt: Attempt | None) -> dict[str, Any]:
    text = None
    if attempt is not None and attempt.answer_position is not None:
        texts = entry_bodies.load_body_texts(effect.project_id, [attempt.answer_position])
        text = texts.get(attempt.answer_position)
    body = {} if text is None else long_numbers.parse_json(text)
    stored = "erased" if attempt is not None and text is None else "none"
    fields: dict[str, Any] = {
        "effect": str(effect.id),
        "handle": f"e_{effect.opened_position}",
        "effect_key": effect.effect_key,
        "call_id": effect.call_id or None,
        "tool": effect.tool,
        "state": effect.state,
        "outcome": effect.outcome or None,
        "external_reference": effect.external_reference or None,
        "attempt": None if attempt is None else attempt.number,
        "position": None if attempt is None else attempt.answer_position,
        "reason": (attempt.failure_reason if attempt is not None else "") or None,
        "detail": body.get("detail"),
    }
    fields = {name: value for name, value in fields.items() if value is not None}
    if body.get("result") is not None:
        stored, fields["result"] = "result", body["result"]
    fields["redacted"] = text is not None and redact.REDACTION_MARK in text
    return fields | {"stored": stored}


@get_endpoint
def get_verdict(call: Call, effect: UUID) -> HttpResponse:
    """Return the verdict on an effect. `process` is the worker's name in its lease."""
    params = parse_parameters(call.request, {"process"})
    row = Effect.objects.filter(project=call.project, id=effect).first()
    if row is None:
        raise build_not_found("effect")
    body = {
        "effect": effect_to_json(row),
        **verdicts.evaluate_verdict_json(call.project, row, params.get("process", "")),
    }
    return build_json_response(
        200,
        body | same_calls.same_calls_to_json(same_calls.load_links_of_effects([row.id]), row.id),
    )


@post_command(core.ProbeEffect, "effect.probed")
def probe_effect(
    call: Call, fields: core.ProbeEffect, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record a probe result, return the verdict. A hit acknowledges the attempt."""
    try:
        answered = probes.record_probe(
            origin,
            path["effect"],
            attempt=fields.attempt,
            result=fields.result,
            external_reference=fields.external_reference or "",
            began_us=fields.began_us,
        )
    except LookupError:
        raise build_not_found("effect") from None
    if answered.refusal is not None:
        return build_effect_refusal(answered)
    gated_commands.end_gates_of_moved_effects([answered.effect], origin.received_us)
    sessions.touch_session_nowait(call.project, answered.effect.session_id, call.received_us)
    verdict = verdicts.evaluate_verdict_json(call.project, answered.effect)
    return Reply(200, {"effect": effect_to_json(answered.effect), **verdict}, kept=False)
