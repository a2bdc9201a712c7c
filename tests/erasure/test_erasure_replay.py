"""After a restore the erasure journal is ahead of the database, and a replay erases again."""

import hashlib
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from io import StringIO
from pathlib import Path

import psycopg
import pytest
from axes.models import AccessLog
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from accounts.people import ensure_pseudonym
from api.models import StoredResponse
from config import checks
from db.clock import now_us
from db.ids import new_uuid7
from db.triggers import suspend_triggers
from erasure import erasure_journal, erasure_replay, erasure_requests
from erasure.models import ErasureRequest, LegalHold
from journal.models import Body, Entry, Erasure
from sessions import artifacts
from sessions.models import Artifact, Session
from tests.erasure.conftest import ADDRESS, Office
from tests.erasure.test_erased_everywhere import find_rows, find_traces
from tests.erasure.test_erasure_requests import append_body


@contextmanager
def restored_afterwards(folder: Path) -> Iterator[None]:
    """Take a backup of the database and the stored bytes, and restore it at the end."""
    name = str(connection.settings_dict["NAME"])
    shutil.copytree(folder / "artifacts", folder.parent / "bytes")
    if connection.vendor == "sqlite":
        connection.close()
        backup = folder.parent / "backup.sqlite3"
        with closing(sqlite3.connect(name)) as source, closing(sqlite3.connect(backup)) as target:
            source.backup(target)
        yield
        connection.close()
        with closing(sqlite3.connect(backup)) as source, closing(sqlite3.connect(name)) as target:
            source.backup(target)
        backup.unlink()
    else:
        run_sql(f'CREATE DATABASE "{name}_backup" TEMPLATE "{name}"')
        yield
        run_sql(
            f'DROP DATABASE "{name}" WITH (FORCE)',
            f'ALTER DATABASE "{name}_backup" RENAME TO "{name}"',
        )
    shutil.rmtree(folder / "artifacts")
    shutil.copytree(folder.parent / "bytes", folder / "artifacts")
    shutil.rmtree(folder.parent / "bytes")


def run_sql(*statements: str) -> None:
    """Run statements about whole databases, which no connection may use."""
    values = connection.settings_dict
    connection.close()
    connection.close_pool()  # type: ignore[attr-defined]
    address = {"host": values["HOST"], "user": values["USER"], "dbname": "postgres"}
    with psycopg.connect(**address, autocommit=True) as own:
        for statement in statements:
            own.execute(statement.encode())


def test_a_restored_backup_is_erased_again(office: Office, own_folder: Path) -> None:
    world, content = office.world, f"invoice of {ADDRESS}".encode()
    sha256 = hashlib.sha256(content).hexdigest()
    world.write(Artifact, sha256=sha256, size=len(content), stored_at_us=1)
    bytes_file = artifacts.artifact_path(world.project.id, sha256)
    bytes_file.parent.mkdir(parents=True)
    bytes_file.write_bytes(content)
    position = append_body(office, f"for {ADDRESS}")
    changed = world.write(Session, title=f"before, of {ADDRESS}")
    free = append_body(office, "of nobody")
    alone = append_body(office, "erased alone")
    if connection.vendor == "postgresql":  # rows of earlier tests, which no erasure deleted
        with connection.cursor() as cursor:
            cursor.execute("VACUUM FULL erasure_erasurerequest")
    with restored_afterwards(own_folder):
        # What the backup holds and the erasure does not meet: the digests of the words find it.
        Session.objects.filter(pk=changed.pk).update(title="renamed")
        assert office.erase(ADDRESS).state == "done"
        call_command("erase_body", str(alone), "--reason", "ticket 89")
        assert checks.find_unrepeated_erasures(connection) == []
    assert Body.objects.filter(entry=alone).exists()
    assert Body.objects.filter(entry=position).exists()
    assert bytes_file.exists()
    assert not ErasureRequest.objects.exists()
    (sentence,) = checks.find_unrepeated_erasures(connection)
    assert "manage.py replay_erasures" in sentence
    assert "2 erasures" in sentence
    assert sentence in checks.find_unsafe_start_reasons(connection)

    call_command("replay_erasures")

    assert checks.find_unrepeated_erasures(connection) == []
    assert find_rows() == []
    assert not bytes_file.exists()
    assert Body.objects.filter(entry=free).exists()
    changed.refresh_from_db()
    assert changed.title == "[erased]"
    executed = Entry.objects.filter(kind="erasure.executed", facts__contains='"replayed":true')
    assert executed.count() == 1
    assert Erasure.objects.get(entry=alone).reason == "ticket 89"
    assert not Body.objects.filter(entry=alone).exists()
    assert find_traces(own_folder) == []
    assert erasure_replay.replay_erasures() == []


@pytest.mark.matrix
@pytest.mark.parametrize("email", ["", ADDRESS])
def test_a_restored_person_is_erased_again_with_the_sign_ins(
    office: Office, own_folder: Path, email: str
) -> None:
    person = User.objects.create(username="vera", email=email)
    pseudonym = ensure_pseudonym(person)
    for name in ("vera", "first"):
        AccessLog.objects.create(username=name, ip_address="192.0.2.7")
    (own_folder / "artifacts").mkdir()
    with restored_afterwards(own_folder):
        assert office.erase(person=person).state == "done"
        assert list(AccessLog.objects.values_list("username", flat=True)) == ["first"]
    assert AccessLog.objects.filter(username="vera").exists()
    call_command("replay_erasures")
    assert list(AccessLog.objects.values_list("username", flat=True)) == ["first"]
    person.refresh_from_db()
    assert (person.username, person.email) == (pseudonym, "")


@pytest.mark.matrix
@pytest.mark.parametrize("cause", ["another pepper", "a forged hold"])
def test_a_replay_goes_on_with_holds_that_differ_from_the_journal(
    office: Office,
    own_folder: Path,
    settings: Settings,
    capsys: pytest.CaptureFixture[str],
    cause: str,
) -> None:
    """Gatebook does not start before the replay ended, so nothing could correct the hold first."""
    (own_folder / "artifacts").mkdir()
    position, held = (append_body(office, f"{word} {ADDRESS}") for word in ("for", "case-12 of"))
    hold = erasure_requests.set_legal_hold(
        office.first, office.world.project, reason="case 12", words=["case-12"]
    )
    title = f"of {ADDRESS}"
    changed = office.world.write(Session, title=title)
    with restored_afterwards(own_folder):
        office.erase(ADDRESS)
    if cause == "another pepper":
        settings.GATEBOOK_PEPPER = bytes(32)
    else:
        with transaction.atomic(), suspend_triggers(connection, ["erasure_legalhold"]):
            LegalHold.objects.filter(pk=hold.pk).update(words=["case-12", "another"])
    assert checks.find_unrepeated_erasures(connection) != []

    call_command("replay_erasures")

    assert checks.find_unrepeated_erasures(connection) == []
    bodies = Body.objects.filter(entry__in=[position, held])
    assert list(bodies.values_list("entry", flat=True)) == [held]
    changed.refresh_from_db()
    assert changed.title == (title if cause == "another pepper" else "[erased]")
    warning = capsys.readouterr().err
    assert f"legal hold in force (entry {hold.set_position})" in warning
    assert "If the pepper was replaced, set each hold of words again" in warning


def test_a_cut_line_of_the_erasure_journal_is_skipped(office: Office, settings: Settings) -> None:
    office.erase(ADDRESS)
    path = erasure_journal.journal_path()
    assert path == settings.GATEBOOK_ERASURE_JOURNAL
    path.write_bytes(path.read_bytes() + b'{"v":1,"line":"bod')
    office.erase("another")
    assert [line["line"] for line in erasure_journal.read_lines()] == ["request", "executed"] * 2
    assert len(erasure_replay.read_journalled_erasures()) == 2
    path.unlink()
    assert erasure_replay.count_unjournalled_erasures() == 2
    errors = StringIO()
    call_command("replay_erasures", "--dry-run", stderr=errors)
    assert "lacks 2 erasures of this database" in errors.getvalue()


def test_a_body_stays_if_its_line_cannot_be_written(
    office: Office, own_folder: Path, settings: Settings
) -> None:
    position = append_body(office, "erased alone")
    settings.GATEBOOK_ERASURE_JOURNAL = own_folder / "mail"
    (own_folder / "mail").mkdir()
    with pytest.raises(CommandError, match="Nothing is erased: make the file writable"):
        call_command("erase_body", str(position), "--reason", "ticket 89")
    person, page = Client(), reverse("erase_body", args=[position])
    person.force_login(office.first)
    answer = person.post(page, {"reason": "ticket 89"})
    assert (answer.status_code, "Nothing is erased" in answer.text) == (503, True)
    assert Body.objects.filter(entry=position).exists()
    assert not Erasure.objects.filter(entry=position).exists()

    settings.GATEBOOK_ERASURE_JOURNAL = own_folder / "erasures.jsonl"
    entry, other = Entry.objects.get(position=position), new_uuid7().hex
    for key in (entry.event_id, other):  # the answer to its command may repeat the text
        StoredResponse.objects.create(
            project=entry.project,
            source=entry.source,
            key=key,
            status=201,
            body='{"title":"erased alone"}',
            created_us=now_us(),
        )
    assert person.post(page, {"reason": "ticket 89"}).status_code == 302
    assert list(StoredResponse.objects.values_list("key", flat=True)) == [other]
    (line,) = erasure_journal.read_lines()
    assert (line["line"], line["entry"], line["reason"]) == ("body", position, "ticket 89")
    assert erasure_replay.find_returned_bodies() == []
