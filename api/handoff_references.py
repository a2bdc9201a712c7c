"""Parses and resolves the `waits_on` references of a handoff: gates, messages, effects."""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

from django.db.models import Q

from api.problems import Problem
from api.schemas.working_state import WaitsOn
from approvals.models import Gate
from db.ids import derive_uuid
from ledger.models import Effect
from sessions import messages
from sessions.models import Message

_ROWS: Final[dict[str, Any]] = {
    "gate": Gate.objects,
    "message": Message.objects,
    "effect": Effect.objects,
}
_HANDLE: Final = re.compile(r"[gme]_([0-9]{1,18})")


def resolve_reported_waits(session: UUID, references: Sequence[WaitsOn]) -> list[dict[str, str]]:
    """Resolve reported references without queries, for any order of delivery.

    An effect key becomes its id. Other references that are not ids stay unchanged.
    """
    result = []
    for reference in references:
        identity, handle = parse_reference(session, reference) if reference.ref else (None, None)
        ref = str(identity) if identity is not None and handle is None else reference.ref
        result.append(
            {"kind": reference.kind} | ({"ref": ref} if ref and reference.kind != "text" else {})
        )
    return result


def parse_reference(session: UUID, reference: WaitsOn) -> tuple[UUID | None, int | None]:
    """Parse a reference into an id or the position of a handle."""
    ref = reference.ref or ""
    handle = _HANDLE.fullmatch(ref)
    if handle is not None and ref[0] == reference.kind[0]:
        return None, int(handle[1])
    with suppress(ValueError):
        if len(ref) in (32, 36):
            return UUID(ref), None
    return (derive_uuid(session, ref), None) if reference.kind == "effect" else (None, None)


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
