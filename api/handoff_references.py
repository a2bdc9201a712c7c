"""Parses and resolves the `waits_on` references of a handoff: gates, messages, effects."""

import re
from collections.abc import Mapping, Sequence
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
    result: list[dict[str, str]] = []
    for reference in references:
        row: dict[str, str] = {"kind": reference.kind}
        if reference.ref and reference.kind != "text":
            name = _parse_reference(session, reference)
            row["ref"] = str(name) if isinstance(name, UUID) else reference.ref
        result.append(row)
    return result


def resolve_waits(
    project: UUID, agent: UUID, session: UUID, references: Sequence[WaitsOn]
) -> list[dict[str, str]]:
    """Resolve references to kind and id, in order. Effects may be named by key.

    Problem 422 for an object that does not exist in the project or is not visible to the agent.
    """
    ids = {
        kind: _load_ids(kind, project, agent, session, [r for r in references if r.kind == kind])
        for kind in _ROWS
    }
    return [_wait_to_json(number, reference, ids) for number, reference in enumerate(references)]


def _load_ids(
    kind: str, project: UUID, agent: UUID, session: UUID, references: Sequence[WaitsOn]
) -> dict[str, UUID]:
    """Map each reference to the id of what it names; leave out those that name nothing visible."""
    names = {r.ref: _parse_reference(session, r) for r in references if r.ref}
    if not names:
        return {}
    by_id = Q(id__in=[name for name in names.values() if isinstance(name, UUID)])
    by_handle = Q(opened_position__in=[name for name in names.values() if isinstance(name, int)])
    ids: dict[UUID | int, UUID] = {}
    rows = _ROWS[kind].filter(by_id | by_handle, project=project)
    for row, opened_position in rows.values_list("id", "opened_position"):
        if kind != "message" or messages.can_reply_to_message(project, agent, row):
            ids |= {row: row, opened_position: row}
    return {ref: ids[name] for ref, name in names.items() if name is not None and name in ids}


def _parse_reference(session: UUID, reference: WaitsOn) -> UUID | int | None:
    """Parse a reference into an id, or the position in a handle; None when it is neither."""
    ref = reference.ref or ""
    handle = _HANDLE.fullmatch(ref)
    if handle is not None and ref[0] == reference.kind[0]:
        return int(handle[1])
    with suppress(ValueError):
        if len(ref) in (32, 36):
            return UUID(ref)
    return derive_uuid(session, ref) if reference.kind == "effect" else None


def _wait_to_json(
    number: int, reference: WaitsOn, ids: Mapping[str, Mapping[str, UUID]]
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
    identity = ids[reference.kind].get(reference.ref)
    if identity is None:
        detail = (
            f"The project has no such {reference.kind}. Name an existing one, or use kind `text`."
        )
        raise Problem(422, "waits_on_unknown", detail, pointer=f"/waits_on/{number}/ref")
    return {"kind": reference.kind, "ref": str(identity)}
