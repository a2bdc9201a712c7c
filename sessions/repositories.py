"""The one writer of Repository: which refs of it are production or protected, by one glob a line."""

from typing import Any
from uuid import UUID

from django.db import transaction

from sessions import refs
from sessions.models import Project, Repository, Session
from sessions.records import record
from sessions.refused import RefusedError

MAX_PATTERNS = 100
MAX_PATTERN_LENGTH = 200
_PREFIXES = ("refs/heads/", "refs/tags/")


def ensure(project: Project, name: str) -> Repository:
    """The repository called `name`, created with the default patterns when an agent first speaks of it.

    Expects an open transaction. Not journalled: the fact that names it is in the journal already.
    """
    repository, _ = Repository.objects.get_or_create(project=project, name=name)
    return repository


def short(ref: str) -> str:
    """`refs/heads/main` and `refs/tags/v1` without their prefix; any other ref as it is."""
    for prefix in _PREFIXES:
        if ref.startswith(prefix):
            return ref[len(prefix) :]
    return ref


def moved_refs(session: UUID, ref: str, arguments: Any) -> str:
    """What git moves for `ref`, as an effect stores it; HEAD is the branch that the arguments or the session name."""

    def branch() -> str:
        named = arguments.get("branch") if isinstance(arguments, dict) else None
        if isinstance(named, str) and named:
            return named
        return Session.objects.filter(id=session).values_list("branch", flat=True).first() or ""

    return " ".join(refs.moved(ref, branch))


def classify(repository: Repository, moved: str) -> tuple[str, int]:
    """The worst class of the refs `moved` (an effect's `moved_refs`), and the version of the patterns that say so.

    No ref at all has the empty class. In a glob `*` also matches `/`, so `release/*` covers `release/2/hotfix`.
    """
    globs = (repository.production_refs.split("\n"), repository.protected_refs.split("\n"))
    production, protected = ([glob for glob in lines if glob] for lines in globs)
    return refs.class_of(moved.split(), production, protected), repository.patterns_version


def patterns(text: str) -> list[str]:
    """The globs in `text`, one a line, short, without repeats. Raises RefusedError, naming the line."""
    found: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        pattern = short(line.strip())
        if not pattern:
            continue
        if len(pattern) > MAX_PATTERN_LENGTH:
            raise RefusedError(f"Line {number} is longer than {MAX_PATTERN_LENGTH} characters.")
        if not pattern.isprintable() or " " in pattern:
            raise RefusedError(f"Line {number} holds a space or an invisible character, which no ref can have.")
        if pattern not in found:
            found.append(pattern)
    if len(found) > MAX_PATTERNS:
        raise RefusedError(f"These are {len(found)} patterns; a repository holds at most {MAX_PATTERNS} of a kind.")
    return found


@transaction.atomic(savepoint=False)
def change_patterns(repository: Repository, *, production: str, protected: str, actor: str) -> bool:
    """Store new patterns under the next version and return True; False when they are the same as before.

    Effects keep the class that was stamped on them when they arrived. Raises RefusedError.
    """
    wanted = ("\n".join(patterns(production)), "\n".join(patterns(protected)))
    repository.refresh_from_db(from_queryset=Repository.objects.select_for_update())
    if wanted == (repository.production_refs, repository.protected_refs):
        return False
    before = {"production_before": repository.production_refs, "protected_before": repository.protected_refs}
    repository.production_refs, repository.protected_refs = wanted
    repository.patterns_version += 1
    repository.save(update_fields=["production_refs", "protected_refs", "patterns_version"])
    record(
        repository.project_id,
        "admin.repository_changed",
        actor=actor,
        subject=repository.id,
        facts={"patterns_version": repository.patterns_version},
        words={"repository": repository.name, "production": wanted[0], "protected": wanted[1], **before},
    )
    return True
