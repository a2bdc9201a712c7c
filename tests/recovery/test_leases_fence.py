"""Fencing: commands of a worker that lost its lease are refused, and its reports are stored."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from django.db import connection

from accounts.models import Project
from approvals.models import Gate
from journal.models import Entry
from ledger.models import Attempt, Effect
from ledger.verdicts import verdict_inputs
from sessions.models import Lease, Session, Task
from tests.api.api_client import Caller, code, new_key
from tests.approvals.inbox_scenario import InboxScenario
from tests.recovery.lease_helpers import expire, hold, pass_time
from tests.recovery.remote import age, declare, probe, verdict
from tests.recovery.stuck_helpers import leased

pytestmark = pytest.mark.django_db
Call = Callable[..., Caller]


def load_fencing_facts() -> list[dict[str, Any]]:
    """Return the facts of all fencing entries."""
    rows = (
        Entry.objects.filter(kind="integrity.fenced")
        .order_by("position")
        .values_list("facts", flat=True)
    )
    return [orjson.loads(facts) for facts in rows]


class Zombie:
    """A worker whose lease was taken over, with its earlier effects and epoch."""

    def __init__(self, agent: Caller, other: Caller) -> None:
        self.agent, self.other = agent, other
        self.session = agent.session(mode="leased")["id"]
        self.task = agent.post(f"/sessions/{self.session}/tasks", {"key": "t"}).json()["id"]
        self.lease = hold(agent, "s-1", "p-1")
        self.ready = agent.plan("ready", lease_epoch=1)
        self.begun = agent.plan("begun", arguments={"ref": "dev"}, lease_epoch=1)
        sent = {"process": "p-1", "intent_digest": self.begun["intent_digest"], "lease_epoch": 1}
        self.key = new_key()
        assert (
            agent.post(f"/effects/{self.begun['id']}/dispatch", sent, key=self.key).status_code
            == 200
        )
        self.repeated = sent
        expire(self.lease)
        self.taken = hold(other, "s-1", "p-2")


@pytest.fixture
def zombie(agent: Caller, call: Call) -> Zombie:
    return Zombie(agent, call("another"))


def test_every_command_of_a_zombie_is_refused(zombie: Zombie) -> None:
    agent, session = zombie.agent, zombie.session
    wish = {
        "session": "s-1",
        "effect_key": "new",
        "tool": "git.push",
        "arguments": {"ref": "x"},
        "lease_epoch": 1,
    }
    effects = f"/effects/{zombie.ready['id']}", f"/effects/{zombie.begun['id']}"
    undo = {"effect_key": "undo", "tool": "git.revert", "lease_epoch": 1}
    start = {"process": "p-1", "intent_digest": zombie.ready["intent_digest"], "lease_epoch": 1}
    log = {
        "session": "s-1",
        "type": "log",
        "sha256": "0" * 64,
        "size": 1,
        "media_type": "text/plain",
        "lease_epoch": 1,
    }
    before = Effect.objects.count(), Attempt.objects.count(), Task.objects.count()
    refused = {
        "plan": agent.post("/effects", wish),
        "plan again": agent.post(
            "/effects", wish | {"effect_key": "ready", "arguments": {"ref": "main"}}
        ),
        "dispatch": agent.post(f"{effects[0]}/dispatch", start),
        "dispatch again": agent.post(f"{effects[1]}/dispatch", zombie.repeated, key=zombie.key),
        "supersede": agent.post(f"{effects[0]}/supersede", {"lease_epoch": 1}),
        "compensate": agent.post(f"{effects[1]}/compensate", undo),
        "renew": agent.post(f"/leases/{zombie.lease['id']}/renew", {"epoch": 1}),
        "release": agent.post(f"/leases/{zombie.lease['id']}/release", {"epoch": 1}),
        "task": agent.post(f"/sessions/{session}/tasks", {"key": "u", "lease_epoch": 1}),
        "change": agent.post(
            f"/tasks/{zombie.task}/change", {"state": "running", "lease_epoch": 1}
        ),
        "done": agent.post(f"/tasks/{zombie.task}/done", {"lease_epoch": 1}),
        "items": agent.post(
            f"/tasks/{zombie.task}/items",
            {"items": [{"key": "i", "state": "done"}], "lease_epoch": 1},
        ),
        "checkpoint": agent.post(
            f"/sessions/{session}/checkpoints", {"summary": "x", "lease_epoch": 1}
        ),
        "decision": agent.post(
            f"/sessions/{session}/decisions", {"key": "d", "choice": "x", "lease_epoch": 1}
        ),
        "session": agent.post(f"/sessions/{session}/change", {"title": "x", "lease_epoch": 1}),
        "end": agent.post(f"/sessions/{session}/end", {"status": "completed", "lease_epoch": 1}),
        "artifact": agent.post("/artifacts", log),
    }
    assert {name: code(answer) for name, answer in refused.items()} == dict.fromkeys(
        refused, (409, "LEASE_LOST")
    )
    assert {answer.json()["lease"]["epoch"] for answer in refused.values()} == {2}
    assert (Effect.objects.count(), Attempt.objects.count(), Task.objects.count()) == before
    assert Session.objects.get(id=session).effect_count == 2
    heartbeat = agent.client.post(
        "/heartbeats", json={"heartbeats": [{"lease": zombie.lease["id"], "epoch": 1}]}
    ).json()
    assert heartbeat == {
        "results": [{"lease": zombie.lease["id"], "status": "lost", "expires_at_us": None}]
    }
    traces = load_fencing_facts()
    assert len(traces) == len(refused) + 1
    assert {(trace["given"], trace["present"], trace["kept"]) for trace in traces} == {
        (1, 2, False)
    }

    # The same commands from the holder of the lease succeed.
    other = zombie.other
    assert other.post("/effects", wish | {"lease_epoch": 2}).status_code == 201
    assert (
        other.post(
            f"/tasks/{zombie.task}/change", {"state": "running", "lease_epoch": 2}
        ).status_code
        == 200
    )
    assert other.post(f"{effects[0]}/supersede", {"lease_epoch": 2}).status_code == 200
    assert other.post("/artifacts", log | {"lease_epoch": 2}).status_code == 201
    assert len(load_fencing_facts()) == len(traces)


@pytest.mark.parametrize(
    ("verb", "body", "state"),
    [
        ("acknowledge", {"outcome": "ok", "external_reference": "abc"}, "acknowledged"),
        ("fail", {"reason": "rejected"}, "failed"),
    ],
)
def test_an_answer_of_a_zombie_is_stored_and_marked(
    zombie: Zombie, verb: str, body: dict[str, Any], state: str
) -> None:
    at = f"/effects/{zombie.begun['id']}/{verb}"
    answer = zombie.agent.post(at, {"attempt": 1, **body, "lease_epoch": 1})
    assert answer.status_code == 202, answer.text
    assert Effect.objects.get(id=zombie.begun["id"]).state == state
    kind = "effect.acknowledged" if verb == "acknowledge" else "effect.failed"
    assert Entry.objects.get(kind=kind, lane="evidence").lease_epoch == 1
    assert [
        (trace["given"], trace["present"], trace["kept"], trace["kind"])
        for trace in load_fencing_facts()
    ] == [(1, 2, True, kind)]
    entry = Entry.objects.get(kind="integrity.fenced")
    assert (str(entry.effect), entry.attempt, entry.lease_epoch) == (zombie.begun["id"], 1, 1)


def test_the_holders_own_answer_needs_no_mark(agent: Caller) -> None:
    agent.session(mode="leased")
    hold(agent, "s-1")
    effect = agent.plan(lease_epoch=1)
    sent = {"process": "p-1", "intent_digest": effect["intent_digest"], "lease_epoch": 1}
    assert agent.post(f"/effects/{effect['id']}/dispatch", sent).status_code == 200
    done = agent.post(
        f"/effects/{effect['id']}/acknowledge", {"attempt": 1, "outcome": "ok", "lease_epoch": 1}
    )
    assert done.status_code == 200
    assert load_fencing_facts() == []


def test_reports_of_a_zombie_in_a_batch_are_stored_and_marked(zombie: Zombie) -> None:
    fact = {
        "session": "s-1",
        "kind": "effect.acknowledged",
        "effect_key": "begun",
        "attempt": 1,
        "outcome": "ok",
    }
    batch: list[dict[str, Any]] = [
        {"id": "f-1", "lease_epoch": 1, **fact},
        {
            "id": "f-2",
            "lease_epoch": 1,
            "session": "s-1",
            "kind": "task.changed",
            "task": "t",
            "title": "x",
        },
        {
            "id": "f-3",
            "lease_epoch": 2,
            "session": "s-1",
            "kind": "item.done",
            "task": "t",
            "item": "i",
        },
        {"id": "f-4", "session": "s-1", "kind": "item.done", "task": "t", "item": "j"},
    ]
    for again in (False, True):  # delivered twice, recorded once
        results = zombie.agent.report(batch).json()["results"]
        assert [result.get("note") for result in results] == [
            None,
            *[None if again else "lease_lost"] * 3,
        ]
        assert [
            (trace["given"], trace["kept"], trace["kind"]) for trace in load_fencing_facts()
        ] == [
            (1, True, "effect.acknowledged"),
            (1, True, "task.changed"),
        ]
    assert Effect.objects.get(id=zombie.begun["id"]).state == "acknowledged"
    # A report of its own attempt counts; its reports for the session are claims, under any epoch.
    task = Task.objects.get(key="t")
    assert (task.title, task.items.count()) == ("", 0)
    assert list(
        Entry.objects.filter(lane="claim").order_by("position").values_list("kind", flat=True)
    ) == [*("task.changed", "item.done", "item.done")]


def test_in_a_leased_session_plan_and_dispatch_need_an_epoch(agent: Caller) -> None:
    agent.session(mode="leased")
    before = agent.plan("before")  # no lease yet
    hold(agent, "s-1")
    wish = {"session": "s-1", "effect_key": "e", "tool": "t"}
    missing = agent.post("/effects", wish)
    assert code(missing) == (409, "LEASE_LOST")
    assert "lease_epoch" in missing.json()["detail"]
    start = {"process": "p", "intent_digest": before["intent_digest"]}
    assert code(agent.post(f"/effects/{before['id']}/dispatch", start)) == (409, "LEASE_LOST")
    assert (
        agent.post(f"/effects/{before['id']}/dispatch", start | {"lease_epoch": 1}).status_code
        == 200
    )
    assert code(agent.post("/effects", wish | {"lease_epoch": 2})) == (
        409,
        "LEASE_LOST",
    )  # no worker ever had this epoch
    assert (
        agent.post(
            f"/effects/{before['id']}/acknowledge", {"attempt": 1, "outcome": "ok"}
        ).status_code
        == 200
    )


def test_in_other_sessions_an_epoch_is_checked_only_if_sent(agent: Caller) -> None:
    agent.session("shot")
    agent.plan(session="shot", lease_epoch=7)  # nothing was ever leased
    hold(agent, "shot")
    agent.plan("f", session="shot", arguments={"ref": "f"})
    stale = {"session": "shot", "effect_key": "g", "tool": "t", "lease_epoch": 7}
    assert code(agent.post("/effects", stale)) == (409, "LEASE_LOST")


def test_after_a_release_a_worker_may_answer_but_not_plan(agent: Caller) -> None:
    agent.session(mode="leased")
    lease = hold(agent, "s-1")
    effect = agent.plan(lease_epoch=1)
    sent = {"process": "p-1", "intent_digest": effect["intent_digest"], "lease_epoch": 1}
    assert agent.post(f"/effects/{effect['id']}/dispatch", sent).status_code == 200
    assert agent.post(f"/leases/{lease['id']}/release", {"epoch": 1}).status_code == 200
    wish = {"session": "s-1", "effect_key": "g", "tool": "t", "lease_epoch": 1}
    assert code(agent.post("/effects", wish)) == (409, "LEASE_LOST")
    answer = {"attempt": 1, "outcome": "ok", "lease_epoch": 1}
    assert agent.post(f"/effects/{effect['id']}/acknowledge", answer).status_code == 200
    assert [trace["kept"] for trace in load_fencing_facts()] == [False]


def test_a_task_with_its_own_lease_is_fenced_by_that_lease(agent: Caller, call: Call) -> None:
    session = agent.session(mode="leased")["id"]
    task = agent.post(f"/sessions/{session}/tasks", {"key": "t"}).json()["id"]
    first = agent.post("/leases", {"task": task, "process": "p-1"}).json()
    expire(first)
    another = call("another")
    assert another.post("/leases", {"task": task, "process": "p-2"}).json()["epoch"] == 2
    wish = {"session": "s-1", "effect_key": "e", "tool": "t", "task": "t", "lease_epoch": 1}
    assert code(agent.post("/effects", wish)) == (409, "LEASE_LOST")
    assert code(agent.post(f"/tasks/{task}/done", {"lease_epoch": 1})) == (409, "LEASE_LOST")
    assert code(agent.post("/effects", wish | {"lease_epoch": 2})) == (
        409,
        "LEASE_LOST",
    )  # the epoch of another agent
    planned = another.post("/effects", wish | {"lease_epoch": 2})
    assert planned.status_code == 201, planned.text
    start = {"process": "p", "intent_digest": planned.json()["intent_digest"]}
    at = f"/effects/{planned.json()['id']}"
    assert code(agent.post(f"{at}/dispatch", start | {"lease_epoch": 1})) == (409, "LEASE_LOST")
    assert another.post(f"{at}/dispatch", start | {"lease_epoch": 2}).status_code == 200
    late = {"attempt": 1, "outcome": "ok", "lease_epoch": 1}
    assert code(agent.post(f"{at}/acknowledge", late)) == (
        409,
        "LEASE_LOST",
    )  # the attempt is not its own
    assert another.post(f"{at}/acknowledge", late).status_code == 202


def test_commands_move_the_progress_clock_and_heartbeats_do_not(agent: Caller) -> None:
    session = agent.session(mode="leased")["id"]
    lease = hold(agent, "s-1", ttl_s=3600)

    def moves(answer: Any) -> bool:
        """Return whether the request moved the progress clock."""
        assert answer().status_code in (200, 201, 202), answer
        row = Lease.objects.get(id=lease["id"])
        moved = row.progress_at_us > before.progress_at_us
        assert row.wedged_at_us - row.progress_at_us == 900_000_000
        return moved

    effect = agent.plan("e", lease_epoch=1)
    task = agent.post(f"/sessions/{session}/tasks", {"key": "t", "lease_epoch": 1}).json()["id"]
    start = {"process": "p", "intent_digest": effect["intent_digest"], "lease_epoch": 1}
    wish = {"session": "s-1", "effect_key": "f", "tool": "t", "lease_epoch": 1}
    answer = {"attempt": 1, "outcome": "ok", "lease_epoch": 1}
    heartbeat = {"heartbeats": [{"lease": lease["id"], "epoch": 1}]}
    checkpoint = {"summary": "x", "lease_epoch": 1}
    steps: list[tuple[str, Callable[[], Any], bool]] = [
        ("heartbeat", lambda: agent.client.post("/heartbeats", json=heartbeat), False),
        ("renewal", lambda: agent.post(f"/leases/{lease['id']}/renew", {"epoch": 1}), False),
        ("reading", lambda: agent.get(f"/effects/{effect['id']}"), False),
        ("plan", lambda: agent.post("/effects", wish), True),
        ("plan again", lambda: agent.post("/effects", wish), False),
        ("dispatch", lambda: agent.post(f"/effects/{effect['id']}/dispatch", start), True),
        ("acknowledge", lambda: agent.post(f"/effects/{effect['id']}/acknowledge", answer), True),
        (
            "a late answer",
            lambda: agent.post(f"/effects/{effect['id']}/acknowledge", answer),
            False,
        ),
        (
            "task",
            lambda: agent.post(f"/tasks/{task}/change", {"state": "running", "lease_epoch": 1}),
            True,
        ),
        ("checkpoint", lambda: agent.post(f"/sessions/{session}/checkpoints", checkpoint), True),
        (
            "token",
            lambda: agent.post(f"/leases/{lease['id']}/renew", {"epoch": 1, "progress": "1"}),
            True,
        ),
        (
            "the same token",
            lambda: agent.post(f"/leases/{lease['id']}/renew", {"epoch": 1, "progress": "1"}),
            False,
        ),
    ]
    seen = []
    for _name, step, _moved in steps:
        pass_time(lease, 60)
        before = Lease.objects.get(id=lease["id"])
        seen.append(moves(step))
    assert [(name, moved) for (name, _, _), moved in zip(steps, seen, strict=True)] == [
        (name, moved) for name, _, moved in steps
    ]


def test_a_zombies_probe_is_stored_and_its_messages_are_refused(
    zombie: Zombie,
) -> None:
    agent, session = zombie.agent, zombie.session
    probe_body = {"attempt": 1, "result": "miss", "lease_epoch": 1}
    assert agent.post(f"/effects/{zombie.begun['id']}/probe", probe_body).status_code == 200
    assert Entry.objects.filter(kind="effect.probed").count() == 1
    assert [(trace["given"], trace["kept"], trace["kind"]) for trace in load_fencing_facts()] == [
        (1, True, "effect.probed")
    ]
    message = {"to": "another", "body": "x", "session": session, "lease_epoch": 1}
    assert code(agent.post("/messages", message)) == (409, "LEASE_LOST")
    report = {"session": session, "time_left_s": 900, "lease_epoch": 1}
    assert code(agent.post("/capacity", report)) == (409, "LEASE_LOST")
    assert (
        zombie.other.post("/messages", message | {"to": "tester", "lease_epoch": 2}).status_code
        == 201
    )
    assert zombie.other.post("/capacity", report | {"lease_epoch": 2}).status_code == 200


def test_a_zombie_cancels_no_gate_and_reads_no_message_of_its_successor(
    inbox: InboxScenario, call: Call
) -> None:
    worker = inbox.agent
    session, lease = leased(worker)
    gate = inbox.gate(worker.plan("e-1", session["id"], lease_epoch=1))
    sent = worker.post(
        "/messages", {"to": "deploy-7", "body": "look", "session": session["id"]}
    ).json()
    about_nothing = worker.post("/messages", {"to": "deploy-7", "body": "look"}).json()
    expire(lease)
    taken = worker.post("/leases", {"session": session["id"], "process": "w-2"}).json()
    endpoints = f"/gates/{gate.id}/cancel", f"/messages/{sent['id']}/read"
    for endpoint in endpoints:
        refused = worker.post(endpoint, {"lease_epoch": 1})
        assert code(refused) == (409, "LEASE_LOST")
        assert refused.json()["lease"]["epoch"] == taken["epoch"] == 2
    assert [(trace["kind"], trace["kept"]) for trace in load_fencing_facts()] == [
        ("gate.cancelled", False),
        ("message.read", False),
    ]
    assert Gate.objects.get().status == "pending"
    assert [message["id"] for message in worker.get("/messages").json()["items"]] == [
        sent["id"],
        about_nothing["id"],
    ]
    assert code(worker.post(endpoints[0], {"lease_epoch": -1})) == (422, "invalid")
    assert (
        worker.post(f"/messages/{about_nothing['id']}/read", {"lease_epoch": 1}).status_code == 200
    )  # a message without a session
    for endpoint in endpoints:
        key = new_key()
        answer = worker.post(endpoint, {"lease_epoch": 2}, key=key)
        assert answer.status_code == 200, answer.text
        again = worker.post(endpoint, {"lease_epoch": 2}, key=key)
        assert (again.json(), again.headers["Idempotent-Replay"]) == (answer.json(), "true")
    assert Gate.objects.get().status == "cancelled"
    assert worker.post(endpoints[1]).status_code == 200  # without an epoch nothing is compared
    assert code(call("stranger-2").post(endpoints[0], {"lease_epoch": 2})) == (403, "OTHER_AGENT")


def test_the_in_flight_window_counts_from_the_first_takeover(
    agent: Caller,
) -> None:
    """Later takeovers do not move the end of the in-flight window."""
    declare(Project.objects.get(name="default"))
    session = agent.session(mode="leased")
    lease = hold(agent, session["id"])
    effect = agent.plan(session=session["id"], tool="git.push.slow", lease_epoch=1)
    start = {"process": "p-1", "intent_digest": effect["intent_digest"], "lease_epoch": 1}
    assert agent.post(f"/effects/{effect['id']}/dispatch", start).status_code == 200
    age(effect, 3_600)  # long ago: the window counts from the takeover, not from the dispatch
    ends = []
    for number in range(2, 6):
        expire(lease)
        assert hold(agent, session["id"], f"p-{number}")["epoch"] == number
        probe(agent, effect, "miss", lease_epoch=number)
        body = verdict(agent, effect, f"p-{number}")
        assert (body["row"], body["reason"]) == ("20", "IN_FLIGHT_WAIT")
        ends.append(body["until_us"])
    first = Entry.objects.get(kind="lease.acquired", lease_epoch=2)
    assert ends == [first.received_us + 600_000_000] * 4


def test_next_acquisitions_of_all_effects_are_read_by_index_in_one_query(
    agent: Caller, django_assert_num_queries: Any
) -> None:
    declare(Project.objects.get(name="default"))
    session = agent.session(mode="leased")
    lease = hold(agent, session["id"])
    for number in range(4):
        wish = {"session": session["id"], "tool": "git.push.slow", "arguments": {"n": number}}
        effect = agent.plan(f"e-{number}", lease_epoch=number + 1, **wish)
        start = {
            "process": "p-1",
            "intent_digest": effect["intent_digest"],
            "lease_epoch": number + 1,
        }
        assert agent.post(f"/effects/{effect['id']}/dispatch", start).status_code == 200
        expire(lease)
        hold(agent, session["id"], f"p-{number + 2}")
    rows = list(Effect.objects.all())
    attempts = verdict_inputs.load_newest_attempts(rows)
    leases = verdict_inputs.load_leases(rows)
    with django_assert_num_queries(1) as ran:
        acquisitions = verdict_inputs.load_next_acquisitions(attempts, leases)
    assert sorted(epoch for _, epoch in acquisitions) == [2, 3, 4, 5]
    assert "entry_of_acquisition" in plan_of(ran.captured_queries[0]["sql"])
    held = Lease.objects.get()
    held.epoch = 1
    with django_assert_num_queries(0):
        assert (
            verdict_inputs.load_next_acquisitions(
                {rows[0].id: attempts[rows[0].id]}, {rows[0].id: held}
            )
            == {}
        )


def plan_of(text: str) -> str:
    """Return the query plan of `text`."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"EXPLAIN {'QUERY PLAN ' if connection.vendor == 'sqlite' else ''}{text}")
        return str(cursor.fetchall())
