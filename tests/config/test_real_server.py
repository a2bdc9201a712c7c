"""The served installation: config.http_server, config.wsgi, whitenoise and a browser."""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPConnection

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.config.server import Server

PATIENCE_S = 60


def test_it_is_ready_and_serves_its_pages_and_files(live_server_process: Server) -> None:
    with httpx.Client(base_url=live_server_process.url, timeout=PATIENCE_S) as client:
        assert client.get("/healthz").text == "ok\n"
        # No worker runs the jobs of this server: in a long run they are late, and pages still work.
        assert client.get("/readyz").text.splitlines()[0].split(",")[0] == "ready"
        page = client.get("/sign-in/")
        assert page.status_code == 200
        (style,) = set(re.findall(r'href="(/static/gatebook\.[^"]+\.css)"', page.text))
        file = client.get(style)
        assert file.status_code == 200
        assert "immutable" in file.headers["cache-control"]
        assert client.get("/", follow_redirects=False).headers["location"].startswith("/sign-in/")


def test_a_token_issued_while_the_server_runs_is_accepted(
    live_server_process: Server,
) -> None:
    url = f"{live_server_process.url}/api/v1/sessions"
    assert httpx.get(url, timeout=PATIENCE_S).status_code == 401
    headers = {"Authorization": f"Bearer {live_server_process.token('wiring')}"}
    answer = httpx.get(url, headers=headers, timeout=PATIENCE_S)
    assert answer.status_code == 200, answer.text
    assert "set-cookie" not in answer.headers


def test_a_burst_of_more_requests_than_threads_is_served_completely(
    live_server_process: Server,
) -> None:
    url = live_server_process.url
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as client, ThreadPoolExecutor(40) as pool:
        statuses = list(pool.map(lambda _: client.get("/readyz").status_code, range(200)))
    assert statuses == [200] * 200


@pytest.mark.once
def test_idle_connections_do_not_block_new_clients(live_server_process: Server) -> None:
    with ExitStack() as stack:
        for _ in range(150):
            client = HTTPConnection(live_server_process.url.removeprefix("http://"), timeout=25)
            stack.callback(client.close)
            # Too many idle connections would admit the next one only when the first times out,
            # after 30 s.
            client.request("GET", "/healthz")
            assert client.getresponse().read() == b"ok\n"


@pytest.mark.browser
def test_the_administrator_of_setup_signs_in(
    live_server_process: Server, browser_page: Page
) -> None:
    complaints: list[str] = []
    browser_page.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    browser_page.goto(live_server_process.url)
    expect(browser_page).to_have_url(re.compile("/sign-in/"))
    browser_page.locator("input[name=username]").fill(live_server_process.administrator)
    browser_page.locator("input[name=password]").fill(live_server_process.password)
    browser_page.locator("form:has(input[name=password]) button").click()
    expect(browser_page).not_to_have_url(re.compile("/sign-in/"))
    cookies = {cookie["name"]: cookie for cookie in browser_page.context.cookies()}
    assert cookies["gatebook"]["httpOnly"]
    assert cookies["gatebook"]["sameSite"] == "Lax"
    assert complaints == []
