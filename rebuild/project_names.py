"""What the entries of a project's settings say: patterns of refs, and rows by their names."""

from typing import Any, Final, NamedTuple
from uuid import UUID

from django.contrib.auth.models import User

from accounts import git_refs
from accounts.models import Person, Repository
from journal.models import Body, Entry
from journal.summaries import parse_body
from ledger.partial_indexes import IS_OF_A_RARE_KIND
from rebuild.project_journal import NO_PERSON
from rebuild.registry import RebuildBatch

_DEFAULT_PRODUCTION: Final = Repository._meta.get_field("production_refs").get_default()
_DEFAULT_PROTECTED: Final = Repository._meta.get_field("protected_refs").get_default()


class RefPatterns(NamedTuple):
    """The patterns of a repository from `position` on; None where the entry's body was erased."""

    position: int
    version: int
    production: list[str] | None
    protected: list[str] | None


class ProjectNames:
    """Ids by name within one project. Each kind is read once, when it is first needed."""

    def __init__(self, project: UUID) -> None:
        self._project = project
        self._repositories: dict[str, UUID] | None = None
        self._patterns: dict[UUID, list[RefPatterns]] | None = None
        self._first_policy: int | None = None
        self._users: dict[str, int | None] = {}
        self._people: dict[str, int | None] = {}

    def find_repository(self, name: str) -> UUID | None:
        """Return the id of a repository; its name never changes."""
        return self.load_repositories().get(name)

    def load_repositories(self) -> dict[str, UUID]:
        """Return the ids of all repositories by name."""
        if self._repositories is None:
            rows = Repository.objects.filter(project=self._project)
            self._repositories = dict(rows.values_list("name", "id"))
        return self._repositories

    def find_patterns(self, repository: UUID, position: int) -> RefPatterns:
        """Return the patterns of a repository that were in force at a position."""
        if self._patterns is None:
            self._patterns = self._load_patterns()
        versions = [row for row in self._patterns.get(repository, []) if row.position < position]
        return versions[-1] if versions else DEFAULT_PATTERNS

    def _load_patterns(self) -> dict[UUID, list[RefPatterns]]:
        changed = Entry.objects.filter(
            IS_OF_A_RARE_KIND,
            project=self._project,
            kind="admin.repository_changed",
            lane="system",
        ).order_by("position")
        rows = list(changed.values_list("position", "subject"))
        texts = dict(
            Body.objects.filter(entry__in=[position for position, _ in rows]).values_list(
                "entry_id", "text"
            )
        )
        patterns: dict[UUID, list[RefPatterns]] = {}
        for position, repository in rows:
            if repository is None:
                continue
            body = parse_body(texts.get(position, ""))
            versions = patterns.setdefault(repository, [])
            versions.append(
                RefPatterns(
                    position,
                    len(versions) + 2,  # the first change makes version 2
                    _split_lines(body.get("production")),
                    _split_lines(body.get("protected")),
                )
            )
        return patterns

    def has_policy(self, position: int) -> bool:
        """Return True if a policy was activated before a position."""
        if self._first_policy is None:
            activated = Entry.objects.filter(
                IS_OF_A_RARE_KIND, project=self._project, kind="policy.activated", lane="system"
            )
            first = activated.order_by("position").values_list("position", flat=True).first()
            self._first_policy = 2**63 if first is None else first
        return self._first_policy < position

    def find_user(self, username: str) -> int | None:
        """Return the id of an account by its present name."""
        if username not in self._users:
            rows = User.objects.filter(username=username)
            self._users[username] = rows.values_list("id", flat=True).first()
        return self._users[username]

    def find_person(self, pseudonym: str) -> int | None:
        """Return the id of the account that a pseudonym stands for."""
        if pseudonym not in self._people:
            rows = Person.objects.filter(pseudonym=pseudonym)
            self._people[pseudonym] = rows.values_list("user_id", flat=True).first()
        return self._people[pseudonym]


def load_project_names(batch: RebuildBatch) -> ProjectNames:
    """Return the names of the batch's project, read once for all its checks.

    A batch of the installation has names of people only.
    """
    if "names" not in batch.cache:
        batch.cache["names"] = ProjectNames(batch.project or UUID(int=0))
    names: ProjectNames = batch.cache["names"]
    return names


def read_user(
    batch: RebuildBatch, pseudonym: str | None, unknown: dict[str, str], column: str
) -> int | None:
    """Return the account of a pseudonym; where there is none, add the column to `unknown`."""
    if pseudonym is None:
        return None
    user = load_project_names(batch).find_person(pseudonym)
    if user is None:
        unknown[column] = NO_PERSON
    return user


def classify_refs_again(patterns: RefPatterns, moved: str) -> str | None:
    """Return the worst class of `moved_refs` by these patterns; None if they were erased."""
    if patterns.production is None or patterns.protected is None:
        return None
    return git_refs.find_worst_class(moved.split(), patterns.production, patterns.protected)


def _split_lines(text: Any) -> list[str] | None:
    return [line for line in text.split("\n") if line] if isinstance(text, str) else None


DEFAULT_PATTERNS: Final = RefPatterns(
    0, 1, _split_lines(_DEFAULT_PRODUCTION), _split_lines(_DEFAULT_PROTECTED)
)
