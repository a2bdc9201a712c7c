"""Rows that the owner of the database changes, deletes or adds are named, and restored."""

import re
from io import StringIO
from typing import Any, Final, NamedTuple

import orjson
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from approvals.gates import comments
from db import triggers
from journal.models import Entry
from rebuild.effect_fold import POLICY_COLUMNS
from rebuild.registry import list_row_checks
from tests.approvals.inbox_scenario import InboxScenario
from tests.matrices import IN_FULL

pytestmark = pytest.mark.django_db


class Forgery(NamedTuple):
    """What an insider runs, and what the check says: (difference, table, column) of each."""

    statements: tuple[str, ...]
    named: set[tuple[str, str, str]]


_ID: Final = "'7f3a0000000080008000000000000001'"
_DONE: Final = "(SELECT id FROM ledger_effect WHERE effect_key = 'done')"
# Rows of different tables and columns are forged together: each check reads the whole journal.
FORGERIES: Final = (
    Forgery(
        (
            "UPDATE ledger_effect SET outcome = 'error', attempt_count = 3"
            " WHERE effect_key = 'done'",
            "UPDATE ledger_effect SET tool = 'file.read' WHERE effect_key = 'denied'",
            # it ran without permission; everything about it is changed to hide that
            "UPDATE ledger_effect SET permission = 'observed', violates = FALSE"
            " WHERE effect_key = 'ran'",
            "UPDATE ledger_attempt SET permission = 'observed'"
            " WHERE effect_id = (SELECT id FROM ledger_effect WHERE effect_key = 'ran')",
            # a no becomes a yes
            "UPDATE approvals_gate SET status = 'approved', ended_at_us = NULL,"
            " permission_until_us = decided_at_us + valid_for_s * 1000000"
            " WHERE status = 'denied'",
            "UPDATE approvals_vote SET answer = 'approve' WHERE answer = 'deny'",
            # two people must approve; the gate's terms now say that one is enough
            "UPDATE approvals_gate SET minimum = 1, step_up = 'none' WHERE tool = 'deploy'",
            # the answer is not sent
            "UPDATE journal_outbox SET topic = 'none' WHERE topic = 'gate.resolved'",
            "UPDATE agent_sessions_session SET status = 'failed', owner_id = NULL"
            " WHERE key = 's-1'",
        ),
        {
            ("changed", "ledger_effect", "outcome"),
            ("changed", "ledger_effect", "attempt_count"),
            ("changed", "ledger_effect", "tool"),
            ("changed", "ledger_effect", "permission"),
            ("changed", "ledger_effect", "violates"),
            ("changed", "ledger_attempt", "permission"),
            ("changed", "approvals_gate", "status"),
            ("changed", "approvals_gate", "ended_at_us"),
            ("changed", "approvals_gate", "permission_until_us"),
            ("changed", "approvals_vote", "answer"),
            ("changed", "approvals_gate", "minimum"),
            ("changed", "journal_outbox", "topic"),
            ("changed", "agent_sessions_session", "status"),
            ("changed", "agent_sessions_session", "owner_id"),
        },
    ),
    Forgery(
        (
            "UPDATE ledger_effect SET state = 'superseded', outcome = '' WHERE effect_key = 'held'",
            f"DELETE FROM ledger_attempt WHERE effect_id = {_DONE}",
            "DELETE FROM approvals_vote WHERE answer = 'deny'",
            "UPDATE approvals_gate SET agent_owner_id = NULL WHERE tool = 'deploy'",
            "UPDATE agent_sessions_task SET state = 'failed' WHERE key = 'build'",
            "DELETE FROM agent_sessions_item WHERE key = 'linux'",
            "UPDATE agent_sessions_handoff SET size = 1",
            "UPDATE agent_sessions_decision SET status = 'failed', concluded_position = 1",
            "UPDATE agent_sessions_observedfact SET digest = ''",
            "UPDATE agent_sessions_artifact SET sha256 = "
            "'0000000000000000000000000000000000000000000000000000000000000000'",
            "DELETE FROM agent_sessions_checkpoint",
            "DELETE FROM journal_outbox WHERE topic = 'integrity'",
        ),
        {
            ("changed", "ledger_effect", "state"),
            ("missing", "ledger_attempt", ""),
            ("missing", "approvals_vote", ""),
            ("changed", "approvals_gate", "agent_owner_id"),
            ("changed", "agent_sessions_task", "state"),
            ("missing", "agent_sessions_item", ""),
            ("changed", "agent_sessions_handoff", "size"),
            ("changed", "agent_sessions_decision", "status"),
            ("changed", "agent_sessions_decision", "concluded_position"),
            ("changed", "agent_sessions_observedfact", "digest"),
            ("changed", "agent_sessions_artifact", "sha256"),
            ("missing", "agent_sessions_checkpoint", ""),
            ("missing", "journal_outbox", ""),
        },
    ),
    Forgery(
        (
            "INSERT INTO ledger_attempt (project_id, effect_id, number, remote_key, permission,"
            " verdict_row, process, lane, is_open, replaced, outcome, failure_reason,"
            " external_reference, dispatch_key, dispatched_mark, acknowledged_mark, failed_mark)"
            " SELECT project_id, effect_id, 2, 'gbk-2', permission, '', '', lane, FALSE, FALSE,"
            " outcome, '', '', '', dispatched_mark, acknowledged_mark, ''"
            f" FROM ledger_attempt WHERE effect_id = {_DONE}",
            "INSERT INTO agent_sessions_task (id, project_id, session_id, key, title, state,"
            " priority, worker, branch_label, opened_position, created_at_us, updated_at_us,"
            " created_mark, field_history, done_mark, version)"
            f" SELECT {_ID}, project_id, session_id, 'forged', '', 'pending', 0, '', '', 1, 1, 1,"
            " '', '{}', '', 1 FROM agent_sessions_task WHERE key = 'build'",
            # a lease of another process that took it over, and a message that was never read
            "UPDATE agent_sessions_lease SET process = 'p-9', epoch = 7, takeovers = 6",
            "UPDATE agent_sessions_message SET from_agent_id = NULL WHERE recipient_id IS NULL",
            "UPDATE agent_sessions_message SET read_at_us = NULL WHERE recipient_id IS NOT NULL",
            "DELETE FROM agent_sessions_messageread",
            "UPDATE agent_sessions_capacity SET queue = 1, pace_reason = '',"
            " paced_from_us = NULL, paced_until_us = NULL",
        ),
        {
            ("added", "ledger_attempt", ""),
            ("added", "agent_sessions_task", ""),
            ("changed", "agent_sessions_lease", "process"),
            ("changed", "agent_sessions_lease", "epoch"),
            ("changed", "agent_sessions_lease", "takeovers"),
            ("changed", "agent_sessions_message", "from_agent_id"),
            ("changed", "agent_sessions_message", "read_at_us"),
            ("missing", "agent_sessions_messageread", ""),
            ("changed", "agent_sessions_capacity", "queue"),
            ("changed", "agent_sessions_capacity", "pace_reason"),
            ("changed", "agent_sessions_capacity", "paced_from_us"),
            ("changed", "agent_sessions_capacity", "paced_until_us"),
        },
    ),
    Forgery(  # a whole session with all that it has: only the journal is left
        tuple(
            f"DELETE FROM {table}"
            for table in (
                *("agent_sessions_messageread", "agent_sessions_message"),
                *("agent_sessions_lease", "agent_sessions_capacity"),
                *("approvals_addressee", "approvals_vote", "approvals_gate", "ledger_attempt"),
                "ledger_effect",
                *("agent_sessions_item", "agent_sessions_task", "agent_sessions_handoff"),
                *("agent_sessions_decision", "agent_sessions_observedfact"),
                *("agent_sessions_artifact", "agent_sessions_checkpoint"),
                *("agent_sessions_session", "journal_outbox"),
            )
        ),
        {
            ("missing", check.table, "")
            for check in list_row_checks("session")
            if not check.table.startswith("investigation_")  # the index has read nothing here
        },
    ),
)


def furnish(inbox: InboxScenario) -> None:
    """Effects of every kind: acknowledged, denied, waiting, and run without permission; and what
    else a session records."""
    agent = inbox.agent
    session = agent.session("s-1", title="Ship it", owner="operator", labels={"team": "web"})["id"]
    task = agent.post(f"/sessions/{session}/tasks", {"key": "build"}).json()["id"]
    items = [{"key": "linux", "state": "done"}, {"key": "mac", "state": "pending"}]
    for path, body in (
        (f"/tasks/{task}/items", {"items": items}),
        (f"/sessions/{session}/checkpoints", {"summary": "half", "cursor": "2 of 4"}),
        (f"/sessions/{session}/decisions", {"key": "d-1", "choice": "squash"}),
        (f"/sessions/{session}/handoffs", {"in_progress": ["the build"]}),
        (f"/sessions/{session}/facts", {"name": "head", "value": "4f2a", "source": "ci"}),
        (
            "/artifacts",
            {
                "session": "s-1",
                "type": "log",
                "sha256": "a" * 64,
                "size": 3,
                "media_type": "text/plain",
            },
        ),
        ("/leases", {"process": "p-1", "task": task}),
        ("/messages", {"to": "shared", "body": "half is built", "session": "s-1"}),
        ("/messages", {"to": "deploy-7", "body": "build the rest", "session": "s-1"}),
    ):
        answer = agent.post(path, body)
        assert answer.status_code in (200, 201), answer.text
        if path == "/messages":
            assert agent.post(f"/messages/{answer.json()['id']}/read").status_code == 200
    done = inbox.plan("done", tool="file.read")
    inbox.agent.dispatch(done)
    inbox.agent.acknowledge(done, external_reference="run-7")
    inbox.answer(inbox.gate(inbox.plan("denied", tool="git.push")), "rita", "deny")
    reviewer = inbox.person("reviewer")
    comments.assign_gate(inbox.gate(inbox.plan("held", tool="deploy")), reviewer, "reviewer")
    assert agent.post("/capacity", {"session": "s-1", "queue": 101}).status_code == 200
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
    words = set(re.findall(r"\w+", " ".join(statements)))
    tables = [check.table for check in list_row_checks() if check.table in words]
    with (
        transaction.atomic(),
        triggers.suspend_triggers(connection, tables),
        connection.cursor() as cursor,
    ):
        for statement in statements:
            cursor.execute(statement)


def load_all_rows(*, computed: bool) -> dict[str, list[tuple[Any, ...]]]:
    """Every column of every checked row, but numbers that a table gives; or what the journal gives."""
    rows = {}
    for check in list_row_checks():
        names = [
            field.attname
            for field in check.model._meta.concrete_fields
            if not (field.attname in check.uncomputed and (computed or field.primary_key))
            and not (computed and field.attname in (*POLICY_COLUMNS, "due_at_us"))
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


@pytest.mark.deepened
def test_every_forged_change_is_named_and_restored(inbox: InboxScenario) -> None:
    furnish(inbox)
    code, text = run("--check")
    assert code == 0, text
    for forgery in FORGERIES[:: 1 if IN_FULL else 3]:
        # A row that was deleted comes back with all that the journal gives.
        computed = any(difference == "missing" for difference, _table, _column in forgery.named)
        before = load_all_rows(computed=computed)
        forge(forgery.statements)
        code, text = run("--check", "--json")
        *named, summary = map(orjson.loads, text.splitlines())
        assert (code, summary["differences"]) == (1, len(named))
        assert {
            (row["difference"], row["table"], row.get("column", "")) for row in named
        } == forgery.named, forgery
        assert all(row["position"] or row["difference"] == "added" for row in named)
        last = Entry.objects.latest("position").position
        assert run()[0] == 0
        assert load_all_rows(computed=computed) == before, forgery
        rebuilt = Entry.objects.get(position__gt=last)
        assert rebuilt.kind == "integrity.rebuilt"
        assert rebuilt.session is not None
        counted = orjson.loads(rebuilt.facts)["tables"]
        assert sum(sum(kinds.values()) for kinds in counted.values()) == len(named)
    code, text = run("--check")
    assert code == 0
    assert "no row differs from the journal" in text
    assert triggers.find_missing_triggers(connection) == []
