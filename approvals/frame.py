"""What the frame of every page says of approvals: how many requests wait, and the mode the project is in."""

from uuid import UUID

from django.db.models import Count, Max, QuerySet, Subquery, TextField, Value
from django.db.models.functions import Cast, Coalesce, Concat

from approvals.models import Activation, Gate
from ledger.states import REVERSIBILITIES


def waiting(project: UUID, now: int) -> QuerySet[Gate]:
    """The requests that wait in the project; one whose time has passed waits no more."""
    found = Gate.objects.filter(project=project, status="pending", decide_by_us__gte=now)
    # Every kind of them is named for the sake of the index, which holds all that a count asks for.
    return found.filter(reversibility__in=REVERSIBILITIES)


def waits(project: UUID, now: int) -> Coalesce:
    """How many requests wait in the project, and the newest's position, as one text: 5-8012. They are walked once."""
    text = TextField()
    both = Concat(
        Cast(Count("*"), text), Value("-"), Cast(Max("opened_position"), text), output_field=text
    )
    counted = waiting(project, now).order_by().values("project").annotate(both=both).values("both")
    return Coalesce(Subquery(counted, output_field=text), Value("0-0"), output_field=text)


def mode(project: UUID, _now: int) -> Subquery:
    """The mode of what is in force; NULL where nothing ever was."""
    return Subquery(Activation.objects.filter(project=project, is_current=True).values("mode")[:1])
