"""A session: one run of a program, known by its key to every process that works in it."""

import inspect
import os
import secrets
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial, wraps
from types import TracebackType
from typing import Any, Self

from gatebook_client import keys, lease
from gatebook_client.attempts import Wish
from gatebook_client.effects import Effects, left_open
from gatebook_client.errors import Closed, Forked, GatebookError, LeaseHeld, OpenWork, Refused, SessionEnded
from gatebook_client.lease import Beater, Lease
from gatebook_client.recovery import Means, Recovery, recover
from gatebook_client.values import ENDED, Act, Compensate, Json, Performed, Probe, undo_of
from gatebook_client.wire import Answer, Wire
from gatebook_client.work import Working

Waiting = Callable[[str, Json], object]
Granted = Callable[[Json, float], object]
TAKING_BACK_S = 60  # for which a session that has ended is leased


class Session(Working):
    """What a program does its work with; `gatebook_client.session` opens one. Use it as a context.

    Left without an error, the session is ended (unless `ends` is false), but not while work in it is open: then it
    stays open, with the warning OpenWork. Left by an error it stays open for the next process. The lease is given back
    either way. `resumed` is true when it was opened before.
    """

    def __init__(self, wire: Wire, opened: Json, *, resumed: bool, ends: bool, waiting: Waiting, owns: bool) -> None:
        # Made now, kept in memory and in no file: after a crash nobody can pretend to be this process.
        self.process = secrets.token_hex(16)
        self.id = str(opened["id"])
        self.key = str(opened.get("key") or "")
        self.handle = str(opened.get("handle") or "")
        self.status = str(opened.get("status") or "")
        self.resumed = resumed
        self.wire = wire
        self.claimed: Json = {}  # what a claim gave: kind, session, task
        self.lease: Lease | None = None
        self._waiting = waiting
        self._ends = ends
        self._owns_wire = owns
        self._closed = False
        self._pid = os.getpid()
        self._beater: Beater | None = None
        self._effects = Effects(self)
        self._means: dict[str, Means] = {}
        self._names = keys.Names()
        self._one_at_a_time: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
        self._lock = threading.Lock()
        self._taking_back = threading.Lock()

    # The lease. -------------------------------------------------------------------------------------------------------

    def take_lease(self, beater: Beater, ttl_s: int, *, wait_s: float = 0.0, takeover: bool = False) -> None:
        """Take the lease, waiting for another process's to run out if asked to. Raises LeaseHeld."""
        until = time.monotonic() + wait_s
        while True:
            try:
                self.lease = lease.acquire(self.wire, self.id, self.process, ttl_s, takeover=takeover)
                break
            except LeaseHeld:
                if time.monotonic() + 1 > until:
                    raise
                self.wire.sleep(1)
        self.hold(beater)

    def hold(self, beater: Beater) -> None:
        """Let the lease be kept alive."""
        if self.lease is not None:
            self._beater = beater
            beater.add(self.lease)

    def remember(self, left_at_us: int | None) -> None:
        """Take up what an earlier process left, so that a call it never answered is not done a second time.

        `left_at_us`: when it left of itself, having heard of all it did; None where it did not, or nobody knows.
        """
        self._effects.remember(left_at_us)

    def guard(self) -> None:
        """Raise unless this process may still begin something: Forked, Closed, LeaseLost, LedgerAway."""
        if self._pid != os.getpid():
            raise Forked
        if self._closed:
            raise Closed
        if self.lease is not None and self.status not in ENDED:  # with the session its lease has ended too
            lease.keep(self.wire, self.lease)

    def progress(self, note: str = "") -> None:
        """Say that the work gets on, where nothing else shows it. Never call it from a timer: it would be a lie."""
        if self.lease is not None:
            self.lease.progress(note)

    @contextmanager
    def quiet(self, seconds: float) -> Iterator[None]:
        """Announce that nothing will be heard for up to so long, and that this is as it should be."""
        if self.lease is not None:
            self.lease.quiet(seconds)
        yield
        if self.lease is not None:
            self.lease.quiet(0)

    # Effects. ---------------------------------------------------------------------------------------------------------

    def perform(
        self,
        tool: str,
        arguments: Any,
        act: Act,
        *,
        probe: Probe | None = None,
        compensate: Compensate | None = None,
        target: Mapping[str, str] | None = None,
        key: str = "",
        call_id: str = "",
        wait_s: float | None = None,
        free_text: Sequence[str] = (),
        granted: Granted | None = None,
        **plan: Any,
    ) -> Performed:
        """See that one effect is done once, and return what became of it.

        `act` gets the attempt's remote key and is called only after Gatebook let it. Plan may hold task, turn, why,
        preconditions, parent_effect. `wait_s` limits every wait, for people and for fences; by default there is none.
        `granted` gets the answer of the dispatch and the monotonic time at which it was asked, before `act` is called:
        no request may live longer than its `request_lifetime_s` from then on.

        Raises what `act` raises, after Gatebook was told (`Rejected`: nothing happened; a timeout or anything else:
        nobody knows), and NoLeave, NeedsPerson, NotYet, LeaseLost, SessionEnded, LedgerAway, Refused, each of which
        means that nothing was begun, unless it says otherwise.
        """
        return self._perform(
            tool, arguments, act, probe, compensate, key, call_id, wait_s, tuple(free_text), granted=granted,
            target=target, **plan,
        )  # fmt: skip

    def compensate(self, effect: Performed | str, tool: str, arguments: Any, act: Act, **how: Any) -> Performed:
        """Take back what an effect did, by an effect of its own. `how` as in `perform`.

        Also after the session's end, under a lease that is taken for it and given up. Raises LeaseHeld while another
        process has it.
        """
        undone = effect if isinstance(effect, str) else effect.effect
        options = {name: how.pop(name, None) for name in ("probe", "compensate")}
        names = {name: how.pop(name, "") for name in ("key", "call_id")}
        free_text = tuple(how.pop("free_text", ()))
        take_back = partial(
            self._perform, tool, arguments, act, options["probe"], options["compensate"], names["key"],
            names["call_id"], how.pop("wait_s", None), free_text, undone=undone, **how,
        )  # fmt: skip
        try:
            return take_back()
        except SessionEnded:  # it was worked on under a lease, and we were not the one to end it
            if self.lease is not None or self.status not in ENDED:
                raise
        with self._held_to_compensate():
            return take_back()

    @contextmanager
    def _held_to_compensate(self) -> Iterator[None]:
        """Hold a session that has ended, for as long as something of it is taken back."""
        with self._taking_back:
            self.lease = held = lease.acquire(self.wire, self.id, self.process, TAKING_BACK_S, to_compensate=True)
            try:
                yield
            finally:
                self.lease = None
                with suppress(GatebookError):  # else it runs out by itself
                    self.wire.post(f"/leases/{held.id}/release", {"epoch": held.epoch})

    def _perform(
        self,
        tool: str,
        arguments: Any,
        act: Act,
        probe: Probe | None,
        compensate: Compensate | None,
        key: str,
        call_id: str,
        wait_s: float | None,
        free_text: tuple[str, ...],
        undone: str = "",
        granted: Granted | None = None,
        **plan: Any,
    ) -> Performed:
        self.guard()
        arguments = keys.canonical(arguments)
        digest = keys.digest_of(tool, arguments, free_text)
        counted = key or f"{call_id} {digest} {undone}"
        body = {name: value for name, value in plan.items() if value} | {"tool": tool, "arguments": arguments}
        if free_text:
            body["free_text"] = list(free_text)
        known = self._means.get(tool, Means())
        wish = Wish(tool, arguments, act, body, probe or known.probe, undo_of(compensate, tool) or known.undo, undone)
        wish.until, wish.waiting = None if wait_s is None else time.monotonic() + wait_s, self._waiting
        wish.granted = granted or wish.granted
        # Two threads that want the same are two effects: the second begins when the first is over.
        with self._intent(digest):
            ordinal = self._names.take(counted)
            if key:
                body["effect_key"] = key
            elif call_id:
                body |= {"call_id": call_id, "ordinal": ordinal}
            else:
                body["effect_key"] = keys.effect_key(tool, digest, ordinal)
            try:
                performed = self._effects.perform(wish)
            except BaseException:
                self._names.give_back(counted)
                raise
        self.progress(performed.handle)
        return performed

    def _intent(self, digest: str) -> threading.RLock:
        with self._lock:
            return self._one_at_a_time[digest]

    def effect(
        self, tool: str, *, probe: Probe | None = None, compensate: Compensate | None = None, **how: Any
    ) -> Callable[[Callable[..., object]], Callable[..., Performed]]:
        """Make a function an effect: its call performs it, with its arguments by name as the plan's.

        A parameter `remote_key` of the function gets the attempt's key, and is no argument of the plan. What is
        registered so, `recover()` can look up, take back and do again. `how` as in `perform`.
        """

        def decorate(function: Callable[..., object]) -> Callable[..., Performed]:
            signature = inspect.signature(function)
            wants_key = "remote_key" in signature.parameters

            def act(arguments: Mapping[str, Any], remote_key: str) -> object:
                return function(**arguments, **({"remote_key": remote_key} if wants_key else {}))

            self._means[tool] = Means(act, probe, undo_of(compensate, tool))

            @wraps(function)
            def call(*positional: Any, **named: Any) -> Performed:
                bound = signature.bind(*positional, **named, **({"remote_key": ""} if wants_key else {}))
                bound.apply_defaults()
                arguments = keys.canonical(
                    {name: bound.arguments[name] for name in bound.arguments if name != "remote_key"}
                )
                return self.perform(tool, arguments, lambda remote_key: act(arguments, remote_key), **how)

            return call

        return decorate

    def register(self, tool: str, *, probe: Probe | None = None, compensate: Compensate | None = None) -> None:
        """Say how a tool is looked up and taken back, for `recover()` and for `perform`."""
        self._means[tool] = Means(self._means.get(tool, Means()).act, probe, undo_of(compensate, tool))

    def recover(self, *, acts: Mapping[str, Act] | None = None, wait_s: float | None = None) -> Recovery:
        """Settle what earlier processes left open, as far as it can be: look, wait, take back, do again.

        What needs an act is done again where its tool was registered with `effect`, or `acts` has one by effect key;
        else it is due when the program performs it. What nobody can know is listed as unresolved, and is left alone.
        """
        self.guard()
        until = None if wait_s is None else time.monotonic() + wait_s
        return recover(self._effects, self._means, acts or {}, until)

    # The end. ---------------------------------------------------------------------------------------------------------

    def write(self, path: str, body: Json, version: int | None = None) -> Answer:
        """Give one command of working state, under the lease."""
        self.guard()
        try:
            said = self.wire.post(path, body | self._effects.epoch())
        except Refused as refusal:
            self._effects.stop(refusal)
            raise
        self.progress()
        return said

    def end(self, status: str = "completed") -> None:
        """End the session: completed, failed or cancelled. It takes no new intentions from then on."""
        self.guard()
        self._effects.tell_untold()
        self.status = str(self.wire.post(f"/sessions/{self.id}/end", {"status": status}).body.get("status") or status)

    def _end_or_warn(self) -> None:
        """End the session as completed, unless something of it may have happened, or waits, or may begin."""
        self.guard()
        self._effects.tell_untold()
        open_ones = left_open(self._effects)
        if not open_ones:
            self.end()
            return
        told = ", ".join(f"{one.get('handle')} {one.get('tool')} ({_why_open(one)})" for one in open_ones[:10])
        more = f" and {len(open_ones) - 10} more" if len(open_ones) > 10 else ""
        self._waiting("left_open", {"session_key": self.key, "effects": open_ones})
        sentence = (
            f"Session {self.key} is left open and not ended: {told}{more}. Take it up again by its key, or end it."
        )
        warnings.warn(sentence, OpenWork, stacklevel=3)

    def leave(self) -> None:
        """Give the lease back and go, the session left as it is. Never raises: a lease ends by itself too."""
        if self._closed or self._pid != os.getpid():
            return
        with suppress(GatebookError):
            self._effects.tell_untold()
        self._closed = True
        if self.lease is not None:
            if self._beater is not None:
                self._beater.remove(self.lease)
            if not self.lease.lost:
                with suppress(GatebookError):
                    path, body = f"/leases/{self.lease.id}/release", {"epoch": self.lease.epoch}
                    self.wire.post(path, body, patience_s=1.0)
        if self._owns_wire:
            self.wire.close()

    def abandon(self) -> None:
        """Let the lease run out: nothing was done here, and what was before is as unknown as it was."""
        self._closed = True
        if self.lease is not None and self._beater is not None:
            self._beater.remove(self.lease)
        if self._owns_wire:
            self.wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._pid != os.getpid():
            return  # a forked child: session and lease are its parent's
        try:
            if kind is None and self._ends and not self._closed and self.status not in ENDED:
                self._end_or_warn()
        finally:
            self.leave()


def _why_open(effect: Json) -> str:
    """What is open of an effect, in a few words."""
    if effect.get("state") == "planned":
        return "waits for people" if effect.get("leave") == "pending" else "may begin"
    return "unknown"
