"""The watch through the endpoints: agents work and fall silent, the sweep runs twice, and the journal
says what it saw."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import orjson
import pytest
import time_machine

from db.clock import now_us
from journal.models import Entry, Outbox
from monitoring.models import StuckEpisode
from monitoring.stuck import sweeper
from tests.api.api_client import Caller
from tests.approvals.inbox_scenario import Desk
from tests.pages.people import House
from tests.pages.sample_data import doors
from tests.recovery.stuck_helpers import US, heartbeat, leased, open_rules, pass_by, sweeps_go_on

pytestmark = pytest.mark.django_db


@pytest.fixture
def worker(house: House) -> Iterator[Caller]:
    """An agent of the installation at the API's endpoints."""
    with doors(house.agent) as caller:
        yield caller


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the transaction of a test wrote is not settled before its end; here it counts as if it
    were."""
    monkeypatch.setattr(
        sweeper, "load_settled_position", lambda: Entry.objects.latest("position").position
    )


def look(times: int = 1) -> sweeper.SweepResult:
    """Let the sweeper look, as often as it would in a few seconds."""
    for _ in range(times):
        done = sweeper.sweep_stuck()
    return done


def told(kind: str, session: dict[str, Any] | None = None) -> list[Entry]:
    rows = Entry.objects.filter(kind=kind)
    return list(rows.filter(session=UUID(session["id"])) if session is not None else rows)


def alerts() -> list[str]:
    rows = Outbox.objects.filter(topic="stuck", deduplication_key__startswith="stuck:")
    return list(rows.values_list("deduplication_key", flat=True))


def do(
    worker: Caller,
    session: dict[str, Any],
    key: str,
    lease: dict[str, Any] | None = None,
    **more: Any,
) -> Any:
    """Plan and dispatch an effect under the lease's epoch, and return its plan's answer."""
    epoch = {"lease_epoch": lease["epoch"]} if lease is not None else {}
    planned = worker.plan(
        key, session["id"], **{"tool": "ci.run", "arguments": {"job": 1}, **more}, **epoch
    )
    body = {"process": "w-1", "intent_digest": planned["intent_digest"], **epoch}
    answer = worker.post(f"/effects/{planned['id']}/dispatch", body)
    assert answer.status_code == 200, answer.text
    return planned


def test_who_never_starts_is_late_and_clear_once_somebody_takes_it(worker: Caller) -> None:
    session = worker.session("s-1", mode="leased")
    look()
    pass_by(270)  # of three hundred; a busy machine takes seconds for all this
    look(2)
    assert open_rules() == {}
    pass_by(31)
    look()
    assert open_rules() == {"S1": False}
    look()
    assert open_rules() == {"S1": True}
    worker.post("/leases", {"session": session["id"], "process": "w-1"})
    assert look().cleared == 1
    (stuck,), (recovered,) = told("session.stuck", session), told("session.recovered", session)
    row = StuckEpisode.objects.get()
    assert (row.raised_position, row.cleared_position) == (stuck.position, recovered.position)


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_what_is_over_because_the_session_ended_is_not_called_progress(
    worker: Caller, status: str
) -> None:
    session, lease = leased(worker)
    going_on, _lease = leased(worker, "s-2")
    pass_by(121)
    look(2)
    assert len(told("session.stuck")) == 2
    end = {"status": status, "lease_epoch": lease["epoch"]}
    assert worker.post(f"/sessions/{session['id']}/end", end).status_code == 200
    worker.post("/leases", {"session": going_on["id"], "process": "w-2"})
    assert look().cleared == 2
    whys = [
        orjson.loads(told("session.recovered", one)[0].facts)["why"] for one in (session, going_on)
    ]
    assert whys == [f"session_{status}", "progress"]


def test_the_second_sweep_after_death_raises_one_alert_for_an_epoch(worker: Caller) -> None:
    session, lease = leased(worker)
    pass_by(121)
    look()
    assert (open_rules(), told("session.stuck")) == ({"S2": False}, [])
    assert look().raised == 1
    assert look(3).raised == 0
    assert (len(told("session.stuck")), len(alerts())) == (1, 1)
    assert heartbeat(worker, lease, progress="back")["status"] == "ok"  # nobody had taken it
    assert look().cleared == 1
    pass_by(121)
    sweeps_go_on(121)
    look(2)
    assert len(told("session.stuck", session)) == 2
    assert len(alerts()) == 1  # of this session, rule and epoch people have heard
    taken = worker.post("/leases", {"session": session["id"], "process": "w-2"}).json()
    assert taken["epoch"] == 2
    assert look().cleared == 1
    pass_by(121)
    sweeps_go_on(121)
    look(2)
    assert len(alerts()) == 2


def test_a_flicker_between_two_sweeps_is_told_to_nobody(worker: Caller) -> None:
    _session, lease = leased(worker)
    pass_by(121)
    look()
    heartbeat(worker, lease)
    look()
    pass_by(121)
    sweeps_go_on(121)
    look()
    assert (open_rules(), told("session.stuck"), alerts()) == ({"S2": False}, [], [])


def test_finished_sessions_are_never_stuck_and_a_late_heartbeat_changes_nothing(
    worker: Caller,
) -> None:
    session, lease = leased(worker)
    do(worker, session, "e-1", lease)
    pass_by(1000)
    look(2)
    assert open_rules() == {"S2": True, "S4": True, "S7": True}
    ended = worker.post(
        f"/sessions/{session['id']}/end", {"status": "completed", "lease_epoch": lease["epoch"]}
    )
    assert ended.status_code == 200, ended.text
    assert look().cleared == 3
    assert heartbeat(worker, lease)["status"] == "lost"
    pass_by(10_000)
    sweeps_go_on(10_000)
    look(2)
    assert open_rules() == {}


def test_a_watchdog_cannot_hide_a_wedged_agent_and_progress_clears_it_at_once(
    worker: Caller,
) -> None:
    _session, lease = leased(worker)
    heartbeat(worker, lease, progress="page 3")
    for _minute in range(16):
        pass_by(60)
        heartbeat(worker, lease)
    sweeps_go_on(1000)
    look(2)
    assert open_rules() == {"S3": True}
    heartbeat(worker, lease, progress="page 4")
    look()
    assert open_rules() == {}


def test_heartbeats_with_one_token_for_a_quarter_of_an_hour_are_a_loop(worker: Caller) -> None:
    session, lease = leased(worker)
    done = worker.post(
        f"/effects/{do(worker, session, 'e-0', lease)['id']}/acknowledge",
        {"attempt": 1, "outcome": "ok"},
    )
    assert done.status_code == 200
    for _minute in range(18):
        pass_by(60)
        for _ in range(
            4
        ):  # more than it takes: a minute of the clock may end between any two of them
            heartbeat(worker, lease, progress="page 3")
    sweeps_go_on(1000)
    look(2)
    assert open_rules() == {"S3": True, "S5": True}


def test_announced_quiet_keeps_the_alarm_away_until_it_is_over(worker: Caller) -> None:
    _session, lease = leased(worker)
    heartbeat(worker, lease, quiet_s=600)
    pass_by(570)
    look(2)
    assert open_rules() == {}
    pass_by(150)
    sweeps_go_on(150)
    look(2)
    assert open_rules() == {"S2": True}


def test_an_unknown_outcome_is_stuck_and_its_verdict_says_who_sees_to_it(
    worker: Caller, house: House
) -> None:
    session = worker.session("s-1")
    effect = do(worker, session, "e-1", tool="mail.send")
    pass_by(301)
    look(2)
    assert open_rules() == {"S4": True}
    assert StuckEpisode.objects.get().needs_person  # undeclared: nobody can look it up
    resolve = f"/effects/{effect['id']}/resolve/"
    for role, offered in (("viewer", False), ("operator", True)):
        page = house.client(role).get("/stuck/").content.decode()
        assert "Outcome unknown, needs a person" in page
        assert (resolve in page) is offered
    worker.acknowledge(effect)
    look()
    assert open_rules() == {}


def test_five_equal_calls_with_equal_results_are_a_loop_and_a_decision_between_them_is_none(
    worker: Caller,
) -> None:
    def calls(session: dict[str, Any], start: int, number: int, result: Any = "red") -> None:
        for n in range(start, start + number):
            worker.acknowledge(do(worker, session, f"e-{n}"), result=result)

    looping, busy, other = (worker.session(key) for key in ("looping", "busy", "other"))
    calls(looping, 0, 5)
    calls(busy, 0, 3)
    written = worker.post(
        f"/sessions/{busy['id']}/decisions", {"key": "d-1", "choice": "try once more"}
    )
    assert written.status_code == 201, written.text
    calls(busy, 3, 2)
    for n in range(5):
        calls(other, n, 1, result=f"line {n}")
    look(2)
    assert [
        str(row.session_id) for row in StuckEpisode.objects.filter(raised_us__isnull=False)
    ] == [looping["id"]]
    (row,) = StuckEpisode.objects.all()
    assert (row.rule, row.says[0]) == ("S5", "5 equal calls with equal results, the first ")
    worker.acknowledge(do(worker, looping, "e-9", arguments={"job": 2}), result="green")
    look()
    assert open_rules() == {}


def test_a_request_past_half_of_its_time_waits_for_people_and_nobody_is_dead(desk: Desk) -> None:
    session, lease = leased(desk.agent)
    planned = desk.agent.plan("e-1", session["id"], lease_epoch=lease["epoch"])
    gate, asked = desk.gate(planned), now_us()
    for second, expected in ((1790, {}), (1795, {}), (1805, {"S6": False}), (1810, {"S6": True})):
        sweeper.sweep_stuck(asked + second * US)
        sweeps_go_on(1800)
        assert (
            open_rules() == expected
        )  # the lease is over by far, and nobody says that anything is dead
    with time_machine.travel((asked + 1810 * US) / US):
        page = desk.house.client("viewer").get("/stuck/").content.decode()
    assert f'href="/approvals/{gate.id}/"' in page
    assert "reviewer" in page
    desk.answer(desk.gate(planned), "carol")
    sweeper.sweep_stuck(asked + 1815 * US)
    assert "S6" not in open_rules()


def test_a_session_that_was_given_up_is_an_orphan_until_somebody_takes_it(worker: Caller) -> None:
    session, lease = leased(worker)
    worker.post(f"/leases/{lease['id']}/release", {"epoch": lease["epoch"]})
    later = now_us() + 590 * US
    sweeper.sweep_stuck(later)
    sweeper.sweep_stuck(later)
    assert open_rules() == {}
    for second in (20, 25):
        sweeps_go_on(20)
        sweeper.sweep_stuck(later + second * US)
    assert open_rules() == {"S7": True}
    worker.post("/leases", {"session": session["id"], "process": "w-2"})
    look()
    assert open_rules() == {}


def test_a_handoff_that_nobody_accepts_is_an_orphan_until_it_is_accepted(worker: Caller) -> None:
    session, lease = leased(worker)
    sections: dict[str, list[str]] = {
        name: [] for name in ("in_progress", "decided", "needs_attention", "can_wait", "waits_on")
    }
    body: dict[str, Any] = {**sections, "in_progress": ["the push"], "lease_epoch": lease["epoch"]}
    written = worker.post(f"/sessions/{session['id']}/handoffs", body)
    assert written.status_code == 201, written.text
    pass_by(601)
    heartbeat(worker, lease)
    look(2)
    assert open_rules() == {"S7": True}
    worker.post(f"/handoffs/{written.json()['id']}/accept", {"lease_epoch": lease["epoch"]})
    look()
    assert open_rules() == {}


def test_a_stale_report_is_a_zombie_and_no_rule_for_who_has_ended(worker: Caller) -> None:
    session, lease = leased(worker)
    effect = do(worker, session, "e-1", lease)
    pass_by(121)
    taken = worker.post("/leases", {"session": session["id"], "process": "w-2"}).json()
    late = {"attempt": 1, "outcome": "ok", "lease_epoch": lease["epoch"]}
    answer = worker.post(f"/effects/{effect['id']}/acknowledge", late)
    assert answer.status_code == 202, answer.text
    sweeps_go_on(200)
    look(2)
    assert open_rules()["S8"]
    ended = {"status": "completed", "lease_epoch": taken["epoch"]}
    assert worker.post(f"/sessions/{session['id']}/end", ended).status_code == 200
    look()
    assert open_rules() == {}


def test_reported_and_one_shot_sessions_have_no_heart_to_stop(worker: Caller) -> None:
    worker.session("shot")
    worker.report(
        [{"id": "1", "kind": "session.started", "session": "hook", "title": "Hooks only"}]
    )
    pass_by(100_000)
    look(2)
    assert open_rules() == {}


def test_who_goes_on_with_something_else_no_longer_loops_in_what_it_gave_up(worker: Caller) -> None:
    session, lease = leased(worker)
    failed = {
        "kind": "effect.failed",
        "session": session["id"],
        "effect_key": "again",
        "reason": "rejected",
    }
    worker.report([{"id": f"f-{number}", **failed, "attempt": number} for number in range(1, 7)])
    do(worker, session, "other", lease)
    look(2)
    assert open_rules() == {"S5": True}
    worker.post(
        f"/sessions/{session['id']}/checkpoints",
        {"summary": "by another way", "lease_epoch": lease["epoch"]},
    )
    look()
    assert open_rules() == {}
    worker.report(
        [
            {"id": "f-7", **failed, "attempt": 7},
            {"id": "d-7", **failed, "attempt": 7, "kind": "effect.dispatched"},
        ]
    )
    look(2)
    assert open_rules() == {"S5": True}
    planned = worker.plan(
        "third", session["id"], tool="ci.run", arguments={"job": 3}, lease_epoch=lease["epoch"]
    )
    body = {
        "process": "w-1",
        "intent_digest": planned["intent_digest"],
        "lease_epoch": lease["epoch"],
    }
    worker.post(f"/effects/{planned['id']}/dispatch", body)
    worker.acknowledge(planned, lease_epoch=lease["epoch"])
    look()
    assert open_rules() == {}


def test_who_forgets_the_epoch_is_refused_and_no_zombie(worker: Caller) -> None:
    session, _lease = leased(worker)
    body = {"session": session["id"], "effect_key": "e", "tool": "ci.run", "arguments": {}}
    assert worker.post("/effects", body).json()["code"] == "LEASE_LOST"
    assert len(told("integrity.fenced", session)) == 1
    look(2)
    assert open_rules() == {}


def test_a_session_whose_tasks_are_worked_on_has_started_and_is_no_orphan(worker: Caller) -> None:
    late, given_up = (worker.session(key, mode="leased") for key in ("late", "given up"))
    lease = worker.post("/leases", {"session": given_up["id"], "process": "w-1"}).json()
    for session in (late, given_up):
        worker.post(f"/sessions/{session['id']}/tasks", {"key": "t"})
    worker.post(f"/leases/{lease['id']}/release", {"epoch": lease["epoch"]})
    for n in range(2):
        claimed = worker.post(
            "/claims", {"process": f"w-{n}", "kinds": ["task"], "ttl_s": 3600}
        ).json()["claimed"]
        assert claimed["kind"] == "task"
    begun = now_us()
    for second, rules in (
        (601, []),
        (3700, ["S1", "S7"]),
    ):  # by then the workers are not heard any more
        for more in (0, 5):
            sweeps_go_on(second)
            sweeper.sweep_stuck(begun + (second + more) * US)
        found = [
            rule
            for session in (late, given_up)
            for rule, raised in open_rules(session["id"]).items()
            if raised
        ]
        assert found == rules
