"""Facts of a trajectory: the same in every run, within limits, complete, nothing added."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.plan_columns import compute_intent_digest
from importers import READERS, to_events
from importers.to_events import build_effect_key, build_shipment, encode_json, split_batches
from importers.trajectory import Trajectory, build_session_key, to_title
from tests.importers.samples import (
    FILES,
    RECORDED,
    format_of,
    json_lines,
    needs_recordings,
    recorded_counts,
    write_lines,
)

LIMITS = {"items": 1000, "batch": 4 * 1024 * 1024, "item": 256 * 1024}
Fact = dict[str, Any]


def _one_call(
    result: Any = "done", arguments: Any = None, call_id: str | None = "c1"
) -> Trajectory:
    trajectory = Trajectory("pi", "a-session")
    call = trajectory.add_call(
        "bash", arguments if arguments is not None else {"command": "ls"}, turn=1, call_id=call_id
    )
    trajectory.answer(call, result, "ok")
    return trajectory


def _shipped(format_name: str, path: Path) -> list[Fact]:
    return [
        fact
        for trajectory in READERS[format_name](path)
        for fact in build_shipment(trajectory).facts
    ]


def test_all_but_refused_calls_are_dispatched_and_answered_ones_acknowledged() -> None:
    sent = _shipped("pi", FILES / "pi.jsonl")
    kinds = Counter(fact["kind"] for fact in sent)
    facts = {
        "effect.planned": 7,
        "effect.dispatched": 5,
        "effect.acknowledged": 4,
        "effect.failed": 2,
    }
    assert kinds == {"session.started": 1, **facts}
    refused = [fact for fact in sent if fact["kind"] == "effect.failed"]
    assert {fact["reason"] for fact in refused} == {"rejected"}
    dispatched = {fact["effect_key"] for fact in sent if fact["kind"] == "effect.dispatched"}
    assert dispatched.isdisjoint(fact["effect_key"] for fact in refused)
    acknowledged = [fact["effect_key"] for fact in sent if fact["kind"] == "effect.acknowledged"]
    assert acknowledged == ["toolu_a:1", "toolu_b:2", "toolu_c:3", "toolu_f:6"]


def test_a_fact_contains_every_field_of_its_source() -> None:
    started, planned, dispatched, *_ = _shipped("claude-code", FILES / "claude-code-subagent.jsonl")
    session = "0b6f0c1e-5a52-4d4e-9f7c-0c1d5a1f0001"
    child = f"{session}/a1b2c3d"
    assert started | {"id": "", "occurred_us": 0} == {
        "id": "",
        "kind": "session.started",
        "occurred_us": 0,
        "producer_seq": 0,
        "session": child,
        "mode": "reported",
        "title": "count the beads",
        "branch": "count-better",
        "parent": session,
        "labels": {"format": "claude-code", "claude_version": "2.1.40", "model": "model-b"},
    }
    assert planned | {"id": "", "occurred_us": 0} == {
        "id": "",
        "kind": "effect.planned",
        "occurred_us": 0,
        "producer_seq": 1,
        "session": child,
        "effect_key": "toolu_s1:1",
        "tool": "Glob",
        "arguments": {"pattern": "*.bead"},
        "turn": "1",
        "call_id": "toolu_s1",
    }
    assert dispatched["occurred_us"] == planned["occurred_us"] > 0
    assert dispatched["attempt"] == 1


def test_a_models_text_about_a_call_is_no_part_of_its_intent(tmp_path: Path) -> None:
    head = {"sessionId": "s", "type": "assistant", "timestamp": "2026-03-01T09:00:00.000Z"}
    lines: list[Fact] = []
    for n, words in enumerate(("Tell them", "Tell them again")):
        call = {
            "type": "tool_use",
            "id": f"t{n}",
            "name": "Bash",
            "input": {"command": "gh pr", "description": words},
        }
        message = {"id": f"m{n}", "role": "assistant", "content": [call]}
        lines.append({**head, "uuid": f"u{n}", "message": message})
    acts = [(action, words) for action in ("run", "think") for words in ("a", "b")]
    commands = [
        {
            "id": n,
            "timestamp": "2026-03-01T09:00:00",
            "source": "agent",
            "action": action,
            "args": {"thought": words} | ({"command": "ls"} if action == "run" else {}),
        }
        for n, (action, words) in enumerate(acts)
    ]
    for format_name, values, kinds in (
        ("claude-code", lines, [True]),
        ("openhands", [{"history": commands}], [True, False]),
    ):
        shipped = _shipped(format_name, write_lines(tmp_path / f"{format_name}.jsonl", values))
        planned = [fact for fact in shipped if fact["kind"] == "effect.planned"]
        digests = [
            compute_intent_digest(
                planned_fact["tool"], planned_fact["arguments"], planned_fact.get("free_text", [])
            )
            for planned_fact in planned
        ]
        assert [
            planned_fact == other
            for planned_fact, other in zip(digests[::2], digests[1::2], strict=True)
        ] == kinds
        assert planned[0]["arguments"].keys() & {
            "description",
            "thought",
        }  # the fields are stored all the same


def test_an_end_is_reported_only_where_the_source_has_one() -> None:
    ended = {
        name: [
            f["status"]
            for f in _shipped(name, FILES / f"{name}.jsonl")
            if f["kind"] == "session.ended"
        ]
        for name in READERS
    }
    assert ended == {
        "claude-code": [],
        "codex": [],
        "gemini": [],
        "pi": [],
        "mini-swe-agent": ["completed", "failed"],
        "swe-agent": ["completed"],
        "openhands": ["completed", "completed"],
        "tau-bench": ["completed", "completed"],
        "intercode": ["completed", "completed"],
    }


def test_no_time_is_invented() -> None:
    assert all(
        "occurred_us" not in fact for fact in _shipped("intercode", FILES / "intercode.jsonl")
    )
    assert all(
        type(fact["producer_seq"]) is int
        for fact in _shipped("intercode", FILES / "intercode.jsonl")
    )


@pytest.mark.parametrize("path", sorted(FILES.iterdir()), ids=lambda path: path.stem)
def test_ids_and_sequences_are_each_used_once_and_the_same_in_every_run(path: Path) -> None:
    format_name = next(reader for reader in READERS if path.name.startswith(reader))
    sent = _shipped(format_name, path)
    assert sent == _shipped(format_name, path)
    assert len({fact["id"] for fact in sent}) == len(sent)
    assert all(len(fact["id"]) == 64 for fact in sent)
    if format_name == "gemini":  # the place in a file is no number of its session
        assert not any("producer_seq" in fact for fact in sent)
        return
    assert len({(fact["session"], fact["producer_seq"]) for fact in sent}) == len(sent)


@pytest.mark.parametrize(
    "name", ["claude-code", "claude-code-subagent", "gemini", "pi", "openhands-sdk"]
)
def test_a_longer_later_version_repeats_every_fact_and_adds_to_them(
    tmp_path: Path, name: str
) -> None:
    values = json_lines(FILES / f"{name}.jsonl")
    format_name = next(reader for reader in READERS if name.startswith(reader))
    whole = {fact["id"]: fact for fact in _shipped(format_name, FILES / f"{name}.jsonl")}
    refused = {fact["effect_key"] for fact in whole.values() if fact["kind"] == "effect.failed"}
    for length in range(2, len(values)):
        part = _shipped(format_name, write_lines(tmp_path / "part.jsonl", values[:length]))
        left = [fact for fact in part if whole.get(fact["id"]) != fact]
        # A call without an answer is not yet known as refused.
        assert all(fact["kind"] == "effect.dispatched" for fact in left)
        assert {fact["effect_key"] for fact in left} <= refused


def test_a_reused_call_id_names_two_effects() -> None:
    planned = [
        f for f in _shipped("tau-bench", FILES / "tau-bench.jsonl") if f["kind"] == "effect.planned"
    ]
    assert [fact["effect_key"] for fact in planned[:3]] == [
        "call_same:1",
        "call_same:2",
        "call_same:3",
    ]


@pytest.mark.parametrize("call_id", ["a b", "nul\x00", "half \ud800", "é", "x" * 201])
def test_a_call_id_that_cannot_be_an_identifier_still_names_its_effect(call_id: str) -> None:
    trajectory = _one_call(call_id=call_id)
    planned = build_shipment(trajectory).facts[1]
    assert "call_id" not in planned
    key = build_effect_key(trajectory.calls[0])
    assert key.isascii()
    assert len(key) <= 300
    assert key != build_effect_key(_one_call(call_id=call_id + "'").calls[0])


@pytest.mark.parametrize(
    ("result", "media_type"),
    [
        ("x" * 843_461, "text/plain; charset=utf-8"),
        ("\x00" * 200_000, "text/plain; charset=utf-8"),  # six bytes each as JSON
        ("ß" * 200_000, "text/plain; charset=utf-8"),
        ([{"type": "text", "text": "x" * 300_000}], "application/json"),
        ("half \ud800 a pair", "application/json"),
        ({"deep": json.loads("[" * 60 + "]" * 60)}, "application/json"),
        (2**80, "application/json"),
        (float("nan"), "application/json"),
    ],
    ids=["large", "nul", "wide", "list", "surrogate", "deep", "integer", "nan"],
)
def test_a_result_too_large_for_an_item_becomes_an_exact_artifact(
    result: Any, media_type: str
) -> None:
    shipment = build_shipment(_one_call(result))
    (payload,) = shipment.payloads
    assert shipment.facts[-1]["result"] == {
        "artifact": {
            "sha256": payload.sha256,
            "size": len(payload.content),
            "media_type": media_type,
        }
    }
    assert payload.sha256 == hashlib.sha256(payload.content).hexdigest()
    assert (payload.session, payload.effect_key, payload.type) == ("a-session", "c1:1", "result")
    if media_type == "application/json":
        assert json.dumps(json.loads(payload.content)) == json.dumps(result)
    else:
        assert payload.content.decode() == result


def test_arguments_too_large_become_an_artifact_too() -> None:
    shipment = build_shipment(_one_call(arguments={"content": "x" * 300_000}))
    assert [payload.type for payload in shipment.payloads] == ["arguments"]
    assert shipment.facts[1]["arguments"].keys() == {"artifact"}


@pytest.mark.parametrize(
    "result",
    ["a\x00b", "\x1b[31mred\x1b[0m\r\n", "", None, [], "\u2028\ufffd\U0001f9ee", "x" * 200_000],
)
def test_every_other_value_is_sent_unchanged(result: Any) -> None:
    shipment = build_shipment(_one_call(result))
    assert shipment.payloads == []
    assert json.loads(encode_json(shipment.facts[-1]))["result"] == result


def test_a_payload_larger_than_any_artifact_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to_events, "MAX_ARTIFACT_BYTES", 300_000)
    with pytest.raises(
        to_events.TooLargeError, match=r"session a-session, call c1:1: 300,001 bytes"
    ):
        build_shipment(_one_call("x" * 300_001))


@given(st.lists(st.integers(1, 230_000), max_size=40))
def test_batches_keep_order_and_limits(sizes: list[int]) -> None:
    sent = [{"id": str(place), "result": "ß" * (size // 2)} for place, size in enumerate(sizes)]
    made = list(split_batches(sent))
    assert [json.loads(item) for batch in made for item in batch] == sent
    for batch in made:
        assert 0 < len(batch) <= to_events.MAX_BATCH_ITEMS
        assert len(b"[" + b",".join(batch) + b"]") <= to_events.MAX_BATCH_BYTES


@given(st.text(alphabet=st.characters(codec=None), max_size=400))
def test_a_session_key_is_printable_short_and_its_own(name: str) -> None:
    key = build_session_key(name)
    assert 1 <= len(key) <= 200
    assert not any(ord(character) < 32 for character in key)
    assert not any("\ud800" <= character <= "\udfff" for character in key)
    assert build_session_key(name + "'") != key
    assert len(to_title(name)) <= 200


@needs_recordings
@pytest.mark.parametrize("name", recorded_counts())
def test_recorded_files_fit_the_limits(name: str) -> None:
    shipments = [
        build_shipment(trajectory) for trajectory in READERS[format_of(name)](RECORDED / name)
    ]
    sent = [fact for shipment in shipments for fact in shipment.facts]
    for batch in split_batches(sent):
        assert len(batch) <= LIMITS["items"]
        assert sum(map(len, batch)) + len(batch) + 1 <= LIMITS["batch"]
        assert max(map(len, batch)) <= LIMITS["item"]
    assert len({fact["id"] for fact in sent}) == len(sent)
    expected = recorded_counts()[name]
    kinds = Counter(fact["kind"] for fact in sent)
    assert kinds["session.started"] == expected["sessions"]
    assert (
        kinds["effect.planned"]
        == kinds["effect.dispatched"] + kinds["effect.failed"]
        == expected["calls"]
    )
    # Calls of aborted replies of pi are refused here; the counts list them as missing.
    answered = kinds["effect.acknowledged"] + kinds["effect.failed"] * (format_of(name) != "pi")
    assert answered == expected["calls"] - expected["missing"]
    if expected["max_result"] > LIMITS["item"]:
        assert max(len(p.content) for s in shipments for p in s.payloads) >= expected["max_result"]
