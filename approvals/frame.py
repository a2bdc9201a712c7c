"""What the frame of every page says of approvals: how many requests wait, and the mode the project is in."""

from django.db.models import Count, Subquery
from django.db.models.functions import Coalesce

from approvals.models import Activation, Gate
from journal.clock import now_us
from sessions.models import Project


def waiting(project: Project) -> Coalesce:
    """How many requests wait in the project; one whose time has passed waits no more."""
    found = Gate.objects.filter(project=project, status="pending", decide_by_us__gte=now_us()).order_by()
    return Coalesce(Subquery(found.values("project").annotate(n=Count("id")).values("n")), 0)


def mode(project: Project) -> Subquery:
    """The mode of what is in force; NULL where nothing ever was."""
    return Subquery(Activation.objects.filter(project=project, is_current=True).values("mode")[:1])
