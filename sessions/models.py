"""Projects and people, agents and their sessions, tasks, items and artifacts.

Every table has a project column. Rows that an agent may change have a `version`. Columns ending in
`_mark` hold the order key of the fact that set the neighbouring values (journal/order_keys.py), so
that facts may arrive in any order.
"""

from typing import Any

from django.conf import settings
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Func, OuterRef, Q, Subquery, Value
from django.db.models.functions import Length
from django.db.models.sql.compiler import SQLCompiler

from accounts.models import Agent, Project, Repository
from db.ids import new_uuid7
from journal.models import Body

MODES = ("leased", "reported", "one_shot")
STATUSES = ("running", "waiting", "suspended", "completed", "failed", "cancelled")
ENDED = ("completed", "failed", "cancelled")
TASK_STATES = ("pending", "running", "blocked", "done", "failed", "cancelled")
ITEM_STATES = ("pending", "done", "failed")
models.CharField.register_lookup(Length)  # for artifact_hash_is_sha256


class Session(models.Model):
    """A long-lived execution.

    Facts reported for an unknown key open it; its own `session.started` may come later.
    """

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="sessions", db_index=False
    )
    key = models.CharField(max_length=200)
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="sessions")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="owned_sessions",
    )
    on_behalf_of = models.ForeignKey(  # the person it works for, as the agent reports
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    repository = models.ForeignKey(
        Repository, null=True, on_delete=models.PROTECT, related_name="sessions"
    )
    branch = models.CharField(max_length=200, default="", blank=True)
    parent = models.ForeignKey("self", null=True, on_delete=models.PROTECT, related_name="children")
    branched_from = models.ForeignKey(
        "self", null=True, on_delete=models.PROTECT, related_name="branches"
    )
    merge_into = models.ForeignKey(  # the intended target, perhaps never reached
        "self", null=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    merge_intent = models.CharField(max_length=300, db_default="", default="", blank=True)
    merged_into = models.ForeignKey(
        "self", null=True, on_delete=models.PROTECT, related_name="merged"
    )
    title = models.CharField(max_length=300, default="", blank=True)
    mode = models.CharField(max_length=8, default="reported")
    status = models.CharField(max_length=9, default="running")
    # What a waiting session waits for, and how far the work is, in the agent's words.
    waiting_on = models.CharField(max_length=200, db_default="", default="", blank=True)
    cursor = models.CharField(max_length=200, default="", blank=True)
    labels = models.JSONField(default=dict)  # text to text
    opened_position = models.BigIntegerField()  # of the entry that opened it: handle s_<n>
    effect_count = models.IntegerField(default=0)
    created_at_us = models.BigIntegerField()  # server's clock
    seen_at_us = models.BigIntegerField()  # server's clock: the latest fact of any kind
    started_at_us = models.BigIntegerField(null=True)  # producer's clock
    ended_at_us = models.BigIntegerField(null=True)  # producer's clock
    started_mark = models.CharField(max_length=260, default="", blank=True)
    status_mark = models.CharField(max_length=260, default="", blank=True)
    # The field history: see sessions/sessions.py.
    field_history = models.JSONField(db_default=Value({}, models.JSONField()), default=dict)
    fence = models.BigIntegerField(null=True)  # lowest epoch that may write; null: never leased
    # From when rules S1 and S7 apply; null while leased, or where no worker is expected.
    start_by_us = models.BigIntegerField(null=True)
    resumes = models.IntegerField(db_default=0, default=0)  # how often a lease on it was taken over
    version = models.IntegerField(default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "key"], name="session_key_is_unique_in_project"
            ),
            models.CheckConstraint(condition=~Q(key=""), name="session_has_a_key"),
            models.CheckConstraint(condition=Q(mode__one_of=MODES), name="session_mode_is_known"),
            models.CheckConstraint(
                condition=Q(status__one_of=STATUSES), name="session_status_is_known"
            ),
            models.CheckConstraint(
                condition=Q(parent__isnull=True) | ~Q(parent=F("id")),
                name="session_is_not_its_own_parent",
            ),
            models.CheckConstraint(
                condition=Q(branched_from__isnull=True) | ~Q(branched_from=F("id")),
                name="session_is_not_branched_from_itself",
            ),
            models.CheckConstraint(
                condition=(Q(merge_into__isnull=True) | ~Q(merge_into=F("id")))
                & (Q(merged_into__isnull=True) | ~Q(merged_into=F("id"))),
                name="session_does_not_merge_into_itself",
            ),
            models.CheckConstraint(
                condition=Q(effect_count__gte=0), name="session_effects_are_counted"
            ),
        ]
        indexes = [
            models.Index(fields=["project", "opened_position"], name="session_by_opening"),
            models.Index(
                fields=["start_by_us"],
                name="session_by_start",
                condition=Q(start_by_us__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"s_{self.opened_position}"


class Task(models.Model):
    """A node in the tree of a session's work."""

    id = models.UUIDField(primary_key=True)  # derived from (session, key)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="tasks", db_index=False
    )
    session = models.ForeignKey(
        Session, on_delete=models.PROTECT, related_name="tasks", db_index=False
    )
    key = models.CharField(max_length=200)
    parent = models.ForeignKey(
        "self", null=True, on_delete=models.PROTECT, related_name="children", db_constraint=False
    )
    title = models.CharField(max_length=300, default="", blank=True)
    state = models.CharField(max_length=9, default="pending")
    priority = models.IntegerField(default=0)  # higher is sooner
    worker = models.CharField(max_length=100, default="", blank=True)
    branch_label = models.CharField(max_length=200, default="", blank=True)
    opened_position = models.BigIntegerField()
    created_at_us = models.BigIntegerField()
    updated_at_us = models.BigIntegerField()
    done_at_us = models.BigIntegerField(null=True)  # producer's clock where reported
    created_mark = models.CharField(max_length=260, default="", blank=True)
    # Per field the values of the first creation and of the latest change, with marks.
    field_history = models.JSONField(default=dict)
    done_mark = models.CharField(max_length=260, default="", blank=True)
    version = models.IntegerField(default=1)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["session", "key"], name="task_key_is_unique_in_session"
            ),
            models.CheckConstraint(condition=~Q(key=""), name="task_has_a_key"),
            models.CheckConstraint(condition=Q(state__in=TASK_STATES), name="task_state_is_known"),
            models.CheckConstraint(
                condition=~Q(done_mark="") | ~Q(state="done"), name="task_is_done_by_a_fact"
            ),
        ]
        indexes = [
            models.Index(fields=["project", "opened_position"], name="task_by_opening"),
            models.Index(  # of tasks created by command, whose mark begins with 0
                F("project"),
                F("priority").desc(),
                F("opened_position"),
                name="task_by_priority",
                condition=Q(
                    state__in=["pending", "running"], created_mark__gte="0", created_mark__lt="1"
                ),
            ),
        ]

    def __str__(self) -> str:
        return f"t_{self.opened_position}"


class Item(models.Model):
    """One of the things that a task works through, with its state."""

    id = models.BigAutoField(primary_key=True)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="items", db_index=False)
    key = models.CharField(max_length=200)
    state = models.CharField(max_length=7, default="pending")
    mark = models.CharField(max_length=260, default="", blank=True)  # the latest fact about it
    changed_at_us = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["task", "key"], name="item_key_is_unique_in_task"),
            models.CheckConstraint(condition=~Q(key=""), name="item_has_a_key"),
            models.CheckConstraint(condition=Q(state__in=ITEM_STATES), name="item_state_is_known"),
        ]

    def __str__(self) -> str:
        return self.key


class Artifact(models.Model):
    """What a session made, by its content's hash; Gatebook may store its bytes."""

    id = models.UUIDField(primary_key=True)  # derived from (session, source, entry id)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="artifacts", db_index=False
    )
    session = models.ForeignKey(
        Session, on_delete=models.PROTECT, related_name="artifacts", db_index=False
    )
    effect = models.UUIDField(null=True)  # an effect's id; the ledger is a higher app
    type = models.CharField(max_length=64)
    name = models.CharField(max_length=300, default="", blank=True)
    uri = models.CharField(max_length=2000, default="", blank=True)  # never fetched
    sha256 = models.CharField(max_length=64)
    size = models.BigIntegerField()  # bytes
    media_type = models.CharField(max_length=100)
    retention = models.CharField(max_length=32, default="standard")
    stored_at_us = models.BigIntegerField(null=True)  # null where Gatebook has no bytes of it
    opened_position = models.BigIntegerField()
    created_at_us = models.BigIntegerField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(sha256__length=64), name="artifact_hash_is_sha256"),
            models.CheckConstraint(condition=Q(size__gte=0), name="artifact_size_is_not_negative"),
        ]
        indexes = [
            models.Index(fields=["session", "opened_position"], name="artifact_by_session"),
            models.Index(
                fields=["effect"], name="artifact_by_effect", condition=Q(effect__isnull=False)
            ),
            models.Index(fields=["project", "opened_position"], name="artifact_by_opening"),
            models.Index(fields=["project", "sha256"], name="artifact_by_hash"),
        ]

    def __str__(self) -> str:
        return f"a_{self.opened_position}"


DECISION_STATES = ("open", "done", "failed", "abandoned")


class CodePointOrder(Func):
    """Text ordered by code point, as order keys are, in any collation."""

    template = '%(expressions)s COLLATE "C"'
    output_field = models.CharField()

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> tuple[str, Any]:
        """Compile without a collation: SQLite's order of UTF-8 bytes is the same."""
        return self.as_sql(compiler, connection, template="%(expressions)s", **context)


def select_body_text(column: str) -> Subquery:
    """Return the body of the entry at `column` as a subquery; NULL if none or erased."""
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
                fields=["session", "name", "source"], name="fact_is_stored_once_per_source"
            ),
            models.CheckConstraint(
                condition=~Q(name="") & ~Q(source=""), name="fact_has_a_name_and_a_source"
            ),
        ]
        indexes = [models.Index(fields=["session", "opened_position"], name="fact_by_session")]

    def __str__(self) -> str:
        return f"{self.name} by {self.source}"


LEASE_KINDS = ("session", "task", "resource")


class Lease(models.Model):
    """A holder's time on one subject.

    Deadlines are computed when heartbeats and progress arrive, never when they are read.
    """

    id = models.UUIDField(primary_key=True)  # derived from (project, kind, subject)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    kind = models.CharField(max_length=8)
    subject = models.CharField(max_length=300)  # the id of a session or task, or a resource's name
    session = models.ForeignKey(
        Session, null=True, on_delete=models.PROTECT, related_name="leases", db_index=False
    )
    task = models.ForeignKey(
        Task, null=True, on_delete=models.PROTECT, related_name="leases", db_index=False
    )
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="+", db_index=False)
    process = models.CharField(max_length=64)
    epoch = models.BigIntegerField(default=1)
    ttl_s = models.BigIntegerField()
    acquired_at_us = models.BigIntegerField()
    heartbeat_at_us = models.BigIntegerField()  # the last heartbeat
    progress_at_us = models.BigIntegerField()  # the last progress; heartbeats do not change it
    progress_token = models.CharField(max_length=200, default="", blank=True)
    quiet_until_us = models.BigIntegerField(null=True)  # announced by the holder
    expires_at_us = models.BigIntegerField()
    released_at_us = models.BigIntegerField(null=True)
    silent_since_us = models.BigIntegerField(null=True)  # start of a silence that was journalled
    dead_at_us = models.BigIntegerField()  # from when rule S2 applies
    wedged_at_us = models.BigIntegerField()  # from when rule S3 applies
    takeovers = models.IntegerField(default=0)
    version = models.IntegerField(default=1)
    opened_position = models.BigIntegerField()  # of the latest acquisition: handle l_<n>
    # no column: the database's time, where a query annotated it (sessions/lease_queries.py)
    now_us: int

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "kind", "subject"], name="lease_is_one_per_subject"
            ),
            models.CheckConstraint(
                condition=Q(kind__one_of=LEASE_KINDS), name="lease_kind_is_known"
            ),
            models.CheckConstraint(
                condition=~Q(subject="") & ~Q(process=""), name="lease_names_subject_and_process"
            ),
            models.CheckConstraint(
                condition=Q(kind="session", session__isnull=False, task__isnull=True)
                | Q(kind="task", session__isnull=False, task__isnull=False)
                | Q(kind="resource", session__isnull=True, task__isnull=True),
                name="lease_kind_matches_its_subject",
            ),
            models.CheckConstraint(condition=Q(epoch__gte=1), name="lease_epoch_begins_at_one"),
            models.CheckConstraint(
                condition=Q(ttl_s__gte=5, ttl_s__lte=3600), name="lease_lasts_seconds_to_an_hour"
            ),
            models.CheckConstraint(
                condition=Q(
                    expires_at_us__gte=F("heartbeat_at_us"), dead_at_us__gte=F("expires_at_us")
                ),
                name="lease_expires_before_it_is_dead",
            ),
        ]
        indexes = [
            models.Index(fields=["session"], name="lease_by_session"),
            models.Index(fields=["project", "opened_position"], name="lease_by_opening"),
            models.Index(fields=["task"], name="lease_by_task", condition=Q(task__isnull=False)),
            models.Index(
                fields=["expires_at_us"],
                name="lease_by_expiry",
                condition=Q(kind="session", released_at_us__isnull=True),
            ),
            models.Index(
                fields=["dead_at_us"],
                name="lease_by_death",
                condition=Q(released_at_us__isnull=True),
            ),
            models.Index(
                fields=["wedged_at_us"],
                name="lease_by_wedging",
                condition=Q(released_at_us__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"l_{self.opened_position}"


class HeartbeatMinute(models.Model):
    """Counts of a lease holder's heartbeats and progress reports in one minute."""

    id = models.BigAutoField(primary_key=True)
    lease = models.ForeignKey(
        Lease, on_delete=models.PROTECT, related_name="minutes", db_index=False
    )
    minute = models.IntegerField()  # minutes since 1970
    heartbeats = models.IntegerField(default=0)
    progresses = models.IntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["lease", "minute"], name="heartbeat_minute_is_counted_once"
            ),
            models.CheckConstraint(
                condition=Q(heartbeats__gte=0, progresses__gte=0), name="heartbeat_minute_counts_up"
            ),
        ]
        indexes = [models.Index(fields=["minute"], name="heartbeat_minute_by_time")]

    def __str__(self) -> str:
        return f"{self.lease_id} {self.minute}"


class Message(models.Model):
    """A message to one or all agents of a project; its text is in the entry's body."""

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
            models.Index(
                fields=["project", "recipient", "opened_position"], name="message_by_inbox"
            ),
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


class MessageRead(models.Model):
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


class MessageFile(models.Model):
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
