"""`manage.py import_trajectory FORMAT FILE…`: record what agents did elsewhere, through the HTTP API."""

import json
import logging
import os
import signal
import sys
import threading
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
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
from ingest.importers.reading import BadInputError, TornEnd, Trajectories
from journal.entries import SYSTEM_SOURCE
from sessions import agents, projects, tokens
from sessions.models import Agent, AgentToken

TOKEN_VARIABLE = "GATEBOOK_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_LIFETIME = timedelta(minutes=10)
TIMEOUT_S = 120.0
TORN = 3  # the exit code when everything but an end that is cut short was imported
JUDGED = {"deny": "denied", "ask": "asked about", "allow": "allowed", "": "not judged"}


class Command(BaseCommand):
    """Import recorded trajectories. Importing a file again adds only what it did not hold before."""

    help = (
        "Import recorded agent trajectories. Every file is read whole before anything of it is sent; importing it "
        "again adds nothing, and a longer later version of it adds only what is new. A last line that is cut short is "
        "left out, and the exit code is then 3."
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

        parser.add_argument("--json", action="store_true", help="print the counts of each file as JSON, one a line")
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
        trajectories, torn = Trajectories(), list[str]()
        for file in files:
            trajectories = _read(options["format"], file)
        with _connection(url, token, options["project"], options["agent"]) as http:
            client = Client(http, judge=options["judge"])
            sessions: dict[str, None] = {}
            for file in files:
                if len(files) > 1:
                    trajectories = _read(options["format"], file)
                counts = self._send(client, file, trajectories)
                self.stdout.write(json.dumps(counts.as_json()) if options["json"] else str(counts))
                torn += [f"{file}: {trajectories.torn}"] if trajectories.torn is not None else []
                sessions |= dict.fromkeys(trajectory.key for trajectory in trajectories if trajectory.calls)
            if options["judge"]:
                self.stdout.write(_judged(client, sessions, as_json=options["json"]))
        if torn:
            raise CommandError(
                "Everything else was imported. " + "\n".join([*torn, "Import the file again when it is whole."]),
                returncode=TORN,
            )

    def _send(self, client: Client, file: Path, trajectories: Trajectories) -> "_Counts":
        """Send one file's trajectories; returns the counts about it."""
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
        return _Counts(
            file=str(file),
            sessions=len(trajectories),
            calls=len(calls),
            without_result=sum(call.result is None for call in calls),
            refused=sum(call.is_refused for call in calls),
            facts_added=total.created,
            facts_known=total.known,
            artifacts=len(payloads),
            artifacts_stored=stored,
            torn=trajectories.torn,
        )


@dataclass(frozen=True, slots=True)
class _Counts:
    """What one file held, and what of it was new."""

    file: str
    sessions: int
    calls: int
    without_result: int
    refused: int
    facts_added: int
    facts_known: int
    artifacts: int
    artifacts_stored: int
    torn: TornEnd | None

    def __str__(self) -> str:
        refused = f", {self.refused:,} refused and not run" if self.refused else ""
        return (
            f"{self.file}: {_count(self.sessions, 'session')}, {_count(self.calls, 'call')} ({self.without_result:,} "
            f"without a result{refused}); {_count(self.facts_added, 'fact')} added, {self.facts_known:,} known before; "
            f"{_count(self.artifacts, 'artifact')}, {self.artifacts_stored:,} stored now"
        )

    def as_json(self) -> dict[str, Any]:
        """The same for programs; `left_out` has the line and the bytes of an end that is cut short."""
        counts = {name: value for name, value in asdict(self).items() if name != "torn"}
        return {**counts, "left_out": asdict(self.torn) if self.torn is not None else None}


def _judged(client: Client, sessions: Iterable[str], *, as_json: bool) -> str:
    """What the policy says of all effects of these sessions, as a table or JSON: how many, what, by which rule."""
    found: Counter[tuple[str, str]] = Counter()
    try:
        for session in sessions:
            found += client.judgements(session)
    except RefusalError as refusal:
        raise CommandError(
            f"Everything was imported; what the policy says of it cannot be read: {refusal}"
        ) from refusal
    if as_json:
        rows = [{"judged": judged, "judged_by": rule, "effects": n} for (judged, rule), n in sorted(found.items())]
        return json.dumps({"judged": rows})
    lines = ["Held against the policy in force:", f"{'effects':>10}  {'would have been':<17}  by rule"]
    order = list(JUDGED)
    for (judged, rule), number in sorted(found.items(), key=lambda item: (order.index(item[0][0]), -item[1], item[0])):
        lines.append(f"{number:>10,}  {JUDGED[judged]:<17}  {_rule(rule)}".rstrip())
    return "\n".join(lines) if found else "There was no effect to hold against the policy in force."


def _rule(judged_by: str) -> str:
    """`house@3/push-to-production` as it is, and `house@3/` in words."""
    policy, _, rule = judged_by.partition("/")
    return judged_by if rule else f"{policy}, no rule speaks of it" if policy else "imported before without --judge"


def _read(name: str, file: Path) -> Trajectories:
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
    # The application by its setting: this room does not import the wiring above it.
    transport = httpx.WSGITransport(app=import_string(settings.WSGI_APPLICATION))
    with (
        _signals_raise(),
        _OwnToken(agent) as own,
        httpx.Client(
            transport=transport,
            base_url="http://localhost",
            auth=own,
            timeout=None,  # noqa: S113 - in process
        ) as http,
    ):
        yield http


class _OwnToken(httpx.Auth):
    """A token of this import alone: short-lived, replaced while the import runs, revoked at its end.

    After SIGKILL it is valid for TOKEN_LIFETIME at most.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._token = ""
        self._replace_at = 0.0

    def __enter__(self) -> "_OwnToken":
        self._replace()
        return self

    def __exit__(self, *_: object) -> None:
        with transaction.atomic(durable=True):
            self._revoke()

    def auth_flow(self, request: httpx.Request) -> Iterator[httpx.Request]:  # type: ignore[override]  # of no answer
        """Sign a request with a token that is valid long enough for it."""
        if time.monotonic() >= self._replace_at:
            self._replace()
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request

    def _replace(self) -> None:
        issued_at = time.monotonic()
        with transaction.atomic(durable=True):
            self._revoke()
            token = tokens.issue(self._agent, scope="import", expires_in=TOKEN_LIFETIME, actor=SYSTEM_SOURCE)
        self._token, self._replace_at = token, issued_at + TOKEN_LIFETIME.total_seconds() / 2

    def _revoke(self) -> None:
        known = tokens.SHAPE.fullmatch(self._token)
        issued = AgentToken.objects.filter(public_id=self._token.split("_")[1]).first() if known else None
        if issued is not None:
            tokens.revoke(issued, actor=SYSTEM_SOURCE)


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Let a signal that would end this process at once end it as an error does, so that its token is revoked."""

    def stop(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
