"""The real Gemini CLI, its hooks and its transcript: killed in a call, resumed, followed."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.test_pushes import wait_until
from tests.config.server import Server
from tests.hooks.real.connected_agents import ConnectedAgent, open_agent
from tests.hooks.real.live_project import make_live_project
from tests.importers.followed_files import Following

TEST = "./npm test"


@pytest.fixture
def gemini(live_server_process: Server, tmp_path: Path) -> Iterator[ConnectedAgent]:
    project = make_live_project(live_server_process, f"followed-{uuid.uuid4().hex[:8]}")
    with open_agent("gemini", project, tmp_path) as agent:
        yield agent


@pytest.fixture
def follower(gemini: ConnectedAgent, tmp_path: Path) -> Iterator[Following]:
    following = Following(gemini.project, tmp_path)
    yield following
    following.close()


def list_effects(following: Following) -> list[tuple[str, str]]:
    _test_of_connect, *effects = following.project.list_effects(limit="200")
    return [(effect["tool"], effect["state"]) for effect in effects]


def test_every_call_is_one_effect_and_the_killed_one_stays_open(
    gemini: ConnectedAgent, follower: Following
) -> None:
    assert gemini.connect().returncode == 0
    gemini.run("echo one", TEST, "ls missing", resumes=False)
    chats = gemini.home / ".gemini" / "tmp"
    follower.start(chats, name="gemini", settle="1")
    (gemini.work / "slow").touch()
    process = gemini.start("./npm publish")
    gemini.kill(process, lambda: len(gemini.list_done()) == 2)
    (gemini.work / "slow").unlink()
    gemini.run("echo two")

    def list_recorded() -> list[str]:
        entries = follower.list_entries()
        return [body["outcome"] for kind, _, body in entries if kind == "transcript.recorded"]

    wait_until(lambda: len(list_recorded()) >= 4 or follower.processes[-1].poll() is not None)
    assert list_recorded() == ["ok", "ok", "error", "ok"], follower.log
    effects = list_effects(follower)
    assert [state for _, state in effects] == [*["acknowledged"] * 3, "dispatched", "acknowledged"]
    kinds = follower.list_kinds()
    assert "transcript.contradicted" not in kinds
    # Without its hooks only the transcript tells of a call, and it is one effect, too.
    (gemini.home / ".gemini" / "settings.json").write_text(
        '{"security": {"auth": {"selectedType": "gemini-api-key"}}}'
    )
    gemini.run("echo three")
    wait_until(lambda: len(list_effects(follower)) == 6)
    assert list_effects(follower)[-1] == ("run_shell_command", "acknowledged")
