"""Special cases of each format, on small samples."""

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.schemas import core
from importers import READERS, pi
from importers.trajectory import MAX_TIME_US, Trajectory, parse_iso_us, seconds_to_us
from tests.importers.samples import FILES, json_lines, write_lines

ABORTED = ("Request was aborted.", "refused")
SESSION = "0b6f0c1e-5a52-4d4e-9f7c-0c1d5a1f0001"


def _read(name: str) -> list[Trajectory]:
    format_name = next(reader for reader in READERS if name.startswith(reader))
    return READERS[format_name](FILES / f"{name}.jsonl")


def _calls(trajectory: Trajectory) -> list[tuple[Any, ...]]:
    """Return tool, arguments, and result with outcome, or None without a result."""
    return [
        (call.tool, call.arguments, call.result and (call.result.content, call.result.outcome))
        for call in trajectory.calls
    ]


def test_claude_code_calls_are_read_once_despite_repetitions() -> None:
    (trajectory,) = _read("claude-code")
    test = {"command": "make test", "timeout": 30000}
    assert _calls(trajectory) == [
        ("Bash", test, ("\x1b[31mFAILED\x1b[0m 1 bead\x00 missing", "error")),
        ("Read", {"file_path": "/home/ada/abacus/beads.py"}, ("     1→beads = 10\r\n", "ok")),
        ("Bash", test, ("ok", "ok")),  # the same call under a new id is another call
        (
            "Bash",
            {"command": "git push"},
            ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "ok"),
        ),
        ("Task", {"prompt": "count the beads"}, ("", "ok")),
        ("Write", {"file_path": "/home/ada/abacus/out.txt", "content": "half"}, None),
    ]
    assert [call.call_id for call in trajectory.calls][2:4] == ["toolu_3", "toolu_3"]


def test_claude_code_blocks_of_one_message_on_several_lines_are_one_turn() -> None:
    (trajectory,) = _read("claude-code")
    assert [call.turn for call in trajectory.calls] == [1, 1, 2, 3, 4, 5]


def test_claude_code_sessions_are_described_by_their_own_records() -> None:
    (trajectory,) = _read("claude-code")
    assert (trajectory.key, trajectory.parent_key) == (SESSION, None)
    assert (
        trajectory.title == "Make the abacus count better please"
    )  # not the meta record before it
    assert trajectory.branch == "count-better"
    assert trajectory.labels == {"claude_version": "2.1.40", "model": "model-a"}
    assert trajectory.started_us is not None
    assert trajectory.ended is None


def test_a_claude_code_sub_agent_is_a_child_of_the_session_it_names() -> None:
    (child,) = _read("claude-code-subagent")
    assert (child.key, child.parent_key) == (f"{SESSION}/a1b2c3d", SESSION)
    assert len(child.calls) == 2


def test_a_claude_code_compaction_makes_no_session() -> None:
    assert _read("claude-code-compaction") == []


def test_claude_code_sessions_in_one_file_are_different_sessions(tmp_path: Path) -> None:
    both = json_lines(FILES / "claude-code-subagent.jsonl") + json_lines(
        FILES / "claude-code.jsonl"
    )
    child, main = READERS["claude-code"](write_lines(tmp_path / "both.jsonl", both))
    assert (child.key, len(child.calls)) == (f"{SESSION}/a1b2c3d", 2)
    assert (main.key, len(main.calls)) == (SESSION, 6)


def test_claude_code_results_answer_their_calls_even_before_them(
    tmp_path: Path,
) -> None:
    records = json_lines(FILES / "claude-code-subagent.jsonl")
    (trajectory,) = _read("claude-code-subagent")
    (backwards,) = READERS["claude-code"](write_lines(tmp_path / "backwards.jsonl", records[::-1]))
    assert sorted(map(str, _calls(backwards))) == sorted(map(str, _calls(trajectory)))
    assert all(call.result is not None for call in backwards.calls)


REFUSED: dict[str, list[list[str | None]]] = {
    "mini-swe-agent-refused": [
        ["refused", "refused", "refused", "unknown", "unknown"],
        ["refused", "refused", "refused", "ok", None],
    ],
    "claude-code-refused": [
        [*["refused"] * 2, "unknown", *["refused"] * 3, "unknown", "unknown", "error", "ok"]
    ],
    "pi-refused": [["refused", "refused", "refused", "unknown", "unknown", "error", "refused"]],
    "swe-agent-refused": [["refused", "refused", "unknown", "unknown", "ok"]],
    "tau-bench-refused": [["refused", "error"]],
    "openhands-refused": [["refused", "refused", "error"]],
    "openhands-refused-v0": [["refused", "error"]],
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_that_did_not_run_is_refused_and_a_stopped_one_unknown(
    name: str,
) -> None:
    outcomes = [
        [call.result and call.result.outcome for call in trajectory.calls]
        for trajectory in _read(name)
    ]
    assert outcomes == REFUSED[name]


def test_intercode_commands_that_were_killed_are_unknown(tmp_path: Path) -> None:
    raw = {
        "turn_history": {
            "actions": ["nc bead"],
            "observations": ["Command timed out"],
            "valid_action": [False],
        }
    }
    (trajectory,) = READERS["intercode"](write_lines(tmp_path / "killed.jsonl", [raw]))
    assert [call.result and call.result.outcome for call in trajectory.calls] == ["unknown"]


def test_pi_turns_that_were_cut_short_were_not_run() -> None:
    (trajectory,) = _read("pi")
    assert trajectory.key == "5d0b7d1e-0000-4000-8000-00000000beef"
    assert trajectory.labels["branched_from"] == "5d0b7d1e-0000-4000-8000-00000000cafe"
    assert _calls(trajectory) == [
        ("read", {"path": "beads.py"}, ("beads = 10", "ok")),
        ("bash", {"command": "ls"}, ("beads.py\n", "ok")),
        ("bash", {"command": "false"}, ("exit 1", "error")),
        ("edit", {"path": "beads.py"}, ABORTED),
        ("bash", {"command": "rm -r"}, ABORTED),
        ("bash", {"command": "ls"}, ("beads.py\n", "ok")),
        ("bash", {"command": "sleep 100"}, None),
    ]


@pytest.mark.parametrize(
    ("value", "us"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2255-06-05T23:47:34.740991Z", 2**53 - 1),
        ("2255-06-05T23:47:34.740992Z", None),
        ("1969-12-31T23:59:59.999999Z", None),
        ("0001-01-01T00:00:00+14:00", None),
    ],
)
def test_a_time_is_accepted_within_the_limits_of_the_api(value: str, us: int | None) -> None:
    assert parse_iso_us(value) == us
    assert us is None or msgspec.convert(us, core.TimeUs) == us
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(MAX_TIME_US + 1, core.TimeUs)


@pytest.mark.parametrize(
    ("value", "us"), [(1_500, 1_500_000), (10**400, None), (-1, None), (float("nan"), None)]
)
def test_a_message_of_pi_has_milliseconds(value: float, us: int | None) -> None:
    assert pi._get_time({}, {"timestamp": value}) == us


@pytest.mark.parametrize(
    ("value", "us"),
    [(1, 1_000_000), (9_007_199_254, 9_007_199_254_000_000), (9_007_199_255, None)],
)
def test_epoch_seconds_are_accepted_within_the_limits_of_the_api(
    value: float, us: int | None
) -> None:
    assert seconds_to_us(value) == us


def test_mini_swe_agent_reports_outcomes_by_return_code() -> None:
    first, second = _read("mini-swe-agent")
    assert [
        (arguments["command"], result and result[1]) for _, arguments, result in _calls(first)
    ] == [
        ("ls -la", "ok"),
        ("ls", "refused"),  # two blocks: nothing was run
        ("python -m abacus", "error"),
        ("ls -la", "unknown"),  # timed out
        ("echo DONE && git diff --cached", "ok"),  # the submission
    ]
    assert first.ended == "completed"
    assert first.calls[0].call_id == "gen-1"
    # The same task in another run is another session; its last reply has no answer.
    assert second.key != first.key
    assert (_calls(second)[0][2], second.ended) == (None, "failed")


def test_mini_swe_agent_tool_calls_are_answered_by_id_and_by_the_end() -> None:
    (trajectory,) = _read("mini-swe-agent-tools")
    assert _calls(trajectory) == [
        (
            "bash",
            {"command": "ls"},
            ("<returncode>0</returncode>\n<output>\nbeads.py\n</output>", "ok"),
        ),
        (
            "bash",
            {"command": "false"},
            ("<returncode>1</returncode>\n<output>\n</output>", "error"),
        ),
        ("bash", "sleep 9", None),
        ("bash", {"command": "echo COMPLETE"}, ("fix\n", "ok")),  # the submission
    ]
    assert [call.turn for call in trajectory.calls] == [1, 1, 2, 3]
    assert (trajectory.calls[0].occurred_us, trajectory.ended) == (
        1_795_167_458_500_000,
        "completed",
    )


def test_an_aborted_mini_swe_agent_run_has_no_answer_from_its_end(tmp_path: Path) -> None:
    (document,) = json_lines(FILES / "mini-swe-agent-tools.jsonl")
    document["raw"]["info"]["exit_status"] = "TimeExceeded"
    (trajectory,) = READERS["mini-swe-agent"](write_lines(tmp_path / "broken.jsonl", [document]))
    assert (trajectory.calls[-1].result, trajectory.ended) == (None, "failed")


def test_swe_agent_steps_and_conversations_are_read_alike() -> None:
    steps, requests, typed = _read("swe-agent")
    assert _calls(steps) == [
        ("shell", {"command": "open beads.py\n"}, ("[File: beads.py]", "ok")),
        ("shell", {"command": "ls"}, ("\x1b[0mbeads.py", "ok")),
        ("shell", {"command": "ls"}, ("\x1b[0mbeads.py", "ok")),
        ("shell", {"command": "submit"}, ("", "ok")),
    ]
    assert (steps.title, steps.ended) == ("Repair the abacus", "completed")
    assert _calls(requests) == [
        ("bash", '{"command": "ls"}', ("beads.py", "ok")),
        ("submit", "{}", None),
    ]
    assert _calls(typed) == [("shell", {"command": "ls -F\n"}, ("beads.py", "ok"))]


def test_tau_bench_reused_call_ids_are_different_calls() -> None:
    first, second = _read("tau-bench")
    assert _calls(first) == [
        ("find_bead", {"colour": "red"}, ('{"bead": 1}', "ok")),
        ("find_bead", {"colour": "blue"}, ("Error: no bead", "error")),
        ("find_bead", {"colour": "red"}, ("", "ok")),
        ("think", "not json", None),
    ]
    assert {call.call_id for call in first.calls[:3]} == {"call_same"}
    assert (first.key, second.key) == (
        "ada/abacus-runs:results/model.json#task3.trial0",
        "ada/abacus-runs:results/model.json#task3.trial1",
    )


def test_intercode_actions_that_could_not_be_run_are_errors() -> None:
    first, second = _read("intercode")
    assert _calls(first) == [
        ("bash", {"command": "ls"}, ("a\x00b\n", "ok")),
        ("bash", {"command": "ls"}, ("a\x00b\n", "ok")),
        ("bash", {"command": "cat beads"}, ("cat: beads: No such file", "error")),
    ]
    assert _calls(second)[1] == ("bash", {"command": "head -c 9 beads"}, None)
    assert [call.occurred_us for call in first.calls] == [None, None, None]


def test_openhands_v0_observations_answer_the_action_they_name() -> None:
    first, oldest = _read("openhands")
    assert [(tool, result) for tool, _, result in _calls(first)] == [
        ("execute_bash", ("", "ok")),
        ("str_replace_editor", ("beads = 10", "ok")),
        ("execute_bash", ("make: not found", "error")),
        ("execute_bash", ("still running", "unknown")),
        ("execute_bash", None),
        ("finish", ("", "ok")),
    ]
    assert [call.turn for call in first.calls] == [1, 1, 2, 3, 4, 5]
    assert (first.title, first.ended) == ("Paint the beads", "completed")
    assert [(tool, result) for tool, _, result in _calls(oldest)] == [
        ("run", ("", "ok")),
        ("run_ipython", ("1", "ok")),
        ("finish", ("", "ok")),
    ]
    assert {(call.call_id, call.occurred_us) for call in oldest.calls} == {(None, None)}


@pytest.mark.parametrize(
    "wrapping", ["a line each", "one list", "one document", "lines with their origin"]
)
def test_openhands_sdk_logs_are_one_conversation_in_every_layout(
    tmp_path: Path, wrapping: str
) -> None:
    events = json_lines(FILES / "openhands-sdk.jsonl")
    shapes: dict[str, list[Any]] = {
        "a line each": events,
        "one list": [{"_source": {"repo": "ada/runs", "path": "sdk.jsonl"}, "raw": events}],
        "one document": [{"events": events}],
        "lines with their origin": [
            {"_source": {"repo": "ada/runs", "path": f"sdk.jsonl#{place}"}, "raw": event}
            for place, event in enumerate(events)
        ],
    }
    (trajectory,) = READERS["openhands"](write_lines(tmp_path / "sdk.jsonl", shapes[wrapping]))
    assert trajectory.title == "String the beads"
    assert [result for _, _, result in _calls(trajectory)] == [
        ("beads.py", "ok"),
        ("", "error"),
        ("no such tool", "refused"),
        ("not the beads", "refused"),
        None,
    ]
    assert [call.turn for call in trajectory.calls] == [1, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "name", ["mini-swe-agent", "swe-agent", "openhands", "tau-bench", "intercode"]
)
def test_documents_are_read_without_their_wrapper_too(tmp_path: Path, name: str) -> None:
    wrapped = json_lines(FILES / f"{name}.jsonl")
    bare = [document["raw"] for document in wrapped]
    in_lines = READERS[name](write_lines(tmp_path / "lines.jsonl", bare))
    as_list = tmp_path / "list.json"
    as_list.write_text(json.dumps(bare, indent=2))
    # Without an origin the key is the name with a digest, independent of the document's place.
    assert [t.key for t in READERS[name](as_list)] == [t.key for t in in_lines]
    assert [_calls(t) for t in in_lines] == [_calls(t) for t in _read(name)]
    assert len({t.key for t in in_lines}) == len(in_lines)


@pytest.mark.parametrize("name", sorted(path.stem for path in FILES.iterdir()))
def test_gzip_is_known_by_its_bytes_and_not_by_its_name(tmp_path: Path, name: str) -> None:
    format_name = next(reader for reader in READERS if name.startswith(reader))
    packed = tmp_path / "plain-name.jsonl"
    packed.write_bytes(gzip.compress((FILES / f"{name}.jsonl").read_bytes()))
    assert READERS[format_name](packed) == _read(name)


def test_a_repeated_document_is_one_session_and_a_namesake_is_another(
    tmp_path: Path,
) -> None:
    document = json_lines(FILES / "intercode.jsonl")[0]
    other = json.loads(json.dumps(document))
    other["raw"]["turn_history"]["actions"][0] = "pwd"
    first, second = READERS["intercode"](
        write_lines(tmp_path / "thrice.jsonl", [document, document, other])
    )
    assert second.key.startswith(f"{first.key}~")


def test_a_position_depends_on_the_session_only(tmp_path: Path) -> None:
    values = json_lines(FILES / "claude-code.jsonl")
    (whole,) = READERS["claude-code"](FILES / "claude-code.jsonl")
    for length in range(5, len(values)):
        (part,) = READERS["claude-code"](write_lines(tmp_path / "part.jsonl", values[:length]))
        assert [(c.position, c.sequence, c.call_id) for c in part.calls] == [
            (c.position, c.sequence, c.call_id) for c in whole.calls[: len(part.calls)]
        ]
