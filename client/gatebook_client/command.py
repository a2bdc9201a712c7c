"""`gatebook exec`: a command as one effect. Its output passes through, its exit code is ours, and it never runs twice.

The command finds the attempt's key in GATEBOOK_REMOTE_KEY, and wherever its words say {remote_key}. It ends with this
process, however that ends, and at the latest when the request lifetime of its tool is over (see watcher.py): from then
on the effect may be done again.
"""

import argparse
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

from gatebook_client import watcher
from gatebook_client.client import Client
from gatebook_client.errors import NotYet, OpenWork, Rejected
from gatebook_client.values import Done, Json, Known, Looked

NOT_FOUND, NOT_RUN = 127, 126
FORWARDED = (signal.SIGTERM, signal.SIGHUP)
FROM_A_TERMINAL = (signal.SIGINT, signal.SIGQUIT)  # which sends them to the command too
TIMED_OUT = 124
LIFETIME_S = 300  # of a request where nothing is declared
KEY_IS_IN = "GATEBOOK_REMOTE_KEY"


def tell_of_waiting(waits_for: str, told: Json) -> None:
    """Say on standard error what is waited for."""
    if waits_for == "gate":
        sentence = f"waiting for people to rule on {told.get('handle')} ({told.get('tool')})"
    elif waits_for == "same_call":
        named = ", ".join(f"{one['handle']} in {one['session_key']}" for one in told["same_calls"])
        sentence = f"the same call may have happened already: {named}; nobody knows its outcome"
    elif waits_for == "left_open":
        handles = ", ".join(str(one.get("handle")) for one in told["effects"])
        sentence = f"session {told['session_key']} is left open because of {handles}"
    else:
        sentence = f"waiting: {told.get('detail') or told.get('reason') or waits_for}"
    sys.stderr.write(f"gatebook: {sentence}\n")


def run(client: Client, asked: argparse.Namespace) -> int:
    """Perform the command that stands behind `--`; return its exit code. Raises what `Session.perform` raises."""
    words: list[str] = asked.command
    if not words:
        raise ValueError("Say the command behind --: gatebook exec --tool git.push -- git push")
    for word in words:
        if not _is_text(word):
            raise ValueError(f"Gatebook keeps words of UTF-8, and {os.fsencode(word)!r} is none")
    names = ("repository", "ref", "environment", "resource")
    target = {name: value for name in names if (value := getattr(asked, name))}
    _check_timeout(client, asked)
    ran: list[int] = []
    until: list[float] = []

    def granted(told: Json, asked_at: float) -> None:
        """From the dispatch on the lifetime counts, as it is declared by then."""
        until.append(asked_at + float(told.get("request_lifetime_s") or LIFETIME_S))

    def act(remote_key: str) -> Done:
        left_s = until[-1] - time.monotonic()
        done = _act(words, remote_key, asked, left_s if asked.timeout is None else min(left_s, asked.timeout))
        ran.append(_code(done))
        return done

    def probe(known: Known) -> Looked:
        return _probe(asked.probe, known)

    # Each run is a call of its own: what is over may be run again, what is open is found out about first.
    call_id = "" if asked.key else f"exec-{secrets.token_hex(8)}"
    mode = _mode(client, asked.session)
    with (
        warnings.catch_warnings(action="ignore", category=OpenWork),  # it is said by tell_of_waiting
        client.session(asked.session, mode=mode, ends=not asked.session, answers_again=False) as s,
    ):
        try:
            performed = s.perform(
                asked.tool,
                {"command": words},
                act,
                probe=probe if asked.probe else None,
                key=asked.key,
                call_id=call_id,
                target=target,
                why=asked.why,
                wait_s=asked.wait,
                granted=granted,
            )
        except Rejected as rejection:
            sys.stderr.write(f"gatebook: {rejection}; nothing was done\n")
            return NOT_FOUND if isinstance(rejection.__cause__, FileNotFoundError) else NOT_RUN
        except subprocess.TimeoutExpired as late:
            sys.stderr.write(f"gatebook: {late}; what it did is unknown\n")
            return TIMED_OUT
    if ran:
        return ran[-1]
    sys.stderr.write(f"gatebook: {performed.handle} was done before ({performed.reference or performed.outcome})\n")
    return 0 if performed.ok else 1


def _is_text(word: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in word)


def _mode(client: Client, key: str) -> str:
    """That of the session, where it is there: a command has no lease, and a session keeps its mode."""
    found = client.wire.get("/sessions", key=key, limit=1).body["items"] if key else []
    if found and found[0].get("mode") == "leased":
        raise NotYet(f"Session {key} belongs to whoever holds its lease; give the command a session of its own.")
    return "one_shot"


def _check_timeout(client: Client, asked: argparse.Namespace) -> None:
    """Refuse a timeout that outlasts what is declared: the effect could be done again while the command runs."""
    if asked.timeout is None:
        return
    if not asked.timeout > 0:
        raise ValueError("--timeout is more than 0 seconds")
    lifetime_s = int(client.wire.get("/tools", name=asked.tool).body["request_lifetime_s"])
    if asked.timeout > lifetime_s:
        raise ValueError(
            f"--timeout {asked.timeout:g} is longer than the request lifetime of {asked.tool}, {lifetime_s} s, after"
            " which it may be done again. Ask for less, or have request_lifetime_s raised in tools.yaml"
        )


class CutOff(subprocess.TimeoutExpired):
    """The command was killed because its time was over."""

    def __str__(self) -> str:
        return f"the command did not end within {self.timeout:.0f} s and was killed, with what it had started"


def _act(words: list[str], remote_key: str, asked: argparse.Namespace, lasts_s: float) -> Done:
    """Run the command. It ran, so it happened, well or not; cut off by a signal, nobody knows."""
    environment = os.environ | {KEY_IS_IN: remote_key}
    filled = [word.replace("{remote_key}", remote_key) for word in words]
    with _forwarding() as hand_on_to, _watched(filled, environment, lasts_s) as (process, heard):
        begun = heard()
        if begun.startswith("failed "):
            fault = OSError(int(begun[7:]), os.strerror(int(begun[7:])))
            raise Rejected(f"{words[0]}: {fault.strerror}") from fault
        hand_on_to(process)
        ended = heard() if begun else ""
    if ended == "cut off" or not begun:
        raise CutOff(words, lasts_s)
    code = int(ended.removeprefix("ended ")) if ended else -signal.SIGKILL  # the watcher was killed, and so was it
    if code < 0:
        return Done("unknown", result={"signal": -code})
    reference = _said_by(asked.reference, environment) if asked.reference and code == 0 else ""
    return Done("ok" if code == 0 else "error", reference, {"exit_code": code})


@contextmanager
def _watched(
    words: list[str], environment: dict[str, str], lasts_s: float
) -> Iterator[tuple["subprocess.Popen[bytes]", Callable[[], str]]]:
    """Run a command under a watcher, which hears of our end by a pipe: the watcher, and what reads its next word."""
    alive, holds = os.pipe()
    hears, said = os.pipe()
    try:
        start = [sys.executable, "-I", "-S", watcher.__file__, str(alive), str(said), str(lasts_s), str(os.getpgrp())]
        process = subprocess.Popen([*start, *words], env=environment, pass_fds=(alive, said), process_group=0)
    except BaseException as fault:
        os.close(hears)
        os.close(holds)
        if isinstance(fault, OSError):
            raise Rejected(f"{words[0]}: {fault.strerror}") from None
        raise
    finally:
        os.close(alive)
        os.close(said)
    with os.fdopen(hears) as words_of_it:

        def heard() -> str:
            word = words_of_it.readline().rstrip("\n")
            if word.startswith("ended "):
                with suppress(BrokenPipeError):
                    os.write(holds, watcher.HEARD)
            return word

        try:
            yield process, heard
        finally:
            os.close(holds)
            process.wait()


def _code(done: Done) -> int:
    return 128 + int(done.result["signal"]) if "signal" in done.result else int(done.result["exit_code"])


def _said_by(line: str, environment: dict[str, str]) -> str:
    told = subprocess.run(["/bin/sh", "-c", line], env=environment, stdout=subprocess.PIPE, text=True, check=False)
    return told.stdout.strip().partition("\n")[0][:300] if told.returncode == 0 else ""


def _probe(line: str, known: Known) -> Looked:
    """Exit code 0: it happened, and the first line printed is its reference; 1: it did not; anything else: an error."""
    environment = os.environ | {KEY_IS_IN: known.remote_key}
    told = subprocess.run(["/bin/sh", "-c", line], env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if told.returncode == 0:
        return told.stdout.strip().partition("\n")[0] or True
    if told.returncode == 1:
        return None
    raise RuntimeError(f"the probe ended with {told.returncode}")


def _terminal_tells_it() -> bool:
    """Whether Ctrl-C comes from a terminal, which sends it to the command as well."""
    try:
        with Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


@contextmanager
def _forwarding() -> Iterator[Callable[["subprocess.Popen[bytes]"], None]]:
    """Hand signals on to the command that the block names, and stay to tell what came of it.

    From before the command is begun: a signal that ended us while it runs already would leave it to itself.
    """
    begun: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def hand_on_to(child: "subprocess.Popen[bytes]") -> None:
        begun.append(child)
        for number in early:
            child.send_signal(number)

    def forward(number: int, _frame: FrameType | None) -> None:
        if begun:
            begun[0].send_signal(number)
        else:
            early.append(number)

    def decide(number: int, frame: FrameType | None) -> None:
        if not _terminal_tells_it():
            forward(number, frame)

    before = {number: signal.signal(number, forward) for number in FORWARDED}
    before |= {number: signal.signal(number, decide) for number in FROM_A_TERMINAL}
    try:
        yield hand_on_to
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
