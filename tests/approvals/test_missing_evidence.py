"""What a rule requires of the request itself, and nobody sent; and what a forced push removes."""

import re
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from approvals.checks.checked_request import CheckedRequest
from approvals.checks.missing_evidence import RequestEvidence, find_missing_evidence
from approvals.models import Gate
from approvals.policies.engine import RequiredEvidence
from tests.approvals.inbox_scenario import RULES, InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from tests.approvals.test_inbox_facts import plainly
from tests.approvals.test_inbox_flags import entry

GATE = UUID(int=1)
TICKET = RequiredEvidence(tickets=("OPS-*",))
EVIDENCE = RULES.replace(
    "{minimum: 1, rationale: {on: on_deny, minimum_characters: 3}}",
    "{minimum: 1, evidence: {ticket: 'OPS-*', removed_commits: true, arguments: [plan_hash]}}",
)


def request_of(arguments: Any = None, **columns: Any) -> CheckedRequest:
    defaults: dict[str, Any] = {
        "gate": GATE,
        "effect": UUID(int=2),
        "session": UUID(int=3),
        "agent": UUID(int=4),
        "opened_position": 1,
        "plan_position": 1,
        "requested_at_us": 0,
        "tool": "deploy",
        "arguments": {} if arguments is None else arguments,
        "preconditions": {},
        "claim": "",
        "repository": "",
        "ref": "",
        "ref_class": "",
        "environment": "",
        "resource": "",
        "reversibility": "compensable",
        "risk": "medium",
        "policy_set": None,
        "rule": "r",
        "intent_digest": "v1:0",
    }
    return CheckedRequest(**(defaults | columns))


def titles(
    request: CheckedRequest, required: RequiredEvidence | None = None, **session: Any
) -> list[str]:
    facts = {GATE: RequestEvidence(required, **session)} if required is not None else {}
    return [result.title for result in find_missing_evidence(request, facts)]


@pytest.mark.parametrize(
    ("request_fields", "session"),
    [
        ({"arguments": {"note": "see OPS-204."}}, {}),
        ({"arguments": {"steps": [{"refs": ["OPS-204"]}]}}, {}),
        ({"claim": "Rolls back (OPS-204): tests are green."}, {}),
        ({"ref": "refs/heads/fix/OPS-204-rounding"}, {}),
        ({"resource": "ops/OPS-204"}, {}),
        ({"preconditions": {"ticket": "OPS-204"}}, {}),
        ({}, {"session_title": "OPS-204: restore backups"}),
        ({}, {"session_labels": {"ticket": "OPS-204"}}),
        ({"arguments": {"url": "https://tickets.example/browse/OPS-204?x=1"}}, {}),
    ],
)
def test_a_ticket_counts_in_any_field_of_the_request(
    request_fields: dict[str, Any], session: dict[str, Any]
) -> None:
    assert titles(request_of(**request_fields), TICKET, **session) == []


@pytest.mark.parametrize(
    "request_fields",
    [
        {},
        {"claim": "No ticket yet."},
        {"claim": "For OPS-"},  # names none
        {"claim": "ops-204"},  # globs are case-sensitive
        {"arguments": {"note": "DEVOPS-204"}},
    ],
)
def test_a_ticket_that_nobody_sent_is_named_with_the_pattern(
    request_fields: dict[str, Any],
) -> None:
    (result,) = find_missing_evidence(request_of(**request_fields), {GATE: RequestEvidence(TICKET)})
    assert (result.check, result.level, result.short, result.concerns) == (
        "missing_evidence",
        "warning",
        "no ticket",
        "evidence",
    )
    assert result.title == "Not provided: ticket (the rule requires OPS-…)."
    assert result.sentence == "Assume the worst."


def test_all_that_is_missing_is_one_line() -> None:
    required = RequiredEvidence(
        tickets=("OPS-*",), plan_hash=True, arguments=("row_count", "backup.id")
    )
    request = request_of({"command": "terraform apply -auto-approve", "backup": {"id": ""}})
    assert titles(request, required) == [
        "Not provided: ticket (the rule requires OPS-…), plan hash, row count, backup.id."
    ]
    complete = request_of(
        {
            "command": "terraform apply plan.out # OPS-1",
            "plan_sha256": "9c1",
            "row_count": 0,
            "backup": {"id": "b-1"},
        }
    )
    assert titles(complete, required) == []


@pytest.mark.parametrize(
    ("tool", "arguments", "wants_hash"),
    [
        ("terraform.apply", {"dir": "prod"}, True),
        ("terraform.plan", {"dir": "prod"}, False),
        ("shell.run", {"command": "cd infra && tofu apply"}, True),
        ("shell.run", {"command": ["terraform", "destroy"]}, True),
        ("shell.run", {"command": "terraform plan -out plan.out"}, False),
        ("shell.run", {"command": "make terraforming"}, False),
        ("pulumi.up", {"stack": "prod", "plan_hash": "ab"}, False),
        ("shell.run", {"command": "ls"}, False),
    ],
)
def test_a_plan_hash_is_wanted_only_of_tools_that_apply_plans(
    tool: str, arguments: dict[str, Any], *, wants_hash: bool
) -> None:
    required = RequiredEvidence(plan_hash=True)
    assert bool(titles(request_of(arguments, tool=tool), required)) == wants_hash
    assert titles(request_of(arguments, tool=tool)) == []  # only where the rule says so


@pytest.mark.parametrize(
    ("arguments", "wants_count"),
    [
        ({"sql": "UPDATE orders SET paid = true"}, True),
        ({"query": "BEGIN;\nDELETE FROM orders WHERE id < 9"}, True),
        ({"command": 'psql -c "truncate orders"'}, True),
        ({"statements": ["INSERT INTO a SELECT * FROM b"]}, True),
        ({"sql": "WITH old AS (SELECT 1) DELETE FROM orders"}, True),
        ({"sql": "UPDATE orders SET paid = true", "row_count": 12}, False),
        ({"sql": "UPDATE orders SET paid = true", "expected_rows": 0}, False),
        ({"sql": "SELECT update_set FROM orders"}, False),
        ({"sql": "SELECT * FROM orders FOR UPDATE"}, False),
        ({"note": "update the docs"}, False),
        ({"sql": "SELECT 1" + "\n" * 100_000}, False),  # the search ends in time
    ],
)
def test_a_row_count_is_wanted_only_of_statements_that_change_rows(
    arguments: dict[str, Any], *, wants_count: bool
) -> None:
    required = RequiredEvidence(row_count=True)
    assert bool(titles(request_of(arguments, tool="db.query"), required)) == wants_count


REMOVES = ["May remove commits: not reported."]


@pytest.mark.parametrize(
    ("tool", "arguments", "ref", "by"),
    [
        ("git.push", {"refspec": "+8f2c91d4:refs/heads/main"}, "", "+"),
        ("git.push", {"remote": "origin"}, "+main", "+"),
        ("git.push", {"force": True}, "main", "force"),
        ("git.push", {"args": ["--force-with-lease=main:4be1", "origin"]}, "", "--force-with"),
        ("git.push", {"options": {"force": True}}, "", "force"),
        ("git.push", {"flags": "-uf"}, "", "-f"),
        ("git", {"args": ["push", "-f", "origin"]}, "", "-f"),
        ("git", {"command": "push", "force": True}, "", "force"),
        ("git.run", {"argv": ["-C", "web", "push", "--force"]}, "", "--force"),
        ("shell.run", {"command": "cd web && git push origin '+main'"}, "", "+"),
        ("shell.run", {"command": ["git", "push", "--mirror"]}, "", "--mirror"),
        ("shell.run", {"program": "/usr/bin/git", "args": ["push", "-f"]}, "", "-f"),
        ("shell.run", {"commands": [{"run": "git push -f"}]}, "", "-f"),
        ("shell.run", {"commands": [["git", "push", "-f"], ["ls", 1]]}, "", "-f"),
        ("shell.run", {"script": "git fetch\ngit push --force origin main\n"}, "", "--force"),
        ("shell.run", "git push -f", "", "-f"),
    ],
)
def test_a_forced_push_in_any_form_may_remove_commits(
    tool: str, arguments: Any, ref: str, by: str
) -> None:
    request = request_of(arguments, tool=tool, ref=ref)
    (result,) = find_missing_evidence(request, {})
    assert ([result.title], result.check, result.level) == (REMOVES, "removed_commits", "warning")
    assert result.sentence.startswith(by)
    assert len(result.short) <= 28


@pytest.mark.parametrize(
    ("tool", "arguments", "ref"),
    [
        ("git.push", {"refspec": "8f2c91d4:refs/heads/main"}, "main"),
        ("git.push", {"force": False}, "main"),
        ("git.push", {"force": True, "removed_commits": ["4be1c9e fix"]}, "main"),
        ("git.push", {"force": True, "removed_commits": []}, "main"),  # says that none is
        ("shell.run", {"command": "git push origin main && rm -f out"}, ""),
        ("shell.run", {"command": "git fetch --force"}, ""),
        ("shell.run", {"command": "docker push -f image"}, ""),
        ("file.write", {"path": "a", "force": True}, "+main"),
        ("shell.run", {"args": ["push", "-f"]}, ""),
    ],
)
def test_a_push_that_is_not_forced_or_is_reported_warns_of_nothing(
    tool: str, arguments: Any, ref: str
) -> None:
    assert titles(request_of(arguments, tool=tool, ref=ref)) == []


def test_a_rule_wants_removed_commits_of_deletions_but_not_of_ordinary_pushes() -> None:
    required = RequiredEvidence(removed_commits=True)
    missing = ["Not provided: removed commits."]
    assert titles(request_of({"refspec": ":old"}, tool="git.push"), required) == missing
    assert titles(request_of({"to": "v1"}, tool="history.rewrite"), required) == missing
    assert titles(request_of({"refspec": "main"}, tool="git.push"), required) == []
    assert titles(request_of({"force": True}, tool="git.push"), required) == REMOVES


def test_the_list_of_removed_commits_counts_in_the_preconditions() -> None:
    removed = {"removed_commits": [{"sha": "4be1c9e"}]}
    assert titles(request_of({"force": True}, tool="git.push", preconditions=removed)) == []


def test_arguments_that_were_not_read_are_not_missing() -> None:
    request = request_of(tool="git.push", ref="+main")
    unread = CheckedRequest(
        **{name: getattr(request, name) for name in CheckedRequest.__slots__} | {"arguments": None}
    )
    assert titles(unread, TICKET) == []


# --- pages ------------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_card_and_the_list_name_what_the_rule_wants_and_nobody_sent(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.rules(EVIDENCE)
    gate = inbox.gate(inbox.plan(arguments={"refspec": "+a:main", "plan_hash": "9c1"}))
    page = plainly(rita.page(url_of(gate)))
    assert "ticket (the rule requires OPS-…)" in page[page.index("Not provided:") :]
    assert "May remove commits: not reported." in page
    assert "the rule requires one" in page
    assert "no ticket" in entry(rita, gate)
    complete = inbox.gate(
        inbox.plan("e-2", arguments={"refspec": "main", "plan_hash": "9c1"}, why="OPS-204")
    )
    assert "OPS-…" not in rita.page(url_of(complete))
    assert "ticket" not in entry(rita, complete)


@pytest.mark.django_db
def test_a_request_that_lacks_evidence_is_never_in_a_batch(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.declare("note.write", "reversible")
    rule = (
        "  - {id: note, title: N, match: {tools: [note.write]}, outcome: require, require: "
        "{evidence: {ticket: 'OPS-*'}}}\n"
    )
    inbox.rules(RULES + rule)
    gates = [
        inbox.gate(inbox.plan(f"e-{n}", tool="note.write", arguments={"note": text}))
        for n, text in enumerate(("one OPS-1", "two OPS-2", "three"))
    ]
    page = choose_batch(rita, gates)
    ticks = re.findall(r'name="gate"[^>]*value="([^"]+)"|value="([^"]+)"[^>]*name="gate"', page)
    assert {first or second for first, second in ticks} == {str(gate.id) for gate in gates[:2]}


def choose_batch(rita: Reviewer, gates: list[Gate]) -> str:
    rita.client.post(reverse("batch"), {"gate": [str(gate.id) for gate in gates]})
    return rita.page(reverse("batch_confirm"))


@pytest.mark.django_db
def test_the_evidence_of_a_waiting_request_is_that_of_its_own_rule(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    gate = inbox.gate(inbox.plan(arguments={"refspec": "main"}))
    inbox.rules(EVIDENCE)
    assert "OPS-…" not in rita.page(url_of(gate))


@pytest.mark.django_db
def test_a_page_of_requests_loads_evidence_in_one_query(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.rules(EVIDENCE)
    counts = []
    for n in range(3):
        inbox.plan(f"e-{n}", arguments={"refspec": f"b{n}"})
        with CaptureQueriesContext(
            connection,
        ) as queries:
            rita.page(reverse("inbox"))
        counts.append(
            sum(
                "agent_sessions_session" in query["sql"] and '"requirement"' in query["sql"]
                for query in queries.captured_queries
            )
        )
    assert counts[1] == counts[2] <= 1
