"""Saved queries."""

from typing import Final

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from accounts.models import Project
from db.ids import new_uuid7
from investigation.fulltext.sql import RowIdField, WordsField
from ledger.models import Effect
from notifications.models import NotificationChannel
from sessions.models import Session


class SavedQuery(models.Model):
    """A query that a person saved. If shared, all members see it; only its owner can change it."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
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


class Alert(models.Model):
    """Alerts of a saved query, on or stopped after failures. Turning them off deletes the row."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)  # new each time alerts are turned on
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    query = models.OneToOneField(SavedQuery, on_delete=models.CASCADE, related_name="alert")
    text = models.TextField()  # query at the last check; the saved query may have changed since
    place = models.BigIntegerField()  # journal position of the last check
    checked_at_us = models.BigIntegerField()  # time of the last check
    checks = models.BigIntegerField(default=0)
    failures = models.IntegerField(default=0)  # in a row
    # Positions of rows known to match, 8 bytes each, most recent last.
    matched_positions = models.BinaryField(default=b"")
    turned_on_at_us = models.BigIntegerField()
    reported_position = models.BigIntegerField(null=True)  # journal entry of the last report
    stopped_at_us = models.BigIntegerField(null=True)
    stopped_because = models.CharField(max_length=300, default="", blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(place__gte=0, checks__gte=0, failures__gte=0),
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
                fields=["failures", "checked_at_us"],
                name="alert_due_for_check",
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
        NotificationChannel, on_delete=models.PROTECT, related_name="+", db_index=False
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["alert", "channel"], name="alert_channel_is_chosen_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.alert_id} {self.channel_id}"


FORMATS: Final = {
    "csv": "CSV: a table for spreadsheets",
    "ndjson": "NDJSON: one JSON object per line",
    "bundle": "Bundle: both, with the query, the position and their hashes, as a zip file",
}
EXPORT_STATES: Final = ("waiting", "running", "done", "failed", "gone")


class Export(models.Model):
    """The results of a query as of one journal position, as one file."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="exports", db_index=False
    )
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    text = models.TextField()  # the query with ages replaced by times
    format = models.CharField(max_length=6)
    columns = models.CharField(max_length=600, default="", blank=True)  # names; empty for all
    position = models.BigIntegerField()  # rows opened later are not included
    state = models.CharField(max_length=7, default="waiting")
    tries = models.IntegerField(default=0)
    rows_done = models.BigIntegerField(default=0)
    rows_in_all = models.BigIntegerField(null=True)  # counted at the start
    size = models.BigIntegerField(null=True)  # of the file, in bytes
    sha256 = models.CharField(max_length=64, default="", blank=True)
    error = models.CharField(max_length=300, default="", blank=True)
    asked_at_us = models.BigIntegerField()
    heartbeat_at_us = models.BigIntegerField(null=True)  # last heartbeat of the writer
    ended_at_us = models.BigIntegerField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(format__one_of=list(FORMATS)), name="export_format_is_known"
            ),
            models.CheckConstraint(
                condition=Q(state__one_of=list(EXPORT_STATES)), name="export_state_is_known"
            ),
            models.CheckConstraint(condition=~Q(text=""), name="export_has_a_query"),
            models.CheckConstraint(
                condition=~Q(state="done")
                | Q(size__isnull=False, ended_at_us__isnull=False) & ~Q(sha256=""),
                name="export_that_is_done_has_a_file",
            ),
        ]
        indexes = [
            models.Index(fields=["project", "asked_by", "asked_at_us"], name="export_by_person"),
            models.Index(
                fields=["asked_at_us"],
                name="export_unfinished",
                condition=Q(state__in=["waiting", "running"]),
            ),
            models.Index(
                fields=["ended_at_us"], name="export_to_be_removed", condition=Q(state="done")
            ),
        ]

    def __str__(self) -> str:
        return f"export {self.id}"


class ImportedBundle(models.Model):
    """One imported file: hash, origin and cut."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    session = models.OneToOneField(Session, on_delete=models.PROTECT, related_name="+")
    sha256 = models.CharField(max_length=64)  # of the file
    version = models.IntegerField()  # of the format
    document = models.JSONField()  # parts without a table: schema.UNMAPPED_PARTS
    cut_position = models.BigIntegerField()  # in the journal of origin
    cut_us = models.BigIntegerField()  # server time at the origin
    imported_us = models.BigIntegerField()
    position = models.BigIntegerField()  # journal position of admin.bundle_imported

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["sha256"], name="bundle_is_imported_once"),
            models.CheckConstraint(
                condition=Q(version__gte=1), name="bundle_versions_start_at_one"
            ),
        ]

    def __str__(self) -> str:
        return f"bundle {self.sha256[:8]}"


class ImportedGate(models.Model):
    """A gate of another installation with its votes. It cannot be voted on or used."""

    id = models.UUIDField(primary_key=True)  # derived from the project and the original id
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    effect = models.ForeignKey(Effect, on_delete=models.PROTECT, related_name="+")
    opened_position = models.BigIntegerField()  # of the imported gate.requested: the handle g_<n>
    document = models.JSONField()  # columns of the original gate, and its votes

    def __str__(self) -> str:
        return f"g_{self.opened_position}"


INCIDENT_STATES: Final = ("open", "contained", "closed")
MEMBERS: Final = ("session", "effect", "gate", "entry")


class Incident(models.Model):
    """An incident with its state and owner. Handle: i_<opened_position>."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
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
                condition=Q(state__one_of=list(INCIDENT_STATES)), name="incident_state_is_known"
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

    id = models.UUIDField(primary_key=True, default=new_uuid7)
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
                name="incident_member_is_unique",
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


# What two effects can share. `read` is a call of a tool declared read-only, which changes nothing
# when repeated.
SORTS = ("call", "read", "target")


class FirstOccurrence(models.Model):
    """The first effect that ran with a digest of tool and arguments, or of tool and target."""

    digest = models.BigIntegerField(primary_key=True)  # Includes the project's id.
    project = models.ForeignKey(  # The session's project, which has the constraint.
        Project, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    session = models.ForeignKey(
        Session, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    position = models.BigIntegerField()  # The effect's opened_position.
    reported_position = models.BigIntegerField()  # Journal position at which the run became known.

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(position__gt=0), name="first_occurrence_is_in_the_journal"
            ),
        ]
        indexes = [models.Index(fields=["position"], name="first_occurrence_by_position")]

    def __str__(self) -> str:
        return f"first in e_{self.position}"


class RepeatedOccurrence(models.Model):
    """An effect that ran and shares its digest with another.

    `nth` counts the effects with this digest in the session, up to this effect.
    """

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(  # The session's project, which has the constraint.
        Project, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    session = models.ForeignKey(
        Session,
        on_delete=models.PROTECT,
        related_name="repeated_occurrences",
        db_index=False,
        db_constraint=False,
    )
    position = models.BigIntegerField()  # The effect's opened_position.
    sort = models.CharField(max_length=6)
    digest = models.BigIntegerField()
    reported_position = models.BigIntegerField()  # Journal position at which the run became known.
    # Journal position at which the duplicate became known.
    repeat_position = models.BigIntegerField()
    nth = models.IntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["position", "sort"], name="repeated_occurrence_is_unique"
            ),
            models.CheckConstraint(
                condition=Q(sort__one_of=SORTS), name="repeated_occurrence_sort_is_known"
            ),
            models.CheckConstraint(
                condition=Q(nth__gte=1, repeat_position__gte=models.F("reported_position")),
                name="repeated_occurrence_is_counted",
            ),
        ]
        indexes = [
            models.Index(fields=["digest", "position"], name="repeated_by_digest"),
            models.Index(fields=["project", "sort", "position"], name="repeated_by_position"),
            models.Index(
                fields=["project", "nth"], name="repeated_by_count", condition=Q(nth__gt=1)
            ),
            models.Index(fields=["session", "digest", "nth"], name="repeated_by_session"),
        ]

    def __str__(self) -> str:
        return f"{self.sort} of e_{self.position}, {self.nth} in its session"


class EffectText(models.Model):
    """The words of one effect, as last indexed (investigation/fulltext/extract.py)."""

    position = RowIdField(primary_key=True)  # The effect's opened_position.
    project = models.ForeignKey(  # The effect's project, which has the constraint.
        Project, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    words = WordsField()
    cut_short = models.BooleanField(default=False)  # The effect has more words than are stored.

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(position__gt=0), name="words_are_of_an_effect_in_the_journal"
            ),
        ]

    def __str__(self) -> str:
        return f"words of e_{self.position}"


class FieldValue(models.Model):
    """A value of an argument that the declaration of its tool names as a search field."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(  # The effect's project, which has the constraint.
        Project, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    effect = models.ForeignKey(
        Effect,
        on_delete=models.PROTECT,
        related_name="field_values",
        db_index=False,
        db_constraint=False,
    )
    position = models.BigIntegerField()  # The effect's opened_position.
    plan_position = models.BigIntegerField()  # Journal position of the plan that has the value.
    field = models.CharField(max_length=40)
    value = models.CharField(max_length=200)  # Longer values are cut.

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["effect", "field", "value"], name="field_value_is_stored_once"
            ),
            models.CheckConstraint(
                condition=~Q(field="") & ~Q(value=""), name="field_value_has_field_and_value"
            ),
        ]
        indexes = [
            models.Index(
                fields=["project", "field", "value", "position"], name="field_value_by_value"
            )
        ]

    def __str__(self) -> str:
        return f"{self.field} of e_{self.position}"


class FieldCoverage(models.Model):
    """How far back the effects of a tool are indexed by the fields that are declared for it."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    tool = models.CharField(max_length=100)
    fields = models.JSONField(default=dict)  # As declared when older effects were begun.
    # Effects that were opened before this position are not indexed yet; 0: all are.
    complete_from = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "tool"], name="field_coverage_is_unique_for_tool"
            ),
            models.CheckConstraint(
                condition=Q(complete_from__gte=0), name="field_coverage_begins_at_a_position"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tool} from {self.complete_from}"
