"""The tools that an operator declares."""

from django.db import models
from django.db.models import Q

from journal.ids import uuid7
from ledger import states
from sessions.models import Project


class Tool(models.Model):
    """An operator's declaration of a tool; undeclared means opaque."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="tools", db_index=False
    )
    name = models.CharField(max_length=100)
    tool_class = models.CharField(max_length=11, default="opaque")
    reversibility = models.CharField(max_length=12, default="irreversible")
    deadline_s = models.IntegerField(default=states.DEFAULT_DEADLINE_S)
    request_lifetime_s = models.IntegerField(default=states.DEFAULT_REQUEST_LIFETIME_S)
    # How long the remote deduplicates our key; 0: not declared.
    key_window_s = models.IntegerField(default=0)
    probe = models.BooleanField(default=False)  # the outcome can be probed
    # What a compensation needs: our key, the remote's reference, or "" for none possible.
    undo = models.CharField(max_length=9, default="", blank=True)
    max_attempts = models.IntegerField(default=states.DEFAULT_MAX_ATTEMPTS)
    max_probes = models.IntegerField(default=states.DEFAULT_MAX_PROBES)
    description = models.CharField(max_length=300, default="", blank=True)
    breaker_failures = models.IntegerField(null=True)  # consecutive failures that pause its plans
    breaker_pause_s = models.IntegerField(null=True)
    declared_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "name"], name="tool_name_is_unique_in_project"
            ),
            models.CheckConstraint(
                condition=Q(breaker_failures__isnull=True, breaker_pause_s__isnull=True)
                | Q(
                    breaker_failures__isnull=False,  # a CHECK accepts unknown values: NULL > 0
                    breaker_failures__gt=0,
                    breaker_pause_s__isnull=False,
                    breaker_pause_s__gt=0,
                ),
                name="tool_breaker_is_whole",
            ),
            models.CheckConstraint(
                condition=Q(tool_class__in=states.TOOL_CLASSES), name="tool_class_is_known"
            ),
            models.CheckConstraint(
                condition=Q(reversibility__in=states.REVERSIBILITIES),
                name="tool_reversibility_is_known",
            ),
            models.CheckConstraint(
                condition=Q(deadline_s__gt=0, request_lifetime_s__gt=0),
                name="tool_times_are_positive",
            ),
            models.CheckConstraint(
                condition=Q(key_window_s__gte=0, max_attempts__gte=1, max_probes__gte=1),
                name="tool_window_and_counts_are_numbers",
            ),
            models.CheckConstraint(condition=Q(undo__in=states.UNDOES), name="tool_undo_is_known"),
        ]

    def __str__(self) -> str:
        return self.name
