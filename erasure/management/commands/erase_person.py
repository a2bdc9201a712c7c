"""manage.py erase_person USER: erase a person of the installation, and what they wrote."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User

from erasure.erasure_requests import request_erasure
from erasure.management.erasure_command import ErasureCommand, load_person, load_project
from erasure.models import ErasureRequest


class Command(ErasureCommand):
    """Ask for the erasure of a person, or confirm one."""

    help = (
        "Erase a person: account, addresses, sign-ins, and the texts that they wrote or that name"
        " them. Their pseudonym stays. A second administrator confirms it with --confirm ID."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("username", nargs="?", help="the person's user name")
        parser.add_argument(
            "--word", action="append", default=[], help="another name of them; repeatable"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        def ask(by: User) -> ErasureRequest:
            return request_erasure(
                by,
                reason=options["reason"],
                project=load_project(options["project"]),
                words=options["word"],
                person=load_person(options["username"] or ""),
                keeps_decisions=options["keep_decisions"],
            )

        self.act(options, ask)
