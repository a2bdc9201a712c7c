"""`manage.py load_sample --administrator USER`: create the sample project."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from pages.sample.sample_project import find_samples, load_sample


class Command(BaseCommand):
    """Load the sample project."""

    help = "Create the sample project: two weeks of work by five agents, all of it made up."
    requires_system_checks: list[str] = []  # they check code, and take half of the start-up

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--administrator", required=True, metavar="USER", help="a person")
        parser.add_argument(
            "--unless-loaded", action="store_true", help="do nothing if the person has one"
        )

    def handle(self, *args: Any, **options: Any) -> str:
        user = User.objects.filter(username=options["administrator"]).first()
        if user is None:
            raise CommandError(f"There is no person called {options['administrator']!r}.")
        if options["unless_loaded"] and find_samples(user):
            return ""
        return f"Sample project {load_sample(user).name} loaded."
