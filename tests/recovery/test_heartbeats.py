"""Heartbeats: many leases in one request, two clocks, silence that the journal tells of, and clocks that
jump."""

import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import orjson
import pytest
import time_machine
from django.core.management import call_command
from django.db import connection, transaction

from accounts.models import Project
from api.tasks import prune_idempotency_keys
from config.celery import app
from db import clock
from db.clock import now_us
from journal.models import Entry
from ledger.models import Effect
from sessions import heartbeats, leases
from sessions.lease_queries import Heartbeat
from sessions.models import HeartbeatMinute, Lease
from tests.api.api_client import Caller, code
from tests.recovery.lease_helpers import expire, hold, pass_time

pytestmark = pytest.mark.django_db
Call = Callable[..., Caller]
MINUTE = 60_000_000


def heartbeat(agent: Caller, *told: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of one request of heartbeats."""
    answer = agent.client.post("/heartbeats", json={"heartbeats": list(told)})
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def of(lease: dict[str, Any], epoch: int = 1, **more: Any) -> dict[str, Any]:
    return {"lease": lease["id"], "epoch": epoch, **more}


def statuses(results: list[dict[str, Any]]) -> list[str]:
    return [one["status"] for one in results]


def told(kind: str) -> list[dict[str, Any]]:
    """The facts of the entries of a kind, in order."""
    found = Entry.objects.filter(kind=kind).order_by("position").values_list("facts", flat=True)
    return [orjson.loads(facts) for facts in found]


def test_one_request_sends_many_heartbeats_and_answers_each(agent: Caller, call: Call) -> None:
    other = call("another")
    for key in ("a", "b", "c", "d"):
        agent.session(key, mode="leased")
    a, b, c = (hold(agent, key) for key in "abc")
    foreign = hold(other, "d")
    expire(b)
    hold(other, "b", "p-2")
    agent.post(f"/leases/{c['id']}/release", {"epoch": 1})
    pass_time(a, 30)
    before = Lease.objects.get(id=a["id"])
    results = heartbeat(
        agent,
        of(a),
        of(b),
        of(c),
        of(foreign),
        of(a, 2),
        {"lease": a["id"][:-4] + "0000", "epoch": 1},
    )
    assert statuses(results) == ["ok", "lost", "lost", "lost", "lost", "lost"]
    row = Lease.objects.get(id=a["id"])
    assert results[0]["expires_at_us"] == row.expires_at_us == row.heartbeat_at_us + MINUTE
    assert row.dead_at_us == row.heartbeat_at_us + 2 * MINUTE
    assert row.heartbeat_at_us > before.heartbeat_at_us
    assert row.progress_at_us == before.progress_at_us  # alive is not progressing
    assert Lease.objects.get(id=foreign["id"]).heartbeat_at_us == foreign["heartbeat_at_us"]
    assert [one["given"] for one in told("integrity.fenced")] == [
        1
    ]  # b; what was released is nobody else's
    heartbeat(agent, of(b))
    assert len(told("integrity.fenced")) == 1  # said once of each lease and epoch


def test_a_new_progress_token_moves_the_other_clock_and_the_same_one_does_not(
    agent: Caller,
) -> None:
    agent.session(mode="leased")
    lease = hold(agent, "s-1")
    seen = []
    for token in ("1", "1", "2", None, "2"):
        pass_time(lease, 10)
        before = Lease.objects.get(id=lease["id"]).progress_at_us
        heartbeat(agent, of(lease, progress=token))
        row = Lease.objects.get(id=lease["id"])
        assert row.wedged_at_us == row.progress_at_us + 15 * MINUTE
        seen.append(row.progress_at_us > before)
    assert seen == [True, False, True, False, False]
    counted = HeartbeatMinute.objects.filter(lease=lease["id"])
    assert sum(one.heartbeats for one in counted) == 5
    assert sum(one.progresses for one in counted) == 2


def test_heartbeats_of_a_minute_are_counted_in_its_row(agent: Caller) -> None:
    agent.session("a"), agent.session("b")
    a, b = hold(agent, "a"), hold(agent, "b")
    for _ in range(3):
        heartbeat(agent, of(b), of(a), of(a))  # twice in one request is heard once
    for lease in (a, b):
        rows = list(HeartbeatMinute.objects.filter(lease=lease["id"]))
        assert sum(row.heartbeats for row in rows) == 3
        at_us = Lease.objects.get(id=lease["id"]).heartbeat_at_us
        assert max(row.minute for row in rows) == at_us // MINUTE
    stored = HeartbeatMinute.objects.count()
    assert (heartbeats.prune_heartbeat_minutes(), heartbeats.prune_heartbeat_minutes(-10)) == (
        0,
        stored,
    )
    assert not HeartbeatMinute.objects.exists()


def test_counted_heartbeats_go_after_seven_days_by_the_hourly_job_and_by_its_command(
    agent: Caller,
) -> None:
    assert app.conf.beat_schedule["idempotency-keys-prune"]["task"] == prune_idempotency_keys.name
    by_command = partial(call_command, "prune_idempotency_keys", stdout=io.StringIO())
    for key, chore in (("s-1", prune_idempotency_keys), ("s-2", by_command)):
        agent.session(key)
        heartbeat(agent, of(hold(agent, key)))
        for days, left in ((6, True), (8, False)):
            with time_machine.travel((now_us() + days * 24 * 60 * MINUTE) / 1_000_000):
                chore()
            assert HeartbeatMinute.objects.exists() is left


def test_announced_quiet_delays_every_deadline_and_can_be_withdrawn(agent: Caller) -> None:
    agent.session(mode="leased")
    lease = hold(agent, "s-1")
    heartbeat(agent, of(lease, quiet_s=1800))
    row = Lease.objects.get(id=lease["id"])
    quiet = row.heartbeat_at_us + 30 * MINUTE
    assert (row.quiet_until_us, row.expires_at_us, row.dead_at_us, row.wedged_at_us) == (quiet,) * 4
    heartbeat(agent, of(lease))  # a heartbeat in between takes nothing back
    assert Lease.objects.get(id=lease["id"]).quiet_until_us == quiet
    heartbeat(agent, of(lease, quiet_s=0))
    row = Lease.objects.get(id=lease["id"])
    assert (row.quiet_until_us, row.expires_at_us) == (None, row.heartbeat_at_us + MINUTE)
    assert row.wedged_at_us == row.progress_at_us + 15 * MINUTE


def test_silence_is_told_when_it_begins_and_when_it_ends(agent: Caller) -> None:
    (
        agent.session("a", mode="leased"),
        agent.session("b", mode="leased"),
        agent.session("c", mode="leased"),
    )
    a, b = hold(agent, "a"), hold(agent, "b")
    hold(agent, "c")

    def sweep() -> int:
        with transaction.atomic():
            return leases.record_silent_holders(100, clock.now_us())

    assert sweep() == 0
    for lease in (a, b):
        pass_time(lease, 70)
    assert sweep() == 2
    assert sweep() == 0  # once for each silence
    last = {
        str(row.session_id): row.heartbeat_at_us
        for row in Lease.objects.filter(id__in=[a["id"], b["id"]])
    }
    assert {entry["since_us"] for entry in told("session.silent")} == set(last.values())
    assert told("session.silence_ended") == []
    heartbeat(agent, of(a))
    (heard,) = told("session.silence_ended")
    assert heard["silent_us"] >= 70_000_000
    assert (
        agent.post("/leases", {"session": "b", "process": "p-1"}).status_code == 200
    )  # nobody had taken it
    assert len(told("session.silence_ended")) == 2
    assert told("lease.lost") == []
    pass_time(a, 70)
    assert sweep() == 1  # another silence of the same lease
    assert hold(agent, "a", "p-2")["epoch"] == 2
    assert len(told("session.silence_ended")) == 2
    assert [one["why"] for one in told("lease.lost")] == ["expired"]


@pytest.mark.parametrize("asked", [[], [{"lease": "x", "epoch": 1}], [{"epoch": 1}], "1001"])
def test_what_is_no_list_of_heartbeats_is_refused(agent: Caller, asked: Any) -> None:
    agent.session()
    lease = hold(agent, "s-1")
    told = [of(lease)] * 1001 if asked == "1001" else asked
    assert agent.client.post("/heartbeats", json={"heartbeats": told}).status_code == 422
    assert len(heartbeat(agent, *[of(lease)] * 1000)) == 1000
    assert agent.client.get("/heartbeats").status_code == 405


@contextmanager
def statements() -> Iterator[list[str]]:
    """The statements that this thread's connection runs, whoever gives them to it."""
    seen: list[str] = []
    raw = connection.connection
    if connection.vendor == "sqlite":
        raw.set_trace_callback(seen.append)
        yield seen
        raw.set_trace_callback(None)
        return
    from psycopg import Cursor

    ran = Cursor.execute

    def noted(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        seen.append(str(query))
        return ran(self, query, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cursor, "execute", noted)
        yield seen


def test_a_thousand_heartbeats_cost_as_many_statements_as_one(agent: Caller) -> None:
    project = Project.objects.get(name="default")
    agent.session()
    held = [hold(agent, "s-1")]
    held += [
        agent.post("/leases", {"resource": f"r-{number}", "process": "p"}).json()
        for number in range(40)
    ]
    told = [Heartbeat(Lease.objects.get(id=one["id"]).id, 1, "new") for one in held]
    holder = Lease.objects.get(id=held[0]["id"]).agent_id
    spent = []
    for part in (told[:1], told):
        with statements() as seen, transaction.atomic():
            assert len(
                heartbeats.record_heartbeats(project.id, holder, part, clock.now_us())
            ) == len(part)
        spent.append(len([one for one in seen if not one.startswith("--")]))
    assert spent[0] == spent[1]


@pytest.mark.parametrize("jump_s", [86_400 * 365, -86_400 * 365])
def test_the_clock_of_a_process_that_jumps_changes_nothing(
    agent: Caller, call: Call, monkeypatch: pytest.MonkeyPatch, jump_s: int
) -> None:
    """Neither the agents' clocks, which are not asked, nor those of the server's processes: the
    database's alone."""
    agent.session(mode="leased")
    lease = hold(agent, "s-1")
    really, other = time.time_ns, call("another")
    monkeypatch.setattr(time, "time_ns", lambda: really() + jump_s * 10**9)
    taken = other.post("/leases", {"session": "s-1", "process": "p-2"})
    assert code(taken) == (409, "LEASE_HELD")
    assert other.post("/claims", {"process": "p-2"}).json()["claimed"] is None
    assert agent.get(f"/leases/{lease['id']}").json()["state"] == "live"
    assert statuses(heartbeat(agent, of(lease))) == ["ok"]
    row = Lease.objects.get(id=lease["id"])
    assert abs(row.heartbeat_at_us - really() // 1000) < 60_000_000
    with transaction.atomic():
        assert leases.record_silent_holders(10, clock.now_us()) == 0
    agent.plan("e", lease_epoch=1)
    expire(lease)
    assert other.post("/leases", {"session": "s-1", "process": "p-2"}).json()["epoch"] == 2
    wish = {"session": "s-1", "effect_key": "f", "tool": "t", "lease_epoch": 1}
    assert code(agent.post("/effects", wish)) == (409, "LEASE_LOST")
    assert Effect.objects.count() == 1
