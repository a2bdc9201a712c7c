"""An incomplete body is refused at every endpoint and changes nothing."""

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from tests.api.api_client import Caller, new_key
from tests.config.raw_sockets import PATIENCE_S, Answer, Wire, chunks
from tests.config.server import Server

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
# How a chunked body breaks: the bytes after its first chunks, and whether the client hangs up.
BREAKS = {
    "hangs up between chunks": b"",
    "hangs up in a chunk": b"5\r\nab",
    "hangs up before the last line": b"0\r\n",
    "no size": b"zz\r\n",
    "a negative size": b"-1\r\n\r\n",
    "a size beyond all": b"fffffffffffffffff\r\n",
    "a chunk without its end": b"1\r\nabc\r\n0\r\n\r\n",
}


def paths(patterns: list[Any], prefix: str = "/") -> Iterator[str]:
    """Yield every path of a URLconf, with an id of no object in each placeholder."""
    for pattern in patterns:
        route = prefix + re.sub(r"<\w+:\w+>|<\w+>", str(uuid4()), str(pattern.pattern))
        if isinstance(pattern, URLResolver):
            yield from paths(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            yield route


AGENTS = sorted(paths(get_resolver("config.api_urls").url_patterns))
PEOPLE = sorted(paths(get_resolver("config.urls").url_patterns))


@pytest.fixture(scope="module")
def agent(live_server_process: Server) -> Caller:
    agent = Caller(live_server_process.token("broken"), address=live_server_process.url)
    agent.session("broken-1")
    return agent


@pytest.fixture(scope="module")
def cookies(live_server_process: Server) -> str:
    """Return the cookies of a signed-in administrator, with that of the form token."""
    with httpx.Client(base_url=live_server_process.url, timeout=PATIENCE_S) as person:
        form = {
            "username": live_server_process.administrator,
            "password": live_server_process.password,
        }
        page = person.get("/sign-in/").text
        assert (
            person.post(
                "/sign-in/", data=form | {"csrfmiddlewaretoken": token_in(page)}
            ).status_code
            == 302
        )
        return "; ".join(f"{name}={value}" for name, value in person.cookies.items())


def token_in(page: str) -> str:
    match = re.search(r'csrfmiddlewaretoken" value="([^"]+)"', page)
    assert match is not None
    return match[1]


def send(
    server: Server, line: str, kind: str, headers: list[str], framing: str, body: bytes
) -> Answer:
    """Send a request whose client hangs up after `body`."""
    with Wire(server.url) as wire:
        about = [f"Content-Type: {kind}", f"Idempotency-Key: {new_key()}", *headers, framing]
        return wire.send(line, *about, body=body).hang_up().read()


def entries(server: Server) -> str:
    return server.run("from journal.models import Entry; print(Entry.objects.count())")


def test_every_endpoint_of_agents_refuses_a_body_that_breaks(
    live_server_process: Server, agent: Caller
) -> None:
    before, headers = entries(live_server_process), [f"Authorization: Bearer {agent.token}"]
    assert len(AGENTS) > 40
    for number, path in enumerate(AGENTS):
        end = list(BREAKS.values())[number % len(BREAKS)]
        for method in ("POST", "PUT"):
            whole = b'{"lease_epoch": 3}'
            line = f"{method} {path}"
            for framing, body in (
                ("Transfer-Encoding: chunked", chunks(whole) + end),
                ("Transfer-Encoding: chunked", end),
                (f"Content-Length: {len(whole) + 1}", whole),
                ("Content-Length: 1", b""),
            ):
                answer = send(live_server_process, line, JSON, headers, framing, body)
                assert (answer.status, b'"code":"body_incomplete"' in answer.content) == (
                    400,
                    True,
                ), (line, body)
    assert entries(live_server_process) == before


def test_every_page_refuses_a_form_that_breaks(live_server_process: Server, cookies: str) -> None:
    before, headers = entries(live_server_process), [f"Cookie: {cookies}"]
    assert len(PEOPLE) > 40
    for number, path in enumerate(PEOPLE):
        end = list(BREAKS.values())[number % len(BREAKS)]
        for framing, body in (
            ("Transfer-Encoding: chunked", chunks(b"do=on&reason=why") + end),
            ("Content-Length: 99", b"do=on&reason=why"),
        ):
            answer = send(live_server_process, f"POST {path}", FORM, headers, framing, body)
            assert (answer.status, b"did not arrive whole" in answer.content) == (400, True), (
                path,
                body,
            )
    assert entries(live_server_process) == before


@pytest.mark.parametrize("end", BREAKS)
def test_a_task_is_not_done_by_half_a_body(
    live_server_process: Server, agent: Caller, end: str
) -> None:
    session = agent.session("broken-1")["id"]
    task = agent.post(f"/sessions/{session}/tasks", {"key": new_key()}).json()
    line, headers = (
        f"POST /api/v1/tasks/{task['id']}/done",
        [f"Authorization: Bearer {agent.token}"],
    )
    before = entries(live_server_process)
    for parts in (b"", chunks(b'{"lease_epoch"'), chunks(b'{"lease_epoch": 3}')):
        answer = send(
            live_server_process,
            line,
            JSON,
            headers,
            "Transfer-Encoding: chunked",
            parts + BREAKS[end],
        )
        assert answer.status == 400
    assert entries(live_server_process) == before
    for whole in (b"", b"{}"):
        body = chunks(whole) + b"0\r\n\r\n"
        assert (
            send(
                live_server_process, line, JSON, headers, "Transfer-Encoding: chunked", body
            ).status
            == 200
        )


def test_a_form_is_processed_completely_or_not_at_all(
    live_server_process: Server, cookies: str
) -> None:
    headers = [f"Cookie: {cookies}"]
    with httpx.Client(
        base_url=live_server_process.url, timeout=PATIENCE_S, headers={"Cookie": cookies}
    ) as person:
        token = token_in(person.get("/settings/appearance/").text)
    form = f"csrfmiddlewaretoken={token}&theme=dark&clock=utc".encode()
    # Other tests share this server and its people.
    name = live_server_process.administrator
    read_theme = f"from accounts.models import Person; print(Person.objects.get(user__username={name!r}).theme)"
    line, chunked = "POST /settings/appearance/", "Transfer-Encoding: chunked"
    back = form.replace(b"dark", b"system")
    assert (
        send(live_server_process, line, FORM, headers, f"Content-Length: {len(back)}", back).status
        == 302
    )
    before = live_server_process.run(read_theme)
    assert "system" in before
    for end in BREAKS.values():
        assert (
            send(live_server_process, line, FORM, headers, chunked, chunks(form) + end).status
            == 400
        )
    assert live_server_process.run(read_theme) == before
    assert (
        send(live_server_process, line, FORM, headers, chunked, chunks(form) + b"0\r\n\r\n").status
        == 302
    )
    assert "dark" in live_server_process.run(read_theme)
    assert (
        send(live_server_process, line, FORM, headers, f"Content-Length: {len(back)}", back).status
        == 302
    )


@pytest.mark.parametrize("framing", ["Content-Length: 2", "Transfer-Encoding: chunked"])
def test_a_body_behind_a_request_for_another_protocol_is_not_taken_for_none(
    live_server_process: Server, agent: Caller, framing: str
) -> None:
    session = agent.session("broken-1")["id"]
    task = agent.post(f"/sessions/{session}/tasks", {"key": new_key()}).json()
    headers = [f"Authorization: Bearer {agent.token}", "Connection: Upgrade", "Upgrade: h2c"]
    line, before = f"POST /api/v1/tasks/{task['id']}/done", entries(live_server_process)
    body = b"{}" if "Length" in framing else chunks(b"{}") + b"0\r\n\r\n"
    answer = send(live_server_process, line, JSON, headers, framing, body)
    assert (answer.status, b'"code":"upgrade_refused"' in answer.content) == (400, True)
    assert entries(live_server_process) == before
    with Wire(
        live_server_process.url
    ) as wire:  # without a body the answer is that of a plain request
        assert wire.send("GET /healthz", "Connection: Upgrade", "Upgrade: h2c").read().status == 200
