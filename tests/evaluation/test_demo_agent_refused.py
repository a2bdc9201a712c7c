"""The demo agent that is refused, stopped, or never answered: a no is a no, and it leaves nothing
behind."""

import re
from pathlib import Path
from typing import Any

import pytest

from evaluation.demo.git_sandbox import Workshop
from tests.config.server import Server
from tests.evaluation.test_demo_agent import POLICY, Job, Running, a_project

pytestmark = pytest.mark.once  # what the agent does is the same before either database
PROJECT = "barge"


@pytest.fixture(scope="module")
def job(live_server_process: Server, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A project in which nothing ran yet."""
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


def given_up(job: Job, agent: Running) -> dict[str, Any]:
    """Fail unless the agent took a no as a no; return its push to main."""
    code, wrong = agent.end()
    assert (code, wrong) == (0, "")
    identity = agent.said.rstrip().rstrip("/").rpartition("/")[2]
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


def test_denied_it_withdraws_the_push_says_why_and_leaves_no_folder(
    job: Job, tmp_path: Path
) -> None:
    with Running("--url", job.server.url, "--token", job.token, temporary=tmp_path) as agent:
        job.rule(agent.gate(), "deny", "not on the day of a regatta")
        push = given_up(job, agent)
    assert push["permission"] == "denied"
    assert "denied: “not on the day of a regatta”" in agent.said
    assert "push-next" not in agent.said
    assert list(tmp_path.iterdir()) == []


def test_sent_back_it_withdraws_the_push(job: Job) -> None:
    with Running("--url", job.server.url, "--token", job.token) as agent:
        job.rule(agent.gate(), "request_changes", "first a test for 0 km")
        push = given_up(job, agent)
    assert push["permission_basis"] == "changes_requested"
    assert "changes were requested: “first a test for 0 km”" in agent.said


STOP = """
from ledger import stops
from approvals.models import Gate
from accounts.models import Membership
gate = Gate.objects.get(id="{gate}")
person = Membership.objects.select_related("project", "user").get(project=gate.project)
if {stop}:
    stops.set_stop(gate.project, "session", gate.session_id.hex, "look at the timetable first", person.user)
else:
    stops.lift_stop(stops.load_stops(gate.project_id)[0], "looked", person.user)
"""


def test_stopped_by_a_person_it_does_not_use_what_was_approved_until_the_stop_is_lifted(
    job: Job,
) -> None:
    with Running("--url", job.server.url, "--token", job.token) as agent:
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


def test_unanswered_it_ends_when_the_time_to_answer_is_over(job: Job, tmp_path: Path) -> None:
    hasty = tmp_path / "hasty.yaml"
    hasty.write_text(
        POLICY.read_text(encoding="utf-8").replace("decide_within: 1h", "decide_within: 1s")
    )
    token = a_project(job.server, "hasty", hasty)
    with Running("--url", job.server.url, "--token", token) as agent:
        given_up(Job("hasty", job.server, token, "", job.shop, {}, {}), agent)
    assert "the approval request expired" in agent.said


def test_stopped_half_way_it_leaves_no_folder_and_invents_no_end(job: Job, tmp_path: Path) -> None:
    with Running("--url", job.server.url, "--token", job.token, temporary=tmp_path) as agent:
        agent.until("write-test")
        agent.process.terminate()
        assert agent.end()[0] == 143
    assert list(tmp_path.iterdir()) == []
    handle = re.search(
        r"session (s_\d+): ", agent.said
    )  # not the newest: by now it may have asked for a review
    assert handle
    statuses = {
        one["handle"]: one["status"] for one in job.get("/sessions?limit=200").json()["items"]
    }
    assert statuses[handle[1]] == "running"
