"""Owner and application as two roles of PostgreSQL."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import errors

from db import embedded_postgres
from tests.config.server import ROOT


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Make a cluster for this module, because roles belong to a cluster."""
    folder = Path(tempfile.mkdtemp(prefix="gatebook-roles-", dir="/var/tmp"))
    embedded_postgres.start_embedded_server(folder)
    yield folder
    embedded_postgres.stop_embedded_server(folder)
    shutil.rmtree(folder)


def run(folder: Path, var: Path, *arguments: str) -> str:
    host = urlsplit(embedded_postgres.start_embedded_server(folder)).netloc.partition("@")[2]
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "DATABASE_URL": f"postgres://application@{host}/gatebook",
            "DATABASE_OWNER_URL": f"postgres://owner@{host}/gatebook",
            "GATEBOOK_VAR": str(var),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_application_adds_to_history_and_can_neither_change_nor_unguard_it(
    folder: Path, tmp_path: Path
) -> None:
    with psycopg.connect(
        host=str(folder), user="postgres", dbname="gatebook", autocommit=True
    ) as connection:
        connection.execute("CREATE ROLE owner LOGIN")
        connection.execute("CREATE ROLE application LOGIN")
        connection.execute("ALTER DATABASE gatebook OWNER TO owner")
    assert "Sign in as admin" in run(folder, tmp_path, "manage.py", "setup")
    assert run(folder, tmp_path, "manage.py", "setup") == ""
    assert run(folder, tmp_path, "manage.py", "issue_token", "--agent", "one").startswith("gbk_")
    with psycopg.connect(
        host=str(folder), user="application", dbname="gatebook", autocommit=True
    ) as connection:
        row = connection.execute("SELECT count(*) FROM journal_entry").fetchone()
        assert row is not None
        assert row[0] > 0
        for statement in (
            "UPDATE journal_entry SET kind = kind",
            "DELETE FROM journal_entry",
            "TRUNCATE journal_entry",
            "DROP TRIGGER journal_entry_never_changes ON journal_entry",
            "ALTER TABLE journal_entry DISABLE TRIGGER ALL",
            "UPDATE journal_body SET entry_id = entry_id",
            "DELETE FROM journal_erasure",
            "DELETE FROM django_migrations",
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(statement)
