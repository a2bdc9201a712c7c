"""Imports into the real server by separate processes: in parallel, repeated, and killed half-way."""

import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.api.api_client import Caller
from tests.config.server import Command, Server
from tests.importers.samples import FILES, json_lines, write_lines

CALLS = 2_000
WITHIN_S = 120


class _Importing:
    """An agent of a separate project on the real server."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._folder, self.logs = folder, list[Path]()
        name = f"imports-{time.time_ns()}"
        server.manage("create_project", name, "--administrator", server.administrator)
        self._server = server
        self._token = server.token("importer", "--project", name, "--scope", "import")
        self._agent = Caller(self._token, address=server.url)

    def start(self, format_name: str, *files: Path, url: str = "") -> Command:
        where = ("--url", url or self._server.url, "--token", self._token)
        self.logs.append(self._folder / f"log-{len(self.logs)}")
        words = ("import_trajectory", format_name, *map(str, files), *where)
        return Command(self._server.shell, self.logs[-1], *words)

    def run_in_process(self, format_name: str, *files: Path) -> str:
        """Import in the permanent process of the server; return the output."""
        where = ("--url", self._server.url, "--token", self._token)
        return self._server.manage("import_trajectory", format_name, *map(str, files), *where)

    def finish(self, *children: Command) -> None:
        codes = [child.wait(WITHIN_S) for child in children]
        assert codes == [0] * len(children), [log.read_text() for log in self.logs]

    def read(self, path: str, **query: str) -> Any:
        return self._agent.get(f"/{path}", **query).raise_for_status()

    def effects(self) -> list[dict[str, Any]]:
        effects: list[dict[str, Any]] = []
        query = {"limit": "200"}
        while True:
            page = self.read("effects", **query).json()
            effects += page["items"]
            if page["next"] is None:
                return effects
            query["after"] = page["next"]


@pytest.fixture
def importing(live_server_process: Server, tmp_path: Path) -> _Importing:
    return _Importing(live_server_process, tmp_path)


def _episode(path: Path, calls: int) -> Path:
    """Write an episode of so many actions, the last with a result too large for an item."""
    observations = [f"bead {number}\x00" for number in range(calls - 1)] + ["\x00bead\n" * 100_000]
    history = {
        "actions": [f"count {number % 100}" for number in range(calls)],
        "observations": observations,
        "valid_action": [True] * calls,
    }
    document = {
        "_source": {"repo": "ada/long", "path": "long.json"},
        "raw": {"turn_history": history},
    }
    return write_lines(path, [document])


def test_parallel_and_repeated_imports_store_every_call_once(importing: _Importing) -> None:
    runs = [
        ("claude-code", FILES / "claude-code.jsonl"),
        ("claude-code", FILES / "claude-code-subagent.jsonl"),
        *((name, FILES / f"{name}.jsonl") for name in ("tau-bench", "openhands")),
    ]
    for again in (False, True):
        # The second time there is no race, so one process runs all imports.
        if again:
            printed = [importing.run_in_process(*run) for run in runs]
        else:
            importing.finish(*[importing.start(*run) for run in runs])
        effects = importing.effects()
        assert Counter(effect["state"] for effect in effects) == {
            "acknowledged": 19,
            "dispatched": 3,
        }
    assert all("; 0 facts added, " in line for line in printed)
    keys = {
        session["key"]: session
        for session in importing.read("sessions", limit="50").json()["items"]
    }
    main = json_lines(FILES / "claude-code.jsonl")[1]["sessionId"]
    assert keys[f"{main}/a1b2c3d"]["parent"] == keys[main]["id"]


@contextmanager
def _taking(url: str, most: int) -> Iterator[str]:
    """Yield the URL of a proxy that forwards `most` bytes; a client with more waits for the block's
    end."""
    port = urlsplit(url).port
    assert port is not None
    with ExitStack() as stack:
        proxy = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def let_in(caller: socket.socket, server: socket.socket) -> None:
            nonlocal most
            while most and (data := caller.recv(min(most, 65_536))):
                most -= len(data)
                server.sendall(data)

        def let_out(server: socket.socket, caller: socket.socket) -> None:
            with suppress(OSError):  # the client is dead
                while data := server.recv(65_536):
                    caller.sendall(data)

        def serve() -> None:
            with suppress(OSError):  # the proxy is closed
                while True:
                    caller = stack.enter_context(proxy.accept()[0])
                    server = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                    threading.Thread(target=let_out, args=(server, caller), daemon=True).start()
                    let_in(caller, server)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{proxy.getsockname()[1]}"


def test_a_killed_import_is_completed_by_a_second_run(
    importing: _Importing, live_server_process: Server, tmp_path: Path
) -> None:
    file = _episode(tmp_path / "long.jsonl", CALLS)
    # The first batches arrive, and never all of them, however long the check takes.
    with _taking(live_server_process.url, file.stat().st_size // 2) as url:
        child = importing.start("intercode", file, url=url)
        until = time.monotonic() + WITHIN_S
        while not importing.read("effects", limit="1").json()["items"]:
            assert time.monotonic() < until
            assert child.poll() is None
            time.sleep(0.02)
        child.kill()
    assert child.returncode == -signal.SIGKILL
    assert len(importing.effects()) < CALLS

    printed = importing.run_in_process("intercode", file)
    assert f"1 session, {CALLS:,} calls (0 without a result)" in printed
    assert "1 artifact, 1 stored now" in printed
    effects = importing.effects()
    assert len({effect["effect_key"] for effect in effects}) == len(effects) == CALLS
    assert {effect["state"] for effect in effects} == {"acknowledged"}
    assert {effect["permission"] for effect in effects} == {"observed"}


@pytest.mark.matrix_on_postgresql
def test_a_large_result_comes_back_from_the_api_byte_for_byte(
    importing: _Importing, live_server_process: Server, tmp_path: Path
) -> None:
    importing.run_in_process("intercode", _episode(tmp_path / "long.jsonl", 3))
    (effect,) = importing.read("effects", session="ada/long:long.json", effect_key="call:3").json()[
        "items"
    ]
    code = (
        "from sessions.models import Artifact\n"
        f"print(*Artifact.objects.filter(effect={effect['id']!r}).values_list('id', flat=True))"
    )
    artifact = live_server_process.run(code).strip()
    assert importing.read(f"artifacts/{artifact}").json()["effect"] == effect["id"]
    assert importing.read(f"artifacts/{artifact}/bytes").content == b"\x00bead\n" * 100_000


@pytest.mark.matrix_on_postgresql
def test_a_refused_token_stops_the_import_with_the_servers_error(
    importing: _Importing,
) -> None:
    importing._token = "gbk_abcdefgh_" + "x" * 43
    child = importing.start("pi", FILES / "pi.jsonl")
    assert child.wait(WITHIN_S) == 1
    errors = importing.logs[-1].read_text()
    assert "pi.jsonl: /api/v1/events: The token is missing, unknown, expired or revoked" in errors
    assert "Traceback" not in errors
    assert "(HTTP 401)" in errors
