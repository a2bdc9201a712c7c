"""Entries that came in a bundle: what tells them from this book's own, and the clock of the book they come from.

An entry of another book is stored anew: its position and `received_us` are this book's, and its source and actor say
that a bundle brought it, which no agent's can (`gatebook` is no agent's name, and none holds a colon). What the book of
origin had stands in its facts under `origin`: position, and the time by its server's clock, which pages go by.
"""

import hashlib
from typing import Any, Final

import orjson

from journal.entries import SYSTEM_SOURCE

_PREFIX: Final = f"{SYSTEM_SOURCE}/bundle:"
_ACTOR: Final = "bundle:"
_LONGEST: Final = 160  # of a source


def source(bundle: str, name: str) -> str:
    """The source of an entry that the bundle called `bundle` (8 hex characters) brought, of the source it had there."""
    qualified = f"{_PREFIX}{bundle}:{name}"
    if len(qualified) <= _LONGEST:
        return qualified
    return f"{qualified[: _LONGEST - 17]}~{hashlib.sha256(qualified.encode()).hexdigest()[:16]}"


def actor(name: str) -> str:
    """Who acted, as the book of origin calls them: nobody of this one, whatever they are called here."""
    return f"{_ACTOR}{name}"[:64]


def facts(original: dict[str, Any], position: int, received_us: int) -> str:
    """The facts of an entry with where the book of origin has it, as canonical JSON."""
    origin = {"position": position, "received_us": received_us}
    return orjson.dumps({**original, "origin": origin}, option=orjson.OPT_SORT_KEYS).decode()


def was_brought(source: str) -> bool:
    """True for the source of an entry that a bundle brought."""
    return source.startswith(_PREFIX)


def received_us(source: str, facts: str, received_us: int) -> int:
    """When the book that an entry was written for received it: of one from a bundle, the book of origin."""
    return int(orjson.loads(facts)["origin"]["received_us"]) if was_brought(source) else received_us
