"""Reading what people type as an identity: handles (e_12), UUIDs, keys."""

import re
from typing import Final
from uuid import UUID

from inquiry.keyset import MAX_POSITION
from sessions.models import Project, Session
from sessions.references import identity

_HANDLE: Final = re.compile(r"([estagmix])_([0-9]{1,19})", re.IGNORECASE)


def handle(text: str) -> tuple[str, int] | None:
    """`e_12` as ("e", 12); None for anything else. Effects, sessions, tasks, artifacts, gates, and so on."""
    match = _HANDLE.fullmatch(text.strip())
    if match is None or int(match[2]) > MAX_POSITION:
        return None
    return match[1].lower(), int(match[2])


def as_position(text: str) -> int | None:
    """A journal position written by a person, digits grouped or not, bare or as a handle; None when it is none."""
    bare = re.sub(r"[\s\u202f\u00a0]", "", text)
    found = handle(bare)
    if found is not None:
        return found[1]
    if not bare.isascii() or not bare.isdigit() or len(bare) > 19 or int(bare) > MAX_POSITION:
        return None
    return int(bare)


def as_uuid(text: str) -> UUID | None:
    """A UUID with or without hyphens; None when it is none."""
    bare = text.strip()
    if not re.fullmatch(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}", bare):
        return None
    return UUID(bare)


def session(project: Project, text: str) -> Session | None:
    """The session of `project` that a handle, an id or a key names."""
    text = text.strip()
    found = handle(text)
    if found is not None and found[0] == "s":
        return project.sessions.filter(opened_position=found[1]).first()
    ids = [identity(project.id, text)]
    shaped = as_uuid(text)
    if shaped is not None:
        ids.append(shaped)
    return project.sessions.filter(id__in=ids).first()
