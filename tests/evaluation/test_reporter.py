"""How an agent sends: the same request until there is an answer, against a server that fails; and nothing but HTTP."""

import ast
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from evaluation.reporter import AwayError, RefusedError, Reporter
from tests.house.server import ROOT

ROOMS = {"config", "ingest", "inquiry", "approvals", "ledger", "sessions", "journal", "django"}


@dataclass
class Stand:
    """A server that gives the prepared answers one after the other and keeps the keys it was sent."""

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
                self.close_connection = True  # it may have been done: the answer is lost
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


@pytest.mark.once
@pytest.mark.parametrize("stand", [[503, 0, 429, 201]], indirect=True)
def test_the_same_key_is_sent_until_there_is_an_answer(stand: Stand) -> None:
    reporter = Reporter(stand.url, "token", sleep=lambda _seconds: None)
    assert reporter.command("/sessions", {"key": "s"}) == {"id": "1"}
    assert len(stand.keys) == 4
    assert len(set(stand.keys)) == 1


@pytest.mark.once
@pytest.mark.parametrize("stand", [[503] * 100], indirect=True)
def test_patience_ends(stand: Stand) -> None:
    reporter = Reporter(stand.url, "token", patience_s=0.3)
    with pytest.raises(AwayError, match="HTTP 503"):
        reporter.command("/sessions", {"key": "s"})


@pytest.mark.once
@pytest.mark.parametrize("stand", [[422]], indirect=True)
def test_a_refusal_is_not_repeated(stand: Stand) -> None:
    reporter = Reporter(stand.url, "token")
    with pytest.raises(RefusedError):
        reporter.command("/sessions", {"key": "s"})
    assert len(stand.keys) == 1


@pytest.mark.once
def test_it_knows_gatebook_over_http_only() -> None:
    for path in (ROOT / "evaluation").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & ROOMS, path
