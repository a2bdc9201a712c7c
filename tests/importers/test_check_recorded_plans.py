"""`manage.py check_recorded_plans`: recorded plans as requests, and how many have warnings."""

import io
import json
import shutil
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from approvals.checks.run_checks import CHECKS
from ledger.models import Effect
from tests.importers.samples import FILES

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("project", "in_process")]


def measure(folder: Path, *options: str) -> list[str]:
    out = io.StringIO()
    call_command("check_recorded_plans", str(folder), *options, stdout=out)
    return out.getvalue().splitlines()


def test_a_missing_folder_measures_nothing(tmp_path: Path) -> None:
    assert measure(tmp_path / "none") == [
        f"{tmp_path / 'none'} does not exist; nothing is measured."
    ]


def test_each_check_has_its_share_of_all_plans(tmp_path: Path) -> None:
    (tmp_path / "pi-coding-agent").mkdir()
    folder = tmp_path / "claude-code-spotter"
    folder.mkdir()
    lines = (FILES / "claude-code.jsonl").read_text()
    (folder / "plain.jsonl.gz").write_text(lines)
    shown = measure(tmp_path)
    plans = Effect.objects.count()
    assert plans > 0
    for check in (*CHECKS, "any"):
        (total,) = [line.split() for line in shown if line.startswith(check) and " all " in line]
        assert total[2] == str(plans)
    assert measure(tmp_path) == shown  # importing again adds nothing


def test_a_result_is_counted_and_shown_with_its_plan(tmp_path: Path) -> None:
    folder = tmp_path / "claude-code-spotter"
    folder.mkdir()
    lines = (FILES / "claude-code.jsonl").read_text().rstrip("\n").split("\n")
    changed = []
    for line in lines:
        value = json.loads(line)
        for part in (value.get("message") or {}).get("content") or []:
            if isinstance(part, dict) and part.get("type") == "tool_use":
                part["input"]["url"] = "https://n\u043erthwind.com/"
        changed.append(json.dumps(value))
    (folder / "odd.jsonl.gz").write_text("\n".join(changed) + "\n")
    shown = measure(tmp_path, "--examples")
    assert any("danger lookalike_letters: Lookalike domain" in line for line in shown)
    assert any(line.startswith("lookalike_letters") and "100.00%" in line for line in shown)


def test_a_database_with_other_effects_is_refused(tmp_path: Path) -> None:
    shutil.copy(FILES / "claude-code.jsonl", tmp_path / "a.jsonl")
    call_command(
        "import_trajectory", "claude-code", str(tmp_path / "a.jsonl"), stdout=io.StringIO()
    )
    with pytest.raises(CommandError, match="Use an empty one"):
        measure(tmp_path)
