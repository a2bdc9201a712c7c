"""Projects, the people and agents in them, agents' tokens, repositories and teams."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from accounts import git_refs
from db.ids import new_uuid7

ROLES = ("viewer", "reviewer", "operator", "administrator")
REF_CLASSES = git_refs.REF_CLASSES_WORST_FIRST
# The ids of sample projects, and of no others (docs/decisions/0041-sample-project.md).
_FIRST_SAMPLE = 0x5A3B1E00_0000_8000_8000_000000000000
SAMPLE_IDS = range(_FIRST_SAMPLE, _FIRST_SAMPLE + (1 << 56))
SCOPES = ("agent", "import", "audit")  # audit only reads, and sees who decided


class Project(models.Model):
    """A tenant: all data is scoped to one project."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
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

    @property
    def is_sample(self) -> bool:
        """True for a sample project, whose people, agents and times are made up."""
        return self.id.int in SAMPLE_IDS


class Person(models.Model):
    """A user's settings, and the pseudonym that names the user in the journal."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.PROTECT
    )
    pseudonym = models.CharField(max_length=64)
    theme = models.CharField(max_length=8, default="system")
    clock = models.CharField(max_length=8, default="utc")
    single_keys = models.BooleanField(default=True)
    # Only its owner knows the password. A trigger clears it when a password changes: see
    # people.PASSWORD_TRIGGERS.
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

    id = models.UUIDField(primary_key=True, default=new_uuid7)
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

    id = models.UUIDField(primary_key=True, default=new_uuid7)
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

    Agents of one team may write for each other's sessions (sessions/writers.py).
    """

    id = models.UUIDField(primary_key=True, default=new_uuid7)
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
    """A bearer token `gbk_<public_id>_<secret>`, stored as a keyed hash only."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
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

    id = models.UUIDField(primary_key=True, default=new_uuid7)
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


class Team(models.Model):
    """A named group of a project's members that rules can ask for approval."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="teams")
    name = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project", "name"], name="team_name_is_unique_in_project"
            ),
            models.CheckConstraint(condition=~Q(name=""), name="team_has_a_name"),
        ]

    def __str__(self) -> str:
        return self.name


class TeamMember(models.Model):
    """A member of a team. A person who leaves the project leaves its teams."""

    id = models.UUIDField(primary_key=True, default=new_uuid7)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="members")
    membership = models.ForeignKey(Membership, on_delete=models.CASCADE, related_name="teams")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["team", "membership"], name="team_member_is_listed_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.membership_id} in {self.team_id}"
