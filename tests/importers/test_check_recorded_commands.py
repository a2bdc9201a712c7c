"""`manage.py check_recorded_commands`: shares of recorded commands that are parsed and mapped."""

import io
import shutil
from pathlib import Path

import pytest
from django.core.management import call_command

from importers.management.commands.check_recorded_commands import iterate_recorded_commands
from tests.importers.samples import FILES

pytestmark = pytest.mark.once


def measure(folder: Path, *options: str) -> list[str]:
    out = io.StringIO()
    call_command("check_recorded_commands", str(folder), *options, stdout=out)
    return out.getvalue().splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "claude-code-spotter"
    target.mkdir()
    shutil.copy(FILES / "claude-code.jsonl", target / "plain.jsonl.gz")
    return tmp_path


def test_a_missing_folder_measures_nothing(tmp_path: Path) -> None:
    assert measure(tmp_path / "none") == [
        f"{tmp_path / 'none'} does not exist; nothing is measured."
    ]


def test_every_data_set_and_all_have_their_shares(folder: Path) -> None:
    commands = list(iterate_recorded_commands(folder))
    assert commands
    head, first, total, *rest = measure(folder)
    assert head.split()[:4] == ["data", "set", "commands", "parsed"]
    assert first.split()[:2] == ["claude-code-spotter", str(len(commands))]
    assert total.split()[:2] == ["all", str(len(commands))]
    assert "Tools:" in rest


def test_a_sample_shows_commands_with_their_parts(folder: Path) -> None:
    lines = measure(folder, "--sample", "1")
    assert " -> " in lines[0]
    assert lines[1].startswith("  ")
    assert lines == measure(folder, "--sample", "1", "--seed", "14")
