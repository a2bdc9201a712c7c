"""The one writer of Repository: which of its refs are production or protected."""

from collections.abc import Sequence

from django.db import transaction

from accounts import git_refs
from accounts.audit_log import record_admin_entry
from accounts.models import Project, Repository
from db.errors import ChangeRefused
from db.row_changes import RowChange, write_row_changes
from journal.entries import keyed_digest

MAX_REF_PATTERNS = 100
MAX_REF_PATTERN_LENGTH = 200
_PREFIXES = ("refs/heads/", "refs/tags/")


def ensure_repository(project: Project, name: str) -> Repository:
    """Return the repository called `name`, created if missing.

    Expects an open transaction. Not journalled: the fact that names the repository is in the
    journal already.
    """
    repository, _ = Repository.objects.get_or_create(project=project, name=name)
    return repository


def digest_repository_name(name: str) -> str:
    """Return the journal's keyed digest of a repository's name."""
    return keyed_digest("repository", name)


def shorten_ref(ref: str) -> str:
    """Return a ref without `refs/heads/` or `refs/tags/`; any other as it is."""
    for prefix in _PREFIXES:
        if ref.startswith(prefix):
            return ref[len(prefix) :]
    return ref


def classify_moved_refs(repository: Repository, moved: str) -> tuple[str, int]:
    """Return the worst class of an effect's `moved_refs`, and the patterns' version.

    No ref has the empty class. In a glob `*` also matches `/`, so `release/*` covers
    `release/2/hotfix`.
    """
    globs = (repository.production_refs.split("\n"), repository.protected_refs.split("\n"))
    production, protected = ([glob for glob in lines if glob] for lines in globs)
    return git_refs.find_worst_class(
        moved.split(), production, protected
    ), repository.patterns_version


def parse_ref_patterns(text: str) -> list[str]:
    """Return the globs in `text`, one per line, shortened, without repeats.

    Raises ChangeRefused, which names the line.
    """
    globs: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        pattern = shorten_ref(line.strip())
        if not pattern:
            continue
        if len(pattern) > MAX_REF_PATTERN_LENGTH:
            raise ChangeRefused(
                f"Line {number} is longer than {MAX_REF_PATTERN_LENGTH} characters. Shorten it."
            )
        if not pattern.isprintable() or " " in pattern:
            raise ChangeRefused(
                f"Line {number} contains a space or an invisible character. Remove it."
            )
        if pattern not in globs:
            globs.append(pattern)
    if len(globs) > MAX_REF_PATTERNS:
        raise ChangeRefused(
            f"These are {len(globs)} patterns. Keep at most {MAX_REF_PATTERNS} per class."
        )
    return globs


def restore_repositories(changes: Sequence[RowChange]) -> None:
    """Restore repositories to what the journal gives (manage.py rebuild)."""
    write_row_changes(Repository, changes)


@transaction.atomic(savepoint=False)
def change_ref_patterns(
    repository: Repository, *, production: str, protected: str, actor: str
) -> bool:
    """Store new patterns under the next version; False when they are unchanged.

    Effects keep the class that they got on arrival. Raises ChangeRefused.
    """
    wanted = ("\n".join(parse_ref_patterns(production)), "\n".join(parse_ref_patterns(protected)))
    repository.refresh_from_db(from_queryset=Repository.objects.select_for_update())
    if wanted == (repository.production_refs, repository.protected_refs):
        return False
    before = {
        "production_before": repository.production_refs,
        "protected_before": repository.protected_refs,
    }
    repository.production_refs, repository.protected_refs = wanted
    repository.patterns_version += 1
    record_admin_entry(
        repository.project_id,
        "admin.repository_changed",
        actor=actor,
        subject=repository.id,
        facts={
            "repository": digest_repository_name(repository.name),
            "patterns_version": repository.patterns_version,
            "production": keyed_digest("ref patterns", wanted[0]),
            "protected": keyed_digest("ref patterns", wanted[1]),
        },
        words={
            "repository": repository.name,
            "production": wanted[0],
            "protected": wanted[1],
            **before,
        },
    )
    repository.save(update_fields=["production_refs", "protected_refs", "patterns_version"])
    return True
