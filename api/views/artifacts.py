"""Endpoints for artifacts: record by hash, upload and download bytes."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase

from api import writer_refusals
from api.endpoint import (
    Call,
    authenticate_request,
    build_json_response,
    dispatch_by_method,
    get_endpoint,
    handle_errors,
    post_command,
)
from api.idempotency import Reply
from api.path_converters import resolve_path
from api.preconditions import require_session_id
from api.problems import Problem, build_not_found
from api.schemas import core
from journal.entries import Origin
from ledger.models import Effect
from sessions import artifacts, writers
from sessions.models import Artifact

log = structlog.get_logger("gatebook.api")

_CHUNK = 65_536


@post_command(core.RecordArtifact, "artifact.recorded")
def record_artifact(
    call: Call, fields: core.RecordArtifact, origin: Origin, _path: dict[str, UUID]
) -> Reply:
    """Record an artifact by its hash. Its bytes can be uploaded afterwards."""
    session = require_session_id(call.project, fields.session)
    writers.require_writer(origin, session, "artifact.recorded")
    if (
        refuse := writer_refusals.check_lease_epoch(origin, session, "artifact.recorded")
    ) is not None:
        return refuse
    subject = _find_effect(call.project, fields.effect) if fields.effect else None
    if subject is not None and subject.session_id != session:
        also = subject.agent_id if subject.planned_mark else None
        writers.require_writer(
            origin,
            subject.session_id,
            "artifact.recorded",
            task=subject.task_id,
            effect=subject.id,
            also=also,
        )
    effect = subject.id if subject is not None else None
    values = {name: getattr(fields, name) for name in fields.__struct_fields__}
    return Reply(201, _artifact_brief(artifacts.add_artifact(origin, session, effect, values)))


@get_endpoint
def get_artifact(call: Call, artifact: UUID) -> HttpResponse:
    """Return the description of one artifact."""
    row = _find_artifact(
        call.project, resolve_path(call.project, {"artifact": artifact})["artifact"]
    )
    names = (
        "type",
        "name",
        "uri",
        "sha256",
        "size",
        "media_type",
        "retention",
        "created_at_us",
        "stored_at_us",
    )
    body: dict[str, Any] = {name: getattr(row, name) for name in names}
    body |= {
        "session": str(row.session_id),
        "effect": str(row.effect) if row.effect else None,
    }
    return build_json_response(200, _artifact_brief(row) | body)


@handle_errors("PUT")
def put_bytes(request: HttpRequest, artifact: UUID | str) -> HttpResponseBase:
    """Store the bytes of an artifact, checked against its hash and size. Repeatable."""
    call = authenticate_request(request)
    row = _find_artifact(
        call.project, resolve_path(call.project, {"artifact": artifact})["artifact"]
    )
    if row.size > settings.GATEBOOK_ARTIFACT_BYTES:
        raise _artifact_too_large()
    if request.META.get("HTTP_CONTENT_ENCODING", "identity").lower() != "identity":
        detail = "Content-Encoding is not supported for artifacts. Send the raw bytes."
        raise Problem(415, "unsupported_encoding", detail)
    try:
        artifacts.receive_content(row, _read_chunks(request))
        with transaction.atomic(durable=True):
            artifacts.mark_content_stored(row, call.received_us)
    except artifacts.WrongContent:
        raise Problem(
            422,
            "content_differs",
            "The content differs from the announced size or SHA-256. Send the announced file.",
        ) from None
    except OSError as error:  # the disk is full, or the folder is not writable, or an erasure came
        log.error("artifact_not_stored", error=f"{type(error).__name__}: {error}"[:300])
        detail = (
            "The bytes cannot be stored now. Send them again later; the server log has the cause."
        )
        raise Problem(503, "unavailable", detail, headers={"Retry-After": "30"}) from None
    return build_json_response(200, {**_artifact_brief(row), "stored": True})


@handle_errors("GET", "HEAD")
def get_bytes(request: HttpRequest, artifact: UUID | str) -> HttpResponseBase:
    """Return the stored bytes as an attachment that browsers do not interpret."""
    project = authenticate_request(request).project
    row = _find_artifact(project, resolve_path(project, {"artifact": artifact})["artifact"])
    try:
        file = artifacts.open_content(row.project_id, row.sha256)
    except artifacts.ChangedContent:
        detail = (
            "The stored bytes of this artifact were changed after they were recorded. Tell an"
            " administrator, and upload them again with PUT if you have them."
        )
        raise Problem(404, "not_stored", detail) from None
    except FileNotFoundError:
        detail = "The bytes of this artifact are not stored. Upload them with PUT if you have them."
        raise Problem(404, "not_stored", detail) from None
    response = FileResponse(
        file, content_type="application/octet-stream", as_attachment=True, filename=row.sha256
    )
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "no-store"
    return response


artifact_bytes_endpoint = dispatch_by_method(PUT=put_bytes, GET=get_bytes)


def _read_chunks(request: HttpRequest) -> Iterator[bytes]:
    """Yield the raw body in chunks, up to the limit.

    Content-Length is required, because only a known length shows that the body is complete.
    """
    length = request.META.get("CONTENT_LENGTH") or ""
    if not length or request.META.get("HTTP_TRANSFER_ENCODING"):
        raise Problem(
            411,
            "length_required",
            "Content-Length of the artifact is missing. Send it; chunked bodies are not accepted.",
        )
    if (
        length.isascii()
        and length.isdigit()
        and int(length[:19]) > settings.GATEBOOK_ARTIFACT_BYTES
    ):
        raise _artifact_too_large()
    size = 0
    while chunk := _read_chunk(request):
        size += len(chunk)
        if size > settings.GATEBOOK_ARTIFACT_BYTES:
            raise _artifact_too_large()
        yield chunk


def _read_chunk(request: HttpRequest) -> bytes:
    try:
        chunk: bytes = request.read(_CHUNK)
    except OSError:
        raise Problem(
            400,
            "body_unreadable",
            "The connection broke while the bytes were read. Send them again.",
        ) from None
    return chunk


def _artifact_too_large() -> Problem:
    detail = (
        f"The artifact is larger than {settings.GATEBOOK_ARTIFACT_BYTES} bytes. Store its bytes"
        " elsewhere."
    )
    return Problem(413, "artifact_too_large", detail)


def _artifact_brief(artifact: Artifact) -> dict[str, Any]:
    return {
        "id": str(artifact.id),
        "handle": f"a_{artifact.opened_position}",
        "stored": artifact.stored_at_us is not None,
        "upload": f"/api/v1/artifacts/{artifact.id}/bytes",
    }


def _find_artifact(project: UUID, identity: UUID) -> Artifact:
    row = Artifact.objects.filter(project=project, id=identity).first()
    if row is None:
        raise build_not_found("artifact")
    return row


def _find_effect(project: UUID, identity: str) -> Effect:
    effect = Effect.objects.filter(project=project, id=UUID(identity)).first()
    if effect is None:
        raise build_not_found("effect")
    return effect
