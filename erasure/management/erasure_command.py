"""What the commands erase_subject and erase_person share: ask, show the preview, confirm."""

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from accounts.models import Project
from db.errors import ChangeRefused
from erasure import erasure_requests, erasure_runner
from erasure.erasure_requests import RequestNotRecorded
from erasure.labels import COUNTS_MAY_DIFFER
from erasure.models import ErasureRequest
from erasure.recorded_holds import HoldNotRecorded
from erasure.text_columns import KEPT_REASONS, TEXT_CLASSES

STATE_WORDS: Final = {
    "counting": "The preview is being counted.",
    "counted": "Another administrator confirms it: repeat the command with --confirm and --by.",
    "confirmed": "Confirmed. The job erases it.",
    "running": "Being erased.",
    "scrubbing": "Erased. The database's files are still to be rewritten: manage.py vacuum_erased.",
    "done": "Erased.",
    "withdrawn": "Withdrawn. Nothing was erased.",
}


class ErasureCommand(BaseCommand):
    """A command that asks for an erasure, or confirms one."""

    requires_system_checks: list[str] = []  # they check code, and take half of the start-up

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--by", required=True, help="user name of the administrator who acts")
        parser.add_argument("--reason", default="", help="a legal ground or ticket")
        parser.add_argument("--project", help="only texts of this project; default: every project")
        parser.add_argument(
            "--keep-decisions",
            action="store_true",
            help="keep the reasons that people gave for votes, stops and resolutions",
        )
        parser.add_argument("--confirm", metavar="ID", help="confirm the request with this id")
        parser.add_argument("--withdraw", metavar="ID", help="end the request with this id")

    def act(self, options: dict[str, Any], ask: Callable[[User], ErasureRequest]) -> None:
        """Ask, confirm or withdraw, and print the request."""
        by = load_person(options["by"])
        try:
            if options["withdraw"]:
                row = erasure_requests.withdraw_erasure(load_request(options["withdraw"]).pk, by)
            elif options["confirm"]:
                row = load_request(options["confirm"])
                self._print_request(row)
                shown = erasure_requests.digest_counts(row)
                row = erasure_requests.confirm_erasure(row.pk, by, shown)
                run_until_idle()
            else:
                row = ask(by)
                run_until_idle()
        except (ChangeRefused, HoldNotRecorded, RequestNotRecorded) as refused:
            raise CommandError(str(refused)) from None
        row.refresh_from_db()
        self._print_request(row)

    def _print_request(self, row: ErasureRequest) -> None:
        self.stdout.write(f"Request {row.pk}: {row.reason}")
        counts = row.erased_counts or row.counts
        for name, count in counts.items():
            if any(count.values()):
                self.stdout.write(
                    f"  {TEXT_CLASSES[name]}: {count['rows']}, held {count['held']},"
                    f" exempt {count['kept']}"
                )
                if count["kept"] and name in KEPT_REASONS:
                    self.stdout.write(f"    {KEPT_REASONS[name]}")
        if any(any(count.values()) for count in counts.values()):
            self.stdout.write(COUNTS_MAY_DIFFER)
        self.stdout.write(STATE_WORDS[row.state])


def load_person(username: str) -> User:
    """Return the user of that name. Raises CommandError."""
    user = User.objects.filter(username=username).first()
    if user is None:
        raise CommandError(f"There is no person called {username!r}.")
    return user


def load_request(identity: str) -> ErasureRequest:
    """Return the request with that id. Raises CommandError."""
    try:
        row = ErasureRequest.objects.filter(pk=UUID(identity)).first()
    except ValueError:
        row = None
    if row is None:
        raise CommandError(f"There is no erasure request {identity!r}.")
    return row


def load_project(name: str | None) -> Project | None:
    """Return the project of that name; None for every project. Raises CommandError."""
    if not name:
        return None
    project = Project.objects.filter(name=name).first()
    if project is None:
        raise CommandError(f"There is no project called {name!r}.")
    return project


def run_until_idle() -> None:
    """Run the job until nothing is due, or another process runs it."""
    while erasure_runner.run_erasures():
        pass
