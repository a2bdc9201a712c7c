"""Leases of sessions and the thread that sends their heartbeats.

A heartbeat shows that the process lives. Progress is separate: each heartbeat contains a token
that changes only when the agent made progress (`progress`). If an agent hangs, heartbeats continue
and the token stays, and Gatebook sees both.
"""

import threading
import time
from collections.abc import Iterable
from contextlib import suppress

from gatebook_client.errors import LeaseHeld, LeaseLost, Refused, ServerUnavailable, SessionEnded
from gatebook_client.http import AsyncHttpClient, HttpClient
from gatebook_client.types import Json

HEARTBEATS_PER_TTL = 3  # two may get lost before the lease expires
MAX_PAUSE_S = 30.0
MAX_HEARTBEATS = 1000  # in one request


class Lease:
    """A lease of this process. `epoch` is sent with every write; `lost` is final."""

    def __init__(self, answer: Json, sent_at: float) -> None:
        self.id = str(answer["id"])
        self.epoch = int(answer["epoch"])
        self.ttl_s = float(answer.get("ttl_s") or 60)
        self.takeovers = int(answer.get("takeovers") or 0)
        self.lost = False
        self._confirmed_at = sent_at
        self._steps = 0
        self._note = ""
        self._quiet_until = 0.0
        self._lock = threading.Lock()

    def progress(self, note: str = "") -> None:
        """Report progress once, with the next heartbeat."""
        with self._lock:
            self._steps += 1
            self._note = note[:150]

    def quiet(self, seconds: float) -> None:
        """Announce that no progress will be reported for so long."""
        with self._lock:
            self._quiet_until = time.monotonic() + seconds

    def heartbeat_json(self) -> Json:
        """Return this lease's item of a heartbeat request."""
        with self._lock:
            heartbeat: Json = {"lease": self.id, "epoch": self.epoch}
            if self._steps:
                heartbeat["progress"] = f"{self._steps} {self._note}".strip()
            quiet_s = self._quiet_until - time.monotonic()
            if quiet_s >= 1:
                heartbeat["quiet_s"] = int(quiet_s)
            return heartbeat

    def confirm(self, sent_at: float) -> None:
        """Record that Gatebook confirmed the lease after `sent_at`, a monotonic time."""
        self._confirmed_at = max(self._confirmed_at, sent_at)

    def may_have_expired(self) -> bool:
        """Return whether a full ttl passed since Gatebook confirmed the lease."""
        return time.monotonic() - self._confirmed_at > self.ttl_s


async def acquire_lease(
    http: AsyncHttpClient,
    session: str,
    process: str,
    ttl_s: int,
    *,
    takeover: bool = False,
    to_compensate: bool = False,
) -> Lease:
    """Acquire the lease of a session. Raises LeaseHeld, SessionEnded.

    LeaseHeld means that another live process has it. A session that has ended is leased only with
    `to_compensate`.
    """
    flags = {"takeover": takeover, "to_compensate": to_compensate}
    body: Json = {
        "session": session,
        "process": process,
        "ttl_s": ttl_s,
        **{name: True for name in flags if flags[name]},
    }
    sent_at = time.monotonic()
    try:
        return Lease((await http.post("/leases", body)).body, sent_at)
    except Refused as refusal:
        if refusal.code == "SESSION_ENDED":
            raise SessionEnded from refusal
        if refusal.code != "LEASE_HELD":
            raise
        lease = refusal.problem.get("lease")
        raise LeaseHeld(lease if isinstance(lease, dict) else {}) from refusal


class HeartbeatSender:
    """Sends heartbeats for all leases of this process, from one thread in one request."""

    def __init__(self, http: HttpClient) -> None:
        self._wire = http
        self._leases: dict[str, Lease] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, lease: Lease) -> None:
        """Send heartbeats for this lease from now on."""
        with self._lock:
            self._leases[lease.id] = lease
            if self._thread is None or not self._thread.is_alive():
                self._wake = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._wake,), name="gatebook-heartbeats", daemon=True
                )
                self._thread.start()
        self._wake.set()

    def remove(self, lease: Lease) -> None:
        """Stop sending heartbeats for this lease; the thread ends with the last one."""
        with self._lock:
            self._leases.pop(lease.id, None)
        self._wake.set()

    def send(self) -> None:
        """Send one heartbeat for every lease and mark lost leases.

        Raises ServerUnavailable, Refused.
        """
        with self._lock:
            leases = [lease for lease in self._leases.values() if not lease.lost]
        for start in range(0, len(leases), MAX_HEARTBEATS):
            self._send(leases[start : start + MAX_HEARTBEATS])

    def _send(self, leases: list[Lease]) -> None:
        sent_at = time.monotonic()
        response = self._wire.post(
            "/heartbeats",
            {"heartbeats": [lease.heartbeat_json() for lease in leases]},
            keyless=True,
            patience_s=0,
        )
        results = {
            str(item.get("lease")): item.get("status")
            for item in _objects(response.body.get("results"))
        }
        for lease in leases:
            if results.get(lease.id) == "ok":
                lease.confirm(sent_at)
            elif results.get(lease.id) == "lost":
                lease.lost = True

    def _run(self, wake: threading.Event) -> None:
        while True:
            with self._lock:
                ttls_s = [lease.ttl_s for lease in self._leases.values() if not lease.lost]
                if not ttls_s:
                    self._thread = None
                    return
            if wake.wait(min(min(ttls_s) / HEARTBEATS_PER_TTL, MAX_PAUSE_S)):
                wake.clear()  # A lease was added or removed.
                continue
            # If heartbeats fail, the lease expires, and `ensure_lease` checks it before any act.
            with suppress(Exception):
                self.send()


async def ensure_lease(http: AsyncHttpClient, lease: Lease) -> None:
    """Raise LeaseLost unless this process has the lease.

    A lease that may have expired is renewed first.
    """
    if not lease.lost and lease.may_have_expired():
        sent_at = time.monotonic()
        try:
            await http.post(f"/leases/{lease.id}/renew", {"epoch": lease.epoch})
        except Refused as refusal:
            if refusal.code != "LEASE_LOST":
                raise
            lease.lost = True
        except ServerUnavailable as error:
            raise error.with_consequence(
                "Nothing was begun: it is unknown whether this process still has the session."
            ) from error
        else:
            lease.confirm(sent_at)
    if lease.lost:
        raise LeaseLost


def _objects(value: object) -> Iterable[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
