"""How the current project stands: what the frame of every page says, in one query a page."""

from typing import Any, NamedTuple

from django.db.models import Count, Exists, Subquery

from journal.clock import now_us
from sessions.models import Project


class Standing(NamedTuple):
    """Requests that wait, the mode (None where nothing was ever put in force), and whether anything is stopped."""

    waiting: int
    mode: str | None
    has_stops: bool
    is_stopped: bool  # the whole of it


def standing_of(request: Any) -> Standing:
    """The standing of the project of a MemberRequest; read once and kept on the request."""
    known: Standing | None = getattr(request, "standing", None)
    if known is not None:
        return known
    project: Project = request.membership.project
    waiting = project.gates.filter(status="pending", decide_by_us__gte=now_us()).order_by()
    counted = waiting.values("project").annotate(n=Count("id")).values("n")
    mode = project.activations.filter(is_current=True).values("mode")[:1]
    stops = project.holds.filter(lifted_at_us__isnull=True)
    found = (
        Project.objects.filter(pk=project.pk)
        .values_list(Subquery(counted), Subquery(mode), Exists(stops), Exists(stops.filter(scope="project")))
        .first()
    )
    waits, in_mode, has_stops, is_stopped = found or (0, None, False, False)
    known = request.standing = Standing(waits or 0, in_mode, has_stops, is_stopped)
    return known
