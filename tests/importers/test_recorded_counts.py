"""Every recorded file gives exactly the independently taken counts."""

import json
import re
from collections import Counter
from typing import Any

import pytest

from importers import READERS
from importers.trajectory import Call, Trajectory
from tests.importers.samples import RECORDED, format_of, needs_recordings, recorded_counts

COUNTS = recorded_counts()

# Counts that differ from the neutral shape, with the reason.
OTHERWISE = {
    # Control characters were counted in places that are not results.
    "ctrl": set(READERS),
    # COUNTS has no errors for this file. An exit code other than 0 is an error, and 7 commands have
    # one.
    "errors": {"openhands"},
    # Counts blocks of replies; a reply is one call in the neutral shape.
    "parallel": {"mini-swe-agent"},
    # Counts actions without their last line end, which was sent and is kept.
    "max_args": {"swe-agent"},
    # Counts calls of aborted replies, which did not run.
    "missing": {"pi"},
}
# Their sources mark all of these as errors; this count separates calls that ran.
MARKED = {
    "claude-code": 0,
    "intercode": 0,
    "pi": 5,
}  # … plus the calls of aborted replies
# Calls that did not run, and calls that were or may have been stopped while running.
NOT_OK = {
    "claude-code": (0, 10),
    "pi": (5, 2),
    "mini-swe-agent": (25, 1),
    "swe-agent": (0, 2),
    "openhands": (0, 0),
    "tau-bench": (0, 0),
    "intercode": (0, 16),
}


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(block.get("text", "") for block in content if isinstance(block, dict))
    return content if isinstance(content, str) else json.dumps(content)


def _count_calls(trajectory: Trajectory, counted: Counter[str]) -> None:
    turns = Counter(call.turn for call in trajectory.calls)
    intents: set[str] = set()
    call_ids: set[str] = set()
    latest = 0
    for call in trajectory.calls:
        intent = json.dumps([call.tool, call.arguments], sort_keys=True)
        arguments = json.dumps(call.arguments, separators=(",", ":"))
        counted["calls"] += 1
        counted["parallel"] += turns[call.turn] > 1
        counted["sidechain"] += trajectory.parent_key is not None
        counted["no_call_id"] += call.call_id is None
        counted["dup_call_id"] += call.call_id in call_ids
        counted["no_time"] += call.occurred_us is None
        counted["ooo"] += (call.occurred_us or latest) < latest
        counted["repeated_intent"] += intent in intents
        counted["args_not_object"] += not isinstance(call.arguments, dict)
        counted["max_args"] = max(counted["max_args"], len(arguments))
        intents.add(intent)
        if call.call_id is not None:
            call_ids.add(call.call_id)
        latest = call.occurred_us or latest
        _count_result(call, counted, trajectory.format)


def _count_result(call: Call, counted: Counter[str], format_name: str) -> None:
    if call.result is None:
        counted["missing"] += 1
        return
    text = _text(call.result.content)
    failed = ("error", "unknown", "refused") if format_name in MARKED else ("error",)
    counted["errors"] += call.result.outcome in failed
    counted["max_result"] = max(counted["max_result"], len(text))
    counted["empty_result"] += text == ""
    counted["nul"] += "\x00" in text
    counted["ansi"] += "\x1b" in text
    counted["fffd"] += "\ufffd" in text
    counted["lone_surrogate"] += re.search("[\ud800-\udfff]", text) is not None


@needs_recordings
@pytest.mark.parametrize("name", COUNTS)
def test_a_recorded_file_gives_its_counts(name: str) -> None:
    format_name = format_of(name)
    expected = dict(COUNTS[name])
    tools = expected.pop("tools")
    counted: Counter[str] = Counter()

    trajectories = READERS[format_name](RECORDED / name)
    counted["sessions"] = len(trajectories)
    for trajectory in trajectories:
        _count_calls(trajectory, counted)

    counted["errors"] -= MARKED.get(format_name, 0)
    compared = {count for count in expected if format_name not in OTHERWISE.get(count, ())}
    assert {count: counted[count] for count in compared} == {
        count: expected[count] for count in compared
    }
    called = Counter(call.tool for trajectory in trajectories for call in trajectory.calls)
    # COUNTS names the most used tools only.
    assert {tool: called[tool] for tool in tools} == tools


@needs_recordings
@pytest.mark.parametrize("format_name", sorted(NOT_OK))
def test_recorded_calls_that_were_refused_or_stopped_are_counted_as_such(
    format_name: str,
) -> None:
    counts: Counter[str] = Counter()
    for name in COUNTS:
        if format_of(name) == format_name:
            calls = [
                call
                for trajectory in READERS[format_name](RECORDED / name)
                for call in trajectory.calls
            ]
            counts.update(call.result.outcome for call in calls if call.result is not None)
    assert (counts["refused"], counts["unknown"]) == NOT_OK[format_name]


@needs_recordings
def test_an_exit_code_other_than_0_is_an_error_in_openhands_too() -> None:
    calls = [
        c
        for t in READERS["openhands"](RECORDED / "openhands" / "openhands.jsonl.gz")
        for c in t.calls
    ]
    assert sum(call.result is not None and call.result.outcome == "error" for call in calls) == 7


@needs_recordings
def test_recorded_sub_agents_are_children_of_the_session_they_name() -> None:
    folder = RECORDED / "claude-code-spotter"
    for path in folder.glob("*__sub__agent-*.jsonl.gz"):
        for trajectory in READERS["claude-code"](path):
            session_id, _, agent = path.name.removesuffix(".jsonl.gz").partition("__sub__agent-")
            assert trajectory.parent_key == session_id
            assert trajectory.key == f"{session_id}/{agent}"


@needs_recordings
def test_no_two_recorded_documents_share_a_session() -> None:
    keys = Counter(
        trajectory.key
        for name in COUNTS
        for trajectory in READERS[format_of(name)](RECORDED / name)
    )
    assert sum(keys.values()) == sum(numbers["sessions"] for numbers in COUNTS.values())
    assert [key for key, times in keys.items() if times > 1] == []
