"""Notification channels and notifications (due, sent, quiet or failed)."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from accounts.models import Project
from approvals.gates import statuses
from db.ids import new_uuid7


class NotificationChannel(models.Model):
    """An address that is notified about a project.

    The secret of a webhook is derived from its id, never stored.
    """

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="notification_channels"
    )
    kind = models.CharField(max_length=7)
    # What a webhook's body is: Gatebook's own JSON object, or a CloudEvent around it.
    body_form = models.CharField(max_length=11, default="plain")
    target = models.CharField(max_length=300)  # an e-mail address or a URL
    # Owner of the address: also notified of decisions on their own requests and votes.
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    # A gate waits for approval, or no eligible person has opened it.
    requests = models.BooleanField(default=True)
    rulings = models.BooleanField(default=True)  # decided by people, or withdrawn by the agent
    expiries = models.BooleanField(default=True)
    # Violations: without approval, twice, under a reused key.
    violations = models.BooleanField(default=True)
    stuck = models.BooleanField(default=True)  # stuck alerts and their end
    # Applies to gates; other topics have no risk.
    minimum_risk = models.CharField(max_length=8, default="low")
    enabled = models.BooleanField(default=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    created_at_us = models.BigIntegerField()
    removed_at_us = models.BigIntegerField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "kind", "target"],
                condition=Q(removed_at_us__isnull=True),
                name="notification_channel_is_unique",
            ),
            models.CheckConstraint(
                condition=Q(kind__in=statuses.CHANNEL_KINDS),
                name="notification_channel_kind_is_known",
            ),
            models.CheckConstraint(
                condition=Q(body_form="plain") | Q(kind="webhook", body_form="cloudevents"),
                name="notification_channel_form_is_known",
            ),
            models.CheckConstraint(
                condition=~Q(target=""), name="notification_channel_has_a_target"
            ),
            models.CheckConstraint(
                condition=Q(minimum_risk__in=statuses.RISKS),
                name="notification_channel_risk_is_known",
            ),
            models.CheckConstraint(
                condition=Q(removed_at_us__isnull=True) | Q(enabled=False),
                name="notification_channel_removed_is_silent",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.shown}"

    @property
    def shown(self) -> str:
        """The target for pages; a URL's path is cut, since it is often a secret."""
        if self.kind == "email":
            return self.target
        path = self.target.partition("://")[2].partition("/")[2]
        return f"{self.host}/…{path[-4:]}" if len(path) > 12 else f"{self.host}/{path}"

    @property
    def host(self) -> str:
        """The host of the target, which reveals neither a person nor a secret."""
        if self.kind == "email":
            return self.target.rpartition("@")[2]
        return self.target.partition("://")[2].partition("/")[0].rpartition("@")[2]


class Notification(models.Model):
    """A notification for one channel; receivers can deduplicate by `key`."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    channel = models.ForeignKey(
        NotificationChannel, on_delete=models.PROTECT, related_name="notifications", db_index=False
    )
    topic = models.CharField(max_length=17)
    key = models.CharField(max_length=160)
    position = models.BigIntegerField()  # of the entry that caused it
    gate = models.UUIDField(null=True)
    state = models.CharField(max_length=6, default="due")
    due_at_us = models.BigIntegerField()
    tries = models.IntegerField(default=0)
    sent_at_us = models.BigIntegerField(null=True)
    to_file = models.BooleanField(default=False)  # written to a file: no mail server configured
    last_error = models.CharField(max_length=200, default="", blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["channel", "key"], name="notification_is_stored_once"),
            models.CheckConstraint(
                condition=Q(topic__in=statuses.NOTIFICATION_TOPICS),
                name="notification_topic_is_known",
            ),
            models.CheckConstraint(
                condition=Q(state__in=statuses.NOTIFICATION_STATES),
                name="notification_state_is_known",
            ),
            models.CheckConstraint(
                condition=Q(state="sent", sent_at_us__isnull=False)
                | (~Q(state="sent") & Q(sent_at_us__isnull=True)),
                name="notification_sent_has_a_time",
            ),
            models.CheckConstraint(
                condition=Q(tries__gte=0), name="notification_tries_are_counted"
            ),
        ]
        indexes = [
            models.Index(fields=["due_at_us"], name="notification_due", condition=Q(state="due")),
            models.Index(
                fields=["gate"], name="notification_of_gate", condition=Q(gate__isnull=False)
            ),
            models.Index(fields=["channel", "id"], name="notification_by_channel"),
        ]

    def __str__(self) -> str:
        return self.key
