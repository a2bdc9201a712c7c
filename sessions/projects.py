"""The one writer of Project."""

from uuid import UUID

from django.db import IntegrityError, transaction

from journal.entries import SYSTEM_SOURCE
from sessions.models import Project
from sessions.records import record
from sessions.refused import RefusedError

DEFAULT_NAME = "default"


def named(name: str) -> Project | None:
    """The project called `name`, or None."""
    return Project.objects.filter(name=name).first()


@transaction.atomic(savepoint=False)
def create(name: str, *, actor: str = SYSTEM_SOURCE) -> Project:
    """Create a project; a new one observes and redacts. Raises RefusedError."""
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
    """Create a project for what bundles bring, which takes no agent's token. Raises RefusedError."""
    try:
        with transaction.atomic():
            project = Project.objects.create(id=identity, name=name, archive=True)
    except IntegrityError as error:
        raise RefusedError(f"There is already a project called {name!r}.") from error
    words = {"name": name, "archive": True}
    record(project.id, "admin.project_created", actor=actor, subject=project.id, facts={"mode": "archive"}, words=words)
    return project


def expect_life(project: Project) -> None:
    """Raise RefusedError in an archive: what is to be done is for those who act in a project, and nobody does there."""
    if project.archive:
        raise RefusedError(f"{project.name} is an archive of what bundles brought: nobody acts there.")


def ensure_default() -> Project:
    """The project "default" of a single-user installation, created when it is not there."""
    return named(DEFAULT_NAME) or create(DEFAULT_NAME)
