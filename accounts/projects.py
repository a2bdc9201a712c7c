"""The one writer of Project."""

import os
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from accounts.audit_log import record_admin_entry
from accounts.models import SAMPLE_IDS, Project
from db.errors import ChangeRefused
from db.row_changes import RowChange, write_row_changes
from journal.entries import SYSTEM_SOURCE, keyed_digest

DEFAULT_PROJECT_NAME = "default"
# The names of samples that load or were removed begin so: no job works on them.
HIDDEN_SAMPLE: Final = "Sample, "


def find_project(name: str) -> Project | None:
    """Return the project called `name`, or None."""
    return Project.objects.filter(name=name).first()


@transaction.atomic(savepoint=False)
def create_project(name: str, *, actor: str = SYSTEM_SOURCE) -> Project:
    """Create a project that observes and redacts. Raises ChangeRefused."""
    try:
        with transaction.atomic():
            project = Project.objects.create(name=name)
    except IntegrityError as error:
        raise ChangeRefused(f"There is already a project called {name!r}.") from error
    record_admin_entry(
        project.id,
        "admin.project_created",
        actor=actor,
        subject=project.id,
        facts=_list_facts(project, "observe"),
        words={"name": name},
    )
    return project


@transaction.atomic(savepoint=False)
def create_sample(*, actor: str) -> Project:
    """Create an empty sample project, which loads until `show_sample`."""
    identity = UUID(int=SAMPLE_IDS.start + int.from_bytes(os.urandom(7), "big"))
    project = Project.objects.create(
        id=identity, name=f"{HIDDEN_SAMPLE}loading {identity.hex[-8:]}"
    )
    record_admin_entry(
        project.id,
        "admin.project_created",
        actor=actor,
        subject=project.id,
        facts={**_list_facts(project, "observe"), "sample": "simulated times and people"},
        words={"name": project.name, "sample": True},
    )
    return project


@transaction.atomic(savepoint=False)
def show_sample(project: Project, *, actor: str) -> None:
    """Give a loaded sample its name: jobs take it as any other project from now on."""
    taken = set(Project.objects.filter(name__startswith="Sample").values_list("name", flat=True))
    numbered = ("Sample", *(f"Sample {number}" for number in range(2, len(taken) + 3)))
    _rename_sample(project, next(name for name in numbered if name not in taken), actor)


@transaction.atomic(savepoint=False)
def retire_sample(project: Project, *, actor: str) -> None:
    """Hide a sample from every job. Raises ChangeRefused for other projects."""
    if not project.is_sample:
        raise ChangeRefused(f"{project.name} is not a sample project and cannot be removed.")
    _rename_sample(project, f"{HIDDEN_SAMPLE}removed {project.id.hex[-8:]}", actor)


def query_samples() -> "QuerySet[Project]":
    """Return all sample projects, also those that load or were removed."""
    first, last = UUID(int=SAMPLE_IDS.start), UUID(int=SAMPLE_IDS.stop - 1)
    return Project.objects.filter(id__gte=first, id__lte=last)


def query_hidden_samples() -> "QuerySet[Project]":
    """Return the sample projects that load or were removed."""
    return query_samples().filter(name__startswith=HIDDEN_SAMPLE)


def _rename_sample(project: Project, name: str, actor: str) -> None:
    record_admin_entry(
        project.id,
        "admin.project_renamed",
        actor=actor,
        subject=project.id,
        facts={"name": digest_project_name(name)},
        words={"name": name, "name_before": project.name},
    )
    Project.objects.filter(pk=project.pk).update(name=name)
    project.name = name


@transaction.atomic(savepoint=False)
def create_archive(name: str, identity: UUID, *, actor: str = SYSTEM_SOURCE) -> Project:
    """Create a project for bundles, without agent tokens. Raises ChangeRefused."""
    try:
        with transaction.atomic():
            project = Project.objects.create(id=identity, name=name, archive=True)
    except IntegrityError as error:
        raise ChangeRefused(f"There is already a project called {name!r}.") from error
    texts = {"name": name, "archive": True}
    record_admin_entry(
        project.id,
        "admin.project_created",
        actor=actor,
        subject=project.id,
        facts=_list_facts(project, "archive"),
        words=texts,
    )
    return project


def _list_facts(project: Project, mode: str) -> dict[str, object]:
    """Return what the entry of a new project says of it without its name."""
    return {
        "mode": mode,
        "redacts": project.redacts,
        "name": digest_project_name(project.name),
    }


def digest_project_name(name: str) -> str:
    """Return the journal's keyed digest of a project's name."""
    return keyed_digest("project name", name)


def restore_projects(changes: Sequence[RowChange]) -> None:
    """Restore projects to what the journal gives (manage.py rebuild)."""
    write_row_changes(Project, changes)


def require_active_project(project: Project) -> None:
    """Raise ChangeRefused in an archive, where nobody can act."""
    if project.archive:
        raise ChangeRefused(
            f"{project.name} is a read-only archive of imported bundles. Choose another project."
        )


def load_oldest_project() -> UUID:
    """Return the project whose journal has what concerns no project: never an archive."""
    rows = Project.objects.filter(archive=False).order_by("id")
    return rows.values_list("id", flat=True)[0]


def ensure_default_project() -> Project:
    """Return the project "default", created if missing."""
    return find_project(DEFAULT_PROJECT_NAME) or create_project(DEFAULT_PROJECT_NAME)
