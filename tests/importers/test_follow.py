"""`import_trajectory --follow` as a real process: files that grow, tear, turn and come back."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from tests.client.test_pushes import WITHIN_S, wait_until
from tests.importers.followed_files import (
    PUSH,
    STOPPED_CLOCK,
    Following,
    Transcript,
    has_effects,
)
from tests.importers.samples import FILES


@pytest.fixture
def transcript(tmp_path: Path) -> Transcript:
    (tmp_path / "projects").mkdir()
    return Transcript(tmp_path / "projects" / "a.jsonl")


def test_a_growing_file_is_recorded_line_by_line(
    following: Following, transcript: Transcript
) -> None:
    transcript.append(transcript.build("user", "Fix it"), transcript.build_call("toolu_1"))
    following.start(transcript.path)
    following.wait_for_effects(1, "dispatched")
    result = transcript.build_result("toolu_1", "ök")
    transcript.append(result[:-25])
    time.sleep(0.7)  # it looks three times
    assert [effect[1] for effect in following.list_effects()] == ["dispatched"]
    transcript.append(result[-25:], transcript.build_call("toolu_2"))
    transcript.append(transcript.build_result("toolu_2", "3 failed", failed=True))
    following.wait_for_effects(2)
    assert following.list_effects() == [
        ("toolu_1:1", "acknowledged", "ok"),
        ("toolu_2:2", "acknowledged", "error"),
    ]
    (session,) = following.project.agent.get("/sessions").json()["items"]
    assert (session["key"], session["title"]) == (transcript.session, "Fix it")


def test_in_the_installation_itself_it_reports_as_the_agent(
    following: Following, transcript: Transcript
) -> None:
    following.send_hook(transcript, "PreToolUse", "toolu_1")
    transcript.append(transcript.build_call("toolu_1"))
    following.start(transcript.path, is_remote=False)
    transcript.append(transcript.build_result("toolu_1"))
    following.wait_for_effects(1)
    process = following.processes[-1]
    process.terminate()
    assert process.wait(WITHIN_S) == 128 + signal.SIGTERM
    assert "claim" not in [lane for _, lane, _ in following.list_entries()]


def test_killed_at_any_moment_it_goes_on_and_repeats_nothing(
    following: Following, transcript: Transcript
) -> None:
    transcript.append(transcript.build("user", "Fix it"))
    for number in range(1, 7):
        transcript.append(transcript.build_call(f"toolu_{number}"))
        following.start(transcript.path)
        if number % 2:  # killed as soon as something is recorded, or somewhere on the way
            wait_until(partial(has_effects, following, number))
        else:
            time.sleep(0.1 * number)
        following.kill()
        transcript.append(transcript.build_result(f"toolu_{number}"))
    following.start(transcript.path)
    following.wait_for_effects(6)
    kinds = following.list_kinds()
    assert kinds.count("effect.planned") == 6
    assert kinds.count("effect.acknowledged") == 6
    assert not any(kind.startswith("integrity") for kind in kinds)
    # Without its state everything is sent again, and nothing is recorded again.
    following.kill()
    (following.folder / "state.json").unlink()
    recorded = following.log.count("are recorded")
    following.start(transcript.path)
    following.wait_for("are recorded", recorded + 1)
    assert following.list_kinds() == kinds


def test_a_second_process_with_the_same_state_is_refused(
    following: Following, transcript: Transcript
) -> None:
    transcript.append(transcript.build_call("toolu_1"))
    following.start(transcript.path)
    following.wait_for_effects(1, "dispatched")
    following.start(transcript.path)
    assert following.processes[-1].wait(WITHIN_S) == 1
    assert "Another process follows" in following.log


def test_a_file_that_is_replaced_is_read_to_its_end_and_the_new_one_too(
    following: Following, transcript: Transcript
) -> None:
    transcript.append(transcript.build_call("toolu_1"), transcript.build_result("toolu_1"))
    following.start(transcript.path.parent)
    following.wait_for_effects(1)
    # Its last lines are written after it was renamed to a name that is not followed.
    transcript.path.rename(transcript.path.with_suffix(".old"))
    with transcript.path.with_suffix(".old").open("ab") as file:
        file.write(transcript.build_call("toolu_2") + transcript.build_result("toolu_2"))
    other = Transcript(transcript.path)
    other.append(other.build_call("toolu_3"), other.build_result("toolu_3"))
    following.wait_for_effects(3)
    assert sorted(effect[0] for effect in following.list_effects()) == [
        "toolu_1:1",
        "toolu_2:2",
        "toolu_3:1",
    ]


def test_a_file_that_is_cut_and_written_again_repeats_nothing(
    following: Following, transcript: Transcript
) -> None:
    first = transcript.build_call("toolu_1") + transcript.build_result("toolu_1")
    second = transcript.build_call("toolu_2") + transcript.build_result("toolu_2")
    transcript.append(first, second)
    following.start(transcript.path)
    following.wait_for_effects(2)
    kinds = following.list_kinds()
    with transcript.path.open("r+b") as file:
        file.truncate(len(first) - 10)
    following.wait_for("was shortened or rewritten")
    transcript.append(first[-10:], second)
    third = transcript.build_call("toolu_3") + transcript.build_result("toolu_3")
    transcript.append(third)
    following.wait_for_effects(3)
    assert following.list_kinds()[: len(kinds)] == kinds
    assert following.list_kinds().count("effect.planned") == 3


def test_half_a_line_of_a_killed_client_does_not_stop_the_rest(
    following: Following, transcript: Transcript
) -> None:
    half = transcript.build_call("toolu_lost")[:60]
    transcript.append(transcript.build_call("toolu_1"), half)
    following.start(transcript.path)
    following.wait_for_effects(1, "dispatched")
    # The next process writes behind the half line; what follows is whole again.
    transcript.append(transcript.build_result("toolu_1"))
    transcript.append(transcript.build_call("toolu_2"), transcript.build_result("toolu_2"))
    following.wait_for("is not JSON and was skipped")
    wait_until(lambda: len(following.list_effects()) == 2)
    assert [effect[0] for effect in following.list_effects()] == ["toolu_1:1", "toolu_2:2"]


def test_files_that_are_no_transcripts_are_named_and_left_alone(
    following: Following, transcript: Transcript
) -> None:
    (transcript.path.parent / "other.jsonl").write_text('{"a": 1}\n')
    (transcript.path.parent / "empty.jsonl").touch()
    old = Transcript(transcript.path.parent / "old.jsonl")
    old.append(old.build_call("toolu_old"))
    os.utime(old.path, (1, 1))
    transcript.append(transcript.build_call("toolu_1"), transcript.build_result("toolu_1"))
    following.start(transcript.path.parent)
    following.wait_for_effects(1)
    following.wait_for("other.jsonl: is not followed")
    time.sleep(0.5)
    assert len(following.list_effects()) == 1


def test_effects_that_hooks_told_of_are_met_and_not_doubled(
    following: Following, transcript: Transcript
) -> None:
    """The transcript comes first, as it does: the hook is heard within the time to settle."""
    settles = following.folder / "settles"
    stopped = STOPPED_CLOCK.format(file=str(settles))
    following.start(transcript.path.parent, settle="3", before=stopped)
    transcript.append(transcript.build_call("toolu_1"))
    following.send_hook(transcript, "PreToolUse", "toolu_1")
    following.send_hook(transcript, "PostToolUse", "toolu_1", tool_response={"stdout": "ok"})
    transcript.append(transcript.build_result("toolu_1"))
    settles.touch()
    wait_until(lambda: "transcript.recorded" in following.list_kinds())
    ((key, state, outcome),) = following.list_effects()
    assert key.startswith("toolu_1:")
    assert key != "toolu_1:1"
    assert (state, outcome) == ("acknowledged", "ok")
    (body,) = [body for kind, _, body in following.list_entries() if kind == "transcript.recorded"]
    assert (body["outcome"], body["result"], body["tool"]) == ("ok", "ok", "Bash")
    assert "transcript.contradicted" not in following.list_kinds()


def test_a_result_that_no_hook_told_of_comes_from_the_transcript(
    following: Following, transcript: Transcript
) -> None:
    following.send_hook(transcript, "PreToolUse", "toolu_1")
    assert [effect[1] for effect in following.list_effects()] == ["dispatched"]
    transcript.append(
        transcript.build_call("toolu_1"), transcript.build_result("toolu_1", "boom", failed=True)
    )
    following.start(transcript.path)
    following.wait_for_effects(1)
    assert following.list_effects()[0][2] == "error"


def test_a_contradiction_is_shown_and_changes_nothing(
    following: Following, transcript: Transcript
) -> None:
    following.send_hook(transcript, "PreToolUse", "toolu_1")
    following.send_hook(transcript, "PostToolUse", "toolu_1", tool_response={"stdout": "ok"})
    transcript.append(
        transcript.build_call("toolu_1"), transcript.build_result("toolu_1", "boom", failed=True)
    )
    following.start(transcript.path)
    following.wait_for("the transcript contradicts it")
    ((_, state, outcome),) = following.list_effects()
    assert (state, outcome) == ("acknowledged", "ok")
    (body,) = [b for kind, _, b in following.list_entries() if kind == "transcript.contradicted"]
    assert "recorded as ok, and the transcript says error" in body["contradiction"]
    page = following.project.load_page(f"/effects/{following.project.list_effects()[0]['id']}/")
    assert "the transcript contradicts" in page


def test_a_held_call_that_ran_all_the_same_is_a_violation(
    following: Following, transcript: Transcript
) -> None:
    following.send_hook(transcript, "PreToolUse", "toolu_1", command=PUSH)
    assert [effect[1] for effect in following.list_effects()] == ["planned"]
    transcript.append(
        transcript.build_call("toolu_1", PUSH), transcript.build_result("toolu_1", "pushed")
    )
    following.start(transcript.path)
    following.wait_for("the transcript contradicts it")
    following.wait_for_effects(1)
    assert following.project.count_violations() == 1


def test_a_denied_call_that_the_transcript_knows_as_denied_contradicts_nothing(
    following: Following, transcript: Transcript
) -> None:
    following.send_hook(transcript, "PreToolUse", "toolu_1", command=PUSH)
    words = "Hook PreToolUse:Bash denied this tool: wait for people"
    transcript.append(
        transcript.build_call("toolu_1", PUSH),
        transcript.build_result("toolu_1", words, failed=True),
    )
    following.start(transcript.path)
    wait_until(lambda: "transcript.recorded" in following.list_kinds())
    assert [effect[1] for effect in following.list_effects()] == ["planned"]
    assert "transcript.contradicted" not in following.list_kinds()
    assert following.project.count_violations() == 0


def test_a_rollout_of_codex_is_followed(following: Following, tmp_path: Path) -> None:
    lines = (FILES / "codex.jsonl").read_bytes().splitlines(keepends=True)
    file = tmp_path / "rollout.jsonl"
    file.write_bytes(b"".join(lines[:6]))
    following.start(file, name="codex")
    for line in lines[6:]:
        with file.open("ab") as stream:
            stream.write(line)
        time.sleep(0.1)
    wait_until(lambda: len(following.list_effects()) == 5)
    wait_until(lambda: following.list_effects()[-1][1] == "failed")
    assert [(state, outcome) for _, state, outcome in following.list_effects()] == [
        ("acknowledged", "ok"),
        ("acknowledged", "error"),
        ("acknowledged", "unknown"),
        ("acknowledged", "ok"),
        ("failed", "error"),
    ]
