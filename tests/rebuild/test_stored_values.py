"""SQLite takes any value: one that Gatebook never writes is named, and hides nothing else."""

import re
from typing import Final
from uuid import UUID

import orjson
import pytest
from django.apps import apps
from django.db import connection, transaction

from accounts import tokens
from accounts.models import Agent
from db import triggers
from ledger import stops
from tests.approvals.inbox_scenario import InboxScenario
from tests.matrices import keep_core
from tests.rebuild.test_forged_rows import furnish, run

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(
        "connection.vendor != 'sqlite'", reason="PostgreSQL refuses such values itself"
    ),
]
CHANGE: Final = "UPDATE ledger_effect SET outcome = 'error' WHERE effect_key = 'done'"
CHANGED: Final = ("changed", "ledger_effect", "outcome")


def list_named() -> set[tuple[str, str, str]]:
    """Return what the check names: (difference, table, column)."""
    code, text = run("--check", "--json")
    *named, _summary = map(orjson.loads, text.splitlines())
    assert code == 1, text
    return {(row["difference"], row["table"], row.get("column", "")) for row in named}


def forge(*statements: str) -> None:
    """Change any row as the owner, who can remove triggers and switch checks of values off."""
    tables = [model._meta.db_table for model in apps.get_models()]
    named = [table for table in tables if table in re.findall(r"\w+", " ".join(statements))]
    with (
        transaction.atomic(),
        triggers.suspend_triggers(connection, named),
        connection.cursor() as cursor,
    ):
        cursor.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            cursor.execute(statement)
        cursor.execute("PRAGMA ignore_check_constraints = OFF")


def name_forged(*statements: str) -> set[tuple[str, str, str]]:
    """Forge values, return what the check names, and undo it all."""
    with transaction.atomic():
        forge(*statements)
        named = list_named()
        transaction.set_rollback(True)
    return named


@pytest.mark.parametrize(
    ("statement", "table", "column"),
    keep_core(
        [
            (
                "UPDATE ledger_effect SET environment = CAST(x'ff41' AS text)"
                " WHERE effect_key = 'held'",
                *("ledger_effect", "environment"),
            ),
            ("UPDATE ledger_effect SET version = 'many'", "ledger_effect", "version"),
            ("UPDATE ledger_effect SET violates = 7", "ledger_effect", "violates"),
            ("UPDATE ledger_effect SET tool = CAST('deploy' AS blob)", "ledger_effect", "tool"),
            ("UPDATE agent_sessions_session SET labels = '{'", "agent_sessions_session", "labels"),
            ("UPDATE accounts_agenttoken SET digest = 'secret'", "accounts_agenttoken", "digest"),
            (
                "UPDATE accounts_agenttoken SET expires_at = 'garbage'",
                *("accounts_agenttoken", "expires_at"),
            ),
            ("UPDATE accounts_agenttoken SET expires_at = ''", "accounts_agenttoken", "expires_at"),
            (
                "UPDATE accounts_agenttoken SET created_at = '2026-02-30 00:00:00'",
                *("accounts_agenttoken", "created_at"),
            ),
            (
                "UPDATE accounts_membership SET role = CAST(x'c3' AS text)",
                "accounts_membership",
                "role",
            ),
            ("UPDATE journal_body SET text = CAST(x'ff' AS text)", "journal_body", "text"),
            ("UPDATE journal_entry SET facts = CAST(x'ff' AS text)", "journal_entry", "facts"),
        ],
        one_in=3,
    ),
)
def test_a_value_of_another_form_is_named_with_all_else(
    inbox: InboxScenario, statement: str, table: str, column: str
) -> None:
    furnish(inbox)
    named = name_forged(statement, CHANGE)
    assert ("unreadable", table, column) in named
    if not table.startswith("journal_"):
        assert CHANGED in named
        assert "journal_entry" not in {table for _difference, table, _column in named}


@pytest.mark.matrix
def test_a_uuid_in_another_spelling_is_named_in_every_column(inbox: InboxScenario) -> None:
    furnish(inbox)
    stops.set_stop(inbox.project, "project", "", "it deletes", inbox.person("administrator").user)
    [(token,)] = fetch("SELECT min(id) FROM accounts_agenttoken")
    [(plan,)] = fetch("SELECT min(position) FROM journal_entry WHERE kind = 'effect.planned'")
    dashed = f"'{inbox.project.id}'"
    for change, table, column in (
        ("UPDATE ledger_stop SET id = upper(id)", "ledger_stop", "id"),
        (f"UPDATE ledger_stop SET project_id = {dashed}", "ledger_stop", "project_id"),
        (
            f"UPDATE accounts_agenttoken SET id = upper(id) WHERE id = '{token}'",
            *("accounts_agenttoken", "id"),
        ),
        (
            "UPDATE accounts_membership SET id = '{' || id || '}' WHERE role = 'viewer'",
            *("accounts_membership", "id"),
        ),
        ("UPDATE approvals_gate SET effect_id = upper(effect_id)", "approvals_gate", "effect_id"),
        ("UPDATE journal_outbox SET project = 7", "journal_outbox", "project"),
        ("UPDATE journal_outbox SET project = upper(project)", "journal_outbox", "project"),
        (
            f"UPDATE journal_entry SET project = {dashed} WHERE position = {plan}",
            *("journal_entry", "project"),
        ),
        (
            f"UPDATE journal_entry SET project = 'zz' WHERE position = {plan}",
            *("journal_entry", "project"),
        ),
        (
            f"UPDATE journal_entry SET session = upper(session) WHERE position = {plan}",
            *("journal_entry", "session"),
        ),
        (
            "UPDATE agent_sessions_session SET id = id || char(0)",
            *("agent_sessions_session", "id"),
        ),
        ("UPDATE accounts_project SET id = 'zz' WHERE name = 'default'", "accounts_project", "id"),
    ):
        with transaction.atomic():
            forge("PRAGMA defer_foreign_keys = ON", change)
            assert ("unreadable", table, column) in list_named(), change
            assert run()[0] == 2
            transaction.set_rollback(True)


def test_the_line_says_which_value_it_is_in_plain_words(inbox: InboxScenario) -> None:
    effect = inbox.plan("held", tool="deploy")
    forge("UPDATE ledger_effect SET environment = CAST(x'ff41' AS text)")
    code, text = run("--check")
    assert code == 1
    assert (
        f"unreadable: ledger_effect id={UUID(effect['id']).hex}: environment is '\\xffA', and"
        " Gatebook writes a text in UTF-8" in text
    )
    code, text = run()
    assert code == 2
    assert "Correct or remove these rows as the owner" in text
    forge("UPDATE ledger_effect SET environment = 'other'")
    assert run()[0] == 0  # the journal gives the right one
    assert run("--check")[0] == 0


@pytest.mark.matrix
def test_an_entry_that_cannot_be_read_is_named_by_its_position(inbox: InboxScenario) -> None:
    furnish(inbox)
    agent = Agent.objects.get(name="deploy-7")
    tokens.issue_token(agent, expires_in=None, actor="p_1")
    [(issued,)] = fetch("SELECT max(position) FROM journal_entry WHERE kind = 'admin.token_issued'")
    [(plan,)] = fetch("SELECT min(position) FROM journal_entry WHERE kind = 'effect.planned'")
    for change, position, words in (
        ("facts = '{}'", issued, "its facts lack digest"),
        ("facts = 'no'", issued, "its facts are no JSON"),
        ("subject = 'zz'", issued, "its subject is no UUID"),
        ("session = 'zz'", plan, ""),
        ("effect = 'zz'", plan, "its effect is no UUID"),
    ):
        with transaction.atomic():
            forge(f"UPDATE journal_entry SET {change} WHERE position = {position}")
            code, text = run("--check")
            assert code == 1, text
            assert words in text
            assert not words or f"unreadable: journal_entry position={position}: {words}" in text
            assert "Error" not in text
            transaction.set_rollback(True)


def fetch(statement: str) -> list[tuple[object, ...]]:
    """Return the rows of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())
