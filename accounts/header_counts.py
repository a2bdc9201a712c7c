"""Project status in the layout of every page, in one query per page.

Higher apps own the parts. Each registers, when it is ready, how its part is read.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.expressions import Combinable
from django.utils.module_loading import import_string

from accounts.models import Project
from db.clock import now_us
from db.compiled_query import CompiledQuerySet

# Returns a column to read with a project's row, from its id and the time. Called once per process
# (db/compiled_query.py).
StatusColumn = Callable[[UUID, int], Combinable]


class ProjectStatus(NamedTuple):
    """What the layout shows of a project. `mode` is None before any policy."""

    waits: str = "0-0"  # number of pending requests, and the position of the newest
    mode: str | None = None
    has_stops: bool = False
    is_stopped: bool = False  # a stop covers the whole project
    stuck: int = 0  # problems that are neither cleared nor snoozed
    job_texts: str | None = None  # heartbeats of background jobs, for db/jobs.py
    position: int = 0  # a stable position of the journal; rows read later are not older

    @property
    def waiting(self) -> int:
        """Return the number of pending requests."""
        return int(self.waits.partition("-")[0])


def build_counts_mark(standing: ProjectStatus) -> str:
    """Return a mark of the navigation counts, which pages poll for changes."""
    return f"{standing.waits}-{standing.stuck}"


_parts: dict[str, str] = {}


def register_status_columns(**parts: str) -> None:
    """Register how parts of a ProjectStatus are read, by name. Apps call it when ready.

    A part is the path of a StatusColumn. Only a process that serves pages loads the module.
    """
    _parts.update(parts)


def load_project_status(request: Any) -> ProjectStatus:
    """Return the status of the request's project; read once per request."""
    status: ProjectStatus | None = getattr(request, "standing", None)
    if status is None:
        rows = _STANDING.rows(project=request.membership.project_id, now=now_us())
        status = request.standing = (
            ProjectStatus(**dict(zip(_parts, rows[0], strict=True))) if rows else ProjectStatus()
        )
    return status


def _query_status(project: UUID, now: int) -> "QuerySet[Any]":
    return Project.objects.filter(pk=project).values_list(
        *(import_string(part)(project, now) for part in _parts.values())
    )


_STANDING: Final = CompiledQuerySet(_query_status, project=UUID, now=int)
