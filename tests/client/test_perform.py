"""One effect, done once, with the in-memory ledger: order, lost answers, refusals and crashes."""

import contextlib
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gatebook_client as gatebook
import pytest
from gatebook_client.testing import Crash, FakeGatebook
from gatebook_client.waiting import log_wait

pytestmark = pytest.mark.once
MAIL = ("mail.send", {"to": "ada"})


class World:
    """The remote system, which counts acts and can be probed."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def act(self, remote_key: str) -> gatebook.Result:
        self.done.append(remote_key)
        return gatebook.Result(reference=f"m-{len(self.done)}")

    def probe(self, attempt: gatebook.AttemptInfo) -> str | None:
        return f"found-{attempt.remote_key}" if attempt.remote_key in self.done else None


@pytest.fixture
def ledger() -> FakeGatebook:
    ledger = FakeGatebook()
    ledger.declare_tool("mail.send", "probeable", request_lifetime_s=60)
    return ledger


def test_the_act_runs_between_dispatch_and_acknowledge(ledger: FakeGatebook) -> None:
    steps_before_act: list[str] = []
    with ledger.session("a", mode="one_shot") as s:
        done = s.perform(*MAIL, lambda _key: steps_before_act.extend(ledger.steps))
    assert steps_before_act == ["open", "plan", "dispatch"]
    reads = ["effects"] * 3  # for what is open, before the session is ended
    assert ledger.steps == ["open", "plan", "dispatch", "acknowledge", *reads, "end"]
    assert (done.state, done.ok, done.already_done) == ("acknowledged", True, False)


@pytest.mark.parametrize("step", ["plan", "dispatch", "acknowledge"])
def test_a_lost_answer_is_requested_again_and_no_act_runs_twice(
    ledger: FakeGatebook, step: str
) -> None:
    world = World()
    ledger.lose_response(step)
    with ledger.session("a") as s:
        assert s.perform(*MAIL, world.act).reference == "m-1"
    assert len(world.done) == 1
    assert len(ledger.by_key(next(iter(ledger.effects.values())).effect_key).attempts) == 1


@pytest.mark.parametrize("open_first", [True, False])
def test_without_a_ledger_nothing_is_done(ledger: FakeGatebook, open_first: bool) -> None:
    world = World()
    if open_first:
        with ledger.session("a", patience_s=0.2, end_on_exit=False) as s:
            ledger.go_down()
            with pytest.raises(gatebook.ServerUnavailable, match="was not begun"):
                s.perform(*MAIL, world.act)
            ledger.go_down(0)
    else:
        ledger.go_down()
        with pytest.raises(gatebook.ServerUnavailable):
            ledger.session("a", patience_s=0.2)
    assert world.done == []


def test_a_dispatch_without_an_answer_is_resumed_by_the_same_process(
    ledger: FakeGatebook,
) -> None:
    world = World()
    with ledger.session("a", patience_s=0.0) as s:
        ledger.lose_response("dispatch")
        with pytest.raises(gatebook.ServerUnavailable, match="was not begun"):
            s.perform(*MAIL, world.act)
        assert world.done == []
        assert s.perform(*MAIL, world.act).attempt == 1
    assert len(world.done) == 1


def test_an_act_that_could_not_be_reported_is_reported_later_and_not_repeated(
    ledger: FakeGatebook,
) -> None:
    world = World()
    with ledger.session("a", patience_s=0.0) as s:

        def act(key: str) -> gatebook.Result:
            ledger.go_down(1)
            return world.act(key)

        with pytest.raises(gatebook.ServerUnavailable, match="was done; only the report") as away:
            s.perform(*MAIL, act)
        assert away.value.acted
        assert ledger.states() == {"mail.send": "dispatched"}
        again = s.perform(*MAIL, world.act)
    assert (again.already_done, again.reference) == (True, "m-1")
    assert len(world.done) == 1


@pytest.mark.parametrize(
    ("fault", "reason", "outcome"),
    [
        (gatebook.Rejected("non-fast-forward"), "rejected", "error"),
        (TimeoutError("silence"), "timeout", "unknown"),
        (subprocess.TimeoutExpired("git", 3), "timeout", "unknown"),
        (RuntimeError("the line went dead"), "error", "unknown"),
        (KeyboardInterrupt(), "error", "unknown"),
    ],
)
def test_an_act_that_raises_is_reported_and_the_error_propagates(
    ledger: FakeGatebook, fault: BaseException, reason: str, outcome: str
) -> None:
    def act(_key: str) -> None:
        raise fault

    with ledger.session("a", end_on_exit=False) as s, pytest.raises(type(fault)):
        s.perform(*MAIL, act)
    (row,) = ledger.effects.values()
    assert (row.state, row.reason, row.outcome) == ("failed", reason, outcome)


def test_a_rejected_effect_is_tried_again_as_its_own_next_attempt(ledger: FakeGatebook) -> None:
    world = World()

    def rejects(_key: str) -> None:
        raise gatebook.Rejected("behind")

    with ledger.session("a") as s:
        with pytest.raises(gatebook.Rejected):
            s.perform(*MAIL, rejects)
        done = s.perform(*MAIL, world.act)
    assert (done.attempt, len(ledger.effects)) == (2, 1)


def test_an_approved_act_is_done(ledger: FakeGatebook) -> None:
    ledger.declare_tool("mail.send", "probeable", needs_approval=True)
    reasons: list[str] = []

    def waiting(why: str, _told: object) -> None:
        reasons.append(why)
        assert world.done == []
        ledger.answer_gates("approved")

    world = World()
    with ledger.session("a", on_wait=waiting) as s:
        assert s.perform(*MAIL, world.act).ok
    assert reasons == ["gate"]


@pytest.mark.parametrize(
    "take_to_the_wait",
    [
        lambda s: s.perform(*MAIL, World().act, wait_s=0),
        lambda s: s.wait(s.plan(*MAIL), wait_s=0),
    ],
    ids=["perform", "steps"],
)
def test_without_a_listener_a_wait_for_people_is_a_warning_with_its_page(
    take_to_the_wait: Callable[[gatebook.Session], object],
    ledger: FakeGatebook,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ledger.declare_tool("mail.send", "probeable", needs_approval=True)
    with (
        pytest.warns(gatebook.OpenWork),
        ledger.session("a") as s,
        pytest.raises(gatebook.NotYet) as late,
    ):
        take_to_the_wait(s)
    (logged,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert logged.name == "gatebook_client"
    assert "waiting for approval of" in logged.getMessage()
    assert late.value.gate_url
    assert logged.getMessage().endswith(late.value.gate_url)


@pytest.mark.parametrize(
    ("reason", "level"),
    [("STOPPED", "WARNING"), ("GATE_PENDING", "WARNING"), ("LEASE_HELD", "INFO")],
)
def test_a_verdict_that_waits_for_people_is_a_warning(
    reason: str, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "gatebook_client"):
        log_wait("verdict", {"detail": "It waits.", "reason": reason})
    (logged,) = caplog.records
    assert (logged.levelname, logged.getMessage()) == (level, "gatebook: waiting: It waits.")


@pytest.mark.parametrize("status", ["denied", "changes_requested"])
def test_a_denied_act_is_not_done_however_often_it_is_requested(
    ledger: FakeGatebook, status: str
) -> None:
    ledger.declare_tool("mail.send", "probeable", needs_approval=True)
    world = World()
    with ledger.session(
        "a", on_wait=lambda _why, _told: ledger.answer_gates(status, "not today")
    ) as s:
        for _ in range(2):
            with pytest.raises(gatebook.PermissionRefused, match="not today") as no:
                s.perform(*MAIL, world.act)
            assert no.value.status == status
    assert world.done == []


def test_a_wait_for_people_can_be_given_an_end(ledger: FakeGatebook) -> None:
    ledger.declare_tool("mail.send", "probeable", needs_approval=True)
    world = World()
    with (
        ledger.session("a", end_on_exit=False) as s,
        pytest.raises(gatebook.WaitTimeout, match="nothing was begun"),
    ):
        s.perform(*MAIL, world.act, wait_s=0)
    assert world.done == []


def test_a_stop_by_a_person_is_waited_out(ledger: FakeGatebook) -> None:
    world = World()
    ledger.refuse_next("plan", "STOPPED")
    ledger.refuse_next("dispatch", "STOPPED")
    ledger.refuse_next("plan", "PACED", 429)
    with ledger.session("a") as s:
        assert s.perform(*MAIL, world.act).ok
    assert ledger.steps.count("dispatch") == 2


# Names.
# ---------------------------------------------------------------------------------------------------------------


def test_two_equal_calls_are_two_effects_and_a_second_run_finds_both(
    ledger: FakeGatebook,
) -> None:
    world = World()
    for _ in range(2):
        with ledger.session("a", end_on_exit=False) as s:
            assert [s.perform(*MAIL, world.act).reference for _ in range(2)] == ["m-1", "m-2"]
    assert len(world.done) == 2


def test_an_explicit_key_always_names_the_same_effect(ledger: FakeGatebook) -> None:
    world = World()
    with ledger.session("a") as s:
        assert not s.perform(*MAIL, world.act, key="greeting").already_done
        assert s.perform(*MAIL, world.act, key="greeting").already_done
        with pytest.raises(gatebook.Refused, match="key_reuse"):
            s.perform("mail.send", {"to": "bob"}, world.act, key="greeting")
    assert len(world.done) == 1


def test_free_text_belongs_to_no_intent(ledger: FakeGatebook) -> None:
    world = World()
    for why in ("first", "second"):
        with ledger.session("a", end_on_exit=False) as s:
            s.perform(
                "shell",
                {"command": "make", "description": why},
                world.act,
                free_text=["description"],
            )
    assert len(world.done) == 1


def test_calls_with_ids_repeat_closed_effects_and_not_open_ones(
    ledger: FakeGatebook,
) -> None:
    world = World()
    with ledger.session("a") as s:
        s.perform(*MAIL, world.act, call_id="call-1")
        s.perform(*MAIL, world.act, call_id="call-2")
        assert s.perform(*MAIL, world.act, call_id="call-2").attempt == 1
    assert len(world.done) == 3


def test_two_threads_that_want_the_same_are_two_effects_one_after_the_other(
    ledger: FakeGatebook,
) -> None:
    world = World()
    with ledger.session("a") as s:
        threads = [threading.Thread(target=s.perform, args=(*MAIL, world.act)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(world.done) == len(set(world.done)) == 4


@pytest.mark.parametrize("exits", [True, False])
def test_after_a_normal_exit_the_same_call_is_new_and_after_a_crash_it_is_not(
    ledger: FakeGatebook, exits: bool
) -> None:
    world = World()
    process = ledger.process()
    s = ledger.session("a", process=process, ttl_s=5, end_on_exit=False)
    s.perform(*MAIL, world.act, call_id="call-1")
    process.dead = not exits
    with contextlib.suppress(Crash):
        s.close()
    ledger.sleep(6)
    with ledger.session("a") as s:
        s.perform(*MAIL, world.act, call_id="call-2")
    assert len(world.done) == (2 if exits else 1)


def decorated(s: gatebook.Session, file: Path) -> Callable[..., gatebook.EffectResult]:
    @s.effect("file.append")
    def append(line: str, twice: bool = False) -> int:
        return file.write_text(line * (1 + twice))

    return append


def test_a_function_made_an_effect_is_planned_with_its_arguments_by_name(
    ledger: FakeGatebook, tmp_path: Path
) -> None:
    with ledger.session("a") as s:
        append = decorated(s, tmp_path / "file")
        assert append("one").result == 3
        assert append(line="one", twice=True).result == 6
    assert [row.arguments for row in ledger.effects.values()] == [
        {"line": "one", "twice": False},
        {"line": "one", "twice": True},
    ]


@pytest.mark.parametrize("result", [float("nan"), {1, 2}, "\ud800", "x" * 300_000, [[]] * 3])
def test_an_act_is_reported_whatever_its_result_is(ledger: FakeGatebook, result: object) -> None:
    with ledger.session("a") as s:
        assert s.perform(*MAIL, lambda _key: result).ok
    assert ledger.states() == {"mail.send": "acknowledged"}


@pytest.mark.parametrize(
    ("arguments", "how"),
    [
        ({"to": "a\ud800"}, {}),
        ({"\udc00": 1}, {}),
        ({}, {"why": "x\ud83d"}),
        ({}, {"key": "\ud800"}),
    ],
)
def test_half_of_a_surrogate_pair_is_refused_before_anything_is_planned(
    ledger: FakeGatebook, arguments: dict[str, object], how: dict[str, Any]
) -> None:
    world = World()
    with ledger.session("a", end_on_exit=False) as s:
        with pytest.raises(gatebook.Refused, match="half of a surrogate pair") as refused:
            s.perform("mail.send", arguments, world.act, **how)
        assert (refused.value.status, refused.value.code) == (422, "lone_surrogate")
        assert (world.done, ledger.effects) == ([], {})
        # An act that was done is reported all the same.
        assert (
            s.perform(*MAIL, lambda _key: gatebook.Result(reference="m-\ud800")).reference == "m-?"
        )
        with pytest.raises(gatebook.Refused, match="half of a surrogate pair"):
            s.http.get("/effects", session=s.id, tool="\ud800")


def test_integers_of_any_size_are_distinguished_and_sent_unchanged(
    ledger: FakeGatebook,
) -> None:
    with ledger.session("a") as s:
        keys = {
            s.perform("mail.send", {"chat": 2**64 + more}, World().act).effect_key
            for more in (0, 1)
        }
    assert len(keys) == 2
    assert [row.arguments["chat"] for row in ledger.effects.values()] == [2**64, 2**64 + 1]


def unknown(s: gatebook.Session, world: World) -> None:
    s.perform(*MAIL, lambda _key: gatebook.Result("unknown"))


def dies(s: gatebook.Session, world: World) -> None:
    def act(_key: str) -> None:
        raise TimeoutError

    with contextlib.suppress(TimeoutError):
        s.perform(*MAIL, act)


def waits(s: gatebook.Session, world: World) -> None:
    with contextlib.suppress(gatebook.WaitTimeout):
        s.perform("release", {}, world.act, wait_s=0)


@pytest.mark.parametrize(
    ("exits", "words"), [(unknown, "unknown"), (dies, "unknown"), (waits, "waits for people")]
)
def test_a_session_is_not_ended_while_work_in_it_is_open(
    ledger: FakeGatebook, exits: Callable[[gatebook.Session, World], None], words: str
) -> None:
    ledger.declare_tool("release", needs_approval=True)
    world = World()
    message = rf"Session a is left open and not ended: e_1 .*\({words}\)"
    with pytest.warns(gatebook.OpenWork, match=message), ledger.session("a") as s:
        exits(s, world)
    (session,) = ledger.sessions.values()
    assert session["status"] == "running"
    assert ledger.leases[session["id"]].released
    # The next process completes the work and ends the session.
    ledger.sleep(61)
    ledger.answer_gates("approved")
    with ledger.session("a") as s:
        s.perform(
            *(("release", {}) if exits is waits else MAIL), world.act, probe=lambda _known: True
        )
    assert session["status"] == "completed"


def test_a_refused_and_a_rejected_effect_keep_no_session_open(ledger: FakeGatebook) -> None:
    def act(_key: str) -> None:
        raise gatebook.Rejected("no")

    ledger.declare_tool("release", needs_approval=True)
    with ledger.session("a") as s:
        with pytest.raises(gatebook.Rejected):
            s.perform(*MAIL, act)
        with contextlib.suppress(gatebook.WaitTimeout):
            s.perform("release", {}, act, wait_s=0)
        ledger.answer_gates("denied")
    assert next(iter(ledger.sessions.values()))["status"] == "completed"


# Working state in memory.
# ---------------------------------------------------------------------------------------------


def test_what_a_worker_records_is_shown_to_the_next(ledger: FakeGatebook) -> None:
    with ledger.session("a", end_on_exit=False) as s:
        task = s.task("mend", "Mend it", items=["test", "code"])
        task.start()
        task.set_item("test")
        s.decide("how", "by hand")
        s.checkpoint("half-way")
        s.record_fact("head", "3f2a", source="git")
        s.send_message("shared", "It is being mended", subject="hello")
        handoff = s.handoff(in_progress=["code"])
        s.store_artifact("a.log", "text/plain", b"{not json")
    with ledger.session("a") as s:
        task = s.task("mend", items=["test", "code"])
        assert [item["key"] for item in task.items("pending")] == ["code"]
        (decision,) = s.decisions()
        decision.conclude("done")
        assert s.decisions() == []
        (message,) = s.inbox(shared=True)
        assert (message.sender, message.body) == ("tester", "It is being mended")
        message.mark_read()
        assert (s.inbox(shared=True), s.inbox()) == ([], [])
        s.accept_handoff(handoff["id"])
        assert s.checkpoints()[0]["summary"] == "half-way"
        task.finish()
    assert ledger.client().claim(kinds=["task"]) is None
    with pytest.raises(gatebook.Refused, match="no GET /api/v1/limits; use a real one"):
        ledger.client().http.get("/limits")
