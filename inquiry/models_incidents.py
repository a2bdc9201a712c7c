"""Incidents with members and entries. Titles and notes are journal bodies and can be erased."""

from typing import Final

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from journal.ids import uuid7
from sessions.models import Project

STATES: Final = ("open", "contained", "closed")
MEMBERS: Final = ("session", "effect", "gate", "entry")


class Incident(models.Model):
    """An incident with its state and owner. Handle: i_<opened_position>."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="incidents", db_index=False
    )
    opened_position = models.BigIntegerField()  # journal position of incident.opened
    title_position = models.BigIntegerField()  # … of the entry with the current title
    state = models.CharField(max_length=9, default="open")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    opened_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    opened_at_us = models.BigIntegerField()
    changed_at_us = models.BigIntegerField()  # by any entry: note, member, state
    closed_at_us = models.BigIntegerField(null=True)
    version = models.IntegerField(default=1)  # rises with title, state and owner

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(state__one_of=list(STATES)), name="incident_state_is_known"
            ),
            models.CheckConstraint(
                condition=Q(state="closed", closed_at_us__isnull=False)
                | (~Q(state="closed") & Q(closed_at_us__isnull=True)),
                name="incident_is_closed_at_a_time",
            ),
            models.CheckConstraint(
                condition=Q(changed_at_us__gte=F("opened_at_us")),
                name="incident_changes_after_it_was_opened",
            ),
            models.CheckConstraint(
                condition=Q(title_position__gte=F("opened_position")),
                name="incident_title_is_in_the_journal",
            ),
            models.CheckConstraint(condition=Q(version__gte=1), name="incident_version_counts_up"),
        ]
        indexes = [models.Index(fields=["project", "opened_position"], name="incident_by_opening")]

    def __str__(self) -> str:
        return f"i_{self.opened_position}"


class IncidentMember(models.Model):
    """A session, effect, gate or journal entry that is, or was, a member of an incident."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    incident = models.ForeignKey(
        Incident, on_delete=models.PROTECT, related_name="members", db_index=False
    )
    kind = models.CharField(max_length=7)
    number = models.BigIntegerField()  # number of its handle; the position of an entry
    added_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    added_at_us = models.BigIntegerField()
    added_position = models.BigIntegerField()  # of incident.joined, whose body has the reason
    removed_at_us = models.BigIntegerField(null=True)
    removed_position = models.BigIntegerField(null=True)  # … of incident.left

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["incident", "kind", "number"],
                condition=Q(removed_position__isnull=True),
                name="incident_member_is_there_once",
            ),
            models.CheckConstraint(
                condition=Q(kind__one_of=list(MEMBERS)), name="incident_member_kind_is_known"
            ),
            models.CheckConstraint(
                condition=Q(removed_at_us__isnull=True, removed_position__isnull=True)
                | Q(
                    removed_at_us__isnull=False,
                    removed_position__isnull=False,
                    removed_at_us__gte=F("added_at_us"),
                    removed_position__gt=F("added_position"),
                ),
                name="incident_member_leaves_after_it_joined",
            ),
        ]
        indexes = [
            models.Index(
                fields=["project", "kind", "number"],
                name="incident_of_a_member",
                condition=Q(removed_position__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"


class IncidentEntry(models.Model):
    """The journal position of one entry in an incident's history."""

    id = models.BigAutoField(primary_key=True)
    incident = models.ForeignKey(
        Incident, on_delete=models.PROTECT, related_name="entries", db_index=False
    )
    position = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["incident", "position"], name="incident_entry_is_listed_once"
            ),
        ]

    def __str__(self) -> str:
        return f"entry {self.position}"
