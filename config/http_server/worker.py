"""One serving process: its loop, threads and connections."""

import asyncio
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import structlog
import uvloop
from django.conf import settings

from config import shutdown
from config.http_server.connection import CROWDED, RETRY, TOO_MANY, Connection
from config.http_server.limits import AddressPlaces, Limits
from config.http_server.request import Request
from config.http_server.response import Application, FileWrapper, Response, make_refusal
from config.http_server.spool import ClientClosed, OutgoingContent, Spool, SpoolFull
from config.http_server.threads import ThreadPool

log = structlog.get_logger("gatebook.web")

READ_BYTES: Final = 65_536
ACCEPTED_AT_ONCE: Final = 16
CONNECTION_CHECK_EVERY_S: Final = 0.25
ACCEPT_AGAIN_S: Final = 0.5
LOG_EVERY_S: Final = 60


class Worker:
    """Serves `application` on a listening socket until SIGTERM or SIGINT."""

    def __init__(
        self, application: Application, listening: socket.socket, threads: int, limits: Limits
    ) -> None:
        self.application, self.limits = application, limits
        self.threads = ThreadPool(threads)
        self.addresses = AddressPlaces(limits.connections_per_address, limits.proxies)
        self.spool = Spool(settings.VAR_DIR / "spool", limits.spool_bytes)
        # One buffer for all connections, because input is parsed at once.
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.now = time.monotonic()
        self._listening = listening
        self._name = listening.getsockname()[0], str(listening.getsockname()[1])
        self._connections: set[Connection] = set()
        # Connections that may be closed when there are too many, oldest first.
        self._waiting: dict[Connection, None] = {}
        self._opening: set[asyncio.Task[Any]] = set()
        self._stopping = False
        self.refusals: Counter[str] = Counter()  # by code, since the last log line
        self.loop: asyncio.AbstractEventLoop
        self._over: asyncio.Event

    def run(self) -> None:
        """Serve until the process is asked to end and all received requests are answered."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self.loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self._stop)
        self._listening.setblocking(False)
        self.loop.add_reader(self._listening, self._accept)
        looking = self.loop.create_task(self._watch_timeouts())
        await self._over.wait()
        looking.cancel()

    def call(self, work: Callable[..., object], *arguments: Any) -> None:
        """Call `work` in the loop. For threads, and to let other connections go first."""
        with suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(work, *arguments)

    # --- connections ------------------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # out of file descriptors or memory
                log.error("connection_not_accepted", error=str(error)[:300])
                if not self._make_room():
                    self.loop.remove_reader(self._listening)
                    self.loop.call_later(ACCEPT_AGAIN_S, self._accept_again)
                return
            peer = address[0].removeprefix("::ffff:") if isinstance(address, tuple) else ""
            self._open(accepted, peer)

    def _accept_again(self) -> None:
        if not self._stopping:
            self.loop.add_reader(self._listening, self._accept)

    def _open(self, accepted: socket.socket, peer: str) -> None:
        accepted.setblocking(False)
        place: str | None = "" if self.addresses.is_proxy(peer) else self.addresses.take(peer)
        refusal = TOO_MANY if place is None else None
        if (
            refusal is None
            and len(self._connections) >= self.limits.connections
            and not self._make_room()
        ):
            refusal = CROWDED
            self.addresses.give_back(place or "")
        if refusal is not None or place is None:
            status, code, detail = refusal or TOO_MANY
            self.refusals[code] += 1
            with suppress(OSError):
                accepted.send(make_refusal("", status, code, detail, RETRY))
            accepted.close()
            return
        connection = Connection(self, accepted, peer, place)
        self._connections.add(connection)
        task = self.loop.create_task(self._connect(connection, accepted))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _connect(self, connection: Connection, accepted: socket.socket) -> None:
        try:
            await self.loop.connect_accepted_socket(lambda: connection, accepted)
        except OSError:
            accepted.close()
            self.forget(connection)

    def note_waiting(self, connection: Connection, waits: bool) -> None:
        """Note whether a connection waits for an unknown client, oldest first."""
        self._waiting.pop(connection, None)
        if waits:
            self._waiting[connection] = None

    def _make_room(self) -> bool:
        """Close the connection that has waited longest for its client. False when none waits."""
        if not self._waiting:
            for connection in list(self._connections):
                connection.finish_answered()  # answered connections wait too
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            return False
        del self._waiting[oldest]
        self.forget(oldest)
        oldest.transport.abort()
        return True

    def forget(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        self._waiting.pop(connection, None)
        if connection in self._connections:
            self._connections.discard(connection)
            self.addresses.give_back(connection.place)
        if self._stopping and not self._connections:
            self._over.set()

    async def _watch_timeouts(self) -> None:
        logged_at = self.now
        while True:
            await asyncio.sleep(CONNECTION_CHECK_EVERY_S)
            before, self.now = self.now, time.monotonic()
            # Nothing was received while the loop was late.
            late = max(0.0, self.now - before - CONNECTION_CHECK_EVERY_S)
            if self.refusals and self.now - logged_at >= LOG_EVERY_S:
                # A line for each would let any client fill the log.
                log.warning("clients_refused", connections=len(self._connections), **self.refusals)
                self.refusals.clear()
                logged_at = self.now
            for connection in list(self._connections):
                connection.deadline += late
                try:
                    connection.check_timeouts(self.now)
                except Exception as error:  # the deadlines of all others depend on this task
                    log.error("connection_failed", exc_info=error)
                    connection.transport.abort()

    def _stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        self.loop.remove_reader(self._listening)
        self._listening.close()
        shutdown.run_shutdown_callbacks()
        for connection in list(self._connections):
            connection.stop()
        if not self._connections:
            self._over.set()

    # --- in threads -------------------------------------------------------------------------------

    def answer(self, connection: Connection, request: Request) -> None:
        """Run the application for `request` and hand its response to the loop. Runs in a thread."""
        response = Response(request)
        result: Any = None
        try:
            environ = request.make_environ(self._name)
            environ["wsgi.file_wrapper"] = FileWrapper
            try:
                result = self.application(environ, response.start)
                self._hand_over(connection, request, response, result)
            finally:
                if hasattr(result, "close"):
                    result.close()
        except BaseException as error:
            log.error("application_failed", path=request.path, exc_info=error)
            self.call(connection.fail, request)
        finally:
            request.body.close()

    def _hand_over(
        self, connection: Connection, request: Request, response: Response, result: Any
    ) -> None:
        if not response.has_content:
            content = _join(result)
            head = response.make_head(None if content is None else len(content))
            connection.send_at_once(request, head, response.keep_alive)
            return
        if isinstance(result, FileWrapper) and response.length is not None:
            head = response.make_head(response.length)
            if (file := result.open_again(response.length)) is not None:
                self.call(connection.respond, request, head, file, response.keep_alive)
                return
        if (content := _join(result)) is not None:
            response.drop_length()
            head = response.make_head(len(content))
            connection.send_at_once(request, head + content, response.keep_alive)
            return
        self._stream(connection, request, response, result)

    def _stream(
        self, connection: Connection, request: Request, response: Response, result: Any
    ) -> None:
        """Pass the parts of a response to the loop as fast as they are made."""
        content = OutgoingContent(self.spool, self.limits.memory_bytes)
        head, missing = response.make_head(None), response.length
        self.call(connection.respond, request, head, content, response.keep_alive)
        try:
            for part in result:
                if part:
                    missing = None if missing is None else missing - len(part)
                    if missing is not None and missing < 0:
                        raise ValueError("the response is longer than it announced")
                    content.add(response.frame(part))
                    self.call(connection.send_more)
            if missing:
                raise ValueError(f"the response has {missing} bytes less than it announced")
            if response.chunked:
                content.add(b"0\r\n\r\n")
        except ClientClosed:
            return
        except (SpoolFull, OSError) as error:
            log.warning("response_not_stored", error=f"{type(error).__name__}: {error}"[:300])
            self.call(connection.fail, request)
            return
        content.complete = True
        self.call(connection.send_more)


def _join(result: Any) -> bytes | None:
    """Return the content where it is complete; None where it is still being made."""
    return None if getattr(result, "streaming", not isinstance(result, list)) else b"".join(result)
