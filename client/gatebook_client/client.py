"""Clients and their sessions: the address, the token and the thread that renews leases."""

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx

from gatebook_client.http import HttpClient
from gatebook_client.lease import HeartbeatSender, Lease
from gatebook_client.sessions import OnWait, Session
from gatebook_client.types import ENDED, Json


def _ignore_wait(_reason: str, _answer: Json) -> None:
    """Ignore a wait: the default of `on_wait`."""


class Client:
    """Client of the Gatebook at `url` (or GATEBOOK_URL), with a token (or GATEBOOK_TOKEN).

    `patience_s` is how long requests are retried before ServerUnavailable is raised. `on_wait` is
    called before each wait, with a reason (gate, stop, pace or verdict) and Gatebook's answer. It
    is also called with `same_call` and the answer to the plan if the same call has an unknown
    outcome in another session, and with `left_open`. `transport` and `sleep` are for tests.
    """

    def __init__(
        self,
        url: str = "",
        token: str = "",
        *,
        patience_s: float = 15.0,
        on_wait: OnWait = _ignore_wait,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        url = url or os.environ.get("GATEBOOK_URL", "")
        token = token or os.environ.get("GATEBOOK_TOKEN", "")
        self.http = HttpClient(url, token, patience_s=patience_s, transport=transport, sleep=sleep)
        self.heartbeats = HeartbeatSender(self.http)
        self._on_wait = on_wait
        self._pid = os.getpid()

    def session(
        self,
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
    ) -> Session:
        """Open the session with that key, or reopen it.

        `description` holds title, repository, branch and the like.

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
        answer = self.http.post("/sessions", body)
        session = Session(
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
            leases = (
                self.http.get("/leases", session=session.id, kind="session").body["items"]
                if session.resumed
                else []
            )
            session.take_lease(self.heartbeats, ttl_s, wait_s=wait_for_lease_s, takeover=takeover)
            released_at_us = _released_at_us(leases, session.lease)
        if session.resumed and match_unanswered_calls:
            _load_unanswered(session, released_at_us)
        return session

    def claim(
        self,
        *,
        kinds: Sequence[str] = (),
        repository: str = "",
        labels: Mapping[str, str] | None = None,
        ttl_s: int = 60,
        end_on_exit: bool = True,
        _owns_http: bool = False,
    ) -> Session | None:
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
        answer = self.http.post("/claims", body).body
        claimed = answer.get("claimed")
        if not isinstance(claimed, dict):
            return None
        opened = self.http.get(f"/sessions/{claimed['session']}").body
        session = Session(
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
            _load_unanswered(session, None)
        return session

    def close(self) -> None:
        """Close the connections."""
        self.http.close()

    def _renew_after_fork(self) -> None:
        if self._pid != os.getpid():  # the heartbeat thread exists only in the parent
            self._pid, self.heartbeats = os.getpid(), HeartbeatSender(self.http)


def _load_unanswered(session: Session, released_at_us: int | None) -> None:
    """Load the effects of earlier processes; on an error, abandon the session."""
    try:
        session.load_unanswered(released_at_us)
    except BaseException:
        session.abandon()
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
    on_wait: OnWait = _ignore_wait,
    transport: httpx.BaseTransport | None = None,
    sleep: Callable[[float], None] = time.sleep,
    **how: Any,
) -> Session:
    """Open a session with a client of its own. `how` is passed to `Client.session`."""
    client = Client(
        url, token, patience_s=patience_s, on_wait=on_wait, transport=transport, sleep=sleep
    )
    return client.session(key, _owns_http=True, **how)


def claim(
    url: str = "", token: str = "", *, patience_s: float = 15.0, **how: Any
) -> Session | None:
    """Claim the most urgent matching work with a client of its own. `how` as in `Client.claim`."""
    return Client(url, token, patience_s=patience_s).claim(_owns_http=True, **how)
