"""How the client sends: the same request until a failing server answers."""

import ast
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from gatebook_client.errors import Refused, ServerUnavailable
from gatebook_client.http import HttpClient

from tests.config.server import ROOT

pytestmark = pytest.mark.once


@dataclass
class Stand:
    """A server that sends prepared answers in turn and records the received keys."""

    url: str
    keys: list[str]


@pytest.fixture
def stand(request: pytest.FixtureRequest) -> Iterator[Stand]:
    answers: list[int] = list(request.param)
    keys: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            keys.append(self.headers["Idempotency-Key"])
            status = answers.pop(0)
            if not status:
                self.close_connection = True  # the command may have run: the answer is lost
                return
            body = b'{"id": "1"}'
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Stand(f"http://127.0.0.1:{server.server_port}", keys)
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("stand", [[503, 0, 500, 201]], indirect=True)
def test_the_same_key_is_sent_until_there_is_an_answer(stand: Stand) -> None:
    wire = HttpClient(stand.url, "token", sleep=lambda _seconds: None)
    assert wire.post("/sessions", {"key": "s"}).body == {"id": "1"}
    assert len(stand.keys) == 4
    assert len(set(stand.keys)) == 1


@pytest.mark.parametrize("stand", [[503] * 100], indirect=True)
def test_patience_ends(stand: Stand) -> None:
    with pytest.raises(ServerUnavailable, match="HTTP 503"):
        HttpClient(stand.url, "token", patience_s=0.3).post("/sessions", {"key": "s"})


@pytest.mark.parametrize("stand", [[422], [429]], indirect=True)
def test_a_refusal_is_not_repeated(stand: Stand) -> None:
    with pytest.raises(Refused):
        HttpClient(stand.url, "token").post("/sessions", {"key": "s"})
    assert len(stand.keys) == 1


@pytest.mark.parametrize(("url", "token"), [("", "t"), ("http://x", "")])
def test_without_an_address_or_a_token_there_is_a_sentence(url: str, token: str) -> None:
    with pytest.raises(ValueError, match="Gatebook needs"):
        HttpClient(url, token)


@pytest.mark.parametrize("url", ["gatebook.example", "ftp://gatebook.example", "127.0.0.1:8000"])
def test_an_invalid_url_is_not_retried(url: str) -> None:
    with pytest.raises(ValueError, match="must begin with http"):
        HttpClient(url, "token")


def test_the_client_uses_only_httpx_and_the_standard_library() -> None:
    integrations = ROOT / "client" / "gatebook_client" / "integrations"
    of_extras = {"resume_rules.py": {"yaml"}}  # imported where it is used
    for path in (ROOT / "client").rglob("*.py"):
        if path.parent == integrations and path.name != "tool_calls.py":
            continue  # it imports the framework of its extra
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            foreign = {name.partition(".")[0] for name in names} - sys.stdlib_module_names
            assert foreign <= {"httpx", "gatebook_client"} | of_extras.get(path.name, set()), path


@pytest.mark.parametrize("stand", [[201, 201]], indirect=True)
def test_a_forked_child_opens_its_own_connections(stand: Stand) -> None:
    wire = HttpClient(stand.url, "token")
    wire.post("/sessions", {"key": "s"})
    parent_http = wire.io._http
    child = os.fork()
    if child == 0:
        same = wire.io.client() is parent_http
        os._exit(1 if same else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    wire.post("/sessions", {"key": "s"})
    assert wire.io._http is parent_http
