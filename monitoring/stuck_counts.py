"""Stuck count for every page header."""

from typing import Final
from uuid import UUID

from django.db.models import Count, Exists, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from monitoring.models import StuckEpisode


def count_raised_episodes(project: UUID, now: int) -> Coalesce:
    """Count the episodes of `query_raised_episodes`, as a query expression."""
    raised = query_raised_episodes(project, now).order_by()
    return Coalesce(Subquery(raised.values("project").annotate(n=Count("id")).values("n")), 0)


def query_raised_episodes(project: UUID, now: int) -> "QuerySet[StuckEpisode]":
    """Return raised episodes that need somebody and are not snoozed.

    The board itself counts what is stuck now. S7 implies S2 and S5 implies S3: each item counts
    once, as the board shows it once. Not counted: requests, whose people were asked (S6), and
    effects that a worker can check (S4), unless the session has none (S1, S2 or S7).
    """
    open_episodes = StuckEpisode.objects.filter(
        project=project, cleared_us__isnull=True, raised_us__isnull=False
    )
    implied_by = {"S2": open_episodes.filter(rule="S7"), "S3": open_episodes.filter(rule="S5")}
    counted = open_episodes
    for rule, others in implied_by.items():
        counted = counted.exclude(rule=rule, subject__in=others.values("subject"))
    workerless = open_episodes.filter(rule__in=("S1", "S2", "S7"), session=OuterRef("session"))
    settles = Q(rule="S4", needs_person=False) & ~Exists(workerless)
    counted = counted.exclude(rule="S6").exclude(settles)
    return counted.filter(Q(snoozed_until_us__isnull=True) | Q(snoozed_until_us__lte=now))


# Rules about a session whose worker is gone, silent, looping or fenced. S4 is about an effect of
# unknown outcome, S6 about a request that people were asked about, S10 about an agent.
STALLED_RULES: Final = ("S1", "S2", "S3", "S5", "S7", "S8")


def query_stalled_episodes(project: UUID, now: int) -> "QuerySet[StuckEpisode]":
    """Return the raised episodes of sessions that need somebody and are not snoozed."""
    awake = Q(snoozed_until_us__isnull=True) | Q(snoozed_until_us__lte=now)
    return StuckEpisode.objects.filter(
        awake,
        project=project,
        session__isnull=False,
        rule__in=STALLED_RULES,
        cleared_us__isnull=True,
        raised_us__isnull=False,
    )
