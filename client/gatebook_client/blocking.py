"""One code for two clients: coroutines that a blocking client runs without an event loop.

Everything that talks to Gatebook is written once, as coroutines of the `Async…` classes. They
wait only by what `Io` offers. Under `BlockingIo` nothing of that ever suspends, so a coroutine
runs from its first line to its last in one step, in the thread that called it; `to_blocking` makes
a method of the blocking class from a method of the asynchronous one, with the same signature.
"""

import asyncio
import inspect
import os
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

import httpx

from gatebook_client.errors import Rejected

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
C = TypeVar("C")
C_co = TypeVar("C_co", covariant=True)


class Io(Protocol):
    """How a client waits: for a response, for time to pass, for a lock, for an act."""

    is_async: bool

    async def request(self, method: str, url: str, **request: Any) -> httpx.Response:
        """Send one request. Raises httpx.TransportError."""

    async def sleep(self, seconds: float) -> None:
        """Wait for some time."""

    def lock(self) -> AbstractAsyncContextManager[None]:
        """Return a new lock that its owner may take again."""

    async def settle(self, returned: object) -> object:
        """Return the result of a function that may have returned an awaitable."""

    async def close(self) -> None:
        """Close the connections."""


def _client_options(token: str, base_url: str) -> dict[str, Any]:
    return {
        "base_url": base_url,
        "headers": {"Authorization": f"Bearer {token}"},
        # Loading the CA certificates is slow, and without TLS they are not needed.
        "verify": True
        if base_url.startswith("https:")
        else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        "trust_env": False,
    }


class BlockingIo:
    """Waits by blocking the thread. A forked child opens connections of its own."""

    is_async = False

    def __init__(
        self,
        token: str,
        base_url: str,
        transport: httpx.BaseTransport | None,
        sleep: Callable[[float], None],
    ) -> None:
        self._options = _client_options(token, base_url) | {"transport": transport}
        self._sleep = sleep
        self._http: httpx.Client | None = None
        self._pid = 0

    async def request(self, method: str, url: str, **request: Any) -> httpx.Response:
        """Send one request. Raises httpx.TransportError."""
        return self.client().request(method, url, **request)

    def client(self) -> httpx.Client:
        """Return the connections of this process."""
        if self._http is None or self._pid != os.getpid():
            self._pid, self._http = os.getpid(), httpx.Client(**self._options)
        return self._http

    async def sleep(self, seconds: float) -> None:
        """Block for some time."""
        self._sleep(seconds)

    def lock(self) -> AbstractAsyncContextManager[None]:
        """Return a lock of threads."""
        return _ThreadLock()

    async def settle(self, returned: object) -> object:
        """Refuse a coroutine, which has not begun: nobody would run it. Raises Rejected."""
        if inspect.iscoroutine(returned):
            returned.close()
            raise Rejected("the act is a coroutine function; open the session by async_session")
        return returned

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None and self._pid == os.getpid():
            self._http.close()


class AsyncIo:
    """Waits in the running event loop of asyncio; each loop has connections of its own.

    `companion` sends the heartbeats of the same client, and is closed together with it.
    """

    is_async = True

    def __init__(
        self,
        token: str,
        base_url: str,
        transport: httpx.AsyncBaseTransport | None,
        sleep: Callable[[float], Awaitable[None]],
        companion: BlockingIo | None = None,
    ) -> None:
        self._companion = companion
        self._options = _client_options(token, base_url) | {"transport": transport}
        self._sleep = sleep
        self._http: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def request(self, method: str, url: str, **request: Any) -> httpx.Response:
        """Send one request. Raises httpx.TransportError."""
        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:
            self._loop, self._http = loop, httpx.AsyncClient(**self._options)
        return await self._http.request(method, url, **request)

    async def sleep(self, seconds: float) -> None:
        """Let other tasks run for some time."""
        await self._sleep(seconds)

    def lock(self) -> AbstractAsyncContextManager[None]:
        """Return a lock of tasks."""
        return _TaskLock()

    async def settle(self, returned: object) -> object:
        """Await an awaitable."""
        return await returned if inspect.isawaitable(returned) else returned

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None and self._loop is asyncio.get_running_loop():
            await self._http.aclose()
        if self._companion is not None:
            await self._companion.close()


class _ThreadLock(AbstractAsyncContextManager[None]):
    def __init__(self) -> None:
        self._lock = threading.RLock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._lock.release()


class _TaskLock(AbstractAsyncContextManager[None]):
    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._owner: object = None
        self._depth = 0

    async def __aenter__(self) -> None:
        if self._owner is not asyncio.current_task():
            await self._lock.acquire()
            self._owner = asyncio.current_task()
        self._depth += 1

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._lock.release()


class Blocking(Generic[C_co]):
    """A blocking object; `core` is the asynchronous one that does the work, under BlockingIo."""

    def __init__(self, core: C_co) -> None:
        self.core = core


def run_blocking(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine of an object under BlockingIo, which never suspends, to its end."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: R = stop.value
        return result
    coroutine.close()
    raise RuntimeError("A coroutine of a blocking client tried to suspend.")


def to_blocking(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Blocking[C], P], R]:
    """Return the blocking form of a coroutine method, with the same signature."""

    @wraps(method)
    def call(self: Blocking[C], /, *positional: P.args, **named: P.kwargs) -> R:
        return run_blocking(method(self.core, *positional, **named))

    return call


def to_blocking_as(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]], wrap: Callable[[R], S]
) -> Callable[Concatenate[Blocking[C], P], S]:
    """Return the blocking form of a coroutine method whose result `wrap` makes blocking too."""

    @wraps(method)
    def call(self: Blocking[C], /, *positional: P.args, **named: P.kwargs) -> S:
        return wrap(run_blocking(method(self.core, *positional, **named)))

    return call
