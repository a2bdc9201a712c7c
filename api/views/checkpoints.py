"""Endpoints for checkpoints."""

from uuid import UUID

from django.http import HttpResponse

from api.endpoint import Call, build_json_response, dispatch_by_method, get_endpoint, post_command
from api.events.working_state import measure_checkpoint
from api.idempotency import Reply
from api.pagination import parse_parameters
from api.preconditions import (
    check_preconditions,
    lock_session_of_call,
)
from api.problems import Problem
from api.schemas import working_state as shapes
from api.views.sessions import require_session
from journal.entries import Origin
from sessions import checkpoints, sessions
from sessions.models import Checkpoint, select_body_text


@post_command(shapes.WriteCheckpoint, "checkpoint.written")
def write_checkpoint(
    call: Call, fields: shapes.WriteCheckpoint, origin: Origin, path: dict[str, UUID]
) -> Reply:
    """Store a checkpoint and the session's cursor. The latest five are kept."""
    session = lock_session_of_call(call, path["session"])
    if (refuse := check_preconditions(call, origin)) is not None:
        return refuse
    values = {name: getattr(fields, name) for name in shapes.CheckpointFields.__struct_fields__}
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
        report = sessions.SessionFact(
            session.id,
            session.key,
            origin,
            "checkpoint.written",
            checkpoint.opened_position,
            values,
        )
        sessions.apply_session_facts([report], {})
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


checkpoints_endpoint = dispatch_by_method(POST=write_checkpoint, GET=list_checkpoints)
