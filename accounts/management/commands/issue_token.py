"""`manage.py issue_token --agent NAME`: issue an agent token and print only that."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from accounts import agents, tokens
from accounts.management.project_option import add_project_option, require_project
from accounts.models import SCOPES
from journal.entries import SYSTEM_SOURCE


class Command(BaseCommand):
    """Issue a token, and create the agent if the project has none of that name."""

    help = "Issue an agent token and print it once. Gatebook stores only a keyed hash."
    requires_system_checks: list[str] = []  # they check code, and take half of the start-up

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--agent", required=True, metavar="NAME", help="the agent the token is for"
        )
        add_project_option(parser)
        parser.add_argument("--owner", metavar="USER", help="the person responsible for the agent")
        parser.add_argument(
            "--expires",
            default="90d",
            metavar="90d",
            help="12h, 90d, 2w or never; default: %(default)s",
        )
        parser.add_argument(
            "--team",
            metavar="NAME",
            help="agents of one team may work in each other's sessions; '' for no team",
        )
        parser.add_argument("--scope", default="agent", choices=SCOPES, help="default: %(default)s")

    def handle(self, *args: Any, **options: Any) -> str:
        project = require_project(options["project"])
        owner = None
        if options["owner"]:
            owner = User.objects.filter(username=options["owner"]).first()
            if owner is None:
                raise CommandError(
                    f"There is no person {options['owner']!r}."
                    f" Add the person to {project.name} first."
                )
        try:
            expires_in = tokens.parse_lifetime(options["expires"])
            with transaction.atomic(durable=True):
                agent = agents.ensure_agent(project, options["agent"], owner)
                if options["team"] is not None:
                    agents.set_agent_team(agent, options["team"])
                return tokens.issue_token(
                    agent, scope=options["scope"], expires_in=expires_in, actor=SYSTEM_SOURCE
                )
        except ValueError as error:
            raise CommandError(str(error)) from error
