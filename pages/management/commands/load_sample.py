"""`manage.py load_sample`: create the sample project."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from accounts.projects import query_samples
from pages.sample.sample_project import load_sample


class Command(BaseCommand):
    """Load the sample project."""

    help = "Create the sample project: two weeks of work by five agents, all of it made up."
    requires_system_checks: list[str] = []  # they check code, and take half of the start-up

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--administrator",
            metavar="USER",
            help="a person; the default is the first administrator of a project",
        )
        parser.add_argument(
            "--unless-loaded",
            action="store_true",
            help="do nothing if a sample was loaded before, even if it was removed since",
        )

    def handle(self, *args: Any, **options: Any) -> str:
        if options["unless_loaded"] and query_samples().exists():
            return ""
        username = options["administrator"]
        if username:
            user = User.objects.filter(username=username).first()
            if user is None:
                raise CommandError(f"There is no person called {username!r}.")
        else:
            administrators = User.objects.filter(is_active=True, memberships__role="administrator")
            user = administrators.order_by("id").first()
            if user is None:
                raise CommandError(
                    "No project has an administrator. Name a person with --administrator."
                )
        return f"Sample project {load_sample(user).name} loaded."
