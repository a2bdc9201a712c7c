"""Sessions: one run of a program, identified by a key that its later processes use too."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from gatebook_client.async_sessions import AsyncSession, decorate_act
from gatebook_client.blocking import run_blocking, to_blocking
from gatebook_client.http import HttpClient
from gatebook_client.lease import Lease
from gatebook_client.types import Compensate, EffectResult, Json, Probe
from gatebook_client.working_state import WorkingState


class Session(WorkingState[AsyncSession]):
    """A session to work in; use it as a context. `gatebook_client.session` opens one.

    A block that ends without an error ends the session (unless `end_on_exit` is false). If effects
    of it are open, the session stays open instead, with the warning OpenWork. After an error it
    stays open for the next process. The lease is released in every case. `resumed` is true if the
    session existed before. Safe for threads. `AsyncSession` describes the methods.
    """

    def __init__(self, core: AsyncSession, http: HttpClient) -> None:
        super().__init__(core)
        self.http = http

    perform = to_blocking(AsyncSession.perform)
    compensate = to_blocking(AsyncSession.compensate)
    plan = to_blocking(AsyncSession.plan)
    find_effect = to_blocking(AsyncSession.find_effect)
    wait = to_blocking(AsyncSession.wait)
    dispatch = to_blocking(AsyncSession.dispatch)
    acknowledge = to_blocking(AsyncSession.acknowledge)
    fail = to_blocking(AsyncSession.fail)
    result = to_blocking(AsyncSession.result)
    verdict = to_blocking(AsyncSession.verdict)
    report = to_blocking(AsyncSession.report)
    recover = to_blocking(AsyncSession.recover)
    send_command = to_blocking(AsyncSession.send_command)
    check_active = to_blocking(AsyncSession.check_active)
    end = to_blocking(AsyncSession.end)
    close = to_blocking(AsyncSession.close)
    abandon = to_blocking(AsyncSession.abandon)

    @property
    def id(self) -> str:
        """The id of the session."""
        return self.core.id

    @property
    def key(self) -> str:
        """Its key, under which the next process opens it again."""
        return self.core.key

    @property
    def handle(self) -> str:
        """Its short name on the pages."""
        return self.core.handle

    @property
    def status(self) -> str:
        """Its status, as far as this process knows."""
        return self.core.status

    @property
    def process(self) -> str:
        """The random name of this process."""
        return self.core.process

    @property
    def resumed(self) -> bool:
        """Whether the session existed before."""
        return self.core.resumed

    @property
    def claimed(self) -> Json:
        """What `claim` claimed: kind, session, task."""
        return self.core.claimed

    @property
    def lease(self) -> Lease | None:
        """The lease, in mode leased."""
        return self.core.lease

    def progress(self, note: str = "") -> None:
        """Report progress that nothing else shows. Never call this from a timer."""
        self.core.progress(note)

    @contextmanager
    def quiet(self, seconds: float) -> Iterator[None]:
        """Announce that no progress will be reported for up to so many seconds."""
        with self.core.quiet(seconds):
            yield

    def effect(
        self,
        tool: str,
        *,
        probe: Probe | None = None,
        compensate: Compensate | None = None,
        **how: Any,
    ) -> Callable[[Callable[..., object]], Callable[..., EffectResult]]:
        """Decorate a function so that calling it performs an effect, as `AsyncSession.effect`."""
        return decorate_act(self.core, self.perform, tool, probe, compensate, how)

    def register(
        self, tool: str, *, probe: Probe | None = None, compensate: Compensate | None = None
    ) -> None:
        """Register how a tool is probed and compensated, for `recover()` and `perform`."""
        self.core.register(tool, probe=probe, compensate=compensate)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        run_blocking(self.core.__aexit__(kind, error, trace))
