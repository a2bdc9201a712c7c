"""How the current project stands: what the frame of every page says, in one query a page.

The rooms above own what it is made of; each tells, when it is made ready, how its part is read.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from django.db.models.expressions import Combinable

from sessions.models import Project

Part = Callable[[Project], Combinable]  # what to read beside the project's row


class Standing(NamedTuple):
    """Requests that wait, the mode (None where nothing was ever put in force), and whether anything is stopped."""

    waiting: int = 0
    mode: str | None = None
    has_stops: bool = False
    is_stopped: bool = False  # the whole of it
    stuck: int = 0  # what was raised and is neither cleared nor snoozed
    pulses: str | None = None  # of our own chores, as journal/beating.py reads them


_parts: dict[str, Part] = {}


def tell(**parts: Part) -> None:
    """Say how parts of a Standing are read, by name. Called once by a room above, when it is made ready."""
    _parts.update(parts)


def standing_of(request: Any) -> Standing:
    """The standing of the project of a MemberRequest; read once and kept on the request."""
    known: Standing | None = getattr(request, "standing", None)
    if known is None:
        project: Project = request.membership.project
        read = {name: part(project) for name, part in _parts.items()}
        values = Project.objects.filter(pk=project.pk).values_list(*read.values()).first() or ()
        known = request.standing = Standing(**dict(zip(read, values, strict=False)))
    return known
