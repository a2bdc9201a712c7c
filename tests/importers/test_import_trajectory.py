"""Imports with the real application in this process, then checks of the rows."""

import io
import itertools
import json
import signal
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from accounts.models import AgentToken
from importers import READERS, to_events
from importers.api_client import BatchCounts, ImportClient, ImportRefusedError
from importers.management.commands import import_trajectory
from importers.trajectory import Trajectory
from journal.models import Body, Entry
from ledger.models import Attempt, Effect
from sessions.artifacts import artifact_path as stored_path
from sessions.models import Artifact, Session
from tests.importers.samples import (
    FILES,
    RECORDED,
    format_of,
    json_lines,
    needs_recordings,
    recorded_counts,
    write_lines,
)
from tests.matrices import keep_core

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("project", "in_process")]

MAIN = "0b6f0c1e-5a52-4d4e-9f7c-0c1d5a1f0001"
CHILD = f"{MAIN}/a1b2c3d"
FOLDERS = sorted({name.split("/")[0] for name in recorded_counts()}) or ["mini-swe-agent"]
LARGEST_FOLDERS = ("claude-code-spotter", "intercode")
_FORMATS = sorted(READERS, key=len, reverse=True)


def _import(format_name: str, *files: Path) -> str:
    out = io.StringIO()
    call_command("import_trajectory", format_name, *map(str, files), stdout=out)
    return out.getvalue()


def _rows() -> dict[str, int]:
    """Count the rows that an import may add, without its token."""
    reported = Entry.objects.filter(lane="evidence")
    return {
        "entries": reported.count(),
        "bodies": Body.objects.filter(entry__in=reported).count(),
        "sessions": Session.objects.count(),
        "effects": Effect.objects.count(),
        "attempts": Attempt.objects.count(),
        "artifacts": Artifact.objects.count(),
        "artifact entries": Entry.objects.filter(kind="artifact.recorded").count(),
        "violations": Entry.objects.filter(kind__startswith="integrity.").count(),
    }


def _effects(session_key: str) -> list[tuple[str, str, str, str]]:
    rows = Effect.objects.filter(session__key=session_key)
    effects = [(row.effect_key, row.tool, row.state, row.outcome) for row in rows]
    return sorted(effects, key=lambda row: int(row[0].rpartition(":")[2]))


def _bodies(kind: str, session_key: str) -> dict[str, dict[str, Any]]:
    """Return the stored bodies of one kind of fact, by effect key."""
    session = Session.objects.get(key=session_key)
    texts = Body.objects.filter(entry__kind=kind, entry__session=session.id).values_list(
        "text", flat=True
    )
    return {body["effect_key"]: body for body in map(json.loads, texts)}


def test_calls_become_effects_and_missing_results_stay_dispatched() -> None:
    _import("claude-code", FILES / "claude-code.jsonl")
    assert _effects(MAIN) == [
        ("toolu_1:1", "Bash", "acknowledged", "error"),
        ("toolu_2:2", "Read", "acknowledged", "ok"),
        ("toolu_3:3", "Bash", "acknowledged", "ok"),
        ("toolu_3:4", "Bash", "acknowledged", "ok"),
        ("toolu_4:5", "Task", "acknowledged", "ok"),
        ("toolu_5:6", "Write", "dispatched", ""),
    ]
    repeated = Effect.objects.filter(session__key=MAIN, effect_key__in=["toolu_1:1", "toolu_3:3"])
    assert len({effect.intent_digest for effect in repeated}) == 1


def test_an_import_is_observed_and_its_sessions_reported() -> None:
    _import("claude-code", FILES / "claude-code.jsonl", FILES / "claude-code-subagent.jsonl")
    assert set(Effect.objects.values_list("permission", "permission_basis")) == {
        ("observed", "import")
    }
    session = Session.objects.get(key=MAIN)
    assert (session.mode, session.status, session.branch) == ("reported", "running", "count-better")
    assert session.title == "Make the abacus count better please"
    assert session.labels == {
        "format": "claude-code",
        "claude_version": "2.1.40",
        "model": "model-a",
    }
    assert session.effect_count == 6


def _assert_stored_exactly(trajectory: Trajectory) -> None:
    """Check that arguments and results of every call are in the journal or an artifact, as in the
    source."""
    kinds = ("effect.planned", "effect.acknowledged", "effect.failed")
    planned, acknowledged, failed = (_bodies(kind, trajectory.key) for kind in kinds)
    for call in trajectory.calls:
        key = to_events.build_effect_key(call)
        assert _content(planned[key]["arguments"]) == call.arguments
        assert (key in acknowledged) is (call.result is not None and not call.is_refused)
        assert (key in failed) is call.is_refused
        if call.result is not None:
            stored = failed[key]["detail"] if call.is_refused else acknowledged[key]["result"]
            assert _content(stored) == call.result.content


def _content(carried: Any) -> Any:
    """Return a payload, or the bytes that it points to."""
    if not isinstance(carried, dict) or carried.keys() != {"artifact"}:
        return carried
    artifact = Artifact.objects.filter(sha256=carried["artifact"]["sha256"])[0]
    content = stored_path(artifact.project_id, artifact.sha256).read_bytes().decode()
    return content if artifact.media_type.startswith("text/") else json.loads(content)


def test_a_call_that_was_refused_failed_as_rejected_and_was_never_dispatched() -> None:
    printed = _import("mini-swe-agent", FILES / "mini-swe-agent-refused.jsonl")
    assert "10 calls (1 without a result, 6 refused and not run)" in printed
    states = Counter(Effect.objects.values_list("state", "outcome"))
    assert states == {
        ("failed", "error"): 6,
        ("acknowledged", "unknown"): 2,
        ("acknowledged", "ok"): 1,
        ("dispatched", ""): 1,
    }
    attempts = Attempt.objects.filter(effect__state="failed")
    assert set(attempts.values_list("failure_reason", "dispatched_mark", "acknowledged_mark")) == {
        ("rejected", "", "")
    }
    assert not Effect.objects.filter(violates=True).exists()
    assert not Entry.objects.filter(
        kind="effect.dispatched", effect__in=attempts.values("effect")
    ).exists()


@pytest.mark.parametrize("child_first", [True, False])
def test_a_sub_agent_is_one_child_in_whatever_order_the_files_arrive(child_first: bool) -> None:
    files = [FILES / "claude-code.jsonl", FILES / "claude-code-subagent.jsonl"]
    for file in reversed(files) if child_first else files:
        _import("claude-code", file)
    assert set(Session.objects.values_list("key", "parent__key")) == {(MAIN, None), (CHILD, MAIN)}
    assert Session.objects.get(key=MAIN).title == "Make the abacus count better please"


def test_a_trajectory_with_a_recorded_end_has_ended() -> None:
    _import("mini-swe-agent", FILES / "mini-swe-agent.jsonl")
    assert dict(Session.objects.values_list("key", "status")) == {
        "ada/abacus-runs:runs/a/abacus-1.traj.json": "completed",
        "ada/abacus-runs:runs/b/abacus-1.traj.json": "failed",
    }


def test_reused_call_ids_are_different_calls() -> None:
    _import("tau-bench", FILES / "tau-bench.jsonl")
    key = "ada/abacus-runs:results/model.json#task3.trial0"
    assert [row[0] for row in _effects(key)] == [
        "call_same:1",
        "call_same:2",
        "call_same:3",
        "call_odd:4",
    ]
    planned = _bodies("effect.planned", key)
    assert planned["call_same:2"]["arguments"] == {"colour": "blue"}
    assert planned["call_odd:4"]["arguments"] == "not json"


def test_control_characters_are_read_back_unchanged() -> None:
    _import("claude-code", FILES / "claude-code.jsonl")
    assert _bodies("effect.acknowledged", MAIN)["toolu_1:1"]["result"] == (
        "\x1b[31mFAILED\x1b[0m 1 bead\x00 missing"
    )
    _import("intercode", FILES / "intercode.jsonl")
    stored = _bodies("effect.acknowledged", "ada/abacus-runs:data/results/bash.json#0")
    assert [stored[f"call:{place}"]["result"] for place in (1, 2)] == ["a\x00b\n", "a\x00b\n"]


def test_secrets_in_an_import_are_not_redacted(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2" * 9
    raw = {
        "turn_history": {
            "actions": ["env"],
            "observations": [f"TOKEN={secret}"],
            "valid_action": [True],
        }
    }
    _import("intercode", write_lines(tmp_path / "secret.jsonl", [raw]))
    (session,) = Session.objects.all()
    assert _bodies("effect.acknowledged", session.key)["call:1"]["result"] == f"TOKEN={secret}"


@pytest.mark.parametrize(
    "text", ["\x00bead\x1b[0m\r\n" * 70_000, "half \ud800 a pair"], ids=["large", "surrogate"]
)
def test_a_result_too_large_for_an_item_is_an_exact_artifact_of_its_effect(
    tmp_path: Path, text: str
) -> None:
    raw = {
        "turn_history": {"actions": ["cat beads"], "observations": [text], "valid_action": [True]}
    }
    file = write_lines(tmp_path / "large.jsonl", [raw])
    _import("intercode", file)
    (artifact,), (effect,) = Artifact.objects.all(), Effect.objects.all()
    assert artifact.effect == effect.id
    assert artifact.session_id == effect.session_id
    assert artifact.stored_at_us is not None
    pointer = {"sha256": artifact.sha256, "size": artifact.size, "media_type": artifact.media_type}
    assert _content({"artifact": pointer}) == text
    assert _bodies("effect.acknowledged", effect.session.key)["call:1"]["result"] == {
        "artifact": pointer
    }
    before = _rows()
    assert "1 artifact, 0 stored now" in _import("intercode", file)
    assert _rows() == before


@pytest.mark.parametrize("path", sorted(FILES.iterdir()), ids=lambda path: path.stem)
def test_importing_twice_adds_nothing(path: Path) -> None:
    format_name = next(reader for reader in _FORMATS if path.name.startswith(reader))
    first = _import(format_name, path)
    before = _rows()
    assert before["violations"] == 0
    second = _import(format_name, path)
    assert "; 0 facts added, " in second
    assert first.partition(";")[0] == second.partition(";")[0]
    assert _rows() == before


@pytest.mark.parametrize(
    "moment", ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z", "9999-12-31T23:59:59Z"]
)
def test_a_time_outside_the_limits_is_left_out(tmp_path: Path, moment: str) -> None:
    values = json_lines(FILES / "claude-code.jsonl")
    for value in values[2:]:
        value["timestamp"] = moment
    _import("claude-code", write_lines(tmp_path / "odd.jsonl", values))
    assert [row[2] for row in _effects(MAIN)] == [*["acknowledged"] * 5, "dispatched"]
    assert not Entry.objects.exclude(kind="session.started").exclude(occurred_us=None).exists()
    assert _rows()["violations"] == 0


def test_a_longer_later_version_adds_only_what_is_new(tmp_path: Path) -> None:
    values = json_lines(FILES / "claude-code.jsonl")
    _import("claude-code", write_lines(tmp_path / "a-name.jsonl", values[:8]))
    assert [row[2] for row in _effects(MAIN)] == ["dispatched", "acknowledged"]
    printed = _import("claude-code", write_lines(tmp_path / "another-name.jsonl", values))
    assert "; 12 facts added, 6 already recorded;" in printed
    assert [row[2] for row in _effects(MAIN)] == [*["acknowledged"] * 5, "dispatched"]
    assert _rows()["violations"] == 0


@pytest.mark.parametrize("name", ["claude-code", "pi", "openhands-sdk", "mini-swe-agent"])
def test_a_torn_transcript_and_later_the_complete_one_give_the_complete_rows(
    tmp_path: Path, name: str
) -> None:
    """Wherever the last line is torn; the parts are imported in order, like a growing transcript."""
    format_name = next(reader for reader in _FORMATS if name.startswith(reader))
    content, file = (FILES / f"{name}.jsonl").read_bytes(), tmp_path / f"{name}.jsonl"
    ends = [at for at in range(len(content)) if content[at : at + 1] == b"\n"]
    for end in ends[1:][-3:]:
        file.write_bytes(content[: end - 5])
        with pytest.raises(CommandError, match="is truncated") as left:
            _import(format_name, file)
        assert left.value.returncode == 3
    file.write_bytes(content)
    _import(format_name, file)
    rows = _rows()
    assert "0 facts added" in _import(format_name, file)
    assert _rows() == rows
    (whole,) = {
        len(trajectory.calls) for trajectory in [*READERS[format_name](FILES / f"{name}.jsonl")][:1]
    }
    assert Effect.objects.filter(session__key=READERS[format_name](file)[0].key).count() == whole


def test_an_interrupted_import_is_completed_by_a_second_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(to_events, "MAX_BATCH_ITEMS", 5)
    whole_send = ImportClient.send
    sent: list[list[bytes]] = []

    def failing(self: ImportClient, batch: list[bytes]) -> BatchCounts:
        if len(sent) == 2:
            raise ImportRefusedError("/api/v1/events", "The machine was switched off.")
        sent.append(batch)
        return whole_send(self, batch)

    monkeypatch.setattr(ImportClient, "send", failing)
    with pytest.raises(CommandError, match="The machine was switched off"):
        _import("claude-code", FILES / "claude-code.jsonl")
    assert 0 < Effect.objects.count() < 6
    monkeypatch.setattr(ImportClient, "send", whole_send)
    assert "; 8 facts added, 10 already recorded;" in _import(
        "claude-code", FILES / "claude-code.jsonl"
    )
    assert [row[2] for row in _effects(MAIN)] == [*["acknowledged"] * 5, "dispatched"]


def test_the_token_it_works_with_ends_with_it() -> None:
    _import("pi", FILES / "pi.jsonl")
    (token,) = AgentToken.objects.all()
    assert (token.scope, token.agent.name) == ("import", "importer")
    assert token.revoked_at is not None


def test_the_token_is_replaced_while_it_works_and_every_one_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A long import: at each request half of the token's lifetime is over."""
    now = itertools.count(0.0, import_trajectory.TOKEN_LIFETIME.total_seconds())
    monkeypatch.setattr(
        "importers.management.commands.import_trajectory.time.monotonic", lambda: next(now)
    )
    monkeypatch.setattr(to_events, "MAX_BATCH_ITEMS", 5)
    _import("pi", FILES / "pi.jsonl")
    issued = AgentToken.objects.order_by("created_at")
    assert len(issued) == 5  # at the start, and before each of four batches
    assert all(token.revoked_at is not None for token in issued)
    lives = [
        token.expires_at - token.created_at for token in issued if token.expires_at is not None
    ]
    assert len(lives) == 5
    assert max(lives) <= timedelta(minutes=10)
    assert Effect.objects.count() == 7
    assert len({entry.source for entry in Entry.objects.filter(kind="effect.planned")}) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_the_token_ends_with_an_import_that_is_stopped_by_a_signal(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    if number == signal.SIGINT and signal.getsignal(number) is signal.SIG_IGN:
        # A shell starts what runs in the background without SIGINT.
        signal.signal(number, signal.default_int_handler)
    send, before = ImportClient.send, signal.getsignal(number)

    def stopped(client: ImportClient, batch: list[bytes]) -> BatchCounts:
        assert AgentToken.objects.get().revoked_at is None
        tally = send(client, batch)
        signal.raise_signal(number)
        return tally

    monkeypatch.setattr(ImportClient, "send", stopped)
    with pytest.raises((SystemExit, KeyboardInterrupt)) as end:
        _import("pi", FILES / "pi.jsonl")
    assert getattr(end.value, "code", 128 + number) == 128 + number
    assert AgentToken.objects.get().revoked_at is not None
    assert signal.getsignal(number) is before


def test_the_token_of_a_killed_import_is_short_lived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SIGKILL allows no cleanup: the token remains and expires by itself."""
    monkeypatch.setattr(import_trajectory._TemporaryToken, "__exit__", lambda *_: None)
    _import("pi", FILES / "pi.jsonl")
    left = AgentToken.objects.get()
    assert left.revoked_at is None
    assert left.expires_at is not None
    assert left.expires_at - left.created_at <= timedelta(minutes=10)


def test_a_project_that_is_not_there_is_named() -> None:
    with pytest.raises(CommandError, match="There is no project 'nowhere'"):
        call_command("import_trajectory", "pi", str(FILES / "pi.jsonl"), project="nowhere")


@needs_recordings
@pytest.mark.parametrize(
    "folder",
    keep_core(
        FOLDERS,
        [folder for folder in FOLDERS if folder not in LARGEST_FOLDERS],
        mark=pytest.mark.matrix,
    ),
)
def test_recorded_files_leave_exactly_the_rows_that_were_counted(folder: str) -> None:
    counts = {
        name: numbers
        for name, numbers in recorded_counts().items()
        if name.startswith(f"{folder}/")
    }
    files = [RECORDED / name for name in counts]
    format_name = format_of(files[0].parent.name + "/")
    _import(format_name, *files)
    assert Session.objects.filter(effect_count__gt=0).count() == sum(
        numbers["sessions"] for numbers in counts.values()
    )
    states = Counter(Effect.objects.values_list("state", flat=True))
    calls = [
        call for file in files for recorded in READERS[format_name](file) for call in recorded.calls
    ]
    missing = sum(call.result is None for call in calls)
    refused = sum(call.is_refused for call in calls)
    assert missing + refused * (format_name == "pi") == sum(
        numbers["missing"] for numbers in counts.values()
    )
    assert (states["dispatched"], states["failed"]) == (missing, refused)
    assert (
        states["acknowledged"]
        == sum(numbers["calls"] for numbers in counts.values()) - missing - refused
    )
    assert sum(states.values()) == sum(numbers["calls"] for numbers in counts.values())
    tools: Counter[str] = Counter()
    for numbers in counts.values():
        tools.update(numbers["tools"])
    called = Counter(Effect.objects.values_list("tool", flat=True))
    assert all(called[tool] >= times for tool, times in tools.items())
    assert not Artifact.objects.filter(stored_at_us=None).exists()
    for trajectory in (trajectory for file in files for trajectory in READERS[format_name](file)):
        _assert_stored_exactly(trajectory)
    before = _rows()
    assert before["violations"] == 0
    assert " added, " in _import(format_name, *reversed(files))
    assert _rows() == before
