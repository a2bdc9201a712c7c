"""`gatebook mcp-proxy` with the real MCP SDK on both sides and a real Gatebook."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from gatebook_client.mcp_proxy_command import clean_name, derive_name, find_effect_key

from evaluation.bench.installation import own_port
from tests.client.coroutines import run_coroutine
from tests.client.test_pushes import wait_until
from tests.config.server import ROOT, Server
from tests.evaluation.test_demo_agent import rule
from tests.matrices import keep_core

if TYPE_CHECKING:  # collecting the tests does not import it
    from mcp.client.client import Client
    from mcp_types import CallToolResult

# Other tests run the server on both databases; these test the command alone.
pytestmark = pytest.mark.once
TOOLS = ROOT / "tests" / "client" / "agents" / "mcp_tools.py"
COPIED_TOOLS = TOOLS.with_name("copied_tools.py")
TOOLS_YAML = """
tools:
  mcp.short.late: {class: opaque, request_lifetime_s: 1}
"""
POLICY = """
name: servers
rules:
  - {id: never, title: Never, match: {tools: [mcp.never.*]}, outcome: deny}
  - {id: ask, title: Ask, match: {tools: [mcp.held.*]}, outcome: require}
  - {id: rest, title: Everything else, match: {}, outcome: allow}
"""
WITHIN_S = 60


@pytest.fixture(scope="module")
def token(live_server_process: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    server, folder = live_server_process, tmp_path_factory.mktemp("mcp")
    server.run(
        """
from django.db import transaction
from accounts import people, projects
with transaction.atomic():
    project = projects.create_project("mcp")
    people.add_project_member(project, "mcp-pilot", "reviewer", people.generate_password())
"""
    )
    for command, text in (("load_tools", TOOLS_YAML), ("load_policies", POLICY)):
        file = folder / f"{command}.yaml"
        file.write_text(text)
        activate = ["--activate", "enforce"] if command == "load_policies" else []
        server.manage(command, "--project", "mcp", str(file), *activate)
    return server.token("mcp-agent", "--project", "mcp")


class Place:
    """A folder in which a proxy runs, and what Gatebook knows of it."""

    def __init__(self, server: Server, token: str, folder: Path, copies: Path) -> None:
        self.server, self.token, self.folder, self.copies = server, token, folder, copies
        self.file = folder / "marks"
        self.url = server.url

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "HOME": str(self.folder),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "GATEBOOK_URL": self.url,
            "GATEBOOK_TOKEN": self.token,
            "PYTHONPATH": str(ROOT / "client"),
        }

    def command(self, name: str, *options: str, behind: list[str] | None = None) -> list[str]:
        behind = behind or ["--", sys.executable, "-S", str(COPIED_TOOLS), str(self.copies)]
        words = ["-m", "gatebook_client", "mcp-proxy", "--name", name, *options]
        return [sys.executable, *words, *behind]

    def client(self, name: str, *options: str, behind: list[str] | None = None) -> "Client":
        from mcp import StdioServerParameters
        from mcp.client.client import Client

        command = self.command(name, *options, behind=behind)
        return Client(
            StdioServerParameters(
                command=command[0], args=command[1:], env=self.environment, cwd=str(self.folder)
            )
        )

    def get(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.get(f"{self.server.url}/api/v1{path}", headers=headers, timeout=60).json()

    def effects(self, tool: str) -> list[dict[str, Any]]:
        """Return the effects of a tool in the newest session with this folder's name."""
        return list(self.get(f"/effects?tool={tool}&limit=200")["items"])

    def marks(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []

    def approve(self, tool: str, answer: str = "approve", reason: str = "as planned") -> None:
        """Wait for a gate of the tool, and rule on it."""
        gates: list[dict[str, Any]] = []

        def find() -> bool:
            gates[:] = [
                gate
                for gate in self.get("/gates?status=pending&limit=100")["items"]
                if gate["tool"] == tool
            ]
            return bool(gates)

        wait_until(find)
        rule(self.server, gates[0]["id"], "mcp-pilot", answer, reason)


@pytest.fixture(scope="module")
def copies() -> Iterator[Path]:
    """The socket of a process that has imported the SDK and copies itself for each server."""
    with TemporaryDirectory() as folder:  # the path of a socket is short
        path = Path(folder) / "tools"
        process = subprocess.Popen([sys.executable, str(TOOLS), "copies", str(path)])
        try:
            wait_until(path.exists)
            yield path
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def place(live_server_process: Server, token: str, tmp_path: Path, copies: Path) -> Place:
    return Place(live_server_process, token, tmp_path, copies)


def run(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test's coroutine, with a limit."""
    run_coroutine(asyncio.wait_for(body(), WITHIN_S * 2))


def text_of(result: "CallToolResult") -> str:
    (block,) = result.content
    assert block.type == "text"
    return block.text


def test_a_call_is_recorded_and_everything_else_passes(place: Place) -> None:
    async def body() -> None:
        async with place.client("free-a") as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert {"append", "read", "slow"} <= tools
            result = await client.call_tool("append", {"path": str(place.file), "text": "a"})
            assert (text_of(result), result.is_error) == ("appended a", False)
            result = await client.call_tool("fail", {"path": str(place.file)})
            assert result.is_error
            assert text_of(result) == "Error executing tool fail"

    run(body)
    assert place.marks() == ["a", "failed"]
    (done,) = place.effects("mcp.free-a.append")
    assert (done["state"], done["outcome"]) == ("acknowledged", "ok")
    plan = place.get(f"/effects/{done['id']}")
    claims = {"destructiveHint": True, "idempotentHint": False}
    facts = {"server": "free-a", "tool": "append", "claims_of_server": claims}
    assert plan["meta"] == {"mcp": facts}
    (failed,) = place.effects("mcp.free-a.fail")
    assert (failed["state"], failed["outcome"]) == ("acknowledged", "error")
    session = place.get(f"/sessions/{done['session']}")
    assert session["status"] == "completed"


def test_what_the_policy_denies_is_not_sent(place: Place) -> None:
    async def body() -> None:
        program = ["--", sys.executable, str(TOOLS), "stdio"]
        async with place.client("never", behind=program) as client:
            result = await client.call_tool("append", {"path": str(place.file), "text": "a"})
            assert result.is_error
            assert "append" in {tool.name for tool in (await client.list_tools()).tools}
            assert "mcp.never.append was not executed: the policy refuses it" in text_of(result)

    run(body)
    assert place.marks() == []


def test_an_approved_call_runs_and_the_client_hears_that_it_waits(place: Place) -> None:
    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)
        if len(heard) == 1:
            await asyncio.to_thread(place.approve, "mcp.held.append")

    async def body() -> None:
        async with place.client("held") as client:
            result = await client.call_tool(
                "append", {"path": str(place.file), "text": "b"}, progress_callback=hear
            )
            assert text_of(result) == "appended b"

    run(body)
    assert place.marks() == ["b"]
    assert heard[0] is not None
    assert "mcp.held.append waits" in heard[0]


def test_a_denied_call_answers_with_the_words_of_the_reviewer(place: Place) -> None:
    thread = threading.Thread(
        target=place.approve, args=("mcp.held.append", "deny", "not on a Friday")
    )

    async def body() -> None:
        async with place.client("held") as client:
            thread.start()
            result = await client.call_tool("append", {"path": str(place.file), "text": "c"})
            assert result.is_error
            assert "not on a Friday" in text_of(result)

    run(body)
    thread.join()
    assert place.marks() == []


@pytest.mark.parametrize("process", ["same", "next"])
def test_silent_people_get_the_request_and_the_next_call_continues_it(
    place: Place, process: str
) -> None:
    call = ("append", {"path": str(place.file), "text": process})

    async def wait_in_vain(client: "Client") -> None:
        result = await client.call_tool(*call)
        assert result.is_error
        text = text_of(result)
        assert "was not executed" in text
        assert f"{place.server.url}/approvals/" in text
        assert "same arguments" in text

    async def succeed(client: "Client") -> None:
        await asyncio.to_thread(place.approve, "mcp.held.append")
        result = await client.call_tool(*call)
        assert text_of(result) == f"appended {process}"

    async def body() -> None:
        async with place.client("held", "--wait", "0.5") as client:
            await wait_in_vain(client)
            if process == "same":
                await succeed(client)
        if process == "next":
            async with place.client("held", "--wait", "5") as client:
                await succeed(client)

    run(body)
    assert place.marks() == [process]


def test_equal_calls_one_after_another_and_in_parallel_are_each_done(place: Place) -> None:
    call = ("append", {"path": str(place.file), "text": "d"})

    async def body() -> None:
        async with place.client("free-b") as client:
            for _ in range(2):
                assert text_of(await client.call_tool(*call)) == "appended d"
            results = await asyncio.gather(*(client.call_tool(*call) for _ in range(4)))
            assert [text_of(result) for result in results] == ["appended d"] * 4

    run(body)
    assert place.marks() == ["d"] * 6
    assert len(place.effects("mcp.free-b.append")) == 6


def test_calls_run_in_parallel_while_another_waits(place: Place) -> None:
    async def body() -> None:
        async with place.client("held", "--wait", "60") as client:
            waiting = asyncio.create_task(
                client.call_tool("append", {"path": str(place.file), "text": "later"})
            )
            await asyncio.to_thread(
                wait_until, lambda: bool(place.get("/gates?status=pending")["items"])
            )
            assert (await client.list_tools()).tools
            await asyncio.to_thread(place.approve, "mcp.held.append")
            assert text_of(await waiting) == "appended later"

    run(body)
    assert place.marks() == ["later"]


def test_a_key_in_meta_is_done_once(place: Place) -> None:
    call = ("append", {"path": str(place.file), "text": "e"})
    meta: Any = {"lab.example/idempotency-key": "order-17"}

    async def body() -> None:
        async with place.client("free-c", "--session", "orders") as client:
            for _ in range(2):
                result = await client.call_tool(*call, meta=meta)
                assert text_of(result) == "appended e"
        async with place.client("free-c", "--session", "orders") as client:
            result = await client.call_tool(*call, meta=meta)
            assert text_of(result) == "appended e"

    run(body)
    assert place.marks() == ["e"]


def test_a_server_that_dies_in_a_call_leaves_an_unknown_outcome(place: Place) -> None:
    async def body() -> None:
        async with place.client("free-d") as client:
            result = await client.call_tool("die", {"path": str(place.file)})
            assert result.is_error
            assert "may have been executed" in text_of(result)
            result = await client.call_tool("append", {"path": str(place.file), "text": "f"})
            assert result.is_error
            assert "has ended" in text_of(result)

    run(body)
    assert place.marks() == ["died"]
    (effect,) = place.effects("mcp.free-d.die")
    assert effect["outcome"] == "unknown" or effect["state"] in ("failed", "dispatched")


def test_a_call_beyond_the_lifetime_of_its_tool_is_given_up(place: Place) -> None:
    async def body() -> None:
        async with place.client("short") as client:
            result = await client.call_tool("late", {"path": str(place.file)})
            assert result.is_error
            assert "the outcome is unknown" in text_of(result)
            place.file.touch()
            await asyncio.to_thread(wait_until, lambda: place.marks() == ["answered"])
            assert (await client.list_tools()).tools  # the late answer confuses nobody

    run(body)


def test_without_gatebook_nothing_is_sent_and_the_rest_passes(place: Place) -> None:
    async def body() -> None:
        async with place.client("free-e", "--patience", "0.2") as client:
            assert (await client.list_tools()).tools
            result = await client.call_tool("append", {"path": str(place.file), "text": "g"})
            assert result.is_error
            assert "was not executed" in text_of(result)

    with own_port() as port:
        place.url = f"http://127.0.0.1:{port}"
        run(body)
    assert place.marks() == []


@contextmanager
def serve_http(place: Place) -> Iterator[str]:
    with own_port() as port:
        process = subprocess.Popen(
            [sys.executable, str(TOOLS), str(port)], stderr=subprocess.DEVNULL, cwd=place.folder
        )
        try:
            url = f"http://127.0.0.1:{port}/mcp"
            wait_until(lambda: _answers(url))
            yield url
        finally:
            process.kill()
            process.communicate()


def _answers(url: str) -> bool:
    try:
        httpx.get(url, timeout=5)
    except httpx.HTTPError:
        return False
    return True


def test_a_server_over_http(place: Place) -> None:
    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async def body(url: str) -> None:
        async with place.client("held", "--wait", "60", behind=["--url", url]) as client:
            assert (await client.list_tools()).tools
            thread = threading.Thread(target=place.approve, args=("mcp.held.slow",))
            thread.start()
            result = await client.call_tool(
                "slow", {"path": str(place.file), "seconds": 0.1}, progress_callback=hear
            )
            thread.join()
            assert text_of(result) == "slept"

    with serve_http(place) as url:
        run(lambda: body(url))
    assert place.marks() == ["slow"]
    assert "half" in heard
    (effect,) = place.effects("mcp.held.slow")
    assert effect["outcome"] == "ok"


# The lines themselves.


class Lines:
    """A proxy before `cat`-like servers, spoken to line by line."""

    def __init__(self, place: Place, *options: str, server: str) -> None:
        self.process = subprocess.Popen(
            place.command("raw", *options, behind=["--", sys.executable, "-c", server]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=place.environment,
            cwd=place.folder,
        )

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def read(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip(b"\n")


# Writes each line back as it was, and answers a call with its own bytes as text.
ECHO = """
import json, sys
for line in sys.stdin.buffer:
    message = json.loads(line)
    if isinstance(message, dict) and message.get("method") == "tools/call":
        text = {"content": [{"type": "text", "text": line.decode()}]}
        line = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": text}).encode() + b"\\n"
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
"""


OTHER_MESSAGES = [
    b'{"jsonrpc":"2.0", "id": 1,"method":"resources/list" }',
    b'{"method":"notifications/x","params":{"big":12345678901234567890.5e3,"s":"\\ud83d"}}',
    '{"jsonrpc":"2.0","id":"ä","method":"ping"}'.encode(),
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
    b'{"jsonrpc":"2.0","id":7,"result":{"b":1,"a":2}}',
]


def test_other_messages_pass_byte_for_byte_both_ways(place: Place) -> None:
    with Lines(place, server=ECHO) as lines:
        for line in OTHER_MESSAGES:
            lines.send(line)
            assert lines.read() == line


def test_a_call_itself_passes_byte_for_byte(place: Place) -> None:
    line = (
        b'{"jsonrpc":"2.0", "id":5, "method":"tools/call",'
        b'"params":{"name":"x","arguments":{"b":1.50, "a":"\\u00e4"}}}'
    )
    with Lines(place, server=ECHO) as lines:
        lines.send(line)
        answer = json.loads(lines.read())
        assert answer["result"]["content"][0]["text"].encode().rstrip(b"\n") == line


def test_the_key_of_the_attempt_is_sent_on_request(place: Place) -> None:
    line = (
        b'{"jsonrpc":"2.0","id":5,"method":"tools/call",'
        b'"params":{"name":"x","arguments":{},"_meta":{"progressToken":3}}}'
    )
    with Lines(place, "--key-meta", "example/idempotency-key", server=ECHO) as lines:
        lines.send(line)
        sent = json.loads(json.loads(lines.read())["result"]["content"][0]["text"])
    meta = sent["params"]["_meta"]
    assert meta["progressToken"] == 3
    assert meta["example/idempotency-key"]


NOT_UNDERSTOOD = [
    b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"x"}}',
    b'{"id":1,"method":"tools/call"',
    b'[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}]',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":1}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","task":{}}}',
    # Servers in Go read names without regard to case.
    b'{"jsonrpc":"2.0","id":1,"Method":"tools/call","params":{"name":"x"}}',
    '{"jsonrpc":"2.0","id":1,"method":"ping","Param\u017f":{}}'.encode(),
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","NAME":"y"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","Arguments":{}}}',
    b'[{"jsonrpc":"2.0","id":1,"METHOD":"tools/call","params":{"name":"x"}}]',
    # Servers in Python end a line at a carriage return.
    b'{"jsonrpc":"2.0","method":"notifications/x","params":\r'
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}\r}',
]


def test_a_call_that_is_not_understood_gets_an_error_and_is_not_sent(place: Place) -> None:
    with Lines(place, server=ECHO) as lines:
        for line in NOT_UNDERSTOOD:
            lines.send(line)
            assert "error" in json.loads(lines.read()), line
            lines.send(b'{"id":9,"method":"ping"}')
            assert lines.read() == b'{"id":9,"method":"ping"}', line


def test_a_call_without_an_id_is_not_sent(place: Place) -> None:
    with Lines(place, server=ECHO) as lines:
        lines.send(b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"x"}}')
        lines.send(b'{"id":9,"method":"ping"}')
        assert lines.read() == b'{"id":9,"method":"ping"}'


def test_a_cancelled_call_that_waits_is_never_sent(place: Place) -> None:
    call = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"append","arguments":{}}}'
    )
    command = place.command("held", "--wait", "60", behind=["--", sys.executable, "-c", ECHO])
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=place.environment,
        cwd=place.folder,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(call + b"\n")
    process.stdin.flush()
    wait_until(lambda: bool(place.get("/gates?status=pending")["items"]))
    cancel = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}\n'
    process.stdin.write(cancel)
    for number in (2, 3):  # the first is answered when the cancellation has been read
        ping = b'{"id":%d,"method":"ping"}\n' % number
        process.stdin.write(ping)
        process.stdin.flush()
        assert process.stdout.readline() == ping
        if number == 2:
            place.approve("mcp.held.append")
    rest, _ = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, rest) == (0, b"")


MARK_AND_HANG = """
import pathlib, sys, time
for line in sys.stdin.buffer:
    with open({path!r}, "a") as file:
        file.write("sent\\n")
    if {answers}:
        sys.stdout.write('{{"jsonrpc":"2.0","id":1,"result":{{"content":[{{"type":"text","text":"ok"}}]}}}}\\n')
        sys.stdout.flush()
"""


@pytest.mark.parametrize("when", keep_core(["before", "during", "after"], ["during"]))
def test_killed_by_sigkill_the_next_proxy_does_not_repeat_blindly(place: Place, when: str) -> None:
    """Before the dispatch it is done once by the next; during it, nobody can know; after, once."""
    name = "held" if when == "before" else f"kill-{when}"
    arguments = {"name": "append", "arguments": {"when": when}}
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": arguments})
    server = MARK_AND_HANG.format(path=str(place.file), answers=when != "during")

    def begin(*options: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            place.command(name, *options, behind=["--", sys.executable, "-c", server]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=place.environment,
            cwd=place.folder,
        )
        assert process.stdin is not None
        process.stdin.write(call.encode() + b"\n")
        process.stdin.flush()
        return process

    first = begin("--wait", "60")
    assert first.stdout is not None
    if when == "before":
        wait_until(lambda: bool(place.get("/gates?status=pending")["items"]))
    elif when == "during":
        wait_until(lambda: place.marks() == ["sent"])
    else:
        assert json.loads(first.stdout.readline())["result"]
    first.send_signal(signal.SIGKILL)
    first.communicate()
    second = begin("--wait", "60" if when == "before" else "10")
    assert second.stdout is not None
    if when == "before":
        place.approve("mcp.held.append")
    answer = json.loads(second.stdout.readline())["result"]
    if when == "during":
        assert answer["isError"]
        assert "not executed" in answer["content"][0]["text"]
    else:
        assert not answer.get("isError")
    assert place.marks() == ["sent"]
    second.communicate()


@pytest.mark.parametrize(
    ("meta", "key"),
    [
        ({}, ""),
        ({"progressToken": 1}, ""),
        ({"a.example/idempotency-key": "k"}, "mcp:k"),
        ({"idempotencyKey": "k"}, "mcp:k"),
        ({"x/idempotency_key": 7}, "mcp:7"),
        ({"x/idempotency-key": {"a": 1}}, ""),
    ],
)
def test_the_key_of_a_call(meta: dict[str, Any], key: str) -> None:
    assert find_effect_key(meta) == key


def test_the_name_of_a_server_is_from_its_command() -> None:
    assert derive_name(["npx", "-y", "@scope/server-github@1.2"], "") == "server-github"
    assert derive_name(["npx", "-y", "@scope/server-github"], "") == "server-github"
    assert derive_name(["/usr/bin/python3.11", "tools/files.py", "stdio"], "") == "files"
    assert derive_name(["/opt/github-mcp", "--stdio"], "") == "github-mcp"
    assert derive_name([], "https://mcp.example.org/mcp") == "mcp.example.org"
    assert clean_name("a b/c\n") == "a-b-c"
