"""Parses the `waits_on` references of a handoff: gates, messages, effects."""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

from api.schemas.working_state import WaitsOn
from db.ids import derive_uuid

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
