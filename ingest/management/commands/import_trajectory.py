"""`manage.py import_trajectory FORMAT FILE…`: record what agents did elsewhere, through the HTTP API."""

import logging
import os
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils.module_loading import import_string

from ingest.importers import READERS
from ingest.importers.client import Client, RefusalError, Tally
from ingest.importers.facts import TooLargeError, batches, ship
from ingest.importers.progress import Progress
from ingest.importers.reading import BadInputError
from ingest.importers.shapes import Trajectory
from journal.entries import SYSTEM_SOURCE
from sessions import agents, projects, tokens
from sessions.models import AgentToken

TOKEN_VARIABLE = "GATEBOOK_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_LIFETIME = timedelta(hours=12)
TIMEOUT_S = 120.0
JUDGED = {"deny": "denied", "ask": "asked about", "allow": "allowed", "": "not judged"}


class Command(BaseCommand):
    """Import recorded trajectories. Importing a file again adds only what it did not hold before."""

    help = (
        "Import recorded agent trajectories. Every file is read whole before anything of it is sent; importing it "
        "again adds nothing, and a longer later version of it adds only what is new."
    )
    requires_system_checks: list[str] = []  # they are of the code, and take half of a start

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("format", metavar="FORMAT", choices=sorted(READERS), help=", ".join(sorted(READERS)))
        parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="plain or gzip")
        parser.add_argument("--url", help="a Gatebook elsewhere, such as https://gatebook.example; default: this one")
        parser.add_argument("--token", help=f"an import token for --url; default: ${TOKEN_VARIABLE}")
        parser.add_argument("--project", default=projects.DEFAULT_NAME, help="without --url; default: %(default)s")
        parser.add_argument(
            "--agent", default="importer", metavar="NAME", help="without --url: who reports it; default: %(default)s"
        )

        parser.add_argument(
            "--judge",
            action="store_true",
            help="hold every effect against the policy in force and tell what would have needed leave",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        logging.getLogger("httpx").setLevel(logging.WARNING)  # it tells of every request, over the progress bar
        files: list[Path] = options["files"]
        url = options["url"]
        token = options["token"] or os.environ.get(TOKEN_VARIABLE, "")
        if url and not token:
            raise CommandError(
                f"--url needs a token of that Gatebook: give --token or set {TOKEN_VARIABLE}. Its operator makes one "
                "with `manage.py issue_token --agent NAME --scope import`."
            )
        # Nothing is sent while any of the files cannot be read. Only the last stays in memory.
        trajectories: list[Trajectory] = []
        for file in files:
            trajectories = _read(options["format"], file)
        with _connection(url, token, options["project"], options["agent"]) as http:
            client = Client(http, judge=options["judge"])
            sessions: dict[str, None] = {}
            for file in files:
                if len(files) > 1:
                    trajectories = _read(options["format"], file)
                self.stdout.write(self._send(client, file, trajectories))
                sessions |= dict.fromkeys(trajectory.key for trajectory in trajectories if trajectory.calls)
            if options["judge"]:
                self.stdout.write(_judged(client, sessions))

    def _send(self, client: Client, file: Path, trajectories: list[Trajectory]) -> str:
        """Send one file's trajectories; returns the line of counts about it."""
        try:
            shipments = [ship(trajectory) for trajectory in trajectories]
        except TooLargeError as fault:
            raise CommandError(f"{file}: {fault}") from fault
        facts = [fact for shipment in shipments for fact in shipment.facts]
        payloads = [payload for shipment in shipments for payload in shipment.payloads]
        total, stored = Tally(), 0
        progress = Progress(sys.stderr, file.name, len(facts) + len(payloads))
        try:
            for batch in batches(facts):
                tally = client.send(batch)
                total.created += tally.created
                total.known += tally.known
                progress.advance(len(batch))
            # Last, because an artifact is bound to an effect that the facts brought.
            for payload in payloads:
                stored += client.store(payload)
                progress.advance()
        except RefusalError as refusal:
            raise CommandError(f"{file}: {refusal}") from refusal
        finally:
            progress.close()
        calls = [call for trajectory in trajectories for call in trajectory.calls]
        missing = sum(call.result is None for call in calls)
        return (
            f"{file}: {_count(len(trajectories), 'session')}, {_count(len(calls), 'call')} ({missing:,} without a "
            f"result); {_count(total.created, 'fact')} added, {total.known:,} known before; "
            f"{_count(len(payloads), 'artifact')}, {stored:,} stored now"
        )


def _judged(client: Client, sessions: Iterable[str]) -> str:
    """What the policy says of all effects of these sessions, as a table: how many, what, by which rule."""
    found: Counter[tuple[str, str]] = Counter()
    try:
        for session in sessions:
            found += client.judgements(session)
    except RefusalError as refusal:
        raise CommandError(
            f"Everything was imported; what the policy says of it cannot be read: {refusal}"
        ) from refusal
    lines = ["Held against the policy in force:", f"{'effects':>10}  {'would have been':<17}  by rule"]
    order = list(JUDGED)
    for (judged, rule), number in sorted(found.items(), key=lambda item: (order.index(item[0][0]), -item[1], item[0])):
        lines.append(f"{number:>10,}  {JUDGED[judged]:<17}  {_rule(rule)}".rstrip())
    return "\n".join(lines) if found else "There was no effect to hold against the policy in force."


def _rule(judged_by: str) -> str:
    """`house@3/push-to-production` as it is, and `house@3/` in words."""
    policy, _, rule = judged_by.partition("/")
    return judged_by if rule else f"{policy}, no rule speaks of it" if policy else "imported before without --judge"


def _read(name: str, file: Path) -> list[Trajectory]:
    try:
        return READERS[name](file)
    except BadInputError as fault:
        raise CommandError(f"{file}, line {fault.line}: {fault.reason}.") from fault
    except OSError as fault:
        raise CommandError(f"{file}: cannot be read: {fault.strerror or fault}.") from fault


@contextmanager
def _connection(url: str | None, token: str, project_name: str, agent_name: str) -> Iterator[httpx.Client]:
    """An HTTP client with base URL and token: to `url`, or to the application of this very process."""
    if url:
        try:
            http = httpx.Client(base_url=url, headers=_bearer(token), timeout=TIMEOUT_S)
        except (httpx.InvalidURL, UnicodeEncodeError) as fault:
            raise CommandError(f"--url or the token cannot be used as it is written: {fault}.") from fault
        with http:
            yield http
        return
    project = projects.named(project_name)
    if project is None:
        raise CommandError(f"There is no project {project_name!r}. Run `manage.py create_project NAME` first.")
    with transaction.atomic(durable=True):
        try:
            agent = agents.ensure(project, agent_name)
        except ValueError as fault:
            raise CommandError(str(fault)) from fault
        token = tokens.issue(agent, scope="import", expires_in=TOKEN_LIFETIME, actor=SYSTEM_SOURCE)
    try:
        # The application by its setting: this room does not import the wiring above it.
        transport = httpx.WSGITransport(app=import_string(settings.WSGI_APPLICATION))
        with httpx.Client(
            transport=transport,
            base_url="http://localhost",
            headers=_bearer(token),
            timeout=None,  # noqa: S113 - in process
        ) as http:
            yield http
    finally:
        issued = tokens.authenticate(f"Bearer {token}")
        if issued is not None:
            with transaction.atomic(durable=True):
                tokens.revoke(AgentToken.objects.get(pk=issued.token), actor=SYSTEM_SOURCE)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
