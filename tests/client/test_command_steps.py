"""The steps of an effect as commands: one JSON object each, and an exit code that says what is so."""

import json
import signal
from typing import Any

import pytest

from evaluation.bench.installation import own_port
from tests.client.test_command import WITHIN_S, Terminal, terminal, token
from tests.client.test_pushes import wait_until

__all__ = ["terminal", "token"]
pytestmark = pytest.mark.once


def step(terminal: Terminal, *words: str, url: str = "") -> tuple[int, dict[str, Any]]:
    """Run a step; return its exit code and the JSON object that it printed."""
    code, printed, _ = terminal.type(*words, url=url)
    (line,) = printed.splitlines()
    answer: dict[str, Any] = json.loads(line)
    return code, answer


def test_the_steps_of_one_call_run_in_commands_of_their_own(terminal: Terminal) -> None:
    call = ("--session", "words", "--call-id", "c1")
    arguments = json.dumps({"command": ["push"], "chat": 2**70})
    code, planned = step(
        terminal, "plan", *call, "--tool", "shell", "--arguments", arguments, "--meta", '{"pid": 7}'
    )
    assert (code, planned["answer"], planned["permission"]) == (0, "proceed", "granted")
    assert step(terminal, "wait", *call, "--wait", "0")[0] == 0
    code, missing = step(terminal, "result", *call)
    assert (code, missing["code"]) == (75, "NO_RESULT")
    (terminal.folder / "sent.json").write_text(arguments)
    code, attempt = step(terminal, "dispatch", *call, "--arguments", "@sent.json")
    assert (code, attempt["attempt"], attempt["effect"]) == (0, 1, planned["effect"])
    assert attempt["remote_key"]
    code, unknown = step(terminal, "dispatch", planned["handle"])
    assert (code, unknown["code"]) == (3, "ALREADY_DISPATCHED")
    assert unknown["verdict"]["verdict"] == "escalate"
    code, done = step(terminal, "acknowledge", *call, "--result", '{"id": 1}', "--reference", "r-1")
    assert (code, done["outcome"], done["reference"]) == (0, "ok", "r-1")
    code, stored = step(terminal, "result", planned["effect"])
    assert (code, stored["result"], stored["already_done"]) == (0, {"id": 1}, True)
    code, again = step(terminal, "plan", *call, "--tool", "shell", "--arguments", arguments)
    assert (code, again["answer"]) == (0, "done")


def test_what_waits_and_what_is_refused_have_codes_of_their_own(terminal: Terminal) -> None:
    plan = ("plan", "--session", "words-2", "--tool")
    code, waiting = step(terminal, *plan, "release", "--key", "r")
    assert (code, waiting["answer"], waiting["permission"]) == (75, "wait", "pending")
    for words in (("dispatch", waiting["handle"]), ("wait", waiting["gate"], "--wait", "0")):
        code, later = step(terminal, *words)
        assert (code, later["reason"], later["gate_url"]) == (75, "people", waiting["gate_url"])
        assert later["until_us"]
    code, refused = step(terminal, *plan, "disk.format", "--key", "d")
    assert (code, refused["answer"]) == (77, "blocked")
    code, denied = step(terminal, "dispatch", "--session", "words-2", "--key", "d")
    assert (code, denied["answer"]) == (77, "blocked")
    with own_port() as port:  # without a listener
        address = f"http://127.0.0.1:{port}"
        tried = ("--patience", "0.2", *plan, "shell", "--key", "x")
        code, unavailable = step(terminal, *tried, url=address)
    assert (code, unavailable["answer"]) == (69, "unavailable")


def test_a_failure_and_a_report_are_recorded(terminal: Terminal) -> None:
    call = ("--session", "words-3", "--key", "k")
    step(terminal, "plan", *call, "--tool", "shell")
    step(terminal, "dispatch", *call)
    code, failed = step(terminal, "fail", *call, "--reason", "rejected", "--detail", "closed")
    assert (code, failed["state"]) == (0, "failed")
    fields = json.dumps({"outcome": "ok", "result": "late", "attempt": 1})
    code, reported = step(terminal, "report", "effect.acknowledged", *call, "--fields", fields)
    assert (code, reported["status"]) == (0, "created")
    code, bad = step(terminal, "report", "effect.failed", *call, "--fields", '{"reason": "bored"}')
    assert (code, bad["answer"]) == (64, "refused")


@pytest.mark.parametrize(
    "words",
    [
        ("wait", "e_999999"),
        ("wait", "g_999999"),
        ("wait", "mistyped"),
        ("result", "--session", "nowhere", "--key", "k"),
        ("dispatch", "--session", "words", "--call-id", "none"),
    ],
)
def test_a_missing_effect_is_a_wrong_request(terminal: Terminal, words: tuple[str, ...]) -> None:
    terminal.type("plan", "--session", "words", "--tool", "shell", "--key", "any")
    code, answer = step(terminal, *words)
    assert (code, answer["code"]) == (64, "not_found")


@pytest.mark.parametrize("words", [("dispatch",), ("plan", "--tool", "shell", "--key", "k")])
def test_an_unnamed_session_is_wrong_usage(terminal: Terminal, words: tuple[str, ...]) -> None:
    code, printed, wrong = terminal.type(*words)
    assert (code, printed) == (64, "")
    assert "--session" in wrong


def newest(terminal: Terminal) -> tuple[str, str]:
    """Return key and status of the newest session."""
    _, status, key = terminal.type("sessions", "--limit", "1")[1].split()[:3]
    return key, status


def test_a_command_that_stops_waiting_leaves_nothing_that_nobody_can_continue(
    terminal: Terminal,
) -> None:
    release = ("exec", "--tool", "release", "--wait", "0")
    code, _, wrong = terminal.type(*release, "--", "touch", "released")
    assert code == 75
    assert "Its request is withdrawn" in wrong
    key, status = newest(terminal)
    assert status == "cancelled"
    assert [effect["state"] for effect in terminal.effects(key)] == ["superseded"]
    code, _, wrong = terminal.type(*release, "--session", "kept", "--", "touch", "released")
    assert code == 75
    assert "Run the same command again to continue" in wrong
    (kept,) = terminal.effects("kept")
    assert (kept["state"], kept["permission"]) == ("planned", "pending")
    assert newest(terminal) == ("kept", "running")


def test_an_interrupted_wait_leaves_nothing_either(terminal: Terminal) -> None:
    running = terminal.start("exec", "--tool", "release", "--", "touch", "released")
    keys: list[str] = []

    def waits() -> bool:
        printed = terminal.type("sessions", "--limit", "1")[1]
        keys[:] = [word for word in printed.split() if word.startswith("run-")]
        return any(
            effect["permission"] == "pending" for key in keys for effect in terminal.effects(key)
        )

    wait_until(waits)
    running.send_signal(signal.SIGINT)
    _, wrong = running.communicate(timeout=WITHIN_S)
    assert running.returncode == 130, wrong
    assert [effect["state"] for effect in terminal.effects(keys[0])] == ["superseded"]
