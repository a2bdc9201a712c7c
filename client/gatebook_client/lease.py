"""A lease on a session, kept alive by a thread that says no more than that the process lives.

Alive and getting on are two things. A beat says the first. It carries a token for the second, which changes only when
the agent itself got on (`progress`): for an agent that hangs, beats go on and the token stays, and Gatebook sees both.
"""

import threading
import time
from collections.abc import Iterable
from contextlib import suppress

from gatebook_client.errors import LeaseHeld, LeaseLost, LedgerAway, Refused, SessionEnded
from gatebook_client.values import Json
from gatebook_client.wire import Wire

BEATS_A_LIFE = 3  # of a lease: two may get lost and it still holds
LONGEST_PAUSE_S = 30.0
MOST_BEATS = 1000  # in one request


class Lease:
    """What this process holds. `epoch` goes with every write; `lost` is final."""

    def __init__(self, told: Json, sent_at: float) -> None:
        self.id = str(told["id"])
        self.epoch = int(told["epoch"])
        self.ttl_s = float(told.get("ttl_s") or 60)
        self.takeovers = int(told.get("takeovers") or 0)
        self.lost = False
        self._heard_at = sent_at
        self._steps = 0
        self._note = ""
        self._quiet_until = 0.0
        self._lock = threading.Lock()

    def progress(self, note: str = "") -> None:
        """The agent got on: the next beat says so, once."""
        with self._lock:
            self._steps += 1
            self._note = note[:150]

    def quiet(self, seconds: float) -> None:
        """Nothing will be heard for so long, and that is as it should be."""
        with self._lock:
            self._quiet_until = time.monotonic() + seconds

    def beat(self) -> Json:
        """What a beat says of this lease."""
        with self._lock:
            said: Json = {"lease": self.id, "epoch": self.epoch}
            if self._steps:
                said["progress"] = f"{self._steps} {self._note}".strip()
            quiet_s = self._quiet_until - time.monotonic()
            if quiet_s >= 1:
                said["quiet_s"] = int(quiet_s)
            return said

    def heard(self, sent_at: float) -> None:
        """Gatebook knew of us at a moment after `sent_at` of our own clock."""
        self._heard_at = max(self._heard_at, sent_at)

    def may_have_run_out(self) -> bool:
        """Whether a whole life passed since Gatebook last knew of us: somebody else may hold it now."""
        return time.monotonic() - self._heard_at > self.ttl_s


def acquire(
    wire: Wire, session: str, process: str, ttl_s: int, *, takeover: bool = False, to_compensate: bool = False
) -> Lease:
    """Take the lease of a session. Raises LeaseHeld while another process has it and lives, SessionEnded.

    One that has ended is leased only `to_compensate`.
    """
    asked = {"takeover": takeover, "to_compensate": to_compensate}
    body: Json = {
        "session": session,
        "process": process,
        "ttl_s": ttl_s,
        **{name: True for name in asked if asked[name]},
    }
    sent_at = time.monotonic()
    try:
        return Lease(wire.post("/leases", body).body, sent_at)
    except Refused as refusal:
        if refusal.code == "SESSION_ENDED":
            raise SessionEnded from refusal
        if refusal.code != "LEASE_HELD":
            raise
        lease = refusal.problem.get("lease")
        raise LeaseHeld(lease if isinstance(lease, dict) else {}) from refusal


class Beater:
    """One thread that beats for all leases of this process, in one request."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._leases: dict[str, Lease] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, lease: Lease) -> None:
        """Keep this lease from now on."""
        with self._lock:
            self._leases[lease.id] = lease
            if self._thread is None or not self._thread.is_alive():
                self._wake = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._wake,), name="gatebook-beats", daemon=True
                )
                self._thread.start()
        self._wake.set()

    def remove(self, lease: Lease) -> None:
        """Keep it no longer; with the last one the thread ends."""
        with self._lock:
            self._leases.pop(lease.id, None)
        self._wake.set()

    def beat(self) -> None:
        """Beat once for all, and learn which are lost. Raises LedgerAway, Refused."""
        with self._lock:
            leases = [lease for lease in self._leases.values() if not lease.lost]
        for start in range(0, len(leases), MOST_BEATS):
            self._beat(leases[start : start + MOST_BEATS])

    def _beat(self, leases: list[Lease]) -> None:
        sent_at = time.monotonic()
        told = self._wire.post("/beats", {"beats": [lease.beat() for lease in leases]}, keyless=True, patience_s=0)
        results = {str(one.get("lease")): one.get("status") for one in _objects(told.body.get("results"))}
        for lease in leases:
            if results.get(lease.id) == "ok":
                lease.heard(sent_at)
            elif results.get(lease.id) == "lost":
                lease.lost = True

    def _run(self, wake: threading.Event) -> None:
        while True:
            with self._lock:
                lives = [lease.ttl_s for lease in self._leases.values() if not lease.lost]
                if not lives:
                    self._thread = None
                    return
            if wake.wait(min(min(lives) / BEATS_A_LIFE, LONGEST_PAUSE_S)):
                wake.clear()  # somebody came or went
                continue
            with suppress(Exception):  # not told, the lease runs out by itself, and whoever acts then looks first
                self.beat()


def keep(wire: Wire, lease: Lease) -> None:
    """Raise LeaseLost unless the lease is ours; one that may have run out is renewed first."""
    if not lease.lost and lease.may_have_run_out():
        sent_at = time.monotonic()
        try:
            wire.post(f"/leases/{lease.id}/renew", {"epoch": lease.epoch})
        except Refused as refusal:
            if refusal.code != "LEASE_LOST":
                raise
            lease.lost = True
        except LedgerAway as away:
            raise away.about("Nothing was begun: whether the session is still ours cannot be known.") from away
        else:
            lease.heard(sent_at)
    if lease.lost:
        raise LeaseLost


def _objects(value: object) -> Iterable[Json]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
