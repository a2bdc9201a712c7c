"""What code hosts say by their webhooks: sources, deliveries, events and their matches.

An agent reports what it did; the code host reports what happened. A delivery is stored as it came
and never changes. Its event is compared with effects, and a match says by which rule.
"""

from django.db import models
from django.db.models import Q

from accounts.models import Agent, Project
from db.ids import new_uuid7
from ledger.models import Effect
from ledger.states import CODE_HOSTS

EVENT_KINDS = ("push", "pull_request", "comment", "deployment", "run", "check")
# open: waits for an effect. outside: a finding. unmatched: no effect, and the sender is no agent's
# identity.
EVENT_STATUSES = ("open", "matched", "ambiguous", "outside", "unmatched")
# confirmed: folded into the effect. evidence: shown only. contradicts: the record says otherwise.
# candidate: one of several, or unsure. undispatched: planned, but never dispatched.
MATCH_STATUSES = (
    "confirmed",
    "evidence",
    "contradicts",
    "candidate",
    "undispatched",
    "withdrawn",
)
IDENTITY_KINDS = ("login", "email")


class CodeHostSource(models.Model):
    """One webhook of a code host: its address, and the generation of its secret.

    The secret is derived from the id and the generation, never stored.
    """

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="code_host_sources")
    host = models.CharField(max_length=8)
    name = models.CharField(max_length=100)
    secret_generation = models.IntegerField(default=1)
    # Until then the secret of the generation before is accepted too.
    previous_until_us = models.BigIntegerField(null=True)
    enabled = models.BooleanField(default=True)
    created_by = models.CharField(max_length=64)  # a pseudonym
    created_at_us = models.BigIntegerField()
    refused_count = models.BigIntegerField(default=0)  # requests with a wrong signature
    last_refused_us = models.BigIntegerField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "host", "name"], name="code_host_source_name_is_unique"
            ),
            models.CheckConstraint(
                condition=Q(host__in=CODE_HOSTS), name="code_host_source_host_is_known"
            ),
            models.CheckConstraint(condition=~Q(name=""), name="code_host_source_has_a_name"),
            models.CheckConstraint(
                condition=Q(secret_generation__gte=1, refused_count__gte=0),
                name="code_host_source_counts_are_numbers",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.host} {self.name}"


class CodeHostDelivery(models.Model):
    """One webhook request with a valid signature; triggers refuse every change."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    source = models.ForeignKey(
        CodeHostSource, on_delete=models.PROTECT, related_name="deliveries", db_index=False
    )
    delivery_key = models.CharField(max_length=200)  # the host's id, the same when sent again
    event = models.CharField(max_length=64)  # as the host names it
    action = models.CharField(max_length=64, default="", blank=True)
    body_digest = models.CharField(max_length=64)  # SHA-256 of the bytes as received
    understood = models.BooleanField(default=False)
    position = models.BigIntegerField()  # of its entry, whose body is the payload
    received_us = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["source", "delivery_key"], name="code_host_delivery_is_stored_once"
            ),
            models.CheckConstraint(
                condition=~Q(delivery_key="") & ~Q(event=""), name="code_host_delivery_has_an_id"
            ),
        ]
        indexes = [
            models.Index(fields=["project", "position"], name="code_host_delivery_by_place"),
            models.Index(fields=["source", "received_us"], name="code_host_delivery_by_source"),
            models.Index(fields=["source", "body_digest"], name="code_host_delivery_by_body"),
        ]

    def __str__(self) -> str:
        return f"d_{self.position}"


class CodeHostEvent(models.Model):
    """What an understood delivery says happened, and whether an effect is behind it."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    delivery = models.OneToOneField(
        CodeHostDelivery, on_delete=models.PROTECT, related_name="said_event"
    )
    kind = models.CharField(max_length=12)
    action = models.CharField(max_length=64, default="", blank=True)
    repository = models.CharField(max_length=200, default="", blank=True)  # owner/name, lower case
    ref = models.CharField(max_length=300, default="", blank=True)  # full name
    sha = models.CharField(max_length=64, default="", blank=True)
    sender = models.CharField(max_length=200, default="", blank=True)
    # The agent that the sender is an identity of, if it is exactly one.
    agent = models.ForeignKey(
        Agent, null=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    is_action = models.BooleanField(default=False)  # of the sender, not a consequence
    facts = models.TextField()  # JSON: hooks/code_hosts/event_facts.py
    position = models.BigIntegerField()  # that of its delivery
    occurred_us = models.BigIntegerField()
    received_us = models.BigIntegerField()
    status = models.CharField(max_length=9, default="open")
    settle_by_us = models.BigIntegerField()  # without an effect until then it is settled
    finding_position = models.BigIntegerField(null=True)  # of the violation's entry
    settled_us = models.BigIntegerField(null=True)  # the finding's effect appeared later

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(kind__in=EVENT_KINDS), name="code_host_event_kind_is_known"
            ),
            models.CheckConstraint(
                condition=Q(status__in=EVENT_STATUSES), name="code_host_event_status_is_known"
            ),
            models.CheckConstraint(
                condition=~Q(status="outside") | Q(finding_position__isnull=False),
                name="code_host_event_outside_has_a_finding",
            ),
            models.CheckConstraint(
                condition=Q(settled_us__isnull=True) | Q(finding_position__isnull=False),
                name="code_host_event_settles_a_finding",
            ),
        ]
        indexes = [
            models.Index(fields=["project", "position"], name="code_host_event_by_place"),
            models.Index(
                fields=["project", "status", "position"], name="code_host_event_by_status"
            ),
            models.Index(
                fields=["project", "repository", "ref", "received_us"],
                name="code_host_event_by_ref",
                condition=~Q(ref=""),
            ),
            models.Index(
                fields=["agent", "position"],
                name="code_host_event_by_agent",
                condition=Q(agent__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"d_{self.position}"


class EventMatch(models.Model):
    """An effect that may be behind an event: the rule, what was compared, and the result."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    event = models.ForeignKey(
        CodeHostEvent, on_delete=models.PROTECT, related_name="matches", db_index=False
    )
    effect = models.ForeignKey(
        Effect, on_delete=models.PROTECT, related_name="event_matches", db_index=False
    )
    rule = models.CharField(max_length=32)
    compared = models.TextField()  # JSON: [what, of the event, of the effect] …
    status = models.CharField(max_length=12)
    position = models.BigIntegerField()  # of the entry that recorded it
    made_us = models.BigIntegerField()
    decided_by = models.CharField(max_length=64, default="", blank=True)  # a pseudonym
    decided_us = models.BigIntegerField(null=True)
    reason = models.CharField(max_length=1000, default="", blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["event", "effect"], name="event_match_is_one_per_effect"
            ),
            models.CheckConstraint(
                condition=Q(status__in=MATCH_STATUSES), name="event_match_status_is_known"
            ),
            models.CheckConstraint(
                condition=~Q(status="withdrawn")
                | (~Q(decided_by="") & Q(decided_us__isnull=False) & ~Q(reason="")),
                name="event_match_is_withdrawn_by_a_person",
            ),
        ]
        indexes = [models.Index(fields=["effect", "position"], name="event_match_by_effect")]

    def __str__(self) -> str:
        return f"{self.event_id} {self.rule}"


class AgentIdentity(models.Model):
    """A login or e-mail address under which an agent acts on a code host."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    agent = models.ForeignKey(
        Agent, on_delete=models.PROTECT, related_name="code_host_identities", db_index=False
    )
    host = models.CharField(max_length=8)
    kind = models.CharField(max_length=5)
    value = models.CharField(max_length=200)  # in lower case
    created_by = models.CharField(max_length=64)  # a pseudonym
    created_at_us = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["agent", "host", "kind", "value"], name="agent_identity_is_listed_once"
            ),
            models.CheckConstraint(
                condition=Q(host__in=CODE_HOSTS), name="agent_identity_host_is_known"
            ),
            models.CheckConstraint(
                condition=Q(kind__in=IDENTITY_KINDS), name="agent_identity_kind_is_known"
            ),
            models.CheckConstraint(condition=~Q(value=""), name="agent_identity_has_a_value"),
        ]
        indexes = [
            models.Index(fields=["project", "host", "value"], name="agent_identity_by_value"),
        ]

    def __str__(self) -> str:
        return f"{self.host} {self.kind} {self.value}"
