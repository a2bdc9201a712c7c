"""The append-only journal: entries, bodies, erasures, and the outbox.

Entry, Body and Erasure never change: triggers (db/triggers.py) refuse UPDATE, DELETE and
TRUNCATE. A body can be deleted only after an Erasure row names it, and never returns.
"""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Length

from db.fields import CurrentTransactionId, TransactionIdField

SCHEMA_VERSION = 1
models.BinaryField.register_lookup(Length)  # for body_salt_is_32_bytes

# The most frequent kinds.
COMMON = ("effect.planned", "effect.dispatched", "effect.acknowledged", "effect.failed")
LANES = {
    "command": "command lane: requested before the event",
    "evidence": "evidence lane: reported after the event",
    "claim": "claim: by an agent that may not report on this session; changes nothing",
    "system": "written by Gatebook itself",
}


class Entry(models.Model):
    """One fact in the journal; `(project, source, event_id)` is its idempotency key."""

    position = models.BigAutoField(primary_key=True)
    project = models.UUIDField()  # no foreign key: the journal knows no other app
    source = models.CharField(max_length=160)  # begins with the token's agent name
    claimed_source = models.CharField(max_length=160, default="", blank=True)
    event_id = models.CharField(max_length=64, db_column="id")  # made by the client
    kind = models.CharField(max_length=64)  # subject.verb
    session = models.UUIDField(null=True)
    effect = models.UUIDField(null=True)
    attempt = models.IntegerField(null=True)
    subject = models.UUIDField(null=True)  # the task, artifact, token … that `kind` is about
    actor = models.CharField(max_length=64)  # a pseudonym, never a name
    lane = models.CharField(max_length=8)
    lease_epoch = models.BigIntegerField(null=True)
    producer_seq = models.BigIntegerField(null=True)
    occurred_us = models.BigIntegerField(null=True)  # the producer's clock, display only
    received_us = models.BigIntegerField()  # the server's clock
    # JSON with a closed vocabulary: everything needed to rebuild state.
    facts = models.TextField(default="{}")
    body_commit = models.BinaryField(null=True)  # SHA-256(salt ‖ text)
    txid = TransactionIdField(null=True, db_default=CurrentTransactionId())
    schema_version = models.SmallIntegerField(default=SCHEMA_VERSION)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "source", "event_id"], name="entry_id_is_used_once_per_source"
            ),
            models.CheckConstraint(
                condition=Q(lane__one_of=list(LANES)), name="entry_lane_is_known"
            ),
            models.CheckConstraint(
                condition=Q(kind__contains="."), name="entry_kind_is_subject_dot_verb"
            ),
            models.CheckConstraint(condition=~Q(event_id=""), name="entry_has_an_id"),
            models.CheckConstraint(condition=~Q(source=""), name="entry_has_a_source"),
        ]
        indexes = [
            models.Index(
                fields=["session", "position"],
                name="entry_by_session",
                condition=Q(session__isnull=False),
            ),
            models.Index(
                fields=["effect", "position"],
                name="entry_by_effect",
                condition=Q(effect__isnull=False),
            ),
            models.Index(fields=["received_us"], name="entry_by_received_us"),
            models.Index(
                fields=["session", "position"],
                name="entry_of_control",
                condition=Q(kind="control.fired"),
            ),
            models.Index(  # what agents sent along about a session (journal/sent_meta.py)
                fields=["session", "position"],
                name="entry_of_description",
                condition=Q(kind__in=["session.started", "session.described"]),
            ),
            models.Index(  # the next holder after a dispatch: one row per epoch of a lease
                fields=["subject", "lease_epoch"],
                name="entry_of_acquisition",
                condition=Q(kind="lease.acquired", lane="command"),
            ),
            # Searches by kind look for rare ones; frequent ones are found by other indexes.
            models.Index(
                fields=["project", "kind", "position"],
                name="entry_by_kind",
                condition=~Q(kind__in=COMMON),
            ),
            models.Index(
                fields=["session", "effect"], name="entry_of_claim", condition=Q(lane="claim")
            ),
            models.Index(  # actions of people: only their pseudonyms begin so
                fields=["project", "actor", "position"],
                name="entry_by_person",
                condition=Q(actor__gte="p_", actor__lt="q"),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.position} {self.kind}"


class Body(models.Model):
    """The complete item as sent (parsed, redacted, sorted), with all free text."""

    entry = models.OneToOneField(
        Entry, primary_key=True, on_delete=models.PROTECT, related_name="body"
    )
    salt = models.BinaryField()  # 32 random bytes; destroyed with the text on erasure
    text = models.TextField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(salt__length=32), name="body_salt_is_32_bytes"),
        ]

    def __str__(self) -> str:
        return f"body of {self.entry_id}"


class Erasure(models.Model):
    """Names a body to be erased, the reason and the actor; written first."""

    entry = models.OneToOneField(
        Entry, primary_key=True, on_delete=models.PROTECT, related_name="erasure"
    )
    project = models.UUIDField()
    reason = models.CharField(max_length=200)  # a legal ground or ticket, no personal data
    actor = models.CharField(max_length=64)
    erased_at_us = models.BigIntegerField()
    # Of retention.expired, which names this body; null if a person erased it.
    expired_by = models.BigIntegerField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(reason=""), name="erasure_has_a_reason"),
        ]

    def __str__(self) -> str:
        return f"erasure of {self.entry_id}"


class Fingerprint(models.Model):
    """The id of the installation, and a fingerprint of each of its keys."""

    name = models.CharField(max_length=32, primary_key=True)
    value = models.CharField(max_length=64)
    recorded_at_us = models.BigIntegerField()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(value__length=64), name="fingerprint_is_64_characters"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Outbox(models.Model):
    """A consequence of an entry (mail, webhook, log), stored with it."""

    id = models.BigAutoField(primary_key=True)
    project = models.UUIDField()
    entry = models.ForeignKey(Entry, on_delete=models.PROTECT, related_name="+", db_index=False)
    topic = models.CharField(max_length=64)
    deduplication_key = models.CharField(max_length=160)
    due_at_us = models.BigIntegerField()
    tries = models.IntegerField(default=0)
    sent_at_us = models.BigIntegerField(null=True)
    last_error = models.CharField(max_length=200, default="", blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "deduplication_key"], name="outbox_event_is_stored_once"
            ),
            models.CheckConstraint(condition=Q(tries__gte=0), name="outbox_tries_are_counted"),
        ]
        indexes = [
            models.Index(
                fields=["due_at_us"], name="outbox_due", condition=Q(sent_at_us__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.topic} of {self.entry_id}"
