"""Sessions, as coroutines: one run of a program, whose later processes use its key too."""

import inspect
import os
import secrets
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial, wraps
from types import TracebackType
from typing import Any, Self, TypeVar

from gatebook_client import effect_keys, lease
from gatebook_client.attempts import EffectRequest
from gatebook_client.effect_steps import EffectSteps
from gatebook_client.effects import Effects, list_open_effects
from gatebook_client.errors import (
    ForkError,
    GatebookError,
    LeaseHeld,
    OpenWork,
    Refused,
    SessionClosed,
    SessionEnded,
)
from gatebook_client.http import AsyncHttpClient, Response
from gatebook_client.lease import HeartbeatSender, Lease
from gatebook_client.recovery import Recovery, ToolHandlers, recover
from gatebook_client.types import ENDED, Act, Compensate, EffectResult, Json, Probe, to_undo
from gatebook_client.waiting import Limits
from gatebook_client.working_state import AsyncWorkingState

R = TypeVar("R")
OnWait = Callable[[str, Json], object]
OnDispatch = Callable[[Json, float], object]
COMPENSATION_LEASE_S = 60  # lease of an ended session


class AsyncSession(EffectSteps, AsyncWorkingState):
    """A session to work in; use it as an async context. `gatebook_client.async_session` opens one.

    A block that ends without an error ends the session (unless `end_on_exit` is false). If effects
    of it are open, the session stays open instead, with the warning OpenWork. After an error it
    stays open for the next process. The lease is released in every case. `resumed` is true if the
    session existed before.
    """

    def __init__(
        self,
        http: AsyncHttpClient,
        opened: Json,
        *,
        resumed: bool,
        end_on_exit: bool,
        on_wait: OnWait,
        owns_http: bool,
    ) -> None:
        # Random and never written to a file, so that no process can impersonate it after a crash.
        self.process = secrets.token_hex(16)
        self.id = str(opened["id"])
        self.key = str(opened.get("key") or "")
        self.handle = str(opened.get("handle") or "")
        self.status = str(opened.get("status") or "")
        self.resumed = resumed
        self.http = http
        self.claimed: Json = {}  # kind, session, task of a claim
        self.lease: Lease | None = None
        self._on_wait = on_wait
        self._end_on_exit = end_on_exit
        self._owns_http = owns_http
        self._closed = False
        self._pid = os.getpid()
        self._heartbeats: HeartbeatSender | None = None
        self._effects = Effects(self)
        self._handlers: dict[str, ToolHandlers] = {}
        self._names = effect_keys.CallCounter()
        self._intent_locks: defaultdict[str, AbstractAsyncContextManager[None]] = defaultdict(
            http.io.lock
        )
        self._lock = threading.Lock()
        self._compensation_lock = http.io.lock()

    # The lease.

    async def take_lease(
        self,
        heartbeats: HeartbeatSender,
        ttl_s: int,
        *,
        wait_s: float = 0.0,
        takeover: bool = False,
    ) -> None:
        """Take the lease; wait up to `wait_s` for another process's to expire.

        Raises LeaseHeld.
        """
        until = time.monotonic() + wait_s
        while True:
            try:
                self.lease = await lease.acquire_lease(
                    self.http, self.id, self.process, ttl_s, takeover=takeover
                )
                break
            except LeaseHeld:
                if time.monotonic() + 1 > until:
                    raise
                await self.http.sleep(1)
        self.start_heartbeats(heartbeats)

    def start_heartbeats(self, heartbeats: HeartbeatSender) -> None:
        """Send heartbeats for the lease from now on."""
        if self.lease is not None:
            self._heartbeats = heartbeats
            heartbeats.add(self.lease)

    async def load_unanswered(self, released_at_us: int | None) -> None:
        """Load the effects of an earlier process, so that an unanswered call is not repeated.

        `released_at_us`: when that process released its lease and thus had all its results; None
        if it did not, or if this is unknown.
        """
        await self._effects.load_unanswered(released_at_us)

    async def check_active(self) -> None:
        """Raise unless this process may still begin an effect.

        Raises ForkError, SessionClosed, LeaseLost, ServerUnavailable.
        """
        if self._pid != os.getpid():
            raise ForkError
        if self._closed:
            raise SessionClosed
        if self.lease is not None and self.status not in ENDED:
            await lease.ensure_lease(self.http, self.lease)

    def progress(self, note: str = "") -> None:
        """Report progress that nothing else shows.

        Never call this from a timer: it would report progress that did not happen.
        """
        if self.lease is not None:
            self.lease.progress(note)

    @contextmanager
    def quiet(self, seconds: float) -> Iterator[None]:
        """Announce that no progress will be reported for up to so many seconds."""
        if self.lease is not None:
            self.lease.quiet(seconds)
        yield
        if self.lease is not None:
            self.lease.quiet(0)

    # Effects.

    async def perform(
        self,
        /,
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
        wait_for_people_s: float | None = None,
        wait_for_windows_s: float | None = None,
        free_text: Sequence[str] = (),
        on_dispatch: OnDispatch | None = None,
        **plan: Any,
    ) -> EffectResult:
        """Perform an effect once and return its result.

        `act` gets the remote key of the attempt and is called only after Gatebook accepted the
        dispatch; in an async session it may return an awaitable. `plan` may contain task, turn,
        why, preconditions, parent_effect, meta. `wait_for_people_s` limits the waits that a person
        ends, `wait_for_windows_s` those that end by themselves, `wait_s` both; by default there is
        no limit, and 0 means not to wait at all.
        `on_dispatch` is called before `act` with the answer to the dispatch and the monotonic time
        of its request: from then on, no request may live longer than the `request_lifetime_s` of
        that answer.

        Raises what `act` raises, after reporting it (`Rejected`: nothing happened; a timeout or
        any other error: the outcome is unknown). Also raises PermissionRefused,
        HumanDecisionRequired, NotYet, LeaseLost, SessionEnded, ServerUnavailable and Refused,
        each of which means that nothing was begun unless it says otherwise.
        """
        return await self._perform(
            tool,
            arguments,
            act,
            probe,
            compensate,
            key,
            call_id,
            Limits.from_now(wait_s, wait_for_people_s, wait_for_windows_s),
            tuple(free_text),
            on_dispatch=on_dispatch,
            target=target,
            **plan,
        )

    async def compensate(
        self, /, effect: EffectResult | str, tool: str, arguments: Any, act: Act, **how: Any
    ) -> EffectResult:
        """Compensate an effect by a separate effect. `how` as in `perform`.

        Works after the end of the session too, under a lease that is taken for this and released.
        Raises LeaseHeld while another process has it.
        """
        undone = effect if isinstance(effect, str) else effect.effect
        options = {name: how.pop(name, None) for name in ("probe", "compensate")}
        names = {name: how.pop(name, "") for name in ("key", "call_id")}
        free_text = tuple(how.pop("free_text", ()))
        take_back = partial(
            self._perform,
            tool,
            arguments,
            act,
            options["probe"],
            options["compensate"],
            names["key"],
            names["call_id"],
            Limits.from_now(
                *(
                    how.pop(name, None)
                    for name in ("wait_s", "wait_for_people_s", "wait_for_windows_s")
                )
            ),
            free_text,
            compensates=undone,
            **how,
        )
        try:
            return await take_back()
        except SessionEnded:  # it was leased, and another process ended it
            if self.lease is not None or self.status not in ENDED:
                raise
        async with self._lease_to_compensate():
            return await take_back()

    @asynccontextmanager
    async def _lease_to_compensate(self) -> AsyncIterator[None]:
        """Lease a session that has ended while one of its effects is compensated."""
        async with self._compensation_lock:
            self.lease = acquired = await lease.acquire_lease(
                self.http, self.id, self.process, COMPENSATION_LEASE_S, to_compensate=True
            )
            try:
                yield
            finally:
                self.lease = None
                with suppress(GatebookError):  # otherwise it expires
                    await self.http.post(
                        f"/leases/{acquired.id}/release", {"epoch": acquired.epoch}
                    )

    async def _perform(
        self,
        tool: str,
        arguments: Any,
        act: Act,
        probe: Probe | None,
        compensate: Compensate | None,
        key: str,
        call_id: str,
        limits: Limits,
        free_text: tuple[str, ...],
        compensates: str = "",
        on_dispatch: OnDispatch | None = None,
        **plan: Any,
    ) -> EffectResult:
        await self.check_active()
        if not self.http.io.is_async and inspect.iscoroutinefunction(act):
            raise TypeError("The act is a coroutine function. Open the session by async_session.")
        arguments = effect_keys.canonical(arguments)
        digest = effect_keys.compute_call_digest(tool, arguments, free_text)
        counted = key or f"{call_id} {digest} {compensates}"
        body = {name: value for name, value in plan.items() if value} | {
            "tool": tool,
            "arguments": arguments,
        }
        if free_text:
            body["free_text"] = list(free_text)
        registered = self._handlers.get(tool, ToolHandlers())
        request = EffectRequest(
            tool,
            arguments,
            act,
            body,
            probe or registered.probe,
            to_undo(compensate, tool) or registered.undo,
            compensates,
        )
        request.limits, request.on_wait = limits, self._on_wait
        request.on_dispatch = on_dispatch or request.on_dispatch
        # Equal calls of two threads or tasks are two effects: the second begins after the first has
        # ended.
        async with self._intent(digest):
            ordinal = self._names.take(counted)
            if key:
                body["effect_key"] = key
            elif call_id:
                body |= {"call_id": call_id, "ordinal": ordinal}
            else:
                body["effect_key"] = effect_keys.effect_key(tool, digest, ordinal)
            try:
                performed = await self._effects.perform(request)
            except BaseException:
                self._names.give_back(counted)
                raise
        self.progress(performed.handle)
        return performed

    def _intent(self, digest: str) -> AbstractAsyncContextManager[None]:
        with self._lock:
            return self._intent_locks[digest]

    def effect(
        self,
        tool: str,
        *,
        probe: Probe | None = None,
        compensate: Compensate | None = None,
        **how: Any,
    ) -> Callable[[Callable[..., object]], Callable[..., Coroutine[Any, Any, EffectResult]]]:
        """Decorate a function so that calling it performs an effect.

        Its arguments, by name, are those of the plan. A parameter `remote_key` gets the key of the
        attempt and is not part of the plan. `recover()` can probe, compensate and repeat effects
        of a tool registered this way. `how` as in `perform`.
        """

        return decorate_act(self, self.perform, tool, probe, compensate, how)

    def register_handlers(self, tool: str, handlers: ToolHandlers) -> None:
        """Register the functions of a tool."""
        self._handlers[tool] = handlers

    def register(
        self, tool: str, *, probe: Probe | None = None, compensate: Compensate | None = None
    ) -> None:
        """Register how a tool is probed and compensated, for `recover()` and `perform`."""
        self._handlers[tool] = ToolHandlers(
            self._handlers.get(tool, ToolHandlers()).act, probe, to_undo(compensate, tool)
        )

    async def recover(
        self,
        *,
        acts: Mapping[str, Act] | None = None,
        wait_s: float | None = None,
        wait_for_people_s: float | None = None,
        wait_for_windows_s: float | None = None,
    ) -> Recovery:
        """Settle what earlier processes left open: probe, wait, compensate, repeat.

        An effect is repeated if its tool was registered with `effect`, or if `acts` has a function
        for its effect key; otherwise it is due when the program performs it. An effect whose
        outcome cannot be determined is listed as unresolved and is not changed.
        """
        await self.check_active()
        limits = Limits.from_now(wait_s, wait_for_people_s, wait_for_windows_s)
        return await recover(self._effects, self._handlers, acts or {}, limits)

    # The end.

    async def send_command(self, path: str, body: Json, version: int | None = None) -> Response:
        """Send one command under the lease, and count it as progress."""
        await self.check_active()
        try:
            response = await self.http.post(path, body | self._effects.epoch_json())
        except Refused as refusal:
            self._effects.raise_if_ended(refusal)
            raise
        self.progress()
        return response

    async def end(self, status: str = "completed") -> None:
        """End the session: completed, failed or cancelled. It then accepts no new effects."""
        await self.check_active()
        await self._effects.send_unsent_reports()
        ended = (await self.http.post(f"/sessions/{self.id}/end", {"status": status})).body
        self.status = str(ended.get("status") or status)

    async def _end_or_warn(self) -> None:
        """End the session as completed, or warn if effects of it are open."""
        await self.check_active()
        await self._effects.send_unsent_reports()
        open_effects = await list_open_effects(self._effects)
        if not open_effects:
            await self.end()
            return
        summary = ", ".join(
            f"{effect.get('handle')} {effect.get('tool')} ({_open_reason(effect)})"
            for effect in open_effects[:10]
        )
        more = f" and {len(open_effects) - 10} more" if len(open_effects) > 10 else ""
        self._on_wait("left_open", {"session_key": self.key, "effects": open_effects})
        sentence = (
            f"Session {self.key} is left open and not ended: {summary}{more}. "
            "Open it again by its key, or end it."
        )
        # Shown at the line of the block: two frames farther in a blocking session.
        warnings.warn(sentence, OpenWork, stacklevel=3 if self.http.io.is_async else 5)

    async def close(self) -> None:
        """Release the lease and close this object; the session itself does not end.

        Never raises: a lease that is not released expires.
        """
        if self._closed or self._pid != os.getpid():
            return
        with suppress(GatebookError):
            await self._effects.send_unsent_reports()
        self._closed = True
        if self.lease is not None:
            if self._heartbeats is not None:
                self._heartbeats.remove(self.lease)
            if not self.lease.lost:
                with suppress(GatebookError):
                    path, body = f"/leases/{self.lease.id}/release", {"epoch": self.lease.epoch}
                    await self.http.post(path, body, patience_s=1.0)
        if self._owns_http:
            await self.http.close()

    async def abandon(self) -> None:
        """Close this object without releasing the lease.

        Nothing was done in it, and what earlier processes did is still unknown.
        """
        self._closed = True
        if self.lease is not None and self._heartbeats is not None:
            self._heartbeats.remove(self.lease)
        if self._owns_http:
            await self.http.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._pid != os.getpid():
            return  # A forked child: session and lease belong to the parent.
        try:
            if kind is None and self._end_on_exit and not self._closed and self.status not in ENDED:
                await self._end_or_warn()
        finally:
            await self.close()


def _open_reason(effect: Json) -> str:
    """Return why an effect is open, in a few words."""
    if effect.get("state") == "planned":
        return "waits for people" if effect.get("permission") == "pending" else "may begin"
    return "unknown"


def decorate_act(
    session: "AsyncSession",
    perform: Callable[..., R],
    tool: str,
    probe: Probe | None,
    compensate: Compensate | None,
    how: Mapping[str, Any],
) -> Callable[[Callable[..., object]], Callable[..., R]]:
    """Return the decorator of `effect`; calls of the function go to `perform`."""

    def decorate(function: Callable[..., object]) -> Callable[..., R]:
        signature = inspect.signature(function)
        wants_key = "remote_key" in signature.parameters

        def act(arguments: Mapping[str, Any], remote_key: str) -> object:
            return function(**arguments, **({"remote_key": remote_key} if wants_key else {}))

        session.register_handlers(tool, ToolHandlers(act, probe, to_undo(compensate, tool)))

        @wraps(function)
        def call(*positional: Any, **named: Any) -> R:
            bound = signature.bind(
                *positional, **named, **({"remote_key": ""} if wants_key else {})
            )
            bound.apply_defaults()
            arguments = effect_keys.canonical(
                {name: bound.arguments[name] for name in bound.arguments if name != "remote_key"}
            )
            return perform(tool, arguments, lambda remote_key: act(arguments, remote_key), **how)

        return call

    return decorate
