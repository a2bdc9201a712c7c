"""Saved queries that tell of new matches, and who hears of it beside their owner."""

from django.db import models
from django.db.models import Q

from approvals.models_notices import NoticeChannel
from inquiry.models_saved import SavedQuery
from journal.ids import uuid7
from sessions.models import Project


class Alert(models.Model):
    """There is one for a saved query while its alerts are on, or were stopped; turned off, there is none."""

    id = models.UUIDField(
        primary_key=True, default=uuid7
    )  # another each time that they are turned on
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    query = models.OneToOneField(SavedQuery, on_delete=models.CASCADE, related_name="alert")
    text = (
        models.TextField()
    )  # what is asked; the saved query may have been changed since the last look
    place = models.BigIntegerField()  # the journal position up to which it was looked at
    looked_at_us = models.BigIntegerField()  # as of when it was asked last
    looks = models.BigIntegerField(default=0)
    failures = models.IntegerField(default=0)  # in a row; such a look moves nothing else
    known = models.BinaryField(
        default=b""
    )  # positions of rows that were seen to match: 8 bytes each, seen last at end
    turned_on_at_us = models.BigIntegerField()
    told_position = models.BigIntegerField(
        null=True
    )  # the journal's entry that told of matches last
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
    """A channel that its owner chose to hear of a shared query; while the query is private nobody's channel counts."""

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
