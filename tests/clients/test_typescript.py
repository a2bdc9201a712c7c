"""The TypeScript client on Node: keys as in Python, fails closed, and survives kill -9.

`make test` kills two processes, and `make test-agents` twenty (TESTS_KILLS).
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from gatebook_client.effect_keys import compute_call_digest, effect_key

from tests.client.test_people import deny_again
from tests.config.server import ROOT, Server
from tests.evaluation.test_demo_agent import POLICY, a_project, rule

pytestmark = pytest.mark.once
FOLDER = ROOT / "clients" / "typescript"
VECTORS = FOLDER / "test" / "vectors.json"
COMPILER = FOLDER / "node_modules" / "typescript" / "bin" / "tsc"
WITHIN_S = 300
KILLS = int(os.environ.get("TESTS_KILLS", "2"))
EFFECTS = 3
TOOLS = """
tools:
  probeable: {class: probeable, request_lifetime_s: 1}
  opaque: {class: opaque}
"""
REFUSED = {"error": "PermissionRefused", "message": "not today", "comments": []}
CALLS: list[tuple[str, Any, list[str]]] = [
    ("mail.send", {"to": "ada"}, []),
    ("mail.send", {}, []),
    ("mail.send", [], []),
    ("mail.send", None, []),
    ("mail.send", {"b": 1, "a": [True, False, None], "B": {"z": "", "y": "x"}}, []),
    ("mail.send", {"to": "ada", "at": "noon"}, ["at"]),
    ("mail.send", {"to": "ada", "at": "noon"}, ["missing"]),
    ("pay", {"cents": 9007199254740991, "all": -9007199254740991}, []),
    ("pay", {"cents": 9007199254740993, "all": 10**40}, []),
    ("pay", {"rates": [0.1, 1.5, -2.25, 0.0001, 0.00001, 0.000012, 1.5e-300, 123456.789]}, []),
    ("text", {"é": "naïve ☃ 😀", "\uffff": 1, "😀": 2, "a\u007f": "\u007f\u0080"}, []),
    ("text", {"quotes": '"\\/\b\f\n\r\t\u0001\u001f\u2028'}, []),
    ("ünïcode", {"10": 1, "9": 2, "__proto__": 3}, []),
]


def build_vectors() -> list[dict[str, Any]]:
    """Return calls with the digests and keys that the Python client gives them."""
    return [
        {
            "tool": tool,
            "arguments": arguments,
            "free_text": free_text,
            "ordinal": ordinal,
            "digest": digest,
            "key": effect_key(tool, digest, ordinal),
        }
        for ordinal, (tool, arguments, free_text) in enumerate(CALLS)
        for digest in [compute_call_digest(tool, arguments, free_text)]
    ]


def test_the_vectors_of_keys_are_those_of_the_python_client() -> None:
    assert json.loads(VECTORS.read_text(encoding="utf-8")) == build_vectors()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Compile the client with its tests; yield the folder of the programs."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    if not COMPILER.exists():
        pytest.skip(f"TypeScript is not installed in {FOLDER}; `make typescript` installs it")
    compiled = FOLDER / f"dist-{os.getpid()}"
    try:
        done = subprocess.run(
            ["node", str(COMPILER), "--outDir", str(compiled)],
            cwd=FOLDER,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        yield compiled / "test"
    finally:
        shutil.rmtree(compiled, ignore_errors=True)


@pytest.fixture(scope="module")
def tokens(live_server_process: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Tokens of a project without a policy, and of one in which people approve."""
    server, declared = live_server_process, tmp_path_factory.mktemp("tools") / "tools.yaml"
    declared.write_text(TOOLS)
    server.manage("create_project", "scripted", "--administrator", "admin")
    server.manage("load_tools", "--project", "scripted", str(declared))
    return {
        "GATEBOOK_TOKEN": server.token("script", "--project", "scripted"),
        "GATEBOOK_GATED_TOKEN": a_project(server, "scripted-gates", POLICY),
    }


@pytest.fixture
def surroundings(live_server_process: Server, tokens: dict[str, str]) -> dict[str, str]:
    """The environment of programs that use the server."""
    return {**os.environ, **tokens, "GATEBOOK_URL": live_server_process.url}


@pytest.mark.matrix
def test_its_own_tests_pass(node: Path, surroundings: dict[str, str]) -> None:
    names = sorted(str(path) for path in node.glob("*.test.js"))
    assert len(names) == 3
    done = subprocess.run(
        ["node", "--test", *names],
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped 0" in done.stdout


def run_program(node: Path, environment: dict[str, str], *words: str) -> tuple[int, str, str]:
    """Run the agent; return its exit code, negative for a signal, and its output."""
    done = subprocess.run(
        ["node", str(node / "program.js"), *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("approve", {"done": "acknowledged", "attempt": 1}),
        ("deny", REFUSED | {"status": "denied"}),
        ("request_changes", REFUSED | {"status": "changes_requested"}),
        ("undo", REFUSED | {"status": "denied", "comments": ["Use the other branch."]}),
    ],
)
def test_it_waits_for_people_and_obeys_them(
    node: Path,
    live_server_process: Server,
    surroundings: dict[str, str],
    tmp_path: Path,
    answer: str,
    expected: dict[str, Any],
) -> None:
    world = tmp_path / "world"
    # An earlier denial is a warning, so each answer has a project of its own.
    project = f"scripted-present-{answer.replace('_', '-')}"
    token = a_project(live_server_process, project, POLICY)
    environment = surroundings | {"GATEBOOK_TOKEN": token}
    with subprocess.Popen(
        ["node", str(node / "program.js"), f"people-{answer}", str(world), "gated"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            gate = json.loads(process.stdout.readline())["gate"]
            assert not world.exists()
            if answer == "undo":
                deny_again(live_server_process, gate, f"{project}-pilot")
            else:
                rule(live_server_process, gate, f"{project}-pilot", answer, "not today")
            assert json.loads(process.stdout.readline()) == expected
        finally:
            process.kill()
    assert world.exists() == (answer == "approve")


@pytest.mark.parametrize("answer", ["approve", "deny"])
def test_a_ruling_while_no_process_lives_reaches_the_next(
    node: Path,
    live_server_process: Server,
    surroundings: dict[str, str],
    tmp_path: Path,
    answer: str,
) -> None:
    world, words = tmp_path / "world", [f"absent-{answer}", str(tmp_path / "world"), "gated"]
    # An earlier denial is a warning, so each answer has a project of its own.
    project = f"scripted-absent-{answer.replace('_', '-')}"
    token = a_project(live_server_process, project, POLICY)
    environment = surroundings | {"GATEBOOK_TOKEN": token}
    with subprocess.Popen(
        ["node", str(node / "program.js"), *words],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            gate = json.loads(process.stdout.readline())["gate"]
        finally:
            process.kill()
    rule(live_server_process, gate, f"{project}-pilot", answer, "not today")
    code, printed, errors = run_program(node, environment, *words)
    assert code == 0, errors
    result = json.loads(printed.splitlines()[-1])
    assert result.get("done") == ("acknowledged" if answer == "approve" else None)
    assert result.get("message") == (None if answer == "approve" else "not today")
    assert world.exists() == (answer == "approve")


def test_killed_before_or_after_the_effect_it_is_done_exactly_once(
    node: Path, surroundings: dict[str, str], tmp_path: Path
) -> None:
    def kill_and_resume(number: int) -> None:
        world, when = tmp_path / f"world-{number}", ("before", "after")[number % 2]
        which = number // 2 % EFFECTS
        words = [f"killed-{number}", str(world), str(EFFECTS)]
        code, _, errors = run_program(node, surroundings, *words, when, str(which))
        assert code == -signal.SIGKILL, errors
        before = world.read_text().split() if world.exists() else []
        assert len(before) == which + (when == "after")
        code, printed, errors = run_program(node, surroundings, *words)
        assert code == 0, errors
        keys = world.read_text().split()
        assert len(keys) == len(set(keys)) == EFFECTS
        resumed = json.loads(printed)
        assert resumed["safe"]
        assert resumed["alreadyDone"] == len(before)
        assert resumed["results"] == ["found" if when == "after" else "due"]

    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(kill_and_resume, range(KILLS)))) == KILLS
