"""Webhooks reach only listed hosts at public addresses (S13): a table of spellings, without one
connection."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from pytest_django import Settings

from notifications import outbound_http

pytestmark = pytest.mark.once

# What the fake resolver answers for listed hosts.
NAMES = {
    "hooks.example.org": ["93.184.216.34"],
    "inner.example.org": ["10.0.0.7"],
    "mixed.example.org": ["93.184.216.34", "192.168.1.1"],
    "meta.example.org": ["169.254.169.254"],
    "loop.example.org": ["127.0.0.1"],
    "six.example.org": ["::1"],
    "mapped.example.org": ["::ffff:10.0.0.1"],
    "mapped-meta.example.org": ["::ffff:169.254.169.254"],
    "local.example.org": ["fe80::1%eth0"],
    "unique.example.org": ["fd00::1"],
    "nat64.example.org": ["64:ff9b::a00:1"],
    "sixtofour.example.org": ["2002:a00:1::"],
    "teredo.example.org": ["2001:0:a00:1::1"],
    "compatible.example.org": ["::10.0.0.1"],
    "site-local.example.org": ["fec0::1"],
    "documentation6.example.org": ["3fff::1"],
    "relay.example.org": ["192.88.99.1"],
    "translated.example.org": ["::ffff:0:10.0.0.1"],
    "isatap.example.org": ["2606:4700::5efe:10.0.0.1"],
    "isatap-of-one.example.org": ["2606:4700::200:5efe:10.0.0.1"],
    "discard.example.org": ["100::1"],
    "segments.example.org": ["5f00::1"],
    "as112.example.org": ["192.175.48.1"],
    "unassigned.example.org": ["4000::1"],
    "nothing.example.org": ["0.0.0.0"],  # noqa: S104 - refused, not bound to
    "nothing6.example.org": ["::"],
    "shared.example.org": ["100.64.0.1"],
    "broadcast.example.org": ["255.255.255.255"],
    "multicast.example.org": ["224.0.0.1"],
    "multicast6.example.org": ["ff02::1"],
    "documentation.example.org": ["192.0.2.1"],
    "reserved.example.org": ["240.0.0.1"],
    "garbage.example.org": ["not an address"],
    "127.0.0.1": ["127.0.0.1"],
    "[::1]": ["::1"],
}
LISTED = frozenset({*NAMES, "hooks.example.org:8443"})

REFUSED = [
    *(f"https://{name}/" for name in NAMES if name != "hooks.example.org"),
    "http://hooks.example.org/",
    "ftp://hooks.example.org/",
    "file:///etc/passwd",
    "gopher://hooks.example.org/",
    "//hooks.example.org/",
    "hooks.example.org",
    "",
    "https://",
    "https:///x",
    "https://other.example.org/",
    "https://hooks.example.org.evil.example/",
    "https://hooks.example.org@10.0.0.7/",
    "https://10.0.0.7#@hooks.example.org/",
    "https://hooks.example.org:22/",
    "https://hooks.example.org:99999/",
    "https://hooks.example.org:x/",
    "https://hooks.example.org\\@10.0.0.7/",
    "https://hooks.example.org /",
    "https://hooks.example.org\t/",
    "https://hooks.example.org\n/",
    "https://hooks.example.org\r\nHost: x/",
    "https://hooks.example.org\0/",
    "https://hooks.example.org。/",
    "https://ｈooks.example.org/",
    "https://hooks%2eexample%2eorg/",
    "https://hooks.example.org./",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0177.0.0.1/",
    "https://127.1/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::1%25lo]/",
    "https://[::1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://localhost/",
    "https://hooks.example.org/" + "x" * 300,
]


@pytest.fixture(autouse=True)
def _listed(settings: Settings) -> None:
    settings.GATEBOOK_WEBHOOK_HOSTS = LISTED
    settings.GATEBOOK_WEBHOOK_LOOPBACK = False


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every attempted address; none is reached."""
    tried: list[Any] = []

    def connect(address: Any, *_rest: Any) -> socket.socket:
        tried.append(address)
        raise OSError("nothing is reached from a test")

    monkeypatch.setattr(socket, "create_connection", connect)
    return tried


def resolve(host: str, _port: int) -> list[str]:
    return NAMES.get(host, NAMES.get(f"[{host}]", ["93.184.216.34"]))


def test_the_table_is_long_enough() -> None:
    assert len(set(REFUSED)) >= 55


@pytest.mark.parametrize("url", REFUSED)
def test_no_connection_is_made_for(url: str, connections: list[Any]) -> None:
    with pytest.raises(outbound_http.AddressRefused):
        outbound_http.post_webhook(url, b"{}", {}, resolve)
    assert connections == []


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.org/a?b=c",
        "https://HOOKS.example.org",
        "https://hooks.example.org:8443/",
    ],
)
def test_a_listed_host_at_a_public_address_is_connected_to_by_that_address(
    url: str, connections: list[Any]
) -> None:
    with pytest.raises(outbound_http.DeliveryFailed):
        outbound_http.post_webhook(url, b"{}", {}, resolve)
    assert connections == [("93.184.216.34", 8443 if "8443" in url else 443)]


def test_a_name_that_resolves_differently_is_resolved_once(connections: list[Any]) -> None:
    answers = iter([["93.184.216.34"], ["127.0.0.1"], ["127.0.0.1"]])
    with pytest.raises(outbound_http.DeliveryFailed):
        outbound_http.post_webhook(
            "https://hooks.example.org/", b"{}", {}, lambda *_: next(answers)
        )
    assert connections == [("93.184.216.34", 443)]


def test_nothing_is_allowed_until_the_operator_lists_it(
    settings: Settings, connections: list[Any]
) -> None:
    settings.GATEBOOK_WEBHOOK_HOSTS = frozenset()
    with pytest.raises(outbound_http.AddressRefused, match="GATEBOOK_WEBHOOK_HOSTS"):
        outbound_http.post_webhook("https://hooks.example.org/", b"{}", {}, resolve)
    assert connections == []


DRIPS = "/1"


class _Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.got.append((self.path, self.headers["Host"], self.rfile.read(length)))  # type: ignore[attr-defined]
        if self.path == DRIPS:
            with suppress(OSError):
                while True:  # until the sender has hung up
                    self.wfile.write(b"H")
                    time.sleep(0.02)
            return
        self.send_response(int(self.path.strip("/")))
        self.send_header("Location", "/200")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_words: Any) -> None:
        """Log nothing."""


@pytest.fixture
def receiver(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], str]]:
    """A server on this machine that answers with the status in its path, allowed like an operator's
    trial."""
    monkeypatch.setattr(outbound_http, "TIMEOUT_S", 60)  # its thread may be late
    with HTTPServer(("127.0.0.1", 0), _Receiver) as server:
        server.got = []  # type: ignore[attr-defined]
        settings.GATEBOOK_WEBHOOK_HOSTS = frozenset({f"localhost:{server.server_port}"})
        settings.GATEBOOK_WEBHOOK_LOOPBACK = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()

        def url(status: int) -> str:
            return f"http://localhost:{server.server_port}/{status}"

        url.got = server.got  # type: ignore[attr-defined]
        yield url
        server.shutdown()
        thread.join()


def test_it_arrives_where_the_operator_allowed_it(receiver: Any) -> None:
    outbound_http.post_webhook(
        receiver(204), b'{"id":"x"}', {"Gatebook-Notification": "x"}, lambda *_: ["127.0.0.1"]
    )
    ((path, host, body),) = receiver.got
    assert (path, body) == ("/204", b'{"id":"x"}')
    assert host.startswith("localhost:")


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 500])
def test_a_redirect_is_not_followed_and_is_no_success(receiver: Any, status: int) -> None:
    with pytest.raises(outbound_http.DeliveryFailed, match=str(status)):
        outbound_http.post_webhook(receiver(status), b"{}", {}, lambda *_: ["127.0.0.1"])
    assert [path for path, _, _ in receiver.got] == [f"/{status}"]


def test_a_server_that_answers_a_byte_at_a_time_times_out(
    receiver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PatientConnection(outbound_http._Connection):
        """Waits for any byte longer than for all of them."""

        def connect(self) -> None:
            super().connect()
            self.sock.settimeout(60)

    monkeypatch.setattr(outbound_http, "_Connection", PatientConnection)
    monkeypatch.setattr(outbound_http, "TIMEOUT_S", 2)
    with pytest.raises(outbound_http.DeliveryFailed, match="took longer than 2 s"):
        outbound_http.post_webhook(receiver(int(DRIPS.strip("/"))), b"{}", {})
    until = time.monotonic() + 60
    while not receiver.got and time.monotonic() < until:
        time.sleep(0.02)
    assert len(receiver.got) == 1


def test_this_machine_is_not_reached_without_its_setting(receiver: Any, settings: Settings) -> None:
    settings.GATEBOOK_WEBHOOK_LOOPBACK = False
    with pytest.raises(outbound_http.AddressRefused):
        outbound_http.post_webhook(receiver(204), b"{}", {}, lambda *_: ["127.0.0.1"])
    assert receiver.got == []


@pytest.mark.parametrize("network", outbound_http.SPECIAL_NETWORKS, ids=str)
def test_every_special_network_is_refused_from_its_first_address_to_its_last(network: Any) -> None:
    for address in (network[0], network[1], network[-1]):
        assert not outbound_http._public(str(address))
        if network.version == 4:
            assert not outbound_http._public(f"::ffff:{address}"), "mapped"


@pytest.mark.parametrize(
    "address",
    [
        *(
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
        ),
        *(
            "192.0.1.0",
            "192.88.98.255",
            "192.88.100.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
        ),
        *(
            "2000::",
            "2001:200::1",
            "2003::1",
            "2606:4700::1111",
            "3ffe:ffff::1",
            "3fff:1000::1",
            "::ffff:1.1.1.1",
        ),
    ],
)
def test_their_neighbours_are_public(address: str) -> None:
    assert outbound_http._public(address)
