"""Requests to erase what is recorded about a subject, and legal holds, which win over them.

A subject is a person of the installation, words that occur in texts, or a session. Triggers
(erasure/triggers.py) require that a second administrator confirms a request.
"""

from typing import Final

from django.conf import settings
from django.db import models
from django.db.models import F, Q

from accounts.models import Project
from db.ids import new_uuid7
from sessions.models import Session

SUBJECT_KINDS: Final = ("person", "words", "session")
HOLD_KINDS: Final = ("words", "session")
# counting: the preview is being counted. counted: waits for a second person. confirmed: waits for
# the job. running: rows and files go. scrubbing: they are gone, and the database's files are
# rewritten. done and withdrawn are final.
REQUEST_STATES: Final = (
    "counting",
    "counted",
    "confirmed",
    "running",
    "scrubbing",
    "done",
    "withdrawn",
)
BEFORE_CONFIRMATION: Final = ("counting", "counted", "withdrawn")


class ErasureRequest(models.Model):
    """A request to erase a subject: its preview, its confirmation, and what was erased."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(  # null: every project of the installation
        Project, null=True, on_delete=models.PROTECT, related_name="erasure_requests"
    )
    subject_kind = models.CharField(max_length=7)
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    session = models.ForeignKey(
        Session, null=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    words = models.JSONField(default=list, blank=True)  # emptied when the words are erased
    # [{length, digest}] of each word, keyed with the pepper: erasure/word_match.py
    word_digests = models.JSONField(default=list, blank=True)
    keeps_decisions = models.BooleanField(default=False)  # reasons of votes and resolutions stay
    reason = models.CharField(max_length=200)  # a legal ground or ticket, without personal data
    state = models.CharField(max_length=9, default="counting")
    progress = models.JSONField(default=dict, blank=True)  # where the job continues, signed
    counts = models.JSONField(default=dict, blank=True)  # of the preview: erasure/row_scan.py
    erased_counts = models.JSONField(default=dict, blank=True)
    asked_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+"
    )
    asked_at_us = models.BigIntegerField()
    requested_position = models.BigIntegerField()  # of erasure.requested; its number on pages
    counted_at_us = models.BigIntegerField(null=True)
    confirmed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    confirmed_at_us = models.BigIntegerField(null=True)
    executed_at_us = models.BigIntegerField(null=True)
    executed_position = models.BigIntegerField(null=True)  # of erasure.executed with the counts
    scrubbed_at_us = models.BigIntegerField(null=True)  # the database's files were rewritten
    error = models.CharField(max_length=200, default="", blank=True)  # type of the last error

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(state__one_of=REQUEST_STATES), name="erasure_request_state_is_known"
            ),
            models.CheckConstraint(
                condition=Q(subject_kind="person", person__isnull=False, session__isnull=True)
                | Q(subject_kind="session", person__isnull=True, session__isnull=False)
                | Q(subject_kind="words", person__isnull=True, session__isnull=True),
                name="erasure_request_has_one_subject",
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="erasure_request_has_a_reason"),
            models.CheckConstraint(
                condition=Q(confirmed_by__isnull=True) | ~Q(confirmed_by=F("asked_by")),
                name="erasure_is_confirmed_by_a_second_person",
            ),
            models.CheckConstraint(
                condition=Q(state__one_of=BEFORE_CONFIRMATION)
                | Q(confirmed_by__isnull=False, confirmed_at_us__isnull=False),
                name="erasure_runs_after_it_was_confirmed",
            ),
            models.CheckConstraint(
                condition=~Q(state__one_of=("scrubbing", "done"))
                | Q(executed_position__isnull=False, executed_at_us__isnull=False),
                name="erasure_that_ran_is_in_the_journal",
            ),
        ]
        indexes = [
            models.Index(
                fields=["project", "requested_position"], name="erasure_request_by_project"
            ),
            models.Index(
                fields=["requested_position"],
                name="erasure_request_due",
                condition=Q(state__in=["counting", "confirmed", "running", "scrubbing"]),
            ),
        ]

    def __str__(self) -> str:
        return f"erasure {self.requested_position}"


class LegalHold(models.Model):
    """What no request erases until the hold is released: a session, or texts with some words."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    kind = models.CharField(max_length=7)
    session = models.ForeignKey(
        Session, null=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    words = models.JSONField(default=list, blank=True)
    reason = models.CharField(max_length=200)
    set_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    set_at_us = models.BigIntegerField()
    set_position = models.BigIntegerField()  # of erasure.hold_set
    released_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    released_at_us = models.BigIntegerField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(kind="session", session__isnull=False)
                | Q(kind="words", session__isnull=True),
                name="legal_hold_has_one_subject",
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="legal_hold_has_a_reason"),
            models.CheckConstraint(
                condition=Q(released_by__isnull=True, released_at_us__isnull=True)
                | Q(released_by__isnull=False, released_at_us__isnull=False),
                name="legal_hold_is_released_by_a_person",
            ),
        ]
        indexes = [
            models.Index(
                fields=["project", "id"],
                name="legal_hold_in_force",
                condition=Q(released_at_us__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"hold {self.id}"
