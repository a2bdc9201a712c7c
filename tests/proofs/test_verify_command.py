"""The verifier as a program: exit codes, JSON, resume, several processes, two heads."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from db.triggers import suspend_triggers
from journal import entries
from proofs import merkle
from proofs.management.commands import verify
from proofs.models import Tile, TreeHead
from proofs.verifier import gatebook_verify
from tests.journal.committed import committed
from tests.journal.drafts import NOW_US, draft, new_project
from tests.proofs.sealing import seal_entries

__all__ = ["committed"]
pytestmark = pytest.mark.usefixtures("committed")
FILE = Path(gatebook_verify.__file__)


def run_verifier(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
    """Run the stand-alone file away from Gatebook's code; return exit code and report."""
    done = subprocess.run(
        [sys.executable, "-I", FILE, *arguments, "--json"],
        capture_output=True,
        text=True,
        cwd="/",
        env={"DATABASE_URL": verify.describe_database(), "PATH": os.environ["PATH"]},
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def heads() -> list[TreeHead]:
    """Seal 600 entries under three heads."""
    project, sealed = new_project(), []
    for start, end in ((0, 200), (200, 513), (513, 600)):
        items = [draft(f"e{n}", f'{{"n":{n}}}', project=project) for n in range(start, end)]
        entries.append_entries(items, NOW_US)
        sealed.append(seal_entries())
    return sealed


def test_the_file_verifies_a_database_without_gatebook(
    heads: list[TreeHead], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept.note"
    kept.write_text(heads[0].note)
    anchor = tmp_path / "heads"
    anchor.write_text("".join(f"{head.note}\n" for head in heads))
    code, report = run_verifier("database", "--head", kept, "--anchor", anchor)
    assert (code, report["counts"], report["size"]) == (0, {"ok": 600}, 600)
    assert report["verdict"] == {"integrity": "ok", "completeness": "ok", "sealing": "ok"}

    entries.append_entries([draft("late", project=new_project())], NOW_US - 10**15)
    code, report = run_verifier("database")
    assert (code, report["verdict"]["sealing"]) == (gatebook_verify.IS_BEHIND, "behind")
    assert report["unsealed_tail"]["entries"] == 1

    forged = tmp_path / "forged.note"
    forged.write_text(heads[0].note.replace("\n200\n", "\n201\n"))
    code, report = run_verifier("database", "--head", forged)
    assert (code, report["counts"]["fork"]) == (gatebook_verify.IS_BROKEN, 1)

    code, report = run_verifier("database", tmp_path / "missing")
    assert (code, "is not a file" in report["error"]) == (gatebook_verify.IS_UNUSABLE, True)


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL stores UTF-8 only")
@pytest.mark.parametrize(
    ("table", "column", "detail"),
    [
        ("proofs_signingkey", "name", "its name '\\udcffgatebook/"),
        ("proofs_signingkey", "key_id", "its row says that its key id is \\udcff"),
        ("proofs_treehead", "note", "is not '\\udcffgatebook/"),
        ("proofs_treehead", "key_id", "names the key \\udcff"),
    ],
)
def test_a_name_that_is_no_utf8_is_named_and_all_entries_are_checked(
    heads: list[TreeHead], table: str, column: str, detail: str
) -> None:
    with transaction.atomic(), suspend_triggers(connection, [table]), connection.cursor() as cursor:
        cursor.execute("PRAGMA ignore_check_constraints = ON")
        cursor.execute(f"UPDATE {table} SET {column} = CAST(X'ff' || {column} AS TEXT)")
        cursor.execute("PRAGMA ignore_check_constraints = OFF")
    code, report = run_verifier("database")
    assert (code, report["counts"]["ok"]) == (gatebook_verify.IS_BROKEN, 600)
    details = [row["detail"].encode(errors="backslashreplace") for row in report["findings"]]
    assert any(detail.encode() in row for row in details), details
    command = [sys.executable, "-I", str(FILE), "database", verify.describe_database()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    assert detail in done.stdout


def test_manage_py_verify_runs_the_same_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Settings
) -> None:
    started: list[Any] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        started.append((command, options["env"]["DATABASE_URL"]))
        return subprocess.CompletedProcess(command, 4)

    anchor = tmp_path / "heads"
    anchor.write_text("a note")
    settings.GATEBOOK_ANCHORS = f"file:{anchor}; file:{tmp_path}/none-yet"
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(SystemExit) as stopped:
        call_command("verify", "--json", "--head", "a.note", "--head", "b.note", "--jobs", "2")
    assert stopped.value.code == 4
    [(command, address)] = started
    assert command[1:3] == [str(FILE), "database"]
    assert command[3:] == [
        *("--jobs", "2", "--max-lag", "60", "--head", "a.note", "--head", "b.note"),
        *("--anchor", str(anchor), "--json"),
    ]
    monkeypatch.undo()
    assert address == verify.describe_database()


def test_an_interrupted_run_continues_where_it_was(
    heads: list[TreeHead], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gatebook_verify, "CHUNK", 256)
    monkeypatch.setattr(gatebook_verify, "SAVE_S", 0)
    state = tmp_path / "state"
    options = gatebook_verify.DatabaseOptions(resume=state)
    add_part = gatebook_verify.JournalCheck.add_part

    def stop(check: Any, part: Any) -> None:
        add_part(check, part)
        if part.first == 256:
            raise KeyboardInterrupt

    monkeypatch.setattr(gatebook_verify.JournalCheck, "add_part", stop)
    database = gatebook_verify.open_database(verify.describe_database())
    with pytest.raises(KeyboardInterrupt):
        gatebook_verify.verify_database(database, options)
    assert json.loads(state.read_text())["next_index"] == 512

    first = []

    def follow(check: Any, part: Any) -> None:
        first.append(part.first)
        add_part(check, part)

    monkeypatch.setattr(gatebook_verify.JournalCheck, "add_part", follow)
    report = gatebook_verify.verify_database(database, options)
    assert first == [512]
    assert (report.counts, report.facts["heads"]) == ({"ok": 600}, 3)
    assert not state.exists()


def test_several_processes_find_the_same(
    heads: list[TreeHead], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gatebook_verify, "CHUNK", 256)
    database = gatebook_verify.open_database(verify.describe_database())
    options = gatebook_verify.DatabaseOptions(jobs=2)
    report = gatebook_verify.verify_database(database, options)
    assert (report.counts, report.facts["heads"]) == ({"ok": 600}, 3)


def test_two_heads_are_compared_by_tiles_or_by_a_proof(
    heads: list[TreeHead], tmp_path: Path
) -> None:
    for head in heads:
        (tmp_path / f"{head.size}.note").write_text(head.note)
    folder = tmp_path / "log"
    for tile in Tile.objects.all():
        hashes = bytes(tile.hashes)
        path = folder / gatebook_verify.name_tile(tile.level, tile.index, len(hashes) // 32)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(hashes)
    old, new = tmp_path / "200.note", tmp_path / "600.note"
    for place in (str(folder), verify.describe_database()):
        code, report = run_verifier("heads", old, new, "--tiles", place)
        assert (code, report["counts"]) == (0, {"ok": 1})
    tiles = {(tile.level, tile.index): bytes(tile.hashes) for tile in Tile.objects.all()}
    growth = merkle.build_consistency_proof(200, 600, lambda level, index: tiles[level, index])
    proof = tmp_path / "proof"
    proof.write_text("\n".join(part.hex() for part in growth))
    assert run_verifier("heads", old, new, "--proof", proof)[0] == 0

    code, report = run_verifier("heads", new, old)
    assert (code, report["counts"]) == (gatebook_verify.IS_BROKEN, {"missing": 400})
    proof.write_text("\n".join(part.hex() for part in reversed(growth)))
    code, report = run_verifier("heads", old, new, "--proof", proof)
    assert (code, report["counts"]) == (gatebook_verify.IS_BROKEN, {"fork": 1})
    code, report = run_verifier("heads", old, new)
    assert (code, "--tiles" in report["error"]) == (gatebook_verify.IS_UNUSABLE, True)


def test_anybody_downloads_the_verifier(db: None) -> None:
    answer = Client().get(reverse("verifier_file"))
    assert answer.content == FILE.read_bytes()
    assert "gatebook-verify.py" in answer["Content-Disposition"]
