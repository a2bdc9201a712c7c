"""Each reason not to start, with real settings where possible."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core import checks
from django.db import NotSupportedError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.base import DatabaseWrapper as PostgreSQL
from pytest_django import DjangoDbBlocker

from config import checks as config_checks
from db import embedded_postgres, url
from db.sqlite.base import DatabaseWrapper as SQLite

ROOT = Path(__file__).resolve().parents[2]
DEFAULTS: dict[str, Any] = {
    "TIME_ZONE": None,
    "CONN_MAX_AGE": 0,
    "CONN_HEALTH_CHECKS": False,
    "AUTOCOMMIT": True,
    "TEST": {},
    "HOST": "",
    "PORT": "",
    "USER": "",
    "PASSWORD": "",
    "ATOMIC_REQUESTS": False,
    "OPTIONS": {},
}


def sentence_about(words: str, connection: BaseDatabaseWrapper) -> str:
    sentences = [
        sentence for sentence in config_checks.find_unsafe_settings(connection) if words in sentence
    ]
    assert len(sentences) == 1, config_checks.find_unsafe_settings(connection)
    return sentences[0]


@pytest.fixture
def sqlite(tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[SQLite]:
    wrapper = SQLite({**DEFAULTS, "NAME": str(tmp_path / "a.sqlite3")}, "apart")
    with django_db_blocker.unblock():
        yield wrapper
        wrapper.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PostgreSQL server for this module, because its settings would affect every other test."""
    import shutil
    import tempfile

    # Not below pytest's folder: under root, PostgreSQL runs as a user without access to that folder.
    folder = Path(tempfile.mkdtemp(prefix="gatebook-durability-", dir="/var/tmp"))
    yield embedded_postgres.start_embedded_server(folder)
    embedded_postgres.stop_embedded_server(folder)
    shutil.rmtree(folder)


@pytest.fixture
def postgresql(cluster: str, django_db_blocker: DjangoDbBlocker) -> Iterator[PostgreSQL]:
    wrapper = PostgreSQL(
        {**DEFAULTS, **url.build_database_settings(cluster, Path(), Path(), 2), "OPTIONS": {}},
        "apart",
    )
    with django_db_blocker.unblock():
        yield wrapper
        wrapper.close()


def reload(postgresql: PostgreSQL, statement: str, setting: str, value: str) -> None:
    """Change a setting of the cluster; return when this connection has the new value."""
    until = time.monotonic() + 60
    with postgresql.cursor() as cursor:
        cursor.execute(statement)
        cursor.execute("SELECT pg_reload_conf()")
        while cursor.execute(f"SHOW {setting}").fetchone() != (value,):
            assert time.monotonic() < until, f"{setting} is not {value} yet"
            time.sleep(0.02)


def test_a_fresh_database_of_either_kind_is_safe(sqlite: SQLite, postgresql: PostgreSQL) -> None:
    assert config_checks.find_unsafe_settings(sqlite) == []
    assert config_checks.find_unsafe_settings(postgresql) == []


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes", "synchronous_commit"])
def test_postgresql_with_a_guard_switched_off_is_refused(
    postgresql: PostgreSQL, setting: str
) -> None:
    reload(postgresql, f"ALTER SYSTEM SET {setting} = off", setting, "off")
    try:
        sentence = sentence_about(f"{setting} off", postgresql)
        assert f"Set {setting} = on in postgresql.conf" in sentence
    finally:
        reload(postgresql, f"ALTER SYSTEM RESET {setting}", setting, "on")
    assert config_checks.find_unsafe_settings(postgresql) == []


def test_a_role_that_does_not_wait_for_its_commits_is_refused(postgresql: PostgreSQL) -> None:
    with postgresql.cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")
    assert "RESET synchronous_commit" in sentence_about("synchronous_commit off", postgresql)


def test_a_database_that_cannot_hold_every_text_is_refused(
    cluster: str, postgresql: PostgreSQL
) -> None:
    with postgresql.cursor() as cursor:
        cursor.execute(
            "CREATE DATABASE narrow ENCODING 'LATIN1' LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE "
            "template0"
        )
    narrow = PostgreSQL({**postgresql.settings_dict, "NAME": "narrow"}, "narrow")
    try:
        assert "ENCODING 'UTF8'" in sentence_about("LATIN1", narrow)
    finally:
        narrow.close()


def test_an_old_postgresql_is_refused(
    postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_checks, "MIN_POSTGRESQL", 99)
    assert "is too old. Move the data to PostgreSQL 99 or newer" in sentence_about(
        "too old", postgresql
    )

    def refuse(self: PostgreSQL) -> None:
        raise NotSupportedError("PostgreSQL 14 or later is required (found 13.4)")

    monkeypatch.setattr(PostgreSQL, "ensure_connection", refuse)
    assert config_checks.find_unsafe_start_reasons(postgresql) == [
        "PostgreSQL 14 or later is required (found 13.4). "
        "Move the data to PostgreSQL 99 or newer and point DATABASE_URL there."
    ]


@pytest.mark.parametrize("level", ["OFF", "NORMAL"])
def test_sqlite_that_does_not_wait_for_the_disk_is_refused(sqlite: SQLite, level: str) -> None:
    with sqlite.cursor() as cursor:
        cursor.execute(f"PRAGMA synchronous = {level}")
    assert "set it to FULL" in sentence_about("synchronous below FULL", sqlite)


def test_sqlite_on_a_network_file_system_is_refused(
    sqlite: SQLite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/export {tmp_path.resolve()} nfs4 rw 0 0\n")
    monkeypatch.setattr(config_checks, "MOUNTS", mounts)
    assert "(nfs4)" in sentence_about("network file system", sqlite)
    assert "Set GATEBOOK_VAR to a folder on a local disk" in sentence_about(
        "network file system", sqlite
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("server:/x /data nfs rw 0 0", "nfs"),
        ("//server/x /data cifs rw 0 0", "cifs"),
        ("host /data 9p rw 0 0", "9p"),
        ("me@host: /data fuse.sshfs rw 0 0", "fuse.sshfs"),
        ("/dev/sda1 /data ext4 rw 0 0", None),
        ("overlay /data overlay rw 0 0", None),
        ("/dev/fuse /data fuse.lxcfs rw 0 0", None),
        ("server:/x /database nfs rw 0 0", None),
        ("server:/x /data/a\\040b nfs rw 0 0", "nfs"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(line: str, expected: str | None) -> None:
    mounts = f"/dev/vda / ext4 rw 0 0\n{line}\n"
    assert config_checks.find_network_file_system("/data/a b/gatebook.sqlite3", mounts) == expected


def test_a_later_mount_hides_an_earlier_one() -> None:
    mounts = "server:/x /data nfs rw 0 0\n/dev/sda1 /data ext4 rw 0 0\n"
    assert config_checks.find_network_file_system("/data/a", mounts) is None


@pytest.mark.django_db
def test_a_missing_trigger_is_refused_by_name() -> None:
    assert config_checks.find_unsafe_start_reasons(connection) == []
    with connection.cursor() as cursor:
        table = " ON journal_entry" if connection.vendor == "postgresql" else ""
        cursor.execute(f"DROP TRIGGER journal_entry_never_changes{table}")
    (sentence,) = config_checks.find_unsafe_start_reasons(connection)
    assert "journal_entry_never_changes are missing" in sentence
    assert "Run `manage.py migrate`" in sentence


@pytest.mark.once
def test_a_first_migration_warns_of_nothing(tmp_path: Path) -> None:
    migrated = subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": "", "GATEBOOK_VAR": str(tmp_path / "var")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (migrated.stdout, migrated.stderr) == ("", "")


@pytest.mark.django_db
def test_the_findings_are_system_checks_and_migrate_can_repair() -> None:
    assert checks.run_checks(tags=["database"], databases=["default"]) == []
    with connection.cursor() as cursor:
        table = " ON journal_entry" if connection.vendor == "postgresql" else ""
        cursor.execute(f"DROP TRIGGER journal_entry_never_changes{table}")
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL synchronous_commit = off")
    findings = {
        message.id: message
        for message in checks.run_checks(tags=["database"], databases=["default"])
    }
    assert not findings["gatebook.W001"].is_serious(checks.ERROR)
    assert ("gatebook.E001" in findings) is (connection.vendor == "postgresql")
