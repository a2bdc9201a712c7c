"""The one writer of Project."""

from uuid import UUID

from django.db import IntegrityError, transaction

from journal.entries import SYSTEM_SOURCE
from sessions.models import Project
from sessions.records import record
from sessions.refused import RefusedError

DEFAULT_NAME = "default"


def named(name: str) -> Project | None:
    """Return the project called `name`, or None."""
    return Project.objects.filter(name=name).first()


@transaction.atomic(savepoint=False)
def create(name: str, *, actor: str = SYSTEM_SOURCE) -> Project:
    """Create a project that observes and redacts. Raises RefusedError."""
    try:
        with transaction.atomic():
            project = Project.objects.create(name=name)
    except IntegrityError as error:
        raise RefusedError(f"There is already a project called {name!r}.") from error
    record(
        project.id,
        "admin.project_created",
        actor=actor,
        subject=project.id,
        facts={"mode": "observe"},
        words={"name": name},
    )
    return project


@transaction.atomic(savepoint=False)
def create_archive(name: str, identity: UUID, *, actor: str = SYSTEM_SOURCE) -> Project:
    """Create a project for imported bundles, which takes no agent token.

    Raises RefusedError.
    """
    try:
        with transaction.atomic():
            project = Project.objects.create(id=identity, name=name, archive=True)
    except IntegrityError as error:
        raise RefusedError(f"There is already a project called {name!r}.") from error
    texts = {"name": name, "archive": True}
    record(
        project.id,
        "admin.project_created",
        actor=actor,
        subject=project.id,
        facts={"mode": "archive"},
        words=texts,
    )
    return project


def expect_life(project: Project) -> None:
    """Raise RefusedError in an archive, where nobody can act."""
    if project.archive:
        raise RefusedError(
            f"{project.name} is a read-only archive of imported bundles. Choose another project."
        )


def ensure_default() -> Project:
    """Return the project "default", created if missing."""
    return named(DEFAULT_NAME) or create(DEFAULT_NAME)
