"""`gatebook resume-runner` as real processes before a real server: each ruling continues once."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.resume_scenario import HoldingRelay, Scenario, make_scenario, wait_for_line
from tests.client.test_pushes import wait_until
from tests.config.server import Server


@pytest.fixture
def scenario(live_server_process: Server, tmp_path: Path) -> Iterator[Scenario]:
    scenario = make_scenario(live_server_process, tmp_path)
    yield scenario
    scenario.close()


def test_two_runners_continue_each_session_once(scenario: Scenario) -> None:
    scenario.write_rules(scenario.build_rule())
    runners = [scenario.start(), scenario.start()]
    waiting = []
    for number in range(4):
        waiting.append(scenario.wait_for_people(transcript=f"t-{number}"))
        scenario.rule()
        scenario.wait_for_state(waiting[-1], "acknowledged")
    wait_until(lambda: len(scenario.list_starts()) == 4)
    printed = [scenario.stop(runner) for runner in runners]
    assert [line.split()[1:3] for line in scenario.list_starts()] == [
        ["approved", f"t-{number}"] for number in range(4)
    ]
    assert all(line.endswith(f"{scenario.folder}/work") for line in scenario.list_starts())
    for number, plan in enumerate(waiting):
        (claim,) = scenario.load_claims(plan)
        result = scenario.project.agent.get(f"/effects/{claim['id']}/result").json()["result"]
        session = scenario.project.agent.get(f"/sessions/{plan['session']}").json()
        assert session["meta"]["worker"] == result
        assert result["command"][-1] == f"t-{number}"
        assert Path(result["log"]).read_text() == "it ran\n"
        assert Path(result["log"]).stat().st_mode & 0o077 == 0
        child = scenario.project.agent.get(f"/sessions/resume:{plan['session']}").json()
        assert child["parent"] == plan["session"]
    started = "".join(printed).count("started again")
    assert started == 4, printed


def test_both_runners_see_a_ruling_that_came_before_them_and_one_starts(scenario: Scenario) -> None:
    scenario.write_rules(scenario.build_rule())
    plan = scenario.wait_for_people()
    scenario.rule()
    runners = [scenario.start() for _ in range(3)]
    scenario.wait_for_state(plan, "acknowledged")
    for runner in runners:
        scenario.stop(runner)
    assert len(scenario.list_starts()) == 1
    assert scenario.run_once() == (0, "")
    assert len(scenario.list_starts()) == 1


def test_killed_between_claim_and_start_it_is_shown_and_not_repeated(scenario: Scenario) -> None:
    scenario.write_rules(scenario.build_rule())
    plan = scenario.wait_for_people()
    scenario.rule()
    with HoldingRelay(scenario.project.server.url, "/dispatch").serve() as relay:
        runner = scenario.start(url=relay.address, waits=False)
        assert relay.reached.wait(60)
        os.kill(runner.pid, signal.SIGKILL)
        runner.wait()
    claim = scenario.wait_for_state(plan, "dispatched")
    assert scenario.list_starts() == []
    agent = scenario.project.agent
    meta = agent.get(f"/effects/{claim['id']}").json()["meta"]
    ((_, shown),) = meta.items()
    assert shown["pid"] == runner.pid
    assert shown["command"][-1] == "t-1"
    # The lease of the dead runner expires; the next one finds the claim and starts nothing.
    scenario.project.server.run(
        "from sessions.models import Lease; from django.db.models import F;"
        "Lease.objects.filter(kind='resource').update(expires_at_us=F('acquired_at_us'))"
    )
    second = scenario.start(waits=False)
    line = wait_for_line(second, "did not report a start")
    assert f"/effects/{claim['id']}/" in line
    wait_until(lambda: agent.get(f"/effects/{claim['id']}/verdict").json()["verdict"] == "escalate")
    resume = agent.get(f"/sessions/resume:{plan['session']}/resume").json()
    assert resume["safe"] is False
    assert scenario.list_starts() == []
    # A person looked: the command did not run. Only then it is started.
    scenario.resolve_as_not_happened(claim["id"])
    scenario.wait_for_state(plan, "acknowledged")
    wait_until(lambda: len(scenario.list_starts()) == 1)
    scenario.stop(second)
    assert len(scenario.list_starts()) == 1


def test_a_lost_answer_to_the_claim_is_asked_for_again(scenario: Scenario) -> None:
    """The server recorded the claim, and its answer got lost: the same process starts, once."""
    scenario.write_rules(scenario.build_rule())
    plan = scenario.wait_for_people()
    scenario.rule()
    with HoldingRelay(scenario.project.server.url, "/dispatch").serve() as relay:
        runner = scenario.start(url=relay.address, waits=False)
        assert relay.reached.wait(60)
        relay.held = ""
        relay.released.set()
        scenario.wait_for_state(plan, "acknowledged")
        wait_until(lambda: len(scenario.list_starts()) == 1)
        scenario.stop(runner)
    (claim,) = scenario.load_claims(plan)
    assert claim["attempt"] == 1


@pytest.mark.parametrize("answer", ["deny", "deny_session", "request_changes"])
def test_a_program_hears_what_people_refused(scenario: Scenario, answer: str) -> None:
    scenario.write_rules(scenario.build_rule())
    runner = scenario.start()
    plan = scenario.wait_for_people()
    scenario.rule(answer)
    scenario.wait_for_state(plan, "acknowledged")
    wait_until(lambda: len(scenario.list_starts()) == 1)
    scenario.stop(runner)
    status = {"deny": "denied", "deny_session": "denied_session"}.get(answer, "changes_requested")
    assert scenario.list_starts()[0].split()[1] == status


def test_an_expired_gate_continues_too_and_a_withdrawn_one_does_not(scenario: Scenario) -> None:
    scenario.write_rules(scenario.build_rule())
    runner = scenario.start()
    withdrawn, agent = scenario.wait_for_people(), scenario.project.agent
    assert agent.post(f"/gates/{withdrawn['gate']['id']}/cancel").status_code == 200
    scenario.let_requests_expire("3s")
    expired = scenario.wait_for_people()
    scenario.wait_for_state(expired, "acknowledged")
    wait_until(lambda: len(scenario.list_starts()) == 1)
    scenario.stop(runner)
    assert scenario.list_starts()[0].split()[1] == "expired"
    assert scenario.load_claims(withdrawn) == []


def test_only_the_decisions_of_the_rule_start_its_command(scenario: Scenario) -> None:
    scenario.write_rules(scenario.build_rule(on=["approved"]))
    denied = scenario.wait_for_people()
    runner = scenario.start()
    scenario.rule("deny")
    approved = scenario.wait_for_people()
    scenario.rule()
    scenario.wait_for_state(approved, "acknowledged")
    scenario.stop(runner)
    assert scenario.load_claims(denied) == []


def test_a_command_that_does_not_start_is_shown_and_started_when_asked(scenario: Scenario) -> None:
    missing = str(scenario.folder / "missing")
    scenario.write_rules(scenario.build_rule(run=[missing]))
    plan = scenario.wait_for_people()
    gate = scenario.project.agent.get(f"/gates/{plan['gate']['id']}").json()
    scenario.rule()
    code, printed = scenario.run_once()
    assert code == 1
    assert f"--retry {gate['handle']}" in printed
    claim = scenario.wait_for_state(plan, "failed")
    attempts = scenario.project.agent.get(f"/effects/{claim['id']}").json()["attempts"]
    assert [attempt["reason"] for attempt in attempts] == ["rejected"]
    detail = scenario.project.agent.get(f"/effects/{claim['id']}/result").json()["detail"]
    assert missing in detail
    scenario.write_rules(scenario.build_rule())
    code, printed = scenario.run_once()
    assert (code, scenario.list_starts()) == (0, [])
    assert "could not be started before" in printed
    assert scenario.run_once("--retry", gate["handle"])[0] == 0
    assert len(scenario.list_starts()) == 1
    (claim,) = scenario.load_claims(plan)
    assert (claim["state"], claim["attempt"]) == ("acknowledged", 2)


def test_a_command_that_ends_with_an_error_is_recorded_and_not_repeated(scenario: Scenario) -> None:
    scenario.write_rules(scenario.build_rule(environment={"EXIT_CODE": "7"}))
    plan = scenario.wait_for_people()
    scenario.rule()
    code, printed = scenario.run_once()
    assert code == 1
    assert "ended with exit code 7" in printed
    entry = scenario.project.server.run(
        "from journal.models import Entry; print(Entry.objects.get(kind='resume.ended',"
        f"effect='{scenario.load_claims(plan)[0]['id']}').body.text)"
    )
    assert '"exit_code":7' in entry.replace(" ", "")
    assert scenario.run_once()[0] == 0
    assert len(scenario.list_starts()) == 1


def test_a_session_whose_worker_lives_is_left_to_it(scenario: Scenario) -> None:
    scenario.write_rules(scenario.build_rule())
    plan = scenario.wait_for_people()
    agent = scenario.project.agent
    lease = agent.post(
        "/leases", {"session": plan["session"], "process": "worker-1", "ttl_s": 600}
    ).json()
    scenario.rule()
    assert scenario.run_once() == (0, "")
    assert scenario.list_starts() == []
    agent.post(f"/leases/{lease['id']}/release", {"epoch": lease["epoch"]})
    assert scenario.run_once()[0] == 0
    assert len(scenario.list_starts()) == 1


@pytest.mark.parametrize("is_heard", [False, True])
def test_a_denial_from_before_the_runner_is_told_to_a_process_that_had_ended(
    scenario: Scenario, is_heard: bool
) -> None:
    scenario.write_rules(scenario.build_rule())
    plan = scenario.wait_for_people()
    work_and_end(scenario, plan)
    scenario.rule("deny")
    if is_heard:
        work_and_end(scenario, plan)
    assert scenario.run_once()[0] == 0
    assert len(scenario.list_starts()) == int(not is_heard)
    assert scenario.run_once() == (0, "")
    assert len(scenario.list_starts()) == int(not is_heard)


def work_and_end(scenario: Scenario, plan: dict[str, Any]) -> None:
    """Take the lease of a session as its worker, and release it."""
    agent = scenario.project.agent
    fields = {"session": plan["session"], "process": "worker-1", "ttl_s": 600}
    lease = agent.post("/leases", fields).json()
    agent.post(f"/leases/{lease['id']}/release", {"epoch": lease["epoch"]})


def test_a_session_goes_on_when_all_its_gates_are_ruled(scenario: Scenario) -> None:
    scenario.write_rules(scenario.build_rule())
    first = scenario.wait_for_people("both")
    scenario.rule()
    second = scenario.project.agent.plan("push-2", session="both", arguments={"ref": "other"})
    assert second["answer"] == "wait"
    assert scenario.run_once() == (0, "")
    scenario.rule()
    scenario.marks.with_suffix(".hold").touch()
    runners = [scenario.start(), scenario.start()]
    wait_until(lambda: len(scenario.list_starts()) == 1)
    # The started program does the second call as well, so nothing more is to be started for it.
    scenario.project.agent.dispatch(second)
    scenario.marks.with_suffix(".hold").unlink()
    wait_until(lambda: not has_live_lease(scenario))
    for runner in runners:
        scenario.stop(runner)
    assert len(scenario.list_starts()) == len(scenario.load_claims(first)) == 1


def has_live_lease(scenario: Scenario) -> bool:
    leases = scenario.project.agent.get("/leases", kind="resource", state="live").json()["items"]
    return bool(leases)


def test_the_folder_of_an_agent_is_not_trusted(scenario: Scenario, tmp_path: Path) -> None:
    """An agent names a folder outside of what the operator allows: nothing is started there."""
    scenario.write_rules(scenario.build_rule())
    plan = scenario.wait_for_people(cwd=str(scenario.folder / "work" / ".." / ".." / ".."))
    scenario.rule()
    code, printed = scenario.run_once()
    assert code == 1
    assert "is not inside `folders`" in printed
    assert scenario.list_starts() == []
    scenario.wait_for_state(plan, "failed")


def test_gatebook_away_and_back(scenario: Scenario) -> None:
    scenario.write_rules(scenario.build_rule())
    runner = scenario.start()
    plan = scenario.wait_for_people()
    server = scenario.project.server
    server.kill()
    wait_for_line(runner, "Waiting for it")
    server.start()
    scenario.rule()
    scenario.wait_for_state(plan, "acknowledged")
    wait_until(lambda: len(scenario.list_starts()) == 1)
    scenario.stop(runner)
