"""`manage.py load_tools FILE`: makes a tools.yaml the declaration of a project's tools."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from ledger import declarations, tools
from sessions import projects


class Command(BaseCommand):
    """Load the whole file or nothing of it."""

    help = (
        "Declare the tools of a project from a YAML file (docs/examples/tools.yaml). The file is the whole list: a "
        "tool it no longer names becomes opaque and irreversible, as every undeclared tool is."
    )
    requires_system_checks: list[str] = []  # they are of the code, and take half of a start

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="a tools.yaml")
        parser.add_argument(
            "--project", default=projects.DEFAULT_NAME, metavar="NAME", help="default: %(default)s"
        )
        parser.add_argument(
            "--unless-declared",
            action="store_true",
            help="change nothing where the project has declared tools",
        )

    def handle(self, *args: Any, **options: Any) -> str:
        path = Path(options["file"])
        project = projects.named(options["project"])
        if project is None:
            raise CommandError(f"There is no project {options['project']!r}.")
        try:
            declared = declarations.read(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise CommandError(f"{path} is not UTF-8 text.") from error
        except declarations.FaultyFileError as fault:
            raise CommandError(f"{path}: {fault} Nothing was loaded.") from fault
        with transaction.atomic(durable=True):
            if options["unless_declared"] and project.tools.exists():
                return ""
            change = tools.declare(project, declared)
        lines = [f"{project.name}: {len(declared)} tools declared."]
        if not change:
            lines.append("Nothing was different from before.")
        for word, names in (("Added", change.added), ("Changed", change.changed)):
            if names:
                lines.append(f"{word}: {', '.join(names)}.")
        if change.removed:
            lines.append(
                f"No longer declared, so opaque and irreversible from now on: {', '.join(change.removed)}."
            )
        return "\n".join(lines)
