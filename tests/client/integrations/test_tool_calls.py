"""What all integrations share, on the in-memory Gatebook: no framework is needed."""

from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gatebook_client as gatebook
import pytest
from gatebook_client.integrations.tool_calls import (
    BegunCall,
    Denied,
    Done,
    GatedTool,
    Held,
    ToolCalls,
    get_current_call,
)
from gatebook_client.testing import FakeGatebook

from tests.client.coroutines import run_coroutine

pytestmark = pytest.mark.once
TOOLS = {"send_mail": GatedTool("mail.send", target={"list": "all"}, free_text=("why",))}


@pytest.fixture
def ledger() -> FakeGatebook:
    ledger = FakeGatebook()
    ledger.declare_tool("mail.send", "opaque", request_lifetime_s=60)
    return ledger


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return run_coroutine(work)


def test_a_call_repeated_in_the_same_process_is_answered_from_the_stored_result(
    ledger: FakeGatebook,
) -> None:
    sent: list[str] = []

    async def send() -> str:
        sent.append(get_current_call().remote_key)
        get_current_call().reference = "message-1"
        return "sent"

    async def work() -> None:
        async with ledger.async_session("a") as s:
            calls = ToolCalls(s, TOOLS)
            done = await calls.perform("send_mail", {"to": "ada"}, send, call_id="c1")
            assert isinstance(done, Done)
            assert (done.value, done.again, done.effect.reference) == ("sent", False, "message-1")
            again = await calls.perform("send_mail", {"to": "ada"}, send, call_id="c1")
            assert isinstance(again, Done)
            assert (again.again, again.stored_result) == (True, "sent")
            await calls.perform("send_mail", {"to": "eve"}, send, call_id="c1")  # another intent

    run(work())
    assert len(set(sent)) == len(sent) == 2
    with pytest.raises(LookupError):
        get_current_call()


def test_without_an_id_or_without_gatebook_the_tool_is_not_called(ledger: FakeGatebook) -> None:
    async def send() -> None:
        raise AssertionError

    async def work() -> None:
        s = await ledger.async_session("a", mode="one_shot")
        calls = ToolCalls(s, TOOLS)
        with pytest.raises(ValueError, match="no id"):
            await calls.perform("send_mail", {}, send, call_id="")
        ledger.go_down()
        with pytest.raises(gatebook.ServerUnavailable):
            await calls.perform("send_mail", {}, send, call_id="c1")
        await s.close()
        with pytest.raises(gatebook.SessionClosed):
            await calls.perform("send_mail", {}, send, call_id="c1")

    run(work())


def test_a_held_call_is_not_done_until_it_is_approved(ledger: FakeGatebook) -> None:
    ledger.declare_tool("mail.send", "opaque", needs_approval=True)
    sent: list[str] = []
    with ledger.session("a", end_on_exit=False) as s:
        calls = ToolCalls(s, TOOLS)
        how: Any = ("send_mail", {"to": "ada"}, lambda: sent.append("ada"))
        held = calls.perform_blocking(*how, call_id="c1")
        assert isinstance(held, Held)
        assert (held.reason, bool(held.gate), sent) == ("people", True, [])
        assert held.to_json()["effect"] == held.effect
        ledger.answer_gates("approved")
        assert isinstance(calls.perform_blocking(*how, call_id="c1"), Done)
        assert sent == ["ada"]


def test_a_refused_call_is_not_done(ledger: FakeGatebook) -> None:
    ledger.declare_tool("mail.send", "opaque", needs_approval=True)
    with ledger.session("a", end_on_exit=False) as s:
        calls = ToolCalls(s, TOOLS)
        how: Any = ("send_mail", {"to": "ada"}, lambda: pytest.fail("called"))
        assert isinstance(calls.perform_blocking(*how, call_id="c1"), Held)
        ledger.answer_gates("denied")
        denied = calls.perform_blocking(*how, call_id="c1")
        assert isinstance(denied, Denied)
        assert (denied.status, denied.tool) == ("denied", "mail.send")
        assert denied.message.startswith("mail.send was not done: denied")


def test_an_error_that_says_it_failed_is_an_outcome_and_any_other_is_unknown(
    ledger: FakeGatebook,
) -> None:
    ledger.declare_tool("page.put", "opaque")

    def fail(error: Exception) -> None:
        raise error

    with ledger.session("a", end_on_exit=False) as s:
        calls = ToolCalls(s, TOOLS, failures=(KeyError,))
        with pytest.raises(KeyError):
            calls.perform_blocking("send_mail", {}, lambda: fail(KeyError("no Ada")), call_id="c1")
        failed = calls.perform_blocking(
            "send_mail", {}, lambda: pytest.fail("called"), call_id="c1"
        )
        assert isinstance(failed, Done)
        assert (failed.failed, failed.stored_result) == (True, {"error": "'no Ada'"})
        with pytest.raises(OSError, match="gone"):
            calls.perform_blocking("page.put", {}, lambda: fail(OSError("gone")), call_id="c2")
        unknown = calls.perform_blocking(
            "page.put", {}, lambda: pytest.fail("called"), call_id="c2"
        )
        assert isinstance(unknown, Held)
        assert unknown.reason == "outcome"
        rejected = calls.perform_blocking(
            "send_mail", {"to": "x"}, lambda: fail(gatebook.Rejected("no such box")), call_id="c3"
        )
        assert isinstance(rejected, Denied)
        assert "no such box" in rejected.message


def test_calls_of_several_threads_are_done_once_each(ledger: FakeGatebook) -> None:
    sent: list[int] = []
    with ledger.session("a") as s, ThreadPoolExecutor(4) as pool:
        calls = ToolCalls(s, TOOLS)

        def send(number: int) -> object:
            return calls.perform_blocking(
                "send_mail",
                {"to": number % 4},
                lambda: sent.append(number % 4),
                call_id=f"c{number % 4}",
            )

        outcomes = list(pool.map(send, range(12)))
    assert sorted(sent) == [0, 1, 2, 3]
    assert all(isinstance(outcome, Done) for outcome in outcomes)


def test_a_description_has_the_names_of_gatebook() -> None:
    calls: ToolCalls[Any] = ToolCalls(
        None,
        {"a": GatedTool("b", target=lambda arguments: {"ref": arguments["ref"]})},
        ungated=("look",),
    )
    assert calls.describe_call("a", {"ref": "main"}) == {
        "tool": "b",
        "arguments": {"ref": "main"},
        "target": {"ref": "main"},
        "free_text": (),
    }
    assert calls.describe_call("other", {})["tool"] == "other"
    assert (calls.is_gated("look"), calls.is_gated("a")) == (False, True)


def test_a_call_whose_tool_runs_elsewhere_is_reported_once(ledger: FakeGatebook) -> None:
    async def work() -> None:
        async with ledger.async_session("a", end_on_exit=False) as s:
            calls = ToolCalls(s, TOOLS, failures=(KeyError,))
            begun = await calls.begin("send_mail", {"to": "ada"}, call_id="c1")
            assert isinstance(begun, BegunCall)
            assert begun.current.remote_key
            assert (await s.find_effect(call_id="c1")).state == "dispatched"
            done = await begun.report("sent")
            assert isinstance(done, Done)
            assert (done.value, await begun.report("again")) == ("sent", done)
            again = await calls.begin("send_mail", {"to": "ada"}, call_id="c1")
            assert isinstance(again, Done)
            assert (again.again, again.stored_result) == (True, "sent")
            failing = await calls.begin("send_mail", {"to": "eve"}, call_id="c2")
            assert isinstance(failing, BegunCall)
            with pytest.raises(KeyError):
                await failing.report(KeyError("no Eve"))
            assert (await s.result(call_id="c2")).outcome == "error"
            rejected = await calls.begin("send_mail", {"to": "bob"}, call_id="c3")
            assert isinstance(rejected, BegunCall)
            assert isinstance(await rejected.report(gatebook.Rejected("no Bob")), Denied)
            ledger.go_down()
            with pytest.raises(gatebook.ServerUnavailable):
                await calls.begin("send_mail", {"to": "joe"}, call_id="c4")

    run(work())


def test_a_call_that_nobody_reports_is_not_begun_again(ledger: FakeGatebook) -> None:
    ledger.declare_tool("page.put", "opaque")

    async def work() -> None:
        s = await ledger.async_session("a", end_on_exit=False)
        calls = ToolCalls(s, TOOLS)
        begun = await calls.begin("page.put", {}, call_id="c1")
        assert isinstance(begun, BegunCall)
        later = await ledger.async_session("a", end_on_exit=False, takeover=True)
        unknown = await ToolCalls(later, TOOLS).begin("page.put", {}, call_id="c1")
        assert isinstance(unknown, Held)
        assert unknown.reason == "outcome"
        with pytest.raises(gatebook.LeaseLost):
            await begun.report("put")

    run(work())


def test_what_a_call_waits_for_is_known_without_beginning_it(ledger: FakeGatebook) -> None:
    ledger.declare_tool("mail.send", "opaque", needs_approval=True)

    async def work() -> None:
        async with ledger.async_session("a", end_on_exit=False) as s:
            calls = ToolCalls(s, TOOLS)
            how: Any = ("send_mail", {"to": "ada"}, "c1")
            held = await calls.find_wait(*how)
            assert held is not None
            assert (held.reason, bool(held.gate)) == ("people", True)
            assert "make exactly this call again" in held.next_step
            ledger.answer_gates("approved")
            assert await calls.find_wait(*how) is None
            assert (await s.find_effect(call_id="c1")).state == "planned"
            other: Any = ("send_mail", {"to": "eve"}, "c2")
            assert await calls.find_wait(*other) is not None
            ledger.answer_gates("denied")
            assert await calls.find_wait(*other) is None
            denied = await calls.begin("send_mail", {"to": "eve"}, call_id="c2")
            assert isinstance(denied, Denied)

    run(work())


def test_a_new_call_meets_the_approval_of_the_same_call(ledger: FakeGatebook) -> None:
    ledger.declare_tool("mail.send", "opaque", needs_approval=True)

    async def work() -> None:
        async with ledger.async_session("a", end_on_exit=False) as s:
            calls = ToolCalls(s, TOOLS)
            how: tuple[str, Any] = ("send_mail", {"to": "ada", "why": "asked"})
            assert await calls.find_approved(*how, "c1") == "c1"
            assert await calls.find_wait(*how, "c1") is not None
            (held,) = await calls.list_waiting()
            assert held.effect == (await s.find_effect(call_id="c1")).effect
            assert await calls.find_approved(*how, "c2") == "c2"  # nobody has approved it yet
            ledger.answer_gates("approved")
            assert await calls.list_waiting() == []
            again: tuple[str, Any] = ("send_mail", {"to": "ada", "why": "asked again"})
            assert await calls.find_approved(*again, "c2") == "c1"
            assert await calls.find_approved("send_mail", {"to": "eve"}, "c2") == "c2"
            begun = await calls.begin(*how, call_id="c1")
            assert isinstance(begun, BegunCall)
            await begun.report("sent")
            assert await calls.find_approved(*again, "c2") == "c2"  # used once

    run(work())
