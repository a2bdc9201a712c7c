"""manage.py erase_subject: erase what is recorded with some words, or in a session."""

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError

from accounts.models import Project
from erasure.erasure_requests import request_erasure
from erasure.management.erasure_command import ErasureCommand, load_project
from erasure.models import ErasureRequest
from sessions.models import Session


class Command(ErasureCommand):
    """Ask for an erasure of words or of a session, or confirm one."""

    help = (
        "Erase all texts that contain some words, or all texts of a session. The first run prints"
        " a preview; a second administrator confirms it with --confirm ID."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--word", action="append", default=[], help="an address, number or name; repeatable"
        )
        parser.add_argument("--session", help="the session's handle, such as s_41")

    def handle(self, *_args: Any, **options: Any) -> None:
        def ask(by: User) -> ErasureRequest:
            project = load_project(options["project"])
            session = _load_session(options["session"], project)
            return request_erasure(
                by,
                reason=options["reason"],
                project=session.project if session is not None else project,
                words=options["word"],
                session=session,
                keeps_decisions=options["keep_decisions"],
            )

        self.act(options, ask)


def _load_session(handle: str | None, project: Project | None) -> Session | None:
    if not handle:
        return None
    number = handle.removeprefix("s_")
    rows = Session.objects.select_related("project")
    session = rows.filter(opened_position=int(number)).first() if number.isdecimal() else None
    if session is None or project not in (None, session.project):
        raise CommandError(f"There is no session {handle!r}. Name its handle, such as s_41.")
    return session
