"""How the current project stands: what the frame of every page says, in one query a page.

The rooms above own what it is made of; each tells, when it is made ready, how its part is read.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.expressions import Combinable

from journal import horizon
from journal.clock import now_us
from journal.compiled import Compiled
from sessions.models import Project

# What to read beside a project's row, from its id and the present moment. Asked once a process (journal/compiled.py).
Part = Callable[[UUID, int], Combinable]


class Standing(NamedTuple):
    """Requests that wait, the mode (None where nothing was ever put in force), and whether anything is stopped."""

    waits: str = "0-0"  # how many requests, and the position of the newest
    mode: str | None = None
    has_stops: bool = False
    is_stopped: bool = False  # the whole of it
    stuck: int = 0  # what was raised and is neither cleared nor snoozed
    pulses: str | None = None  # of our own chores, as journal/beating.py reads them
    position: int = 0  # the last of the journal: whatever is read after this is not older

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return int(self.waits.partition("-")[0])


def counts_mark(standing: Standing) -> str:
    """Names the counts of the rail, for whatever page polls for them."""
    return f"{standing.waits}-{standing.stuck}"


_parts: dict[str, Part] = {"position": lambda _project, _now: horizon.as_column()}


def tell(**parts: Part) -> None:
    """Say how parts of a Standing are read, by name. Called once by a room above, when it is made ready."""
    _parts.update(parts)


def standing_of(request: Any) -> Standing:
    """The standing of the project of a MemberRequest; read once and kept on the request."""
    known: Standing | None = getattr(request, "standing", None)
    if known is None:
        found = _STANDING.rows(project=request.membership.project_id, now=now_us())
        known = request.standing = Standing(**dict(zip(_parts, found[0], strict=True))) if found else Standing()
    return known


def _read(project: UUID, now: int) -> "QuerySet[Any]":
    return Project.objects.filter(pk=project).values_list(*(part(project, now) for part in _parts.values()))


_STANDING: Final = Compiled(_read, project=UUID, now=int)
