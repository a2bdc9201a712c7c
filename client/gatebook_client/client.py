"""Where sessions come from: an address, a token, and the one thread that keeps their leases."""

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx

from gatebook_client.lease import Beater, Lease
from gatebook_client.sessions import Session, Waiting
from gatebook_client.values import ENDED, Json
from gatebook_client.wire import Wire

DESCRIPTION = ("title", "repository", "branch", "parent", "labels", "owner", "on_behalf_of")


def _nobody(_for: str, _told: Json) -> None:
    """Hears of waits and does nothing."""


class Client:
    """The Gatebook at `url`, or at GATEBOOK_URL, spoken to with a token, or GATEBOOK_TOKEN.

    `patience_s` is how long no answer is borne before LedgerAway; `waiting` hears of each wait before it begins: the
    word gate, stop, pace or verdict, and what Gatebook said. It also hears of the same call in another session,
    of unknown outcome: the word same_call, with the answer of the plan; and of left_open. A transport is a test's.
    """

    def __init__(
        self,
        url: str = "",
        token: str = "",
        *,
        patience_s: float = 15.0,
        waiting: Waiting = _nobody,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        url = url or os.environ.get("GATEBOOK_URL", "")
        token = token or os.environ.get("GATEBOOK_TOKEN", "")
        self.wire = Wire(url, token, patience_s=patience_s, transport=transport, sleep=sleep)
        self.beater = Beater(self.wire)
        self._waiting = waiting
        self._pid = os.getpid()

    def session(
        self,
        key: str = "",
        *,
        mode: str = "leased",
        ends: bool = True,
        ttl_s: int = 60,
        takeover: bool = False,
        wait_for_lease_s: float = 0.0,
        answers_again: bool = True,
        _owns: bool = False,
        **described: Any,
    ) -> Session:
        """Open the session with that key, or take it up again; `described` holds title, repository, branch, ….

        In mode `leased` this process alone works in it: LeaseHeld is raised while another does, after waiting as long
        as said. Mode `one_shot` has no lease; nor has a session that has ended: `perform` tells what was done in it,
        and begins nothing. A key that is given again by the next process is what makes a crash harmless: without one
        there is nothing to take up. `answers_again` is for calls with a `call_id`: the first that asks for what an
        earlier process was about, or did last before it died, gets what is there.
        """
        self._mind_a_fork()
        body: Json = {"key": key or f"run-{secrets.token_hex(8)}", "mode": mode}
        body |= {name: value for name, value in described.items() if value}
        answer = self.wire.post("/sessions", body)
        opened = Session(
            self.wire, answer.body, resumed=answer.status == 200, ends=ends, waiting=self._waiting, owns=_owns
        )
        if opened.status in ENDED:
            return opened
        left_at_us = None
        if mode == "leased":
            leases = self.wire.get("/leases", session=opened.id, kind="session").body["items"] if opened.resumed else []
            opened.take_lease(self.beater, ttl_s, wait_s=wait_for_lease_s, takeover=takeover)
            left_at_us = _left_at_us(leases, opened.lease)
        if opened.resumed and answers_again:
            _remember(opened, left_at_us)
        return opened

    def claim(
        self,
        *,
        kinds: Sequence[str] = (),
        repository: str = "",
        labels: Mapping[str, str] | None = None,
        ttl_s: int = 60,
        ends: bool = True,
        _owns: bool = False,
    ) -> Session | None:
        """Take the most urgent work that fits and that nobody has: its session, leased to us. None: there is none."""
        self._mind_a_fork()
        process = secrets.token_hex(16)
        asked = {"kinds": list(kinds), "repository": repository, "labels": dict(labels or {})}
        body: Json = {"process": process, "ttl_s": ttl_s} | {name: value for name, value in asked.items() if value}
        sent_at = time.monotonic()
        told = self.wire.post("/claims", body).body
        claimed = told.get("claimed")
        if not isinstance(claimed, dict):
            return None
        opened = self.wire.get(f"/sessions/{claimed['session']}").body
        session = Session(self.wire, opened, resumed=True, ends=ends, waiting=self._waiting, owns=_owns)
        session.process = process
        session.claimed = claimed
        session.lease = Lease(told["lease"], sent_at)
        session.hold(self.beater)
        if claimed.get("kind") == "session":
            _remember(session, None)
        return session

    def close(self) -> None:
        """Give the connections back."""
        self.wire.close()

    def _mind_a_fork(self) -> None:
        if self._pid != os.getpid():  # the thread that beats stayed with the parent
            self._pid, self.beater = os.getpid(), Beater(self.wire)


def _remember(opened: Session, left_at_us: int | None) -> None:
    """Let a session learn what was before it; whoever cannot give it to its program gives its lease back."""
    try:
        opened.remember(left_at_us)
    except BaseException:
        opened.abandon()
        raise


def _left_at_us(leases: list[Json], taken: Lease | None) -> int | None:
    """When the process before this one gave its lease back of itself; None where it did not: it may have died."""
    if not leases or taken is None or taken.epoch != int(leases[0]["epoch"]) + 1:
        return None
    released_us = leases[0].get("released_at_us")
    if released_us is None or released_us >= leases[0]["expires_at_us"]:  # or somebody else gave it back
        return None
    return int(released_us)


def session(
    url: str = "",
    token: str = "",
    *,
    key: str = "",
    patience_s: float = 15.0,
    waiting: Waiting = _nobody,
    transport: httpx.BaseTransport | None = None,
    sleep: Callable[[float], None] = time.sleep,
    **how: Any,
) -> Session:
    """Open a session at once, with a client of its own; `how` as in `Client.session`."""
    client = Client(url, token, patience_s=patience_s, waiting=waiting, transport=transport, sleep=sleep)
    return client.session(key, _owns=True, **how)


def claim(url: str = "", token: str = "", *, patience_s: float = 15.0, **how: Any) -> Session | None:
    """Take the most urgent work that fits, with a client of its own; `how` as in `Client.claim`."""
    return Client(url, token, patience_s=patience_s).claim(_owns=True, **how)
