"""Projects and people, agents and their sessions, tasks, items and artifacts.

Every table has a project column. Rows that an agent may change have a `version`. Columns ending in
`_mark` hold the order key of the fact that set the neighbouring values (journal/order.py), so that
facts may arrive in any order.
"""

from django.conf import settings
from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Length

from journal.ids import uuid7
from sessions import refs

ROLES = ("viewer", "reviewer", "operator", "administrator")
MODES = ("leased", "reported", "one_shot")
STATUSES = ("running", "waiting", "suspended", "completed", "failed", "cancelled")
ENDED = ("completed", "failed", "cancelled")
TASK_STATES = ("pending", "running", "blocked", "done", "failed", "cancelled")
ITEM_STATES = ("pending", "done", "failed")
REF_CLASSES = refs.CLASSES
SCOPES = ("agent", "import", "audit")  # audit only reads, and sees who decided
models.CharField.register_lookup(Length)  # for artifact_hash_is_sha256


class Project(models.Model):
    """A tenant: all data is scoped to one project."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    name = models.CharField(max_length=64)
    redacts = models.BooleanField(default=True)  # secrets in payloads are replaced before storage
    archive = models.BooleanField(default=False)  # holds imported bundles, and no agent tokens
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["name"], name="project_name_is_unique"),
            models.CheckConstraint(condition=~Q(name=""), name="project_has_a_name"),
        ]

    def __str__(self) -> str:
        return self.name


class Person(models.Model):
    """A user's settings, and the pseudonym that names the user in the journal."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.PROTECT
    )
    pseudonym = models.CharField(max_length=64)
    theme = models.CharField(max_length=8, default="system")
    clock = models.CharField(max_length=8, default="utc")
    single_keys = models.BooleanField(default=True)
    # Only its owner knows the password. A trigger clears it when a password changes (people.LAW).
    password_is_own = models.BooleanField(default=False)
    # The pseudonym of another person who set the last password; empty for a command on the
    # server. Kept when the owner replaces the password.
    password_given_by = models.CharField(max_length=64, default="", blank=True)
    password_given_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["pseudonym"], name="person_pseudonym_is_unique"),
            models.CheckConstraint(
                condition=Q(theme__in=["system", "light", "dark"]), name="person_theme_is_known"
            ),
            models.CheckConstraint(
                condition=Q(clock__in=["utc", "local", "relative"]), name="person_clock_is_known"
            ),
        ]

    def __str__(self) -> str:
        return self.pseudonym


class Membership(models.Model):
    """A person's role in a project."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="memberships")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="memberships"
    )
    role = models.CharField(max_length=16)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "user"], name="membership_is_one_per_person"
            ),
            models.CheckConstraint(condition=Q(role__in=ROLES), name="membership_role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} {self.role}"


class Invitation(models.Model):
    """A role offered to a person who has not answered yet."""

    id = models.UUIDField(primary_key=True, default=uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="invitations")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="invitations"
    )
    role = models.CharField(max_length=16)
    invited_by = models.CharField(max_length=64)  # a pseudonym
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "user"], name="invitation_is_one_per_person"
            ),
            models.CheckConstraint(condition=Q(role__in=ROLES), name="invitation_role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} {self.role}"


class Agent(models.Model):
    """A program with tokens, an owner, a team and a versioned charter.

    Agents of one team may write for each other's sessions (sessions/speakers.py).
    """

    id = models.UUIDField(primary_key=True, default=uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="agents")
    name = models.CharField(max_length=64)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="owned_agents",
    )
    team = models.CharField(max_length=64, default="", blank=True)
    charter = models.TextField(default="", blank=True)
    charter_version = models.IntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "name"], name="agent_name_is_unique_in_project"
            ),
            models.CheckConstraint(condition=~Q(name=""), name="agent_has_a_name"),
        ]

    def __str__(self) -> str:
        return self.name


class AgentToken(models.Model):
    """A bearer token `gbk_<public_id>_<secret>`.

    Only a keyed hash of the secret is stored.
    """

    id = models.UUIDField(primary_key=True, default=uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="tokens")
    agent = models.ForeignKey(Agent, on_delete=models.PROTECT, related_name="tokens")
    public_id = models.CharField(max_length=8)
    digest = models.BinaryField()  # HMAC-SHA256(pepper, secret)
    scope = models.CharField(max_length=8, default="agent")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    used_at = models.DateTimeField(null=True)  # to the minute

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["public_id"], name="token_public_id_is_unique"),
            models.CheckConstraint(condition=Q(scope__in=SCOPES), name="token_scope_is_known"),
        ]

    def __str__(self) -> str:
        return f"gbk_{self.public_id}"


class Repository(models.Model):
    """A repository that agents work on.

    Its ref patterns (one glob per line) define which refs are production or protected.
    """

    id = models.UUIDField(primary_key=True, default=uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="repositories")
    name = models.CharField(max_length=200)
    production_refs = models.TextField(default="main\nmaster\nproduction", blank=True)
    protected_refs = models.TextField(default="release/*", blank=True)
    patterns_version = models.IntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "name"], name="repository_name_is_unique_in_project"
            ),
            models.CheckConstraint(condition=~Q(name=""), name="repository_has_a_name"),
        ]
        verbose_name_plural = "repositories"

    def __str__(self) -> str:
        return self.name


class Session(models.Model):
    """A long-lived execution.

    Facts reported for an unknown key open it; its own `session.started` may come later.
    """

    id = models.UUIDField(primary_key=True, default=uuid7)
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
    # The field history: see sessions/registers.py.
    said = models.JSONField(db_default=Value({}, models.JSONField()), default=dict)
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
    said = models.JSONField(default=dict)
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
    """Something a session made or kept, identified by its content's hash.

    Gatebook may store its bytes.
    """

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


# Django looks for models in this module.
import sessions.models_leases  # noqa: E402
import sessions.models_messages  # noqa: E402
import sessions.models_state  # noqa: E402
import sessions.models_teams  # noqa: E402, F401
