"""The async client with the in-memory ledger: the same order, crashes, cancellation, locks."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import gatebook_client as gatebook
import pytest
from gatebook_client.testing import Crash, FakeGatebook

from tests.client.coroutines import run_coroutine
from tests.client.test_perform import MAIL, World

pytestmark = pytest.mark.once


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return run_coroutine(work)


@pytest.fixture
def ledger() -> FakeGatebook:
    ledger = FakeGatebook()
    ledger.declare_tool("mail.send", "probeable", request_lifetime_s=60)
    return ledger


def test_an_act_that_is_a_coroutine_is_awaited_between_dispatch_and_acknowledge(
    ledger: FakeGatebook,
) -> None:
    seen: list[str] = []

    async def act(remote_key: str) -> gatebook.Result:
        await asyncio.sleep(0)
        seen.extend(ledger.steps)
        return gatebook.Result(reference=remote_key)

    async def work() -> gatebook.EffectResult:
        async with ledger.async_session("a", mode="one_shot") as s:
            return await s.perform(*MAIL, act)

    done = run(work())
    assert (done.ok, bool(done.reference)) == (True, True)
    assert seen == ["open", "plan", "dispatch"]
    assert ledger.steps[-1] == "end"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["plan", "dispatch", "acknowledge"])
def test_a_process_that_dies_at_a_step_is_followed_by_exactly_one_act(
    ledger: FakeGatebook, when: str, step: str
) -> None:
    world = World()

    async def perform(process: Any = None) -> gatebook.EffectResult:
        async with ledger.async_session("a", process=process) as s:
            s.register("mail.send", probe=probe)
            return await s.perform(*MAIL, world.act)

    async def probe(attempt: gatebook.AttemptInfo) -> str | None:
        return world.probe(attempt)

    process = ledger.process()
    process.crash_at(when, step)
    with pytest.raises(Crash):
        run(perform(process))
    ledger.sleep(61)
    assert run(perform()).state == "acknowledged"
    assert len(world.done) == 1


def test_a_cancelled_act_has_an_unknown_outcome(ledger: FakeGatebook) -> None:
    async def work() -> None:
        begun = asyncio.Event()

        async def act(_remote_key: str) -> None:
            begun.set()
            await asyncio.sleep(3600)

        async with ledger.async_session("a", mode="one_shot") as s:
            task = asyncio.create_task(s.perform(*MAIL, act))
            await begun.wait()
            assert "dispatch" in ledger.steps
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with pytest.warns(gatebook.OpenWork):
        run(work())
    (effect,) = ledger.effects.values()
    assert (effect.state, effect.reason) == ("failed", "error")


def test_equal_calls_of_two_tasks_are_two_effects_one_after_the_other(
    ledger: FakeGatebook,
) -> None:
    running: list[int] = []

    async def act(_remote_key: str) -> None:
        running.append(1)
        assert len(running) == 1
        await asyncio.sleep(0.01)
        running.pop()

    async def work() -> None:
        async with ledger.async_session("a", mode="one_shot") as s:
            done = await asyncio.gather(*(s.perform(*MAIL, act) for _ in range(3)))
            assert len({result.effect for result in done}) == 3

    run(work())


def test_an_effect_inside_an_equal_effect_does_not_lock_itself_out(ledger: FakeGatebook) -> None:
    ledger.declare_tool("outer", "read_only")

    async def work() -> None:
        async with ledger.async_session("a", mode="one_shot") as s:

            async def act(_remote_key: str) -> str:
                inner = await s.perform("outer", {"depth": 2}, lambda _key: "in")
                return str(inner.result)

            assert (await s.perform("outer", {"depth": 1}, act)).result == "in"

    run(work())


def test_a_decorated_coroutine_function_is_an_effect_and_is_recovered(
    ledger: FakeGatebook,
) -> None:
    sent: list[str] = []

    async def work() -> None:
        async with ledger.async_session("a") as s:

            @s.effect("mail.send")
            async def send(to: str, remote_key: str) -> str:
                sent.append(to)
                return remote_key

            assert (await send("ada")).ok
            assert (await s.recover()).safe

    run(work())
    assert sent == ["ada"]


def test_a_coroutine_in_a_blocking_session_is_refused_and_nothing_runs(
    ledger: FakeGatebook,
) -> None:
    async def act(_remote_key: str) -> None:
        raise AssertionError

    with ledger.session("a", mode="one_shot") as s:
        with pytest.raises(TypeError, match="async_session"):
            s.perform(*MAIL, act)
        assert not ledger.effects
        with pytest.raises(gatebook.Rejected, match="async_session"):
            s.perform(*MAIL, lambda key: act(key))
    assert ledger.states() == {"mail.send": "failed"}


def test_working_state_has_the_same_surface(ledger: FakeGatebook) -> None:
    async def work() -> None:
        async with ledger.async_session("a", end_on_exit=False) as s:
            task = await s.task("build", items=["x"])
            await task.start()
            await task.set_item("x")
            await task.finish()
            decision = await s.decide("d", "yes")
            await decision.conclude("done")

    run(work())
    names = {name for name in dir(gatebook.Session) if not name.startswith("_")} - {"core"}
    assert names <= {
        *(name for name in dir(gatebook.AsyncSession) if not name.startswith("_")),
        *("id", "key", "handle", "status", "process", "resumed", "claimed", "lease", "http"),
    }
    missing = {"take_lease", "start_heartbeats", "load_unanswered", "register_handlers"}
    public = {name for name in vars(gatebook.AsyncSession) if not name.startswith("_")}
    assert public - missing <= names
