"""`gatebook exec`: run a command as one effect. It never runs twice.

Its output passes through, and its exit code becomes that of `gatebook exec`. The key of the
attempt is in GATEBOOK_REMOTE_KEY, and replaces {remote_key} in every argument. The command ends
with this process, however that ends, and at the latest at the end of the request lifetime of its
tool (see watcher.py): from then on the effect may be repeated.
"""

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from gatebook_client import waiting, watcher
from gatebook_client.client import Client
from gatebook_client.errors import GatebookError, NotYet, OpenWork, Rejected, WaitTimeout
from gatebook_client.sessions import Session
from gatebook_client.types import AttemptInfo, Json, ProbeAnswer, Result

NOT_FOUND, NOT_RUN = 127, 126
FORWARDED = (signal.SIGTERM, signal.SIGHUP)
TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGQUIT)  # the terminal signals the command too
TIMED_OUT = 124
SHELLS = ("bash", "sh")  # whose text --arguments may name as the command
LIFETIME_S = 300  # of a request of an undeclared tool
KEY_ENV_NAME = "GATEBOOK_REMOTE_KEY"
REPORT_MISSING = (
    "The command ran; only its report is missing. Check `gatebook resume` before you run it again."
)


def print_wait(reason: str, answer: Json) -> None:
    """Print on standard error what the command waits for."""
    sys.stderr.write(f"gatebook: {waiting.describe_wait(reason, answer)}\n")


def run(client: Client, options: argparse.Namespace) -> int:
    """Perform the command given behind `--`; return its exit code.

    Raises what `Session.perform` raises.
    """
    command: list[str] = options.command
    if not command:
        raise ValueError(
            "No command given. Put it behind --: gatebook exec --tool git.push -- git push"
        )
    for argument in command:
        if not _is_text(argument):
            raise ValueError(
                f"The argument {os.fsencode(argument)!r} is not UTF-8. Gatebook stores UTF-8 only"
            )
    arguments = _read_arguments(options.arguments, command)
    names = ("repository", "ref", "environment", "resource")
    target = {name: value for name in names if (value := getattr(options, name))}
    _check_timeout(client, options)
    ran: list[int] = []
    until: list[float] = []

    def note_deadline(dispatch: Json, sent_at: float) -> None:
        """Record the end of the lifetime, which counts from the dispatch."""
        until.append(sent_at + float(dispatch.get("request_lifetime_s") or LIFETIME_S))

    def act(remote_key: str) -> Result:
        remaining_s = until[-1] - time.monotonic()
        result = _act(
            command,
            remote_key,
            options,
            remaining_s if options.timeout is None else min(remaining_s, options.timeout),
        )
        ran.append(_exit_code(result))
        return result

    def probe(attempt: AttemptInfo) -> ProbeAnswer:
        return _probe(options.probe, attempt)

    # Each run is a separate call: a settled effect may run again, an open one is settled first.
    call_id = "" if options.key else f"exec-{secrets.token_hex(8)}"
    mode = _choose_mode(client, options.session)
    with (
        warnings.catch_warnings(action="ignore", category=OpenWork),  # print_wait shows it
        client.session(
            options.session,
            mode=mode,
            end_on_exit=not options.session,
            match_unanswered_calls=False,
        ) as s,
    ):
        try:
            performed = s.perform(
                options.tool,
                arguments,
                act,
                probe=probe if options.probe else None,
                key=options.key,
                call_id=call_id,
                target=target,
                why=options.why,
                wait_s=options.wait,
                on_dispatch=note_deadline,
            )
        except Rejected as rejection:
            sys.stderr.write(f"gatebook: {rejection}; nothing was done\n")
            return NOT_FOUND if isinstance(rejection.__cause__, FileNotFoundError) else NOT_RUN
        except (NotYet, KeyboardInterrupt) as error:
            if isinstance(error, NotYet):
                error = _explain_later(error, options)
            if not options.session and not options.key:
                _withdraw(s, call_id)
            raise error from None
        except subprocess.TimeoutExpired as error:
            sys.stderr.write(f"gatebook: {error}; its outcome is unknown\n")
            return TIMED_OUT
    if ran:
        return ran[-1]
    sys.stderr.write(
        f"gatebook: {performed.handle} was done before "
        f"({performed.reference or performed.outcome})\n"
    )
    return 0 if performed.ok else 1


def _explain_later(later: NotYet, options: argparse.Namespace) -> NotYet:
    """Add to the error what becomes of the request."""
    kept = options.session or options.key
    sentence = (
        "Run the same command again to continue; until then the request stays in the inbox, and it "
        "expires by itself."
        if kept
        else "Its request is withdrawn. Use --session to continue a command later."
    )
    return NotYet(
        f"{later} {sentence}",
        later.effect,
        reason=later.reason,
        until_us=later.until_us,
        gate=later.gate,
        gate_url=later.gate_url,
    )


def _withdraw(session: Session, call_id: str) -> None:
    """Supersede what was planned and end the session: no later command can continue it."""
    with suppress(GatebookError):
        planned = session.find_effect(call_id=call_id)
        session.http.post(f"/effects/{planned.effect}/supersede", {})
    with suppress(GatebookError):
        session.end("cancelled")


def _read_arguments(text: str, command: list[str]) -> Json:
    """Return the arguments of the effect: those given, or the command itself.

    Given arguments name the command too, so that nothing else runs under them than they say.
    """
    if not text:
        return {"command": command}
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise ValueError(f"--arguments is not JSON: {error}") from None
    is_shell = len(command) == 3 and command[0] in SHELLS and command[1] == "-c"
    if not isinstance(arguments, dict) or not is_shell or arguments.get("command") != command[2]:
        raise ValueError(
            "--arguments is a JSON object whose `command` is the text of -- bash -c TEXT"
        )
    return arguments


def _is_text(argument: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in argument)


def _choose_mode(client: Client, key: str) -> str:
    """Return the session mode for a command: one_shot, because a command has no lease.

    Raises WaitTimeout if the session exists in mode `leased`.
    """
    sessions = client.http.get("/sessions", key=key, limit=1).body["items"] if key else []
    if sessions and sessions[0].get("mode") == "leased":
        raise WaitTimeout(
            f"Session {key} has mode leased, so a process works in it. Give the command a "
            "separate session."
        )
    return "one_shot"


def _check_timeout(client: Client, options: argparse.Namespace) -> None:
    """Refuse a timeout beyond the declared request lifetime.

    The effect could be repeated while such a command still runs.
    """
    if options.timeout is None:
        return
    if not options.timeout > 0:
        raise ValueError("--timeout must be more than 0 seconds")
    lifetime_s = int(client.http.get("/tools", name=options.tool).body["request_lifetime_s"])
    if options.timeout > lifetime_s:
        raise ValueError(
            f"--timeout {options.timeout:g} is longer than the request lifetime of {options.tool}, "
            f"{lifetime_s} s. After that the effect may be repeated. Use a shorter timeout, or "
            "raise request_lifetime_s in tools.yaml"
        )


class CommandTimeout(subprocess.TimeoutExpired):
    """The command was killed because its time was over."""

    def __str__(self) -> str:
        return (
            f"the command did not end within {self.timeout:.0f} s and was killed, "
            "with the processes that it had started"
        )


def _act(
    command: list[str], remote_key: str, options: argparse.Namespace, timeout_s: float
) -> Result:
    """Run the command and return its result.

    A command that exits has happened, with any exit code. If a signal ended it, its outcome is
    unknown.
    """
    environment = os.environ | {KEY_ENV_NAME: remote_key}
    filled = [argument.replace("{remote_key}", remote_key) for argument in command]
    with (
        _forward_signals() as forward_to,
        _run_watched(filled, environment, timeout_s) as (process, read_event),
    ):
        start = read_event()
        if start.startswith("failed "):
            error = OSError(int(start[7:]), os.strerror(int(start[7:])))
            raise Rejected(f"{command[0]}: {error.strerror}") from error
        forward_to(process)
        end = read_event() if start else ""
    if end == "cut off" or not start:
        raise CommandTimeout(command, timeout_s)
    code = (
        int(end.removeprefix("ended ")) if end else -signal.SIGKILL
    )  # the watcher was killed, and so was it
    if code < 0:
        return Result("unknown", result={"signal": -code})
    reference = (
        _read_reference(options.reference, environment) if options.reference and code == 0 else ""
    )
    return Result("ok" if code == 0 else "error", reference, {"exit_code": code})


@contextmanager
def _run_watched(
    command: list[str], environment: dict[str, str], timeout_s: float
) -> Iterator[tuple["subprocess.Popen[bytes]", Callable[[], str]]]:
    """Run a command under a watcher, which learns from a pipe that this process has ended.

    Yields the watcher's process and a function that reads its next event.
    """
    alive_read, alive_write = os.pipe()
    events_read, events_write = os.pipe()
    try:
        start = [
            sys.executable,
            "-I",
            "-S",
            watcher.__file__,
            str(alive_read),
            str(events_write),
            str(timeout_s),
            str(os.getpgrp()),
        ]
        process = subprocess.Popen(
            [*start, *command],
            env=environment,
            pass_fds=(alive_read, events_write),
            process_group=0,
        )
    except BaseException as error:
        os.close(events_read)
        os.close(alive_write)
        if isinstance(error, OSError):
            raise Rejected(f"{command[0]}: {error.strerror}") from None
        raise
    finally:
        os.close(alive_read)
        os.close(events_write)
    with os.fdopen(events_read) as events:

        def read_event() -> str:
            event = events.readline().rstrip("\n")
            if event.startswith("ended "):
                with suppress(BrokenPipeError):
                    os.write(alive_write, watcher.RECEIVED)
            return event

        try:
            yield process, read_event
        finally:
            os.close(alive_write)
            process.wait()


def _exit_code(result: Result) -> int:
    return (
        128 + int(result.result["signal"])
        if "signal" in result.result
        else int(result.result["exit_code"])
    )


def _read_reference(command: str, environment: dict[str, str]) -> str:
    completed = subprocess.run(
        ["/bin/sh", "-c", command], env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    return completed.stdout.strip().partition("\n")[0][:300] if completed.returncode == 0 else ""


def _probe(command: str, attempt: AttemptInfo) -> ProbeAnswer:
    """Run the probe. Exit code 0: it happened, and the first line is its reference.

    1: it did not happen. Any other exit code: an error.
    """
    environment = os.environ | {KEY_ENV_NAME: attempt.remote_key}
    completed = subprocess.run(
        ["/bin/sh", "-c", command], env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if completed.returncode == 0:
        return completed.stdout.strip().partition("\n")[0] or True
    if completed.returncode == 1:
        return None
    raise RuntimeError(f"the probe ended with exit code {completed.returncode}")


def _is_signaled_by_terminal() -> bool:
    """Return whether Ctrl-C comes from a terminal, which signals the command as well."""
    try:
        with Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


@contextmanager
def _forward_signals() -> Iterator[Callable[["subprocess.Popen[bytes]"], None]]:
    """Forward signals to the command, and stay alive to report its outcome.

    This starts before the command does: a signal that ended this process between the two would
    leave the command running without a parent.
    """
    begun: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def forward_to(child: "subprocess.Popen[bytes]") -> None:
        begun.append(child)
        for number in early:
            child.send_signal(number)

    def forward(number: int, _frame: FrameType | None) -> None:
        if begun:
            begun[0].send_signal(number)
        else:
            early.append(number)

    def decide(number: int, frame: FrameType | None) -> None:
        if not _is_signaled_by_terminal():
            forward(number, frame)

    before = {number: signal.signal(number, forward) for number in FORWARDED}
    before |= {number: signal.signal(number, decide) for number in TERMINAL_SIGNALS}
    try:
        yield forward_to
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
