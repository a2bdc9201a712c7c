"""The steps of an effect in processes of their own, with the real server and an approving person."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import gatebook_client as gatebook
import pytest

from tests.client.coroutines import run_coroutine
from tests.client.test_pushes import a_token
from tests.config.server import Server
from tests.evaluation.test_demo_agent import rule

POLICY = """
name: steps
rules:
  - {id: never, title: Never format a disk, match: {tools: [disk.format]}, outcome: deny}
  - {id: ask, title: A release is asked for, match: {tools: [release]}, outcome: require, require: {rationale: {on: on_deny, minimum_characters: 3}}}
  - {id: rest, title: Everything else, match: {}, outcome: allow}
"""
TOOLS = """
tools:
  mail.send: {class: probeable, request_lifetime_s: 5}
  mail.slow: {class: probeable, request_lifetime_s: 600}
  release: {class: opaque, reversibility: reversible}
"""
Ruler = Callable[[str, str], None]


@pytest.fixture(scope="module")
def token(live_server_process: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    server, folder = live_server_process, tmp_path_factory.mktemp("steps")
    token = a_token(server, "steps", folder / "tools.yaml")
    (folder / "tools.yaml").write_text(TOOLS)
    (folder / "policy.yaml").write_text(POLICY)
    server.manage("load_tools", "--project", "steps", str(folder / "tools.yaml"))
    server.manage(
        "load_policies", "--project", "steps", str(folder / "policy.yaml"), "--activate", "enforce"
    )
    server.run(
        """
from django.db import transaction
from accounts import people, projects
with transaction.atomic():
    people.add_project_member(
        projects.find_project("steps"), "steps-pilot", "reviewer", people.generate_password())
"""
    )
    return token


@pytest.fixture
def client(live_server_process: Server, token: str) -> Callable[[], gatebook.Client]:
    """Make a client: each stands for a process of its own."""
    return lambda: gatebook.Client(live_server_process.url, token)


def open_session(client: gatebook.Client, key: str, **how: Any) -> gatebook.Session:
    return client.session(key, mode="one_shot", end_on_exit=False, **how)


def test_four_processes_take_the_steps_of_one_call(client: Callable[[], gatebook.Client]) -> None:
    planned = open_session(client(), "steps-1").plan(
        "mail.send", {"to": "ada", "chat": 2**70}, call_id="c1", meta={"cwd": "/srv"}
    )
    assert (planned.answer, planned.permission, planned.call_id) == ("proceed", "granted", "c1")
    second, third, fourth = (
        client().attach(name) for name in ("steps-1", planned.session, "steps-1")
    )
    attempt = second.dispatch(call_id="c1", arguments={"to": "ada", "chat": 2**70})
    assert (attempt.attempt, attempt.request_lifetime_s) == (1, 5)
    with pytest.raises(gatebook.Refused) as early:
        second.result(planned)
    assert early.value.code == "NO_RESULT"
    done = third.acknowledge(key=planned.effect_key, result={"id": 2**70}, reference="m-1")
    assert (done.ok, done.reference) == (True, "m-1")
    stored = fourth.result(planned.handle)
    assert (stored.result, stored.already_done, stored.redacted) == ({"id": 2**70}, True, False)
    assert (
        open_session(client(), "steps-1")
        .plan("mail.send", {"to": "ada", "chat": 2**70}, call_id="c1")
        .answer
        == "done"
    )
    effect = fourth.http.get(f"/effects/{planned.effect}").body
    assert effect["meta"] == {"cwd": "/srv"}


def test_perform_returns_the_stored_result_of_an_earlier_process(
    client: Callable[[], gatebook.Client],
) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    for again in (False, True):
        s = open_session(client(), "steps-again")
        done = s.perform("mail.send", {"to": "bob"}, lambda _key: {"id": 7, "token": secret})
        assert done.already_done is again
    assert done.result["id"] == 7
    assert done.result["token"].startswith("[redacted:")
    assert done.redacted
    s.end()
    ended = open_session(client(), "steps-again")
    assert ended.perform("mail.send", {"to": "bob"}, lambda _key: None).result["id"] == 7


def test_not_yet_names_the_gate_its_page_and_its_deadline_and_approval_continues(
    client: Callable[[], gatebook.Client], live_server_process: Server
) -> None:
    s = open_session(client(), "steps-people")
    planned = s.plan("release", {"version": "1.4"}, call_id="c1")
    assert (planned.answer, planned.permission) == ("wait", "pending")
    assert planned.gate_url == f"{live_server_process.url}/approvals/{planned.gate}/"
    gate = s.http.get(f"/gates/{planned.session};call_id=c1").body
    assert (gate["id"], gate["call_id"]) == (planned.gate, "c1")
    assert (gate["session_key"], gate["effect_key"]) == ("steps-people", planned.effect_key)
    assert s.http.get("/gates", effect=planned.handle).body["items"] == [gate]
    tries: list[Callable[[], object]] = [
        lambda: s.dispatch(planned),
        lambda: s.wait(planned, wait_s=0),
        lambda: s.perform(
            "release", {"version": "1.4"}, lambda _key: None, call_id="c1", wait_for_people_s=0
        ),
    ]
    for attempt in tries:
        with pytest.raises(gatebook.NotYet) as later:
            attempt()
        error = later.value
        assert (error.reason, error.gate, error.gate_url) == (
            "people",
            planned.gate,
            planned.gate_url,
        )
        assert (error.until_us, error.effect) == (gate["decide_by_us"], planned.effect)
    waiting: list[gatebook.PlannedEffect] = []
    waiter = threading.Thread(
        target=lambda: waiting.append(client().attach("steps-people").wait(call_id="c1"))
    )
    waiter.start()
    rule(live_server_process, planned.gate, "steps-pilot", "approve")
    waiter.join(60)
    assert [stored.answer for stored in waiting] == ["proceed"]
    attempt_made = client().attach("steps-people").dispatch(call_id="c1")
    assert attempt_made.effect == planned.effect
    failed = s.fail(attempt_made, reason="rejected", detail="the remote is closed")
    assert (failed.state, failed.outcome) == ("failed", "error")


def test_a_denial_and_a_policy_are_refusals(
    client: Callable[[], gatebook.Client], live_server_process: Server
) -> None:
    s = open_session(client(), "steps-denied")
    planned = s.plan("release", {"version": "2"}, key="r")
    rule(live_server_process, planned.gate, "steps-pilot", "deny", "not today")
    with pytest.raises(gatebook.PermissionRefused, match="not today"):
        s.wait(key="r")
    with pytest.raises(gatebook.PermissionRefused):
        s.dispatch(key="r")
    assert s.plan("disk.format", {}, key="d").answer == "blocked"
    with pytest.raises(gatebook.PermissionRefused):
        s.dispatch(key="d")


def test_an_attempt_of_unknown_outcome_says_what_to_do(
    client: Callable[[], gatebook.Client],
) -> None:
    s = open_session(client(), "steps-unknown")
    planned = s.plan("mail.slow", {"to": "eve"}, key="e")
    s.dispatch(planned)
    with pytest.raises(gatebook.Refused) as refused:
        client().attach("steps-unknown").dispatch(planned)
    assert refused.value.code == "ALREADY_DISPATCHED"
    assert refused.value.problem["verdict"]["verdict"] == "probe"
    assert s.verdict(key="e").answer == "probe"
    assert s.plan("mail.slow", {"to": "eve"}, key="e").answer == "ambiguous"
    s.http.post(f"/effects/{planned.effect}/probe", {"attempt": 1, "result": "miss"})
    with pytest.raises(gatebook.NotYet) as later:
        s.perform("mail.slow", {"to": "eve"}, lambda _key: None, key="e", wait_for_windows_s=0)
    assert later.value.reason == "in_flight_window"
    assert later.value.until_us is not None


def test_other_arguments_than_planned_are_refused(client: Callable[[], gatebook.Client]) -> None:
    s = open_session(client(), "steps-other")
    s.plan("mail.send", {"to": "ada"}, key="e")
    with pytest.raises(gatebook.Refused) as refused:
        s.dispatch(key="e", arguments={"to": "mallory"})
    assert refused.value.code == "INTENT_MISMATCH"


def test_a_report_is_evidence_and_a_bad_one_is_refused(
    client: Callable[[], gatebook.Client],
) -> None:
    s = open_session(client(), "steps-report")
    assert (
        s.report(
            "effect.planned", call_id="c1", tool="mail.send", arguments={"to": "ada"}, event_id="p1"
        )["status"]
        == "created"
    )
    assert (
        s.report(
            "effect.planned", call_id="c1", tool="mail.send", arguments={"to": "ada"}, event_id="p1"
        )["status"]
        == "duplicate"
    )
    s.report("effect.dispatched", call_id="c1", attempt=1)
    s.report("effect.acknowledged", call_id="c1", attempt=1, outcome="ok", result="sent")
    assert s.result(call_id="c1").result == "sent"
    with pytest.raises(gatebook.Refused):
        s.report("effect.acknowledged", call_id="c1", outcome="splendid")


def test_a_call_id_of_two_effects_is_refused(client: Callable[[], gatebook.Client]) -> None:
    s = open_session(client(), "steps-two")
    s.plan("mail.send", {"to": "ada"}, call_id="c1")
    s.plan("mail.send", {"to": "bob"}, call_id="c1")
    with pytest.raises(gatebook.Refused) as refused:
        s.dispatch(call_id="c1")
    assert refused.value.code == "CALL_REUSED"
    with pytest.raises(gatebook.Refused) as missing:
        s.find_effect(call_id="c2")
    assert missing.value.status == 404
    with pytest.raises(ValueError, match="Name the effect"):
        s.find_effect()
    with pytest.raises(gatebook.Refused) as unknown:
        client().attach("steps-nowhere")
    assert unknown.value.status == 404


def test_a_session_is_opened_again_with_more_meta_and_labels(
    client: Callable[[], gatebook.Client],
) -> None:
    open_session(client(), "steps/meta", labels={"team": "core"}, meta={"cwd": "/a"})
    s = open_session(client(), "steps/meta", labels={"team": "core", "host": "x"}, meta={"pid": 2})
    session = client().attach("steps/meta").http.get(f"/sessions/{s.id}").body
    assert session["meta"] == {"cwd": "/a", "pid": 2}
    assert session["labels"] == {"team": "core", "host": "x"}


def test_waiting_gates_hold_no_thread_and_each_act_runs_once(
    live_server_process: Server, token: str
) -> None:
    server, gates, acts = live_server_process, list[str](), list[str]()

    def note_gate(why: str, answer: dict[str, Any]) -> None:
        if why == "gate":
            gates.append(answer["gate"]["id"])

    async def act(remote_key: str) -> str:
        await asyncio.sleep(0)
        acts.append(remote_key)
        return remote_key

    async def work() -> None:
        client = gatebook.AsyncClient(server.url, token, on_wait=note_gate)
        async with client.session("steps-async", mode="one_shot") as s:
            before = threading.active_count()
            waiting = [
                asyncio.create_task(s.perform("release", {"number": number}, act))
                for number in range(8)
            ]
            harmless = await asyncio.wait_for(s.perform("mail.send", {"to": "ada"}, act), 60)
            assert harmless.ok
            while len(gates) < len(waiting):
                await asyncio.sleep(0.05)
            assert threading.active_count() <= before + 1
            await asyncio.to_thread(rule, server, gates[0], "steps-pilot", "approve")
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            assert [task.result().ok for task in done] == [True]
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await s.end("cancelled")
        await client.close()

    run_coroutine(work())
    assert len(acts) == 2
