"""The demo agent after a denial, a stop, or an expired request: it withdraws and removes its folder."""

import re
from pathlib import Path
from typing import Any

import pytest

from evaluation.demo.git_sandbox import Workshop
from tests.config.server import Server
from tests.evaluation.test_demo_agent import POLICY, Job, Running, a_project

pytestmark = pytest.mark.once  # the agent behaves the same with either database
PROJECT = "barge"


@pytest.fixture(scope="module")
def job(live_server_process: Server, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A project without runs."""
    folder = tmp_path_factory.mktemp("refused") / "kept"
    return Job(
        PROJECT,
        live_server_process,
        a_project(live_server_process, PROJECT, POLICY),
        "",
        Workshop(folder),
        {},
        {},
    )


def check_refusal(job: Job, agent: Running) -> dict[str, Any]:
    """Check that the agent accepted the refusal; return its push to main."""
    code, stderr = agent.end()
    assert (code, stderr) == (0, "")
    identity = agent.output.rstrip().rstrip("/").rpartition("/")[2]
    session = job.get(f"/sessions/{identity}").json()
    assert session["status"] == "cancelled"
    assert {task["state"] for task in job.get(f"/sessions/{identity}/tasks").json()["items"]} == {
        "done",
        "cancelled",
    }
    (push,) = job.get(f"/effects?session={identity}&effect_key=push-main").json()["items"]
    assert push["state"] == "superseded"
    assert "attempt" not in push
    return dict(push)


def test_after_a_denial_it_withdraws_the_push_and_removes_its_folder(
    job: Job, tmp_path: Path
) -> None:
    with Running("--url", job.server.url, token=job.token, temporary=tmp_path) as agent:
        job.rule(agent.gate(), "deny", "not on the day of a regatta")
        push = check_refusal(job, agent)
    assert push["permission"] == "denied"
    assert "denied: “not on the day of a regatta”" in agent.output
    assert "push-next" not in agent.output
    assert list(tmp_path.iterdir()) == []


def test_after_requested_changes_it_withdraws_the_push(job: Job) -> None:
    with Running("--url", job.server.url, token=job.token) as agent:
        job.rule(agent.gate(), "request_changes", "first a test for 0 km")
        push = check_refusal(job, agent)
    assert push["permission_basis"] == "changes_requested"
    assert "changes were requested: “first a test for 0 km”" in agent.output


STOP = """
from ledger import stops
from approvals.models import Gate
from accounts.models import Membership
gate = Gate.objects.get(id="{gate}")
person = Membership.objects.select_related("project", "user").get(project=gate.project)
if {stop}:
    stops.set_stop(gate.project, "session", gate.session_id.hex, "check the timetable first", person.user)
else:
    stops.lift_stop(stops.load_stops(gate.project_id)[0], "checked", person.user)
"""


@pytest.mark.matrix
def test_during_a_stop_an_approved_push_waits_until_the_stop_is_lifted(
    job: Job,
) -> None:
    with Running("--url", job.server.url, token=job.token) as agent:
        gate = agent.gate()
        job.server.run(STOP.format(gate=gate, stop=True))
        job.rule(gate, "approve")
        waiting = job.get(f"/gates/{gate}").json()
        assert (waiting["status"], waiting["stopped"], waiting["proceed"]) == (
            "approved",
            True,
            False,
        )
        job.server.run(STOP.format(gate=gate, stop=False))
        assert "acknowledged" in agent.until("push-main")
        assert agent.end()[0] == 0
    assert job.get(f"/gates/{gate}").json()["status"] == "used"


def test_without_a_decision_it_ends_when_the_request_expires(job: Job, tmp_path: Path) -> None:
    hasty = tmp_path / "hasty.yaml"
    hasty.write_text(
        POLICY.read_text(encoding="utf-8").replace("decide_within: 1h", "decide_within: 1s")
    )
    token = a_project(job.server, "hasty", hasty)
    with Running("--url", job.server.url, token=token) as agent:
        check_refusal(Job("hasty", job.server, token, "", job.shop, {}, {}), agent)
    assert "the approval request expired" in agent.output


def test_after_sigterm_it_removes_its_folder_and_its_session_stays_open(
    job: Job, tmp_path: Path
) -> None:
    with Running("--url", job.server.url, token=job.token, temporary=tmp_path) as agent:
        agent.until("write-test")
        agent.process.terminate()
        assert agent.end()[0] == 143
    assert list(tmp_path.iterdir()) == []
    handle = re.search(
        r"session (s_\d+): ", agent.output
    )  # not the newest session: a review may have begun
    assert handle
    statuses = {
        session["handle"]: session["status"]
        for session in job.get("/sessions?limit=200").json()["items"]
    }
    assert statuses[handle[1]] == "running"
