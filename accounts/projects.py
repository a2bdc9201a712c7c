"""The one writer of Project."""

from uuid import UUID

from django.db import IntegrityError, transaction

from accounts.audit_log import record_admin_entry
from accounts.models import Project
from db.errors import ChangeRefused
from journal.entries import SYSTEM_SOURCE

DEFAULT_PROJECT_NAME = "default"


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
        facts={"mode": "observe"},
        words={"name": name},
    )
    return project


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
        facts={"mode": "archive"},
        words=texts,
    )
    return project


def require_active_project(project: Project) -> None:
    """Raise ChangeRefused in an archive, where nobody can act."""
    if project.archive:
        raise ChangeRefused(
            f"{project.name} is a read-only archive of imported bundles. Choose another project."
        )


def ensure_default_project() -> Project:
    """Return the project "default", created if missing."""
    return find_project(DEFAULT_PROJECT_NAME) or create_project(DEFAULT_PROJECT_NAME)
