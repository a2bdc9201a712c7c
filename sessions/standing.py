"""Project status in the layout of every page, in one query per page.

Higher apps own the parts. Each registers, when it is ready, how its part is read.
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

# Returns a column to read with a project's row, from its id and the time. Called once per process
# (journal/compiled.py).
Part = Callable[[UUID, int], Combinable]


class Standing(NamedTuple):
    """What the layout shows of a project. `mode` is None before any policy."""

    waits: str = "0-0"  # number of pending requests, and the position of the newest
    mode: str | None = None
    has_stops: bool = False
    is_stopped: bool = False  # a stop covers the whole project
    stuck: int = 0  # problems that are neither cleared nor snoozed
    pulses: str | None = None  # heartbeats of background jobs, as journal/beating.py reads them
    position: int = 0  # the journal's last position; rows read later are not older

    @property
    def waiting(self) -> int:
        """Return the number of pending requests."""
        return int(self.waits.partition("-")[0])


def counts_mark(standing: Standing) -> str:
    """Return a mark of the navigation counts, which pages poll for changes."""
    return f"{standing.waits}-{standing.stuck}"


_parts: dict[str, Part] = {"position": lambda _project, _now: horizon.as_column()}


def tell(**parts: Part) -> None:
    """Register how parts of a Standing are read, by name. Apps call it when ready."""
    _parts.update(parts)


def standing_of(request: Any) -> Standing:
    """Return the status of the request's project; read once per request."""
    status: Standing | None = getattr(request, "standing", None)
    if status is None:
        rows = _STANDING.rows(project=request.membership.project_id, now=now_us())
        status = request.standing = (
            Standing(**dict(zip(_parts, rows[0], strict=True))) if rows else Standing()
        )
    return status


def _query_status(project: UUID, now: int) -> "QuerySet[Any]":
    return Project.objects.filter(pk=project).values_list(
        *(part(project, now) for part in _parts.values())
    )


_STANDING: Final = Compiled(_query_status, project=UUID, now=int)
