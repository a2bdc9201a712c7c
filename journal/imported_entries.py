"""Imported entries: how they are marked, and their original clock.

An imported entry gets a new position and `received_us`. Its source and actor mark it as imported;
no agent's can look the same, because `gatebook` is no agent's name and no name contains a colon.
Its facts keep, under `origin`, its original position and server time, which pages show.
"""

import hashlib
from typing import Any, Final

import orjson

from journal.entries import SYSTEM_SOURCE, dump_sorted_json

_PREFIX: Final = f"{SYSTEM_SOURCE}/bundle:"
_ACTOR: Final = "bundle:"
_LONGEST: Final = 160  # the maximum length of a source


def imported_source(bundle: str, name: str) -> str:
    """Return the source of an entry imported from `bundle` (8 hex digits)."""
    qualified = f"{_PREFIX}{bundle}:{name}"
    if len(qualified) <= _LONGEST:
        return qualified
    return f"{qualified[: _LONGEST - 17]}~{hashlib.sha256(qualified.encode()).hexdigest()[:16]}"


def imported_actor(name: str) -> str:
    """Return the actor of an imported entry, distinct from all local ones."""
    return f"{_ACTOR}{name}"[:64]


def imported_facts(original: dict[str, Any], position: int, received_us: int) -> str:
    """Return the facts of an imported entry with its origin, as canonical JSON."""
    origin = {"position": position, "received_us": received_us}
    return dump_sorted_json({**original, "origin": origin})


def is_imported_source(source: str) -> bool:
    """True for the source of an imported entry."""
    return source.startswith(_PREFIX)


def read_bundle_prefix(source: str) -> str:
    """Return the beginning that the sources of all entries of the same bundle have."""
    return source[: len(_PREFIX) + 9]  # 8 hex digits and a colon


def original_received_us(source: str, facts: str, received_us: int) -> int:
    """Return when an entry was received, for an imported one at its origin."""
    return (
        int(orjson.loads(facts)["origin"]["received_us"])
        if is_imported_source(source)
        else received_us
    )
