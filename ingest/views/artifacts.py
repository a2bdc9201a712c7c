"""Endpoints for artifacts: record by hash, upload and download bytes."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase

from ingest import fencing, shapes
from ingest.doors import Call, as_json, authenticated, by_method, command, guarded, reading
from ingest.paths import resolve
from ingest.problems import Problem
from ingest.reply import Reply
from ledger.models import Effect
from sessions import artifacts, references, speakers
from sessions.models import Artifact
from sessions.origin import Origin

log = structlog.get_logger("gatebook.ingest")

_CHUNK = 65_536


@command(shapes.RecordArtifact, "artifact.recorded")
def record_artifact(
    call: Call, fields: shapes.RecordArtifact, origin: Origin, _path: dict[str, UUID]
) -> Reply:
    """Record an artifact by its hash. Its bytes can be uploaded afterwards."""
    try:
        session = references.find(call.project, fields.session).id
    except references.NotFound:
        detail = "The project has no such session. Open it first with POST /sessions."
        raise Problem(404, "not_found", detail) from None
    speakers.expect(origin, session, "artifact.recorded")
    if (refuse := fencing.check(origin, session, "artifact.recorded")) is not None:
        return refuse
    subject = _find_effect(call.project, fields.effect) if fields.effect else None
    if subject is not None and subject.session_id != session:
        also = subject.agent_id if subject.planned_mark else None
        speakers.expect(
            origin,
            subject.session_id,
            "artifact.recorded",
            task=subject.task_id,
            effect=subject.id,
            also=also,
        )
    effect = subject.id if subject is not None else None
    values = {name: getattr(fields, name) for name in fields.__struct_fields__}
    return Reply(201, _artifact_brief(artifacts.record(origin, session, effect, values)))


@reading
def get_artifact(call: Call, artifact: UUID) -> HttpResponse:
    """Return the description of one artifact."""
    row = _find_artifact(call.project, resolve(call.project, {"artifact": artifact})["artifact"])
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
    return as_json(200, _artifact_brief(row) | body)


@guarded("PUT")
def put_bytes(request: HttpRequest, artifact: UUID | str) -> HttpResponseBase:
    """Store the bytes of an artifact, checked against its hash and size. Repeatable."""
    call = authenticated(request)
    row = _find_artifact(call.project, resolve(call.project, {"artifact": artifact})["artifact"])
    if row.size > settings.GATEBOOK_ARTIFACT_BYTES:
        raise _artifact_too_large()
    if request.META.get("HTTP_CONTENT_ENCODING", "identity").lower() != "identity":
        detail = "Content-Encoding is not supported for artifacts. Send the raw bytes."
        raise Problem(415, "unsupported_encoding", detail)
    try:
        artifacts.receive(row, _read_chunks(request))
    except artifacts.WrongContent:
        raise Problem(422, "content_differs", str(artifacts.WrongContent.__doc__)) from None
    except OSError as error:  # the disk is full, or the folder is not writable
        log.error("artifact_not_stored", error=f"{type(error).__name__}: {error}"[:300])
        detail = (
            "The bytes cannot be stored now. Send them again later; the server log has the cause."
        )
        raise Problem(503, "unavailable", detail, headers={"Retry-After": "30"}) from None
    with transaction.atomic(durable=True):
        artifacts.mark_stored(row, call.received_us)
    return as_json(200, {**_artifact_brief(row), "stored": True})


@guarded("GET", "HEAD")
def get_bytes(request: HttpRequest, artifact: UUID | str) -> HttpResponseBase:
    """Return the stored bytes as an attachment that browsers do not interpret."""
    project = authenticated(request).project
    row = _find_artifact(project, resolve(project, {"artifact": artifact})["artifact"])
    try:
        file = artifacts.path(row.project_id, row.sha256).open("rb")
    except FileNotFoundError:
        detail = "The bytes of this artifact are not stored. Upload them with PUT if you have them."
        raise Problem(404, "not_stored", detail) from None
    response = FileResponse(
        file, content_type="application/octet-stream", as_attachment=True, filename=row.sha256
    )
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "no-store"
    return response


bytes_door = by_method(PUT=put_bytes, GET=get_bytes)


def _read_chunks(request: HttpRequest) -> Iterator[bytes]:
    """Yield the raw body in chunks, up to the limit.

    Content-Length is required, because only a known length shows that the body is complete.
    """
    length = request.META.get("CONTENT_LENGTH") or ""
    if not length or request.META.get("HTTP_TRANSFER_ENCODING"):
        raise Problem(
            411,
            "length_required",
            "Content-Length is missing. Send it; chunked bodies are not accepted.",
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
        raise Problem(
            404,
            "not_found",
            "The project has no such artifact. Record it first with POST /artifacts.",
        )
    return row


def _find_effect(project: UUID, identity: str) -> Effect:
    effect = Effect.objects.filter(project=project, id=UUID(identity)).first()
    if effect is None:
        raise Problem(
            404, "not_found", "The project has no such effect. Plan it first with POST /effects."
        )
    return effect
