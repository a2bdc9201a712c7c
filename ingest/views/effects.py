"""Endpoints for effects."""

from typing import Any, Final
from uuid import UUID

import msgspec
from django.db.models import Q
from django.http import HttpResponse

from approvals import leave
from approvals.last_look import Whole
from approvals.reading import Asked
from ingest import judged, shapes
from ingest.described import attempt_told, describe, refused, row_of
from ingest.doors import Call, as_json, by_method, command, reading
from ingest.paging import page, parameters
from ingest.planned import intent_digest, key_of, plan_columns, target_columns
from ingest.problems import Problem
from ingest.reply import Reply
from inquiry import controls
from inquiry.indexes import HAS_BAD_OUTCOME, HAS_REFERENCE, IS_NOT_ACKNOWLEDGED
from journal.clock import now_us
from journal.ids import derived
from ledger import breakers, cases, commands, declared, leaves, resolutions, same_calls
from ledger.commands import Answered, Plan
from ledger.leaves import Refusal
from ledger.models import Effect
from ledger.states import SAID_OUTCOMES, STATES
from sessions import beats, capacity, references, sessions, speakers, tasks
from sessions.models import Task
from sessions.origin import Origin


def _record_plan(
    call: Call,
    fields: shapes.PlanFields,
    origin: Origin,
    reference: str,
    compensates: Effect | None,
) -> Reply:
    digest = intent_digest(fields.tool, fields.arguments, fields.free_text)
    # The effect is counted in advance, so that the session is locked and written once. The count is
    # corrected below if the effect is not new.
    session = sessions.lock_meant(call.project, reference, call.received_us, new_effects=1)
    if session is None:
        raise _session_not_found()
    values = plan_columns(fields, call.redactions) | target_columns(
        call.project, session, fields.target, fields.arguments
    )
    if compensates is not None:
        values |= {"compensates_id": compensates.id, "undoes": _get_compensated_part(compensates)}
    if fields.parent_effect:
        values["parent_effect_id"] = _find_effect(call.project, fields.parent_effect).id
    task = _find_task(call.project, session, fields.task) if fields.task else None
    if task is not None:
        values["task_id"] = task.id
    plan = Plan(session, key_of(fields, digest), fields.tool, digest, values)
    repository = (fields.target.repository or "") if fields.target is not None else ""
    try:
        answered = leave.plan(
            origin, plan, Asked(fields.arguments, repository, fields.preconditions)
        )
    except capacity.Paced as paced:
        raise Problem(
            429, "PACED", paced.sentence, headers={"Retry-After": str(paced.retry_after_s)}
        ) from None
    except breakers.Paused as paused:
        sentence, headers = paused.sentence, {"Retry-After": str(paused.retry_after_s)}
        raise Problem(429, "BREAKER_OPEN", sentence, headers=headers) from None
    if not answered.created:
        sessions.count_effects({session: -1})
    elif task is not None and task.state == "done":
        controls.watch(session, call.received_us)
    return _build_reply(answered, kept=False, redactions=call.redactions)


@command(shapes.PlanEffect, "effect.planned")
def plan_effect(
    call: Call, fields: shapes.PlanEffect, origin: Origin, _path: dict[str, UUID]
) -> Reply:
    """Plan an effect before it happens. The answer says whether to proceed."""
    return _record_plan(call, fields, origin, fields.session, None)


@command(shapes.CompensateEffect, "effect.planned", effect="compensates")
def compensate_effect(
    call: Call, fields: shapes.CompensateEffect, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Plan a compensation: an effect with its own permission. At most one may be open."""
    session = _find_effect(call.project, str(path["effect"])).session_id
    task = _find_task(call.project, session, fields.task).id if fields.task else None
    speakers.expect(origin, session, "effect.planned", task=task, effect=path["effect"])
    # The lock serializes compensations of the same effect.
    sessions.lock(call.project, session, call.received_us, new_effects=0)
    target = _find_effect(call.project, str(path["effect"]))
    digest = intent_digest(fields.tool, fields.arguments, fields.free_text)
    compensation = derived(target.session_id, key_of(fields, digest))
    # A compensation that was only reported has no stored answer to return.
    if target.compensations.filter(id=compensation, lane="command").exists():
        return _record_plan(call, fields, origin, str(target.session_id), target)
    if target.state in ("planned", "superseded", "compensated"):
        detail = f"The effect is {target.state}. There is nothing to compensate."
        return refused(Answered(row_of(target), 409, Refusal("WRONG_STATE", detail)))
    undecided = Q(state__in=("planned", "dispatched")) | Q(state="failed", outcome="unknown")
    if target.compensations.filter(undecided, lane="command").exists():
        return refused(Answered(row_of(target), 409, leaves.COMPENSATION_OPEN))
    return _record_plan(call, fields, origin, str(target.session_id), target)


def _get_compensated_part(target: Effect) -> int | None:
    """Return `undoes` of a compensation; None for the whole effect."""
    verdict = cases.judge(target.project_id, [target], now_us(), None)[target.id].verdict
    if verdict.answer != "compensate":
        return None
    return {"CANCEL_THEN_REDO": target.attempt_count, "DUPLICATE_FOUND": 0}.get(verdict.reason)


@command(shapes.DispatchEffect, "effect.dispatched")
def dispatch_effect(
    call: Call, fields: shapes.DispatchEffect, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Use the permission. The agent may act only after a successful response."""
    if fields.arguments is msgspec.UNSET and fields.intent_digest is None:
        detail = (
            "The intent is missing. Send `arguments`, or the `intent_digest` of the plan's"
            " response."
        )
        raise Problem(422, "intent_missing", detail, pointer="/intent_digest")

    def digest_of_call(tool: str) -> str:
        """Return the digest of the call; empty if digest and arguments disagree."""
        if fields.arguments is msgspec.UNSET:
            return fields.intent_digest or ""
        computed = intent_digest(tool, fields.arguments, fields.free_text)
        return computed if fields.intent_digest in (None, computed) else ""

    sent = (
        None
        if fields.arguments is msgspec.UNSET
        else Whole(fields.arguments, bool(fields.free_text))
    )
    try:
        answered = leave.dispatch(
            origin,
            path["effect"],
            process=fields.process,
            asked=digest_of_call,
            preconditions=fields.preconditions,
            whole=sent,
            replays=fields.replays,
        )
    except LookupError:
        raise _effect_not_found() from None
    reply = _touch_and_reply(call, answered, kept=False, process=fields.process)
    if answered.refusal is None:
        # No request of this attempt may still be in flight after this many seconds.
        lifetime_s = declared.tool(call.project, answered.effect.tool).request_lifetime_s
        reply.body["request_lifetime_s"] = lifetime_s
    return reply


@command(shapes.AcknowledgeEffect, "effect.acknowledged")
def acknowledge_effect(
    call: Call, fields: shapes.AcknowledgeEffect, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record the outcome of an attempt. A late one is kept as evidence (202).

    Acknowledgements are never blocked.
    """
    try:
        answered = leave.acknowledge(
            origin,
            path["effect"],
            attempt=fields.attempt,
            outcome=fields.outcome,
            external_reference=fields.external_reference or "",
        )
    except LookupError:
        raise _effect_not_found() from None
    return _touch_and_reply(call, answered)


@command(shapes.FailEffect, "effect.failed")
def fail_effect(
    call: Call, fields: shapes.FailEffect, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record that an attempt failed, and whether its outcome is known."""
    try:
        answered = commands.fail(
            origin,
            path["effect"],
            attempt=fields.attempt,
            reason=fields.reason,
            observe=leave.observe,
        )
    except LookupError:
        raise _effect_not_found() from None
    return _touch_and_reply(call, answered)


@command(shapes.SupersedeEffect, "effect.superseded")
def supersede_effect(
    call: Call, _fields: shapes.SupersedeEffect, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Withdraw an effect that has not happened."""
    try:
        answered = leave.supersede(origin, path["effect"])
    except LookupError:
        raise _effect_not_found() from None
    return _touch_and_reply(call, answered)


@reading
def get_effect(call: Call, effect: UUID) -> HttpResponse:
    """Return one effect with its newest attempts and latest human resolution."""
    row = _find_effect(call.project, str(effect))
    newest = list(row.attempts.order_by("-number")[: ATTEMPTS + 1])
    total = len(newest) if len(newest) <= ATTEMPTS else row.attempts.count()
    attempts = [attempt_told(attempt) for attempt in reversed(newest[:ATTEMPTS])]
    resolved = resolutions.told(row)
    resolution = {"resolution": _resolution_to_json(resolved[0])} if resolved else {}
    duplicates = same_calls.told(same_calls.of_effects([row.id]), row.id)
    return as_json(
        200,
        describe(row) | {"attempts": attempts, "attempts_in_all": total} | resolution | duplicates,
    )


def _resolution_to_json(resolution: resolutions.Said) -> dict[str, Any]:
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


ATTEMPTS: Final = 100
_FILTERS: Final = {
    "state",
    "tool",
    "external_reference",
    "effect_key",
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


@reading
def list_effects(call: Call) -> HttpResponse:
    """List effects of the project, newest first. Filters match exactly."""
    params = parameters(call.request, _FILTERS)
    rows = Effect.objects.filter(project=call.project)
    for name, values in (("state", STATES), ("outcome", SAID_OUTCOMES)):
        if name in params and params[name] not in values:
            raise Problem(
                422,
                "invalid",
                f"`{name}` is invalid. Send one of {', '.join(values)}.",
                pointer=f"/{name}",
            )
    for name in ("state", "tool", "external_reference", "outcome"):
        if name in params:
            rows = rows.filter(**{name: params[name]})
            if name in _INDEX_CONDITIONS and (name, params[name]) not in _COMMON_VALUES:
                rows = rows.filter(_INDEX_CONDITIONS[name])
    if "effect_key" in params and "session" not in params:
        detail = "`effect_key` is unique only within a session. Send `session` too."
        raise Problem(422, "session_missing", detail, pointer="/effect_key")
    if "session" in params:
        session, _session_key = references.by_reference(call.project, [params["session"]])[
            params["session"]
        ]
        rows = rows.filter(session=session)
        if "effect_key" in params:
            rows = rows.filter(id=derived(session, params["effect_key"]))
    return as_json(200, page(rows, params, describe))


effects = by_method(POST=plan_effect, GET=list_effects)


def _build_reply(
    answered: Answered, *, kept: bool = True, redactions: int = 0, process: str | None = None
) -> Reply:
    if answered.refusal is not None:
        return refused(answered, process)
    body = describe(answered.effect)
    body["answer"] = leaves.answer(answered.effect, answered.open_effect)
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


def _ambiguous_effect_to_json(answered: Answered) -> dict[str, Any]:
    """Return the effect that makes a plan ambiguous, with its verdict.

    It is the planned effect itself, or another effect with the same intent.
    """
    effect_id = answered.open_effect
    row = answered.effect if effect_id is None else Effect.objects.get(id=effect_id)
    return {"open_effect": str(row.id), "verdict": judged.present(answered.effect.project_id, row)}


def _duplicates_to_json(answered: Answered) -> dict[str, Any]:
    """Return possible duplicates in other sessions, with the verdict on the first one."""
    row = Effect.objects.get(id=answered.same_calls[0])
    links = same_calls.of_effects([answered.effect.id])
    verdict = judged.present(answered.effect.project_id, row)
    return {
        "open_effect": str(row.id),
        "verdict": verdict,
        **same_calls.told(links, answered.effect.id),
    }


def _touch_and_reply(
    call: Call, answered: Answered, *, kept: bool = True, process: str | None = None
) -> Reply:
    """Build the reply to a command about a stored effect, and touch its session."""
    effect = answered.effect
    leased = sessions.seen(call.project, effect.session_id, call.received_us)
    # A command without a lease epoch also counts as progress.
    if leased and kept and call.lease_epoch is None and answered.status == 200:
        beats.progressed(call.project, effect.session_id, task=effect.task_id)
    return _build_reply(answered, kept=kept, process=process)


def _find_effect(project: UUID, identity: str) -> Effect:
    try:
        effect = Effect.objects.filter(project=project, id=UUID(identity)).first()
    except ValueError:
        effect = None
    if effect is None:
        raise _effect_not_found()
    return effect


def _find_task(project: UUID, session: UUID, reference: str) -> Task:
    stored = references.find(project, str(session))
    task = tasks.find(stored, reference)
    if task is None:
        detail = "The session has no such task. Create it first, or omit `task`."
        raise Problem(422, "task_unknown", detail, pointer="/task")
    return task


def _session_not_found() -> Problem:
    return Problem(
        404, "not_found", "The project has no such session. Open it first with POST /sessions."
    )


def _effect_not_found() -> Problem:
    return Problem(
        404, "not_found", "The project has no such effect. Plan it first with POST /effects."
    )
