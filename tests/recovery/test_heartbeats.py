"""Heartbeats: many leases in one request, two clocks, silence in the journal, and clock jumps."""

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


def heartbeat(agent: Caller, *sent: dict[str, Any]) -> list[dict[str, Any]]:
    """Send one request of heartbeats and return its results."""
    answer = agent.client.post("/heartbeats", json={"heartbeats": list(sent)})
    assert answer.status_code == 200, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def heartbeat_of(lease: dict[str, Any], epoch: int = 1, **more: Any) -> dict[str, Any]:
    return {"lease": lease["id"], "epoch": epoch, **more}


def statuses(results: list[dict[str, Any]]) -> list[str]:
    return [result["status"] for result in results]


def facts_of(kind: str) -> list[dict[str, Any]]:
    """Return the facts of the entries of a kind, in order."""
    rows = Entry.objects.filter(kind=kind).order_by("position").values_list("facts", flat=True)
    return [orjson.loads(facts) for facts in rows]


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
        heartbeat_of(a),
        heartbeat_of(b),
        heartbeat_of(c),
        heartbeat_of(foreign),
        heartbeat_of(a, 2),
        {"lease": a["id"][:-4] + "0000", "epoch": 1},
    )
    assert statuses(results) == ["ok", "lost", "lost", "lost", "lost", "lost"]
    row = Lease.objects.get(id=a["id"])
    assert results[0]["expires_at_us"] == row.expires_at_us == row.heartbeat_at_us + MINUTE
    assert row.dead_at_us == row.heartbeat_at_us + 2 * MINUTE
    assert row.heartbeat_at_us > before.heartbeat_at_us
    assert row.progress_at_us == before.progress_at_us  # a heartbeat is no progress
    assert Lease.objects.get(id=foreign["id"]).heartbeat_at_us == foreign["heartbeat_at_us"]
    assert [fact["given"] for fact in facts_of("integrity.fenced")] == [
        1
    ]  # only b: the released lease has no new holder
    heartbeat(agent, heartbeat_of(b))
    assert len(facts_of("integrity.fenced")) == 1  # recorded once per lease and epoch


def test_only_a_new_progress_token_moves_the_progress_clock(
    agent: Caller,
) -> None:
    agent.session(mode="leased")
    lease = hold(agent, "s-1")
    seen = []
    for token in ("1", "1", "2", None, "2"):
        pass_time(lease, 10)
        before = Lease.objects.get(id=lease["id"]).progress_at_us
        heartbeat(agent, heartbeat_of(lease, progress=token))
        row = Lease.objects.get(id=lease["id"])
        assert row.wedged_at_us == row.progress_at_us + 15 * MINUTE
        seen.append(row.progress_at_us > before)
    assert seen == [True, False, True, False, False]
    counted = HeartbeatMinute.objects.filter(lease=lease["id"])
    assert sum(minute.heartbeats for minute in counted) == 5
    assert sum(minute.progresses for minute in counted) == 2


def test_heartbeats_of_a_minute_are_counted_in_its_row(agent: Caller) -> None:
    agent.session("a"), agent.session("b")
    a, b = hold(agent, "a"), hold(agent, "b")
    for _ in range(3):
        heartbeat(
            agent, heartbeat_of(b), heartbeat_of(a), heartbeat_of(a)
        )  # twice in one request counts once
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


def test_heartbeat_minutes_are_pruned_after_seven_days_by_job_and_command(
    agent: Caller,
) -> None:
    assert app.conf.beat_schedule["idempotency-keys-prune"]["task"] == prune_idempotency_keys.name
    by_command = partial(call_command, "prune_idempotency_keys", stdout=io.StringIO())
    for key, job in (("s-1", prune_idempotency_keys), ("s-2", by_command)):
        agent.session(key)
        heartbeat(agent, heartbeat_of(hold(agent, key)))
        for days, left in ((6, True), (8, False)):
            with time_machine.travel((now_us() + days * 24 * 60 * MINUTE) / 1_000_000):
                job()
            assert HeartbeatMinute.objects.exists() is left


def test_announced_quiet_delays_every_deadline_and_can_be_withdrawn(agent: Caller) -> None:
    agent.session(mode="leased")
    lease = hold(agent, "s-1")
    heartbeat(agent, heartbeat_of(lease, quiet_s=1800))
    row = Lease.objects.get(id=lease["id"])
    quiet = row.heartbeat_at_us + 30 * MINUTE
    assert (row.quiet_until_us, row.expires_at_us, row.dead_at_us, row.wedged_at_us) == (quiet,) * 4
    heartbeat(agent, heartbeat_of(lease))  # a heartbeat without the field changes nothing
    assert Lease.objects.get(id=lease["id"]).quiet_until_us == quiet
    heartbeat(agent, heartbeat_of(lease, quiet_s=0))
    row = Lease.objects.get(id=lease["id"])
    assert (row.quiet_until_us, row.expires_at_us) == (None, row.heartbeat_at_us + MINUTE)
    assert row.wedged_at_us == row.progress_at_us + 15 * MINUTE


def test_silence_is_recorded_when_it_begins_and_when_it_ends(agent: Caller) -> None:
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
    assert {entry["since_us"] for entry in facts_of("session.silent")} == set(last.values())
    assert facts_of("session.silence_ended") == []
    heartbeat(agent, heartbeat_of(a))
    (ended,) = facts_of("session.silence_ended")
    assert ended["silent_us"] >= 70_000_000
    assert (
        agent.post("/leases", {"session": "b", "process": "p-1"}).status_code == 200
    )  # no other worker had taken the lease
    assert len(facts_of("session.silence_ended")) == 2
    assert facts_of("lease.lost") == []
    pass_time(a, 70)
    assert sweep() == 1  # another silence of the same lease
    assert hold(agent, "a", "p-2")["epoch"] == 2
    assert len(facts_of("session.silence_ended")) == 2
    assert [fact["why"] for fact in facts_of("lease.lost")] == ["expired"]


@pytest.mark.parametrize("wrong", [[], [{"lease": "x", "epoch": 1}], [{"epoch": 1}], "1001"])
def test_an_invalid_list_of_heartbeats_is_refused(agent: Caller, wrong: Any) -> None:
    agent.session()
    lease = hold(agent, "s-1")
    sent = [heartbeat_of(lease)] * 1001 if wrong == "1001" else wrong
    assert agent.client.post("/heartbeats", json={"heartbeats": sent}).status_code == 422
    assert len(heartbeat(agent, *[heartbeat_of(lease)] * 1000)) == 1000
    assert agent.client.get("/heartbeats").status_code == 405


@contextmanager
def statements() -> Iterator[list[str]]:
    """Collect the statements that this thread's connection runs, from any caller."""
    seen: list[str] = []
    raw = connection.connection
    if connection.vendor == "sqlite":
        raw.set_trace_callback(seen.append)
        yield seen
        raw.set_trace_callback(None)
        return
    from psycopg import Cursor

    ran = Cursor.execute

    def record(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        seen.append(str(query))
        return ran(self, query, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cursor, "execute", record)
        yield seen


def test_a_thousand_heartbeats_cost_as_many_statements_as_one(agent: Caller) -> None:
    project = Project.objects.get(name="default")
    agent.session()
    held = [hold(agent, "s-1")]
    held += [
        agent.post("/leases", {"resource": f"r-{number}", "process": "p"}).json()
        for number in range(40)
    ]
    inputs = [Heartbeat(Lease.objects.get(id=lease["id"]).id, 1, "new") for lease in held]
    holder = Lease.objects.get(id=held[0]["id"]).agent_id
    spent = []
    for part in (inputs[:1], inputs):
        with statements() as seen, transaction.atomic():
            assert len(
                heartbeats.record_heartbeats(project.id, holder, part, clock.now_us())
            ) == len(part)
        spent.append(len([text for text in seen if not text.startswith("--")]))
    assert spent[0] == spent[1]


@pytest.mark.parametrize("jump_s", [86_400 * 365, -86_400 * 365])
def test_a_clock_jump_of_a_process_changes_nothing(
    agent: Caller, call: Call, monkeypatch: pytest.MonkeyPatch, jump_s: int
) -> None:
    """Leases use only the database's clock, not the clocks of agents or server processes."""
    agent.session(mode="leased")
    lease = hold(agent, "s-1")
    really, other = time.time_ns, call("another")
    monkeypatch.setattr(time, "time_ns", lambda: really() + jump_s * 10**9)
    taken = other.post("/leases", {"session": "s-1", "process": "p-2"})
    assert code(taken) == (409, "LEASE_HELD")
    assert other.post("/claims", {"process": "p-2"}).json()["claimed"] is None
    assert agent.get(f"/leases/{lease['id']}").json()["state"] == "live"
    assert statuses(heartbeat(agent, heartbeat_of(lease))) == ["ok"]
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
