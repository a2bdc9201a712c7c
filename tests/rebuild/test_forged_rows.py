"""Rows that the owner of the database changes, deletes or adds are named, and restored."""

from io import StringIO
from typing import Any, Final, NamedTuple

import orjson
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from db import triggers
from journal.models import Entry
from rebuild.registry import list_row_checks
from tests.approvals.inbox_scenario import InboxScenario
from tests.rebuild.test_rebuilt_stories import list_differences

pytestmark = pytest.mark.django_db


class Forgery(NamedTuple):
    """What an insider runs, and what the check says: (difference, table, column) of each."""

    statements: tuple[str, ...]
    named: set[tuple[str, str, str]]


_DONE: Final = "(SELECT id FROM ledger_effect WHERE effect_key = 'done')"
FORGERIES: Final = (
    Forgery(
        ("UPDATE ledger_effect SET outcome = 'error' WHERE effect_key = 'done'",),
        {("changed", "ledger_effect", "outcome")},
    ),
    Forgery(
        ("UPDATE ledger_effect SET state = 'superseded', outcome = '' WHERE effect_key = 'held'",),
        {("changed", "ledger_effect", "state")},
    ),
    Forgery(  # it ran without permission; everything about it is changed to hide that
        (
            "UPDATE ledger_effect SET permission = 'observed', violates = FALSE"
            " WHERE effect_key = 'ran'",
            "UPDATE ledger_attempt SET permission = 'observed'"
            " WHERE effect_id = (SELECT id FROM ledger_effect WHERE effect_key = 'ran')",
        ),
        {
            ("changed", "ledger_effect", "permission"),
            ("changed", "ledger_effect", "violates"),
            ("changed", "ledger_attempt", "permission"),
        },
    ),
    Forgery(
        ("UPDATE ledger_effect SET tool = 'file.read' WHERE effect_key = 'denied'",),
        {("changed", "ledger_effect", "tool")},
    ),
    Forgery(
        ("UPDATE ledger_effect SET attempt_count = 3 WHERE effect_key = 'done'",),
        {("changed", "ledger_effect", "attempt_count")},
    ),
    Forgery(
        (f"DELETE FROM ledger_attempt WHERE effect_id = {_DONE}",),
        {("missing", "ledger_attempt", "")},
    ),
    Forgery(
        (
            "INSERT INTO ledger_attempt (project_id, effect_id, number, remote_key, permission,"
            " verdict_row, process, lane, is_open, replaced, outcome, failure_reason,"
            " external_reference, dispatch_key, dispatched_mark, acknowledged_mark, failed_mark)"
            " SELECT project_id, effect_id, 2, 'gbk-2', permission, '', '', lane, FALSE, FALSE,"
            " outcome, '', '', '', dispatched_mark, acknowledged_mark, ''"
            f" FROM ledger_attempt WHERE effect_id = {_DONE}",
        ),
        {("added", "ledger_attempt", "")},
    ),
    Forgery(  # a no becomes a yes
        (
            "UPDATE approvals_gate SET status = 'approved', ended_at_us = NULL,"
            " permission_until_us = decided_at_us + valid_for_s * 1000000"
            " WHERE status = 'denied'",
            "UPDATE approvals_vote SET answer = 'approve' WHERE answer = 'deny'",
        ),
        {
            ("changed", "approvals_gate", "status"),
            ("changed", "approvals_gate", "ended_at_us"),
            ("changed", "approvals_gate", "permission_until_us"),
            ("changed", "approvals_vote", "answer"),
        },
    ),
    Forgery(
        ("DELETE FROM approvals_vote WHERE answer = 'deny'",),
        {("missing", "approvals_vote", "")},
    ),
    Forgery(  # two people must approve; the gate's terms now say that one is enough
        ("UPDATE approvals_gate SET minimum = 1, step_up = 'none' WHERE tool = 'deploy'",),
        {("changed", "approvals_gate", "minimum")},
    ),
    Forgery(
        ("UPDATE approvals_gate SET agent_owner_id = NULL WHERE tool = 'deploy'",),
        {("changed", "approvals_gate", "agent_owner_id")},
    ),
)


def furnish(inbox: InboxScenario) -> None:
    """Effects of every kind: acknowledged, denied, waiting, and run without permission."""
    done = inbox.plan("done", tool="file.read")
    inbox.agent.dispatch(done)
    inbox.agent.acknowledge(done, external_reference="run-7")
    inbox.answer(inbox.gate(inbox.plan("denied", tool="git.push")), "rita", "deny")
    inbox.plan("held", tool="deploy")
    plan = {"kind": "effect.planned", "tool": "git.push"}
    ran = {"kind": "effect.acknowledged", "outcome": "ok"}
    inbox.agent.report(
        [
            {"id": f"r-{item['kind']}", "session": "s-1", "effect_key": "ran", **item}
            for item in (plan, ran)
        ]
    )


def forge(statements: tuple[str, ...]) -> None:
    """Change rows as the owner, who can remove triggers."""
    tables = [check.table for check in list_row_checks()]
    with (
        transaction.atomic(),
        triggers.suspend_triggers(connection, tables),
        connection.cursor() as cursor,
    ):
        for statement in statements:
            cursor.execute(statement)


def load_all_rows() -> dict[str, list[tuple[Any, ...]]]:
    """Every column of every checked row, but numbers that a table gives."""
    rows = {}
    for check in list_row_checks():
        names = [
            field.attname
            for field in check.model._meta.concrete_fields
            if not (field.primary_key and field.attname in check.uncomputed)
        ]
        rows[check.table] = list(check.model._base_manager.order_by(*check.key).values_list(*names))
    return rows


def run(*arguments: str) -> tuple[int, str]:
    """Run the command; return its exit code and output."""
    out, code = StringIO(), 0
    try:
        call_command("rebuild", *arguments, stdout=out, stderr=StringIO())
    except SystemExit as ended:
        code = int(ended.code or 0)
    except CommandError as refused:
        return refused.returncode, str(refused)
    return code, out.getvalue()


def test_every_forged_change_is_named_and_restored(inbox: InboxScenario) -> None:
    furnish(inbox)
    assert run("--check")[0] == 0
    before = load_all_rows()
    for forgery in FORGERIES:
        forge(forgery.statements)
        named = list_differences()
        assert {
            (row["difference"], row["table"], row.get("column", "")) for row in named
        } == forgery.named, forgery
        assert all(row["position"] or row["difference"] == "added" for row in named)
        code, text = run("--check")
        assert code == 1
        assert f"{len(named)} differences. Verify the journal" in text
        last = Entry.objects.latest("position").position
        assert run()[0] == 0
        assert load_all_rows() == before, forgery
        rebuilt = Entry.objects.get(position__gt=last)
        assert rebuilt.kind == "integrity.rebuilt"
        assert rebuilt.session is not None
        counted = orjson.loads(rebuilt.facts)["tables"]
        assert sum(sum(kinds.values()) for kinds in counted.values()) == len(named)
        code, text = run("--check", "--json")
        assert code == 0
        assert orjson.loads(text.splitlines()[-1])["differences"] == 0
    assert triggers.find_missing_triggers(connection) == []
