"""Owner and application as two roles of PostgreSQL."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db.backends.postgresql.base import DatabaseWrapper as PostgreSQL
from psycopg import errors
from pytest_django import DjangoDbBlocker, Settings

from config import checks
from db import embedded_postgres, url
from db.postgres import excess_rights
from tests.config.server import ROOT
from tests.config.test_durability import DEFAULTS


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Make a cluster for this module, because roles belong to a cluster."""
    folder = Path(tempfile.mkdtemp(prefix="gatebook-roles-", dir="/var/tmp"))
    embedded_postgres.start_embedded_server(folder)
    yield folder
    embedded_postgres.stop_embedded_server(folder)
    shutil.rmtree(folder)


PARTITIONS_ARE_THE_OWNERS = (
    "SELECT text FROM journal_body_0",
    "UPDATE journal_body_0 SET text = ''",
    "DELETE FROM journal_body_0",
    "INSERT INTO journal_body_rest VALUES (1, '', '')",
    "TRUNCATE journal_body_0",
    "DROP TABLE journal_body_1",
    "ALTER TABLE journal_body DETACH PARTITION journal_body_1",
    "ALTER FUNCTION journal_drop_body_partition(bigint) SECURITY INVOKER",
)
ERASE_EVERYTHING = """
import os, sys, django
os.environ["DJANGO_SETTINGS_MODULE"] = "tests.config.settings"
django.setup()
from tests.config import erasing_application
print(erasing_application.erase_everything(sys.argv[1]))
"""
# What an owner or a superuser does -> how to undo it, and how the check names it.
EXCESS = {
    "GRANT UPDATE, DELETE ON journal_entry TO application": (
        "REVOKE UPDATE, DELETE ON journal_entry FROM application",
        "UPDATE, DELETE on journal_entry",
    ),
    "GRANT UPDATE (kind) ON journal_entry TO application": (
        "REVOKE UPDATE (kind) ON journal_entry FROM application",
        "UPDATE on journal_entry",
    ),
    "GRANT UPDATE ON journal_body TO PUBLIC": (
        "REVOKE UPDATE ON journal_body FROM PUBLIC",
        "UPDATE on journal_body",
    ),
    "GRANT TRUNCATE, TRIGGER ON accounts_agent TO application": (
        "REVOKE TRUNCATE, TRIGGER ON accounts_agent FROM application",
        "TRUNCATE, TRIGGER on accounts_agent",
    ),
    "GRANT DELETE ON journal_body_0 TO application": (
        "REVOKE DELETE ON journal_body_0 FROM application",
        "DELETE on journal_body_0",
    ),
    "ALTER TABLE journal_outbox OWNER TO application": (
        "ALTER TABLE journal_outbox OWNER TO owner",
        "it owns journal_outbox",
    ),
    "ALTER FUNCTION journal_refuse_change() OWNER TO application": (
        "ALTER FUNCTION journal_refuse_change() OWNER TO owner",
        "it owns journal_refuse_change()",
    ),
    "ALTER DATABASE gatebook OWNER TO application": (
        "ALTER DATABASE gatebook OWNER TO owner",
        "database gatebook",
    ),
    "GRANT owner TO application": (
        "REVOKE owner FROM application",
        "it is a member of owner, which owns accounts_agent, ",
    ),
    "ALTER ROLE application NOINHERIT; GRANT postgres TO application": (
        "REVOKE postgres FROM application; ALTER ROLE application INHERIT",
        "it is a member of postgres, a superuser",
    ),
    "GRANT pg_write_all_data TO application": (
        "REVOKE pg_write_all_data FROM application",
        "it is a member of pg_write_all_data",
    ),
    "ALTER ROLE application SUPERUSER": (
        "ALTER ROLE application NOSUPERUSER",
        "remove its guards: it is a superuser",
    ),
    "ALTER ROLE application CREATEROLE": (
        "ALTER ROLE application NOCREATEROLE",
        "it may create roles",
    ),
    "ALTER ROLE application SET session_replication_role = replica": (
        "ALTER ROLE application RESET session_replication_role",
        "its session_replication_role is replica: triggers do not run",
    ),
    "ALTER ROLE application IN DATABASE gatebook SET session_replication_role = local": (
        "ALTER ROLE application IN DATABASE gatebook RESET session_replication_role",
        "its session_replication_role is local: triggers do not run",
    ),
    "GRANT SET ON PARAMETER session_replication_role TO application": (
        "REVOKE SET ON PARAMETER session_replication_role FROM application",
        "it may set session_replication_role",
    ),
}
OLDER_ROWS = """
WITH made AS (
  INSERT INTO journal_entry (project, source, claimed_source, id, kind, actor, lane, received_us,
    facts, schema_version)
  SELECT gen_random_uuid(), 'robot', '', 'old' || n, 'note.claimed', 'agent:1', 'evidence', 1,
    '{}', 1 FROM generate_series(1, 7) n RETURNING position)
INSERT INTO journal_body SELECT position, decode(repeat('07', 32), 'hex'), 'old' FROM made
"""
ROWS = "SELECT entry_id, salt, text FROM journal_body ORDER BY entry_id"


def run(
    folder: Path, var: Path, *arguments: str, user: str = "", database: str = "gatebook"
) -> str:
    """Run a program with two roles, or with one `user`; return its output."""
    host = urlsplit(embedded_postgres.start_embedded_server(folder)).netloc.partition("@")[2]
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "DATABASE_URL": f"postgres://{user or 'application'}@{host}/{database}",
            "DATABASE_OWNER_URL": "" if user else f"postgres://owner@{host}/{database}",
            "GATEBOOK_VAR": str(var),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def var(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Set up Gatebook with two roles; return its folder of files."""
    var = tmp_path_factory.mktemp("var")
    with psycopg.connect(
        host=str(folder), user="postgres", dbname="gatebook", autocommit=True
    ) as connection:
        connection.execute("CREATE ROLE owner LOGIN")
        connection.execute("CREATE ROLE application LOGIN")
        connection.execute("ALTER DATABASE gatebook OWNER TO owner")
    assert "Sign in as admin" in run(folder, var, "manage.py", "setup")
    return var


def test_the_application_adds_to_history_and_can_neither_change_nor_unguard_it(
    folder: Path, var: Path
) -> None:
    assert run(folder, var, "manage.py", "setup") == ""
    assert run(folder, var, "manage.py", "issue_token", "--agent", "one").startswith("gbk_")
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
            *PARTITIONS_ARE_THE_OWNERS,
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(statement)
        made = connection.execute("SELECT journal_make_body_partitions()").fetchone()
        assert made == (0,)  # setup made them
        connection.execute(
            "SELECT nextval('journal_entry_position_seq') FROM generate_series(1, 9)"
        )
        with pytest.raises(errors.ObjectInUse, match="partition 0 of journal_body is in use"):
            connection.execute("SELECT journal_drop_body_partition(0)")
        for name in ("x; DROP TABLE journal_body_1", "-1", "1 OR TRUE"):
            with pytest.raises((errors.InvalidTextRepresentation, errors.UndefinedObject)):
                connection.execute("SELECT journal_drop_body_partition(%s)", [name])


@pytest.mark.matrix
def test_the_application_erases_and_the_owner_rewrites_and_restores(
    folder: Path, var: Path
) -> None:
    with psycopg.connect(
        host=str(folder), user="postgres", dbname="gatebook", autocommit=True
    ) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute("UPDATE accounts_membership SET role = 'viewer'")
    assert "restored" in run(folder, var, "manage.py", "rebuild")
    done = run(folder, var, "-c", ERASE_EVERYTHING, str(folder))
    assert done.splitlines()[-1] == "application ['scrubbing', 'scrubbing', 'scrubbing']"
    assert run(folder, var, "manage.py", "vacuum_erased") == "The files hold no erased text."


@pytest.fixture
def connect_as(
    folder: Path, var: Path, django_db_blocker: DjangoDbBlocker
) -> Iterator[Callable[[str], PostgreSQL]]:
    """Connect to the database as a role."""
    host = urlsplit(embedded_postgres.start_embedded_server(folder)).netloc.partition("@")[2]
    made = []

    def connect(role: str) -> PostgreSQL:
        address = url.build_database_settings(f"postgres://{role}@{host}/gatebook", var, var, 2)
        options = {**address["OPTIONS"], "pool": False}
        made.append(PostgreSQL({**DEFAULTS, **address, "OPTIONS": options}, "apart"))
        return made[-1]

    with django_db_blocker.unblock():
        yield connect
        for connection in made:
            connection.close()


def test_the_check_names_each_right_beyond_those_of_setup(
    folder: Path, connect_as: Callable[[str], PostgreSQL]
) -> None:
    assert excess_rights.find_excess_rights(connect_as("application")) == []
    assert excess_rights.find_excess_rights(connect_as("owner")) == []
    with psycopg.connect(
        host=str(folder), user="postgres", dbname="gatebook", autocommit=True
    ) as superuser:
        for statement, (undone, words) in EXCESS.items():
            superuser.execute(statement.encode())
            (sentence,) = checks.find_needless_rights(connect_as("application"))
            superuser.execute(undone.encode())
            assert words in sentence, statement
    assert checks.find_needless_rights(connect_as("application")) == []


def test_a_single_role_that_owns_all_has_nothing_to_find(
    connect_as: Callable[[str], PostgreSQL], settings: Settings
) -> None:
    owner = connect_as("owner")
    with owner.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM journal_entry")
    assert checks.find_needless_rights(owner) == []
    settings.OWNER_ROLE = "another"  # two roles are set up, and the application's took all tables
    assert "it owns accounts_agent, " in checks.find_needless_rights(owner)[0]


@pytest.mark.matrix
def test_the_command_warns_and_fails_at_the_level_of_warnings_and_setup_takes_rights_back(
    folder: Path, var: Path
) -> None:
    check = ("manage.py", "check", "--database", "default")
    with psycopg.connect(
        host=str(folder), user="postgres", dbname="gatebook", autocommit=True
    ) as superuser:
        superuser.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO application")
    run(folder, var, *check)  # a warning is no failure
    with pytest.raises(AssertionError, match=r"gatebook\.W004"):
        run(folder, var, *check, "--fail-level", "WARNING")
    run(folder, var, "manage.py", "setup")
    run(folder, var, *check, "--fail-level", "WARNING")


def test_the_owner_grants_what_an_auditor_reads(folder: Path, var: Path) -> None:
    with psycopg.connect(
        host=str(folder), user="postgres", dbname="gatebook", autocommit=True
    ) as superuser:
        superuser.execute("CREATE ROLE auditor LOGIN")
    assert "auditor can read" in run(folder, var, "manage.py", "audit_role", "auditor", "--apply")
    with psycopg.connect(host=str(folder), user="auditor", dbname="gatebook") as auditor:
        auditor.execute("SELECT kind FROM journal_entry")
        with pytest.raises(errors.InsufficientPrivilege):
            auditor.execute("SELECT text FROM journal_body")


@pytest.mark.matrix
def test_rows_of_an_older_database_are_in_its_first_partition(folder: Path, tmp_path: Path) -> None:
    """Migration 0004 attaches the old table: it copies no row, and later ones go elsewhere."""
    with psycopg.connect(
        host=str(folder), user="postgres", dbname="gatebook", autocommit=True
    ) as connection:
        connection.execute("CREATE DATABASE older")
    one_role = {"user": "postgres", "database": "older"}
    run(folder, tmp_path, "manage.py", "migrate", "journal", "0003", **one_role)
    with psycopg.connect(host=str(folder), user="postgres", dbname="older") as connection:
        connection.execute("SELECT setval('journal_entry_position_seq', 3 << 20)")
        connection.execute(OLDER_ROWS)
        before = connection.execute(ROWS).fetchall()
        file = connection.execute("SELECT pg_relation_filenode('journal_body')").fetchone()
    assert "Sign in as admin" in run(folder, tmp_path, "manage.py", "setup", **one_role)
    with psycopg.connect(host=str(folder), user="postgres", dbname="older") as connection:
        assert connection.execute(ROWS).fetchall()[: len(before)] == before
        assert len(before) == 7
        same = connection.execute("SELECT pg_relation_filenode('journal_body_0')").fetchone()
        assert same == file
        bounds = connection.execute(
            "SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname ~ '^journal_body_[0-9]'"
            " AND relispartition ORDER BY length(relname), relname"
        ).fetchall()
        assert bounds[:2] == [
            ("FOR VALUES FROM (MINVALUE) TO ('4194304')",),
            ("FOR VALUES FROM ('4194304') TO ('5242880')",),
        ]
        connection.execute("SELECT setval('journal_entry_position_seq', 4 << 20)")
        connection.execute(OLDER_ROWS.replace("'old", "'new"))
        rows = connection.execute(
            "SELECT DISTINCT tableoid::regclass::text FROM journal_body WHERE text = 'new'"
        ).fetchall()
        assert rows == [("journal_body_4",)]
