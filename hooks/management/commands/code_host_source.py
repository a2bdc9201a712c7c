"""`manage.py code_host_source`: add, rotate, disable, enable or list webhook sources."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from accounts.management.project_option import add_project_option, require_project
from accounts.models import Project
from db.errors import ChangeRefused
from hooks.code_hosts import sources
from hooks.code_hosts.settings_views import build_address
from hooks.models import CodeHostSource
from journal.entries import SYSTEM_SOURCE
from ledger.states import CODE_HOSTS


class Command(BaseCommand):
    """Manage the sources of a project; a secret is printed once."""

    help = "Manage the code host webhooks of a project (docs/how-to/code-hosts.md)."
    requires_system_checks: list[str] = []  # they check the code, and double the start-up time

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("do", choices=("add", "rotate", "disable", "enable", "list"))
        parser.add_argument("host", nargs="?", choices=CODE_HOSTS, help="not for list")
        parser.add_argument("name", nargs="?", metavar="NAME", help="not for list")
        parser.add_argument(
            "--overlap",
            type=int,
            default=24,
            choices=sources.OVERLAP_HOURS,
            help="hours for which rotate still accepts the present secret; default: %(default)s",
        )
        add_project_option(parser)

    def handle(self, *_args: Any, **options: Any) -> str:
        project = require_project(options["project"])
        if options["do"] == "list":
            return self._list_sources(project)
        if not options["host"] or not options["name"]:
            raise CommandError("Name the code host and the webhook, such as github acme.")
        try:
            with transaction.atomic(durable=True):
                return self._change_source(
                    project, options["do"], options["host"], options["name"], options["overlap"]
                )
        except ChangeRefused as refusal:
            raise CommandError(str(refusal)) from refusal

    def _list_sources(self, project: Project) -> str:
        rows = project.code_host_sources.order_by("host", "name")[: sources.MAX_SOURCES]
        lines = [
            f"{row.host} {row.name}: {'enabled' if row.enabled else 'disabled'},"
            f" {row.refused_count} refused, {build_address(row)}"
            for row in rows
        ]
        return "\n".join(lines) or f"{project.name} has no webhooks."

    def _change_source(self, project: Project, do: str, host: str, name: str, overlap: int) -> str:
        if do == "add":
            return self._print_secret(sources.add_source(project, host, name, actor=SYSTEM_SOURCE))
        source = project.code_host_sources.filter(host=host, name=name).first()
        if source is None:
            raise CommandError(f"{project.name} has no webhook {name!r} of {host}.")
        if do == "rotate":
            return self._print_secret(
                sources.rotate_source_secret(source, overlap, actor=SYSTEM_SOURCE)
            )
        sources.switch_source(source, enabled=do == "enable", actor=SYSTEM_SOURCE)
        return f"{host} {name} is {do}d."

    def _print_secret(self, source: CodeHostSource) -> str:
        secret = sources.derive_source_secret(source.id, source.secret_generation)
        return f"Address: {build_address(source)}\nSecret, shown only now: {secret}"
