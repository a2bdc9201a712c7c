"""One connection: receives requests, passes them to threads, sends responses.

All of it runs in the loop's thread. A request stays in `_requests` from its head to the end of its
response. The first one is received, answered and sent; pipelined requests wait behind it.
"""

import asyncio
import math
import socket
import struct
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

import httptools
import structlog

from config.http_server import body_limits
from config.http_server.request import Request
from config.http_server.response import Content, make_refusal
from config.http_server.spool import OutgoingContent, SpooledBytes, SpoolFull
from config.http_server.unsent_bytes import find_unacknowledged

if TYPE_CHECKING:
    from config.http_server.worker import Worker

log = structlog.get_logger("gatebook.web")

# What a connection waits for. In the first four it receives, and the client has to act.
OPENING: Final = "opening"
IDLE: Final = "idle"  # for the first byte of the next request
HEAD: Final = "head"  # for the rest of a head
BODY: Final = "body"  # for the rest of a body
LINGER: Final = "linger"  # for the client to read the last response and disconnect
CHECK: Final = "check"  # for a thread that checks whether the sender is known
WORK: Final = "work"  # for the application
SEND: Final = "send"  # for the client to read
WAITING: Final = frozenset({IDLE, HEAD, BODY, SEND, LINGER})
PIECE_BYTES: Final = 65_536
SMALL_READ_BYTES: Final = 16_384

SLOW: Final = (
    408,
    "request_too_slow",
    "The request arrived too slowly. Nothing was recorded. Send it again over a faster connection.",
)
BROKEN: Final = (
    400,
    "body_incomplete",
    "The body did not arrive whole. Nothing was recorded. Send the request again.",
)
MALFORMED: Final = (
    400,
    "bad_request",
    "This is not a valid HTTP/1.1 request. Check method, path and headers.",
)
UPGRADE: Final = (
    400,
    "upgrade_refused",
    "A request with a body asks for another protocol. Send it without the header Upgrade.",
)
LONG_HEAD: Final = (
    431,
    "head_too_large",
    "Request line and headers are too long. Shorten the address or the headers.",
)
TOO_LARGE: Final = (413, "body_too_large", "The form is too large. Send less text.")
UNKNOWN: Final = (
    403,
    "sign_in_first",
    "This form is too large for a client that is not signed in. Sign in first.",
)
NO_ROOM: Final = (
    503,
    "unavailable",
    "The server stores too many large requests at the moment. Send it again later.",
)
CROWDED: Final = (
    503,
    "unavailable",
    "Too many connections are open at the moment. Send the request again later.",
)
FAILED: Final = (500, "server_error", "Gatebook failed to answer. The operator's log says why.")
TOO_MANY: Final = (
    429,
    "too_many_connections",
    "Too many requests of one address are open at once. Wait for responses, or use fewer "
    "connections.",
)
RETRY: Final = [("Retry-After", "5")]
# By code, the refusals of requests whose body is not received.
REFUSALS_BY_CODE: Final = {
    **{
        refusal[1]: (refusal, None)
        for refusal in (MALFORMED, BROKEN, UPGRADE, LONG_HEAD, TOO_LARGE, UNKNOWN)
    },
    NO_ROOM[1]: (NO_ROOM, RETRY),
}


class Connection(asyncio.BufferedProtocol):
    """The server's side of a connection."""

    def __init__(self, worker: "Worker", accepted: socket.socket, peer: str, place: str) -> None:
        self.worker, self.limits, self.peer = worker, worker.limits, peer
        self._socket = accepted
        self._lock = threading.Lock()
        self._answered = False  # a thread has sent the whole response to the first request
        self.place = place  # counted for its address until the connection ends
        self.state = OPENING
        self.deadline = math.inf
        self.lost = False
        self._parser = httptools.HttpRequestParser(self)
        self._requests: deque[Request] = deque()
        self._incoming: Request | None = None
        self._in_head = False
        self._head_read = 0  # bytes since the last body bytes
        self._body_read = 0  # bytes of the arriving body
        self._fault: tuple[int, str, str] | None = None  # why nothing more is received
        self._paused = self._full = self._ended = False
        self._content: Content | None = None
        self._mark = 0  # bytes that had moved when `deadline` was set
        self._sent = self._thrown = 0
        self._stopping = False
        self.transport: asyncio.Transport

    # --- what the loop calls ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        # `resume_writing` then means that everything was sent.
        self.transport.set_write_buffer_limits(high=0)
        self._wait(HEAD)
        if self._stopping:
            transport.close()

    def get_buffer(self, _hint: int) -> memoryview:
        is_known = self.state == BODY and self._requests[0].known
        return (
            self.worker.buffer
            if is_known or self.state == LINGER
            else self.worker.buffer[:SMALL_READ_BYTES]
        )

    def buffer_updated(self, size: int) -> None:
        if self.state == LINGER:
            self._thrown += size
            if self._thrown > self.limits.linger_bytes:
                self.transport.abort()
            return
        if self._fault is not None:
            return
        self.finish_answered()
        self._parse(size)
        # The parser buffers partial headers, also of a trailer after the last chunk.
        body_read = 0 if self._incoming is None else self._incoming.body.size
        if self._in_head or (self._incoming is not None and body_read == self._body_read):
            self._head_read += size
            if self._head_read > self.limits.head_bytes:
                self._stop_receiving(LONG_HEAD)
        else:
            self._head_read = 0
        self._body_read = body_read
        self.finish_answered()
        self._advance()
        if self.state == IDLE and self._in_head:
            self._wait(HEAD)

    def eof_received(self) -> bool:
        with self._lock:
            self._ended = True
        if self.state == LINGER:
            return False
        if self._fault is None and (self._in_head or self._incoming is not None):
            self._fault = MALFORMED if self._in_head else BROKEN
        self.finish_answered()
        self._advance()
        return not self.transport.is_closing()

    def connection_lost(self, _error: Exception | None) -> None:
        with self._lock:
            # No thread may send once the socket is closed and its number reused.
            self.lost = True
        self._drop_content()
        for request in self._requests:
            self._give_up(request)
        self._requests.clear()
        self.worker.forget(self)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        if self.state == SEND:
            self._send()

    # --- what the parser calls --------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._incoming = Request(
            SpooledBytes(self.worker.spool, self.limits.memory_bytes), self.peer
        )
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        if self._incoming is not None:
            self._incoming.url += url
            self._incoming.size += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        request = self._incoming
        if request is None or not self._in_head:
            return  # ignore trailers: the checks cover only the head
        request.size += len(name) + len(value) + 4
        if request.size <= self.limits.head_bytes:
            request.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if (request := self._incoming) is None:
            return
        self._in_head, self._head_read = False, 0
        request.method = self._parser.get_method().decode("ascii")
        request.version = self._parser.get_http_version()
        request.keep_alive = self._parser.should_keep_alive()
        request.read_url()
        request.most = body_limits.find_most_bytes(request.path)
        hosts, doubtful = 0, request.version not in ("1.0", "1.1")
        for name, value in request.headers:
            lower = name.lower()
            if lower == b"content-length":
                # The parser accepts only digits and trailing blanks.
                request.length = int(value)
            elif lower == b"expect":
                request.expects = (
                    value.strip().lower() == b"100-continue" and request.version != "1.0"
                )
            elif lower == b"transfer-encoding":
                request.chunked = True
                # Another coding would be taken for content, and HTTP/1.0 has none: a proxy may see
                # another end.
                doubtful |= value.strip().lower() != b"chunked" or request.version == "1.0"
            elif lower == b"host":
                hosts += 1
        if doubtful or hosts > 1 or (hosts == 0 and request.version != "1.0"):
            request.cut = MALFORMED[1]
        elif self._parser.should_upgrade() and (request.chunked or request.length):
            # The parser takes the following bytes for the other protocol, not for a body.
            request.cut = UPGRADE[1]
        elif request.size > self.limits.head_bytes:
            request.cut = LONG_HEAD[1]
        elif request.length is not None and request.length > request.most:
            request.cut = TOO_LARGE[1]
        self._requests.append(request)
        if len(self._requests) > 1:
            self._pause()
            if len(self._requests) > self.limits.pipelined:
                self._fault = TOO_MANY
                raise ValueError("too many requests before the first response")  # ends the parsing

    def on_body(self, data: bytes) -> None:
        request = self._incoming
        if request is None or request.cut:
            return
        if request.body.size + len(data) > request.most:
            request.length = request.body.size + len(data)
            request.cut = TOO_LARGE[1]
            return
        try:
            request.body.add(data)
        except (SpoolFull, OSError) as error:
            log.warning("body_not_stored", error=f"{type(error).__name__}: {error}"[:300])
            request.cut = NO_ROOM[1]

    def on_message_complete(self) -> None:
        request, self._incoming = self._incoming, None
        if request is None:
            return
        if not request.chunked and request.body.size != (request.length or 0) and not request.cut:
            request.cut = BROKEN[1]
        request.complete = not request.cut

    # --- receiving --------------------------------------------------------------------------------

    def _parse(self, size: int) -> None:
        try:
            self._parser.feed_data(self.worker.buffer[:size])
        except httptools.HttpParserUpgrade:
            # The request asks for another protocol. Answer it normally, and read nothing after it.
            self._last_request()
        except httptools.HttpParserError:
            # After a request that ends the connection, nothing more is expected.
            if self._incoming is None and self._requests and not self._requests[-1].keep_alive:
                self._pause()
            else:
                self._stop_receiving(
                    BROKEN if self._incoming is not None and not self._in_head else MALFORMED
                )

    def _last_request(self) -> None:
        self._requests[-1].keep_alive = False
        self._pause()

    def _stop_receiving(self, fault: tuple[int, str, str]) -> None:
        self._fault = self._fault or fault
        self._pause()

    def _pause(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self.transport.pause_reading()
            self._paused = True

    def _resume(self) -> None:
        if self._paused and not self._ended and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    def _wait(self, state: str) -> None:
        """Enter `state` and set its deadline, or the time by which bytes must have moved."""
        self.state = state
        limits = self.limits
        if state in (HEAD, BODY):
            self.deadline = self.worker.now + limits.timeout_s
        elif state == IDLE:
            self.deadline = self.worker.now + limits.idle_s
        else:
            self.deadline = self.worker.now + limits.linger_s if state == LINGER else math.inf
        is_known = state == BODY and self._requests[0].known
        self.worker.note_waiting(self, state in WAITING and not is_known)

    def _advance(self) -> None:
        """Do what is possible for the first request without a response."""
        if self.state not in (IDLE, HEAD, BODY) or self.transport.is_closing():
            return
        request = self._requests[0] if self._requests else None
        if request is None or not (request.complete or request.cut):
            if self._fault is not None:
                self.refuse(self._fault)
                return
            if request is None:
                if self._ended:
                    self.transport.close()
                else:
                    self._resume()
                return
        if request.place is None and not self._take_place(request):
            self.refuse(TOO_MANY, RETRY)
        elif request.complete:
            self._start(request)
        elif request.cut:
            self._refuse_cut(request)
        elif (
            not request.known
            and max(request.length or 0, request.body.size) > self.limits.stranger_bytes
        ):
            self._check(request)
        else:
            if self.state != BODY:
                self._mark = 0
                self._wait(BODY)
                if request.expects and not request.body.size:
                    self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._resume()

    def _take_place(self, request: Request) -> bool:
        """Count a request that came through a proxy under the address of its client."""
        addresses, request.place = self.worker.addresses, ""
        if not addresses.is_proxy(self.peer):
            return True
        client = addresses.find_client(request.find(b"x-forwarded-for"))
        if client:
            place = addresses.take(client)
            request.place = place or ""
            return place is not None
        return True

    def _check(self, request: Request) -> None:
        self._pause()
        self._wait(CHECK)
        credentials = request.find(b"authorization"), request.find(b"cookie")

        def check() -> None:
            # Also False where the lookup fails, for example for an invalid cookie.
            is_known = False
            try:
                is_known = body_limits.is_known(request.path, *credentials)
            finally:
                self.worker.call(self._checked, request, is_known)

        self.worker.threads.submit(check)

    def _checked(self, request: Request, is_known: bool) -> None:
        if self.lost or self.transport.is_closing():
            return
        request.known = is_known
        if not is_known:
            request.cut = UNKNOWN[1]
        self.state = HEAD
        self._advance()

    def _refuse_cut(self, request: Request) -> None:
        """Answer a request whose body is not received.

        Agents get the answer of the view, which finds the body unreadable.
        """
        self._pause()
        request.keep_alive = False
        if request.path.startswith(body_limits.AGENTS_PREFIXES) and request.cut in (
            TOO_LARGE[1],
            UNKNOWN[1],
        ):
            self._start(request)
        else:
            self.refuse(*REFUSALS_BY_CODE[request.cut])

    def _start(self, request: Request) -> None:
        request.started = True
        if self._stopping:
            request.keep_alive = False
        self._wait(WORK)
        self.worker.threads.submit(self.worker.answer, self, request)

    def refuse(
        self, refusal: tuple[int, str, str], headers: list[tuple[str, str]] | None = None
    ) -> None:
        """Send a response of the server's own and end the connection."""
        self.worker.refusals[refusal[1]] += 1
        self.transport.write(self._make_refusal(refusal, headers))
        self._linger()

    def _make_refusal(
        self, refusal: tuple[int, str, str], headers: list[tuple[str, str]] | None = None
    ) -> bytes:
        request = self._requests[0] if self._requests else None
        data = make_refusal(request.path if request else "", *refusal, headers)
        return data[: data.index(b"\r\n\r\n") + 4] if request and request.method == "HEAD" else data

    # --- sending ----------------------------------------------------------------------------------

    def send_at_once(self, request: Request, data: bytes, keep_alive: bool) -> None:
        """Send a whole response from the thread that made it.

        The loop is not woken if the client takes all of it. It learns of the response with the next
        bytes that arrive, or at its next check of all connections.
        """
        sent = 0
        with self._lock:
            if (
                keep_alive
                and request.keep_alive
                and not (self._stopping or self.lost or self._full)
            ):
                try:
                    sent = self._socket.send(data)
                except OSError:
                    sent = 0  # the loop will get the same error
                if sent == len(data):
                    self._answered = True
                    self._give_place_back(request)
                    if len(self._requests) == 1 and not self._ended and not self._paused:
                        return
        if sent == len(data):
            self.worker.call(self.finish_answered)
        else:
            self.worker.call(self.respond, request, data[sent:], None, keep_alive)

    def finish_answered(self) -> None:
        """Continue when a thread has sent the whole response."""
        with self._lock:
            answered = self._answered and not self.lost
        if answered:
            self._finish()

    def respond(
        self, request: Request, data: bytes, content: Content | None, keep_alive: bool
    ) -> None:
        """Send `data`, a head and perhaps its content, and then what `content` returns."""
        if self.lost:
            if content is not None:
                content.close()
            return
        request.keep_alive = request.keep_alive and keep_alive and not self._stopping
        self._content = content
        self._sent = self._mark = 0
        self._wait(SEND)
        self.deadline = self.worker.now + self.limits.timeout_s
        self._write(data)
        self._send()

    def send_more(self) -> None:
        """Send what was added to the content."""
        if self.state == SEND and not self._full:
            self._send()

    def fail(self, request: Request) -> None:
        """Report that the application failed; break off a response that has begun.

        A response that is complete is still sent.
        """
        if self.lost or self._answered or not self._requests or self._requests[0] is not request:
            return
        if self.state == WORK:
            self.respond(request, self._make_refusal(FAILED), None, False)
        elif isinstance(self._content, OutgoingContent) and not self._content.complete:
            self._reset()

    def _reset(self) -> None:
        """Reset the connection: for HTTP/1.0 an orderly end would end the response.

        The system also frees what it holds for this client, instead of offering it for minutes.
        """
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _write(self, data: bytes) -> None:
        self._sent += len(data)
        self.transport.write(data)

    def _send(self) -> None:
        if self._full or self.state != SEND or self.transport.is_closing():
            return
        if self._content is not None:
            # Asked before: what is added between the two questions is not the end.
            complete = not isinstance(self._content, OutgoingContent) or self._content.complete
            try:
                data = self._content.take(PIECE_BYTES)
            except OSError as error:
                log.warning("response_broken", error=f"{type(error).__name__}: {error}"[:300])
                self._reset()
                return
            if data:
                self._write(data)
                if not self._full:
                    self.worker.call(self.send_more)  # other connections go first
                return
            if not complete:
                return
            self._drop_content()
        self._finish()

    def _finish(self) -> None:
        """Continue with the next request after a sent response, or end."""
        self._answered = False
        request = self._requests.popleft()
        self._give_up(request)
        if not request.keep_alive:
            if request.complete and not self._paused:
                self._wait(LINGER)
                self.transport.close()
            else:
                self._linger()
            return
        self._wait(HEAD if self._incoming is not None or self._requests else IDLE)
        if self._stopping and not self._requests:
            self.transport.close()
            return
        self._advance()

    def _linger(self) -> None:
        """Send no more, discard input a while: closing at once could lose the response."""
        self._wait(LINGER)
        if self._ended:
            self.transport.close()
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._resume()

    def _drop_content(self) -> None:
        if self._content is not None:
            self._content.close()
            self._content = None

    def _give_up(self, request: Request) -> None:
        self._give_place_back(request)
        if not request.started:
            request.body.close()

    def _give_place_back(self, request: Request) -> None:
        place, request.place = request.place, ""
        self.worker.addresses.give_back(place or "")

    # --- time -------------------------------------------------------------------------------------

    def check_timeouts(self, now: float) -> None:
        """Act on a passed deadline, unless enough bytes moved in a state that moves bytes."""
        self.finish_answered()
        if now < self.deadline or self.lost:
            return
        if self.state == BODY:
            moved = self._requests[0].body.size
            if moved - self._mark >= self.limits.window_bytes:
                self._mark, self.deadline = moved, now + self.limits.timeout_s
                return
            self.refuse(SLOW)
        elif self.state == SEND:
            kept = self.transport.get_write_buffer_size()
            moved = self._sent - kept - find_unacknowledged(self.transport)
            waits_for_us = not kept and not self._full
            if waits_for_us or moved - self._mark >= self.limits.window_bytes:
                self._mark, self.deadline = moved, now + self.limits.timeout_s
                return
            self.worker.refusals["response_unread"] += 1
            self._reset()
        elif self.state == HEAD and self._in_head:
            self.refuse(SLOW)
        elif self.state == LINGER:
            self.transport.abort()
        else:
            self._wait(LINGER)
            self.transport.close()

    def stop(self) -> None:
        """End the connection, or let the request under way end it."""
        with self._lock:
            self._stopping = True
        self.finish_answered()
        if self.state in (IDLE, HEAD, LINGER) or (
            self.state == BODY and not self._requests[0].known
        ):
            self.transport.close()
