"""Endpoints for handoffs."""

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from django.db.models import Q
from django.http import HttpResponse

from accounts.origin import Origin
from api.endpoint import Call, build_json_response, dispatch_by_method, get_endpoint, post_command
from api.events.working_state import measure_handoff_fields
from api.handoff_references import parse_reference
from api.pagination import build_page, parse_parameters
from api.preconditions import (
    check_preconditions,
    conflict_reply,
    lock_session_of_call,
)
from api.problems import Problem
from api.reply import Reply
from api.schemas import working_state as shapes
from api.schemas.working_state import WaitsOn
from api.views.sessions import require_session
from approvals.models import Gate
from ledger.models import Effect
from recovery.detectors import detectors
from sessions import handoffs, messages
from sessions.models import Handoff, Message


@post_command(shapes.WriteHandoff, "handoff.written")
def write_handoff(
    call: Call, fields: shapes.WriteHandoff, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Write a handoff for the next worker, in five sections."""
    session = lock_session_of_call(call, path["session"])
    if (refuse := check_preconditions(call, origin)) is not None:
        return refuse
    waits_on = resolve_waits(call.project, call.token.agent, session.id, fields.waits_on)
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


handoffs_endpoint = dispatch_by_method(POST=write_handoff, GET=list_handoffs)


def _find_handoff(project: UUID, identity: UUID) -> Handoff:
    row = Handoff.objects.filter(project=project, id=identity).first()
    if row is None:
        raise Problem(
            404,
            "not_found",
            "The project has no such handoff. List handoffs with GET /sessions/{id}/handoffs.",
        )
    return row


_ROWS: Final[dict[str, Any]] = {
    "gate": Gate.objects,
    "message": Message.objects,
    "effect": Effect.objects,
}


def resolve_waits(
    project: UUID, agent: UUID, session: UUID, references: Sequence[WaitsOn]
) -> list[dict[str, str]]:
    """Resolve references to kind and id, in order. Effects may be named by key.

    Problem 422 for an object that does not exist in the project or is not visible to the agent.
    """
    resolved_references: list[dict[str, str]] = []
    for kind, all_rows in _ROWS.items():
        parsed = [
            parse_reference(session, reference)
            for reference in references
            if reference.kind == kind and reference.ref
        ]
        if not parsed:
            continue
        ids = {identity for identity, _handle in parsed if identity is not None}
        handles = {handle for _known, handle in parsed if handle is not None}
        rows = all_rows.filter(Q(id__in=ids) | Q(opened_position__in=handles), project=project)
        positions = dict(rows.values_list("id", "opened_position"))
        if kind == "message":
            positions = {
                identity: opened_position
                for identity, opened_position in positions.items()
                if messages.can_reply_to_message(project, agent, identity)
            }
        by_handle = {position: identity for identity, position in positions.items()}
        for reference in references:
            if reference.kind == kind and reference.ref:
                identity, handle = parse_reference(session, reference)
                identity = (
                    by_handle.get(handle)
                    if handle is not None
                    else identity
                    if identity in positions
                    else None
                )
                resolved_references.append(
                    {"kind": kind, "of": reference.ref, "ref": str(identity) if identity else ""}
                )
    ids_of = {(name["kind"], name["of"]): name["ref"] for name in resolved_references}
    return [_wait_to_json(number, reference, ids_of) for number, reference in enumerate(references)]


def _wait_to_json(
    number: int, reference: WaitsOn, ids: dict[tuple[str, str], str]
) -> dict[str, str]:
    if reference.kind == "text":
        if not reference.text:
            detail = (
                "`text` is missing. Describe what you wait for, or name a gate, message or effect."
            )
            raise Problem(422, "waits_on_missing", detail, pointer=f"/waits_on/{number}/text")
        return {"kind": "text"}
    if not reference.ref:
        detail = (
            f"`ref` is missing. Send the id or handle of the {reference.kind}, or use kind `text`."
        )
        raise Problem(422, "waits_on_missing", detail, pointer=f"/waits_on/{number}/ref")
    identity = ids[reference.kind, reference.ref]
    if not identity:
        detail = (
            f"The project has no such {reference.kind}. Name an existing one, or use kind `text`."
        )
        raise Problem(422, "waits_on_unknown", detail, pointer=f"/waits_on/{number}/ref")
    return {"kind": reference.kind, "ref": identity}
