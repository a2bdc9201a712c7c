"""Stored responses to commands, for idempotent replay."""

from django.db import models
from django.db.models import Q


class StoredResponse(models.Model):
    """The stored response to one idempotency key, pruned by age.

    The key in the journal remains as long as its entry.
    """

    id = models.BigAutoField(primary_key=True)
    project = models.UUIDField()
    source = models.CharField(max_length=160)
    key = models.CharField(max_length=64)
    status = models.SmallIntegerField()
    body = models.CharField(max_length=1024)  # JSON: status and ids only
    created_us = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "source", "key"], name="response_is_stored_once_per_key"
            ),
            models.CheckConstraint(
                condition=Q(status__gte=200, status__lte=299), name="response_is_a_success"
            ),
        ]
        indexes = [models.Index(fields=["created_us"], name="response_by_age")]

    def __str__(self) -> str:
        return f"{self.status} to {self.key}"
