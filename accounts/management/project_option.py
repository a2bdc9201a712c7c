"""The option `--project` of management commands."""

from argparse import ArgumentParser

from django.core.management.base import CommandError

from accounts import projects
from accounts.models import Project


def add_project_option(parser: ArgumentParser, prefix: str = "") -> None:
    """Add `--project`, the name of a project."""
    parser.add_argument(
        "--project",
        default=projects.DEFAULT_PROJECT_NAME,
        metavar="NAME",
        help=f"{prefix}default: %(default)s",
    )


def require_project(name: str) -> Project:
    """Return the project called `name`. Raises CommandError."""
    project = projects.find_project(name)
    if project is None:
        raise CommandError(
            f"There is no project {name!r}. Check --project, or run `manage.py create_project"
            " NAME` first."
        )
    return project
