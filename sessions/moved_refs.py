"""Which refs git moves for what an agent named."""

from typing import Any
from uuid import UUID

from accounts import git_refs
from sessions.models import Session


def resolve_moved_refs(session: UUID, ref: str, arguments: Any) -> str:
    """Return what git moves for `ref`, as an effect stores it.

    HEAD is the branch that the arguments or the session name.
    """

    def branch() -> str:
        named = arguments.get("branch") if isinstance(arguments, dict) else None
        if isinstance(named, str) and named:
            return named
        return Session.objects.filter(id=session).values_list("branch", flat=True).first() or ""

    return " ".join(git_refs.parse_moved_refs(ref, branch))
