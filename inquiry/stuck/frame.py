"""What the frame of every page says of the watch: how much is raised, and how late our own chores are."""

from uuid import UUID

from django.db.models import Count, Q, Subquery
from django.db.models.functions import Coalesce

from inquiry.models import StuckTransition
from inquiry.stuck import notices, pulses
from journal import beating
from sessions import standing


def raised(project: UUID, now: int) -> Coalesce:
    """How many episodes are raised, neither cleared nor snoozed. The board itself counts what is stuck now.

    One thing is counted once, as it is shown once: an orphan is dead by then, and what loops does not progress.
    """
    open_ones = StuckTransition.objects.filter(project=project, cleared_us__isnull=True, raised_us__isnull=False)
    told = {"S2": open_ones.filter(rule="S7"), "S3": open_ones.filter(rule="S5")}
    once = open_ones
    for rule, others in told.items():
        once = once.exclude(rule=rule, subject__in=others.values("subject"))
    awake = once.filter(Q(snoozed_until_us__isnull=True) | Q(snoozed_until_us__lte=now)).order_by()
    return Coalesce(Subquery(awake.values("project").annotate(n=Count("id")).values("n")), 0)


def tell() -> None:
    """Say how the frame reads its part, who keeps the pulses, and who hears of what is raised. Called once."""
    standing.tell(stuck=raised, pulses=pulses.in_words)
    beating.keep(pulses.heard, pulses.ended)
    notices.register()
