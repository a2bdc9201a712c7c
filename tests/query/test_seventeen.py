"""The audit questions find their answers by indexes and without columns of a payload."""

import io
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, models, transaction
from django.urls import reverse

from db.clock import now_us
from display import urls_of_rows as links_to
from investigation.query import auditor_columns, result_columns
from investigation.query import execute as query_execute
from investigation.query.column_types import Reader
from investigation.query.permalink import pin_query
from investigation.query.registry.gates import exemption_uses
from investigation.saved_queries import builtin_questions
from journal import running_writers
from monitoring import job_heartbeats
from monitoring.models import StuckEpisode
from sessions.models import Session
from tests.api.api_client import Caller
from tests.query.incident import ISSUE, PULL, Scenario, advance_scenario

pytestmark = pytest.mark.django_db
# Parameters and results of each question: effects by name, otherwise as `answer_rows` returns.
GIVEN: Final[dict[int, dict[str, str]]] = {
    1: {"tool": "file.read"},
    13: {"effect": "read"},
    14: {"reference": PULL},
    17: {"actor": "reviewer"},
}
EFFECTS: Final = {
    5: ["retried", "pushed", "ran"],
    6: ["unknown"],
    7: ["ran", "later"],
    14: ["pushed", "undoing", "child"],
    15: ["read"],
}
GATES: Final = {2: ["waiting"], 8: ["own"], 13: ["read"]}


def question(scenario: Scenario, number: int) -> str:
    """Return the text of a question with its parameters filled in as by its form."""
    given = {
        name: scenario.handle(text) if text in scenario.effects else text
        for name, text in GIVEN.get(number, {}).items()
    }
    return builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[number], given)


def ask(scenario: Scenario, number: int, link: str = "") -> query_execute.ResultPage:
    """Return the answer to a question, or to a pinned link of the question."""
    text = link or question(scenario, number)
    compiled = query_execute.compile_query(text, scenario.inbox.project, now_us())
    late = number in (18, 19, 21)  # these questions note that nothing is compared yet
    assert link or bool(compiled.notes) is late, text
    return query_execute.load_results(compiled, result_columns.prepare_rows(compiled.entity.name))


def answer_rows(scenario: Scenario, number: int, link: str = "") -> list[dict[str, Any]]:
    """Return the rows of an answer, or its groups as rows."""
    answer = ask(scenario, number, link)
    reader = Reader.of_context(answer.compiled.context)
    if answer.groups is not None:
        names = result_columns.group_column_names(answer.groups)
        return [
            dict(zip(names, row, strict=True))
            for row in result_columns.groups_to_json(answer.groups)
        ]
    return [
        result_columns.row_to_json(answer.compiled.entity.name, row, reader) for row in answer.rows
    ]


def test_each_question_finds_what_it_asks_for_by_an_index(scenario: Scenario) -> None:
    for number, names in EFFECTS.items():
        assert sorted(row["key"] for row in answer_rows(scenario, number)) == sorted(names), number
    for number, names in GATES.items():
        assert [row["effect"] for row in answer_rows(scenario, number)] == [
            scenario.handle(name) for name in names
        ], number
    assert (
        [row["key"] for row in answer_rows(scenario, 1)]
        == ["broken"]
        == [row["key"] for row in answer_rows(scenario, 16)]
    )
    assert answer_rows(scenario, 3) == [{"repository": "web", "count": 1, "max(attempts)": 2}]
    granted = answer_rows(scenario, 4)
    assert sorted((row["rule"], row["granter"], row["sum(uses)"]) for row in granted) == [
        ("deploy", "administrator", 2),
        ("push", "dan", 1),
    ]
    assert sorted((row["approver"], row["count"]) for row in answer_rows(scenario, 9)) == [
        ("reviewer", 2)
    ]
    assert [(row["tool"], row["uses"]) for row in answer_rows(scenario, 10)] == [("deploy", 2)]
    assert (
        scenario.exemption is not None
    )  # one reported a later run time, one was reported later without a time
    assert (
        len(
            [
                use
                for use in exemption_uses(scenario.inbox.project)
                if use.ran_us > scenario.exemption.ends_at_us
            ]
        )
        == 2
    )
    assert [row["key"] for row in answer_rows(scenario, 14, f'effect chain:"{ISSUE}"')] == ["apart"]
    assert [row["kind"] for row in answer_rows(scenario, 11)] == ["integrity.conflict"]
    assert [row["kind"] for row in answer_rows(scenario, 12)] == ["integrity.fenced"]
    assert {row["actor"] for row in answer_rows(scenario, 17)} == {"reviewer"}
    assert {"gate.voted"} <= {row["kind"] for row in answer_rows(scenario, 17)}
    waiting, seen = answer_rows(scenario, 2)[0], answer_rows(scenario, 13)[0]
    assert (waiting["asked"], waiting["status"]) == ("1 of the reviewers", "pending")
    assert (seen["reviewers"], seen["votes"][0]["card_sha256"]) == (
        ["administrator approve"],
        "c" * 64,
    )
    assert seen["votes"][0]["ruled_in"] >= 60
    assert {row["key"]: row["compensates"] for row in answer_rows(scenario, 14)}[
        "undoing"
    ] == scenario.handle("pushed")
    assert len(builtin_questions.AUDIT_QUESTIONS) == 17
    assert _full_reads(scenario) == []
    # A copied link shows the same answer, also a day later.
    links = {
        number: pin_query(question(scenario, number), now_us())
        for number in builtin_questions.QUESTIONS_BY_NUMBER
    }
    rows = {
        number: answer_rows(scenario, number) for number in builtin_questions.QUESTIONS_BY_NUMBER
    }
    assert {number: answer_rows(scenario, number, link) for number, link in links.items()} == rows
    by_hand = "gate approver:administrator"
    links[0], rows[0] = pin_query(by_hand, now_us()), answer_rows(scenario, 0, by_hand)
    loop, at = Session.objects.get(key="s-1"), {"since_us": 1, "seen_us": 1, "seen_sweep": 1}
    named = {"project": loop.project, "session": loop, "subject": loop.id, "rule": "S5"}
    episode = StuckEpisode.objects.create(
        **named, **at, raised_us=2, raised_position=running_writers.load_last_position()
    )
    stuck = pin_query("session is:stuck", now_us())
    job_heartbeats.record_heartbeat("stuck_checks")
    advance_scenario(scenario)
    StuckEpisode.objects.filter(id=episode.id).update(
        cleared_us=3, cleared_position=running_writers.load_last_position()
    )
    assert answer_rows(scenario, 0, "session is:stuck") == []
    assert [row["key"] for row in answer_rows(scenario, 0, stuck)] == ["s-1"]
    assert not ask(scenario, 0, stuck).notes
    assert answer_rows(scenario, 0, by_hand) != rows.pop(0) == answer_rows(scenario, 0, links[0])
    assert [number for number in rows if answer_rows(scenario, number) != rows[number]] == [
        2,
        4,
        5,
        6,
        9,
        14,
        19,
    ]
    looped = {
        "key": "s-1",
        "title": "",
        "agent": loop.agent.name,
        "max(repeats)": None,
    }  # no call was repeated
    assert answer_rows(scenario, 19) == [looped]
    for number in sorted(
        builtin_questions.QUESTIONS_BY_NUMBER.keys() - {19}
    ):  # the loop began at the very end of that day
        assert answer_rows(scenario, number, links[number]) == rows[number], number
    viewer = scenario.inbox.organization.client("viewer")
    for text, shown in ((links[2], False), (f"gate id:{rows[2][0]['gate']}", True)):
        page = viewer.get(reverse("search"), {"q": text}).content.decode()
        assert (rows[2][0]["gate"] in page, "administrator approved" in page) == (True, shown)
    # A URL that is no stored reference is searched as words.
    sent = viewer.get(reverse("search"), {"q": ISSUE})
    assert (sent.status_code, sent.headers["Location"]) == (
        302,
        links_to.build_search_url(f'"{ISSUE}"'),
    )
    # Questions need no agent content: a role that may not read it finds the same.
    answers = [
        {"number": number, "found": answer_rows(scenario, number)}
        for number in builtin_questions.QUESTIONS_BY_NUMBER
    ]
    with _as_auditor():
        assert [
            {"number": number, "found": answer_rows(scenario, number)}
            for number in builtin_questions.QUESTIONS_BY_NUMBER
        ] == answers
        for secret in ("SELECT text FROM journal_body", "SELECT said FROM agent_sessions_session"):
            with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(secret)


@contextmanager
def _as_auditor() -> Iterator[None]:
    """Run as the audit role; on SQLite, which has no roles, refuse the same reads."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("CREATE ROLE gatebook_test_auditor")
            call_command("audit_role", "gatebook_test_auditor", "--apply", stdout=io.StringIO())
            cursor.execute("SET LOCAL ROLE gatebook_test_auditor")
            yield
            cursor.execute("RESET ROLE")
        return
    readable = auditor_columns.readable_columns()

    def may(
        action: int,
        table: str | None,
        column: str | None,
        _database: str | None,
        _trigger: str | None,
    ) -> int:
        read = (
            action == sqlite3.SQLITE_READ
            and table is not None
            and not table.startswith(("sqlite_", "json_each"))
        )
        return (
            sqlite3.SQLITE_DENY
            if read and column and column not in readable.get(table or "", ())
            else 0
        )

    connection.connection.set_authorizer(may)
    try:
        yield
    finally:
        connection.connection.set_authorizer(None)


def test_the_audit_role_command_lists_the_withheld_columns(agent: Caller) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no roles")
    agent.session("s-1")
    agent.plan("k-1", arguments={"note": "invoice"})
    for words in ("invoice", 'session any(effect: "of words")'):
        with (
            pytest.raises(CommandError, match="audit roles cannot read the words of effects"),
            transaction.atomic(),
            _as_auditor(),
        ):
            call_command("search", words)


# Long texts that an audit needs, or that contain no personal data.
READABLE_LONG_COLUMNS: Final[dict[str, dict[str, str]]] = {
    "journal_entry": {
        "facts": "a closed vocabulary: states, ids, digests, pseudonyms",
        "body_commit": "proves a body and cannot be reversed",
    },
    "accounts_repository": {
        "production_refs": "why a ref counts as production",
        "protected_refs": "why a ref counts as protected",
    },
    "approvals_policyset": {
        "text": "the rules that were in force",
        "rules": "the rules that were in force",
    },
    "ledger_tool": {
        "telling": "names of arguments, declared by the operator",
        "fields": "names of arguments, declared by the operator",
        "raises": "conditions that were in force",
        "shell": "which commands are calls of a tool, declared by the operator",
    },
    "investigation_fieldcoverage": {"fields": "names of arguments, declared by the operator"},
    "approvals_gate": {"requirement": "who had to approve"},
}


def test_every_long_text_column_is_withheld_from_audits_or_listed_as_readable() -> None:
    long_text_fields = (models.TextField, models.JSONField, models.BinaryField)
    long_columns = {
        (model._meta.db_table, field.column)
        for model in auditor_columns.gatebook_models()
        for field in model._meta.local_fields
        if isinstance(field, long_text_fields)
    }
    named = {
        (table, column)
        for part in (auditor_columns.WITHHELD_COLUMNS, READABLE_LONG_COLUMNS)
        for table in part
        for column in part[table]
    }
    columns_of = {
        model._meta.db_table: {field.column for field in model._meta.local_fields}
        for model in auditor_columns.gatebook_models()
    }
    assert long_columns <= named
    assert all(column in columns_of[table] for table, column in named)
    rows = (Path(settings.BASE_DIR) / "docs" / "how-to" / "operating.md").read_text().splitlines()
    for table, withheld in auditor_columns.WITHHELD_COLUMNS.items():
        documented = "".join(row for row in rows if row.startswith("| `") and f"`{table}`" in row)
        assert all(f"`{column}`" in documented for column in withheld), table


# Indexes of which a question may read a range; other indexes need more than the project.
_FEW: Final = (
    "effect_violations",
    "effect_without_permission",
    "effect_tried_again",
    "effect_needing_permission",
)


def _walks(sql: str, line: str) -> bool:
    """Return True for a plan line that reads all effects or entries, or all of a project."""
    names = set()
    for table, alias in re.findall(r'"(ledger_effect|journal_entry)"(?: (\w+\d+))?', sql):
        names |= {table, alias} - {""}
    if connection.vendor == "postgresql":
        return re.search(r"Seq Scan on (?:ledger_effect|journal_entry)", line) is not None
    read = re.match(r"(SCAN|SEARCH) (\w+)(?: USING (?:COVERING )?INDEX (\w+))?(?: \((.*)\))?", line)
    if read is None or read[2] not in names:
        return False
    return read[1] == "SCAN" or (read[4] in ("project_id=?", "project=?") and read[3] not in _FEW)


def _full_reads(scenario: Scenario) -> list[tuple[int, str]]:
    """Return the full reads in the plans of the questions, as (question, line)."""
    walked: list[tuple[int, str]] = []
    with connection.cursor() as cursor:
        if (
            connection.vendor == "postgresql"
        ):  # small tables would be scanned; now only without an index
            cursor.execute("SET LOCAL enable_seqscan = off")

    def explained(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("SELECT"):
            with connection.cursor() as cursor:
                cursor.execute(
                    ("EXPLAIN QUERY PLAN " if connection.vendor == "sqlite" else "EXPLAIN ") + sql,
                    params,
                )
                plan = [str(row[-1]) for row in cursor.fetchall()]
            plans.append(plan)
            walked.extend((number, line) for line in plan if _walks(sql, line))
        return execute(sql, params, many, context)

    for number in builtin_questions.QUESTIONS_BY_NUMBER:
        plans: list[list[str]] = []
        with connection.execute_wrapper(explained):
            ask(scenario, number)
        assert plans, number
    return walked


def test_a_question_names_its_missing_value_and_a_value_stays_one_value() -> None:
    with pytest.raises(builtin_questions.ParameterError, match="needs a value for tool"):
        builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[1], {"since": "7d"})
    with pytest.raises(builtin_questions.ParameterError, match="not a whole number"):
        builtin_questions.fill_question(
            builtin_questions.QUESTIONS_BY_NUMBER[16], {"times": "3 OR status:failed"}
        )
    with pytest.raises(builtin_questions.ParameterError, match="not a time"):
        builtin_questions.fill_question(
            builtin_questions.QUESTIONS_BY_NUMBER[4], {"since": "tomorrow"}
        )
    sneaky = builtin_questions.fill_question(
        builtin_questions.QUESTIONS_BY_NUMBER[1], {"tool": 'x" OR status:"completed', "since": "1d"}
    )
    assert sneaky == 'session status:failed failing_tool:"x\\" OR status:\\"completed" since:1d'
    assert (
        builtin_questions.fill_question(builtin_questions.QUESTIONS_BY_NUMBER[17], {"actor": "ann"})
        == "event actor:ann since:24h"
    )
