"""A process killed at any step of an effect: the act happens once in all, or a person decides."""

import contextlib
from typing import Any

import gatebook_client as gatebook
import pytest
from gatebook_client.testing import Crash, FakeGatebook

from tests.client.test_perform import MAIL, World, ledger

__all__ = ["ledger"]
pytestmark = pytest.mark.once

WHEN = [("before", "plan"), ("after", "plan"), ("before", "dispatch"), ("after", "dispatch")]
WHEN += [("before", "acknowledge"), ("after", "acknowledge")]
HAPPENED = {("before", "acknowledge"), ("after", "acknowledge")}


def crash(ledger: FakeGatebook, world: World, when: tuple[str, str], call_id: str = "") -> None:
    """Make a process die at a step of one effect."""
    process = ledger.process()
    process.crash_at(*when)
    with pytest.raises(Crash), ledger.session("a", process=process, ttl_s=5) as s:
        s.perform(*MAIL, world.act, probe=world.probe, call_id=call_id)
    assert len(world.done) == (when in HAPPENED)
    ledger.sleep(6)  # its lease runs out


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("recovers", [True, False])
@pytest.mark.parametrize("names", [("", ""), ("call-1", "call-1"), ("call-1", "call-2")])
def test_a_process_killed_at_any_step_is_followed_by_one_that_does_it_exactly_once(
    ledger: FakeGatebook, when: tuple[str, str], recovers: bool, names: tuple[str, str]
) -> None:
    world = World()
    crash(ledger, world, when, call_id=names[0])
    with ledger.session("a") as s:
        s.register("mail.send", probe=world.probe)
        if recovers:
            assert s.recover().safe
        s.perform(*MAIL, world.act, call_id=names[1])
        assert len(world.done) == 1
        if names[1]:  # a caller with an answer that calls again wants another effect
            s.perform(*MAIL, world.act, call_id="call-3")
            assert len(world.done) == 2
    assert "dispatched" not in {row.state for row in ledger.effects.values()}


def test_an_act_that_was_not_found_is_repeated_after_the_in_flight_window(
    ledger: FakeGatebook,
) -> None:
    world = World()
    crash(ledger, world, ("after", "dispatch"))
    begun_us = ledger.effects[next(iter(ledger.effects))].attempts[0].at_us
    with ledger.session("a") as s:
        with pytest.raises(gatebook.WaitTimeout):
            s.perform(*MAIL, world.act, probe=world.probe, wait_s=1)
        assert world.done == []
        done = s.perform(*MAIL, world.act, probe=world.probe)
    first, second = ledger.effects[done.effect].attempts
    assert (done.attempt, first.remote_key) == (2, second.remote_key)
    assert second.at_us - begun_us > 60_000_000


def test_a_person_decides_about_an_unknown_outcome(ledger: FakeGatebook) -> None:
    ledger.declare_tool("mail.send", "opaque")
    world = World()
    crash(ledger, world, ("before", "acknowledge"))
    with ledger.session("a", end_on_exit=False) as s:
        for call_id in ("", "call-9"):
            with pytest.raises(gatebook.HumanDecisionRequired, match="UNDECIDABLE"):
                s.perform(*MAIL, world.act, call_id=call_id)
        recovered = s.recover()
    assert not recovered.safe
    assert [step.verdict.reason for step in recovered.unresolved] == ["UNDECIDABLE"]
    assert len(world.done) == 1


def test_a_tool_that_can_only_be_compensated_is_compensated_and_repeated(
    ledger: FakeGatebook,
) -> None:
    ledger.declare_tool("mail.send", "compensable")
    ledger.declare_tool("mail.send.undo", "idempotent")
    world = World()
    crash(ledger, world, ("before", "acknowledge"))

    def take_back(attempt: gatebook.AttemptInfo, _key: str) -> None:
        world.done.remove(attempt.remote_key)

    for _ in range(2):  # the second repetition finds the repeated act done
        with ledger.session("a", end_on_exit=False) as s:
            s.perform(*MAIL, world.act, compensate=take_back)
    assert len(world.done) == 1
    assert sorted(row.state for row in ledger.effects.values()) == [
        "acknowledged",
        "acknowledged",
        "compensated",
    ]


def test_recover_repeats_registered_tools_and_leaves_the_rest_to_the_program(
    ledger: FakeGatebook,
) -> None:
    ledger.declare_tool("mail.send", "idempotency_key")
    ledger.declare_tool("page.put", "idempotent")
    world = World()
    process = ledger.process()
    s = ledger.session("a", process=process, ttl_s=5)
    process.crash_at("after", "dispatch")
    with pytest.raises(Crash):
        s.perform(*MAIL, world.act)
    ledger.sleep(6)
    process = ledger.process()
    s = ledger.session("a", process=process, ttl_s=5)
    process.crash_at("after", "dispatch")
    with pytest.raises(Crash):
        s.perform("page.put", {"page": "start"}, world.act)
    ledger.sleep(6)
    with ledger.session("a", end_on_exit=False) as s:

        @s.effect("mail.send")
        def send(to: str, remote_key: str) -> None:
            world.done.append(f"{to} {remote_key}")

        recovered = s.recover()
        assert [(step.tool, step.result) for step in recovered.steps] == [
            ("mail.send", "replayed"),
            ("page.put", "due"),
        ]
        assert recovered.safe
        assert send("ada").already_done
    assert world.done == [
        f"ada {ledger.by_key(recovered.steps[0].effect_key).attempts[0].remote_key}"
    ]


@pytest.mark.parametrize("answer", ["", 3.5, RuntimeError("no route")])
def test_a_probe_without_yes_or_no_proves_nothing_and_after_a_few_a_person_decides(
    ledger: FakeGatebook, answer: object
) -> None:
    world = World()
    crash(ledger, world, ("after", "dispatch"))

    def probe(_known: gatebook.AttemptInfo) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    with (
        ledger.session("a", end_on_exit=False) as s,
        pytest.raises(gatebook.HumanDecisionRequired, match="PROBE_FAILED"),
    ):
        s.perform(*MAIL, world.act, probe=probe)
    assert ledger.steps.count("probe") == 5
    assert world.done == []


def again(ledger: FakeGatebook, world: World, name: str, at: tuple[str, str]) -> None:
    """Repeat the call in the next process under a new call id, which dies at that step or at the
    end."""
    process = ledger.process()
    with (
        contextlib.suppress(Crash),
        ledger.session("a", process=process, ttl_s=5, end_on_exit=False) as s,
    ):
        process.crash_at(*at)
        s.perform(*MAIL, world.act, probe=world.probe, call_id=name)
        process.dead = True  # before the agent gets the answer
    ledger.sleep(6)


STEPS_OF_ONE_THAT_FINDS_IT = ["plan", "verdict", "probe", "effects", "supersede"]


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("step", STEPS_OF_ONE_THAT_FINDS_IT)
@pytest.mark.parametrize("side", ["before", "after"])
def test_killed_three_times_under_new_names_it_is_done_once_until_recovered(
    ledger: FakeGatebook, when: tuple[str, str], step: str, side: str
) -> None:
    world = World()
    crash(ledger, world, when, call_id="call-1")
    again(ledger, world, "call-2", (side, step))
    again(ledger, world, "call-3", (side, step))
    again(ledger, world, "call-4", (side, "nothing"))
    assert len(world.done) == 1
    with ledger.session("a") as s:
        assert s.perform(*MAIL, world.act, probe=world.probe, call_id="call-5").already_done
        assert s.recover().safe
        s.perform(*MAIL, world.act, probe=world.probe, call_id="call-6")
    assert len(world.done) == 2


def test_a_resolution_after_the_process_ended_reaches_the_next_process(
    ledger: FakeGatebook,
) -> None:
    ledger.declare_tool("mail.send", "opaque")
    world = World()
    crash(ledger, world, ("after", "acknowledge"), call_id="call-0")
    ledger.declare_tool("other.mail", "opaque")
    process = ledger.process()
    process.crash_at("before", "acknowledge")
    with pytest.raises(Crash), ledger.session("a", process=process, ttl_s=5) as s:
        s.perform("other.mail", MAIL[1], world.act, call_id="call-1")
    ledger.sleep(6)
    with pytest.raises(gatebook.HumanDecisionRequired), ledger.session("a") as s:
        s.perform("other.mail", MAIL[1], world.act, call_id="call-2")
    row = next(row for row in ledger.effects.values() if row.unknown)
    row.state, row.outcome, row.changed = "acknowledged", "ok", ledger.now_us + 1
    ledger.sleep(1)
    with ledger.session("a") as s:
        assert s.perform("other.mail", MAIL[1], world.act, call_id="call-3").already_done
    assert len(world.done) == 2
