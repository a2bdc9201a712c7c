"""The stuck board over HTTP: its rows right after a deadline, and the actions of people."""

import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import time_machine
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from db.clock import now_us
from journal.models import Body, Entry
from monitoring.models import JobHeartbeat, StuckEpisode
from monitoring.stuck import board, rule_limits, sweeper
from sessions.models import Lease, Session
from tests.api.api_client import Caller, code
from tests.pages.people import Organization
from tests.pages.sample_data import connect_agent
from tests.recovery.stuck_helpers import US, heartbeat, leased, open_rules, pass_by, sweeps_go_on

pytestmark = pytest.mark.django_db


@pytest.fixture
def worker(organization: Organization) -> Iterator[Caller]:
    """An agent of the installation at the API's endpoints."""
    with connect_agent(organization.agent) as caller:
        yield caller


def page_text(client: Client, url: str = "/stuck/") -> str:
    answer = client.get(url)
    assert answer.status_code == 200, answer.content.decode()[:2000]
    return " ".join(re.sub(r"<[^>]+>", " ", answer.content.decode()).split())


def action_url(rule: str, subject: str) -> str:
    return f"/stuck/{rule}/{subject}/"


def test_a_dead_session_is_on_the_board_after_its_deadline_without_a_sweep(
    organization: Organization, worker: Caller
) -> None:
    leased(worker, title="Nightly bump")
    viewer = organization.client("viewer")
    assert "Nothing is stuck." in page_text(viewer)
    due_us = Lease.objects.get().dead_at_us
    # A slow machine needs longer than a second for a page, so the clock is frozen.
    with time_machine.travel((due_us - US) / US, tick=False):
        assert "Nothing is stuck." in page_text(viewer)
    with time_machine.travel((due_us + US) / US, tick=False):
        page = page_text(viewer)
    assert "Stuck: 1" in page
    assert "Worker gone: lease expired 1, S2" in page
    assert "no heartbeat since" in page
    assert "Stuck 1 for a person" in page  # the rail shows the same count
    assert not StuckEpisode.objects.exists()


def test_the_page_of_a_session_shows_its_expired_lease(
    organization: Organization, worker: Caller
) -> None:
    session, _lease = leased(worker)
    url, viewer = f"/sessions/{session['id']}/", organization.client("viewer")
    assert re.search(r"w-1 , epoch 1, until \S+ \S+", page_text(viewer, url))
    pass_by(121)
    assert re.search(r"w-1 , epoch 1, expired \S+ \S+", page_text(viewer, url))


def test_the_rail_of_every_page_counts_raised_episodes(
    organization: Organization, worker: Caller
) -> None:
    leased(worker)
    pass_by(121)
    sweeper.sweep_stuck()
    viewer = organization.client("viewer")
    assert "waiting" not in page_text(viewer, "/tools/").partition("Tools")[0]
    sweeper.sweep_stuck()
    assert "Stuck 1 for a person" in page_text(viewer, "/tools/")
    pass_by(600)
    sweeps_go_on(600)
    sweeper.sweep_stuck()
    sweeper.sweep_stuck()
    assert open_rules() == {"S2": True, "S7": True}
    assert "Stuck 1 for a person" in page_text(viewer, "/tools/")  # one session, counted once


def test_the_why_page_lists_the_terms_with_values_and_thresholds(
    organization: Organization, worker: Caller
) -> None:
    session, lease = leased(worker)
    url = f"/sessions/{session['id']}/stuck/"
    viewer = organization.client("viewer")
    assert "Not stuck." in page_text(viewer, url)
    pass_by(121)
    page = page_text(viewer, url)
    assert "Stuck by 1 rule." in page
    assert "S2 Worker gone: lease expired true since" in page
    assert re.search(r"lease runs until \S+ \S+ passed yes", page)
    assert "pending requests 0 0 yes" in page
    worker.post(
        f"/sessions/{session['id']}/end", {"status": "completed", "lease_epoch": lease["epoch"]}
    )
    assert "The session has ended, so it cannot be stuck." in page_text(viewer, url)
    assert organization.client("neighbour").get(url).status_code == 404


def test_a_person_releases_a_lease_with_a_reason_and_the_worker_is_fenced(
    organization: Organization, worker: Caller
) -> None:
    session, lease = leased(worker)
    pass_by(121)
    client, url = organization.client("reviewer"), action_url("S2", session["id"])
    page = page_text(client, f"{url}?do=release")
    assert f"Release the lease of s_{Session.objects.get().opened_position}?" in page
    assert Lease.objects.get().released_at_us is None
    refused = client.post(url, {"do": "release", "reason": " "})
    assert refused.status_code == 422
    assert "Enter a reason" in refused.content.decode()
    assert Lease.objects.get().released_at_us is None
    answer = client.post(url, {"do": "release", "reason": "w-1 is gone, see INC-204"}, follow=True)
    assert "Lease released. Any worker can take over" in answer.content.decode()
    assert Lease.objects.get().released_at_us is not None
    entry = Entry.objects.get(kind="lease.released")
    assert entry.actor == organization.members["reviewer"].user.person.pseudonym
    assert "INC-204" in Body.objects.get(entry=entry).text
    assert heartbeat(worker, lease)["status"] == "lost"
    stale = worker.post(
        f"/sessions/{session['id']}/decisions", {"key": "d", "choice": "x", "lease_epoch": 1}
    )
    assert code(stale) == (409, "LEASE_LOST")
    again = client.post(url, {"do": "release", "reason": "once more"})
    assert again.status_code == 409
    assert "No longer stuck" in again.content.decode()
    assert Entry.objects.filter(kind="lease.released").count() == 1


def test_a_session_that_a_person_released_goes_to_the_next_claim(
    organization: Organization, worker: Caller
) -> None:
    wish = {"process": "w-2", "kinds": ["session"]}
    dead_lease, lease = leased(worker, "dead")
    _session, other = leased(worker, "given up")
    pass_by(121)
    heartbeat(worker, other)
    worker.post(f"/leases/{other['id']}/release", {"epoch": other["epoch"]})
    sent = {"do": "release", "reason": "its host is gone"}
    assert (
        organization.client("reviewer").post(action_url("S2", dead_lease["id"]), sent).status_code
        == 302
    )
    claimed = worker.post("/claims", wish).json()
    assert (claimed["claimed"]["session"], claimed["lease"]["epoch"]) == (
        dead_lease["id"],
        lease["epoch"] + 1,
    )
    assert (
        worker.post("/claims", wish).json()["claimed"] is None
    )  # its holder released the other session without a handoff


def test_actions_work_for_sessions_beyond_the_limit_of_the_board(
    organization: Organization, worker: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [leased(worker, f"s-{n}")[0] for n in range(2)]
    pass_by(121)
    monkeypatch.setattr(board, "MOST", 1)
    for session in made:
        url = action_url("S2", session["id"])
        assert organization.client("reviewer").get(url).status_code == 200
        assert (
            organization.client("reviewer")
            .post(url, {"do": "release", "reason": "it is gone"})
            .status_code
            == 302
        )


def test_a_lease_with_a_new_holder_is_not_released(
    organization: Organization, worker: Caller
) -> None:
    session, _lease = leased(worker)
    pass_by(121)
    client, url = organization.client("reviewer"), action_url("S2", session["id"])
    client.get(f"{url}?do=release")
    taken = worker.post("/leases", {"session": session["id"], "process": "w-2"}).json()
    assert client.post(url, {"do": "release", "reason": "w-1 is gone"}).status_code == 409
    assert heartbeat(worker, taken)["status"] == "ok"


def test_a_stuck_session_is_assigned_with_a_reason(
    organization: Organization, worker: Caller
) -> None:
    session, _lease = leased(worker)
    pass_by(121)
    client, url = organization.client("reviewer"), action_url("S2", session["id"])
    wrong = client.post(url, {"do": "assign", "person": "neighbour", "reason": "because"})
    assert wrong.status_code == 422
    assert (
        client.post(
            url, {"do": "assign", "person": "administrator", "reason": "on call"}
        ).status_code
        == 302
    )
    assert "administrator assign" in page_text(client)
    assert "Stuck: 1" in page_text(organization.client("administrator"), "/stuck/?mine=1")
    assert "Nothing assigned to you is stuck." in page_text(client, "/stuck/?mine=1")
    entry = Entry.objects.get(kind="stuck.assigned")
    assert entry.subject == UUID(session["id"])
    assert entry.actor == organization.members["reviewer"].user.person.pseudonym
    sweeper.sweep_stuck()
    sweeper.sweep_stuck()
    assert open_rules() == {"S2": True}
    assert StuckEpisode.objects.get().owner == organization.members["administrator"].user


def test_a_snooze_has_a_reason_and_an_end_and_comes_back(
    organization: Organization, worker: Caller
) -> None:
    session, _lease = leased(worker)
    pass_by(121)
    client, url = organization.client("reviewer"), action_url("S2", session["id"])
    for wrong in ({"end": "9y", "reason": "because"}, {"end": "1h", "reason": ""}):
        assert client.post(url, {"do": "snooze", **wrong}).status_code == 422
    assert (
        client.post(url, {"do": "snooze", "end": "1h", "reason": "the host is moved"}).status_code
        == 302
    )
    page = page_text(client)
    assert "Stuck: 0" in page
    assert "1 snoozed" in page
    assert "the host is moved" in page
    row = StuckEpisode.objects.get()
    assert row.snoozed_until_us is not None
    assert 3500 * US < row.snoozed_until_us - now_us() <= 3600 * US
    assert Entry.objects.get(kind="stuck.snoozed").position == row.snoozed_position
    pass_by(3601)
    assert "Stuck: 1" in page_text(client)
    client.post(url.replace("S2", "S7"), {"do": "snooze", "end": "8h", "reason": "later"})
    assert "Stuck: 0" in page_text(client)
    client.post(url.replace("S2", "S7"), {"do": "unfold", "reason": "now"})
    assert "Stuck: 1" in page_text(client)


def test_only_reviewers_act_and_only_in_their_project(
    organization: Organization, worker: Caller
) -> None:
    session, _lease = leased(worker)
    pass_by(121)
    url = action_url("S2", session["id"])
    sent = {"do": "release", "reason": "because I can"}
    assert organization.client("viewer").get(url).status_code == 403
    assert organization.client("viewer").post(url, sent).status_code == 403
    assert organization.client("neighbour").post(url, sent).status_code == 404
    assert organization.client("reviewer", csrf=True).post(url, sent).status_code == 403
    for unknown in ("S99", "S1"):
        expected = 404 if unknown == "S99" else 409
        assert (
            organization.client("reviewer")
            .post(action_url(unknown, session["id"]), sent)
            .status_code
            == expected
        )
    assert (
        "s_"
        not in page_text(organization.client("neighbour"))
        .partition("Stuck")[2]
        .partition("Clear")[0]
    )
    assert Lease.objects.get().released_at_us is None


def test_a_poll_gets_no_content_until_the_list_changed(
    organization: Organization, worker: Caller
) -> None:
    leased(worker)
    pass_by(121)
    client = organization.client("viewer")
    page = client.get("/stuck/").content.decode()
    match = re.search(r'hx-get="/stuck/\?since=(\w+)', page)
    assert match is not None
    url, headers = f"/stuck/?since={match[1]}", {"HX-Request": "true"}
    assert client.get(url, headers=headers).status_code == 204
    leased(worker, "s-2")
    pass_by(121)
    answer = client.get(url, headers=headers)
    assert answer.status_code == 200
    assert "The list changed: 2 now" in answer.content.decode()
    assert "live=off" in page
    assert "hx-get" not in client.get("/stuck/?live=off").content.decode().partition("<main")[2]


def test_late_jobs_are_shown_on_every_page_and_by_readyz(organization: Organization) -> None:
    assert Client().get("/readyz").content == b"ready\n"
    sweeper.sweep_stuck()
    viewer = organization.client("viewer")
    assert re.search(r"Stuck checks [\d.]+ m?s ago", page_text(viewer, "/tools/"))
    # Ages in minutes include seconds, and a slow machine needs seconds for a page.
    JobHeartbeat.objects.update(heartbeat_us=now_us() - 5 * 3600 * US, every_us=5 * US)
    assert "Stuck checks late, last ran 5 h ago" in page_text(viewer, "/tools/")
    expected = b"ready, degraded: stuck_checks\nstuck_checks: late, last ran 5 h ago\n"
    assert Client().get("/readyz").content == expected
    sweeps_go_on(5 * 3600)  # a job that runs every five hours is not late
    assert "Stuck checks 5 h ago" in page_text(viewer, "/tools/")


def write_dead_sessions(organization: Organization, number: int) -> None:
    """Write `number` dead sessions and their leases directly."""
    now = now_us()
    with transaction.atomic():
        start = Session.objects.count()
        sessions = [
            Session(
                project=organization.project,
                key=f"many-{n}",
                title=f"Session number {n} of many",
                agent=organization.agent,
                mode="leased",
                opened_position=10_000 + n,
                created_at_us=now,
                seen_at_us=now,
            )
            for n in range(start, start + number)
        ]
        Session.objects.bulk_create(sessions)
        Lease.objects.bulk_create([dead_lease(session, now) for session in sessions])


def dead_lease(session: Session, now: int) -> Any:
    gone: dict[str, int] = dict.fromkeys(
        ("acquired_at_us", "heartbeat_at_us", "progress_at_us"), now - 300 * US
    )
    return Lease(
        id=session.id,
        project_id=session.project_id,
        kind="session",
        subject=str(session.id),
        session=session,
        agent_id=session.agent_id,
        process="w-1",
        ttl_s=60,
        expires_at_us=now - 240 * US,
        dead_at_us=now - 180 * US,
        wedged_at_us=now + 600 * US,
        opened_position=session.opened_position,
        **gone,
    )


def test_queries_and_page_size_do_not_grow_with_the_number_of_stuck_sessions(
    organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Limits are cached for seconds, and a slow machine needs longer to write a thousand sessions.
    monkeypatch.setattr(rule_limits, "CACHE_S", 3600)
    client = organization.client("reviewer")
    client.get("/stuck/")
    query_counts = []
    for number in (10, 990):
        write_dead_sessions(organization, number)
        with CaptureQueriesContext(connection) as queries:
            answer = client.get("/stuck/")
        query_counts.append(len(queries))
        assert len(answer.content) < 66_000, len(answer.content)
    assert query_counts[0] == query_counts[1] <= 12
    assert "Stuck: 1000" in answer.content.decode()
    assert answer.content.count(b'data-label="Evidence"') == 25
    assert "Show 975 more with this cause" in answer.content.decode()
    page = client.get("/stuck/?cause=dead&from=900").content.decode()
    assert page.count('data-label="Evidence"') == 100
    assert 'rel="next"' not in page


def test_the_why_page_begins_with_what_the_session_waits_on(
    organization: Organization, worker: Caller
) -> None:
    session, lease = leased(worker)
    url, viewer = f"/sessions/{session['id']}/stuck/", organization.client("viewer")
    assert "Not waiting on anything Gatebook knows of." in page_text(viewer, url)
    effect = worker.plan("mail", "s-1", tool="mail.send", lease_epoch=lease["epoch"])
    body = {"process": "p", "intent_digest": effect["intent_digest"], "lease_epoch": lease["epoch"]}
    assert worker.post(f"/effects/{effect['id']}/dispatch", body).status_code == 200
    at = f"/sessions/{session['id']}/handoffs"
    assert worker.post(at, {"can_wait": ["x"], "lease_epoch": lease["epoch"]}).status_code == 201
    page = page_text(viewer, url)
    assert re.search(r"Waiting for a tool result \(not overdue\): e_\d+ mail.send", page)
    assert re.search(r"no result, dispatched \S+ \S+ ; deadline \S+ \S+ \.", page)
    assert re.search(
        r"Waiting for a worker to take over: handoff \d+ handoff written \S+ \S+ , acceptance due "
        r"\S+ \S+ \.",
        page,
    )
    assert f'href="/effects/{effect["id"]}/"' in viewer.get(url).content.decode()
    pass_by(86_400)
    page = page_text(viewer, url)
    assert re.search(
        r"Outcome unknown e_\d+ mail.send no result, dispatched \S+ \S+ ; deadline passed \S+ \S+ "
        r"\.",
        page,
    )
    assert "not accepted within 10 min." in page
    # "Met when" shows when a term is met.
    assert "last progress" in page
    assert "none within 15 min" in page
    assert "Condition Now Met when Met" in page


def test_a_silent_source_is_named(organization: Organization, worker: Caller) -> None:
    for number in range(3):
        leased(worker, f"s-{number}")
    pass_by(121)
    sweeper.sweep_stuck()
    assert f"agent {organization.agent.name} no heartbeat from any of the 3 sessions" in page_text(
        organization.client("viewer")
    )


def test_clear_rules_are_one_sentence(organization: Organization) -> None:
    assert "S10 no reports from an active agent. To find unknown" in page_text(
        organization.client("viewer")
    )
