"""The demo agent on a real server: its output agrees with the remote and with the journal."""

import ast
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gatebook_client as gatebook
import httpx
import pytest

from evaluation.bench.installation import own_port
from evaluation.demo.git_sandbox import Workshop
from tests.api.api_client import NO_TLS
from tests.config.server import ROOT, Server

pytestmark = pytest.mark.once  # the agent uses Gatebook over HTTP only
PROJECT = "ferry"  # a project of its own, because the policy must not apply to others
POLICY = ROOT / "evaluation" / "demo_policies.yaml"
WITHIN_S = 180


@dataclass
class Job:
    """One complete run of the demo agent, with its folder."""

    project: str
    server: Server
    token: str
    output: str
    shop: Workshop
    session: dict[str, Any]
    effects: dict[str, dict[str, Any]]

    def get(self, path: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.get(
            f"{self.server.url}/api/v1{path}", headers=headers, verify=NO_TLS, timeout=60
        )

    def effect(self, key: str) -> dict[str, Any]:
        effect: dict[str, Any] = self.get(f"/effects/{self.effects[key]['id']}").json()
        return effect

    def remote(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.shop.remote), *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def first_commit(self) -> str:
        """The commit of the remote before the agent's run."""
        return self.remote("rev-list", "--max-parents=0", "main")

    def rule(self, gate: str, answer: str, reason: str = "") -> None:
        """Vote on a gate as the page does, in another process."""
        rule(self.server, gate, f"{self.project}-pilot", answer, reason)


class Running:
    """A running demo agent, as a context manager that kills it at the end."""

    def __init__(self, *arguments: str, token: str, temporary: Path | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "evaluation.demo.agent", *arguments],
            cwd=ROOT,
            env=os.environ
            | {"GATEBOOK_TOKEN": token}
            | ({"TMPDIR": str(temporary)} if temporary else {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.output = ""

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_raised: object) -> None:
        self.process.kill()
        self.process.communicate()

    def until(self, words: str) -> str:
        """Read the output up to the first line that contains `words`; return that line."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line
            if words in line:
                return line
        raise AssertionError(f"the agent ended before {words!r}:\n{self.output}{self.end()[1]}")

    def gate(self) -> str:
        """Read until the agent waits for people; return the id of its gate."""
        line = self.until("approve it in the browser")
        return line.partition("/approvals/")[2].partition("/")[0]

    def end(self) -> tuple[int, str]:
        """Wait for the end of the agent; return its exit code and standard error."""
        stdout, stderr = self.process.communicate(timeout=WITHIN_S)
        self.output += stdout
        return self.process.returncode, stderr


def rule(server: Server, gate: str, person: str, answer: str, reason: str = "") -> None:
    """Let a person vote on a gate as the page does, in another process."""
    server.run(
        f"""
from approvals.voting import votes
from approvals.models import Gate
from approvals.voting.votes import ShownGate
from db.clock import now_us
from accounts.models import Membership
gate = Gate.objects.get(id="{gate}")
member = Membership.objects.select_related("project", "user").get(project=gate.project, user__username="{person}")
shown = ShownGate(gate.version, gate.digest, "0" * 64, True, now_us())
assert votes.cast_vote(gate, member, "{answer}", "{reason}", shown, step_up="typed_digest").refusal is None
"""
    )


def a_project(server: Server, name: str, policy: Path) -> str:
    """Make a project with a reviewer, the demo's tools and an active policy; return an agent token."""
    server.run(
        f"""
from django.db import transaction
from accounts import people
from accounts import projects
with transaction.atomic():
    people.add_project_member(projects.create_project("{name}"), "{name}-pilot", "reviewer", people.generate_password())
"""
    )
    server.manage("load_tools", "--project", name, "evaluation/demo_tools.yaml")
    output = server.manage("load_policies", "--project", name, str(policy), "--activate", "enforce")
    assert "In force now: demo@1, mode enforce." in output
    return server.token("demo-agent", "--project", name)


@pytest.fixture(scope="module")
def job(live_server_process: Server, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The first run, with its push approved and its folder."""
    server, folder = live_server_process, tmp_path_factory.mktemp("demo") / "kept"
    token = a_project(server, PROJECT, POLICY)
    job = Job(PROJECT, server, token, "", Workshop(folder), {}, {})
    with Running("--url", server.url, "--keep", str(folder), token=token) as agent:
        gate = agent.gate()
        assert (
            job.remote("for-each-ref", "--format=%(objectname)", "refs/heads/main")
            == job.first_commit()
        )
        job.rule(gate, "approve")
        code, stderr = agent.end()
    assert code == 0, stderr
    job.output = agent.output
    identity = job.output.rstrip().rstrip("/").rpartition("/")[2]
    job.session = job.get(f"/sessions/{identity}").json()
    items = job.get(f"/effects?session={identity}&limit=200").json()["items"]
    job.effects = {item["effect_key"]: item for item in items}
    return job


def test_it_ends_with_the_address_of_its_session(job: Job) -> None:
    last = job.output.splitlines()[-1]
    assert last == f"demo agent: done; see {job.server.url}/sessions/{job.session['id']}/"
    assert job.session["status"] == "completed"
    assert job.session["effects"] == len(job.effects) == 17


def test_every_effect_ends_in_the_expected_state(job: Job) -> None:
    ends = {key: (effect["state"], effect.get("outcome")) for key, effect in job.effects.items()}
    errors = {key for key, end in ends.items() if end == ("acknowledged", "error")}
    assert errors == {"test-1", "compare"}
    others = {key: state for key, (state, _) in ends.items() if state != "acknowledged"}
    assert others == {
        "push-branch": "compensated",
        "write-changelog": "superseded",
        "push-tag": "failed",
    }
    assert {ends[key] for key in ends.keys() - errors - others.keys()} == {("acknowledged", "ok")}
    assert {
        effect["permission"] for key, effect in job.effects.items() if key != "write-changelog"
    } == {"used"}
    assert job.effects["write-changelog"]["permission"] == "granted"


def test_every_effect_names_its_rule_and_one_needed_approval(job: Job) -> None:
    code = f"""
import json
from ledger.models import Effect
rows = Effect.objects.filter(session_id="{job.session["id"]}")
print(json.dumps({{row.effect_key: [row.policy_outcome, row.policy_rule, row.permission_basis] for row in rows}}))
"""
    policy_outcome = json.loads(job.server.run(code))
    assert policy_outcome.pop("push-main") == ["ask", "demo@1/push-to-production", "ruling"]
    assert {(outcome, basis) for outcome, _, basis in policy_outcome.values()} == {
        ("allow", "policy")
    }
    assert (
        policy_outcome["push-branch"][1]
        == policy_outcome["push-tag"][1]
        == policy_outcome["delete-branch"][1]
        == "demo@1/push-elsewhere"
    )
    assert policy_outcome["compare"][1] == "demo@1/harmless-commands"
    assert policy_outcome["read-tariff"][1] == "demo@1/work-at-home"


def test_its_gate_was_approved_by_a_person_and_used_once(job: Job) -> None:
    (gate,) = job.get(f"/gates?session={job.session['id']}").json()["items"]
    assert (gate["effect"], gate["status"], gate["risk"]) == (
        job.effects["push-main"]["id"],
        "used",
        "high",
    )
    assert (
        f"approve it in the browser ({job.server.url}/approvals/{gate['id']}/), and watch it "
        "continue" in job.output
    )


def test_main_of_the_remote_is_the_commit_that_the_ledger_names(job: Job) -> None:
    assert (
        job.remote("rev-parse", "refs/heads/main") == job.effects["push-main"]["external_reference"]
    )
    assert job.remote("log", "-1", "--format=%s", "main") == job.session["title"]
    assert (
        job.remote("rev-parse", "refs/heads/next") == job.effects["push-next"]["external_reference"]
    )
    assert job.remote("show", "main:tariff.py").endswith("return round(cents)")


def test_the_rejected_push_was_retried_as_attempt_two(job: Job) -> None:
    first, second = job.effect("push-next")["attempts"]
    assert (first["attempt"], first["reason"], first["acknowledged_at_us"]) == (1, "rejected", None)
    assert (second["attempt"], second["outcome"]) == (2, "ok")
    assert first["remote_key"] != second["remote_key"]
    assert second["dispatched_at_us"] > first["failed_at_us"]


def test_the_branch_is_deleted_and_its_push_compensated(job: Job) -> None:
    assert job.remote("for-each-ref", "--format=%(refname)").split() == [
        "refs/heads/main",
        "refs/heads/next",
    ]
    assert job.effects["delete-branch"]["state"] == "acknowledged"
    undone = job.effect("push-branch")
    assert (undone["state"], undone["outcome"]) == ("compensated", "ok")


def test_the_tag_is_rejected_by_the_remote_and_has_no_reference(job: Job) -> None:
    (attempt,) = job.effect("push-tag")["attempts"]
    assert (attempt["reason"], attempt["external_reference"]) == ("rejected", None)


def test_rows_have_task_repository_and_ref_of_each_effect(job: Job) -> None:
    code = f"""
import json
from ledger.models import Effect
rows = Effect.objects.filter(session_id="{job.session["id"]}").select_related("task", "repository")
print(json.dumps({{row.effect_key: [row.task.key, str(row.repository or ""), row.ref, row.ref_class] for row in rows}}))
"""
    rows = json.loads(job.server.run(code))
    assert rows["push-main"] == ["publish", "ferry/tariff", "refs/heads/main", "production"]
    assert rows["delete-branch"] == [
        "clean-up",
        "ferry/tariff",
        "refs/heads/fix/reduced-fares",
        "other",
    ]
    assert rows["test-1"][:2] == ["reproduce", ""]


def test_its_tasks_form_a_tree_with_items(job: Job) -> None:
    tasks = {
        task["key"]: task
        for task in job.get(f"/sessions/{job.session['id']}/tasks").json()["items"]
    }
    assert {task["state"] for task in tasks.values()} == {"done"}
    root = tasks.pop("job")
    assert {task["parent"] for task in tasks.values()} == {root["id"]}
    items = job.get(f"/tasks/{tasks['publish']['id']}/items").json()
    assert (items["done"], items["failed"], items["pending"]) == (4, 1, 0)


def test_the_reviewer_worked_in_a_child_session(job: Job) -> None:
    sessions = job.get("/sessions?limit=200").json()["items"]
    (review,) = [session for session in sessions if session["parent"] == job.session["id"]]
    assert (review["effects"], review["status"]) == (1, "completed")


def test_the_difference_is_stored_byte_for_byte(job: Job) -> None:
    code = f"""
from sessions.models import Artifact
for row in Artifact.objects.filter(session_id="{job.session["id"]}").order_by("opened_position"):
    print(row.id, row.name, row.stored_at_us is not None)
"""
    artifacts = [line.split() for line in job.server.run(code).splitlines()]
    assert [name for _, name, _ in artifacts] == [
        "test-1.log",
        "test-2.log",
        "commit.diff",
        "test-3.log",
    ]
    assert {stored for _, _, stored in artifacts} == {"True"}
    bytes_of = {
        name: job.get(f"/artifacts/{identity}/bytes").content for identity, name, _ in artifacts
    }
    assert b"-    return int(cents)" in bytes_of["commit.diff"]
    assert b"1 failed" in bytes_of["test-1.log"]
    assert b"0 failed" in bytes_of["test-3.log"]


@pytest.mark.once
def test_declared_tools_are_not_overwritten(job: Job, tmp_path: Path) -> None:
    other = tmp_path / "tools.yaml"
    other.write_text("tools: {file.read: {class: read_only}}\n", encoding="utf-8")
    assert (
        job.server.manage("load_tools", "--project", PROJECT, "--unless-declared", str(other)) == ""
    )
    counted = job.server.run(
        "from ledger.models import Tool\n"
        f"print(Tool.objects.filter(project__name='{PROJECT}').count())"
    )
    assert int(counted) > 1


def test_a_policy_in_force_is_not_replaced(job: Job, tmp_path: Path) -> None:
    other = tmp_path / "policies.yaml"
    other.write_text("name: other\nrules: []\n", encoding="utf-8")
    output = job.server.manage(
        "load_policies",
        "--project",
        PROJECT,
        "--unless-active",
        str(other),
        "--activate",
        "enforce",
    )
    assert output == ""
    assert "was already in force in mode enforce" in job.server.manage(
        "load_policies", "--project", PROJECT, str(POLICY), "--activate", "enforce"
    )


@pytest.mark.once
def test_an_absent_server_is_reported_in_a_sentence(tmp_path: Path) -> None:
    with own_port() as port:  # without a server
        url = f"http://127.0.0.1:{port}"
        with Running("--url", url, "--patience", "0.2", token="gbk_x", temporary=tmp_path) as agent:
            code, stderr = agent.end()
    assert code == 1
    assert f"Gatebook does not answer at {url}" in stderr
    assert "make run" in stderr
    assert "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.once
def test_a_wrong_token_is_reported_with_the_servers_error(job: Job) -> None:
    with Running("--url", job.server.url, token="gbk_aaaaaaaa_" + "a" * 43) as agent:
        code, stderr = agent.end()
    assert code == 1
    assert "unauthorized, HTTP 401" in stderr
    assert "Traceback" not in stderr


def test_after_a_kill_during_a_push_the_next_process_does_not_push_again(
    job: Job, tmp_path: Path
) -> None:
    shop = Workshop(tmp_path / "kept")
    arguments = (
        "--url",
        job.server.url,
        "--keep",
        str(shop.folder),
        "--killed",
    )
    with Running(*arguments, token=job.token) as agent:
        agent.until("killed by SIGKILL in the middle of its push")
        line = agent.until("found")
        assert "push-branch" in line
        assert "already done" in agent.until("push-branch")
        job.rule(agent.gate(), "approve")
        code, stderr = agent.end()
    assert code == 0, stderr
    identity = agent.output.rstrip().rstrip("/").rpartition("/")[2]
    session = job.get(f"/sessions/{identity}").json()
    assert (session["status"], session["effects"]) == ("completed", 17)
    (push,) = job.get(f"/effects?session={identity}&effect_key=push-branch").json()["items"]
    (attempt,) = job.get(f"/effects/{push['id']}").json()["attempts"]
    assert (push["state"], attempt["outcome"]) == ("compensated", "ok")
    assert (shop.folder / "arrived").read_text().split().count(
        "refs/heads/fix/reduced-fares"
    ) == 2  # created and deleted


def test_an_act_that_raises_is_recorded_as_unknown(job: Job) -> None:
    def act(_key: str) -> None:
        raise RuntimeError("the line went dead")

    token = job.server.token("broken")
    with (
        pytest.raises(RuntimeError),
        gatebook.session(job.server.url, token, key="broken-act") as s,
    ):
        s.perform("phone", {}, act)
    (effect,) = httpx.get(
        f"{job.server.url}/api/v1/effects?session=broken-act",
        headers={"Authorization": f"Bearer {token}"},
        timeout=60,
    ).json()["items"]
    assert (effect["state"], effect["outcome"], effect["answer"]) == (
        "failed",
        "unknown",
        "ambiguous",
    )


@pytest.mark.once
def test_the_demo_imports_nothing_of_the_product() -> None:
    apps = {
        "config",
        "pages",
        "importers",
        "hooks",
        "traces",
        "shell",
        "api",
        "investigation",
        "monitoring",
        "recovery",
        "display",
        "notifications",
        "approvals",
        "ledger",
        "sessions",
        "accounts",
        "web",
        "journal",
        "db",
        "django",
    }
    for path in (ROOT / "evaluation").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.partition(".")[0] for name in names} & apps, path
