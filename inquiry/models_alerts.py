"""Alerts of saved queries and the channels they notify."""

from django.db import models
from django.db.models import Q

from approvals.models_notices import NoticeChannel
from inquiry.models_saved import SavedQuery
from journal.ids import uuid7
from sessions.models import Project


class Alert(models.Model):
    """Alerts of a saved query, on or stopped after failures. Turning them off deletes the row."""

    id = models.UUIDField(primary_key=True, default=uuid7)  # new each time alerts are turned on
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    query = models.OneToOneField(SavedQuery, on_delete=models.CASCADE, related_name="alert")
    text = models.TextField()  # query at the last check; the saved query may have changed since
    place = models.BigIntegerField()  # journal position of the last check
    looked_at_us = models.BigIntegerField()  # time of the last check
    looks = models.BigIntegerField(default=0)
    failures = models.IntegerField(default=0)  # in a row
    # Positions of rows known to match, 8 bytes each, most recent last.
    known = models.BinaryField(default=b"")
    turned_on_at_us = models.BigIntegerField()
    told_position = models.BigIntegerField(null=True)  # journal entry of the last report
    stopped_at_us = models.BigIntegerField(null=True)
    stopped_because = models.CharField(max_length=300, default="", blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(place__gte=0, looks__gte=0, failures__gte=0),
                name="alert_only_moves_forward",
            ),
            models.CheckConstraint(
                condition=Q(stopped_at_us__isnull=True, stopped_because="")
                | (Q(stopped_at_us__isnull=False) & ~Q(stopped_because="")),
                name="alert_that_is_stopped_says_why",
            ),
        ]
        indexes = [
            models.Index(
                fields=["failures", "looked_at_us"],
                name="alert_to_look_at",
                condition=Q(stopped_at_us__isnull=True),
            )
        ]

    def __str__(self) -> str:
        return f"alert {self.id}"


class AlertChannel(models.Model):
    """A channel that the owner chose for a shared query; ignored while the query is private."""

    id = models.BigAutoField(primary_key=True)
    alert = models.ForeignKey(
        Alert, on_delete=models.CASCADE, related_name="chosen", db_index=False
    )
    channel = models.ForeignKey(
        NoticeChannel, on_delete=models.PROTECT, related_name="+", db_index=False
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["alert", "channel"], name="alert_channel_is_chosen_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.alert_id} {self.channel_id}"
