"""Endpoints for working state: checkpoints, decisions, handoffs, facts."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse

from accounts.origin import Origin
from api import handoff_references
from api.endpoint import Call, build_json_response, dispatch_by_method, get_endpoint, post_command
from api.events.working_state import measure_checkpoint, measure_handoff_fields
from api.pagination import build_page, parse_parameters
from api.preconditions import (
    check_preconditions,
    conflict_reply,
    lock_session_of_call,
    raise_if_repeated,
)
from api.problems import Problem
from api.reply import Reply
from api.schemas import working_state as shapes
from api.strictjson.canonical_json import to_canonical_text
from api.views.sessions import check_session_preconditions, require_session, session_brief_to_json
from db.ids import derive_uuid
from recovery import detectors
from sessions import checkpoints, decisions, facts, handoffs, lookup, sessions
from sessions import sessions as sessions_sessions
from sessions.models import ENDED, Checkpoint, Decision, Handoff, Session, select_body_text


def _field_values(fields: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(fields, name) for name in names}


@post_command(shapes.WriteCheckpoint, "checkpoint.written")
def write_checkpoint(
    call: Call, fields: shapes.WriteCheckpoint, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Store a checkpoint and the session's cursor. The latest five are kept."""
    session = lock_session_of_call(call, path["session"])
    if (refuse := check_preconditions(call, origin)) is not None:
        return refuse
    values = _field_values(fields, *shapes.CheckpointFields.__struct_fields__)
    size = measure_checkpoint(values)
    if size > checkpoints.MAX_CHECKPOINT_BYTES:
        detail = (
            f"The checkpoint has {size} bytes; at most {checkpoints.MAX_CHECKPOINT_BYTES} are "
            "allowed. Store"
            " the rest as an artifact."
        )
        raise Problem(413, "checkpoint_too_large", detail)
    checkpoint = checkpoints.save_checkpoint(origin, session.id, size, values)
    if fields.cursor is not None:
        report = sessions_sessions.SessionFact(
            session.id,
            session.key,
            origin,
            "checkpoint.written",
            checkpoint.opened_position,
            values,
        )
        sessions_sessions.apply_session_facts([report], {})
    return Reply(
        201, {"id": str(checkpoint.id), "position": checkpoint.opened_position, "bytes": size}
    )


@get_endpoint
def list_checkpoints(call: Call, session: UUID) -> HttpResponse:
    """List the kept checkpoints of a session, latest first, without their states."""
    parse_parameters(call.request, set())
    rows = checkpoints.load_checkpoints(require_session(call.project, session))
    return build_json_response(
        200, {"items": [checkpoints.checkpoint_to_json(row, with_state=False) for row in rows]}
    )


@get_endpoint
def get_checkpoint(call: Call, checkpoint: UUID) -> HttpResponse:
    """Return one checkpoint with its state."""
    rows = Checkpoint.objects.filter(project=call.project, id=checkpoint)
    row = rows.annotate(text=select_body_text("opened_position")).first()
    if row is None:
        kept = checkpoints.KEPT_CHECKPOINTS
        detail = f"No such checkpoint. Only the latest {kept} of each session are kept."
        raise Problem(404, "not_found", detail)
    return build_json_response(200, checkpoints.checkpoint_to_json(row))


@post_command(shapes.RecordDecision, "decision.recorded")
def record_decision(
    call: Call, fields: shapes.RecordDecision, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record a decision before acting on it, or return the decision that has this key."""
    session = lock_session_of_call(call, path["session"])
    if (refuse := check_preconditions(call, origin)) is not None:
        return refuse
    existing = decisions.query_decisions(session).filter(key=fields.key).first()
    if existing is not None and existing.recorded_position is not None:
        stored = decisions.decision_to_json(existing)
        if stored["choice"] not in (None, fields.choice):  # None: erased
            sentence = (
                "This key belongs to a decision with another choice. Read it, or use another key."
            )
            return conflict_reply("DECISION_DIFFERS", sentence, origin, {"decision": stored})
        raise_if_repeated(origin)
        return Reply(200, decisions.summarize_decision(existing), kept=False)
    effect = derive_uuid(session.id, fields.effect_key) if fields.effect_key else None
    return Reply(
        201,
        decisions.summarize_decision(
            decisions.save_decision(origin, session.id, fields.key, effect)
        ),
    )


@post_command(shapes.ConcludeDecision, "decision.concluded")
def conclude_decision(
    call: Call, fields: shapes.ConcludeDecision, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record how a decision ended. Only the first end counts."""
    lock_session_of_call(call, _find_decision(call.project, path["decision"]).session_id)
    row = _find_decision(call.project, path["decision"])
    current = {"decision": decisions.summarize_decision(row)}
    if (refuse := check_preconditions(call, origin, row.version, lambda: current)) is not None:
        return refuse
    if row.status != "open":
        sentence = (
            "This decision is already concluded. Read its outcome, or record a new decision with"
            " another key."
        )
        return conflict_reply("DECISION_CONCLUDED", sentence, origin, current)
    return Reply(
        200,
        decisions.summarize_decision(decisions.save_decision_outcome(origin, row, fields.status)),
    )


@get_endpoint
def list_decisions(call: Call, session: UUID) -> HttpResponse:
    """List decisions of a session, newest first; with open=1 only open ones."""
    params = parse_parameters(call.request, {"open", "limit", "after"})
    if params.get("open", "0") not in ("0", "1"):
        raise Problem(
            422,
            "invalid",
            "`open` is invalid. Send 1 (only open decisions) or 0 (all).",
            pointer="/open",
        )
    rows = decisions.query_decisions(
        require_session(call.project, session), open_only=params.get("open") == "1"
    )
    return build_json_response(200, build_page(rows, params, decisions.decision_to_json))


@post_command(shapes.WriteHandoff, "handoff.written")
def write_handoff(
    call: Call, fields: shapes.WriteHandoff, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Write a handoff for the next worker, in five sections."""
    session = lock_session_of_call(call, path["session"])
    if (refuse := check_preconditions(call, origin)) is not None:
        return refuse
    waits_on = handoff_references.resolve_waits(
        call.project, call.token.agent, session.id, fields.waits_on
    )
    written = handoffs.save_handoff(origin, session.id, measure_handoff_fields(fields), waits_on)
    detectors.check_session_controls(session.id, call.received_us)
    return Reply(201, handoffs.summarize_handoff(written))


@post_command(shapes.AcceptHandoff, "handoff.accepted")
def accept_handoff(
    call: Call, _fields: shapes.AcceptHandoff, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Accept a handoff. Only the first worker gets it."""
    lock_session_of_call(call, _find_handoff(call.project, path["handoff"]).session_id)
    row = _find_handoff(call.project, path["handoff"])
    current = {"handoff": handoffs.summarize_handoff(row)}
    if (refuse := check_preconditions(call, origin, row.version, lambda: current)) is not None:
        return refuse
    if row.accepted_mark:
        sentence = "Another worker has accepted this handoff. Do not take over its work."
        return conflict_reply("HANDOFF_ACCEPTED", sentence, origin, current)
    # Before acceptance, because what the handoff waits for may have ended.
    detectors.check_session_controls(row.session_id, call.received_us)
    return Reply(200, handoffs.summarize_handoff(handoffs.save_handoff_acceptance(origin, row)))


@get_endpoint
def list_handoffs(call: Call, session: UUID) -> HttpResponse:
    """List handoffs of a session, newest first."""
    params = parse_parameters(call.request, {"limit", "after"})
    return build_json_response(
        200,
        build_page(
            handoffs.query_handoffs(require_session(call.project, session)),
            params,
            handoffs.handoff_to_json,
        ),
    )


@post_command(shapes.ObserveFact, "fact.observed")
def observe_fact(
    call: Call, fields: shapes.ObserveFact, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record a value observed from a source. The latest per source counts."""
    session = lock_session_of_call(call, path["session"])
    if (refuse := check_preconditions(call, origin)) is not None:
        return refuse
    digest = facts.digest_fact_value(call.project, to_canonical_text(fields.value))
    row = facts.record_observed_fact(
        origin,
        session.id,
        fields.name,
        fields.source,
        digest,
        fields.fresh_s or facts.DEFAULT_FACT_FRESH_S,
    )
    drifting = facts.find_conflicting_facts(
        facts.load_fresh_facts_by_name(session, fields.name, call.received_us)
    )
    if drifting:
        detectors.check_session_controls(session.id, call.received_us)
    body = {
        "name": row.name,
        "source": row.source,
        "fresh_until_us": row.fresh_until_us,
        "drift": bool(drifting),
    }
    return Reply(201, body | {"position": row.position})


@get_endpoint
def list_facts(call: Call, session: UUID) -> HttpResponse:
    """List observed facts, newest first. Filters: `fresh=1` (unexpired), `name`."""
    params = parse_parameters(call.request, {"name", "fresh", "limit", "after"})
    if params.get("fresh", "0") not in ("0", "1"):
        raise Problem(
            422,
            "invalid",
            "`fresh` is invalid. Send 1 (only unexpired facts) or 0 (all).",
            pointer="/fresh",
        )
    rows = facts.query_observed_facts(require_session(call.project, session))
    if params.get("fresh") == "1":
        rows = rows.filter(fresh_until_us__gte=call.received_us)
    if "name" in params:
        rows = rows.filter(name=params["name"])
    return build_json_response(
        200, build_page(rows, params, lambda row: facts.fact_to_json(row, call.received_us))
    )


@post_command(shapes.ChangeSession, "session.changed")
def change_session(
    call: Call, fields: shapes.ChangeSession, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Change an open session. Omitted fields keep their values."""
    session = lock_session_of_call(call, path["session"])
    if (refuse := check_session_preconditions(call, origin, session)) is not None:
        return refuse
    if fields.waiting_on is not None and fields.status != "waiting":
        raise Problem(
            422,
            "not_waiting",
            "`waiting_on` requires status `waiting`. Send both.",
            pointer="/waiting_on",
        )
    if fields.status is not None and session.status in ENDED:
        sentence = "The session has ended. Open a new session to continue the work."
        return conflict_reply(
            "SESSION_ENDED", sentence, origin, {"session": session_brief_to_json(session)}
        )
    sessions_by_reference = {}
    if fields.merge_into is not None:
        sessions_by_reference[fields.merge_into] = _find_other_session(
            session, fields.merge_into, "/merge_into"
        )
    values = _field_values(fields, *shapes.ChangeFields.__struct_fields__)
    return Reply(
        200,
        session_brief_to_json(
            sessions.update_session(origin, session, values, sessions_by_reference)
        ),
    )


@post_command(shapes.MergeSession, "session.merged")
def merge_session(
    call: Call, fields: shapes.MergeSession, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record that a branch was merged. Only the first merge counts."""
    session = lock_session_of_call(call, path["session"])
    if (refuse := check_session_preconditions(call, origin, session)) is not None:
        return refuse
    into = _find_other_session(session, fields.into, "/into")
    if session.merged_into_id is not None:
        if session.merged_into_id == into:
            raise_if_repeated(origin)
            return Reply(
                200, session_brief_to_json(session) | {"merged_into": str(into)}, kept=False
            )
        current = {
            "session": session_brief_to_json(session) | {"merged_into": str(session.merged_into_id)}
        }
        return conflict_reply(
            "ALREADY_MERGED",
            "This session was already merged into another session. Read `merged_into`.",
            origin,
            current,
        )
    merged = sessions.record_session_merge(origin, session, into)
    return Reply(200, session_brief_to_json(merged) | {"merged_into": str(merged.merged_into_id)})


checkpoints_endpoint = dispatch_by_method(POST=write_checkpoint, GET=list_checkpoints)
decisions_endpoint = dispatch_by_method(POST=record_decision, GET=list_decisions)
handoffs_endpoint = dispatch_by_method(POST=write_handoff, GET=list_handoffs)
facts_endpoint = dispatch_by_method(POST=observe_fact, GET=list_facts)


def _find_other_session(session: Session, reference: str, pointer: str) -> UUID:
    """Return the id of another session of the project by reference."""
    try:
        identity = lookup.load_session(session.project_id, reference).id
    except lookup.SessionNotFound:
        detail = "The project has no such session. Open it first with POST /sessions."
        raise Problem(422, "session_unknown", detail, pointer=pointer) from None
    if identity == session.id:
        raise Problem(
            422,
            "session_is_itself",
            "A session cannot merge into itself. Name another session.",
            pointer=pointer,
        )
    return identity


def _find_decision(project: UUID, identity: UUID) -> Decision:
    row = Decision.objects.filter(project=project, id=identity).first()
    if row is None:
        raise Problem(
            404,
            "not_found",
            "The project has no such decision. Record it first with POST /sessions/{id}/decisions.",
        )
    return row


def _find_handoff(project: UUID, identity: UUID) -> Handoff:
    row = Handoff.objects.filter(project=project, id=identity).first()
    if row is None:
        raise Problem(
            404,
            "not_found",
            "The project has no such handoff. List handoffs with GET /sessions/{id}/handoffs.",
        )
    return row
