"""Parts of the web server: places of addresses, spooled bytes, threads and headers."""

import threading
from pathlib import Path

import pytest

from config.http_server.limits import AddressPlaces
from config.http_server.request import BodyIncompleteError, Request
from config.http_server.spool import ClientClosed, OutgoingContent, Spool, SpooledBytes, SpoolFull
from config.http_server.threads import ThreadPool

pytestmark = pytest.mark.once


def test_an_address_has_its_places_and_an_ipv6_network_counts_as_one() -> None:
    addresses = AddressPlaces(2, frozenset({"10.0.0.1"}))
    assert addresses.is_proxy("10.0.0.1")
    assert [addresses.take("192.0.2.1") for _ in range(3)] == ["192.0.2.1", "192.0.2.1", None]
    addresses.give_back("192.0.2.1")
    assert addresses.take("::ffff:192.0.2.1") == "192.0.2.1"
    first = addresses.take("2001:db8::1")
    assert (addresses.take("2001:db8::2"), addresses.take("2001:db8::3")) == (first, None)
    assert addresses.take("2001:db8:0:1::1") is not None
    assert addresses.take("no address") == ""


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ("", ""),
        ("203.0.113.7", "203.0.113.7"),
        ("198.51.100.1, 203.0.113.7", "203.0.113.7"),
        ("198.51.100.1, 203.0.113.7, 10.0.0.1", "203.0.113.7"),
        ("203.0.113.7:4711", "203.0.113.7"),
        ("2001:db8::1", "2001:db8::1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("10.0.0.1", ""),
    ],
)
def test_the_client_is_the_last_forwarded_address_that_is_no_proxy(
    forwarded: str, client: str
) -> None:
    assert AddressPlaces(1, frozenset({"10.0.0.1"})).find_client(forwarded) == client


def test_bytes_beyond_memory_lie_in_a_file_and_these_have_a_limit(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", 1000)
    body = SpooledBytes(spool, 100)
    parts = [bytes([number]) * 70 for number in range(14)]
    for part in parts:
        body.add(part)
    assert body.stream().read() == b"".join(parts)
    assert body.stream().read(75) == parts[0] + parts[1][:5]
    other = SpooledBytes(spool, 0)
    with pytest.raises(SpoolFull):
        other.add(bytes(100))
    body.close()
    other.add(bytes(1000))
    assert other.stream().read() == bytes(1000)
    other.close()
    assert list((tmp_path / "spool").iterdir()) == []


def test_a_response_is_read_in_the_order_of_its_parts(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1000)
    content = OutgoingContent(spool, 10)
    for part in (b"in memory", b"in a file, ", b"and more"):
        content.add(part)
    assert content.take(11) == b"in memory"
    content.add(b".")
    assert content.take(11) + content.take(100) == b"in a file, and more."
    assert content.take(100) == b""
    content.add(b"in memory again"[:9])
    assert content.take(100) == b"in memory"
    with pytest.raises(SpoolFull):
        content.add(bytes(2000))
    content.close()
    with pytest.raises(ClientClosed):
        content.add(b"to nobody")
    spool.take(1000)  # all bytes were released


@pytest.mark.parametrize("most", [1, 2])
def test_threads_are_reused_and_work_waits_for_them(most: int) -> None:
    threads, used, done, go_on = ThreadPool(most), set[str](), list[int](), threading.Event()
    finished = threading.Semaphore(0)

    def work(number: int) -> None:
        go_on.wait(60)
        used.add(threading.current_thread().name)
        done.append(number)
        finished.release()
        if number == 2:
            raise ValueError("a fault of the work, and not of the thread")

    for number in range(6):
        threads.submit(work, number)
    go_on.set()
    for _ in range(6):
        assert finished.acquire(timeout=60)
    assert sorted(done) == list(range(6))
    assert len(used) <= most
    if most == 1:
        assert done == list(range(6))


def test_work_is_done_without_more_threads_from_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, go_on, finished = ThreadPool(2), threading.Event(), threading.Semaphore(0)

    def refuse(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def wait() -> None:
        go_on.wait(60)

    threads.submit(wait)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        threads.submit(finished.release)
    go_on.set()
    assert finished.acquire(timeout=60)
    for _ in range(3):  # and a thread still works later
        threads.submit(finished.release)
        assert finished.acquire(timeout=60)


def request(tmp_path: Path, *headers: tuple[bytes, bytes], url: bytes = b"/path") -> Request:
    made = Request(SpooledBytes(Spool(tmp_path, 1000), 100), "192.0.2.1")
    made.method, made.url, made.headers, made.complete = "POST", url, list(headers), True
    made.read_url()
    return made


def test_headers_with_underscores_are_dropped_and_equal_ones_are_joined(
    tmp_path: Path,
) -> None:
    environ = request(
        tmp_path,
        (b"X-Forwarded-Proto", b"http"),
        (b"X_Forwarded_Proto", b"https"),
        (b"X-Forwarded_For", b"203.0.113.7"),
        (b"CONTENT_LENGTH", b"7"),
        (b"Cookie", b"a=1"),
        (b"cookie", b"b=2"),
        (b"Idempotency-Key", b"one"),
        (b"Idempotency-Key", b"two"),
        (b"Transfer-Encoding", b"chunked"),
    ).make_environ(("127.0.0.1", "8000"))
    assert {name: value for name, value in environ.items() if name.startswith("HTTP_")} == {
        "HTTP_X_FORWARDED_PROTO": "http",
        "HTTP_COOKIE": "a=1; b=2",
        "HTTP_IDEMPOTENCY_KEY": "one, two",  # no valid key
    }
    assert "CONTENT_LENGTH" not in environ


@pytest.mark.parametrize(
    ("url", "path", "query"),
    [
        (b"/a%20b?c=%20d", "/a b", "c=%20d"),
        (b"/a?b?c#d", "/a", "b?c"),
        (b"http://elsewhere/a?b", "/a", "b"),
        (b"http://elsewhere", "/", ""),
        (b"http://elsewhere?b", "/", "b"),
        (b"//elsewhere/a", "//elsewhere/a", ""),
        (b"/%e2%82%ac%ff", "/\xe2\x82\xac\xff", ""),
        (b"*", "*", ""),
    ],
)
def test_a_target_is_read(tmp_path: Path, url: bytes, path: str, query: str) -> None:
    made = request(tmp_path, url=url)
    assert (made.path, made.query) == (path, query)


def test_an_incomplete_body_cannot_be_read(tmp_path: Path) -> None:
    for change in ({"complete": False}, {"cut": "body_too_large"}):
        made = request(tmp_path)
        made.body.add(b"{}")
        for name, value in change.items():
            setattr(made, name, value)
        with pytest.raises(BodyIncompleteError):
            made.make_environ(("127.0.0.1", "8000"))["wsgi.input"].read()
