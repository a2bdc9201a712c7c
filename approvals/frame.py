"""What the frame of every page says of approvals: how many requests wait, and the mode the project is in."""

from uuid import UUID

from django.db.models import Count, Subquery
from django.db.models.functions import Coalesce

from approvals.models import Activation, Gate


def waiting(project: UUID, now: int) -> Coalesce:
    """How many requests wait in the project; one whose time has passed waits no more."""
    found = Gate.objects.filter(project=project, status="pending", decide_by_us__gte=now).order_by()
    return Coalesce(Subquery(found.values("project").annotate(n=Count("id")).values("n")), 0)


def mode(project: UUID, _now: int) -> Subquery:
    """The mode of what is in force; NULL where nothing ever was."""
    return Subquery(Activation.objects.filter(project=project, is_current=True).values("mode")[:1])
