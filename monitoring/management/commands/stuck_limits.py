"""manage.py stuck_limits: show the limits of the stuck rules, or set one for an agent."""

from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from accounts.management.project_option import add_project_option, require_project
from accounts.models import Agent
from db.errors import ChangeRefused
from monitoring.stuck import rule_limits
from monitoring.stuck.rules import DEFAULT_LIMITS, LIMIT_NAMES


class Command(BaseCommand):
    requires_system_checks: list[str] = []  # they check code, and take half of the start-up
    help = (
        "Show the limits of the stuck rules. With --agent, --limit and --value, set a limit of an"
        " agent."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_project_option(parser)
        parser.add_argument("--agent", help="agent name; without --limit, its limits are shown")
        parser.add_argument("--limit", choices=LIMIT_NAMES)
        parser.add_argument("--value", help="seconds (a count for loop_…), or 'default'")

    def handle(self, *_args: Any, **options: Any) -> None:
        project = require_project(options["project"])
        agent = None
        if options["agent"]:
            agent = Agent.objects.filter(project=project, name=options["agent"]).first()
            if agent is None:
                raise CommandError(f"{project.name} has no agent {options['agent']!r}.")
        if options["limit"]:
            if agent is None or options["value"] is None:
                raise CommandError("--agent or --value is missing. Pass both with --limit.")
            self._put(agent, options["limit"], options["value"])
        shown = (
            rule_limits.load_limits(project.id).of(agent.id)
            if agent is not None
            else DEFAULT_LIMITS
        )
        for name, value in asdict(shown).items():
            self.stdout.write(
                f"{name}: {value}{'' if value == getattr(DEFAULT_LIMITS, name) else ' (its own)'}"
            )

    def _put(self, agent: Agent, name: str, text: str) -> None:
        if text != "default" and not (text.isascii() and text.isdigit()):
            raise CommandError("Invalid --value. Use a whole number or 'default'.")
        try:
            with transaction.atomic(durable=True):
                rule_limits.set_limit(
                    agent, name, None if text == "default" else int(text[:12]), actor="gatebook"
                )
        except ChangeRefused as refusal:
            raise CommandError(str(refusal)) from None
