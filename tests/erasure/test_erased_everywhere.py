"""An address that is planted in every text is in no file and no row after its erasure."""

import gzip
import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from axes.models import AccessLog
from django.contrib.sessions.backends.db import SessionStore
from django.core.mail import EmailMessage
from django.core.mail.backends.filebased import EmailBackend
from django.core.management import CommandError, call_command
from django.db import connection

from erasure import storage_scrub
from erasure.erasure_files import MOST_UNPACKED, UnpackLimit, read_unpacked
from erasure.text_columns import TEXT_TABLES, TextTable, Treatment
from investigation.exports import exports
from investigation.fulltext import indexer
from investigation.models import Export
from journal import entries
from journal.models import Body, Entry, Erasure
from sessions import artifacts
from sessions.models import Artifact
from tests.erasure.conftest import ADDRESS, PATIENT_S, TRACE, Office, run_all
from tests.ledger.rows_by_hand import VALID_ROWS, World

PLANTED = {Treatment.MARK, Treatment.BLANK, Treatment.NAME, Treatment.JSON, Treatment.JSON_TEXT}

# What a constraint requires with the planted values.
MORE = {"investigation.Alert": {"stopped_at_us": 1}}


def plant_value(table: TextTable, name: str) -> Any:
    """Return a value of the column that contains the address."""
    column: Any = table.model._meta.get_field(name)
    if table.columns[name] is Treatment.JSON:
        return {"a": [f"to {ADDRESS}"], "b": 7} if column.default is not list else [ADDRESS, "b"]
    if table.columns[name] is Treatment.JSON_TEXT:
        return f'[["mail","{ADDRESS}"]]' if name == "compared" else f'{{"sender":"{ADDRESS}"}}'
    return ADDRESS if (column.max_length or 99) < 60 else f"For {ADDRESS.upper()}"


def plant_rows(office: Office) -> list[tuple[TextTable, Any]]:
    """Write a row of every table with the address in every column that an erasure changes."""
    world, planted = office.world, []
    for table in TEXT_TABLES:
        names = [
            name
            for name, what in table.columns.items()
            if what in PLANTED or (what is Treatment.ROW and table.model in VALID_ROWS)
        ]
        if not names or table.model not in VALID_ROWS:
            continue
        values = {name: plant_value(table, name) for name in names} | MORE.get(table.label, {})
        if table.project == "project":  # no foreign key
            values["project"] = world.project.id
        row = world.write(table.model, **values)
        planted.append((table, row.pk))
    return planted


def plant_bodies(office: Office) -> list[int]:
    """Append entries whose bodies hold the address in the ways in which clients write it."""
    world = office.world
    texts = [
        {"arguments": {"to": ADDRESS, "cc": [ADDRESS.upper()]}},
        {"result": f"sent\nto\n{ADDRESS}\n"},
        {
            "error": "550 <jane%2Eq7xkvz%40customer.example>",
            "url": "/u/jane.q7xkvz%40customer.example",
        },
        {"meta": {ADDRESS: 1}},
        {"raw": '{"to":"jane.q7xkvz\\u0040customer.example"}'},
        {"reason": f"Asked by {ADDRESS.title()}."},
    ]
    kinds = ["effect.planned", "effect.acknowledged", "effect.failed", "session.described"]
    kinds += ["note.claimed", "gate.voted"]
    drafts = [
        entries.Draft(
            world.project.id,
            "deploy-7",
            f"plant-{number}",
            kinds[number],
            "claim" if kinds[number] == "note.claimed" else "evidence",
            "agent:1",
            entries.dump_sorted_json(text),
            session=world.session.id,
            effect=world.effect.id if number < 3 else None,
        )
        for number, text in enumerate(texts)
    ]
    return [result.position for result in entries.append_entries(drafts, 1_700_000_000_000_000)]


def plant_files(office: Office, folder: Path) -> list[Path]:
    """Store bytes, an export and a mail that contain the address."""
    world, content = office.world, b"%PDF\x00 invoice for " + ADDRESS.encode() + b"\n"
    sha256 = hashlib.sha256(content).hexdigest()
    world.write(Artifact, sha256=sha256, size=len(content), stored_at_us=1)
    bytes_file = artifacts.artifact_path(world.project.id, sha256)
    bytes_file.parent.mkdir(parents=True)
    bytes_file.write_bytes(content)
    packed = store_packed(world)
    export = world.write(
        Export, state="done", size=3, ended_at_us=1, sha256="0" * 64, text="state:planned"
    )
    exports.export_path(export).write_bytes(content)
    mails = EmailBackend(file_path=str(folder / "mail"))
    mails.send_messages(
        [
            EmailMessage(
                "Approve", f"Grüße, {ADDRESS} waits", "gatebook@localhost", ["rita@example.org"]
            )
        ]
    )
    return [bytes_file, packed, exports.export_path(export), *(folder / "mail").iterdir()]


def store_packed(world: World) -> Path:
    """Store a zip in a gzip, which hold the address compressed."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("letter.txt", f"Dear {ADDRESS}, " * 20)
    content = gzip.compress(archive.getvalue())
    assert TRACE not in content + archive.getvalue()
    sha256 = hashlib.sha256(content).hexdigest()
    world.write(Artifact, sha256=sha256, size=len(content), stored_at_us=1)
    path = artifacts.artifact_path(world.project.id, sha256)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def plant_sign_in(office: Office) -> str:
    login = SessionStore()
    login["draft"] = {"reason": f"as {ADDRESS} asked"}
    login.save()
    AccessLog.objects.create(username="first", user_agent=f"bot ({ADDRESS})", path_info="/")
    return str(login.session_key)


def read_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every file of the folder, with what it compresses, and the database's own."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                yield str(path), b"".join(read_unpacked(file, UnpackLimit(MOST_UNPACKED)))
    if connection.vendor == "sqlite":
        database = Path(str(connection.settings_dict["NAME"]))
        for path in (database, database.with_name(f"{database.name}-wal")):
            if path.exists():
                yield str(path), path.read_bytes()
        return
    with connection.cursor() as cursor:
        cursor.execute("CHECKPOINT")
        cursor.execute(
            "SELECT current_setting('data_directory'), oid FROM pg_database"
            " WHERE datname = current_database()"
        )
        data, oid = cursor.fetchone()
    for path in sorted((Path(data) / "base" / str(oid)).iterdir()):
        if path.is_file():
            yield str(path), path.read_bytes()


def find_traces(folder: Path) -> list[str]:
    return [name for name, content in read_files(folder) if TRACE in content.lower()]


def find_rows(*traces: bytes) -> list[str]:
    """Return the tables and columns in which a row holds a trace, as text."""
    traces = traces or (TRACE,)
    holders = []
    for table in connection.introspection.table_names():
        with connection.cursor() as cursor:
            cursor.execute(f'SELECT * FROM "{table}"')
            names = [column[0] for column in cursor.description]
            for row in cursor.fetchall():
                for name, value in zip(names, row, strict=True):
                    text = (
                        bytes(value)
                        if isinstance(value, bytes | memoryview)
                        else str(value).encode()
                    )
                    if any(trace in text.lower() for trace in traces):
                        holders.append(f"{table}.{name}")
    return sorted(set(holders))


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one file a database")
def test_a_transaction_of_another_database_delays_the_end(
    office: Office, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VACUUM keeps what it deletes while an older transaction of the server runs."""
    plant_bodies(office)
    values = connection.settings_dict
    address = {"host": values["HOST"], "user": values["USER"], "dbname": "postgres"}
    with psycopg.connect(**address) as other:
        other.execute("SELECT pg_current_xact_id()")
        monkeypatch.setattr(storage_scrub, "WAIT_S", 0.2)
        request = office.erase(ADDRESS)
        assert (request.state, find_rows()) == ("scrubbing", [])
        with pytest.raises(
            CommandError, match=r"still runs on this PostgreSQL server \(.*process \d+ of postgres"
        ):
            call_command("vacuum_erased")
    monkeypatch.setattr(storage_scrub, "WAIT_S", PATIENT_S)
    run_all()
    request.refresh_from_db()
    assert request.state == "done"
    assert find_traces(own_folder) == []


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no statistics")
def test_a_transaction_that_may_see_deleted_statistics_delays_the_end(
    office: Office, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_bodies(office)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    values, delete_statistics = connection.settings_dict, storage_scrub._delete_statistics
    address = {"host": values["HOST"], "user": values["USER"], "dbname": "postgres"}
    with psycopg.connect(**address) as other:

        def begin_and_delete(cursor: object, table: str) -> None:
            other.execute("SELECT pg_current_xact_id()")
            # From now on: before, it waits for transactions of other tests.
            monkeypatch.setattr(storage_scrub, "WAIT_S", 0.2)
            delete_statistics(cursor, table)

        monkeypatch.setattr(storage_scrub, "_delete_statistics", begin_and_delete)
        request = office.erase(ADDRESS)
        assert (request.state, find_rows()) == ("scrubbing", [])
    monkeypatch.setattr(storage_scrub, "_delete_statistics", delete_statistics)
    monkeypatch.setattr(storage_scrub, "WAIT_S", PATIENT_S)
    run_all()
    request.refresh_from_db()
    assert request.state == "done"
    assert find_traces(own_folder) == []


def test_an_address_in_every_text_is_gone_from_rows_and_files(
    office: Office, own_folder: Path
) -> None:
    planted, positions = plant_rows(office), plant_bodies(office)
    files, login = plant_files(office, own_folder), plant_sign_in(office)
    indexer.update_index()
    if connection.vendor == "postgresql":  # its statistics have frequent values
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    assert len(planted) >= 28
    assert len(find_rows()) >= 50
    traces = find_traces(own_folder)
    assert {str(path) for path in files} <= {*traces}
    assert {*traces} - {str(path) for path in files}  # those of the database
    commitments = dict(Entry.objects.values_list("position", "body_commit"))

    request = office.request(ADDRESS)
    shown = {name: count["rows"] for name, count in request.counts.items() if count["rows"]}
    bodies = Body.objects.filter(text__icontains="q7xkvz").count()
    assert shown["bodies"] == bodies >= len(positions)
    assert shown["artifacts"] == 2
    assert {"titles", "state", "saved", "hosts", "archives", "answers", "sign_ins"} <= set(shown)
    assert sum(shown.values()) >= len(planted) + len(positions)
    request = office.confirm(request)

    assert request.state == "done"
    assert request.words == []
    assert find_rows() == []
    assert [path for path in files if path.exists()] == []
    assert not SessionStore().exists(login)
    assert find_traces(own_folder) == []

    assert Erasure.objects.filter(entry__in=positions).count() == len(positions)
    assert not Body.objects.filter(entry__in=positions).exists()
    for position, commitment in commitments.items():
        assert Entry.objects.get(position=position).body_commit == commitment
    assert request.executed_position is not None
    executed = Entry.objects.get(position=request.executed_position)
    assert executed.kind == "erasure.executed"
    # One more than in the preview: that a person's identity was removed is an entry of its own.
    assert f'"bodies":{bodies + 1}' in executed.facts
    assert TRACE not in executed.facts.encode()
