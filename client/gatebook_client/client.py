"""Clients and their sessions: the address, the token and the thread that renews leases."""

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

import httpx

from gatebook_client.async_sessions import AsyncSession, OnWait
from gatebook_client.blocking import AsyncIo, Blocking, run_blocking, to_blocking
from gatebook_client.http import AsyncHttpClient, HttpClient, check_address
from gatebook_client.lease import HeartbeatSender, Lease
from gatebook_client.sessions import Session
from gatebook_client.types import ENDED, Json
from gatebook_client.waiting import log_wait

P = ParamSpec("P")
Opener = TypeVar("Opener", bound="SessionOpener")


def _read_environment(url: str, token: str) -> tuple[str, str]:
    return url or os.environ.get("GATEBOOK_URL", ""), token or os.environ.get("GATEBOOK_TOKEN", "")


class SessionOpener:
    """Opens sessions, for both clients. Heartbeats are sent by a thread, over `beats`."""

    def __init__(self, http: AsyncHttpClient, beats: HttpClient, on_wait: OnWait) -> None:
        self.http = http
        self.heartbeats = HeartbeatSender(beats)
        self._beats = beats
        self._on_wait = on_wait
        self._pid = os.getpid()

    async def open_session(
        self,
        /,
        key: str = "",
        *,
        mode: str = "leased",
        end_on_exit: bool = True,
        ttl_s: int = 60,
        takeover: bool = False,
        wait_for_lease_s: float = 0.0,
        match_unanswered_calls: bool = True,
        _owns_http: bool = False,
        **description: Any,
    ) -> AsyncSession:
        """Open the session with that key, or reopen it.

        `description` holds title, repository, branch, labels, meta and the like.

        In mode `leased` only this process works in the session: LeaseHeld is raised while another
        does, after waiting `wait_for_lease_s`. Mode `one_shot` has no lease. A session that has
        ended has none either: `perform` returns the results recorded in it, and begins nothing.
        Pass a key that the next process uses again; without a key nothing can be resumed after a
        crash. `match_unanswered_calls` is for calls with a `call_id`: the first call with the same
        intent as an effect that an earlier process left open, or performed last before it died,
        gets that effect.
        """
        self._renew_after_fork()
        body: Json = {"key": key or f"run-{secrets.token_hex(8)}", "mode": mode}
        body |= {name: value for name, value in description.items() if value}
        answer = await self.http.post("/sessions", body)
        session = AsyncSession(
            self.http,
            answer.body,
            resumed=answer.status == 200,
            end_on_exit=end_on_exit,
            on_wait=self._on_wait,
            owns_http=_owns_http,
        )
        if session.status in ENDED:
            return session
        released_at_us = None
        if mode == "leased":
            leases = []
            if session.resumed:
                listed = await self.http.get("/leases", session=session.id, kind="session")
                leases = listed.body["items"]
            await session.take_lease(
                self.heartbeats, ttl_s, wait_s=wait_for_lease_s, takeover=takeover
            )
            released_at_us = _released_at_us(leases, session.lease)
        if session.resumed and match_unanswered_calls:
            await _load_unanswered(session, released_at_us)
        return session

    async def attach_session(self, session: str) -> AsyncSession:
        """Return a session that another process opened, by key, handle or id, without its lease.

        For the steps of single effects, and for reports. Refused with 404 if there is none.
        """
        if "/" in session:  # a path takes no such key
            items = (await self.http.get("/sessions", key=session, limit=1)).body["items"]
            session = str(items[0]["id"]) if items else session
        opened = (await self.http.get(f"/sessions/{quote(session, safe='')}")).body
        return AsyncSession(
            self.http,
            opened,
            resumed=True,
            end_on_exit=False,
            on_wait=self._on_wait,
            owns_http=False,
        )

    async def claim_session(
        self,
        *,
        kinds: Sequence[str] = (),
        repository: str = "",
        labels: Mapping[str, str] | None = None,
        ttl_s: int = 60,
        end_on_exit: bool = True,
        _owns_http: bool = False,
    ) -> AsyncSession | None:
        """Claim the most urgent available work that matches and return its leased session.

        Return None if there is none.
        """
        self._renew_after_fork()
        process = secrets.token_hex(16)
        criteria = {"kinds": list(kinds), "repository": repository, "labels": dict(labels or {})}
        body: Json = {"process": process, "ttl_s": ttl_s} | {
            name: value for name, value in criteria.items() if value
        }
        sent_at = time.monotonic()
        answer = (await self.http.post("/claims", body)).body
        claimed = answer.get("claimed")
        if not isinstance(claimed, dict):
            return None
        opened = (await self.http.get(f"/sessions/{claimed['session']}")).body
        session = AsyncSession(
            self.http,
            opened,
            resumed=True,
            end_on_exit=end_on_exit,
            on_wait=self._on_wait,
            owns_http=_owns_http,
        )
        session.process = process
        session.claimed = claimed
        session.lease = Lease(answer["lease"], sent_at)
        session.start_heartbeats(self.heartbeats)
        if claimed.get("kind") == "session":
            await _load_unanswered(session, None)
        return session

    async def close(self) -> None:
        """Close the connections."""
        await self.http.close()

    def _renew_after_fork(self) -> None:
        if self._pid != os.getpid():  # the heartbeat thread exists only in the parent
            self._pid, self.heartbeats = os.getpid(), HeartbeatSender(self._beats)


class SessionOpening:
    """A session to be opened: await it, or use it as an async context."""

    def __init__(self, opening: Coroutine[Any, Any, AsyncSession]) -> None:
        self._opening = opening
        self._session: AsyncSession | None = None

    def __await__(self) -> Generator[Any, None, AsyncSession]:
        return self._opening.__await__()

    async def __aenter__(self) -> AsyncSession:
        self._session = await self._opening
        return self._session

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.__aexit__(kind, error, trace)


def _to_opening(
    method: Callable[Concatenate[Opener, P], Coroutine[Any, Any, AsyncSession]],
) -> Callable[Concatenate[Opener, P], SessionOpening]:
    @wraps(method)
    def call(self: Opener, /, *positional: P.args, **named: P.kwargs) -> SessionOpening:
        return SessionOpening(method(self, *positional, **named))

    return call


class AsyncClient(SessionOpener):
    """Async client of the Gatebook at `url` (or GATEBOOK_URL), with a token (or GATEBOOK_TOKEN).

    For asyncio. The surface is that of `Client`, whose arguments these are: what waits is awaited,
    no wait holds a thread, and acts and probes may be coroutine functions. `async with
    client.session(…) as s` opens a session. A `transport` must serve both kinds of requests.
    """

    def __init__(
        self,
        url: str = "",
        token: str = "",
        *,
        patience_s: float = 15.0,
        on_wait: OnWait = log_wait,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        url, token = _read_environment(url, token)
        blocking = transport if isinstance(transport, httpx.BaseTransport) else None
        beats = HttpClient(url, token, patience_s=patience_s, transport=blocking)
        io = AsyncIo(token, check_address(url, token), transport, sleep, beats.io)
        super().__init__(AsyncHttpClient(url, token, patience_s=patience_s, io=io), beats, on_wait)

    session = _to_opening(SessionOpener.open_session)
    attach = _to_opening(SessionOpener.attach_session)
    claim = SessionOpener.claim_session


class Client(Blocking[SessionOpener]):
    """Client of the Gatebook at `url` (or GATEBOOK_URL), with a token (or GATEBOOK_TOKEN).

    `patience_s` is how long requests are retried before ServerUnavailable is raised. `on_wait` is
    called before each wait, with a reason (gate, stop, pace, breaker or verdict) and Gatebook's
    answer. It is also called with `same_call` and the answer to the plan if the same call has an
    unknown outcome in another session, and with `left_open`. Without it, waits are logged by the
    logger `gatebook_client`, as a warning if people must act. `transport` and `sleep` are for
    tests.
    """

    def __init__(
        self,
        url: str = "",
        token: str = "",
        *,
        patience_s: float = 15.0,
        on_wait: OnWait = log_wait,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        url, token = _read_environment(url, token)
        self.http = HttpClient(url, token, patience_s=patience_s, transport=transport, sleep=sleep)
        super().__init__(SessionOpener(self.http.core, self.http, on_wait))

    @property
    def heartbeats(self) -> HeartbeatSender:
        """The sender of heartbeats for all leases of this client."""
        return self.core.heartbeats

    @heartbeats.setter
    def heartbeats(self, sender: HeartbeatSender) -> None:
        self.core.heartbeats = sender

    def session(self, key: str = "", **how: Any) -> Session:
        """Open the session with that key, or reopen it. `how` as in `SessionOpener.open_session`.

        Raises LeaseHeld, ServerUnavailable, Refused.
        """
        return Session(run_blocking(self.core.open_session(key, **how)), self.http)

    def attach(self, session: str) -> Session:
        """Return a session that another process opened, by key, handle or id, without its lease.

        For the steps of single effects, and for reports. Refused with 404 if there is none.
        """
        return Session(run_blocking(self.core.attach_session(session)), self.http)

    def claim(self, **how: Any) -> Session | None:
        """Claim the most urgent available work that matches and return its leased session.

        `how` as in `SessionOpener.claim_session`. Return None if there is none.
        """
        claimed = run_blocking(self.core.claim_session(**how))
        return None if claimed is None else Session(claimed, self.http)

    close = to_blocking(SessionOpener.close)


async def _load_unanswered(session: AsyncSession, released_at_us: int | None) -> None:
    """Load the effects of earlier processes; on an error, abandon the session."""
    try:
        await session.load_unanswered(released_at_us)
    except BaseException:
        await session.abandon()
        raise


def _released_at_us(leases: list[Json], lease: Lease | None) -> int | None:
    """Return when the previous process released its lease, or None if it may have died."""
    if not leases or lease is None or lease.epoch != int(leases[0]["epoch"]) + 1:
        return None
    released_us = leases[0].get("released_at_us")
    # A release after the expiry was not made by the process itself.
    if released_us is None or released_us >= leases[0]["expires_at_us"]:
        return None
    return int(released_us)


def session(
    url: str = "",
    token: str = "",
    *,
    key: str = "",
    patience_s: float = 15.0,
    on_wait: OnWait = log_wait,
    transport: httpx.BaseTransport | None = None,
    sleep: Callable[[float], None] = time.sleep,
    **how: Any,
) -> Session:
    """Open a session with a client of its own. `how` as in `SessionOpener.open_session`."""
    client = Client(
        url, token, patience_s=patience_s, on_wait=on_wait, transport=transport, sleep=sleep
    )
    return client.session(key, _owns_http=True, **how)


def async_session(
    url: str = "",
    token: str = "",
    *,
    key: str = "",
    patience_s: float = 15.0,
    on_wait: OnWait = log_wait,
    transport: httpx.AsyncBaseTransport | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    **how: Any,
) -> SessionOpening:
    """Open an async session with a client of its own: `async with async_session(…) as s`."""
    client = AsyncClient(
        url, token, patience_s=patience_s, on_wait=on_wait, transport=transport, sleep=sleep
    )
    return client.session(key, _owns_http=True, **how)


def claim(
    url: str = "", token: str = "", *, patience_s: float = 15.0, **how: Any
) -> Session | None:
    """Claim the most urgent matching work with a client of its own. `how` as in `Client.claim`."""
    return Client(url, token, patience_s=patience_s).claim(_owns_http=True, **how)
