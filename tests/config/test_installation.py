"""Files, keys and database must belong together: a mismatch is refused and nothing is created."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.test import Client
from pytest_django import Settings

from accounts import projects
from config import installation, secret_keys
from evaluation.bench.installation import own_port
from journal import fingerprints
from journal.models import Entry, Fingerprint
from tests.config.server import ROOT, copy_schema

OTHER = b"another pepper of at least thirty-two bytes"


@pytest.fixture
def made(db: None, settings: Settings, tmp_path: Path) -> Settings:
    """Make an installation with its files in `tmp_path`."""
    settings.VAR_DIR, settings.GATEBOOK_NEW_KEYS = tmp_path, {}
    assert installation.record_installation() is True
    assert installation.record_installation() is False
    return settings


def only(sentences: list[str]) -> str:
    (sentence,) = sentences
    return sentence


def test_files_keys_and_database_of_setup_belong_together(made: Settings, tmp_path: Path) -> None:
    assert installation.find_installation_faults() == []
    assert Fingerprint.objects.count() == 3
    note = installation.read_installation_note()
    assert note is not None
    assert note.identity == Fingerprint.objects.get(name="installation").value
    text = (tmp_path / "installation").read_text() + "".join(
        Fingerprint.objects.values_list("value", flat=True)
    )
    assert made.GATEBOOK_PEPPER.hex() not in text
    assert str(made.SECRET_KEY) not in text


@pytest.mark.parametrize("name", fingerprints.KEY_NAMES)
def test_another_key_is_refused_and_named_everywhere(made: Settings, name: str) -> None:
    if name == "pepper":
        made.GATEBOOK_PEPPER = OTHER
    else:
        made.SECRET_KEY = OTHER.hex()
    fault = only(installation.find_installation_faults())
    assert f"The key {name} in " in fault
    assert f"manage.py replace_key {name}" in fault
    with pytest.raises(SystemExit, match=f"The key {name}"):
        installation.refuse_command(["manage.py", "issue_token", "--agent", "one"])
    with pytest.raises(CommandError, match=f"The key {name}"):
        call_command("setup")
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.text) == (
        *(503, f"not ready: the key {name} is not the one that the database was written with\n"),
    )


def test_a_lost_key_is_not_recreated_for_a_database_that_uses_it(
    made: Settings, tmp_path: Path
) -> None:
    made.GATEBOOK_PEPPER, made.GATEBOOK_NEW_KEYS = OTHER, {"pepper": OTHER}
    fault = only(installation.find_installation_faults())
    assert f"is not in {tmp_path / 'keys' / 'pepper'}, and GATEBOOK_PEPPER is not set" in fault
    with pytest.raises(CommandError, match="Restore the file from the backup"):
        call_command("setup")
    assert not (tmp_path / "keys" / "pepper").exists()


def test_a_second_node_needs_the_keys_of_the_first(made: Settings, tmp_path: Path) -> None:
    made.VAR_DIR = tmp_path / "second"
    made.VAR_DIR.mkdir()
    assert installation.find_installation_faults() == [], "with the same keys it is one more node"
    made.GATEBOOK_NEW_KEYS = {"pepper": OTHER}
    made.GATEBOOK_PEPPER = OTHER
    assert "set GATEBOOK_PEPPER to the key of the other nodes" in only(
        installation.find_installation_faults()
    )


def test_an_empty_database_with_the_files_of_another_is_refused(made: Settings) -> None:
    Fingerprint.objects.all().delete()
    fault = only(installation.find_installation_faults(must_exist=False))
    assert "belong to an installation in" in fault
    assert "holds none. Set DATABASE_URL as the service does" in fault
    with pytest.raises(CommandError, match="Set DATABASE_URL"):
        call_command("setup")
    assert not Fingerprint.objects.exists()


def test_the_database_of_another_installation_is_refused(made: Settings) -> None:
    Fingerprint.objects.filter(name="installation").update(value="0" * 64)
    assert "belongs to another" in only(installation.find_installation_faults(must_exist=False))


def test_a_command_where_nothing_was_set_up_is_refused_and_setup_is_not(
    db: None, settings: Settings, tmp_path: Path
) -> None:
    settings.VAR_DIR = tmp_path
    assert installation.find_installation_faults(must_exist=False) == []
    assert "Nothing is set up in" in only(installation.find_installation_faults())
    for command in (
        "issue_token",
        "load_tools",
        "erase_body",
        "sweep_stuck",
        "changepassword",
        "createsuperuser",
    ):
        with pytest.raises(SystemExit, match=r"run `manage\.py setup` to begin"):
            installation.refuse_command(["manage.py", command])
    settings.GATEBOOK_NEW_KEYS = {"pepper": OTHER}
    for line in (
        "search is:open",
        "setup",
        "shell",
        "migrate",
        "issue_token --help",
        "import_trajectory --url x",
    ):
        installation.refuse_command(["manage.py", *line.split()])


def test_a_key_is_replaced_by_a_command_that_lists_what_is_lost(
    made: Settings, tmp_path: Path
) -> None:
    with transaction.atomic():
        project = projects.ensure_default_project()
    with pytest.raises(CommandError, match="nothing to replace"):
        call_command("replace_key", "pepper", "--accept-loss")
    made.GATEBOOK_PEPPER, made.GATEBOOK_NEW_KEYS = OTHER, {"pepper": OTHER}
    with pytest.raises(CommandError, match="Every agent token stops working"):
        call_command("replace_key", "pepper")
    assert installation.find_installation_faults() != []
    assert not (tmp_path / "keys").exists()
    replace_for_good()
    assert secret_keys.load_keys(tmp_path / "keys", {})[0]["pepper"] == OTHER
    assert installation.find_installation_faults() == []
    entry = Entry.objects.get(kind="admin.key_replaced")
    assert (entry.project, entry.facts) == (project.id, '{"key":"pepper"}')


def replace_for_good() -> None:
    """Run the command with a durable transaction inside that of the test."""
    atomic = transaction.atomic

    def within(*arguments: object, durable: bool = False, **options: object) -> object:
        return atomic(*arguments, **options)  # type: ignore[call-overload]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("config.management.commands.replace_key.transaction.atomic", within)
        call_command("replace_key", "pepper", "--accept-loss")


@pytest.mark.django_db
def test_a_fingerprint_is_one() -> None:
    with pytest.raises(IntegrityError, match="fingerprint_is_64_characters"):
        Fingerprint.objects.create(name="pepper", value="short", recorded_at_us=1)


def run(var: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DATABASE_", "GATEBOOK_"))
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**kept, "GATEBOOK_VAR": str(var), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.once
def test_a_terminal_without_the_variables_makes_nothing(tmp_path: Path) -> None:
    done = run(tmp_path / "var", "manage.py", "issue_token", "--agent", "one")
    assert done.returncode == 1
    assert done.stderr.startswith("gatebook: Nothing is set up in the SQLite file ")
    assert [path.name for path in (tmp_path / "var").iterdir()] == []


@pytest.mark.once
def test_a_lost_pepper_stops_commands_and_the_start_and_comes_back_with_its_file(
    tmp_path: Path,
) -> None:
    copy_schema(tmp_path)
    assert "Sign in as admin" in run(tmp_path, "manage.py", "setup").stdout
    token = run(tmp_path, "manage.py", "issue_token", "--agent", "one")
    assert token.stdout.startswith("gbk_")
    pepper = tmp_path / "keys" / "pepper"
    kept = pepper.rename(tmp_path / "kept")
    with own_port() as port:
        for arguments in (
            ["manage.py", "setup"],
            ["manage.py", "sweep_stuck"],
            ["-m", "config.supervisor"],
        ):
            done = run(tmp_path, *arguments, PORT=str(port))
            assert done.returncode == 1, arguments
            assert "The key pepper that this database was written with is not in" in done.stderr
            assert "Traceback" not in done.stderr
    assert not pepper.exists()
    kept.rename(pepper)
    assert run(tmp_path, "manage.py", "setup").returncode == 0


def test_the_place_of_a_database_names_no_secret() -> None:
    assert str(connection.settings_dict["NAME"]) in installation.describe_database_location()
    assert (
        connection.settings_dict.get("PASSWORD") or "no password"
    ) not in installation.describe_database_location()
