"""What a worker leaves for the one after it: checkpoints, decisions, handoffs, and facts as sources told them.

Free text stands in the bodies of the journal's entries alone, where it can be erased; the columns here are what lists
and rules need. Everything can be told from the journal again.
"""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Func, OuterRef, Q, Subquery
from django.db.models.sql.compiler import SQLCompiler

from journal.models import Body
from sessions.models import Agent, Project, Session

DECISION_STATES = ("open", "done", "failed", "abandoned")


class ByCodePoint(Func):
    """A text in the order of its code points, which is that of order keys, whatever the database collates by."""

    template = '%(expressions)s COLLATE "C"'
    output_field = models.CharField()

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> tuple[str, Any]:
        """SQLite compares bytes of UTF-8, which is the same order."""
        return self.as_sql(compiler, connection, template="%(expressions)s", **context)


def text_at(column: str) -> Subquery:
    """For a query: the body of the entry whose position `column` holds; NULL where there is none or it was erased."""
    return Subquery(Body.objects.filter(entry_id=OuterRef(column)).values("text"))


class Checkpoint(models.Model):
    """Where a session stood, in its own words. Only the latest few are kept; to lose them all loses nothing."""

    id = models.UUIDField(primary_key=True)  # derived from (session, source, entry id)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="checkpoints", db_index=False)
    cache_keys = models.JSONField(default=list)  # names of prompt caches that are warm
    cursor = models.CharField(max_length=200, default="", blank=True)
    pins = models.JSONField(default=dict)  # name to version: what the state was written by and for
    size = models.IntegerField()  # bytes of the whole, as canonical JSON
    mark = models.CharField(max_length=260)
    opened_position = models.BigIntegerField()  # its entry; summary and state are in the body
    created_at_us = models.BigIntegerField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(size__gte=0), name="checkpoint_size_is_not_negative")]
        indexes = [models.Index(fields=["session", "opened_position"], name="checkpoint_by_session")]

    def __str__(self) -> str:
        return f"checkpoint {self.opened_position}"


class Decision(models.Model):
    """What an agent chose, written down before it acts, and how that ended. Its words are in the two entries."""

    id = models.UUIDField(primary_key=True)  # derived from (session, key)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="decisions", db_index=False)
    key = models.CharField(max_length=200)
    effect = models.UUIDField(null=True)  # what it is about to do; the ledger stands above this room
    status = models.CharField(max_length=9, default="open")
    recorded_position = models.BigIntegerField(null=True)  # null while only its end was reported
    concluded_position = models.BigIntegerField(null=True)
    recorded_mark = models.CharField(max_length=260, default="", blank=True)
    concluded_mark = models.CharField(max_length=260, default="", blank=True)
    opened_position = models.BigIntegerField()
    created_at_us = models.BigIntegerField()
    concluded_at_us = models.BigIntegerField(null=True)
    version = models.IntegerField(default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "key"], name="decision_key_is_unique_in_session"),
            models.CheckConstraint(condition=~Q(key=""), name="decision_has_a_key"),
            models.CheckConstraint(condition=Q(status__in=DECISION_STATES), name="decision_status_is_known"),
            models.CheckConstraint(
                condition=Q(status="open", concluded_position__isnull=True)
                | (~Q(status="open") & Q(concluded_position__isnull=False)),
                name="decision_is_concluded_by_a_fact",
            ),
        ]
        indexes = [
            models.Index(fields=["session", "opened_position"], name="decision_by_session"),
            models.Index(fields=["session"], name="decision_open", condition=Q(status="open")),
        ]

    def __str__(self) -> str:
        return f"decision {self.key}"


class Handoff(models.Model):
    """What one worker tells the next, in five sections, which are in its entry's body. Accepted once."""

    id = models.UUIDField(primary_key=True)  # derived from (session, key)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="handoffs", db_index=False)
    key = models.CharField(max_length=300)  # of a command: its source and idempotency key
    size = models.IntegerField(default=0)  # bytes of the five sections, as canonical JSON
    waits_on = models.JSONField(default=list)  # [{kind: gate|message|effect|text, ref}], in the order of the section
    written_by = models.ForeignKey(Agent, null=True, on_delete=models.PROTECT, related_name="+", db_index=False)
    accepted_by = models.ForeignKey(Agent, null=True, on_delete=models.PROTECT, related_name="+", db_index=False)
    written_position = models.BigIntegerField(null=True)  # null while only its acceptance was reported
    written_mark = models.CharField(max_length=260, default="", blank=True)
    accepted_mark = models.CharField(max_length=260, default="", blank=True)
    opened_position = models.BigIntegerField()
    created_at_us = models.BigIntegerField()
    accept_by_us = models.BigIntegerField(null=True)  # null once accepted, or once the session has a later one
    accepted_at_us = models.BigIntegerField(null=True)
    version = models.IntegerField(default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "key"], name="handoff_key_is_unique_in_session"),
            models.CheckConstraint(condition=~Q(key=""), name="handoff_has_a_key"),
            models.CheckConstraint(condition=Q(size__gte=0), name="handoff_size_is_not_negative"),
            models.CheckConstraint(
                condition=Q(accepted_mark="", accepted_at_us__isnull=True)
                | (~Q(accepted_mark="") & Q(accepted_at_us__isnull=False, accept_by_us__isnull=True)),
                name="handoff_is_accepted_by_a_fact",
            ),
        ]
        indexes = [
            models.Index(fields=["session", "opened_position"], name="handoff_by_session"),
            models.Index(fields=["accept_by_us"], name="handoff_due", condition=Q(accept_by_us__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"handoff {self.opened_position}"


class ObservedFact(models.Model):
    """The latest that one source told of one named value. The value is in the body; its digest tells equal from not."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="facts", db_index=False)
    name = models.CharField(max_length=200)
    source = models.CharField(max_length=160)  # what was asked: a file, a service, a person
    digest = models.CharField(max_length=32)  # keyed, of the value as canonical JSON
    mark = models.CharField(max_length=260)
    position = models.BigIntegerField()
    opened_position = models.BigIntegerField()  # of the first word of this source about this name
    observed_at_us = models.BigIntegerField()
    fresh_until_us = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "name", "source"], name="fact_is_told_once_per_source"),
            models.CheckConstraint(condition=~Q(name="") & ~Q(source=""), name="fact_has_a_name_and_a_source"),
        ]
        indexes = [models.Index(fields=["session", "opened_position"], name="fact_by_session")]

    def __str__(self) -> str:
        return f"{self.name} by {self.source}"
