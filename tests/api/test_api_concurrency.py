"""Concurrent requests to the real server: one write per key, each fact once, no delay for people."""

import random
import re
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.api.api_client import Caller, code, new_key
from tests.config.server import Server

CLIENTS = 16


@pytest.fixture(scope="module")
def token(live_server_process: Server) -> str:
    return live_server_process.token("crowd")


@pytest.fixture
def agent(live_server_process: Server, token: str) -> Caller:
    return Caller(token, address=live_server_process.url)


def at_once(
    agent: Caller, ask: Callable[[Caller, int], httpx.Response], clients: int = CLIENTS
) -> list[httpx.Response]:
    """Send from many clients at the same moment, each over its own open connection."""
    gate = threading.Barrier(clients)
    address = str(agent.client.base_url).removesuffix("/api/v1/")

    def run(number: int) -> httpx.Response:
        caller = Caller(agent.token, address=address)
        assert caller.get("/limits").status_code == 200
        gate.wait(30)
        return ask(caller, number)

    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(run, range(clients)))


def statuses(answers: list[httpx.Response]) -> Counter[int]:
    return Counter(answer.status_code for answer in answers)


def entries(agent: Caller, key: str) -> int:
    return int(agent.get("/events/receipt", id=key).json()["position"])


def test_one_key_is_one_write_and_one_answer(agent: Caller) -> None:
    key, name = new_key(), new_key()
    answers = at_once(
        agent, lambda caller, _: caller.post("/sessions", {"key": name, "title": "one"}, key=key)
    )
    assert statuses(answers) == {201: CLIENTS}
    assert len({answer.text for answer in answers}) == 1
    assert sum("idempotent-replay" not in answer.headers for answer in answers) == 1
    assert answers[0].json()["handle"] == f"s_{entries(agent, key)}"


def test_one_session_opened_under_many_keys_is_new_once(agent: Caller) -> None:
    name = new_key()
    answers = at_once(agent, lambda caller, _: caller.post("/sessions", {"key": name}))
    assert statuses(answers) == {201: 1, 200: CLIENTS - 1}
    assert len({answer.json()["id"] for answer in answers}) == 1


def test_one_task_created_under_many_keys_is_new_once(agent: Caller) -> None:
    session = agent.session(new_key())
    answers = at_once(
        agent, lambda caller, _: caller.post(f"/sessions/{session['id']}/tasks", {"key": "t"})
    )
    assert statuses(answers) == {201: 1, 200: CLIENTS - 1}


@pytest.mark.parametrize("same_key", [True, False])
def test_one_plan_of_many_is_new(agent: Caller, same_key: bool) -> None:
    session, key = agent.session(new_key())["key"], new_key()
    body = {"session": session, "effect_key": "e", "tool": "t", "arguments": {"n": 1}}
    answers = at_once(
        agent, lambda caller, _: caller.post("/effects", body, key=key if same_key else None)
    )
    assert statuses(answers) == {201: 1, 200: CLIENTS - 1}
    assert {answer.json()["answer"] for answer in answers} == {"proceed"}
    (effect,) = agent.get("/effects", session=session).json()["items"]
    assert {answer.json()["id"] for answer in answers} == {effect["id"]}
    assert agent.get("/sessions", key=session).json()["items"][0]["effects"] == 1


def test_of_many_effects_of_one_intent_one_proceeds(agent: Caller) -> None:
    session = agent.session(new_key())["key"]

    def plan(caller: Caller, number: int) -> httpx.Response:
        return caller.post(
            "/effects", {"session": session, "effect_key": f"e-{number}", "tool": "t"}
        )

    counts = Counter(answer.json()["answer"] for answer in at_once(agent, plan))
    assert counts == {"proceed": 1, "ambiguous": CLIENTS - 1}


@pytest.mark.parametrize("same_key", [True, False])
def test_one_of_many_dispatches_is_granted(agent: Caller, same_key: bool) -> None:
    session, key = agent.session(new_key())["key"], new_key()
    effect = agent.plan("e", session)
    body = {"process": "p", "intent_digest": effect["intent_digest"]}
    path = f"/effects/{effect['id']}/dispatch"
    answers = at_once(
        agent, lambda caller, _: caller.post(path, body, key=key if same_key else None)
    )
    if same_key:
        assert statuses(answers) == {200: CLIENTS}
        assert len({answer.json()["remote_key"] for answer in answers}) == 1
    else:
        assert statuses(answers) == {200: 1, 409: CLIENTS - 1}
        assert {code(answer)[1] for answer in answers if answer.status_code == 409} == {
            "ALREADY_DISPATCHED"
        }
    assert len(agent.get(f"/effects/{effect['id']}").json()["attempts"]) == 1


def test_one_of_many_processes_is_granted_one_key(agent: Caller) -> None:
    effect, key = agent.plan("e", agent.session(new_key())["key"]), new_key()

    def dispatch(caller: Caller, number: int) -> httpx.Response:
        body = {"process": f"p-{number}", "intent_digest": effect["intent_digest"]}
        return caller.post(f"/effects/{effect['id']}/dispatch", body, key=key)

    assert statuses(at_once(agent, dispatch)) == {200: 1, 409: CLIENTS - 1}


def test_one_of_many_compensations_is_open(agent: Caller) -> None:
    effect = agent.plan("e", agent.session(new_key())["key"])
    agent.dispatch(effect)
    agent.acknowledge(effect)

    def compensate(caller: Caller, number: int) -> httpx.Response:
        body = {"effect_key": f"undo-{number}", "tool": "t", "arguments": {"n": number}}
        return caller.post(f"/effects/{effect['id']}/compensate", body)

    answers = at_once(agent, compensate)
    assert statuses(answers) == {201: 1, 409: CLIENTS - 1}
    assert {code(answer)[1] for answer in answers if answer.status_code == 409} == {
        "COMPENSATION_OPEN"
    }


def test_of_answers_to_one_attempt_one_is_in_time(agent: Caller) -> None:
    effect = agent.plan("e", agent.session(new_key())["key"])
    agent.dispatch(effect)

    def answer(caller: Caller, number: int) -> httpx.Response:
        if number % 2:
            return caller.post(
                f"/effects/{effect['id']}/acknowledge", {"attempt": 1, "outcome": "ok"}
            )
        return caller.post(f"/effects/{effect['id']}/fail", {"attempt": 1, "reason": "timeout"})

    assert statuses(at_once(agent, answer)) == {200: 1, 202: CLIENTS - 1}
    assert agent.get(f"/effects/{effect['id']}").json()["state"] == "acknowledged"


def test_every_command_for_an_effect_may_arrive_at_once(agent: Caller) -> None:
    session = agent.session(new_key())["key"]
    effect = agent.plan("e", session)
    agent.dispatch(effect)
    path, base = f"/effects/{effect['id']}", {"session": session, "effect_key": "e"}

    def say(caller: Caller, number: int) -> httpx.Response:
        report = {"id": new_key(), "kind": "effect.acknowledged", "outcome": "ok", **base}
        commands: list[Callable[[], httpx.Response]] = [
            lambda: caller.post(
                "/effects", {**base, "tool": "git.push", "arguments": {"ref": "main"}}
            ),
            lambda: caller.post(f"{path}/acknowledge", {"attempt": 1, "outcome": "ok"}),
            lambda: caller.post(f"{path}/dispatch", {"process": "q", "arguments": {"ref": "main"}}),
            lambda: caller.report([report]),
            lambda: caller.post(
                f"{path}/compensate", {"effect_key": f"undo-{number}", "tool": "t"}
            ),
            lambda: caller.post(f"{path}/fail", {"attempt": 1, "reason": "error"}),
        ]
        for turn in range(len(commands)):
            answer = commands[(number + turn) % len(commands)]()
            assert answer.status_code in (200, 201, 202, 409), answer.text
        return answer

    assert len(at_once(agent, say)) == CLIENTS
    assert agent.get(path).json()["state"] == "acknowledged"


def test_one_upload_of_many_is_as_good_as_all(agent: Caller) -> None:
    import hashlib

    data = random.randbytes(300_000)
    about = {
        "session": agent.session(new_key())["key"],
        "type": "log",
        "media_type": "a/b",
        "size": len(data),
    }
    artifact = agent.post(
        "/artifacts", {**about, "sha256": hashlib.sha256(data).hexdigest()}
    ).json()
    path = artifact["upload"].removeprefix("/api/v1")
    assert statuses(at_once(agent, lambda caller, _: caller.client.put(path, content=data), 8)) == {
        200: 8
    }
    assert agent.client.get(path).content == data


def facts(name: str, effects: int) -> list[dict[str, Any]]:
    """Return facts of `effects` effects in four sessions, each session a child of the next."""
    items: list[dict[str, Any]] = [
        {
            "id": f"{name}-s{n}",
            "kind": "session.started",
            "session": f"{name}-{n}",
            "parent": f"{name}-{(n + 1) % 4}",
        }
        for n in range(4)
    ]
    for number in range(effects):
        base = {"session": f"{name}-{number % 4}", "effect_key": f"e-{number}"}
        target = {"repository": f"acme/{number % 3}", "ref": "main"}
        items += [
            {
                "id": f"{name}-{number}-p",
                "kind": "effect.planned",
                **base,
                "tool": "t",
                "task": "T",
                "target": target,
            },
            {"id": f"{name}-{number}-d", "kind": "effect.dispatched", **base},
            {"id": f"{name}-{number}-a", "kind": "effect.acknowledged", **base, "outcome": "ok"},
            {
                "id": f"{name}-{number}-i",
                "kind": "item.done",
                "session": base["session"],
                "task": "T",
                "item": f"{number}",
            },
        ]
    return items


def test_overlapping_shuffled_batches_keep_each_fact_once(agent: Caller) -> None:
    name = new_key()[:10]
    every = facts(name, 100)
    created: Counter[str] = Counter()

    def report(caller: Caller, number: int) -> httpx.Response:
        shuffled = every.copy()
        random.Random(number).shuffle(shuffled)
        for start in range(0, len(shuffled), 60):
            answer = caller.report(shuffled[start : start + 60])
            assert answer.status_code == 200, answer.text
            results = [
                result for result in answer.json()["results"] if result["status"] == "created"
            ]
            created.update(result["id"] for result in results)
        return answer

    assert statuses(at_once(agent, report, 8)) == {200: 8}
    assert set(created.values()) == {1}
    assert created.keys() == {fact["id"] for fact in every}
    for number in range(4):
        session = agent.get("/sessions", key=f"{name}-{number}").json()["items"][0]
        assert session["effects"] == 25
        assert session["parent"] is not None
    assert (
        len(agent.get("/effects", session=f"{name}-0", state="acknowledged").json()["items"]) == 25
    )


def test_a_person_stores_a_form_while_eight_agents_write(
    agent: Caller, live_server_process: Server
) -> None:
    """No request fails. `make bench` measures how long the person waits."""
    server, done = live_server_process, threading.Event()
    faults: list[str] = []

    def write() -> None:
        caller = Caller(agent.token, address=server.url)
        while not done.is_set():
            answer = caller.report(facts(new_key()[:10], 60))
            if answer.status_code != 200:
                faults.append(answer.text[:300])

    with httpx.Client(base_url=server.url, follow_redirects=True, timeout=30) as browser:

        def store(path: str, **fields: str) -> httpx.Response:
            token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.get(path).text)
            assert token
            sent = {"csrfmiddlewaretoken": token[1], **fields}
            return browser.post(path, data=sent, headers={"Referer": f"{server.url}{path}"})

        store("/sign-in/", username=server.administrator, password=server.password)
        writers = [threading.Thread(target=write) for _ in range(8)]
        for writer in writers:
            writer.start()
        try:
            for number in range(6):
                answer = store(
                    "/settings/appearance/", theme="dark" if number % 2 else "light", clock="utc"
                )
                assert answer.status_code == 200, answer.text[:300]
                assert "Stored." in answer.text
        finally:
            done.set()
            for writer in writers:
                writer.join(60)
    assert faults == []
