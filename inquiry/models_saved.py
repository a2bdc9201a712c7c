"""Saved queries."""

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from journal.ids import uuid7
from sessions.models import Project


class SavedQuery(models.Model):
    """A query that a person saved. If shared, all members see it; only its owner can change it."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="saved_queries", db_index=False
    )
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=80)
    text = models.TextField()
    shared = models.BooleanField(default=False)
    saved_position = models.BigIntegerField()  # Position of the latest journal entry about it.
    created_at_us = models.BigIntegerField()
    changed_at_us = models.BigIntegerField()
    version = models.IntegerField(default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "owner", "name"], name="saved_query_name_is_unique_for_its_owner"
            ),
            models.CheckConstraint(
                condition=~Q(name="") & ~Q(text=""), name="saved_query_has_a_name_and_a_text"
            ),
            models.CheckConstraint(
                condition=Q(version__gte=1, changed_at_us__gte=F("created_at_us")),
                name="saved_query_changes_after_it_was_saved",
            ),
        ]
        indexes = [
            models.Index(
                fields=["project", "name"], name="saved_query_shared", condition=Q(shared=True)
            )
        ]

    def __str__(self) -> str:
        return self.name
