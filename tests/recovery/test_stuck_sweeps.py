"""The sweeper: outages, closed endpoints, kills, concurrent sweeps, clock changes and limits."""

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
from tests.pages.people import Organization
from tests.recovery.stuck_helpers import US, heartbeat, leased, open_rules, pass_by, sweeps_go_on
from tests.recovery.test_stuck_watch import alerts, entries_of, sweep, worker

__all__ = ["worker"]
pytestmark = pytest.mark.django_db


def test_three_dead_sessions_of_one_agent_are_a_silent_source(worker: Caller) -> None:
    made = [leased(worker, f"s-{n}") for n in range(3)]
    pass_by(121)
    sweep(2)
    assert (
        StuckEpisode.objects.filter(rule="S10", session=None, raised_us__isnull=False).count() == 1
    )
    heartbeat(worker, made[0][1])
    sweep()
    assert set(open_rules()) == {"S2"}


def test_after_an_outage_of_gatebook_alerts_are_paused(
    worker: Caller, organization: Organization
) -> None:
    _session, lease = leased(worker)
    sweep()
    JobHeartbeat.objects.update(every_us=5 * US)
    pass_by(600)  # an outage of all jobs
    JobHeartbeat.objects.update(heartbeat_us=now_us() - 600 * US)
    assert sweep(2).is_paused
    assert open_rules() == {"S2": False}
    page = organization.client("viewer").get("/stuck/").content.decode()
    assert "Gatebook was down. New cases are not reported until" in page
    assert "no heartbeat since" in page  # the status is current
    heartbeat(worker, lease)
    sweep()
    JobHeartbeat.objects.update(paused_until_us=0)
    sweep(2)
    assert entries_of("session.stuck") == []


def test_alerts_are_paused_while_endpoints_are_closed(worker: Caller) -> None:
    leased(worker)
    sweep()
    pass_by(300)
    JobHeartbeat.objects.create(
        name="gate_listener", heartbeat_us=now_us() - 90 * US, every_us=10 * US
    )
    assert sweep(3).is_paused
    job_heartbeats.record_heartbeat(
        "gate_listener"
    )  # the endpoints are open again, and agents have time to reconnect
    assert sweep(3).is_paused
    JobHeartbeat.objects.update(paused_until_us=now_us() - 1)
    sweep(2)
    assert open_rules() == {"S2": True}


def test_a_kill_between_entry_and_notification_loses_neither(
    worker: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    leased(worker)
    pass_by(121)
    sweep()

    def killed(*_arguments: object, **_more: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(outbox, "queue_delivery", killed)
        with pytest.raises(SystemExit):
            sweep()
    assert (entries_of("session.stuck"), alerts(), open_rules()) == ([], [], {"S2": False})
    assert sweep().raised == 1
    assert (len(entries_of("session.stuck")), len(alerts())) == (1, 1)


def test_two_sweepers_at_once_record_a_transition_once(worker: Caller) -> None:
    leased(worker)
    pass_by(121)
    sweep()
    rows = list(StuckEpisode.objects.all())
    assert [episodes.raise_episodes(rows, now_us()), episodes.raise_episodes(rows, now_us())] == [
        1,
        0,
    ]
    assert [episodes.clear_episodes(rows, now_us()), episodes.clear_episodes(rows, now_us())] == [
        1,
        0,
    ]
    assert (
        len(entries_of("session.stuck")),
        len(entries_of("session.recovered")),
        len(alerts()),
    ) == (1, 1, 1)


def test_a_command_sets_the_limits_of_an_agent(worker: Caller, organization: Organization) -> None:
    leased(worker)
    call_command("stuck_limits", agent="deploy-7", limit="dead_s", value="600")
    pass_by(121)
    sweep(2)
    assert open_rules() == {}
    pass_by(600)
    sweeps_go_on(600)
    sweep(2)
    assert open_rules()["S2"]
    call_command("stuck_limits", agent="deploy-7", limit="dead_s", value="default")
    assert [entry.kind for entry in entries_of("stuck.limit_changed")] == [
        "stuck.limit_changed"
    ] * 2
    call_command("sweep_stuck")
    assert Session.objects.count() == 1


def test_a_clock_set_back_between_two_sweeps_stops_no_alert(worker: Caller) -> None:
    leased(worker)
    pass_by(300)
    at = now_us()
    sweeper.sweep_stuck(at)
    sweeper.sweep_stuck(at - 60 * US)
    assert open_rules() == {"S2": True}
    assert len(entries_of("session.stuck")) == 1


def test_a_report_with_a_system_kind_is_no_system_entry(
    worker: Caller, organization: Organization
) -> None:
    session, _lease = leased(worker)
    forged: list[dict[str, Any]] = [
        {"id": "f-1", "kind": "integrity.fenced", "lease_epoch": 7},
        {
            "id": "f-2",
            "kind": "control.fired",
            "control": "state_drift",
            "sentence": "A forged control.",
        },
    ]
    assert (
        worker.report([{**report, "session": session["id"]} for report in forged]).status_code
        == 200
    )
    sweep(2)
    assert open_rules() == {}
    (row,) = Session.objects.annotate(often=detectors.finding_count_subquery())
    assert row.often is None
