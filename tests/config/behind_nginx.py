"""`make proxy`: Gatebook behind a real nginx with docs/examples/nginx.conf, with TLS. Not part of
`make test`."""

import hashlib
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from evaluation.bench.installation import own_port
from tests.api.api_client import NO_TLS, Caller, new_key
from tests.approvals.retrying_clients import Browser
from tests.config.server import ROOT, Server, serve
from tests.config.test_supervisor import wait_until

NAME = "gatebook.example.org"
MAIN = """
daemon off;
{user}
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/gatebook.conf;
}}
"""


@dataclass
class Place:
    """A server, and nginx in front of it at two ports."""

    server: Server
    plain: str
    tls: str

    def agent(self) -> Caller:
        return Caller(self.server.token(), address=self.tls)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("nginx")
    names = {"GATEBOOK_HTTPS": "1", "GATEBOOK_HOSTS": NAME}
    with own_port() as port, own_port() as tls, serve(folder / "var", **names) as server:
        make_certificate(folder)
        text = (ROOT / "docs" / "examples" / "nginx.conf").read_text()
        for pattern, put in (
            (r"listen \[::\].*\n", ""),
            (r"listen 80;", f"listen 127.0.0.1:{port};"),
            (r"listen 443 ssl;", f"listen 127.0.0.1:{tls} ssl;"),
            (r"127\.0\.0\.1:8000", server.url.removeprefix("http://")),
            (r"/etc/ssl/gatebook", str(folder)),
            (rf"server_name {NAME};", f"server_name {NAME} 127.0.0.1;"),
        ):
            text, count = re.subn(pattern, put, text)
            assert count, pattern
        (folder / "gatebook.conf").write_text(text)
        main = folder / "nginx.conf"
        main.write_text(MAIN.format(folder=folder, user="user root;"))
        with subprocess.Popen(["nginx", "-c", str(main), "-p", str(folder)]) as nginx:
            try:
                wait_until(
                    lambda: (folder / "pid").exists() and (folder / "pid").read_text().strip() != ""
                )
                yield Place(server, f"http://127.0.0.1:{port}", f"https://127.0.0.1:{tls}")
            finally:
                nginx.terminate()
        assert "[emerg]" not in (folder / "error.log").read_text()


def make_certificate(folder: Path) -> None:
    """Make a self-signed certificate that the clients of the tests trust."""
    named = ("-subj", f"/CN={NAME}", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2")
    files = ("-keyout", str(folder / "privkey.pem"), "-out", str(folder / "fullchain.pem"))
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    subprocess.run(
        ["openssl", "req", "-x509", *key, *named, *files], check=True, capture_output=True
    )
    NO_TLS.load_verify_locations(folder / "fullchain.pem")


def test_commands_pass_and_none_is_redirected(place: Place) -> None:
    agent = place.agent()
    agent.session("s-1")
    content = b"a line of a log\n" * 400_000  # 6.4 MB
    digest = hashlib.sha256(content).hexdigest()
    body = {
        "session": "s-1",
        "type": "log",
        "name": "log.txt",
        "sha256": digest,
        "size": len(content),
    } | {"media_type": "text/plain"}
    made = agent.post("/artifacts", body)
    assert made.status_code == 201, made.text
    path = f"/artifacts/{made.json()['id']}/bytes"
    stored = agent.client.put(
        path, content=content, headers={"Content-Type": "application/octet-stream"}
    )
    assert stored.is_success, stored.text
    assert agent.get(path).content == content


def test_a_batch_of_two_megabytes_passes_and_one_past_the_limit_is_413(place: Place) -> None:
    agent = place.agent()
    agent.session("s-2")
    events = [
        {
            "specversion": "1.0",
            "id": new_key(),
            "type": "effect.planned",
            "source": "tester",
            "data": {
                "session": "s-2",
                "effect_key": f"e-{number}",
                "tool": "t",
                "arguments": {"text": "x" * 20_000},
            },
        }
        for number in range(100)
    ]
    sent = agent.post("/events", events)
    assert sent.status_code in (200, 207), sent.text
    assert len(sent.json()["results"]) == len(events)
    assert agent.raw("/events", b"[" + b" " * (6 * 2**20) + b"]").status_code == 413


def test_plain_http_redirects_to_https_whatever_headers_a_client_sends(place: Place) -> None:
    headers = {"X-Forwarded-Proto": "https", "X_Forwarded_Proto": "https"}
    answer = httpx.get(f"{place.plain}/sign-in/", headers=headers)
    assert answer.status_code == 308
    assert answer.headers["Location"].startswith("https://")
    answer = httpx.get(
        f"{place.tls}/sign-in/", headers={"X-Forwarded-Proto": "http"}, verify=NO_TLS
    )
    assert answer.status_code == 200
    assert "Strict-Transport-Security" in answer.headers


def test_people_sign_in_through_it(place: Place) -> None:
    person = Browser(place.tls, place.server.administrator, place.server.password)
    assert person.client.get("/settings/people/").status_code == 200
    assert any(cookie.name.startswith("__Host-") for cookie in person.client.cookies.jar)
