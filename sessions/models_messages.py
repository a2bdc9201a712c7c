"""Messages, their read state and files, and the capacity of agents."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from sessions.models import Agent, Project, Session


class Message(models.Model):
    """A message to one agent or to all agents of a project.

    Its text is stored only in the body of its entry.
    """

    id = models.UUIDField(primary_key=True)  # derived from (project, source, entry id)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    recipient = models.ForeignKey(  # None: the shared inbox
        Agent, null=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    session = models.ForeignKey(
        Session, null=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    from_agent = models.ForeignKey(
        Agent, null=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    from_user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        on_delete=models.PROTECT,
        related_name="+",
        db_index=False,
    )
    in_reply_to = models.ForeignKey(
        "self", null=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    size = models.IntegerField()  # bytes of subject and body
    opened_position = models.BigIntegerField()  # of the entry that sent it: order and handle m_<n>
    sent_at_us = models.BigIntegerField()
    read_at_us = models.BigIntegerField(null=True)  # of an agent's inbox; shared: see Reading

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(from_agent__isnull=True) | Q(from_user__isnull=True),
                name="message_has_one_sender",
            ),
            models.CheckConstraint(
                condition=Q(recipient__isnull=False) | Q(read_at_us__isnull=True),
                name="message_to_all_is_read_by_each",
            ),
            models.CheckConstraint(condition=Q(size__gte=0), name="message_size_is_not_negative"),
        ]
        indexes = [
            models.Index(fields=["project", "recipient", "opened_position"], name="message_by_box"),
            models.Index(fields=["project", "opened_position"], name="message_by_opening"),
            models.Index(
                fields=["in_reply_to"],
                name="message_by_reply",
                condition=Q(in_reply_to__isnull=False),
            ),
            models.Index(
                fields=["recipient", "opened_position"],
                name="message_unread",
                condition=Q(read_at_us__isnull=True, recipient__isnull=False),
            ),
            models.Index(
                fields=["session", "opened_position"],
                name="message_by_session",
                condition=Q(session__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"m_{self.opened_position}"


class Reading(models.Model):
    """An agent has read a message of the shared inbox."""

    id = models.BigAutoField(primary_key=True)
    message = models.ForeignKey(
        Message, on_delete=models.PROTECT, related_name="readings", db_index=False
    )
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="+", db_index=False)
    read_at_us = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["message", "agent"], name="message_is_read_once_by_each"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.message_id} read by {self.agent_id}"


class Delivery(models.Model):
    """A message as a file in a folder: exported to the folder, or imported from it."""

    id = models.BigAutoField(primary_key=True)
    message = models.ForeignKey(Message, on_delete=models.PROTECT, related_name="+", db_index=False)
    directory = models.UUIDField()  # the id that the folder itself holds
    file = models.CharField(max_length=255)
    ended_at_us = models.BigIntegerField(null=True)  # when the file was found missing or archived

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["directory", "message"], name="delivery_is_one_file_of_a_directory"
            ),
            models.CheckConstraint(condition=~Q(file=""), name="delivery_has_a_file"),
        ]
        indexes = [
            models.Index(
                fields=["directory", "id"],
                name="delivery_open",
                condition=Q(ended_at_us__isnull=True),
            ),
            models.Index(fields=["directory", "file"], name="delivery_by_file"),
        ]

    def __str__(self) -> str:
        return self.file


class Capacity(models.Model):
    """An agent's latest report of its free capacity, for one session or for all."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="+", db_index=False)
    session = models.ForeignKey(
        Session, null=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    context_left_tokens = models.BigIntegerField(null=True)
    context_total_tokens = models.BigIntegerField(null=True)
    time_left_s = models.BigIntegerField(null=True)
    queue = models.BigIntegerField(null=True)  # length of the agent's queue
    reported_at_us = models.BigIntegerField()
    position = models.BigIntegerField()  # of the entry `capacity.reported`
    # Between these two, plans are answered with 429.
    paced_from_us = models.BigIntegerField(null=True)
    paced_until_us = models.BigIntegerField(null=True)
    pace_reason = models.CharField(max_length=16, default="", blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["agent", "session"],
                name="capacity_is_one_of_a_session",
                condition=Q(session__isnull=False),
            ),
            models.UniqueConstraint(
                fields=["agent"],
                name="capacity_is_one_of_an_agent",
                condition=Q(session__isnull=True),
            ),
            models.CheckConstraint(
                condition=Q(pace_reason__in=("", "context", "time", "queue")),
                name="capacity_paces_for_a_known_reason",
            ),
            models.CheckConstraint(
                condition=Q(pace_reason="", paced_from_us__isnull=True, paced_until_us__isnull=True)
                | Q(paced_from_us__isnull=False, paced_until_us__isnull=False) & ~Q(pace_reason=""),
                name="capacity_paces_from_and_until",
            ),
        ]
        indexes = [
            models.Index(
                fields=["agent", "paced_until_us"],
                name="capacity_paced",
                condition=Q(paced_until_us__isnull=False),
            ),
            models.Index(fields=["project", "reported_at_us"], name="capacity_by_time"),
        ]

    def __str__(self) -> str:
        return f"capacity of {self.agent_id}"
