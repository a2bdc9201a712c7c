"""Work state for the next worker: checkpoints, decisions, handoffs, facts.

Free text is stored only in the bodies of journal entries, where it can be erased. The columns hold
what lists and rules need, and can be rebuilt from the journal.
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
    """Text ordered by code point, as order keys are, in any collation."""

    template = '%(expressions)s COLLATE "C"'
    output_field = models.CharField()

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> tuple[str, Any]:
        """Compile without a collation: SQLite's order of UTF-8 bytes is the same."""
        return self.as_sql(compiler, connection, template="%(expressions)s", **context)


def text_at(column: str) -> Subquery:
    """Return a subquery for the body of the entry at the position in `column`.

    NULL where there is no body or it was erased.
    """
    return Subquery(Body.objects.filter(entry_id=OuterRef(column)).values("text"))


class Checkpoint(models.Model):
    """The state of a session, as the agent describes it.

    Only the latest few are kept. Losing all of them loses no recorded work.
    """

    id = models.UUIDField(primary_key=True)  # derived from (session, source, entry id)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    session = models.ForeignKey(
        Session, on_delete=models.PROTECT, related_name="checkpoints", db_index=False
    )
    cache_keys = models.JSONField(default=list)  # names of prompt caches that are warm
    cursor = models.CharField(max_length=200, default="", blank=True)
    pins = models.JSONField(default=dict)  # name to version: what wrote and can read the state
    size = models.IntegerField()  # bytes of the checkpoint as canonical JSON
    mark = models.CharField(max_length=260)
    opened_position = models.BigIntegerField()  # its entry; summary and state are in the body
    created_at_us = models.BigIntegerField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(size__gte=0), name="checkpoint_size_is_not_negative")
        ]
        indexes = [
            models.Index(fields=["session", "opened_position"], name="checkpoint_by_session")
        ]

    def __str__(self) -> str:
        return f"checkpoint {self.opened_position}"


class Decision(models.Model):
    """What an agent chose, recorded before it acts, and how that ended.

    The text is in the bodies of the two entries.
    """

    id = models.UUIDField(primary_key=True)  # derived from (session, key)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    session = models.ForeignKey(
        Session, on_delete=models.PROTECT, related_name="decisions", db_index=False
    )
    key = models.CharField(max_length=200)
    effect = models.UUIDField(null=True)  # the effect decided on; the ledger is a higher app
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
            models.UniqueConstraint(
                fields=["session", "key"], name="decision_key_is_unique_in_session"
            ),
            models.CheckConstraint(condition=~Q(key=""), name="decision_has_a_key"),
            models.CheckConstraint(
                condition=Q(status__in=DECISION_STATES), name="decision_status_is_known"
            ),
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
    """What one worker leaves for the next, in five sections. Accepted once.

    The sections are in the body of its entry.
    """

    id = models.UUIDField(primary_key=True)  # derived from (session, key)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    session = models.ForeignKey(
        Session, on_delete=models.PROTECT, related_name="handoffs", db_index=False
    )
    key = models.CharField(max_length=300)  # of a command: its source and idempotency key
    size = models.IntegerField(default=0)  # bytes of the five sections, as canonical JSON
    # [{kind: gate|message|effect|text, ref}], in the order of the section
    waits_on = models.JSONField(default=list)
    written_by = models.ForeignKey(
        Agent, null=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    accepted_by = models.ForeignKey(
        Agent, null=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    written_position = models.BigIntegerField(null=True)  # null while only acceptance was reported
    written_mark = models.CharField(max_length=260, default="", blank=True)
    accepted_mark = models.CharField(max_length=260, default="", blank=True)
    opened_position = models.BigIntegerField()
    created_at_us = models.BigIntegerField()
    accept_by_us = models.BigIntegerField(null=True)  # null once accepted, or not the latest
    accepted_at_us = models.BigIntegerField(null=True)
    version = models.IntegerField(default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["session", "key"], name="handoff_key_is_unique_in_session"
            ),
            models.CheckConstraint(condition=~Q(key=""), name="handoff_has_a_key"),
            models.CheckConstraint(condition=Q(size__gte=0), name="handoff_size_is_not_negative"),
            models.CheckConstraint(
                condition=Q(accepted_mark="", accepted_at_us__isnull=True)
                | (
                    ~Q(accepted_mark="")
                    & Q(accepted_at_us__isnull=False, accept_by_us__isnull=True)
                ),
                name="handoff_is_accepted_by_a_fact",
            ),
        ]
        indexes = [
            models.Index(fields=["session", "opened_position"], name="handoff_by_session"),
            models.Index(
                fields=["accept_by_us"], name="handoff_due", condition=Q(accept_by_us__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"handoff {self.opened_position}"


class ObservedFact(models.Model):
    """The latest value that one source reported for one name.

    The value is in the body of its entry; `digest` tells whether two values are equal.
    """

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    session = models.ForeignKey(
        Session, on_delete=models.PROTECT, related_name="facts", db_index=False
    )
    name = models.CharField(max_length=200)
    source = models.CharField(max_length=160)  # a file, a service, a person
    digest = models.CharField(max_length=32)  # keyed, of the value as canonical JSON
    mark = models.CharField(max_length=260)
    position = models.BigIntegerField()
    opened_position = models.BigIntegerField()  # of this source's first report of this name
    observed_at_us = models.BigIntegerField()
    fresh_until_us = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["session", "name", "source"], name="fact_is_told_once_per_source"
            ),
            models.CheckConstraint(
                condition=~Q(name="") & ~Q(source=""), name="fact_has_a_name_and_a_source"
            ),
        ]
        indexes = [models.Index(fields=["session", "opened_position"], name="fact_by_session")]

    def __str__(self) -> str:
        return f"{self.name} by {self.source}"
