"""`manage.py import_trajectory FORMAT FILE…`: import recorded trajectories."""

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

from accounts import agents, tokens
from accounts.management.project_option import add_project_option, require_project
from accounts.models import Agent, AgentToken
from importers import READERS
from importers.api_client import BatchCounts, ImportClient, ImportRefusedError
from importers.files import BadInputError, Trajectories, TruncatedLine
from importers.follow import FOLLOWED, SETTLE_S, Follower, FollowState, FollowStateInUse
from importers.progress_bar import Progress
from importers.to_events import TooLargeError, build_shipment, split_batches
from journal.entries import SYSTEM_SOURCE

TOKEN_VARIABLE = "GATEBOOK_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_LIFETIME = timedelta(minutes=10)
TIMEOUT_S = 120.0
EXIT_TRUNCATED = 3  # exit code if everything except a truncated last line was imported
POLICY_LABELS = {"deny": "denied", "ask": "gated", "allow": "allowed", "": "not evaluated"}


class Command(BaseCommand):
    """Import recorded trajectories. A longer version of a file adds what is new."""

    help = (
        "Import recorded agent trajectories. All files are read before anything is sent."
        " Importing a file again "
        "adds nothing; a longer version of it adds only what is new. A truncated last line is"
        " skipped, and the exit "
        "code is then 3. With --follow, files and folders are read again as they grow, until the"
        " command is stopped."
    )
    # System checks concern the code and take half of the start-up time.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "format", metavar="FORMAT", choices=sorted(READERS), help=", ".join(sorted(READERS))
        )
        parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="plain or gzip")
        parser.add_argument(
            "--url",
            help="another Gatebook, such as https://gatebook.example; default: this one",
        )
        parser.add_argument(
            "--token", help=f"an import token for --url; default: ${TOKEN_VARIABLE}"
        )
        add_project_option(parser, "without --url; ")
        parser.add_argument(
            "--agent",
            default="importer",
            metavar="NAME",
            help="without --url: the reporting agent; default: %(default)s",
        )

        parser.add_argument(
            "--json",
            action="store_true",
            help="print the counts of each file as JSON, one line per file",
        )
        parser.add_argument(
            "--follow",
            action="store_true",
            help=f"follow files or folders while they grow ({', '.join(FOLLOWED)})",
        )
        parser.add_argument(
            "--state",
            type=Path,
            metavar="FILE",
            help="with --follow: what was sent; default: follow-FORMAT.json in GATEBOOK_VAR",
        )
        parser.add_argument(
            "--settle",
            type=float,
            default=SETTLE_S,
            metavar="SECONDS",
            help="with --follow: how long hooks may tell of a call first; default: %(default)s",
        )
        parser.add_argument(
            "--max-age",
            type=float,
            default=24.0,
            metavar="HOURS",
            help="with --follow: leave out files of folders that are older; default: %(default)s",
        )
        parser.add_argument(
            "--evaluate-policies",
            action="store_true",
            help=(
                "evaluate the active policy for every effect and print what would have needed"
                " approval"
            ),
        )

    def handle(self, *args: Any, **options: Any) -> None:
        # httpx would log every request into the progress bar.
        logging.getLogger("httpx").setLevel(logging.WARNING)
        files: list[Path] = options["files"]
        url = options["url"]
        token = options["token"] or os.environ.get(TOKEN_VARIABLE, "")
        if url and not token:
            raise CommandError(
                f"--url requires a token of that Gatebook. Give --token or set {TOKEN_VARIABLE}."
                " Its operator issues "
                "one with `manage.py issue_token --agent NAME --scope import`."
            )
        if options["follow"]:
            self._follow(options, token)
            return
        # All files are read before anything is sent. Only the last one stays in memory.
        trajectories, torn = Trajectories(), list[str]()
        for file in files:
            trajectories = _read_file(options["format"], file)
        with _connect(url, token, options["project"], options["agent"]) as http:
            client = ImportClient(http, evaluate_policies=options["evaluate_policies"])
            sessions: dict[str, None] = {}
            for file in files:
                if len(files) > 1:
                    trajectories = _read_file(options["format"], file)
                counts = self._send(client, file, trajectories)
                self.stdout.write(json.dumps(counts.as_json()) if options["json"] else str(counts))
                torn += [f"{file}: {trajectories.torn}"] if trajectories.torn is not None else []
                sessions |= dict.fromkeys(
                    trajectory.key for trajectory in trajectories if trajectory.calls
                )
            if options["evaluate_policies"]:
                self.stdout.write(_format_policy_results(client, sessions, as_json=options["json"]))
        if torn:
            raise CommandError(
                "Everything else was imported. "
                + "\n".join([*torn, "Import the file again when it is complete."]),
                returncode=EXIT_TRUNCATED,
            )

    def _follow(self, options: dict[str, Any], token: str) -> None:
        """Follow files until SIGTERM, SIGHUP or Ctrl-C."""
        name = options["format"]
        if name not in FOLLOWED:
            raise CommandError(f"Only these formats can be followed: {', '.join(FOLLOWED)}.")
        if options["evaluate_policies"]:
            raise CommandError("--follow reports as an agent, so policies are always evaluated.")
        missing = [str(file) for file in options["files"] if not file.exists()]
        if missing:
            raise CommandError(f"{missing[0]} does not exist. Name a transcript or a folder.")
        path = options["state"] or settings.VAR_DIR / f"follow-{name}.json"
        connection = _connect(
            options["url"], token, options["project"], options["agent"], scope="agent"
        )
        try:
            with FollowState(path) as state, connection as http:
                Follower(
                    name,
                    options["files"],
                    ImportClient(http),
                    state,
                    report=self._write_line,
                    settle_s=options["settle"],
                    max_age_s=options["max_age"] * 3600,
                ).run()
        except FollowStateInUse as error:
            raise CommandError(
                f"Another process follows with {error}. Stop it, or give another --state."
            ) from error
        except KeyboardInterrupt:
            return

    def _write_line(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()

    def _send(self, client: ImportClient, file: Path, trajectories: Trajectories) -> "_Counts":
        """Send the trajectories of one file and return its counts."""
        try:
            shipments = [build_shipment(trajectory) for trajectory in trajectories]
        except TooLargeError as fault:
            raise CommandError(f"{file}: {fault}") from fault
        facts = [fact for shipment in shipments for fact in shipment.facts]
        payloads = [payload for shipment in shipments for payload in shipment.payloads]
        total, stored = BatchCounts(), 0
        progress = Progress(sys.stderr, file.name, len(facts) + len(payloads))
        try:
            for batch in split_batches(facts):
                tally = client.send(batch)
                total.created += tally.created
                total.already_recorded += tally.already_recorded
                progress.advance(len(batch))
            # Last, because an artifact belongs to an effect that the facts create.
            for payload in payloads:
                stored += client.store(payload)
                progress.advance()
        except ImportRefusedError as refusal:
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
            facts_known=total.already_recorded,
            artifacts=len(payloads),
            artifacts_stored=stored,
            torn=trajectories.torn,
        )


@dataclass(frozen=True, slots=True)
class _Counts:
    """Counts of one file, total and new."""

    file: str
    sessions: int
    calls: int
    without_result: int
    refused: int
    facts_added: int
    facts_known: int
    artifacts: int
    artifacts_stored: int
    torn: TruncatedLine | None

    def __str__(self) -> str:
        refused = f", {self.refused:,} refused and not run" if self.refused else ""
        return (
            f"{self.file}: {_format_count(self.sessions, 'session')},"
            f" {_format_count(self.calls, 'call')}"
            f" ({self.without_result:,} without a result{refused});"
            f" {_format_count(self.facts_added, 'fact')} added,"
            f" {self.facts_known:,} already recorded; "
            f"{_format_count(self.artifacts, 'artifact')}, {self.artifacts_stored:,} stored now"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the counts; `left_out` is line and size of a truncated last line."""
        counts = {name: value for name, value in asdict(self).items() if name != "torn"}
        return {**counts, "left_out": asdict(self.torn) if self.torn is not None else None}


def _format_policy_results(client: ImportClient, sessions: Iterable[str], *, as_json: bool) -> str:
    """Format the policy results of the sessions' effects as a table or JSON."""
    counts: Counter[tuple[str, str]] = Counter()
    try:
        for session in sessions:
            counts += client.count_policy_outcomes(session)
    except ImportRefusedError as refusal:
        raise CommandError(
            f"Everything was imported, but the policy results cannot be read: {refusal}"
        ) from refusal
    if as_json:
        rows = [
            {"policy_outcome": policy_outcome, "policy_rule": rule, "effects": n}
            for (policy_outcome, rule), n in sorted(counts.items())
        ]
        return json.dumps({"policy_outcome": rows})
    lines = [
        "Evaluated by the active policy:",
        f"{'effects':>10}  {'would have been':<17}  by rule",
    ]
    order = list(POLICY_LABELS)
    for (policy_outcome, rule), number in sorted(
        counts.items(), key=lambda item: (order.index(item[0][0]), -item[1], item[0])
    ):
        lines.append(
            f"{number:>10,}  {POLICY_LABELS[policy_outcome]:<17}  {_rule_label(rule)}".rstrip()
        )
    return "\n".join(lines) if counts else "There was no effect to evaluate."


def _rule_label(policy_rule: str) -> str:
    """Return `acme@3/push-to-production` unchanged, and describe `acme@3/` in words."""
    policy, _, rule = policy_rule.partition("/")
    return (
        policy_rule
        if rule
        else f"{policy}, no matching rule"
        if policy
        else "imported before without --evaluate-policies"
    )


def _read_file(name: str, file: Path) -> Trajectories:
    try:
        return READERS[name](file)
    except BadInputError as fault:
        raise CommandError(f"{file}, line {fault.line}: {fault.reason}.") from fault
    except OSError as fault:
        raise CommandError(f"{file}: cannot be read: {fault.strerror or fault}.") from fault


@contextmanager
def _connect(
    url: str | None, token: str, project_name: str, agent_name: str, *, scope: str = "import"
) -> Iterator[httpx.Client]:
    """Yield an HTTP client for `url`, or for the application in this process."""
    if url:
        try:
            http = httpx.Client(
                base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT_S
            )
        except (httpx.InvalidURL, UnicodeEncodeError) as fault:
            raise CommandError(f"--url or the token is invalid: {fault}.") from fault
        with http:
            yield http
        return
    project = require_project(project_name)
    with transaction.atomic(durable=True):
        try:
            agent = agents.ensure_agent(project, agent_name)
        except ValueError as fault:
            raise CommandError(str(fault)) from fault
    # Loaded by its setting, because this app must not import the configuration above it.
    transport = httpx.WSGITransport(app=import_string(settings.WSGI_APPLICATION))
    with (
        _signals_raise(),
        _TemporaryToken(agent, scope) as temporary_token,
        httpx.Client(
            transport=transport,
            base_url="http://localhost",
            auth=temporary_token,
            timeout=None,  # noqa: S113 - in process
        ) as http,
    ):
        yield http


class _TemporaryToken(httpx.Auth):
    """A short-lived token, replaced during the import and revoked at its end.

    After SIGKILL it remains valid for at most TOKEN_LIFETIME.
    """

    def __init__(self, agent: Agent, scope: str) -> None:
        self._agent = agent
        self._scope = scope
        self._token = ""
        self._replace_at = 0.0

    def __enter__(self) -> "_TemporaryToken":
        self._replace()
        return self

    def __exit__(self, *_: object) -> None:
        with transaction.atomic(durable=True):
            self._revoke()

    def auth_flow(  # type: ignore[override]
        self, request: httpx.Request
    ) -> Iterator[httpx.Request]:
        """Add a token to the request that is valid long enough."""
        if time.monotonic() >= self._replace_at:
            self._replace()
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request

    def _replace(self) -> None:
        issued_at = time.monotonic()
        with transaction.atomic(durable=True):
            self._revoke()
            token = tokens.issue_token(
                self._agent, scope=self._scope, expires_in=TOKEN_LIFETIME, actor=SYSTEM_SOURCE
            )
        self._token, self._replace_at = token, issued_at + TOKEN_LIFETIME.total_seconds() / 2

    def _revoke(self) -> None:
        match = tokens.TOKEN_PATTERN.fullmatch(self._token)
        issued = (
            AgentToken.objects.filter(public_id=self._token.split("_")[1]).first()
            if match
            else None
        )
        if issued is not None:
            tokens.revoke_agent_token(issued, actor=SYSTEM_SOURCE)


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that the token is revoked."""

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


def _format_count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
