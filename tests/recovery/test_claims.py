"""Claims of work through the endpoint: the most urgent ready task, once, also for concurrent
workers."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sessions.models import Lease
from tests.api.api_client import Caller, code, new_key
from tests.config.server import Server
from tests.recovery.lease_helpers import expire, hold

Call = Callable[..., Caller]
database = pytest.mark.django_db


def claim(agent: Caller, process: str = "w-1", **wish: Any) -> dict[str, Any]:
    """Claim work and return the response body."""
    answer = agent.post("/claims", {"process": process, **wish})
    assert answer.status_code == 200, answer.text
    claimed: dict[str, Any] = answer.json()
    return claimed


def task(agent: Caller, session: dict[str, Any], key: str, **fields: Any) -> str:
    """Create a task and return its id."""
    return str(agent.post(f"/sessions/{session['id']}/tasks", {"key": key, **fields}).json()["id"])


@database
def test_the_most_urgent_ready_task_goes_first_and_each_once(agent: Caller) -> None:
    session = agent.session(repository="acme/x")
    low, high = task(agent, session, "low"), task(agent, session, "high", priority=5)
    task(agent, session, "running", priority=9, state="running")
    task(agent, session, "blocked", priority=9, state="blocked")
    task(agent, session, "done", priority=9, state="done")
    first, second, third = (claim(agent, f"w-{number}") for number in range(3))
    assert [first["claimed"]["task"], second["claimed"]["task"]] == [high, low]
    assert first["claimed"] == {"kind": "task", "session": session["id"], "task": high}
    assert first["resume"] == f"/api/v1/sessions/{session['id']}/resume"
    assert (first["lease"]["subject"], first["lease"]["process"], first["lease"]["epoch"]) == (
        high,
        "w-0",
        1,
    )
    assert third == {"claimed": None}
    nothing = agent.post("/claims", {"process": "w-9"})
    assert int(nothing.headers["Retry-After"]) >= 1


@database
def test_a_task_waits_for_the_tasks_below_it(agent: Caller) -> None:
    session = agent.session()
    above = task(agent, session, "above", priority=9)
    below = task(agent, session, "below", parent="above")
    assert claim(agent)["claimed"]["task"] == below
    assert claim(agent, "w-2")["claimed"] is None
    agent.post(f"/tasks/{below}/done")
    assert claim(agent, "w-2")["claimed"]["task"] == above


@database
def test_a_task_of_a_dead_worker_goes_to_the_next_under_a_new_epoch(
    agent: Caller, call: Call
) -> None:
    session = agent.session()
    task_id = task(agent, session, "one")
    first = claim(agent)
    agent.post(f"/tasks/{task_id}/change", {"state": "running", "lease_epoch": 1})
    other = call("another")
    assert claim(other, "w-2")["claimed"] is None
    expire(first["lease"])
    again = claim(other, "w-2")
    assert (again["claimed"]["task"], again["lease"]["epoch"], again["lease"]["holder"]) == (
        task_id,
        2,
        "another",
    )
    assert code(agent.post(f"/tasks/{task_id}/done", {"lease_epoch": 1})) == (409, "LEASE_LOST")
    assert other.post(f"/tasks/{task_id}/done", {"lease_epoch": 2}).status_code == 200


@database
def test_an_expired_session_is_claimed_but_not_a_held_or_ended_one(
    agent: Caller, call: Call
) -> None:
    other = call("another")
    for key in ("lost", "held", "ended", "given"):
        agent.session(key, mode="leased")
    leases = {key: hold(agent, key) for key in ("lost", "held", "ended", "given")}
    assert claim(other, kinds=["session"])["claimed"] is None
    for key in ("lost", "ended"):
        expire(leases[key])
    agent.post(f"/sessions/{leases['ended']['session']}/end", {"status": "completed"})
    agent.post(
        f"/leases/{leases['given']['id']}/release", {"epoch": 1}
    )  # without a handoff no other worker is needed
    claimed = claim(other, kinds=["session"])
    assert claimed["claimed"] == {"kind": "session", "session": leases["lost"]["session"]}
    assert (claimed["lease"]["epoch"], claimed["lease"]["holder"]) == (2, "another")
    assert claim(other, "w-2", kinds=["session"])["claimed"] is None


@database
def test_a_session_with_a_handoff_goes_to_the_first_claim(agent: Caller, call: Call) -> None:
    session = agent.session(mode="leased")
    lease = hold(agent, "s-1")
    sections = {
        "in_progress": ["x"],
        "decided": [],
        "needs_attention": [],
        "can_wait": [],
        "waits_on": [],
    }
    handed = agent.post(f"/sessions/{session['id']}/handoffs", sections | {"lease_epoch": 1})
    assert handed.status_code == 201, handed.text
    other = call("another")
    assert claim(other)["claimed"] is None  # its worker still holds the lease
    agent.post(f"/leases/{lease['id']}/release", {"epoch": 1})
    claimed = claim(other)
    assert (claimed["claimed"]["session"], claimed["lease"]["epoch"]) == (session["id"], 2)
    accepted = other.post(f"/handoffs/{handed.json()['id']}/accept", {"lease_epoch": 2})
    assert accepted.status_code == 200, accepted.text
    other.post(f"/leases/{claimed['lease']['id']}/release", {"epoch": 2})
    assert claim(agent)["claimed"] is None


@database
def test_tasks_of_a_leased_session_go_only_to_its_holder(agent: Caller, call: Call) -> None:
    session = agent.session(mode="leased")
    task_id = task(agent, session, "one")
    hold(agent, "s-1", "p-1")
    assert claim(call("another"))["claimed"] is None
    assert claim(agent, "p-1")["claimed"]["task"] == task_id


@database
def test_a_claim_matches_repository_labels_and_kinds(agent: Caller) -> None:
    far_session = agent.session(
        "there", repository="acme/there", labels={"gpu": "yes", "a'b\"c": "1"}
    )
    near_session = agent.session("here", repository="acme/here", labels={"gpu": "no"})
    reported = [{"id": "f", "session": "told", "kind": "task.created", "task": "t", "priority": 9}]
    assert agent.report(reported).status_code == 200
    far, near = task(agent, far_session, "far", priority=5), task(agent, near_session, "near")
    assert claim(agent, "w", repository="acme/nowhere")["claimed"] is None
    assert claim(agent, "w", labels={"gpu": "maybe"})["claimed"] is None
    assert claim(agent, "w", labels={"gpu": "yes", "cpu": "yes"})["claimed"] is None
    assert claim(agent, "w", kinds=["session"])["claimed"] is None
    assert claim(agent, "w-1", repository="acme/here")["claimed"]["task"] == near
    assert claim(agent, "w-2", labels={"gpu": "yes", "a'b\"c": "1"})["claimed"]["task"] == far
    assert claim(agent, "w-3")["claimed"] is None  # a reported task cannot be claimed
    assert agent.post("/claims", {"process": "w", "kinds": []}).status_code == 422


@database
def test_work_of_another_project_cannot_be_claimed(agent: Caller, stranger: Caller) -> None:
    task(agent, agent.session(), "one")
    assert claim(stranger)["claimed"] is None


@database
def test_a_repeated_claim_gets_the_same_task_until_its_lease_is_lost(
    agent: Caller, call: Call
) -> None:
    session = agent.session()
    task_1, task_2 = task(agent, session, "one"), task(agent, session, "two")
    key, wish = new_key(), {"process": "w-1"}
    first = agent.post("/claims", wish, key=key).json()
    assert agent.post("/claims", wish, key=key).json()["claimed"] == first["claimed"]
    assert Lease.objects.count() == 1
    expire(first["lease"])
    other = call("another")
    assert {claim(other, f"o-{number}")["claimed"]["task"] for number in range(2)} == {
        task_1,
        task_2,
    }
    assert code(agent.post("/claims", wish, key=key)) == (409, "LEASE_LOST")


def at_once(agent: Caller, workers: int, ask: Callable[[Caller, int], Any]) -> list[Any]:
    """Send one request of each of many workers at once, each over its own connection."""
    gate = threading.Barrier(workers)
    address = str(agent.client.base_url).removesuffix("/api/v1/")

    def run(number: int) -> Any:
        caller = Caller(agent.token, address=address)
        assert caller.get("/limits").status_code == 200
        gate.wait(60)
        return ask(caller, number)

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(run, range(workers)))


WORKERS = 12


def test_no_two_workers_ever_get_one_task(live_server_process: Server) -> None:
    agent = Caller(live_server_process.token("crew"), address=live_server_process.url)
    label = {"rush": new_key()}
    sessions = [agent.session(new_key(), labels=label) for _ in range(3)]
    wanted = {
        task(agent, session, f"t-{number}", priority=number)
        for session in sessions
        for number in range(6)
    }

    def work(caller: Caller, number: int) -> list[str]:
        """Claim and finish tasks until none is left."""
        claimed = []
        while (answer := claim(caller, f"w-{number}", labels=label))["claimed"] is not None:
            claimed.append(answer["claimed"]["task"])
            done = caller.post(
                f"/tasks/{claimed[-1]}/done", {"lease_epoch": answer["lease"]["epoch"]}
            )
            assert done.status_code == 200, done.text
        return claimed

    claimed = at_once(agent, WORKERS, work)
    assert sorted(task_id for part in claimed for task_id in part) == sorted(wanted)


def test_one_claim_that_is_sent_many_times_at_once_is_one(live_server_process: Server) -> None:
    agent = Caller(live_server_process.token("crew"), address=live_server_process.url)
    key, wish = new_key(), {"process": "w", "labels": {"rush": new_key()}}
    session = agent.session(new_key(), labels=wish["labels"])
    for number in range(3):
        task(agent, session, f"t-{number}")
    claimed = at_once(agent, WORKERS, lambda caller, _: caller.post("/claims", wish, key=key))
    assert {answer.status_code for answer in claimed} == {200}
    assert len({answer.json()["claimed"]["task"] for answer in claimed}) == 1
    assert len(agent.get("/leases", session=session["id"]).json()["items"]) == 1


def test_no_two_workers_ever_get_one_orphaned_session_or_one_lease(
    live_server_process: Server,
) -> None:
    agent = Caller(live_server_process.token("crew"), address=live_server_process.url)
    label = {"rush": new_key()}
    sessions = [agent.session(new_key(), mode="leased", labels=label) for _ in range(4)]
    leases = [hold(agent, session["key"], "gone") for session in sessions]
    live_server_process.run(
        "from sessions.models import Lease\n"
        f"Lease.objects.filter(id__in={[lease['id'] for lease in leases]!r})"
        ".update(heartbeat_at_us=0, expires_at_us=1, dead_at_us=2)"
    )
    claimed = at_once(
        agent,
        WORKERS,
        lambda caller, number: claim(caller, f"w-{number}", kinds=["session"], labels=label),
    )
    won = [taken["claimed"]["session"] for taken in claimed if taken["claimed"] is not None]
    assert sorted(won) == sorted(session["id"] for session in sessions)
    assert {taken["lease"]["epoch"] for taken in claimed if taken["claimed"] is not None} == {2}

    name = new_key()
    answers = at_once(
        agent,
        WORKERS,
        lambda caller, n: caller.post("/leases", {"resource": name, "process": f"w-{n}"}),
    )
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * (WORKERS - 1)
    assert {answer.json()["lease"]["epoch"] for answer in answers if answer.status_code == 409} == {
        1
    }
