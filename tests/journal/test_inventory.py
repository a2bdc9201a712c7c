"""A database of other migrations is refused with the difference: by /readyz, at start and by
`setup`."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from django.core import checks
from django.db import connection
from django.test import Client, override_settings

from config import checks as config_checks
from db import schema_inventory, triggers
from evaluation.bench.installation import own_port
from tests.config.server import ROOT

pytestmark = pytest.mark.django_db
POSTGRESQL = connection.vendor == "postgresql"


@pytest.fixture(autouse=True)
def _read_again() -> None:
    schema_inventory.clear_schema_cache()


def execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    schema_inventory.clear_schema_cache()


def rewrite(old: str, new: str) -> None:
    """Change the stored definition of a SQLite table, for which there is no ALTER statement."""
    execute("PRAGMA writable_schema = ON")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE sqlite_master SET sql = replace(sql, %s, %s)", [old, new])
        assert cursor.rowcount
    execute("PRAGMA writable_schema = OFF")


def test_the_recorded_schema_is_that_of_the_migrations() -> None:
    """When this fails, run `make schema` and check the difference."""
    wanted, present = (
        schema_inventory.load_expected_inventory(connection.vendor),
        schema_inventory.read_inventory(connection),
    )
    assert schema_inventory.compare_inventories(wanted, present) == []
    plain = [
        {item: schema_inventory.normalize_definition(text) for item, text in texts.items()}
        for texts in (wanted, present)
    ]
    assert plain[0] == plain[1]


DIFFERENT = {
    "column": (
        ("ALTER TABLE accounts_person DROP COLUMN single_keys",),
        "the column accounts_person.single_keys is missing",
    ),
    "added": (
        ("ALTER TABLE accounts_person ADD COLUMN older integer",),
        "the column accounts_person.older is not expected",
    ),
    "unique index": (
        ("DROP INDEX effect_has_at_most_one_open_gate",),
        "the index approvals_gate.effect_has_at_most_one_open_gate is missing",
    ),
    "table": (
        ("DROP TABLE investigation_alertchannel",),
        "the table investigation_alertchannel is missing",
    ),
}
ON_POSTGRESQL = {
    "type": (
        ("ALTER TABLE accounts_person ALTER COLUMN theme TYPE varchar(9)",),
        "the column accounts_person.theme is another: character varying(9) not null instead of"
        " character varying(8) not null",
    ),
    "null": (
        ("ALTER TABLE accounts_person ALTER COLUMN theme DROP NOT NULL",),
        "the column accounts_person.theme is another",
    ),
    "default": (
        ("ALTER TABLE accounts_person ALTER COLUMN theme SET DEFAULT 'dark'",),
        "the column accounts_person.theme is another",
    ),
    "constraint": (
        ("ALTER TABLE accounts_person DROP CONSTRAINT person_theme_is_known",),
        "the constraint accounts_person.person_theme_is_known is missing",
    ),
    "check": (
        (
            "ALTER TABLE accounts_person DROP CONSTRAINT person_theme_is_known",
            "ALTER TABLE accounts_person ADD CONSTRAINT person_theme_is_known CHECK (theme <> '')",
        ),
        "the constraint accounts_person.person_theme_is_known is another",
    ),
}
ON_SQLITE = {
    "type": (
        '"theme" varchar(8)',
        '"theme" varchar(9)',
        "the column accounts_person.theme is another",
    ),
    "null": (
        '"theme" varchar(8) NOT NULL',
        '"theme" varchar(8) NULL',
        "the column accounts_person.theme is",
    ),
    "check": (
        "'light', 'dark'",
        "'light'",
        "the constraint accounts_person.person_theme_is_known is another",
    ),
    "constraint": (
        "person_theme_is_known",
        "person_theme_was_known",
        "the constraint accounts_person.person_theme_is_known is missing",
    ),
}


def refused(sentence: str) -> None:
    """Assert that /readyz, the start, the system checks and `setup` name the difference."""
    assert sentence in " ".join(schema_inventory.find_schema_differences(connection))
    answer = Client().get("/readyz")
    assert (answer.status_code, sentence in answer.text) == (503, True), answer.text
    assert sentence in " ".join(config_checks.find_unsafe_start_reasons(connection))
    assert sentence in " ".join(
        message.msg for message in checks.run_checks(tags=["database"], databases=["default"])
    )


@pytest.mark.parametrize("what", DIFFERENT)
def test_another_schema_is_refused_by_name(what: str) -> None:
    assert Client().get("/readyz").status_code == 200
    statements, sentence = DIFFERENT[what]
    execute(*statements)
    refused(sentence)


@pytest.mark.parametrize("what", ON_POSTGRESQL)
@pytest.mark.skipif(not POSTGRESQL, reason="SQLite has no such statements")
def test_an_in_place_change_of_postgresql_is_refused(what: str) -> None:
    statements, sentence = ON_POSTGRESQL[what]
    execute(*statements)
    refused(sentence)


@pytest.mark.parametrize("what", ON_SQLITE)
@pytest.mark.skipif(POSTGRESQL, reason="PostgreSQL keeps no text of a table")
def test_another_text_of_a_table_is_refused(what: str) -> None:
    old, new, sentence = ON_SQLITE[what]
    rewrite(old, new)
    try:
        refused(sentence)
    finally:
        rewrite(new, old)  # the parsed schema is in use until the rollback


ADDED_ON_POSTGRESQL = {
    "trigger": (
        (
            "CREATE FUNCTION skips() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "CREATE TRIGGER added BEFORE INSERT ON ledger_stop FOR EACH ROW EXECUTE FUNCTION skips()",
        ),
        "the trigger ledger_stop.added is not expected",
    ),
    "trigger of a library's table": (
        (
            "CREATE FUNCTION skips() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "CREATE TRIGGER added BEFORE DELETE ON axes_accessattempt FOR EACH ROW"
            " EXECUTE FUNCTION skips()",
        ),
        "the trigger axes_accessattempt.added is not expected",
    ),
    "expected name on another table": (
        (
            "CREATE TRIGGER journal_entry_never_changes BEFORE INSERT ON ledger_stop"
            " FOR EACH ROW EXECUTE FUNCTION journal_refuse_change()",
        ),
        "the trigger ledger_stop.journal_entry_never_changes is not expected",
    ),
    "trigger of a partition": (
        (
            "CREATE FUNCTION skips() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "CREATE TRIGGER added BEFORE INSERT ON journal_body_rest FOR EACH ROW"
            " EXECUTE FUNCTION skips()",
        ),
        "the trigger journal_body_rest.added is not expected",
    ),
    "rule": (
        ("CREATE RULE added AS ON INSERT TO ledger_stop DO INSTEAD NOTHING",),
        "the rule ledger_stop.added is not expected",
    ),
    "row security": (
        ("ALTER TABLE ledger_stop ENABLE ROW LEVEL SECURITY",),
        "the row-security ledger_stop.enabled is not expected",
    ),
    "forced row security": (
        ("ALTER TABLE approvals_gate FORCE ROW LEVEL SECURITY",),
        "the row-security approvals_gate.forced is not expected",
    ),
    "policy": (
        ("CREATE POLICY added ON approvals_gate USING (FALSE)",),
        "the policy approvals_gate.added is not expected",
    ),
    "view in place of a table": (
        (
            "ALTER TABLE django_session RENAME TO kept",
            "CREATE VIEW django_session AS SELECT * FROM kept",
        ),
        "the view django_session.django_session is not expected",
    ),
}
ADDED_ON_SQLITE = {
    "trigger": "ledger_stop",
    "trigger of Django's table": "auth_user",
    "trigger of a library's table": "axes_accessattempt",
    "trigger of an index of words": "investigation_wordindex_data",
}


def forge_digest() -> str:
    """Return the comment that the present trigger would have, as far as its owner can compute it."""
    name = "journal_entry_never_changes"
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_get_triggerdef(oid, TRUE) FROM pg_trigger"
            f" WHERE tgname = '{name}' AND tgrelid = 'journal_entry'::regclass"
        )
        with override_settings(GATEBOOK_PEPPER=b"a guess"):
            return triggers._digest(triggers._POSTGRESQL[name][1], cursor.fetchone()[0])


@pytest.mark.parametrize("what", ADDED_ON_POSTGRESQL)
@pytest.mark.skipif(not POSTGRESQL, reason="SQLite has other statements")
def test_what_an_owner_adds_to_a_table_is_named(what: str) -> None:
    statements, sentence = ADDED_ON_POSTGRESQL[what]
    for statement in statements:
        execute(statement)
    refused(sentence)
    assert triggers.find_missing_triggers(connection) == []


@pytest.mark.parametrize("what", ADDED_ON_SQLITE)
@pytest.mark.skipif(POSTGRESQL, reason="PostgreSQL has other statements")
def test_a_trigger_that_an_owner_adds_is_named(what: str) -> None:
    table = ADDED_ON_SQLITE[what]
    execute(f"CREATE TRIGGER added BEFORE INSERT ON {table} BEGIN SELECT RAISE(IGNORE); END")
    refused(f"the trigger {table}.added is not expected")
    (sentence,) = config_checks.find_foreign_schema(connection)
    assert "Find who made them so" in sentence  # another version did not


@pytest.mark.skipif(not POSTGRESQL, reason="a schema of PostgreSQL may hold other programs' tables")
def test_triggers_of_other_programs_tables_are_their_business() -> None:
    execute(
        "CREATE TABLE reports (id integer)",
        "CREATE FUNCTION counts() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "CREATE TRIGGER counts BEFORE INSERT ON reports FOR EACH ROW EXECUTE FUNCTION counts()",
        "ALTER TABLE reports ENABLE ROW LEVEL SECURITY",
        "CREATE VIEW journal_report AS SELECT * FROM ledger_stop",
    )
    assert schema_inventory.find_schema_differences(connection) == []


def test_an_index_that_makes_queries_fast_is_the_operators_business() -> None:
    execute("CREATE INDEX own_index ON journal_entry (kind)", "DROP INDEX artifact_by_hash")
    assert schema_inventory.find_schema_differences(connection) == []


def test_a_schema_that_was_checked_is_not_read_again(django_assert_num_queries: object) -> None:
    assert schema_inventory.find_schema_differences(connection) == []
    with django_assert_num_queries(0):  # type: ignore[operator]
        assert schema_inventory.find_schema_differences(connection) == []


@pytest.mark.skipif(not POSTGRESQL, reason="SQLite keeps the text of a trigger, which is compared")
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE OR REPLACE FUNCTION journal_refuse_change() RETURNS trigger LANGUAGE plpgsql"
        " AS $$ BEGIN RETURN NEW; END $$",
        "CREATE OR REPLACE TRIGGER journal_entry_never_changes BEFORE UPDATE ON journal_entry FOR "
        "EACH ROW"
        " WHEN (FALSE) EXECUTE FUNCTION journal_refuse_change()",
        "DROP TRIGGER journal_entry_never_changes ON journal_entry; CREATE TRIGGER "
        "journal_entry_never_changes"
        " BEFORE UPDATE ON journal_entry FOR EACH ROW WHEN (FALSE) EXECUTE FUNCTION "
        "journal_refuse_change()",
        "ALTER FUNCTION journal_refuse_change() SET search_path = own, pg_catalog",
    ],
)
def test_a_changed_trigger_counts_as_missing_and_is_recreated(
    statement: str,
) -> None:
    execute(statement)
    execute(
        f"COMMENT ON TRIGGER journal_entry_never_changes ON journal_entry IS '{forge_digest()}'"
    )
    assert "journal_entry_never_changes" in triggers.find_missing_triggers(connection)
    assert Client().get("/readyz").status_code == 503
    triggers.install_triggers(connection)
    assert triggers.find_missing_triggers(connection) == []


@pytest.mark.skipif(not POSTGRESQL, reason="SQLite has no such setting")
def test_a_session_whose_triggers_do_not_run_is_refused() -> None:
    execute("SET LOCAL session_replication_role = replica")
    answer = Client().get("/readyz")
    assert (answer.status_code, "can change history" in answer.text) == (503, True), answer.text
    (sentence,) = config_checks.find_unsafe_start_reasons(connection)
    assert "its session_replication_role is replica: triggers do not run" in sentence
    execute("SET LOCAL session_replication_role = origin")
    assert Client().get("/readyz").status_code == 200


@pytest.mark.skipif(POSTGRESQL, reason="one database is enough")
@pytest.mark.matrix
def test_a_database_of_older_migrations_is_refused_by_setup_and_by_the_start(
    tmp_path: Path,
) -> None:
    """A past fault: migrations were rewritten under the same names, and every gate page failed."""
    environment = {**os.environ, "GATEBOOK_VAR": str(tmp_path), "DATABASE_URL": ""}

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )

    template = os.environ.get("TESTS_TEMPLATE")
    if template and Path(template).exists():
        shutil.copy(template, tmp_path / "gatebook.sqlite3")
    made = run("manage.py", "setup")
    assert made.returncode == 0, made.stderr
    with closing(sqlite3.connect(tmp_path / "gatebook.sqlite3", isolation_level=None)) as older:
        older.execute("ALTER TABLE accounts_person DROP COLUMN single_keys")
    for arguments in (("manage.py", "setup"), ("-m", "config.supervisor")):
        with own_port() as port:
            environment["PORT"] = str(port)
            done = run(*arguments)
        assert done.returncode == 1
        assert (
            "The tables are not those of this version: the column accounts_person.single_keys"
            in done.stderr
        )
        assert "Traceback" not in done.stderr
