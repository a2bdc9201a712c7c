"""Doors for what a worker leaves for the next: checkpoints, decisions, handoffs, facts; and for changing a session."""

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


def _values(fields: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(fields, name) for name in names}


@command(shapes.WriteCheckpoint, "checkpoint.written")
def write_checkpoint(call: Call, fields: shapes.WriteCheckpoint, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Keep where the work stands. The latest five are kept; a cursor moves that of the session."""
    session = enter(call, path["session"])
    if (refuse := refusal(call, origin)) is not None:
        return refuse
    values = _values(fields, *shapes.CheckpointFields.__struct_fields__)
    size = size_of(values)
    if size > checkpoints.LARGEST:
        detail = f"A checkpoint has at most {checkpoints.LARGEST} bytes and this one {size}; keep more as an artifact."
        raise Problem(413, "checkpoint_too_large", detail)
    kept = checkpoints.write(origin, session.id, size, values)
    if fields.cursor is not None:
        told = sessions.Report(session.id, session.key, origin, "checkpoint.written", kept.opened_position, values)
        sessions.report([told], {})
    return Reply(201, {"id": str(kept.id), "position": kept.opened_position, "bytes": size})


def size_of(values: dict[str, Any]) -> int:
    """Bytes of a checkpoint as canonical JSON, what it does not say left out."""
    return len(canonical_text({name: value for name, value in values.items() if value}).encode())


@reading
def list_checkpoints(call: Call, session: UUID) -> HttpResponse:
    """The checkpoints that are kept, the latest first, without their states."""
    parameters(call.request, set())
    rows = checkpoints.kept(find_session(call.project, session))
    return as_json(200, {"items": [checkpoints.told(row, whole=False) for row in rows]})


@reading
def get_checkpoint(call: Call, checkpoint: UUID) -> HttpResponse:
    """One checkpoint with its state."""
    rows = Checkpoint.objects.filter(project=call.project, id=checkpoint)
    row = rows.annotate(text=text_at("opened_position")).first()
    if row is None:
        detail = f"No such checkpoint is kept: of each session there are the latest {checkpoints.KEPT}."
        raise Problem(404, "not_found", detail)
    return as_json(200, checkpoints.told(row))


@command(shapes.RecordDecision, "decision.recorded")
def record_decision(call: Call, fields: shapes.RecordDecision, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Write a decision down before it is acted upon, or find the one that the key names already."""
    session = enter(call, path["session"])
    if (refuse := refusal(call, origin)) is not None:
        return refuse
    known = decisions.of_session(session).filter(key=fields.key).first()
    if known is not None and known.recorded_position is not None:
        stands = decisions.told(known)
        if stands["choice"] not in (None, fields.choice):  # None: erased since
            sentence = "A decision of this key chose something else; read it, or use another key."
            return refused("DECISION_DIFFERS", sentence, origin, {"decision": stands})
        told_before(origin)
        return Reply(200, decisions.brief(known), kept=False)
    effect = derived(session.id, fields.effect_key) if fields.effect_key else None
    return Reply(201, decisions.brief(decisions.record(origin, session.id, fields.key, effect)))


@command(shapes.ConcludeDecision, "decision.concluded")
def conclude_decision(call: Call, fields: shapes.ConcludeDecision, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Say how a decision ended; the first end stands."""
    enter(call, _decision(call.project, path["decision"]).session_id)
    row = _decision(call.project, path["decision"])
    present = {"decision": decisions.brief(row)}
    if (refuse := refusal(call, origin, row.version, lambda: present)) is not None:
        return refuse
    if row.status != "open":
        sentence = "This decision was concluded before; read how. A new one takes a new key."
        return refused("DECISION_CONCLUDED", sentence, origin, present)
    return Reply(200, decisions.brief(decisions.conclude(origin, row, fields.status)))


@reading
def list_decisions(call: Call, session: UUID) -> HttpResponse:
    """The decisions of a session, newest first; with open=1 those that were never concluded."""
    asked = parameters(call.request, {"open", "limit", "after"})
    if asked.get("open", "0") not in ("0", "1"):
        raise Problem(422, "invalid", "open is 1 (what was never concluded) or 0 (everything).", pointer="/open")
    rows = decisions.of_session(find_session(call.project, session), open_only=asked.get("open") == "1")
    return as_json(200, page(rows, asked, decisions.told))


@command(shapes.WriteHandoff, "handoff.written")
def write_handoff(call: Call, fields: shapes.WriteHandoff, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Tell the next worker what it needs, in five sections."""
    session = enter(call, path["session"])
    if (refuse := refusal(call, origin)) is not None:
        return refuse
    things = waits.resolved(call.project, call.token.agent, session.id, fields.waits_on)
    written = handoffs.write(origin, session.id, sections_size(fields), things)
    controls.watch(session.id, call.received_us)
    return Reply(201, handoffs.brief(written))


def sections_size(fields: shapes.HandoffFields) -> int:
    """Bytes of the five sections of a handoff."""
    values = _values(fields, *handoffs.SECTIONS)
    values["waits_on"] = [
        {name: said for name in ("kind", "ref", "text") if (said := getattr(one, name))} for one in fields.waits_on
    ]
    return handoffs.size_of(values)


@command(shapes.AcceptHandoff, "handoff.accepted")
def accept_handoff(call: Call, _fields: shapes.AcceptHandoff, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Take a handoff up; whoever is first has it."""
    enter(call, _handoff(call.project, path["handoff"]).session_id)
    row = _handoff(call.project, path["handoff"])
    present = {"handoff": handoffs.brief(row)}
    if (refuse := refusal(call, origin, row.version, lambda: present)) is not None:
        return refuse
    if row.accepted_mark:
        sentence = "Another worker has accepted this handoff; leave its work to that one."
        return refused("HANDOFF_ACCEPTED", sentence, origin, present)
    controls.watch(row.session_id, call.received_us)  # before it is accepted: what it waits for may be over by now
    return Reply(200, handoffs.brief(handoffs.accept(origin, row)))


@reading
def list_handoffs(call: Call, session: UUID) -> HttpResponse:
    """The handoffs of a session, newest first."""
    asked = parameters(call.request, {"limit", "after"})
    return as_json(200, page(handoffs.of_session(find_session(call.project, session)), asked, handoffs.told))


@command(shapes.ObserveFact, "fact.observed")
def observe_fact(call: Call, fields: shapes.ObserveFact, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Record what a source says of a named value; its latest word stands."""
    session = enter(call, path["session"])
    if (refuse := refusal(call, origin)) is not None:
        return refuse
    digest = facts.digest_of(call.project, canonical_text(fields.value))
    row = facts.observe(origin, session.id, fields.name, fields.source, digest, fields.fresh_s or facts.FRESH_S)
    others = facts.drifting(facts.fresh_of(session, fields.name, call.received_us))
    if others:
        controls.watch(session.id, call.received_us)
    body = {"name": row.name, "source": row.source, "fresh_until_us": row.fresh_until_us, "drift": bool(others)}
    return Reply(201, body | {"position": row.position})


@reading
def list_facts(call: Call, session: UUID) -> HttpResponse:
    """What sources say, newest first; with fresh=1 what may still be relied upon, with name= of one value."""
    asked = parameters(call.request, {"name", "fresh", "limit", "after"})
    if asked.get("fresh", "0") not in ("0", "1"):
        raise Problem(422, "invalid", "fresh is 1 (what still holds) or 0 (everything).", pointer="/fresh")
    rows = facts.of_session(find_session(call.project, session))
    if asked.get("fresh") == "1":
        rows = rows.filter(fresh_until_us__gte=call.received_us)
    if "name" in asked:
        rows = rows.filter(name=asked["name"])
    return as_json(200, page(rows, asked, lambda row: facts.told(row, call.received_us)))


@command(shapes.ChangeSession, "session.changed")
def change_session(call: Call, fields: shapes.ChangeSession, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Change a session that is open; what is not sent stays."""
    session = enter(call, path["session"])
    if (refuse := refusal(call, origin, session.version, lambda: {"session": brief(session)})) is not None:
        return refuse
    if fields.waiting_on is not None and fields.status != "waiting":
        raise Problem(422, "not_waiting", "waiting_on goes with status waiting; send both.", pointer="/waiting_on")
    if fields.status is not None and session.status in ENDED:
        sentence = "This session has ended; what is left to do belongs to another one."
        return refused("SESSION_ENDED", sentence, origin, {"session": brief(session)})
    meant = {}
    if fields.merge_into is not None:
        meant[fields.merge_into] = _other(session, fields.merge_into, "/merge_into")
    values = _values(fields, *shapes.ChangeFields.__struct_fields__)
    return Reply(200, brief(lineage.change(origin, session, values, meant)))


@command(shapes.MergeSession, "session.merged")
def merge_session(call: Call, fields: shapes.MergeSession, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Say that what a branch did is in another session now; the first word stands."""
    session = enter(call, path["session"])
    if (refuse := refusal(call, origin, session.version, lambda: {"session": brief(session)})) is not None:
        return refuse
    into = _other(session, fields.into, "/into")
    if session.merged_into_id is not None:
        if session.merged_into_id == into:
            told_before(origin)
            return Reply(200, brief(session) | {"merged_into": str(into)}, kept=False)
        present = {"session": brief(session) | {"merged_into": str(session.merged_into_id)}}
        return refused("ALREADY_MERGED", "This session was merged into another one before.", origin, present)
    merged = lineage.merge(origin, session, into)
    return Reply(200, brief(merged) | {"merged_into": str(merged.merged_into_id)})


checkpoints_door = by_method(POST=write_checkpoint, GET=list_checkpoints)
decisions_door = by_method(POST=record_decision, GET=list_decisions)
handoffs_door = by_method(POST=write_handoff, GET=list_handoffs)
facts_door = by_method(POST=observe_fact, GET=list_facts)


def _other(session: Session, reference: str, pointer: str) -> UUID:
    """The session that a reference means, which must be another one of the project."""
    try:
        found = references.find(session.project_id, reference).id
    except references.NotFound:
        detail = "This project has no such session; open it first with POST /sessions."
        raise Problem(422, "session_unknown", detail, pointer=pointer) from None
    if found == session.id:
        raise Problem(422, "session_is_itself", "A session does not merge into itself; name another.", pointer=pointer)
    return found


def _decision(project: UUID, identity: UUID) -> Decision:
    found = Decision.objects.filter(project=project, id=identity).first()
    if found is None:
        raise Problem(404, "not_found", "This project has no such decision; write it down first.")
    return found


def _handoff(project: UUID, identity: UUID) -> Handoff:
    found = Handoff.objects.filter(project=project, id=identity).first()
    if found is None:
        raise Problem(404, "not_found", "This project has no such handoff; look for them in their session.")
    return found
