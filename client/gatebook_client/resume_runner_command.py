"""`gatebook resume-runner`: when people have ruled, continue the program that waited.

It watches the gates of the project. When one is ruled, and no process of its session lives, it
starts a command that the operator wrote for such sessions, once: the start is claimed in Gatebook
first. Several runners may watch the same project.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from gatebook_client.client import Client
from gatebook_client.connections import load_connection
from gatebook_client.errors import GatebookError, Refused, ServerUnavailable
from gatebook_client.resume_claims import (
    LEASE_S,
    TOOL,
    Claims,
    ClaimSettled,
    ClaimWaits,
)
from gatebook_client.resume_processes import (
    Continuation,
    StartFailed,
    get_log_path,
    start_command,
)
from gatebook_client.resume_rules import (
    RULED,
    Command,
    CommandNotUsable,
    ResumeRule,
    RulesInvalid,
    collect_fields,
    find_rule,
    read_rules,
)
from gatebook_client.types import ENDED, Json

USAGE, UNAVAILABLE = 64, 69
MAX_WATCHED = 1_000  # gates; of more, the newest
PER_WAIT = 100  # gates that one request can wait for
LOOK_BACK_S = 24 * 3600.0  # at the start; and how long a ruled gate is kept that cannot go on
HANDOVER_S = 60.0  # how long a live process of the session may take to end after a denial
WAIT_S = 5  # a new gate is noticed after this time at the latest
BUSY_WAIT_S = 1
DECISIONS = frozenset(RULED)


@dataclass
class Watched:
    """A gate under watch. `is_late`: it was ruled before this runner saw it."""

    gate: Json
    is_late: bool
    ruled_at: float = 0.0  # monotonic, when this runner saw the ruling
    printed: str = ""


class ResumeRunner:
    """Watches gates and starts commands. One thread; `stop` ends `run` after a few seconds."""

    def __init__(
        self,
        client: Client,
        rules: list[ResumeRule],
        *,
        retries: Iterable[str] = (),
        report: Callable[[str], None] = print,
    ) -> None:
        self.client = client
        self.rules = rules
        self.retries = set(retries)
        self.claims = Claims(client)
        self.is_stopped = False
        self.failures = 0
        self._report = report
        self._watched: dict[str, Watched] = {}
        self._newest = 0  # the handle number of the newest gate that was listed
        self._is_first = True
        self._running: list[Continuation] = []

    def run(self) -> None:
        """Watch until stopped, also while Gatebook is away."""
        is_away, is_first = False, True
        while not self.is_stopped:
            try:
                wait_s = self.continue_ruled()
                if is_first:
                    self._report(f"Watching the gates of {self.client.http.url}.")
                is_first = False
                self._wait(wait_s)
                if is_away:
                    self._report("Gatebook answers again.")
                is_away = False
            except ServerUnavailable as error:
                if not is_away:
                    self._report(f"{error} Waiting for it.")
                is_away = True
                time.sleep(BUSY_WAIT_S)
        for running in self._running:
            handle = running.gate["handle"]
            self._report(f"{handle}: {running.name} (pid {running.process.pid}) goes on alone.")

    def run_once(self) -> int:
        """Continue what is ruled now, wait for what was started; return how many failed."""
        self.continue_ruled()
        while self._running:
            time.sleep(0.2)
            self._tend_running()
            self.continue_ruled()
        return self.failures

    def continue_ruled(self) -> float:
        """Look once at all gates; return how long the next look may wait, in seconds."""
        self._tend_running()
        self._find_gates()
        self._read_gates()
        busy = bool(self._running)
        for identity, watched in list(self._watched.items()):
            if self.is_stopped:
                return 0.0
            if watched.gate["status"] == "pending" or watched.gate["stopped"]:
                busy = busy or watched.gate["stopped"]
                continue
            watched.ruled_at = watched.ruled_at or time.monotonic()
            try:
                self._continue_session(watched)
            except ClaimWaits as reason:
                self._print_once(watched, reason.sentence)
                busy = True
                if time.monotonic() - watched.ruled_at < LOOK_BACK_S:
                    continue
            except ClaimSettled as reason:
                self._print_once(watched, reason.sentence)
            except Refused as refusal:
                self._print_once(watched, f"Gatebook refused: {refusal}")
            self._watched.pop(identity, None)
        return BUSY_WAIT_S if busy else WAIT_S

    def _wait(self, wait_s: float) -> None:
        """Wait until a watched gate changes, at most so many seconds."""
        waiting = [
            watched.gate
            for watched in self._watched.values()
            if watched.gate["status"] == "pending" and not watched.gate["stopped"]
        ]
        if self.is_stopped:
            return
        if not waiting:
            time.sleep(min(wait_s, BUSY_WAIT_S))
            return
        began = time.monotonic()
        newest = {gate["id"]: gate["version"] for gate in waiting[-PER_WAIT:]}
        answer = self.client.http.post(
            "/gates/wait", {"gates": newest, "wait": int(wait_s)}, keyless=True
        )
        if not answer.body.get("changed") and time.monotonic() - began < wait_s:
            time.sleep(min(wait_s, BUSY_WAIT_S))  # the server has no room for another wait

    def _find_gates(self) -> None:
        """Watch the gates that were opened since the last look, and at first those of a day."""
        after: int | None = None
        newest = self._newest
        oldest_us = (time.time() - LOOK_BACK_S) * 1_000_000
        opened: list[Json] = []
        while len(opened) < MAX_WATCHED:
            page = self.client.http.get("/gates", limit=200, after=after).body
            fresh = [gate for gate in page["items"] if _get_number(gate) > self._newest]
            if self._is_first:
                fresh = [
                    gate
                    for gate in fresh
                    if gate["status"] in ("pending", "approved")
                    or gate["requested_at_us"] > oldest_us
                ]
            opened += fresh
            newest = max([newest, *map(_get_number, page["items"])])
            after = page.get("next")
            if after is None or not fresh:
                break
        for gate in reversed(opened):
            if gate["tool"] != TOOL and gate["status"] in ("pending", *RULED):
                is_late = self._is_first and gate["status"] != "pending"
                self._watched[gate["id"]] = Watched(gate, is_late)
        for identity in list(self._watched)[:-MAX_WATCHED]:
            del self._watched[identity]
        self._newest, self._is_first = newest, False

    def _read_gates(self) -> None:
        """Read the watched gates again."""
        identities = list(self._watched)
        for start in range(0, len(identities), PER_WAIT):
            versions = {
                identity: self._watched[identity].gate["version"]
                for identity in identities[start : start + PER_WAIT]
            }
            answer = self.client.http.post(
                "/gates/wait", {"gates": versions, "wait": 0}, keyless=True
            )
            for gate in answer.body["gates"]:
                self._watched[gate["id"]].gate = gate

    def _continue_session(self, watched: Watched) -> None:
        """Start the command for a ruled gate. Raises ClaimSettled, or ClaimWaits to look again."""
        gate = watched.gate
        if gate["status"] not in DECISIONS:
            raise ClaimSettled  # used, withdrawn or revoked
        waiting = self._read_session(gate["session"])
        session = self._find_root(waiting)
        if session["status"] in ENDED:
            raise ClaimSettled
        fields = collect_fields(gate, session, self.client.http.url)
        rule = find_rule(self.rules, fields)
        if rule is None:
            raise ClaimSettled(f"no command of the file is for {session['handle']}.")
        if gate["status"] not in rule.statuses:
            raise ClaimSettled
        self._check_idle(watched, waiting, session, rule)
        if any(running.session["id"] == session["id"] for running in self._running):
            raise ClaimWaits
        lease = self.claims.lease_session(session["id"])
        if lease is None:
            raise ClaimWaits
        try:
            self._start(gate, session, rule, fields, lease)
        except BaseException:
            self.claims.release_lease(lease)
            raise

    def _check_idle(self, watched: Watched, waiting: Json, session: Json, rule: ResumeRule) -> None:
        """Return if the session waits and none of its processes is known to live."""
        gate = watched.gate
        is_approved = gate["status"] == "approved"
        is_hooked = "client" in (session.get("labels") or {})
        lease = session.get("lease") or {}
        is_old_refusal = watched.is_late and not is_approved and waiting["status"] != "waiting"
        if is_old_refusal and self._has_gone_on(gate, waiting):
            raise ClaimSettled
        if lease.get("state") == "live":
            self._leave_to_process(watched)
        if is_hooked and "waiting" not in (waiting["status"], session["status"]):
            self._leave_to_process(watched)
        if is_hooked and rule.after_end and not self._has_process_ended(session):
            raise ClaimWaits
        if rule.waits_for_all and self._has_pending_gate(waiting, session):
            raise ClaimWaits

    def _has_gone_on(self, gate: Json, session: Json) -> bool:
        """Return whether a process worked in the session since the ruling, or nobody can know."""
        lease = self._find_newest(f"event session:{session['handle']} kind:lease.*")
        ruling = self._find_newest(f"event effect:{gate['effect']} kind:gate.*")
        if lease is None or ruling is None:
            return True
        return bool(lease["position"] > ruling["position"])

    def _leave_to_process(self, watched: Watched) -> None:
        """Leave the ruling to the process that works, as long as it may still need help.

        An approval that is not used may still need a process; a denial was heard by the live one.
        """
        if watched.gate["status"] == "approved":
            raise ClaimWaits
        if time.monotonic() - watched.ruled_at < HANDOVER_S:
            raise ClaimWaits
        raise ClaimSettled

    def _has_process_ended(self, session: Json) -> bool:
        """Return whether the last hook of a coding agent reported the end of its process."""
        newest = self._find_newest(f"event session:{session['handle']} kind:hook.*")
        return newest is not None and newest.get("kind") == "hook.session_end"

    def _find_newest(self, query: str) -> Json | None:
        rows: list[Json] = self.client.http.get("/search", q=query, limit=1).body["rows"]
        return rows[0] if rows else None

    def _has_pending_gate(self, *sessions: Json) -> bool:
        for identity in {session["id"] for session in sessions}:
            page = self.client.http.get("/gates", session=identity, status="pending", limit=1)
            if page.body["items"]:
                return True
        return False

    def _read_session(self, identity: str) -> Json:
        try:
            return self.client.http.get(f"/sessions/{identity}").body
        except Refused as refusal:
            if refusal.status == 404:
                raise ClaimSettled from refusal
            raise

    def _find_root(self, session: Json) -> Json:
        """Return the session to continue: a subagent goes on with the agent that started it."""
        for _ in range(8):
            is_subagent = "agent_type" in (session.get("labels") or {})
            if not is_subagent or not session.get("parent"):
                return session
            session = self._read_session(session["parent"])
        return session

    def _start(
        self, gate: Json, session: Json, rule: ResumeRule, fields: dict[str, str], lease: Json
    ) -> None:
        """Claim the gate, start its command and report the start."""
        handle = gate["handle"]
        command: Command | None = None
        fault = ""
        try:
            command = rule.build_command(fields)
        except CommandNotUsable as error:
            fault = str(error)
        retry = handle in self.retries
        self.retries.discard(handle)
        claim = self.claims.claim_gate(gate, session, command, retry=retry)
        log = get_log_path(gate)
        try:
            if command is None:
                raise StartFailed(fault)
            process = start_command(command, log)
        except StartFailed as error:
            self.failures += 1
            detail = f"The command {rule.name} did not start: {error}"
            claim.ledger.fail(claim.attempt, reason="rejected", detail=detail[:500])
            raise ClaimSettled(f"{detail} Correct it, then run with --retry {handle}.") from error
        facts = {
            "runner": self.claims.host,
            "pid": process.pid,
            "name": rule.name,
            "command": list(command.arguments),
            "cwd": command.folder or str(Path.cwd()),
            "log": str(log),
            "gate": handle,
        }
        running = Continuation(rule.name, gate, session, claim, lease, process, facts)
        self._running.append(running)
        self._report(
            f"{handle} is {gate['status']}: started {rule.name} (pid {process.pid}) for"
            f" {session['handle']}. Its output is in {log}."
        )
        self._report_start(running)

    def _report_start(self, running: Continuation) -> None:
        """Report a start that is not reported yet; what cannot be sent is sent by a later look."""
        if running.worker_reported:
            return
        try:
            if not running.started_reported:
                running.claim.ledger.acknowledge(
                    running.claim.attempt,
                    result=running.facts,
                    reference=f"{self.claims.host}:{running.process.pid}",
                )
                running.started_reported = True
            meta = {"worker": running.facts}
            body = {"key": running.session["key"], "meta": meta}
            self.client.http.post("/sessions", body)
        except ServerUnavailable:
            return
        except Refused as refusal:
            self._report(f"{running.gate['handle']}: the start was not recorded: {refusal}")
        running.started_reported = running.worker_reported = True

    def _tend_running(self) -> None:
        """Report starts and ends, and keep the leases of what runs."""
        for running in list(self._running):
            self._report_start(running)
            code = running.process.poll()
            if code is None:
                if time.monotonic() - running.beaten_at > LEASE_S / 4:
                    self._beat(running)
                continue
            if not running.worker_reported:
                continue
            self._report_end(running, code)
            self._running.remove(running)

    def _beat(self, running: Continuation) -> None:
        beat = {"lease": running.lease["id"], "epoch": running.lease["epoch"]}
        self.client.http.post("/heartbeats", {"heartbeats": [beat]}, keyless=True)
        running.beaten_at = time.monotonic()

    def _report_end(self, running: Continuation, code: int) -> None:
        handle = running.gate["handle"]
        if code:
            self.failures += 1
        self._report(f"{handle}: {running.name} ended with exit code {code}.")
        attempt = running.claim.attempt
        try:
            running.claim.ledger.report(
                "resume.ended",
                key=running.claim.effect_key,
                event_id=f"resume.ended:{attempt.effect}:{attempt.attempt}",
                exit_code=code,
            )
        except Refused as refusal:
            self._report(f"{handle}: its end was not recorded: {refusal}")
        self.claims.release_lease(running.lease)

    def _print_once(self, watched: Watched, sentence: str) -> None:
        if sentence and sentence != watched.printed:
            watched.printed = sentence
            self._report(f"{watched.gate['handle']}: {sentence}")


def _get_number(gate: Json) -> int:
    """Return the number in a gate's handle, by which gates are listed."""
    return int(str(gate["handle"]).partition("_")[2])


def main(arguments: list[str]) -> int:
    """Run the command and return its exit code."""
    options = _make_parser().parse_args(arguments)
    try:
        rules = read_rules(options.file)
        if options.check:
            sys.stdout.write(f"{options.file}: {len(rules)} commands, none was run.\n")
            return 0
        url, token = load_connection(options.connection)
        client = Client(url, token, patience_s=5.0)
    except (RulesInvalid, ValueError) as error:
        return _fail(USAGE, str(error))
    runner = ResumeRunner(client, rules, retries=options.retry, report=_print_line)

    def stop(_number: int, _frame: FrameType | None) -> None:
        runner.is_stopped = True  # a claim in progress is finished first

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        if options.once:
            return 1 if runner.run_once() else 0
        runner.run()
    except ServerUnavailable as error:
        return _fail(UNAVAILABLE, str(error))
    except GatebookError as error:
        return _fail(USAGE, str(error))
    return 0


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gatebook resume-runner",
        description="When people have ruled on a gate, continue the program that waited, once.",
    )
    parser.add_argument("file", metavar="FILE", help="the commands, as JSON or YAML")
    parser.add_argument(
        "--connection",
        default="",
        metavar="NAME",
        help="address and token that `gatebook connect` stored; default: GATEBOOK_URL and"
        " GATEBOOK_TOKEN, or the default connection",
    )
    parser.add_argument(
        "--once", action="store_true", help="continue what is ruled now, and end with it"
    )
    parser.add_argument(
        "--retry",
        action="append",
        default=[],
        metavar="GATE",
        help="start the command of this gate (g_12) although it could not be started before",
    )
    parser.add_argument("--check", action="store_true", help="check FILE and run nothing")
    return parser


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _fail(code: int, sentence: str) -> int:
    sys.stderr.write(f"gatebook: {sentence}\n")
    return code
