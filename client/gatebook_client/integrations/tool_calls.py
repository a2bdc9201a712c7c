"""Tool calls of agent frameworks as effects: what every integration shares.

A call is performed as one effect of a session, under its call id. It ends in one of three ways:
`Done`, also if an earlier process did it; `Held`, because a person must decide, now or while no
process lives; or `Denied`. Any other error is raised, and the tool was then not called, or its call
raised that error.
"""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from gatebook_client.async_sessions import AsyncSession
from gatebook_client.effect_keys import canonical, compute_call_digest
from gatebook_client.errors import (
    HumanDecisionRequired,
    NotYet,
    PermissionRefused,
    Refused,
    Rejected,
)
from gatebook_client.sessions import Session
from gatebook_client.types import (
    Compensate,
    EffectResult,
    Json,
    PlannedEffect,
    Probe,
    Result,
    to_undo,
)

S = TypeVar("S", AsyncSession, Session)
Target = Mapping[str, str] | Callable[[Json], Mapping[str, str]]


@dataclass
class CurrentCall:
    """The tool call under way: the key for the remote, and what the tool reports about it.

    A tool sends `remote_key` to the remote, so that an attempt can be looked up after a crash, and
    sets `reference` to the remote's name for what happened.
    """

    remote_key: str
    reference: str = ""


_current_call: ContextVar[CurrentCall | None] = ContextVar("gatebook_current_call", default=None)


@contextmanager
def make_current(call: CurrentCall) -> Iterator[None]:
    """Make a call current while its tool runs."""
    token = _current_call.set(call)
    try:
        yield
    finally:
        _current_call.reset(token)


def get_current_call() -> CurrentCall:
    """Return the tool call under way. Raises LookupError outside one."""
    call = _current_call.get()
    if call is None:
        raise LookupError("No call of a gated tool is under way.")
    return call


@dataclass(frozen=True)
class GatedTool:
    """How the calls of one tool are planned and looked up.

    `tool` is its name in Gatebook, by default the framework's. `target` says where it acts, or
    derives that from the arguments. `free_text` names arguments that do not count, as a model words
    them differently every time. `probe` and `compensate` as in `Session.register`.
    """

    tool: str = ""
    target: Target | None = None
    free_text: Sequence[str] = ()
    probe: Probe | None = None
    compensate: Compensate | None = None


@dataclass(frozen=True)
class Done:
    """A call that was done. `value` is what the tool returned, if it was called just now."""

    effect: EffectResult
    value: Any = None

    @property
    def again(self) -> bool:
        """Whether the call was done before, so that only its stored result is there."""
        return self.effect.already_done

    @property
    def failed(self) -> bool:
        """Whether the tool ran and said that it failed."""
        return self.effect.outcome == "error"

    @property
    def stored_result(self) -> Any:
        """The stored result, or a sentence in its place where none was kept."""
        effect = self.effect
        if effect.state == "compensated":
            return f"{effect.tool} was done in an earlier process, and was undone since."
        if effect.result is not None or not effect.already_done:
            return effect.result
        reference = f" Reference: {effect.reference}." if effect.reference else ""
        return (
            f"{effect.tool} was done before, by an earlier process, and is not repeated. Its result"
            f" is not stored.{reference}"
        )


@dataclass(frozen=True)
class Held:
    """A call that waits for a person; the tool was not called.

    `reason` is that of `NotYet`, or `outcome`: a person must say what became of an earlier attempt.
    """

    reason: str
    message: str
    effect: str
    gate: str = ""
    gate_url: str = ""
    until_us: int | None = None
    error: Exception | None = field(default=None, compare=False)

    @property
    def next_step(self) -> str:
        """What a model reads that can only make the call again: why, where, and what to do."""
        where = f" People decide at {self.gate_url}." if self.gate_url else ""
        return (
            f"{self.message.rstrip('.')}. The call was not executed.{where} After that, make"
            " exactly this call again; it then runs once."
        )

    def to_json(self) -> Json:
        """Return what the framework keeps and shows with the interrupted call."""
        return {
            "gatebook": "held",
            "reason": self.reason,
            "message": self.message,
            "effect": self.effect,
            "gate": self.gate,
            "gate_url": self.gate_url,
            "until_us": self.until_us,
        }


@dataclass(frozen=True)
class Denied:
    """A call that was refused, with the reviewer's words in `message`; nothing happened."""

    tool: str
    status: str
    message: str
    reviewer_words: str = ""


Outcome = Done | Held | Denied


@dataclass
class BegunCall:
    """A call with permission whose tool runs elsewhere. Its result is reported once.

    While nothing is reported, it may have happened.
    """

    current: CurrentCall
    _returned: "asyncio.Future[Any]"
    _performing: "asyncio.Task[Outcome]"

    async def report(self, value: Any) -> Outcome:
        """Report what the tool returned, or by a `BaseException` what it raised.

        Later reports change nothing. Raises that error, or an error of the report.
        """
        if not self._returned.done():
            if isinstance(value, BaseException):
                self._returned.set_exception(value)
            else:
                self._returned.set_result(value)
        return await asyncio.shield(self._performing)


@dataclass
class _Act:
    """One call of a tool: its value, and an error by which the tool says that it ran and failed."""

    value: Any = None
    failure: BaseException | None = None


@dataclass
class ToolCalls(Generic[S]):
    """Performs the tool calls of an agent as effects of one session.

    `tools` describes tools by the framework's names; all others are effects under their own names,
    except those in `ungated`, which are called without Gatebook. `failures` are the errors by which
    a tool says that it ran and failed: reported with the outcome `error`, and raised. After any
    other error the outcome is unknown. Held calls wait `wait_for_people_s` in this process first.
    """

    session: S
    tools: Mapping[str, GatedTool] = field(default_factory=dict)
    ungated: Collection[str] = ()
    wait_for_people_s: float | None = 0.0
    wait_for_windows_s: float | None = None
    failures: tuple[type[BaseException], ...] = ()
    to_result: Callable[[Any], Result] = Result.from_return_value
    # Ids of the effects that this process has performed, by call id and digest.
    _done: dict[tuple[str, str], str] = field(default_factory=dict)
    _held: set[str] = field(default_factory=set)  # call ids

    def __post_init__(self) -> None:
        self._async_locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._locks: defaultdict[tuple[str, str], threading.Lock] = defaultdict(threading.Lock)
        self._guard = threading.Lock()

    def is_gated(self, name: str) -> bool:
        """Return whether calls of a tool go through Gatebook."""
        return name not in self.ungated

    def describe_call(self, name: str, arguments: Any) -> Json:
        """Return the tool, the arguments and the target of a call, as keywords of `plan`."""
        gated = self.tools.get(name, GatedTool())
        arguments = canonical(arguments)
        target = gated.target(arguments) if callable(gated.target) else gated.target
        return {
            "tool": gated.tool or name,
            "arguments": arguments,
            "target": target,
            "free_text": tuple(gated.free_text),
        }

    async def perform(
        self: "ToolCalls[AsyncSession]",
        name: str,
        arguments: Any,
        handler: Callable[[], Awaitable[Any]],
        *,
        call_id: str,
        meta: Mapping[str, Any] | None = None,
    ) -> Outcome:
        """Perform a call in an async session; `handler` calls the tool.

        A call is an effect under its call id and its intent: repeated in this process or another,
        it is not done again.
        """
        how, identity = self._prepare(name, arguments, call_id, meta)
        async with self._async_locks[identity]:
            done = self._done.get(identity)
            if done:
                return Done(await self.session.result(done))
            act = _Act()

            async def call_tool(remote_key: str) -> Result:
                with self._run_call(act, remote_key) as call:
                    act.value = await handler()
                return self._read_result(act, call)

            try:
                await self.check_change_request(call_id)
                effect = await self.session.perform(act=call_tool, **how)
            except (NotYet, HumanDecisionRequired, PermissionRefused, Rejected) as error:
                self._held.add(call_id)
                return read_error(str(how["tool"]), error)
            # Under the lock: an equal call that waits for it must find this one done.
            return self._finish(identity, effect, act)

    def perform_blocking(
        self: "ToolCalls[Session]",
        name: str,
        arguments: Any,
        handler: Callable[[], Any],
        *,
        call_id: str,
        meta: Mapping[str, Any] | None = None,
    ) -> Outcome:
        """Perform a call in a blocking session. Safe for threads."""
        how, identity = self._prepare(name, arguments, call_id, meta)
        with self._guard:
            lock = self._locks[identity]
        with lock:
            done = self._done.get(identity)
            if done:
                return Done(self.session.result(done))
            act = _Act()

            def call_tool(remote_key: str) -> Result:
                with self._run_call(act, remote_key) as call:
                    act.value = handler()
                return self._read_result(act, call)

            try:
                self._check_change_request_blocking(call_id)
                effect = self.session.perform(act=call_tool, **how)
            except (NotYet, HumanDecisionRequired, PermissionRefused, Rejected) as error:
                self._held.add(call_id)
                return read_error(str(how["tool"]), error)
            # Under the lock: an equal call that waits for it must find this one done.
            return self._finish(identity, effect, act)

    async def begin(
        self: "ToolCalls[AsyncSession]",
        name: str,
        arguments: Any,
        *,
        call_id: str,
        meta: Mapping[str, Any] | None = None,
    ) -> BegunCall | Outcome:
        """Perform a call whose tool runs elsewhere: return it as soon as that may run.

        Otherwise return the outcome, as `perform` does.
        """
        loop = asyncio.get_running_loop()
        begun: asyncio.Future[CurrentCall] = loop.create_future()
        returned: asyncio.Future[Any] = loop.create_future()

        async def await_report() -> Any:
            begun.set_result(get_current_call())
            return await returned

        performing = asyncio.ensure_future(
            self.perform(name, arguments, await_report, call_id=call_id, meta=meta)
        )
        try:
            either: set[asyncio.Future[Any]] = {begun, performing}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            performing.cancel()
            raise
        if begun.done():
            return BegunCall(begun.result(), returned, performing)
        return performing.result()

    async def list_waiting(self: "ToolCalls[AsyncSession]") -> list[Held]:
        """Return the calls of the session that wait for approval, oldest first."""
        return [
            _hold(planned)
            for planned in await self._list_planned()
            if planned.permission == "pending"
        ]

    async def find_approved(
        self: "ToolCalls[AsyncSession]", name: str, arguments: Any, call_id: str
    ) -> str:
        """Return the id of an approved call that was not begun and that a new call repeats.

        A model that read that its call waits makes it again, under a new id. Otherwise return
        `call_id`.
        """
        if not self.session.resumed and not self._held:
            return call_id
        how = self.describe_call(name, arguments)
        intent = how["tool"], how["arguments"], how["free_text"]
        approved = {
            planned.call_id: planned
            for planned in await self._list_planned()
            if planned.permission == "granted" and planned.gate and planned.tool == how["tool"]
        }
        if call_id in approved:
            return call_id
        for earlier, planned in approved.items():
            plan = (await self.session.http.get(f"/effects/{planned.effect}/plan")).body
            same = compute_call_digest(planned.tool, plan.get("arguments"), how["free_text"])
            if earlier and same == compute_call_digest(*intent):
                return earlier
        return call_id

    async def _list_planned(self: "ToolCalls[AsyncSession]") -> list[PlannedEffect]:
        """Return the effects of the session that have not begun, oldest first; at most 200."""
        http = self.session.http
        filters: Json = {"session": self.session.id, "state": "planned", "limit": 200}
        items = (await http.get("/effects", **filters)).body["items"]
        return [PlannedEffect.from_json(item, http.url) for item in reversed(items)]

    async def find_wait(
        self: "ToolCalls[AsyncSession]", name: str, arguments: Any, call_id: str
    ) -> Held | None:
        """Plan a call, and return what people must decide first; None if `perform` may be called.

        Raises every NotYet that no person ends.
        """
        how = self.describe_call(name, arguments)
        try:
            await self.check_change_request(call_id)
            planned = await self.session.plan(**how, call_id=call_id)
        except PermissionRefused:
            return None
        except NotYet as error:
            outcome = read_error(how["tool"], error)
            return outcome if isinstance(outcome, Held) else None
        if planned.answer != "wait" or await self._is_done_unheard(planned):
            return None
        self._held.add(call_id)
        return _hold(planned)

    async def _is_done_unheard(self: "ToolCalls[AsyncSession]", planned: PlannedEffect) -> bool:
        """Return whether an earlier process did the same call, and its model got no result.

        `perform` finds that, so no person is asked.
        """
        done = (await self.session.resume())["done"]
        return any(
            effect.get("unheard") and effect.get("intent_digest") == planned.intent_digest
            for effect in done
        )

    async def check_change_request(self: "ToolCalls[AsyncSession]", call_id: str) -> None:
        """Raise PermissionRefused if people have requested changes to a call.

        Planning it again would ask them the same again.
        """
        if not self.session.resumed and call_id not in self._held:
            return
        with suppress(Refused, NotYet):  # the call is new, or nothing is decided
            try:
                await self.session.wait(call_id=call_id, wait_s=0)
            except PermissionRefused as refusal:
                if refusal.status == "changes_requested":
                    raise

    def _check_change_request_blocking(self: "ToolCalls[Session]", call_id: str) -> None:
        if not self.session.resumed and call_id not in self._held:
            return
        with suppress(Refused, NotYet):
            try:
                self.session.wait(call_id=call_id, wait_s=0)
            except PermissionRefused as refusal:
                if refusal.status == "changes_requested":
                    raise

    def _prepare(
        self, name: str, arguments: Any, call_id: str, meta: Mapping[str, Any] | None
    ) -> tuple[Json, tuple[str, str]]:
        """Return the arguments of `Session.perform` without the act, and the call's identity."""
        if not call_id:
            raise ValueError(f"The call of {name} has no id, so it was not begun.")
        gated = self.tools.get(name, GatedTool())
        how = self.describe_call(name, arguments)
        how |= {"call_id": call_id, "meta": meta}
        how |= {name: getattr(self, name) for name in ("wait_for_people_s", "wait_for_windows_s")}
        if gated.probe:
            how["probe"] = gated.probe
        if gated.compensate:
            how["compensate"] = to_undo(gated.compensate, how["tool"])
        digest = compute_call_digest(how["tool"], how["arguments"], how["free_text"])
        return how, (call_id, digest)

    @contextmanager
    def _run_call(self, act: _Act, remote_key: str) -> Iterator[CurrentCall]:
        """Make the call current while the tool runs, and keep an error that says it failed."""
        call = CurrentCall(remote_key)
        with make_current(call):
            try:
                yield call
            except self.failures as error:
                act.failure = error

    def _read_result(self, act: _Act, call: CurrentCall) -> Result:
        if act.failure is not None:
            return Result("error", call.reference, {"error": str(act.failure)[:4000]})
        result = self.to_result(act.value)
        return Result(result.outcome, result.reference or call.reference, result.result)

    def _finish(self, identity: tuple[str, str], effect: EffectResult, act: _Act) -> Done:
        self._done[identity] = effect.effect
        if act.failure is not None:
            raise act.failure
        return Done(effect, act.value)


def _hold(planned: PlannedEffect) -> Held:
    """Return an effect that waits for approval as a held call."""
    sentence = f"{planned.handle} is not approved yet; nothing was begun."
    gate, url = planned.gate, planned.gate_url
    error = NotYet(sentence, planned.effect, reason="people", gate=gate, gate_url=url)
    return Held("people", sentence, planned.effect, gate, url, error=error)


def read_error(
    tool: str, error: NotYet | HumanDecisionRequired | PermissionRefused | Rejected
) -> Held | Denied:
    """Return the outcome for an error that a person ends, or ended. Raises every other NotYet."""
    if isinstance(error, NotYet):
        if error.reason not in ("people", "stop"):
            raise error
        where = error.gate, error.gate_url, error.until_us
        return Held(error.reason, str(error), error.effect, *where, error=error)
    if isinstance(error, HumanDecisionRequired):
        return Held("outcome", str(error), error.effect, error=error)
    if isinstance(error, Rejected):
        return Denied(tool, "rejected", f"{tool} was not done; the remote refused: {error}")
    return Denied(tool, error.status, f"{tool} was not done: {error}", error.message)


def describe_failure(stored: Any) -> str:
    """Return what a tool said when it failed, from the stored result of its call."""
    return str(stored.get("error") if isinstance(stored, dict) else stored)
