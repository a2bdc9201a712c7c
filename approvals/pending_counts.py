"""Sub-queries for the page header: pending requests and mode."""

from uuid import UUID

from django.db.models import Count, Max, QuerySet, Subquery, TextField, Value
from django.db.models.functions import Cast, Coalesce, Concat

from approvals.models import Activation, Gate
from ledger.states import REVERSIBILITIES


def select_pending_gates(project: UUID, now: int) -> QuerySet[Gate]:
    """Return the project's pending requests whose deadline has not passed."""
    gates = Gate.objects.filter(project=project, status="pending", decide_by_us__gte=now)
    # Naming every reversibility lets the query use an index that covers the count.
    return gates.filter(reversibility__in=REVERSIBILITIES)


def build_pending_gates_subquery(project: UUID, now: int) -> Coalesce:
    """Return the count of pending requests and the newest position, as in 5-8012."""
    text = TextField()
    both = Concat(
        Cast(Count("*"), text), Value("-"), Cast(Max("opened_position"), text), output_field=text
    )
    counts = (
        select_pending_gates(project, now)
        .order_by()
        .values("project")
        .annotate(both=both)
        .values("both")
    )
    return Coalesce(Subquery(counts, output_field=text), Value("0-0"), output_field=text)


def build_mode_subquery(project: UUID, _now: int) -> Subquery:
    """Return the mode of the active policy; NULL where none was ever active."""
    return Subquery(Activation.objects.filter(project=project, is_current=True).values("mode")[:1])
