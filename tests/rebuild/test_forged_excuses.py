"""Entries and values that would excuse rows from the check, or end it, do neither."""

from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction

from accounts import projects
from db.clock import now_us
from db.ids import new_uuid7
from db.triggers import suspend_triggers
from importers.bundles import importer
from journal import entries
from sessions.lookup import derive_session_id
from tests.approvals.inbox_scenario import InboxScenario
from tests.bundles.conftest import Origin
from tests.bundles.conftest import origin as origin
from tests.matrices import keep_core
from tests.rebuild.test_forged_names import list_named
from tests.rebuild.test_forged_rows import forge

pytestmark = pytest.mark.django_db
VOTES = ("UPDATE approvals_vote SET answer = 'approve'", "UPDATE approvals_gate SET minimum = 9")
UNREADABLE_ENTRY = ("unreadable", "journal_entry", "facts")


def record_forged(project: UUID, kind: str, subject: UUID | None, facts: Any, **more: Any) -> None:
    """Write an entry of Gatebook's own, as the application's role can."""
    entries.record_system_entry(
        project,
        kind,
        event_id=new_uuid7().hex,
        text=entries.dump_sorted_json({"kind": kind}),
        received_us=now_us(),
        facts=facts if isinstance(facts, str) else entries.dump_sorted_json(facts),
        subject=subject,
        **more,
    )


def test_a_session_that_passes_for_an_imported_one(inbox: InboxScenario) -> None:
    """Its id follows from its key, so an entry can name it before it starts."""
    inbox.rules()
    session = derive_session_id(inbox.project.id, "s-1")
    with transaction.atomic():
        archive = projects.create_archive("archive", uuid4())
    record_forged(archive.id, "admin.bundle_imported", session, {}, session=session)
    gate = inbox.gate(inbox.plan("a", tool="git.push"))
    inbox.answer(gate, "rita", "deny")
    forge(VOTES)
    named = {table for _difference, table, _column in list_named()}
    assert {"approvals_vote", "approvals_gate"} <= named


@pytest.mark.parametrize(
    "facts",
    keep_core(
        ["{}", "[]", "no JSON", '{"row_digests":5}', '{"row_digests":{"ledger_effect":[]}}'],
        ['{"row_digests":5}'],
    ),
)
def test_a_second_entry_of_an_import(origin: Origin, tmp_path: Path, facts: str) -> None:
    file = tmp_path / "s.zip"
    file.write_bytes(origin.export())
    imported = importer.import_bundle(file, None, "ann").bundle
    record_forged(imported.project_id, "admin.bundle_imported", imported.session_id, facts)
    forge(("UPDATE investigation_importedgate SET document = '{}'",))
    named = {("imported", "investigation_importedgate", "document"), UNREADABLE_ENTRY}
    assert list_named() == named


def test_a_renaming_without_a_name(inbox: InboxScenario) -> None:
    record_forged(inbox.project.id, "admin.project_renamed", inbox.project.id, {})
    forge((f"UPDATE accounts_project SET name = 'another' WHERE name = '{inbox.project.name}'",))
    assert ("changed", "accounts_project", "name") in list_named()


@pytest.mark.parametrize(
    "facts", keep_core([{}, {"person": ["p_1"], "account": "x"}, "[]"], ["[]"])
)
def test_an_account_that_is_closed_for_no_person(inbox: InboxScenario, facts: Any) -> None:
    """The voters of every project are read from these entries."""
    inbox.rules()
    inbox.answer(inbox.gate(inbox.plan("a", tool="git.push")), "rita", "deny")
    record_forged(inbox.organization.other.id, "admin.account_closed", None, facts)
    forge(VOTES)
    named = list_named()
    assert UNREADABLE_ENTRY in named
    assert {"approvals_vote", "approvals_gate"} <= {table for _difference, table, _column in named}


def test_an_expiry_of_more_positions_than_there_are(inbox: InboxScenario) -> None:
    facts = {"positions": "1-9223372036854775807", "set": "0" * 32, "class": "x"}
    record_forged(inbox.project.id, "retention.expired", None, facts)
    assert ("missing", "journal_erasure", "") in list_named()


def forge_value(table: str, column: str, value: str, where: str = "TRUE") -> None:
    with transaction.atomic(), suspend_triggers(connection, [table]), connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET {column} = {value} WHERE {where}")


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL refuses such values")
@pytest.mark.parametrize(
    ("table", "column"), [("journal_entry", "body_commit"), ("accounts_agenttoken", "digest")]
)
def test_a_number_in_place_of_bytes(inbox: InboxScenario, table: str, column: str) -> None:
    where = "kind = 'admin.member_added'" if table == "journal_entry" else "TRUE"
    forge_value(table, column, "99999999999", where)
    assert ("unreadable", table, column) in list_named()


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL refuses such values")
def test_bytes_in_place_of_a_project(inbox: InboxScenario) -> None:
    inbox.plan("a", tool="file.read")
    with transaction.atomic():
        forge_value("agent_sessions_session", "project_id", "X'00ff'")
        assert ("unreadable", "agent_sessions_session", "project_id") in list_named()
        transaction.set_rollback(True)  # else the end of the test names the broken reference


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="PostgreSQL refuses such values")
def test_one_body_of_bytes_does_not_end_the_checks_of_a_small_project(
    inbox: InboxScenario,
) -> None:
    of_agent = "SELECT max(position) FROM journal_entry WHERE kind = 'admin.agent_created'"
    forge_value("journal_body", "text", "CAST(text AS blob)", f"entry_id = ({of_agent})")
    forge(("UPDATE accounts_membership SET role = 'administrator' WHERE role = 'viewer'",))
    named = list_named()
    assert ("changed", "accounts_membership", "role") in named
    assert ("unreadable", "journal_body", "text") in named
