"""What a handoff waits on: gates, messages and effects by the names that agents have for them, as ids."""

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
_ROWS: Final[dict[str, Any]] = {"gate": Gate.objects, "message": Message.objects, "effect": Effect.objects}


def resolved(project: UUID, agent: UUID, session: UUID, things: Sequence[WaitsOn]) -> list[dict[str, str]]:
    """The things by kind and id, in order. An effect may be named by its key in the session.

    Problem 422 for a gate, message or effect that the project does not have, or that the agent may not see.
    """
    named: list[dict[str, str]] = []
    for kind, all_rows in _ROWS.items():
        wanted = [_names(session, thing) for thing in things if thing.kind == kind and thing.ref]
        if not wanted:
            continue
        ids = {known for known, _handle in wanted if known is not None}
        handles = {handle for _known, handle in wanted if handle is not None}
        rows = all_rows.filter(Q(id__in=ids) | Q(opened_position__in=handles), project=project)
        found = dict(rows.values_list("id", "opened_position"))
        if kind == "message":
            found = {known: at for known, at in found.items() if messages.answerable(project, agent, known)}
        by_handle = {position: known for known, position in found.items()}
        for thing in things:
            if thing.kind == kind and thing.ref:
                known, handle = _names(session, thing)
                known = by_handle.get(handle) if handle is not None else known if known in found else None
                named.append({"kind": kind, "of": thing.ref, "ref": str(known) if known else ""})
    ids_of = {(one["kind"], one["of"]): one["ref"] for one in named}
    return [_one(number, thing, ids_of) for number, thing in enumerate(things)]


def _one(number: int, thing: WaitsOn, ids: dict[tuple[str, str], str]) -> dict[str, str]:
    if thing.kind == "text":
        if not thing.text:
            detail = "Say in `text` what is waited for, or name a gate, message or effect."
            raise Problem(422, "waits_on_missing", detail, pointer=f"/waits_on/{number}/text")
        return {"kind": "text"}
    if not thing.ref:
        detail = f"Name the {thing.kind} in `ref`, by id or handle, or wait on a text."
        raise Problem(422, "waits_on_missing", detail, pointer=f"/waits_on/{number}/ref")
    known = ids[thing.kind, thing.ref]
    if not known:
        detail = f"There is no such {thing.kind} here; name one that is there, or say in words what is waited for."
        raise Problem(422, "waits_on_unknown", detail, pointer=f"/waits_on/{number}/ref")
    return {"kind": thing.kind, "ref": known}


def reported(session: UUID, things: Sequence[WaitsOn]) -> list[dict[str, str]]:
    """As `resolved`, of what was reported: nothing is looked up, so that the order of delivery does not matter.

    An effect's key gives its id; whatever else is no id stays as it was told.
    """
    found = []
    for thing in things:
        known, handle = _names(session, thing) if thing.ref else (None, None)
        ref = str(known) if known is not None and handle is None else thing.ref
        found.append({"kind": thing.kind} | ({"ref": ref} if ref and thing.kind != "text" else {}))
    return found


def _names(session: UUID, thing: WaitsOn) -> tuple[UUID | None, int | None]:
    """What a reference can be: an id, or the position that a handle holds."""
    ref = thing.ref or ""
    handle = _HANDLE.fullmatch(ref)
    if handle is not None and ref[0] == thing.kind[0]:
        return None, int(handle[1])
    with suppress(ValueError):
        if len(ref) in (32, 36):
            return UUID(ref), None
    return (derived(session, ref), None) if thing.kind == "effect" else (None, None)
