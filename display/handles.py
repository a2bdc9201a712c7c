"""Parse identities that people type: handles (e_12), UUIDs, keys."""

import re
from typing import Final
from uuid import UUID

from accounts.models import Project
from display.keyset_pagination import MAX_POSITION
from sessions.lookup import derive_session_id
from sessions.models import Session

_HANDLE: Final = re.compile(r"([estagmix])_([0-9]{1,19})", re.IGNORECASE)


def parse_handle(text: str) -> tuple[str, int] | None:
    """Parse `e_12` as ("e", 12); None for other text. One letter per kind of object."""
    match = _HANDLE.fullmatch(text.strip())
    if match is None or int(match[2]) > MAX_POSITION:
        return None
    return match[1].lower(), int(match[2])


def parse_position(text: str) -> int | None:
    """Parse a journal position or handle, digits grouped or not; None if invalid."""
    bare = re.sub(r"[\s\u202f\u00a0]", "", text)
    parsed = parse_handle(bare)
    if parsed is not None:
        return parsed[1]
    if not bare.isascii() or not bare.isdigit() or len(bare) > 19 or int(bare) > MAX_POSITION:
        return None
    return int(bare)


def parse_uuid(text: str) -> UUID | None:
    """Parse a UUID with or without hyphens; None if invalid."""
    bare = text.strip()
    if not re.fullmatch(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}", bare):
        return None
    return UUID(bare)


def find_session(project: Project, text: str) -> Session | None:
    """Load the session of `project` by handle, id or key."""
    text = text.strip()
    parsed = parse_handle(text)
    if parsed is not None and parsed[0] == "s":
        return project.sessions.filter(opened_position=parsed[1]).first()
    ids = [derive_session_id(project.id, text)]
    shaped = parse_uuid(text)
    if shaped is not None:
        ids.append(shaped)
    return project.sessions.filter(id__in=ids).first()
