"""The stops that people set."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from journal.ids import uuid7
from ledger import states
from sessions.models import Project


class Hold(models.Model):
    """A stop of an effect, session, agent, tool or project, until lifted."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="holds", db_index=False
    )
    scope = models.CharField(max_length=7)
    # The id (32 hex) of the effect, session or agent, or the tool's name.
    subject = models.CharField(max_length=100, default="", blank=True)
    set_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    set_at_us = models.BigIntegerField()
    # The journal position of hold.set, whose body has the reason.
    opened_position = models.BigIntegerField()
    lifted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    lifted_at_us = models.BigIntegerField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "scope", "subject"],
                condition=Q(lifted_at_us__isnull=True),
                name="thing_is_held_once",
            ),
            models.CheckConstraint(
                condition=Q(scope__in=states.HOLD_SCOPES), name="hold_scope_is_known"
            ),
            models.CheckConstraint(
                condition=Q(scope="project", subject="") | (~Q(scope="project") & ~Q(subject="")),
                name="hold_names_what_it_stops",
            ),
            models.CheckConstraint(
                condition=Q(lifted_at_us__isnull=True, lifted_by__isnull=True)
                | Q(lifted_at_us__isnull=False, lifted_by__isnull=False),
                name="hold_is_lifted_by_a_person",
            ),
        ]

    def __str__(self) -> str:
        return f"stop of a {self.scope}"
