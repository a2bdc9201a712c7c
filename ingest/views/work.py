"""Endpoints for working state: checkpoints, decisions, handoffs, facts."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse

from ingest import shapes_work as shapes
from ingest import waits
from ingest.canonical import canonical_text
from ingest.doors import Call, as_json, by_method, command, reading
from ingest.guards import enter, refusal
from ingest.if_match import refused, told_before
from ingest.paging import page, parameters
from ingest.problems import Problem
from ingest.reply import Reply
from ingest.views.sessions import brief, find_session
from inquiry import controls
from journal.ids import derived
from sessions import checkpoints, decisions, facts, handoffs, lineage, references, sessions
from sessions.models import ENDED, Session
from sessions.models_state import Checkpoint, Decision, Handoff, text_at
from sessions.origin import Origin


def _field_values(fields: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(fields, name) for name in names}


@command(shapes.WriteCheckpoint, "checkpoint.written")
def write_checkpoint(
    call: Call, fields: shapes.WriteCheckpoint, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Store a checkpoint and the session's cursor. The latest five are kept."""
    session = enter(call, path["session"])
    if (refuse := refusal(call, origin)) is not None:
        return refuse
    values = _field_values(fields, *shapes.CheckpointFields.__struct_fields__)
    size = size_of(values)
    if size > checkpoints.LARGEST:
        detail = (
            f"The checkpoint has {size} bytes; at most {checkpoints.LARGEST} are allowed. Store"
            " the rest as an artifact."
        )
        raise Problem(413, "checkpoint_too_large", detail)
    checkpoint = checkpoints.write(origin, session.id, size, values)
    if fields.cursor is not None:
        report = sessions.Report(
            session.id,
            session.key,
            origin,
            "checkpoint.written",
            checkpoint.opened_position,
            values,
        )
        sessions.report([report], {})
    return Reply(
        201, {"id": str(checkpoint.id), "position": checkpoint.opened_position, "bytes": size}
    )


def size_of(values: dict[str, Any]) -> int:
    """Return the bytes of a checkpoint as canonical JSON without empty fields."""
    return len(canonical_text({name: value for name, value in values.items() if value}).encode())


@reading
def list_checkpoints(call: Call, session: UUID) -> HttpResponse:
    """List the kept checkpoints of a session, latest first, without their states."""
    parameters(call.request, set())
    rows = checkpoints.kept(find_session(call.project, session))
    return as_json(200, {"items": [checkpoints.told(row, whole=False) for row in rows]})


@reading
def get_checkpoint(call: Call, checkpoint: UUID) -> HttpResponse:
    """Return one checkpoint with its state."""
    rows = Checkpoint.objects.filter(project=call.project, id=checkpoint)
    row = rows.annotate(text=text_at("opened_position")).first()
    if row is None:
        detail = f"No such checkpoint. Only the latest {checkpoints.KEPT} of each session are kept."
        raise Problem(404, "not_found", detail)
    return as_json(200, checkpoints.told(row))


@command(shapes.RecordDecision, "decision.recorded")
def record_decision(
    call: Call, fields: shapes.RecordDecision, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record a decision before acting on it, or return the decision that has this key."""
    session = enter(call, path["session"])
    if (refuse := refusal(call, origin)) is not None:
        return refuse
    existing = decisions.of_session(session).filter(key=fields.key).first()
    if existing is not None and existing.recorded_position is not None:
        stored = decisions.told(existing)
        if stored["choice"] not in (None, fields.choice):  # None: erased
            sentence = (
                "This key belongs to a decision with another choice. Read it, or use another key."
            )
            return refused("DECISION_DIFFERS", sentence, origin, {"decision": stored})
        told_before(origin)
        return Reply(200, decisions.brief(existing), kept=False)
    effect = derived(session.id, fields.effect_key) if fields.effect_key else None
    return Reply(201, decisions.brief(decisions.record(origin, session.id, fields.key, effect)))


@command(shapes.ConcludeDecision, "decision.concluded")
def conclude_decision(
    call: Call, fields: shapes.ConcludeDecision, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record how a decision ended. Only the first end counts."""
    enter(call, _find_decision(call.project, path["decision"]).session_id)
    row = _find_decision(call.project, path["decision"])
    current = {"decision": decisions.brief(row)}
    if (refuse := refusal(call, origin, row.version, lambda: current)) is not None:
        return refuse
    if row.status != "open":
        sentence = (
            "This decision is already concluded. Read its outcome, or record a new decision with"
            " another key."
        )
        return refused("DECISION_CONCLUDED", sentence, origin, current)
    return Reply(200, decisions.brief(decisions.conclude(origin, row, fields.status)))


@reading
def list_decisions(call: Call, session: UUID) -> HttpResponse:
    """List decisions of a session, newest first; with open=1 only open ones."""
    params = parameters(call.request, {"open", "limit", "after"})
    if params.get("open", "0") not in ("0", "1"):
        raise Problem(
            422,
            "invalid",
            "`open` is invalid. Send 1 (only open decisions) or 0 (all).",
            pointer="/open",
        )
    rows = decisions.of_session(
        find_session(call.project, session), open_only=params.get("open") == "1"
    )
    return as_json(200, page(rows, params, decisions.told))


@command(shapes.WriteHandoff, "handoff.written")
def write_handoff(
    call: Call, fields: shapes.WriteHandoff, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Write a handoff for the next worker, in five sections."""
    session = enter(call, path["session"])
    if (refuse := refusal(call, origin)) is not None:
        return refuse
    waits_on = waits.resolved(call.project, call.token.agent, session.id, fields.waits_on)
    written = handoffs.write(origin, session.id, sections_size(fields), waits_on)
    controls.watch(session.id, call.received_us)
    return Reply(201, handoffs.brief(written))


def sections_size(fields: shapes.HandoffFields) -> int:
    """Return the size of the five sections of a handoff, in bytes."""
    values = _field_values(fields, *handoffs.SECTIONS)
    values["waits_on"] = [
        {name: value for name in ("kind", "ref", "text") if (value := getattr(thing, name))}
        for thing in fields.waits_on
    ]
    return handoffs.size_of(values)


@command(shapes.AcceptHandoff, "handoff.accepted")
def accept_handoff(
    call: Call, _fields: shapes.AcceptHandoff, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Accept a handoff. Only the first worker gets it."""
    enter(call, _find_handoff(call.project, path["handoff"]).session_id)
    row = _find_handoff(call.project, path["handoff"])
    current = {"handoff": handoffs.brief(row)}
    if (refuse := refusal(call, origin, row.version, lambda: current)) is not None:
        return refuse
    if row.accepted_mark:
        sentence = "Another worker has accepted this handoff. Do not take over its work."
        return refused("HANDOFF_ACCEPTED", sentence, origin, current)
    # Before acceptance, because what the handoff waits for may have ended.
    controls.watch(row.session_id, call.received_us)
    return Reply(200, handoffs.brief(handoffs.accept(origin, row)))


@reading
def list_handoffs(call: Call, session: UUID) -> HttpResponse:
    """List handoffs of a session, newest first."""
    params = parameters(call.request, {"limit", "after"})
    return as_json(
        200, page(handoffs.of_session(find_session(call.project, session)), params, handoffs.told)
    )


@command(shapes.ObserveFact, "fact.observed")
def observe_fact(
    call: Call, fields: shapes.ObserveFact, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record a value observed from a source. The latest per source counts."""
    session = enter(call, path["session"])
    if (refuse := refusal(call, origin)) is not None:
        return refuse
    digest = facts.digest_of(call.project, canonical_text(fields.value))
    row = facts.observe(
        origin, session.id, fields.name, fields.source, digest, fields.fresh_s or facts.FRESH_S
    )
    drifting = facts.drifting(facts.fresh_of(session, fields.name, call.received_us))
    if drifting:
        controls.watch(session.id, call.received_us)
    body = {
        "name": row.name,
        "source": row.source,
        "fresh_until_us": row.fresh_until_us,
        "drift": bool(drifting),
    }
    return Reply(201, body | {"position": row.position})


@reading
def list_facts(call: Call, session: UUID) -> HttpResponse:
    """List observed facts, newest first. Filters: `fresh=1` (unexpired), `name`."""
    params = parameters(call.request, {"name", "fresh", "limit", "after"})
    if params.get("fresh", "0") not in ("0", "1"):
        raise Problem(
            422,
            "invalid",
            "`fresh` is invalid. Send 1 (only unexpired facts) or 0 (all).",
            pointer="/fresh",
        )
    rows = facts.of_session(find_session(call.project, session))
    if params.get("fresh") == "1":
        rows = rows.filter(fresh_until_us__gte=call.received_us)
    if "name" in params:
        rows = rows.filter(name=params["name"])
    return as_json(200, page(rows, params, lambda row: facts.told(row, call.received_us)))


@command(shapes.ChangeSession, "session.changed")
def change_session(
    call: Call, fields: shapes.ChangeSession, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Change an open session. Omitted fields keep their values."""
    session = enter(call, path["session"])
    if (
        refuse := refusal(call, origin, session.version, lambda: {"session": brief(session)})
    ) is not None:
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
        return refused("SESSION_ENDED", sentence, origin, {"session": brief(session)})
    sessions_by_reference = {}
    if fields.merge_into is not None:
        sessions_by_reference[fields.merge_into] = _find_other_session(
            session, fields.merge_into, "/merge_into"
        )
    values = _field_values(fields, *shapes.ChangeFields.__struct_fields__)
    return Reply(200, brief(lineage.change(origin, session, values, sessions_by_reference)))


@command(shapes.MergeSession, "session.merged")
def merge_session(
    call: Call, fields: shapes.MergeSession, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Record that a branch was merged. Only the first merge counts."""
    session = enter(call, path["session"])
    if (
        refuse := refusal(call, origin, session.version, lambda: {"session": brief(session)})
    ) is not None:
        return refuse
    into = _find_other_session(session, fields.into, "/into")
    if session.merged_into_id is not None:
        if session.merged_into_id == into:
            told_before(origin)
            return Reply(200, brief(session) | {"merged_into": str(into)}, kept=False)
        current = {"session": brief(session) | {"merged_into": str(session.merged_into_id)}}
        return refused(
            "ALREADY_MERGED",
            "This session was already merged into another session. Read `merged_into`.",
            origin,
            current,
        )
    merged = lineage.merge(origin, session, into)
    return Reply(200, brief(merged) | {"merged_into": str(merged.merged_into_id)})


checkpoints_door = by_method(POST=write_checkpoint, GET=list_checkpoints)
decisions_door = by_method(POST=record_decision, GET=list_decisions)
handoffs_door = by_method(POST=write_handoff, GET=list_handoffs)
facts_door = by_method(POST=observe_fact, GET=list_facts)


def _find_other_session(session: Session, reference: str, pointer: str) -> UUID:
    """Return the id of another session of the project by reference."""
    try:
        identity = references.find(session.project_id, reference).id
    except references.NotFound:
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
