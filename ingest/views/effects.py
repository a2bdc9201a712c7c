"""Doors for effects: plan, dispatch, acknowledge, fail, compensate, supersede, and reading them back."""

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


def _plan(call: Call, fields: shapes.PlanFields, origin: Origin, reference: str, compensates: Effect | None) -> Reply:
    digest = intent_digest(fields.tool, fields.arguments, fields.free_text)
    # Counted before it is known to be new, so that the session is locked and written once; taken back below if not.
    session = sessions.lock_meant(call.project, reference, call.received_us, new_effects=1)
    if session is None:
        raise _no_session()
    values = plan_columns(fields, call.redactions) | target_columns(
        call.project, session, fields.target, fields.arguments
    )
    if compensates is not None:
        values |= {"compensates_id": compensates.id, "undoes": _part(compensates)}
    if fields.parent_effect:
        values["parent_effect_id"] = _effect(call.project, fields.parent_effect).id
    task = _task(call.project, session, fields.task) if fields.task else None
    if task is not None:
        values["task_id"] = task.id
    wish = Plan(session, key_of(fields, digest), fields.tool, digest, values)
    repository = (fields.target.repository or "") if fields.target is not None else ""
    try:
        answered = leave.plan(origin, wish, Asked(fields.arguments, repository, fields.preconditions))
    except capacity.Paced as paced:
        raise Problem(429, "PACED", paced.sentence, headers={"Retry-After": str(paced.retry_after_s)}) from None
    except breakers.Paused as paused:
        sentence, headers = paused.sentence, {"Retry-After": str(paused.retry_after_s)}
        raise Problem(429, "BREAKER_OPEN", sentence, headers=headers) from None
    if not answered.created:
        sessions.count_effects({session: -1})
    elif task is not None and task.state == "done":
        controls.watch(session, call.received_us)
    return _reply(answered, kept=False, redactions=call.redactions)


@command(shapes.PlanEffect, "effect.planned")
def plan_effect(call: Call, fields: shapes.PlanEffect, origin: Origin, _path: dict[str, UUID]) -> Reply:
    """Write down an intention before it happens, and hear whether to proceed."""
    return _plan(call, fields, origin, fields.session, None)


@command(shapes.CompensateEffect, "effect.planned", effect="compensates")
def compensate_effect(call: Call, fields: shapes.CompensateEffect, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Plan the undoing of an effect: an effect of its own, with leave of its own; at most one may be open."""
    session = _effect(call.project, str(path["effect"])).session_id
    task = _task(call.project, session, fields.task).id if fields.task else None
    speakers.expect(origin, session, "effect.planned", task=task, effect=path["effect"])
    sessions.lock(call.project, session, call.received_us, new_effects=0)  # so that two compensations see each other
    undone = _effect(call.project, str(path["effect"]))
    digest = intent_digest(fields.tool, fields.arguments, fields.free_text)
    other = derived(undone.session_id, key_of(fields, digest))
    # One that was merely reported gave no answer yet that could be asked for again.
    if undone.compensations.filter(id=other, lane="command").exists():
        return _plan(call, fields, origin, str(undone.session_id), undone)
    if undone.state in ("planned", "superseded", "compensated"):
        detail = f"The effect is {undone.state}; there is nothing to compensate."
        return refused(Answered(row_of(undone), 409, Refusal("WRONG_STATE", detail)))
    undecided = Q(state__in=("planned", "dispatched")) | Q(state="failed", outcome="unknown")
    if undone.compensations.filter(undecided, lane="command").exists():
        return refused(Answered(row_of(undone), 409, leaves.COMPENSATION_OPEN))
    return _plan(call, fields, origin, str(undone.session_id), undone)


def _part(undone: Effect) -> int | None:
    """What acknowledging a compensation of an effect undoes: all of it, or what the verdict table asks for now."""
    found = cases.judge(undone.project_id, [undone], now_us(), None)[undone.id].verdict
    if found.answer != "compensate":
        return None
    return {"CANCEL_THEN_REDO": undone.attempt_count, "DUPLICATE_FOUND": 0}.get(found.reason)


@command(shapes.DispatchEffect, "effect.dispatched")
def dispatch_effect(call: Call, fields: shapes.DispatchEffect, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Use the leave: after this answer, and only after it, the agent may act."""
    if fields.arguments is msgspec.UNSET and fields.intent_digest is None:
        detail = "Send the arguments you are about to use, or the intent_digest of the plan's answer."
        raise Problem(422, "intent_missing", detail, pointer="/intent_digest")

    def asked(tool: str) -> str:
        """The digest of what is about to run; empty when digest and arguments were both sent and disagree."""
        if fields.arguments is msgspec.UNSET:
            return fields.intent_digest or ""
        computed = intent_digest(tool, fields.arguments, fields.free_text)
        return computed if fields.intent_digest in (None, computed) else ""

    whole = None if fields.arguments is msgspec.UNSET else Whole(fields.arguments, bool(fields.free_text))
    try:
        answered = leave.dispatch(
            origin,
            path["effect"],
            process=fields.process,
            asked=asked,
            preconditions=fields.preconditions,
            whole=whole,
            replays=fields.replays,
        )
    except LookupError:
        raise _no_effect() from None
    reply = _seen(call, answered, kept=False, process=fields.process)
    if answered.refusal is None:  # from now on: whatever is sent under this attempt must be dead after it
        lifetime_s = declared.tool(call.project, answered.effect.tool).request_lifetime_s
        reply.body["request_lifetime_s"] = lifetime_s
    return reply


@command(shapes.AcknowledgeEffect, "effect.acknowledged")
def acknowledge_effect(call: Call, fields: shapes.AcknowledgeEffect, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Record what came of an attempt. Never held; a late one is kept as evidence (202)."""
    try:
        answered = leave.acknowledge(
            origin,
            path["effect"],
            attempt=fields.attempt,
            outcome=fields.outcome,
            external_reference=fields.external_reference or "",
        )
    except LookupError:
        raise _no_effect() from None
    return _seen(call, answered)


@command(shapes.FailEffect, "effect.failed")
def fail_effect(call: Call, fields: shapes.FailEffect, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Record that an attempt failed, and whether anything is known of the world."""
    try:
        answered = commands.fail(
            origin, path["effect"], attempt=fields.attempt, reason=fields.reason, observe=leave.observe
        )
    except LookupError:
        raise _no_effect() from None
    return _seen(call, answered)


@command(shapes.SupersedeEffect, "effect.superseded")
def supersede_effect(call: Call, _fields: shapes.SupersedeEffect, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Withdraw an effect that has not happened."""
    try:
        answered = leave.supersede(origin, path["effect"])
    except LookupError:
        raise _no_effect() from None
    return _seen(call, answered)


@reading
def get_effect(call: Call, effect: UUID) -> HttpResponse:
    """One effect with its newest attempts, in order, and what a person said became of it, where one did."""
    row = _effect(call.project, str(effect))
    found = list(row.attempts.order_by("-number")[: ATTEMPTS + 1])
    times = len(found) if len(found) <= ATTEMPTS else row.attempts.count()
    attempts = [attempt_told(attempt) for attempt in reversed(found[:ATTEMPTS])]
    said = resolutions.told(row)
    resolution = {"resolution": _resolution(said[0])} if said else {}
    elsewhere = same_calls.told(same_calls.of_effects([row.id]), row.id)
    return as_json(200, describe(row) | {"attempts": attempts, "attempts_in_all": times} | resolution | elsewhere)


def _resolution(said: resolutions.Said) -> dict[str, Any]:
    """A person's latest word: by pseudonym, and the entry that holds the rationale, which is for people."""
    return {
        "answer": said.answer,
        "by": said.actor,
        "at_us": said.at_us,
        "attempt": said.attempt,
        "position": said.position,
    }


ATTEMPTS: Final = 100
_FILTERS: Final = {"state", "tool", "external_reference", "effect_key", "session", "outcome", "limit", "after"}
# What must stand beside a value so that an index of the few serves it; most effects are acknowledged and went well.
_OF_INDEX: Final = {"state": IS_NOT_ACKNOWLEDGED, "external_reference": HAS_REFERENCE, "outcome": HAS_BAD_OUTCOME}
_OF_THE_MASS: Final = (("state", "acknowledged"), ("outcome", "ok"))


@reading
def list_effects(call: Call) -> HttpResponse:
    """Effects of the project, newest first, by exact fields."""
    asked = parameters(call.request, _FILTERS)
    rows = Effect.objects.filter(project=call.project)
    for name, known in (("state", STATES), ("outcome", SAID_OUTCOMES)):
        if name in asked and asked[name] not in known:
            raise Problem(422, "invalid", f"{name} is one of {', '.join(known)}.", pointer=f"/{name}")
    for name in ("state", "tool", "external_reference", "outcome"):
        if name in asked:
            rows = rows.filter(**{name: asked[name]})
            if name in _OF_INDEX and (name, asked[name]) not in _OF_THE_MASS:
                rows = rows.filter(_OF_INDEX[name])
    if "effect_key" in asked and "session" not in asked:
        detail = "An effect key names an effect of its session; send session beside it."
        raise Problem(422, "session_missing", detail, pointer="/effect_key")
    if "session" in asked:
        meant, _key = references.by_reference(call.project, [asked["session"]])[asked["session"]]
        rows = rows.filter(session=meant)
        if "effect_key" in asked:
            rows = rows.filter(id=derived(meant, asked["effect_key"]))
    return as_json(200, page(rows, asked, describe))


effects = by_method(POST=plan_effect, GET=list_effects)


def _reply(answered: Answered, *, kept: bool = True, redactions: int = 0, process: str | None = None) -> Reply:
    if answered.refusal is not None:
        return refused(answered, process)
    body = describe(answered.effect)
    body["answer"] = leaves.answer(answered.effect, answered.open_effect)
    if answered.attempt is not None:
        body |= {"attempt": answered.attempt.number, "remote_key": answered.attempt.remote_key}
    if body["answer"] == "ambiguous" and answered.attempt is None:  # a plan: whoever speaks of an attempt knows of it
        body |= _in_doubt(answered)
    elif answered.same_calls:
        body |= _elsewhere(answered)
    if redactions:
        body["redactions"] = redactions
    return Reply(answered.status, body, kept=kept)


def _in_doubt(answered: Answered) -> dict[str, Any]:
    """Which effect makes a plan ambiguous, and what may be done with that: itself, or another of the same intent."""
    other = answered.open_effect
    row = answered.effect if other is None else Effect.objects.get(id=other)
    return {"open_effect": str(row.id), "verdict": judged.present(answered.effect.project_id, row)}


def _elsewhere(answered: Answered) -> dict[str, Any]:
    """Which effects of other sessions may have done the same already, and what may be done with the first of them."""
    row = Effect.objects.get(id=answered.same_calls[0])
    links = same_calls.of_effects([answered.effect.id])
    verdict = judged.present(answered.effect.project_id, row)
    return {"open_effect": str(row.id), "verdict": verdict, **same_calls.told(links, answered.effect.id)}


def _seen(call: Call, answered: Answered, *, kept: bool = True, process: str | None = None) -> Reply:
    """The reply to a command about a stored effect; its session was heard of."""
    effect = answered.effect
    leased = sessions.seen(call.project, effect.session_id, call.received_us)
    if leased and kept and call.lease_epoch is None and answered.status == 200:  # a mark by who named no lease
        beats.progressed(call.project, effect.session_id, task=effect.task_id)
    return _reply(answered, kept=kept, process=process)


def _effect(project: UUID, identity: str) -> Effect:
    try:
        found = Effect.objects.filter(project=project, id=UUID(identity)).first()
    except ValueError:
        found = None
    if found is None:
        raise _no_effect()
    return found


def _task(project: UUID, session: UUID, reference: str) -> Task:
    stored = references.find(project, str(session))
    task = tasks.find(stored, reference)
    if task is None:
        detail = "This session has no such task; create it first, or leave it out."
        raise Problem(422, "task_unknown", detail, pointer="/task")
    return task


def _no_session() -> Problem:
    return Problem(404, "not_found", "This project has no such session; open it first with POST /sessions.")


def _no_effect() -> Problem:
    return Problem(404, "not_found", "This project has no such effect; plan it first with POST /effects.")
