"""One attempt: dispatched, done, told. Nothing is done before Gatebook answered the dispatch with a 2xx."""

import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import httpx

from gatebook_client import waiting
from gatebook_client.errors import (
    GatebookError,
    LeaseLost,
    LedgerAway,
    NoLeave,
    NotYet,
    Refused,
    Rejected,
    SessionEnded,
)
from gatebook_client.keys import new_key
from gatebook_client.lease import Lease
from gatebook_client.values import ENDED, Act, Done, Json, Known, Performed, Probe, Undo, Verdict, sendable
from gatebook_client.wire import Answer, Wire

TIMEOUTS = (TimeoutError, subprocess.TimeoutExpired, httpx.TimeoutException)
_LOOK_AGAIN = ("GATE_PENDING", "GATE_GONE", "NO_LEAVE", "ALREADY_DISPATCHED", "key_reuse")
_PEOPLE_SAID_NO = ("denied", "denied_final", "expired", "returned", "revoked", "cancelled", "by_agent")
STALE_S = 60.0  # from asking for the dispatch; a lease of a shorter life is stricter
_DETAIL = 4_000  # characters of an error


class Holder(Protocol):
    """The session as its effects see it."""

    id: str
    process: str
    status: str
    wire: Wire
    lease: Lease | None

    def guard(self) -> None:
        """Raise unless this process may still begin something."""


@dataclass
class Wish:
    """One effect that is wanted. `plan` is the body of its plan but for the session; `until` a monotonic time."""

    tool: str
    arguments: Any
    act: Act
    plan: Json
    probe: Probe | None = None
    undo: Undo | None = None
    compensates: str = ""
    until: float | None = None
    waiting: Callable[[str, Json], object] = lambda _for, _told: None
    granted: Callable[[Json, float], object] = lambda _told, _asked_at: None
    told_of: set[object] = field(default_factory=set)  # effects of other sessions with the same call

    @property
    def name(self) -> str:
        """What it is called in sentences."""
        return f"{self.tool} ({self.plan.get('effect_key') or self.plan.get('call_id')})"

    def known(self, verdict: Verdict) -> Known:
        """The attempt that a verdict is about."""
        about = verdict.about
        return Known(
            verdict.effect,
            verdict.handle,
            str(about.get("effect_key") or ""),
            self.tool,
            self.arguments,
            verdict.attempt,
            verdict.remote_key,
            str(about.get("external_reference") or ""),
        )


@dataclass
class Attempts:
    """Makes the attempts of one session."""

    holder: Holder
    _dispatches: dict[str, tuple[str, Json]] = field(default_factory=dict)  # without an answer yet: key and body
    _untold: list[tuple[str, Json, str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def epoch(self) -> Json:
        """What says under which lease something is written."""
        return {} if self.holder.lease is None else {"lease_epoch": self.holder.lease.epoch}

    def patiently(self, wish: Wish, command: Callable[[], Answer]) -> Answer:
        """Give a command; while a person has stopped it, or we are paced, again and again."""
        told = False
        while True:
            self.holder.guard()
            try:
                return command()
            except LedgerAway as away:
                raise away.about(f"{wish.name} was not begun.") from away
            except Refused as refusal:
                self.stop(refusal)
                if refusal.code != "HELD" and refusal.status != 429:
                    raise
                if not told:
                    wish.waiting("stop" if refusal.code == "HELD" else "pace", refusal.problem)
                told = True
                pause_s = float(refusal.problem.get("retry_after_s") or waiting.PAUSE_S)
                waiting.pause(self.holder, pause_s, wish.until, f"{wish.name}: {refusal.sentence}.")

    def stop(self, refusal: Refused) -> None:
        """Raise SessionEnded or LeaseLost where a refusal says that nothing more can be begun here."""
        ended = self.holder.status in ENDED  # and with it the lease that Gatebook asks for first
        if refusal.code == "SESSION_ENDED" or (refusal.code == "LEASE_LOST" and ended):
            raise SessionEnded(self.holder.status if ended else "") from refusal
        if refusal.code == "LEASE_LOST":
            self.lose(refusal)

    def lose(self, refusal: Refused) -> NoReturn:
        """Take it from Gatebook that the lease is another's."""
        if self.holder.lease is not None:
            self.holder.lease.lost = True
        raise LeaseLost(f"{refusal.sentence}; nothing was begun.") from refusal

    def dispatch(self, effect: str, wish: Wish, replays: int = 0) -> Performed | None:
        """Use the leave and do it; None when it is to be looked at again, because the leave is not there any more."""
        body: Json = {"process": self.holder.process, "arguments": wish.arguments} | self.epoch()
        body |= {name: wish.plan[name] for name in ("free_text", "preconditions") if name in wish.plan}
        owed_key, owed = self._dispatches.get(effect, ("", {}))
        if replays or "replays" in owed:
            body["replays"] = replays or owed["replays"]
        key = owed_key if body == owed else new_key()
        self._dispatches[effect] = key, body
        asked_at = time.monotonic()
        try:
            granted = self.patiently(wish, lambda: self.holder.wire.post(f"/effects/{effect}/dispatch", body, key=key))
        except Refused as refusal:
            self._dispatches.pop(effect, None)
            if refusal.code in ("GATE_DENIED", "GATE_EXPIRED") or refusal.reason in _PEOPLE_SAID_NO:
                raise NoLeave(effect, refusal.reason or "denied") from refusal
            if refusal.code in _LOOK_AGAIN:
                return None
            raise
        self._dispatches.pop(effect, None)
        if not self._still_in_time(effect, granted.body, asked_at):
            return None
        wish.granted(granted.body, asked_at)
        return self._do(effect, granted.body, wish)

    def _still_in_time(self, effect: str, granted: Json, asked_at: float) -> bool:
        """Whether the act may begin: whoever slept since the dispatch could be taken for dead and be replaced by now.

        What is not begun is told as such: that much this process does know. Raises LeaseLost, LedgerAway.
        """
        path, attempt = f"/effects/{effect}", int(granted["attempt"])
        slept = NotYet(f"not begun: {STALE_S} s passed between the dispatch and the act", effect)
        try:
            self.holder.guard()
        except GatebookError as lost:
            self._tell_failed(path, attempt, "rejected", lost)
            raise
        if time.monotonic() - asked_at <= STALE_S:
            return True
        self._tell_failed(path, attempt, "rejected", slept)
        return False

    def _do(self, effect: str, granted: Json, wish: Wish) -> Performed:
        attempt, path = int(granted["attempt"]), f"/effects/{effect}"
        try:
            done = Done.of(wish.act(str(granted.get("remote_key") or "")))
        except Rejected as rejection:
            self._tell_failed(path, attempt, "rejected", rejection)
            raise
        except TIMEOUTS as late:
            self._tell_failed(path, attempt, "timeout", late)
            raise
        except BaseException as fault:
            self._tell_failed(path, attempt, "error", fault)
            raise
        body: Json = {"attempt": attempt, "outcome": done.outcome, "result": sendable(done.result)} | self.epoch()
        if done.reference:
            body["external_reference"] = done.reference[:300].encode("utf-8", "replace").decode()
        answer = self._tell(f"{path}/acknowledge", body, wish)
        performed = Performed.read(answer.body, done.result)
        if answer.status == 202 and self.holder.lease is not None:
            self.holder.lease.lost = True
            sentence = f"{wish.name} was done, and told as evidence; the session is another process's now. Stop here."
            raise LeaseLost(sentence, performed)
        return performed

    def _tell(self, path: str, body: Json, wish: Wish) -> Answer:
        key = new_key()
        try:
            return self.holder.wire.post(path, body, key=key)
        except LedgerAway as away:
            self._untold.append((path, body, key))
            sentence = f"{wish.name} was done; only the report of it is missing, and is sent with the next call."
            raise LedgerAway(away.reason, sentence, acted=True) from away
        except Refused as refusal:
            if refusal.status != 422 or "result" not in body:
                raise
            # Whatever is wrong with the result, that it happened must be told.
            left_out = {"left_out": f"refused: {refusal.code}"}
            return self.holder.wire.post(path, body | {"result": left_out})

    def _tell_failed(self, path: str, attempt: int, reason: str, fault: BaseException) -> None:
        """Say that an attempt failed; what goes wrong in saying so is noted on the error, which goes on."""
        detail = (str(fault) if reason == "rejected" else repr(fault))[:_DETAIL].encode("utf-8", "replace").decode()
        body: Json = {"attempt": attempt, "reason": reason, "detail": detail} | self.epoch()
        key = new_key()
        patience_s = None if isinstance(fault, Exception) else 2.0  # somebody wants this process to end
        try:
            self.holder.wire.post(f"{path}/fail", body, key=key, patience_s=patience_s)
        except LedgerAway as away:
            self._untold.append((f"{path}/fail", body, key))
            fault.add_note(f"Gatebook could not be told that this attempt failed ({reason}): {away}")
        except Refused as refusal:
            fault.add_note(f"Gatebook did not take that this attempt failed ({reason}): {refusal}")

    def tell_untold(self) -> None:
        """Send what could not be told before. Raises LedgerAway."""
        with self._lock:
            while self._untold:
                path, body, key = self._untold[0]
                try:
                    self.holder.wire.post(path, body, key=key)
                except LedgerAway as away:
                    raise away.about("Nothing was begun: what was done before could not be told yet.") from away
                except Refused:
                    pass  # it is known by now, from somebody else
                self._untold.pop(0)
