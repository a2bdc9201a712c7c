"""Stuck detection through the endpoints: agents stop, two sweeps run, and the journal records
episodes."""

import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import orjson
import pytest
import time_machine
from django.db import transaction

from db.clock import now_us
from journal import erasures
from journal.models import Entry, Outbox
from ledger.models import Effect
from monitoring.models import StuckEpisode
from monitoring.stuck import sweeper
from notifications import message_text
from sessions.models import Lease
from tests.api.api_client import Caller
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.people import Organization
from tests.pages.sample_data import connect_agent
from tests.recovery.stuck_helpers import US, heartbeat, leased, open_rules, pass_by, sweeps_go_on

pytestmark = pytest.mark.django_db


@pytest.fixture
def worker(organization: Organization) -> Iterator[Caller]:
    """An agent of the installation at the API's endpoints."""
    with connect_agent(organization.agent) as caller:
        yield caller


def sweep(times: int = 1) -> sweeper.SweepResult:
    """Run the sweeper `times` times."""
    for _ in range(times):
        done = sweeper.sweep_stuck()
    return done


def entries_of(kind: str, session: dict[str, Any] | None = None) -> list[Entry]:
    rows = Entry.objects.filter(kind=kind)
    return list(rows.filter(session=UUID(session["id"])) if session is not None else rows)


def alerts() -> list[str]:
    rows = Outbox.objects.filter(topic="stuck", deduplication_key__startswith="stuck:")
    return list(rows.values_list("deduplication_key", flat=True))


def run_effect(
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


def test_a_session_without_a_start_is_stuck_until_a_worker_takes_it(worker: Caller) -> None:
    session = worker.session("s-1", mode="leased")
    sweep()
    pass_by(270)  # of 300 s, with a margin for a slow machine
    sweep(2)
    assert open_rules() == {}
    pass_by(31)
    sweep()
    assert open_rules() == {"S1": False}
    sweep()
    assert open_rules() == {"S1": True}
    worker.post("/leases", {"session": session["id"], "process": "w-1"})
    assert sweep().cleared == 1
    (stuck,), (recovered,) = (
        entries_of("session.stuck", session),
        entries_of("session.recovered", session),
    )
    row = StuckEpisode.objects.get()
    assert (row.raised_position, row.cleared_position) == (stuck.position, recovered.position)


def test_an_alert_shows_its_rule_and_why_wherever_it_is_read(
    organization: Organization, worker: Caller
) -> None:
    session = worker.session("s-1", mode="leased")
    pass_by(301)
    sweep(2)
    (entry,) = entries_of("session.stuck", session)
    rule, why = "S1 Never started", "no lease within"
    client = organization.client("viewer")

    def read(url: str, **headers: str) -> str:
        page = client.get(url, headers=headers).content.decode()
        return " ".join(re.sub(r"<[^>]+>", " ", page).split())

    for url in (f"/sessions/{session['id']}/people/", f"/journal/?at={entry.position}"):
        words = read(url)
        assert rule in words, url
        assert why in words, url
    timeline = f"/sessions/{session['id']}/timeline/"
    assert f"<title>stuck: {rule}</title>" in client.get(timeline + "?view=lanes").content.decode()
    events = client.get(timeline + "?view=json").json()["session_events"]
    assert [event["rule"] for event in events if event["kind"] == "session.stuck"] == ["S1"]
    build_text = message_text.load_text_builder("session.stuck")
    assert build_text is not None
    text = build_text(entry)
    assert text is not None
    assert "Rule S1" in text.facts[0]
    assert why in text.facts[1]
    # The evidence may name what an agent chose: it goes with the body.
    with transaction.atomic():
        erasures.erase_body(
            entry.project, entry.position, reason="t", actor="tests", now_us=entry.received_us
        )
    erased = read(f"/journal/?at={entry.position}")
    assert rule in erased
    assert why not in erased


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_recovery_by_the_end_of_the_session_is_not_recorded_as_progress(
    worker: Caller, status: str
) -> None:
    session, lease = leased(worker)
    going_on, _lease = leased(worker, "s-2")
    pass_by(121)
    sweep(2)
    assert len(entries_of("session.stuck")) == 2
    end = {"status": status, "lease_epoch": lease["epoch"]}
    assert worker.post(f"/sessions/{session['id']}/end", end).status_code == 200
    worker.post("/leases", {"session": going_on["id"], "process": "w-2"})
    assert sweep().cleared == 2
    whys = [
        orjson.loads(entries_of("session.recovered", row)[0].facts)["why"]
        for row in (session, going_on)
    ]
    assert whys == [f"session_{status}", "progress"]


def test_the_second_sweep_after_death_raises_one_alert_for_an_epoch(worker: Caller) -> None:
    session, lease = leased(worker)
    pass_by(121)
    sweep()
    assert (open_rules(), entries_of("session.stuck")) == ({"S2": False}, [])
    assert sweep().raised == 1
    assert sweep(3).raised == 0
    assert (len(entries_of("session.stuck")), len(alerts())) == (1, 1)
    assert (
        heartbeat(worker, lease, progress="back")["status"] == "ok"
    )  # no other worker had taken the lease
    assert sweep().cleared == 1
    pass_by(121)
    sweeps_go_on(121)
    sweep(2)
    assert len(entries_of("session.stuck", session)) == 2
    assert len(alerts()) == 1  # one alert per session, rule and epoch
    taken = worker.post("/leases", {"session": session["id"], "process": "w-2"}).json()
    assert taken["epoch"] == 2
    assert sweep().cleared == 1
    pass_by(121)
    sweeps_go_on(121)
    sweep(2)
    assert len(alerts()) == 2


def test_a_flicker_between_two_sweeps_raises_no_alert(worker: Caller) -> None:
    _session, lease = leased(worker)
    pass_by(121)
    sweep()
    heartbeat(worker, lease)
    sweep()
    pass_by(121)
    sweeps_go_on(121)
    sweep()
    assert (open_rules(), entries_of("session.stuck"), alerts()) == ({"S2": False}, [], [])


def test_finished_sessions_are_never_stuck_and_a_late_heartbeat_changes_nothing(
    worker: Caller,
) -> None:
    session, lease = leased(worker)
    run_effect(worker, session, "e-1", lease)
    pass_by(1000)
    sweep(2)
    assert open_rules() == {"S2": True, "S4": True, "S7": True}
    ended = worker.post(
        f"/sessions/{session['id']}/end", {"status": "completed", "lease_epoch": lease["epoch"]}
    )
    assert ended.status_code == 200, ended.text
    assert sweep().cleared == 3
    assert heartbeat(worker, lease)["status"] == "lost"
    pass_by(10_000)
    sweeps_go_on(10_000)
    sweep(2)
    assert open_rules() == {}


def test_a_wedged_agent_with_heartbeats_is_stuck_until_it_has_progress(
    worker: Caller,
) -> None:
    _session, lease = leased(worker)
    heartbeat(worker, lease, progress="page 3")
    for _minute in range(16):
        pass_by(60)
        heartbeat(worker, lease)
    sweeps_go_on(1000)
    sweep(2)
    assert open_rules() == {"S3": True}
    heartbeat(worker, lease, progress="page 4")
    sweep()
    assert open_rules() == {}


def test_heartbeats_with_one_token_for_15_minutes_are_a_loop(worker: Caller) -> None:
    session, lease = leased(worker)
    done = worker.post(
        f"/effects/{run_effect(worker, session, 'e-0', lease)['id']}/acknowledge",
        {"attempt": 1, "outcome": "ok"},
    )
    assert done.status_code == 200
    for _minute in range(18):
        pass_by(60)
        for _ in range(
            4
        ):  # more than needed, because a clock minute may end between two heartbeats
            heartbeat(worker, lease, progress="page 3")
    sweeps_go_on(1000)
    sweep(2)
    assert open_rules() == {"S3": True, "S5": True}


def test_announced_quiet_delays_the_alert_until_its_end(worker: Caller) -> None:
    _session, lease = leased(worker)
    heartbeat(worker, lease, quiet_s=600)
    pass_by(570)
    sweep(2)
    assert open_rules() == {}
    pass_by(150)
    sweeps_go_on(150)
    sweep(2)
    assert open_rules() == {"S2": True}


def test_an_unknown_outcome_is_stuck_and_shows_who_can_resolve_it(
    worker: Caller, organization: Organization
) -> None:
    session = worker.session("s-1")
    effect = run_effect(worker, session, "e-1", tool="mail.send")
    pass_by(301)
    sweep(2)
    assert open_rules() == {"S4": True}
    assert StuckEpisode.objects.get().needs_person  # an undeclared tool cannot be probed
    resolve = f"/effects/{effect['id']}/resolve/"
    for role, offered in (("viewer", False), ("operator", True)):
        page = organization.client(role).get("/stuck/").content.decode()
        assert "Outcome unknown, needs a person" in page
        assert (resolve in page) is offered
    worker.acknowledge(effect)
    sweep()
    assert open_rules() == {}


def read_words(page: str) -> str:
    """Return the text of a page without its markup."""
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_five_equal_calls_are_a_loop_unless_a_decision_is_between_them(
    organization: Organization, worker: Caller
) -> None:
    def calls(session: dict[str, Any], start: int, number: int, result: Any = "red") -> None:
        for n in range(start, start + number):
            worker.acknowledge(run_effect(worker, session, f"e-{n}"), result=result)

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
    sweep(2)
    assert [
        str(row.session_id) for row in StuckEpisode.objects.filter(raised_us__isnull=False)
    ] == [looping["id"]]
    (row,) = StuckEpisode.objects.all()
    newest = Effect.objects.get(session=looping["id"], effect_key="e-4")
    says = "5 equal calls with equal results, each ended well; newest: "
    assert (row.rule, *row.says[:2]) == ("S5", says, str(newest))
    # Board and session name the call and its outcome; arguments are read from the plan.
    board, busy_page, page = (
        organization.client("viewer").get(url).content.decode()
        for url in ("/stuck/", f"/sessions/{busy['id']}/", f"/sessions/{looping['id']}/")
    )
    named = "ci.run 1 : 5 equal calls with equal results, each ended well"
    assert named in read_words(board)
    assert f'id="S5-{looping["id"]}"' in board
    top = page.partition("Can it resume safely?")[0]
    assert "Looping: retrying without progress" in top
    assert named in read_words(top)
    assert f'/stuck/?cause=looping#S5-{looping["id"]}"' in top
    assert "Looping:" not in busy_page
    assert newest.plan_position is not None
    with transaction.atomic():
        erasures.erase_body(
            newest.project_id, newest.plan_position, reason="t", actor="t", now_us=now_us()
        )
    page = organization.client("viewer").get(f"/sessions/{looping['id']}/").content.decode()
    assert "ci.run : 5 equal calls" in read_words(page)
    worker.acknowledge(run_effect(worker, looping, "e-9", arguments={"job": 2}), result="green")
    sweep()
    assert open_rules() == {}


def test_a_gate_past_half_of_its_time_is_stuck_and_its_worker_is_not_dead(
    inbox: InboxScenario,
) -> None:
    session, lease = leased(inbox.agent)
    planned = inbox.agent.plan("e-1", session["id"], lease_epoch=lease["epoch"])
    gate, requested_us = inbox.gate(planned), now_us()
    for second, expected in ((1790, {}), (1795, {}), (1805, {"S6": False}), (1810, {"S6": True})):
        sweeper.sweep_stuck(requested_us + second * US)
        sweeps_go_on(1800)
        assert open_rules() == expected  # the lease is expired, but the session is not dead
    with time_machine.travel((requested_us + 1810 * US) / US):
        page = inbox.organization.client("viewer").get("/stuck/").content.decode()
        sessions = inbox.organization.client("viewer").get("/sessions/").content.decode()
    assert f'href="/approvals/{gate.id}/"' in page
    assert "No case needs a person" in page, "people were asked already"
    assert "1 waits for a worker’s check or for a person" in " ".join(page.split())
    assert "g_" in page.partition('class="clocks"')[2].partition("</figure>")[0], "a clock for it"
    assert all(
        "Stuck</a>" in " ".join(each.split()).replace(" </a>", "</a>") for each in (page, sessions)
    )
    assert "reviewer" in page
    inbox.answer(inbox.gate(planned), "carol")
    sweeper.sweep_stuck(requested_us + 1815 * US)
    assert "S6" not in open_rules()


def test_a_released_session_is_an_orphan_until_a_worker_takes_it(worker: Caller) -> None:
    session, lease = leased(worker)
    worker.post(f"/leases/{lease['id']}/release", {"epoch": lease["epoch"]})
    later = (Lease.objects.get().released_at_us or 0) + 590 * US
    sweeper.sweep_stuck(later)
    sweeper.sweep_stuck(later)
    assert open_rules() == {}
    for second in (20, 25):
        sweeps_go_on(20)
        sweeper.sweep_stuck(later + second * US)
    assert open_rules() == {"S7": True}
    worker.post("/leases", {"session": session["id"], "process": "w-2"})
    sweep()
    assert open_rules() == {}


def test_an_unaccepted_handoff_is_an_orphan_until_it_is_accepted(worker: Caller) -> None:
    session, lease = leased(worker)
    sections: dict[str, list[str]] = {
        name: [] for name in ("in_progress", "decided", "needs_attention", "can_wait", "waits_on")
    }
    body: dict[str, Any] = {**sections, "in_progress": ["the push"], "lease_epoch": lease["epoch"]}
    written = worker.post(f"/sessions/{session['id']}/handoffs", body)
    assert written.status_code == 201, written.text
    pass_by(601)
    heartbeat(worker, lease)
    sweep(2)
    assert open_rules() == {"S7": True}
    worker.post(f"/handoffs/{written.json()['id']}/accept", {"lease_epoch": lease["epoch"]})
    sweep()
    assert open_rules() == {}


def test_a_stale_report_is_a_zombie_until_the_session_ends(worker: Caller) -> None:
    session, lease = leased(worker)
    effect = run_effect(worker, session, "e-1", lease)
    pass_by(121)
    taken = worker.post("/leases", {"session": session["id"], "process": "w-2"}).json()
    late = {"attempt": 1, "outcome": "ok", "lease_epoch": lease["epoch"]}
    answer = worker.post(f"/effects/{effect['id']}/acknowledge", late)
    assert answer.status_code == 202, answer.text
    sweeps_go_on(200)
    sweep(2)
    assert open_rules()["S8"]
    ended = {"status": "completed", "lease_epoch": taken["epoch"]}
    assert worker.post(f"/sessions/{session['id']}/end", ended).status_code == 200
    sweep()
    assert open_rules() == {}


def test_reported_and_one_shot_sessions_are_never_dead(worker: Caller) -> None:
    worker.session("shot")
    worker.report(
        [{"id": "1", "kind": "session.started", "session": "hook", "title": "Hooks only"}]
    )
    pass_by(100_000)
    sweep(2)
    assert open_rules() == {}


def test_progress_elsewhere_ends_a_loop_of_attempts(worker: Caller) -> None:
    session, lease = leased(worker)
    failed = {
        "kind": "effect.failed",
        "session": session["id"],
        "effect_key": "again",
        "reason": "rejected",
    }
    worker.report([{"id": f"f-{number}", **failed, "attempt": number} for number in range(1, 7)])
    run_effect(worker, session, "other", lease)
    sweep(2)
    assert open_rules() == {"S5": True}
    worker.post(
        f"/sessions/{session['id']}/checkpoints",
        {"summary": "by another way", "lease_epoch": lease["epoch"]},
    )
    sweep()
    assert open_rules() == {}
    worker.report(
        [
            {"id": "f-7", **failed, "attempt": 7},
            {"id": "d-7", **failed, "attempt": 7, "kind": "effect.dispatched"},
        ]
    )
    sweep(2)
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
    sweep()
    assert open_rules() == {}


def test_a_request_without_an_epoch_is_refused_and_is_no_zombie(worker: Caller) -> None:
    session, _lease = leased(worker)
    body = {"session": session["id"], "effect_key": "e", "tool": "ci.run", "arguments": {}}
    assert worker.post("/effects", body).json()["code"] == "LEASE_LOST"
    assert len(entries_of("integrity.fenced", session)) == 1
    sweep(2)
    assert open_rules() == {}


def test_a_session_with_claimed_tasks_has_started_and_is_no_orphan(worker: Caller) -> None:
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
    ):  # by then the workers' leases are expired
        for more in (0, 5):
            sweeps_go_on(second)
            sweeper.sweep_stuck(begun + (second + more) * US)
        raised_rules = [
            rule
            for session in (late, given_up)
            for rule, raised in open_rules(session["id"]).items()
            if raised
        ]
        assert raised_rules == rules
