"""`manage.py load_tools FILE`: declare a project's tools from a tools.yaml."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from accounts.management.project_option import add_project_option, require_project
from db.yaml_reader import DocumentError, read_yaml_file
from ledger.tools import registry, tools_yaml


class Command(BaseCommand):
    """Load the file completely or not at all."""

    help = (
        "Declare the tools of a project from a YAML file (docs/examples/tools.yaml). The file is "
        "the complete list: any tool missing from it becomes opaque and irreversible, like every "
        "undeclared tool."
    )
    requires_system_checks: list[str] = []  # they check the code, and double the start-up time

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="a tools.yaml")
        add_project_option(parser)
        parser.add_argument(
            "--unless-declared",
            action="store_true",
            help="do nothing if the project already has declared tools",
        )

    def handle(self, *args: Any, **options: Any) -> str:
        path = Path(options["file"])
        project = require_project(options["project"])
        try:
            text = read_yaml_file(path, tools_yaml.MAX_BYTES)
            declared = tools_yaml.parse_tools_yaml(text)
        except DocumentError as fault:
            raise CommandError(f"{path}: {fault} Nothing was loaded.") from fault
        with transaction.atomic(durable=True):
            if options["unless_declared"] and project.tools.exists():
                return ""
            change = registry.declare_tools(project, declared)
        lines = [f"{project.name}: {len(declared)} tools declared."]
        if not change:
            lines.append("No changes.")
        for word, names in (("Added", change.added), ("Changed", change.changed)):
            if names:
                lines.append(f"{word}: {', '.join(names)}.")
        if change.removed:
            removed = ", ".join(change.removed)
            lines.append(f"No longer declared, so opaque and irreversible from now on: {removed}.")
        return "\n".join(lines)
