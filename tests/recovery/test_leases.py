"""Leases through the agents' endpoints: holders, epochs, rows and journal entries."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from django.db import DatabaseError, connection, transaction

from journal.models import Entry
from sessions.lease_queries import DEAD_AFTER_TTLS
from sessions.models import Lease, Session
from tests.api.api_client import Caller, code, new_key
from tests.recovery.lease_helpers import expire, hold

pytestmark = pytest.mark.django_db
Call = Callable[..., Caller]


def lease_kinds(session: str) -> list[str]:
    """Return the kinds of lease and fencing entries of a session, in order."""
    entry_kinds = (
        Entry.objects.filter(session=session).order_by("position").values_list("kind", flat=True)
    )
    return [
        kind
        for kind in entry_kinds
        if kind.startswith(("lease.", "integrity.", "session.r", "session.s", "session.h"))
    ][1:]


def test_a_lease_is_acquired_once_and_returned_again_to_its_process(agent: Caller) -> None:
    session = agent.session(mode="leased")
    answer = agent.post("/leases", {"session": "s-1", "process": "p-1"})
    assert answer.status_code == 201, answer.text
    lease = answer.json()
    assert lease["kind"] == "session"
    assert lease["subject"] == lease["session"] == session["id"]
    assert (lease["holder"], lease["process"], lease["epoch"], lease["state"]) == (
        "tester",
        "p-1",
        1,
        "live",
    )
    assert lease["expires_at_us"] == lease["heartbeat_at_us"] + 60_000_000

    again = agent.post("/leases", {"session": session["id"], "process": "p-1"})
    assert (again.status_code, again.json()["epoch"], again.json()["id"]) == (200, 1, lease["id"])
    held = agent.post("/leases", {"session": "s-1", "process": "p-2"})
    assert code(held) == (409, "LEASE_HELD")
    assert held.json()["lease"]["process"] == "p-1"

    row = Session.objects.get(key="s-1")
    assert (row.fence, row.start_by_us, row.resumes) == (1, None, 0)
    assert lease_kinds(session["id"]) == ["lease.acquired"]
    assert agent.get(f"/leases/{lease['id']}").json()["epoch"] == 1
    assert lease["handle"] == f"l_{Entry.objects.get(kind='lease.acquired').position}"


def test_a_leased_session_has_a_start_deadline_until_it_is_acquired(agent: Caller) -> None:
    agent.session("awaited", mode="leased")
    agent.session("shot")
    assert Session.objects.get(key="awaited").start_by_us is not None
    assert Session.objects.get(key="shot").start_by_us is None
    hold(agent, "awaited")
    assert Session.objects.get(key="awaited").start_by_us is None


def test_an_expired_lease_is_taken_over_under_a_new_epoch(agent: Caller, call: Call) -> None:
    session = agent.session(mode="leased")
    lease = hold(agent, "s-1", "p-1")
    other = call("another")
    assert code(other.post("/leases", {"session": "s-1", "process": "p-2"})) == (409, "LEASE_HELD")
    expire(lease)
    assert agent.get(f"/leases/{lease['id']}").json()["state"] == "expired"
    taken = other.post("/leases", {"session": "s-1", "process": "p-2"})
    assert taken.status_code == 201, taken.text
    assert (taken.json()["epoch"], taken.json()["holder"], taken.json()["takeovers"]) == (
        2,
        "another",
        1,
    )
    row = Session.objects.get(key="s-1")
    assert (row.fence, row.resumes) == (2, 1)
    assert lease_kinds(session["id"]) == [
        "lease.acquired",
        "lease.lost",
        "lease.acquired",
        "session.resumed",
    ]


def test_a_session_shows_its_holder_expiry_and_number_of_takeovers(
    agent: Caller, call: Call
) -> None:
    path = f"/sessions/{agent.session(mode='leased')['id']}"
    never = agent.get(path).json()
    assert (never["lease"], never["resumes"]) == (None, 0)
    lease = hold(agent, "s-1", "p-1")
    held = agent.get(path).json()
    assert held["lease"] == agent.get(f"/leases/{lease['id']}").json()
    assert (held["lease"]["holder"], held["lease"]["epoch"], held["resumes"]) == ("tester", 1, 0)
    assert held["lease"]["expires_at_us"] == lease["expires_at_us"]
    expire(lease)
    assert agent.get(path).json()["lease"]["state"] == "expired"
    hold(call("another"), "s-1", "p-2")
    taken = agent.get(path).json()
    assert (taken["lease"]["holder"], taken["lease"]["epoch"], taken["resumes"]) == (
        "another",
        2,
        1,
    )


def test_a_live_lease_is_taken_by_force_from_the_same_agent_only(agent: Caller, call: Call) -> None:
    agent.session(mode="leased")
    hold(agent, "s-1", "p-1")
    wish = {"session": "s-1", "process": "p-2", "takeover": True}
    assert code(call("another").post("/leases", wish)) == (409, "LEASE_HELD")
    taken = agent.post("/leases", wish)
    assert (taken.status_code, taken.json()["epoch"]) == (201, 2)
    expire(taken.json())
    assert hold(agent, "s-1", "p-3", takeover=True)["epoch"] == 3
    lost = Entry.objects.filter(kind="lease.lost").order_by("position")
    assert [(entry.lease_epoch, orjson.loads(entry.facts)["why"]) for entry in lost] == [
        (1, "takeover"),
        (2, "expired"),
    ]


def test_a_lease_is_renewed_and_released_under_its_epoch_alone(agent: Caller) -> None:
    session = agent.session(mode="leased")
    lease = hold(agent, "s-1")
    at = f"/leases/{lease['id']}"
    renewed = agent.post(f"{at}/renew", {"epoch": 1, "ttl_s": 600, "progress": "step 2"})
    assert renewed.status_code == 200, renewed.text
    assert renewed.json()["expires_at_us"] - renewed.json()["heartbeat_at_us"] == 600_000_000
    assert renewed.json()["progress_at_us"] >= lease["progress_at_us"]
    assert code(agent.post(f"{at}/renew", {"epoch": 2})) == (409, "LEASE_LOST")
    lost = agent.post(f"{at}/release", {"epoch": 0})
    assert code(lost) == (409, "LEASE_LOST")
    assert lost.json()["lease"]["epoch"] == 1

    key = new_key()
    released = agent.post(f"{at}/release", {"epoch": 1}, key=key)
    assert (released.status_code, released.json()["state"]) == (200, "released")
    assert agent.post(f"{at}/release", {"epoch": 1}, key=key).json() == released.json()
    assert code(agent.post(f"{at}/release", {"epoch": 1})) == (409, "LEASE_LOST")
    assert code(agent.post(f"{at}/renew", {"epoch": 1})) == (409, "LEASE_LOST")
    assert Session.objects.get(key="s-1").fence == 2
    assert hold(agent, "s-1", "p-1")["epoch"] == 2
    assert "lease.lost" not in lease_kinds(session["id"])


def test_a_repeated_acquisition_is_never_answered_from_the_store(agent: Caller, call: Call) -> None:
    agent.session(mode="leased")
    key, wish = new_key(), {"session": "s-1", "process": "p-1"}
    first = agent.post("/leases", wish, key=key)
    assert agent.post("/leases", wish, key=key).json()["epoch"] == 1
    other = agent.post("/leases", {"session": "s-1", "process": "p-9"}, key=key)
    assert code(other) == (422, "key_reuse")
    expire(first.json())
    hold(call("another"), "s-1", "p-2")
    gone = agent.post("/leases", wish, key=key)
    assert code(gone) == (409, "LEASE_LOST")
    assert (gone.json()["lease"]["epoch"], gone.json()["lease"]["holder"]) == (2, "another")


def test_tasks_and_named_resources_are_leased_as_sessions_are(
    agent: Caller, stranger: Caller
) -> None:
    session = agent.session()
    task = agent.post(f"/sessions/{session['id']}/tasks", {"key": "t"}).json()
    on_task = agent.post("/leases", {"task": task["id"], "process": "p"}).json()
    assert (on_task["kind"], on_task["subject"], on_task["session"]) == (
        "task",
        task["id"],
        session["id"],
    )
    on_branch = agent.post("/leases", {"resource": "acme/x@main", "process": "p"}).json()
    assert (on_branch["kind"], on_branch["subject"], on_branch["session"]) == (
        "resource",
        "acme/x@main",
        None,
    )
    assert code(agent.post("/leases", {"resource": "acme/x@main", "process": "q"})) == (
        409,
        "LEASE_HELD",
    )
    assert Session.objects.get(key="s-1").fence is None

    elsewhere = stranger.post("/leases", {"resource": "acme/x@main", "process": "q"})
    assert elsewhere.status_code == 201
    assert code(stranger.get(f"/leases/{on_task['id']}")) == (404, "not_found")
    assert code(stranger.post(f"/leases/{on_task['id']}/renew", {"epoch": 1})) == (404, "not_found")
    assert code(stranger.post(f"/leases/{on_task['id']}/release", {"epoch": 1})) == (
        404,
        "not_found",
    )
    assert code(stranger.post("/leases", {"task": task["id"], "process": "p"})) == (
        404,
        "not_found",
    )
    assert code(stranger.post("/leases", {"session": session["id"], "process": "p"})) == (
        404,
        "not_found",
    )

    listed = agent.get("/leases", session=session["id"]).json()["items"]
    assert [lease["id"] for lease in listed] == [on_task["id"]]
    assert [
        lease["id"] for lease in agent.get("/leases", kind="resource", state="live").json()["items"]
    ] == [on_branch["id"]]
    assert agent.get("/leases", state="released").json()["items"] == []
    assert code(agent.get("/leases", state="lost")) == (422, "invalid")


@pytest.mark.parametrize(
    "body",
    [
        {"process": "p"},
        {"process": "p", "session": "s-1", "resource": "r"},
        {"session": "s-1"},
        {"process": "p", "session": "s-1", "ttl_s": 4},
        {"process": "p", "session": "s-1", "ttl_s": 3601},
        {"process": "p", "session": "s-1", "ttl_s": True},
        {"process": "p\u0000", "session": "s-1"},
    ],
)
def test_a_request_without_a_valid_subject_or_ttl_is_refused(
    agent: Caller, body: dict[str, Any]
) -> None:
    agent.session()
    assert agent.post("/leases", body).status_code == 422
    assert not Lease.objects.exists()


def test_an_ended_session_releases_its_leases_and_accepts_no_new_one(agent: Caller) -> None:
    session = agent.session(mode="leased")
    lease = hold(agent, "s-1")
    assert agent.post(f"/sessions/{session['id']}/end", {"status": "completed"}).status_code == 200
    assert agent.get(f"/leases/{lease['id']}").json()["state"] == "released"
    assert code(agent.post("/leases", {"session": "s-1", "process": "p"})) == (409, "SESSION_ENDED")
    heartbeat = agent.client.post(
        "/heartbeats", json={"heartbeats": [{"lease": lease["id"], "epoch": 1}]}
    ).json()
    assert (
        heartbeat["results"][0]["status"] == "lost"
    )  # a heartbeat after the end does not renew the lease
    assert lease_kinds(session["id"])[-1] == "lease.released"


@pytest.mark.parametrize(
    "change",
    [
        "epoch = 0",
        "process = 'another'",
        "subject = 'another'",
        "kind = 'resource'",
        "ttl_s = 1",
        "expires_at_us = heartbeat_at_us - 1",
        "dead_at_us = expires_at_us - 1",
    ],
)
def test_triggers_and_constraints_keep_leases_consistent(agent: Caller, change: str) -> None:
    agent.session()
    hold(agent, "s-1")
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE agent_sessions_lease SET {change}")
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM agent_sessions_lease")
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE agent_sessions_session SET fence = NULL")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE agent_sessions_lease SET epoch = 2, process = 'another'"
        )  # as a takeover does
    assert Lease.objects.get().epoch == 2


def test_the_longest_lease_is_taken_over_with_the_same_ttl(agent: Caller) -> None:
    session = agent.session(mode="leased")
    lease = hold(agent, session["id"], ttl_s=3_600)
    expire(lease)
    again = hold(agent, session["id"], "p-2", ttl_s=3_600)
    assert again["expires_at_us"] - again["heartbeat_at_us"] == 3_600_000_000
    row = Lease.objects.get()
    assert row.dead_at_us - row.heartbeat_at_us == DEAD_AFTER_TTLS * 3_600_000_000
