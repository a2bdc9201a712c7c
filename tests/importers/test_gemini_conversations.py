"""What Gemini CLI leaves on disk: recorded with the real program, which was killed and resumed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from importers.api_client import ImportClient, ImportRefusedError
from importers.files import BadInputError
from importers.gemini import GeminiConversation, read_gemini
from importers.hooked_calls import HookedCalls, is_same_input
from importers.to_events import build_shipment
from importers.trajectory import Trajectory
from tests.importers.samples import FILES, json_lines, write_lines


def _read(name: str) -> Trajectory:
    (trajectory,) = read_gemini(FILES / f"{name}.jsonl")
    return trajectory


def _list_outcomes(trajectory: Trajectory) -> list[tuple[str, str | None]]:
    return [(call.tool, call.result.outcome if call.result else None) for call in trajectory.calls]


def test_a_session_that_was_killed_and_resumed_is_read_once() -> None:
    trajectory = _read("gemini")
    assert _list_outcomes(trajectory) == [
        ("read_file", "ok"),
        ("glob", "ok"),
        ("run_shell_command", "ok"),
        ("run_shell_command", "error"),  # its status is `success`; its text has an exit code
        ("read_file", "error"),
        ("no_such_tool", "refused"),
        ("replace", "ok"),
        ("run_shell_command", "ok"),
        ("run_shell_command", "ok"),
        # Then it was resumed, killed in a call that is in no record, and resumed again.
        ("run_shell_command", "ok"),
        ("run_shell_command", "ok"),
    ]
    commands = [call.arguments.get("command") for call in trajectory.calls[-4:]]
    assert commands == ["echo same >> done.txt"] * 2 + [
        "echo before >> done.txt",
        "echo after >> done.txt",
    ]
    assert len({call.call_id for call in trajectory.calls}) == 11
    assert (trajectory.title, trajectory.parent_key) == ("Make the abacus count better", None)
    first, second = trajectory.calls[:2]
    assert first.turn == second.turn != trajectory.calls[2].turn
    assert first.result is not None
    assert first.result.content == "beads = 10\n"
    assert first.occurred_us is not None
    assert first.result.finished_us is not None
    assert trajectory.started_us is not None
    assert trajectory.started_us < first.occurred_us < first.result.finished_us


def test_calls_that_did_not_run_are_refused_and_stopped_ones_unknown() -> None:
    assert [outcome for _, outcome in _list_outcomes(_read("gemini-refused"))] == [
        *("refused", "ok", "refused", "unknown", "error", "refused", "ok", "error", "error"),
        *("unknown", "error", "refused"),
    ]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("[Operation Cancelled] Reason: User denied execution.", "refused"),
        ("[Operation Cancelled] Reason: User cancelled tool execution.", "unknown"),
        ("Tool result blocked: not for you", "unknown"),
        ("Tool execution denied by policy. Ask.", "refused"),
        ("File not found: params must be there", "error"),
    ],
)
def test_the_words_of_an_error_say_whether_the_call_ran(text: str, outcome: str) -> None:
    reader = GeminiConversation(Path("a.jsonl"))
    response = {"functionResponse": {"id": "c_1", "response": {"error": text}}}
    status = "cancelled" if text.startswith("[Op") else "error"
    call = {"id": "c_1", "name": "write_file", "args": {}, "result": [response], "status": status}
    message = {"id": "m", "type": "gemini", "content": "", "toolCalls": [call]}
    reader.add(1, {"sessionId": "s", "projectHash": "p", "messages": [message]})
    assert _list_outcomes(reader.list_trajectories()[0]) == [("write_file", outcome)]


def test_a_sub_agent_is_a_child_of_the_session_whose_folder_it_is_in(tmp_path: Path) -> None:
    records = json_lines(FILES / "gemini-subagent.jsonl")
    folder = tmp_path / "chats" / "9f7c0c1e-parent"
    folder.mkdir(parents=True)
    (child,) = read_gemini(write_lines(folder / "child.jsonl", records))
    assert (child.key, child.parent_key) == (records[0]["sessionId"], "9f7c0c1e-parent")
    assert _list_outcomes(child)[:2] == [("read_file", "ok"), ("run_shell_command", "ok")]
    assert _read("gemini-subagent").parent_key is None


def test_a_document_of_an_older_version_is_read_however_it_is_written(tmp_path: Path) -> None:
    document = json_lines(FILES / "gemini-document.jsonl")[0]
    indented = tmp_path / "session.json"
    indented.write_text(json.dumps(document, indent=2))
    assert read_gemini(indented) == [_read("gemini-document")]
    assert [outcome for _, outcome in _list_outcomes(_read("gemini-document"))] == [
        "ok",
        "ok",
        "error",
    ]


def _ship(path: Path) -> dict[str, dict[str, Any]]:
    return {fact["id"]: fact for item in read_gemini(path) for fact in build_shipment(item).facts}


def test_files_of_one_session_that_overlap_tell_the_same_facts(tmp_path: Path) -> None:
    """A later file begins with another call, and repeats some of the first one's."""
    records = json_lines(FILES / "gemini.jsonl")
    whole = _ship(FILES / "gemini.jsonl")
    calls = [place for place, record in enumerate(records) if "toolCalls" in record]
    later = write_lines(tmp_path / "later.jsonl", [records[0], *records[calls[4] :]])
    facts = _ship(later)
    effects = [fact for fact in facts.values() if fact["kind"].startswith("effect")]
    assert len(effects) > 20
    for fact in effects:  # the history that a resumption writes lacks the times of results
        times = {"occurred_us": whole[fact["id"]].get("occurred_us")}
        assert whole[fact["id"]] == fact | (times if fact["kind"] == "effect.acknowledged" else {})


def test_what_was_taken_back_had_happened(tmp_path: Path) -> None:
    records = json_lines(FILES / "gemini.jsonl")
    first = next(record["id"] for record in records if "toolCalls" in record)
    back = write_lines(tmp_path / "back.jsonl", [*records[:20], {"$rewindTo": first}])
    (trajectory,) = read_gemini(back)
    assert [call.tool for call in trajectory.calls] == [
        *("read_file", "glob", "run_shell_command", "run_shell_command")
    ]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ([{"sessionId": "s", "messageId": 0, "type": "user", "message": "hi"}], "not a record"),
        ({"history": [], "authType": "x"}, "does not begin with sessionId and projectHash"),
        ({"sessionId": "", "projectHash": "p"}, "an empty sessionId"),
    ],
)
def test_other_files_of_the_program_are_no_conversations(
    tmp_path: Path, value: Any, reason: str
) -> None:
    """Its logs.json lists prompts, and a checkpoint names no session."""
    with pytest.raises(BadInputError, match=reason):
        read_gemini(write_lines(tmp_path / "logs.json", [value]))


class StubClient:
    """A Gatebook with one planned call, which goes away while it is asked for the plan."""

    is_away = True

    def iterate_effects(self, _session: str) -> Iterator[dict[str, Any]]:
        yield {"id": "1", "effect_key": "call:0123456789abcdef:0"}

    def load_plan(self, _effect: str) -> dict[str, Any]:
        if self.is_away:
            raise ImportRefusedError("/plan", "The server cannot be reached.")
        meta = {"client_tool": "write_todos"}
        return {"meta": meta, "arguments": {"a": 1}, "planned_at_us": 5}

    def load_effect(self, effect: str) -> dict[str, Any]:
        return {"id": effect, "attempts": [{"attempt": 1, "dispatched_at_us": 6}]}


def test_plans_that_could_not_be_loaded_are_loaded_later() -> None:
    client = StubClient()
    hooked = HookedCalls(cast(ImportClient, client), "gemini", "s", "id")
    with pytest.raises(ImportRefusedError):
        hooked.load_new()
    client.is_away = False
    hooked.load_new()
    trajectory = Trajectory("gemini", "s", has_unique_ids=True)
    call = trajectory.add_call("write_todos", {"a": 1}, turn="m", call_id="c", occurred_us=5)
    meeting = hooked.find(trajectory, call)
    assert meeting is not None
    assert (meeting.effect["id"], meeting.attempt) == ("1", 1)
    late = trajectory.add_call("write_todos", {"a": 1}, turn="m", call_id="d", occurred_us=7)
    trajectory.answer(late, "", "ok", 8)
    assert hooked.find(trajectory, late) is None  # no hook told of it


@pytest.mark.parametrize(
    ("stored", "sent", "is_same"),
    [
        ("curl -H [redacted:bearer:0123456789ab] x", "curl -H s3cret x", True),
        ("curl -H [redacted:bearer:0123456789ab] x", "curl -H s3cret y", False),
        ("a.c", "abc", False),
        ({"a": [1, "[redacted:aws_key:0123456789ab]"]}, {"a": [1, "k"]}, True),
        ({"a": [1]}, {"a": [1], "b": 2}, False),
    ],
)
def test_an_input_is_recognized_behind_its_redaction(stored: Any, sent: Any, is_same: bool) -> None:
    assert is_same_input(stored, sent) is is_same
