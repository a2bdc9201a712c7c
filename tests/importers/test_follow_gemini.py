"""Conversations of Gemini CLI, followed by a real process: logs, documents, resumed sessions.

Its hooks have no call ids, so a call of the transcript meets an effect by its input and time.
"""

import json
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.client.test_pushes import wait_until
from tests.importers.followed_files import PUSH, Following
from tests.importers.samples import FILES, json_lines

BEGIN_MS = 1_795_440_000_000


def format_moment(ms: int) -> str:
    """Return a time as Gemini CLI writes it."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


@dataclass
class Conversation:
    """A session of Gemini CLI that is written as the program writes it, on a clock of its own."""

    following: Following
    path: Path
    session: str = field(default_factory=lambda: str(uuid.uuid4()))
    now_ms: int = BEGIN_MS
    calls: int = 0

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def build_head(self) -> dict[str, Any]:
        moment = format_moment(self.now_ms)
        return {"sessionId": self.session, "projectHash": "p", "startTime": moment, "kind": "main"}

    def build_message(self, *calls: dict[str, Any]) -> dict[str, Any]:
        """Return the message of the model with these calls, which have ended now."""
        identity = calls[0]["id"] if calls else str(uuid.uuid4())
        moment = format_moment(self.now_ms)
        values = {"id": f"m-{identity}", "timestamp": moment, "type": "gemini", "content": ""}
        ended = [{**call, "timestamp": moment} for call in calls]
        return {**values, "toolCalls": ended}

    def build_call(
        self, command: str, output: str = "", *, error: str = "", name: str = "run_shell_command"
    ) -> dict[str, Any]:
        """Return a call that the model makes now."""
        self.now_ms += 1000
        identity = f"{name}__{name}_{self.now_ms}_{self.calls}"
        self.calls += 1
        answer = {"error": error} if error else {"output": f"Output: {output}"}
        response = {"functionResponse": {"id": identity, "name": name, "response": answer}}
        return {
            "id": identity,
            "name": name,
            "args": {"command": command},
            "result": [response],
            "status": "error" if error else "success",
        }

    def append(self, *records: Any) -> None:
        with self.path.open("a") as file:
            file.write("".join(json.dumps(record) + "\n" for record in records))

    def send_hook(self, name: str, command: str, output: str | None = None) -> Any:
        """Send a hook as `gatebook hook` does, a moment later."""
        self.now_ms += 100
        body: dict[str, Any] = {
            "hook_event_name": name,
            "session_id": self.session,
            "timestamp": format_moment(self.now_ms),
            "tool_name": "run_shell_command",
            "tool_input": {"command": command},
            "gatebook": {"delivery": uuid.uuid4().hex, "occurred_us": self.now_ms * 1000},
        }
        if output is not None:
            body["tool_response"] = {"llmContent": output, "returnDisplay": ""}
        return self.following.post_hook("gemini", body)

    def list_bodies(self, kind: str) -> list[dict[str, Any]]:
        return [body for item, _, body in self.following.list_entries() if item == kind]


@pytest.fixture
def conversation(following: Following, tmp_path: Path) -> Conversation:
    return Conversation(following, tmp_path / "chats" / "session-2026-11-23T10-00-a.jsonl")


def list_states(following: Following) -> list[tuple[str, str]]:
    return [(state, outcome) for _, state, outcome in following.list_effects()]


def test_the_recorded_session_grows_is_killed_and_resumed(
    following: Following, tmp_path: Path
) -> None:
    lines = (FILES / "gemini.jsonl").read_bytes().splitlines(keepends=True)
    file = tmp_path / "chats" / "session-a.jsonl"
    file.parent.mkdir()
    file.write_bytes(b"".join(lines[:20]) + lines[20][:50])  # torn in the middle of a record
    following.start(tmp_path / "chats", name="gemini")
    wait_until(lambda: len(following.list_effects()) == 4)
    with file.open("ab") as stream:
        stream.write(lines[20][50:] + b"".join(lines[21:50]))
    wait_until(lambda: len(following.list_effects()) >= 9)
    following.kill()
    with file.open("ab") as stream:
        stream.write(b"".join(lines[50:]))
    following.start(tmp_path / "chats", name="gemini")
    wait_until(lambda: len(following.list_effects()) == 11)
    ran = [("acknowledged", outcome) for outcome in ("ok", "ok", "ok", "error", "error")]
    rest = [("acknowledged", "ok")] * 5
    assert list_states(following) == [*ran, ("failed", "error"), *rest]
    kinds = following.list_kinds()
    # Without its state everything is read again, and nothing is recorded again.
    following.kill()
    (following.folder / "state.json").unlink()
    recorded = following.log.count("are recorded")
    following.start(tmp_path / "chats", name="gemini")
    following.wait_for("are recorded", recorded + 1)
    assert following.list_kinds() == kinds
    assert not any(kind.startswith("integrity") for kind in kinds)


def test_a_document_is_read_whenever_it_is_complete_and_goes_on_as_a_log(
    following: Following, tmp_path: Path
) -> None:
    """An older version writes one document again; the next one resumes it into a file of lines."""
    (document,) = json_lines(FILES / "gemini-document.jsonl")
    calls = [message for message in document["messages"] if message["type"] == "gemini"]
    calls[0]["toolCalls"], later = calls[0]["toolCalls"][:1], calls[0]["toolCalls"]
    file = tmp_path / "chats" / "session-a.json"
    file.parent.mkdir()
    whole = json.dumps(document)
    file.write_text(whole[:200])
    (tmp_path / "logs.json").write_text("[]")  # of the program, and no conversation
    following.start(tmp_path, name="gemini")
    following.wait_for("is not complete JSON")
    file.write_text(whole)
    following.wait_for_effects(1)
    calls[0]["toolCalls"] = later
    file.write_text(json.dumps(document))
    following.wait_for_effects(3)
    kinds = following.list_kinds()
    # Calls move in the document when messages are taken back, also while nobody follows.
    following.kill()
    calls[0]["toolCalls"] = later[1:]
    file.write_text(json.dumps(document))
    history = [{**message, "timestamp": "2026-11-24T10:00:00.000Z"} for message in calls]
    added = json.dumps(calls[0]).replace("_1795458", "_1795459")
    head = {name: document[name] for name in ("sessionId", "projectHash", "startTime")}
    lines = [head, {"$set": {"messages": history}}, json.loads(added) | {"id": "m-new"}]
    file.with_suffix(".jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    following.start(tmp_path, name="gemini")
    following.wait_for_effects(5)
    time.sleep(2)
    added_kinds = following.list_kinds()[len(kinds) :]
    assert [kind for kind in added_kinds if kind.startswith("effect")] == [
        *("effect.planned", "effect.dispatched", "effect.acknowledged") * 2
    ]
    assert not any(kind.startswith("integrity") for kind in added_kinds)


def test_calls_meet_the_effects_of_hooks_by_input_and_time(
    following: Following, conversation: Conversation
) -> None:
    """Equal calls at once, a call that no record has, and a result that no hook told of."""
    build, hook = conversation.build_call, conversation.send_hook
    first, second = build("make test", "one"), build("make test", "two")
    hook("BeforeTool", "make test")
    hook("BeforeTool", "make test")
    hook("AfterTool", "make test", "Output: one")
    batch = conversation.build_message(first, second)
    secret = build("curl -H 'Authorization: Bearer ghp_0123456789abcdefghijABCDEFGHIJ012345' x.y")
    hook("BeforeTool", secret["args"]["command"])
    hook("AfterTool", secret["args"]["command"], "Output: ")
    secret_batch = conversation.build_message(secret)
    conversation.now_ms += 5_000
    hook("BeforeTool", "make lint")  # killed: it is in no record
    conversation.now_ms += 60_000
    refused = build("make lint", error="Tool execution blocked: e_4 may have run")
    conversation.append(conversation.build_head(), batch, secret_batch)
    conversation.append(conversation.build_message(refused))
    before = following.list_effects()
    assert [state for _, state, _ in before] == [
        *("acknowledged", "dispatched", "acknowledged", "dispatched")
    ]
    following.start(conversation.path.parent, name="gemini")
    wait_until(lambda: len(conversation.list_bodies("transcript.recorded")) == 4)
    assert [(key, state) for key, state, _ in following.list_effects()] == [
        (before[0][0], "acknowledged"),
        (before[1][0], "acknowledged"),  # closed by the transcript
        (before[2][0], "acknowledged"),
        (before[3][0], "dispatched"),  # the refusal was of a later call
    ]
    recorded = conversation.list_bodies("transcript.recorded")
    assert [(body["effect_key"], body["call_id"]) for body in recorded] == [
        (before[0][0], first["id"]),
        (before[1][0], second["id"]),
        (before[2][0], secret["id"]),
        (before[3][0], refused["id"]),
    ]
    assert "ghp_" not in json.dumps(recorded)
    assert "transcript.contradicted" not in following.list_kinds()


def test_a_held_call_runs_after_its_approval_as_the_same_effect(
    following: Following, conversation: Conversation
) -> None:
    waiting = conversation.build_call(PUSH, error="Tool execution blocked: e_1 waits")
    assert conversation.send_hook("BeforeTool", PUSH)["decision"] == "deny"
    conversation.append(conversation.build_head(), conversation.build_message(waiting))
    following.start(conversation.path.parent, name="gemini")
    wait_until(lambda: len(conversation.list_bodies("transcript.recorded")) == 1)
    assert list_states(following) == [("planned", "")]
    following.project.rule("approve")
    approved = conversation.build_call(PUSH, "pushed")
    assert conversation.send_hook("BeforeTool", PUSH)["decision"] == "allow"
    conversation.append(conversation.build_message(approved))
    following.wait_for_effects(1)
    assert following.project.count_violations() == 0
    # The next one waits again. It runs all the same, and no hook after it is heard.
    bypassing = conversation.build_call(PUSH, "pushed again")
    assert conversation.send_hook("BeforeTool", PUSH)["decision"] == "deny"
    conversation.append(conversation.build_message(bypassing))
    following.wait_for("the transcript contradicts it")
    following.wait_for_effects(2)
    assert following.project.count_violations() == 1


def test_the_hooks_of_a_sub_agent_are_in_the_session_that_started_it(
    following: Following, conversation: Conversation
) -> None:
    call = conversation.build_call("make test")
    conversation.send_hook("BeforeTool", "make test")
    conversation.send_hook("AfterTool", "make test", "Output: ok")
    child = Conversation(following, conversation.path.parent / conversation.session / "c.jsonl")
    child.now_ms = conversation.now_ms
    own = child.build_call("make lint", "of no hook")
    head = child.build_head() | {"kind": "subagent"}
    child.append(head, child.build_message(call), child.build_message(own))
    following.start(conversation.path.parent, name="gemini")
    following.wait_for_effects(2)
    (recorded,) = conversation.list_bodies("transcript.recorded")
    assert recorded["session"] == conversation.session
    sessions = following.project.agent.get("/sessions").json()["items"]
    assert {session["key"] for session in sessions} == {conversation.session, child.session}
