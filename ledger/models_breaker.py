"""The circuit breaker of a tool."""

from django.db import models
from django.db.models import Q

from sessions.models import Project


class Breaker(models.Model):
    """Consecutive failures of a tool, and its pause. No row before its first failure."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    tool = models.CharField(max_length=100)
    failures = models.IntegerField(default=0)  # in a row
    opened_at_us = models.BigIntegerField(null=True)  # start of the pause; null: not paused
    until_us = models.BigIntegerField(null=True)  # from then on one trial plan is allowed
    trial = models.UUIDField(null=True)  # the effect of that trial
    # When another trial is allowed, if this one has no outcome by then.
    trial_until_us = models.BigIntegerField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["project", "tool"], name="breaker_is_one_of_a_tool"),
            models.CheckConstraint(
                condition=Q(failures__gte=0), name="breaker_failures_are_counted"
            ),
            models.CheckConstraint(
                condition=Q(opened_at_us__isnull=True, until_us__isnull=True)
                | Q(opened_at_us__isnull=False, until_us__isnull=False),
                name="breaker_that_opened_has_an_end",
            ),
            models.CheckConstraint(
                condition=Q(trial__isnull=True, trial_until_us__isnull=True)
                | Q(trial__isnull=False, trial_until_us__isnull=False, opened_at_us__isnull=False),
                name="breaker_tries_while_open",
            ),
        ]

    def __str__(self) -> str:
        return f"breaker of {self.tool}"
