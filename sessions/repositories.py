"""The one writer of Repository: which of its refs are production or protected."""

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
    """Return the repository called `name`, created if missing.

    Expects an open transaction. Not journalled: the fact that names the repository is in the
    journal already.
    """
    repository, _ = Repository.objects.get_or_create(project=project, name=name)
    return repository


def short(ref: str) -> str:
    """Return a ref without `refs/heads/` or `refs/tags/`; any other as it is."""
    for prefix in _PREFIXES:
        if ref.startswith(prefix):
            return ref[len(prefix) :]
    return ref


def moved_refs(session: UUID, ref: str, arguments: Any) -> str:
    """Return what git moves for `ref`, as an effect stores it.

    HEAD is the branch that the arguments or the session name.
    """

    def branch() -> str:
        named = arguments.get("branch") if isinstance(arguments, dict) else None
        if isinstance(named, str) and named:
            return named
        return Session.objects.filter(id=session).values_list("branch", flat=True).first() or ""

    return " ".join(refs.moved(ref, branch))


def classify(repository: Repository, moved: str) -> tuple[str, int]:
    """Return the worst class of an effect's `moved_refs`, and the patterns' version.

    No ref has the empty class. In a glob `*` also matches `/`, so `release/*` covers
    `release/2/hotfix`.
    """
    globs = (repository.production_refs.split("\n"), repository.protected_refs.split("\n"))
    production, protected = ([glob for glob in lines if glob] for lines in globs)
    return refs.class_of(moved.split(), production, protected), repository.patterns_version


def patterns(text: str) -> list[str]:
    """Return the globs in `text`, one per line, shortened, without repeats.

    Raises RefusedError, which names the line.
    """
    globs: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        pattern = short(line.strip())
        if not pattern:
            continue
        if len(pattern) > MAX_PATTERN_LENGTH:
            raise RefusedError(
                f"Line {number} is longer than {MAX_PATTERN_LENGTH} characters. Shorten it."
            )
        if not pattern.isprintable() or " " in pattern:
            raise RefusedError(
                f"Line {number} contains a space or an invisible character. Remove it."
            )
        if pattern not in globs:
            globs.append(pattern)
    if len(globs) > MAX_PATTERNS:
        raise RefusedError(
            f"These are {len(globs)} patterns. Keep at most {MAX_PATTERNS} per class."
        )
    return globs


@transaction.atomic(savepoint=False)
def change_patterns(repository: Repository, *, production: str, protected: str, actor: str) -> bool:
    """Store new patterns under the next version; False when they are unchanged.

    Effects keep the class that they got on arrival. Raises RefusedError.
    """
    wanted = ("\n".join(patterns(production)), "\n".join(patterns(protected)))
    repository.refresh_from_db(from_queryset=Repository.objects.select_for_update())
    if wanted == (repository.production_refs, repository.protected_refs):
        return False
    before = {
        "production_before": repository.production_refs,
        "protected_before": repository.protected_refs,
    }
    repository.production_refs, repository.protected_refs = wanted
    repository.patterns_version += 1
    repository.save(update_fields=["production_refs", "protected_refs", "patterns_version"])
    record(
        repository.project_id,
        "admin.repository_changed",
        actor=actor,
        subject=repository.id,
        facts={"patterns_version": repository.patterns_version},
        words={
            "repository": repository.name,
            "production": wanted[0],
            "protected": wanted[1],
            **before,
        },
    )
    return True
