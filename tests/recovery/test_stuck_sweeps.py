"""The sweeper itself: outages of our own, closed endpoints, kills, two at once, clocks set back, limits
by a command."""

from typing import Any

import pytest
from django.core.management import call_command

from db.clock import now_us
from journal import outbox
from monitoring import job_heartbeats
from monitoring.models import JobHeartbeat, StuckEpisode
from monitoring.stuck import episodes, sweeper
from recovery import detectors
from sessions.models import Session
from tests.api.api_client import Caller
from tests.pages.people import House
from tests.recovery.stuck_helpers import US, heartbeat, leased, open_rules, pass_by, sweeps_go_on
from tests.recovery.test_stuck_watch import _settled, alerts, look, told, worker

__all__ = ["_settled", "worker"]
pytestmark = pytest.mark.django_db


def test_three_dead_sessions_of_one_agent_are_a_silent_source(worker: Caller) -> None:
    made = [leased(worker, f"s-{n}") for n in range(3)]
    pass_by(121)
    look(2)
    assert (
        StuckEpisode.objects.filter(rule="S10", session=None, raised_us__isnull=False).count() == 1
    )
    heartbeat(worker, made[0][1])
    look()
    assert set(open_rules()) == {"S2"}


def test_after_an_outage_of_our_own_alerts_are_paused(worker: Caller, house: House) -> None:
    _session, lease = leased(worker)
    look()
    JobHeartbeat.objects.update(every_us=5 * US)
    pass_by(600)  # we were all away
    JobHeartbeat.objects.update(heartbeat_us=now_us() - 600 * US)
    assert look(2).is_paused
    assert open_rules() == {"S2": False}
    page = house.client("viewer").get("/stuck/").content.decode()
    assert "Gatebook was down. Alerts are paused until" in page
    assert "no heartbeat since" in page  # the status is as it is
    heartbeat(worker, lease)
    look()
    JobHeartbeat.objects.update(paused_until_us=0)
    look(2)
    assert told("session.stuck") == []


def test_alerts_are_paused_while_endpoints_are_closed(worker: Caller) -> None:
    leased(worker)
    look()
    pass_by(300)
    JobHeartbeat.objects.create(
        name="gate_listener", heartbeat_us=now_us() - 90 * US, every_us=10 * US
    )
    assert look(3).is_paused
    job_heartbeats.record_heartbeat(
        "gate_listener"
    )  # the endpoints are open again, and everybody has a moment to come back
    assert look(3).is_paused
    JobHeartbeat.objects.update(paused_until_us=now_us() - 1)
    look(2)
    assert open_rules() == {"S2": True}


def test_a_kill_between_entry_and_notification_loses_neither(
    worker: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased(worker)
    pass_by(121)
    look()

    def killed(*_arguments: object, **_more: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(outbox, "queue_delivery", killed)
        with pytest.raises(SystemExit):
            look()
    assert (told("session.stuck"), alerts(), open_rules()) == ([], [], {"S2": False})
    assert look().raised == 1
    assert (len(told("session.stuck")), len(alerts())) == (1, 1)


def test_two_sweepers_at_once_record_a_transition_once(worker: Caller) -> None:
    leased(worker)
    pass_by(121)
    look()
    rows = list(StuckEpisode.objects.all())
    assert [episodes.raise_episodes(rows, now_us()), episodes.raise_episodes(rows, now_us())] == [
        1,
        0,
    ]
    assert [episodes.clear_episodes(rows, now_us()), episodes.clear_episodes(rows, now_us())] == [
        1,
        0,
    ]
    assert (len(told("session.stuck")), len(told("session.recovered")), len(alerts())) == (1, 1, 1)


def test_an_agent_may_have_limits_of_its_own_by_a_command(worker: Caller, house: House) -> None:
    leased(worker)
    call_command("stuck_limits", agent="deploy-7", limit="dead_s", value="600")
    pass_by(121)
    look(2)
    assert open_rules() == {}
    pass_by(600)
    sweeps_go_on(600)
    look(2)
    assert open_rules()["S2"]
    call_command("stuck_limits", agent="deploy-7", limit="dead_s", value="default")
    assert [entry.kind for entry in told("stuck.limit_changed")] == ["stuck.limit_changed"] * 2
    call_command("sweep_stuck")
    assert Session.objects.count() == 1


def test_a_clock_that_is_set_back_between_two_sweeps_stops_no_alarm(worker: Caller) -> None:
    leased(worker)
    pass_by(300)
    at = now_us()
    sweeper.sweep_stuck(at)
    sweeper.sweep_stuck(at - 60 * US)
    assert open_rules() == {"S2": True}
    assert len(told("session.stuck")) == 1


def test_what_an_agent_reports_in_our_name_is_no_entry_of_ours(
    worker: Caller, house: House
) -> None:
    session, _lease = leased(worker)
    forged: list[dict[str, Any]] = [
        {"id": "f-1", "kind": "integrity.fenced", "lease_epoch": 7},
        {
            "id": "f-2",
            "kind": "control.fired",
            "control": "state_drift",
            "sentence": "Trust nobody.",
        },
    ]
    assert worker.report([{**one, "session": session["id"]} for one in forged]).status_code == 200
    look(2)
    assert open_rules() == {}
    assert detectors.load_fired_controls(Session.objects.get(id=session["id"]), 10) == []
    (row,) = Session.objects.annotate(often=detectors.finding_count_subquery())
    assert row.often is None
