"""Resolves the `waits_on` references of a handoff: gates, messages, effects."""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

from django.db.models import Q

from approvals.models import Gate
from ingest.problems import Problem
from ingest.shapes_work import WaitsOn
from journal.ids import derived
from ledger.models import Effect
from sessions import messages
from sessions.models_messages import Message

_HANDLE: Final = re.compile(r"[gme]_([0-9]{1,18})")
_ROWS: Final[dict[str, Any]] = {
    "gate": Gate.objects,
    "message": Message.objects,
    "effect": Effect.objects,
}


def resolved(
    project: UUID, agent: UUID, session: UUID, things: Sequence[WaitsOn]
) -> list[dict[str, str]]:
    """Resolve the references to kind and id, in order. An effect may be named by its key.

    Problem 422 for an object that does not exist in the project or is not visible to the agent.
    """
    named: list[dict[str, str]] = []
    for kind, all_rows in _ROWS.items():
        wanted = [
            _parse_reference(session, thing) for thing in things if thing.kind == kind and thing.ref
        ]
        if not wanted:
            continue
        ids = {identity for identity, _handle in wanted if identity is not None}
        handles = {handle for _known, handle in wanted if handle is not None}
        rows = all_rows.filter(Q(id__in=ids) | Q(opened_position__in=handles), project=project)
        positions = dict(rows.values_list("id", "opened_position"))
        if kind == "message":
            positions = {
                identity: at
                for identity, at in positions.items()
                if messages.answerable(project, agent, identity)
            }
        by_handle = {position: identity for identity, position in positions.items()}
        for thing in things:
            if thing.kind == kind and thing.ref:
                identity, handle = _parse_reference(session, thing)
                identity = (
                    by_handle.get(handle)
                    if handle is not None
                    else identity
                    if identity in positions
                    else None
                )
                named.append(
                    {"kind": kind, "of": thing.ref, "ref": str(identity) if identity else ""}
                )
    ids_of = {(name["kind"], name["of"]): name["ref"] for name in named}
    return [_wait_to_json(number, thing, ids_of) for number, thing in enumerate(things)]


def _wait_to_json(number: int, thing: WaitsOn, ids: dict[tuple[str, str], str]) -> dict[str, str]:
    if thing.kind == "text":
        if not thing.text:
            detail = (
                "`text` is missing. Describe what you wait for, or name a gate, message or effect."
            )
            raise Problem(422, "waits_on_missing", detail, pointer=f"/waits_on/{number}/text")
        return {"kind": "text"}
    if not thing.ref:
        detail = f"`ref` is missing. Send the id or handle of the {thing.kind}, or use kind `text`."
        raise Problem(422, "waits_on_missing", detail, pointer=f"/waits_on/{number}/ref")
    identity = ids[thing.kind, thing.ref]
    if not identity:
        detail = f"The project has no such {thing.kind}. Name an existing one, or use kind `text`."
        raise Problem(422, "waits_on_unknown", detail, pointer=f"/waits_on/{number}/ref")
    return {"kind": thing.kind, "ref": identity}


def reported(session: UUID, things: Sequence[WaitsOn]) -> list[dict[str, str]]:
    """Resolve reported references without queries, so that the order of delivery does not matter.

    An effect key becomes its id. Other references that are not ids stay unchanged.
    """
    result = []
    for thing in things:
        identity, handle = _parse_reference(session, thing) if thing.ref else (None, None)
        ref = str(identity) if identity is not None and handle is None else thing.ref
        result.append({"kind": thing.kind} | ({"ref": ref} if ref and thing.kind != "text" else {}))
    return result


def _parse_reference(session: UUID, thing: WaitsOn) -> tuple[UUID | None, int | None]:
    """Parse a reference into an id or the position of a handle."""
    ref = thing.ref or ""
    handle = _HANDLE.fullmatch(ref)
    if handle is not None and ref[0] == thing.kind[0]:
        return None, int(handle[1])
    with suppress(ValueError):
        if len(ref) in (32, 36):
            return UUID(ref), None
    return (derived(session, ref), None) if thing.kind == "effect" else (None, None)
