"""What the journal says against a claim: runs of tests, session titles, earlier dry runs."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals.checks.checked_request import CheckedRequest, build_checked_request
from approvals.checks.contradiction_facts import has_failed_tests, load_contradiction_facts
from approvals.checks.contradictions import find_contradictions
from approvals.models import Gate
from approvals.policies.policy_evaluation import load_plan_body
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of

GREEN = "Tests are green."


def run_tests(
    inbox: InboxScenario, key: str, command: str = "pytest -q", result: Any = None, **fields: Any
) -> None:
    """Report a run of tests in session s-1, or in `session`."""
    session = fields.pop("session", "s-1")
    report_call(inbox, key, session, "bash", {"command": command}, result, **fields)


def report_call(
    inbox: InboxScenario,
    key: str,
    session: str,
    tool: str,
    arguments: Any,
    result: Any,
    **fields: Any,
) -> None:
    """Report a call that ended: ok unless `fields` name another outcome."""
    outcome = fields.pop("outcome", "ok")
    about = {"session": session, "effect_key": key}
    items = [
        ("planned", about | {"tool": tool, "arguments": arguments} | fields),
        ("dispatched", about | {"attempt": 1}),
        ("acknowledged", about | {"attempt": 1, "outcome": outcome, "result": result}),
    ]
    answer = inbox.agent.report(
        [
            {"id": f"{session}-{key}-{kind}", "kind": f"effect.{kind}", "sequence": at, **body}
            for at, (kind, body) in enumerate(items)
        ]
    )
    assert answer.status_code == 200, answer.text


def push(inbox: InboxScenario, key: str = "push", session: str = "s-1", **fields: Any) -> Gate:
    """Request a push with a claim about tests."""
    defaults: dict[str, Any] = {
        "arguments": {"refspec": "8f2c91d4:refs/heads/main"},
        "why": GREEN,
    }
    return inbox.gate(inbox.agent.plan(key, session, **(defaults | fields)))


def check(inbox: InboxScenario, *gates: Gate) -> list[tuple[str, str, str]]:
    """Level, title and sentence of the contradictions of gates."""
    requests = [build_request_of(gate) for gate in gates]
    facts = load_contradiction_facts(inbox.project.id, requests)
    return [
        (result.level, result.title, result.sentence)
        for request in requests
        for result in find_contradictions(request, facts[request.gate])
    ]


def build_request_of(gate: Gate) -> CheckedRequest:
    """The request of a stored gate."""
    return build_checked_request(gate, gate.effect, load_plan_body(gate.plan_position))


def test_tests_that_ran_on_another_branch_are_a_warning(inbox: InboxScenario) -> None:
    inbox.agent.session("s-1", branch="docs/rounding")
    run_tests(inbox, "t-1")
    assert [result[:2] for result in check(inbox, push(inbox))] == [
        ("warning", "Claim “Tests are green”: they ran on docs/rounding, not on main.")
    ]


@pytest.mark.parametrize(
    ("branch", "arguments"),
    [
        ("main", {"refspec": "HEAD:refs/heads/main"}),
        ("docs/rounding", {"refspec": "docs/rounding:main"}),
        ("docs/rounding", {"branch": "docs/rounding"}),
        ("", {"branch": "main"}),
    ],
)
def test_tests_on_what_is_pushed_are_quiet(
    inbox: InboxScenario, branch: str, arguments: dict[str, Any]
) -> None:
    inbox.agent.session("s-1", branch=branch)
    run_tests(inbox, "t-1")
    assert check(inbox, push(inbox, arguments=arguments)) == []


def test_tests_of_the_same_commit_are_quiet(inbox: InboxScenario) -> None:
    inbox.agent.session("s-1")
    report_call(inbox, "t-1", "s-1", "ci.run", {"branch": "x", "sha": "8f2c91d4aa"}, {"ok": True})
    assert check(inbox, push(inbox)) == []


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        ({"exit_code": 1}, "ok"),
        ("...\n2 failed, 31 passed in 3.1s", "ok"),
        ({"conclusion": "failure"}, "ok"),
        ("", "error"),
    ],
)
def test_a_last_run_that_failed_is_grave(inbox: InboxScenario, result: Any, outcome: str) -> None:
    inbox.agent.session("s-1", branch="main")
    run_tests(inbox, "t-1", result={"exit_code": 0})
    run_tests(inbox, "t-2", result=result, outcome=outcome)
    (level, title, sentence), *others = check(inbox, push(inbox))
    assert (level, title) == ("danger", "Claim “Tests are green”: the last run on main failed.")
    assert sentence.startswith("pytest -q in e_")
    assert others == []


def test_a_failed_run_before_a_green_one_is_quiet(inbox: InboxScenario) -> None:
    inbox.agent.session("s-1", branch="main")
    run_tests(inbox, "t-1", result={"exit_code": 1})
    run_tests(inbox, "t-2", result="12 passed, 0 failed")
    assert check(inbox, push(inbox)) == []


def test_no_run_at_all_is_a_notice(inbox: InboxScenario) -> None:
    inbox.agent.session("s-1")
    run_tests(inbox, "t-1", command="ls tests && cat pytest.ini")
    assert [result[:2] for result in check(inbox, push(inbox))] == [
        ("notice", "Claim “Tests are green”: the journal has no test run in this session.")
    ]


def test_a_run_in_the_parent_session_counts(inbox: InboxScenario) -> None:
    inbox.agent.session("s-1", branch="main")
    run_tests(inbox, "t-1")
    inbox.agent.session("s-2", parent="s-1", branch="main")
    assert check(inbox, push(inbox, session="s-2")) == []


def test_what_a_session_checked_out_is_where_its_tests_ran(inbox: InboxScenario) -> None:
    inbox.agent.session("s-1", branch="main")
    run_tests(inbox, "t-1", command="git checkout -b docs/rounding && npm test")
    assert [title for _level, title, _sentence in check(inbox, push(inbox))] == [
        "Claim “Tests are green”: they ran on docs/rounding, not on main."
    ]


def test_the_title_of_a_session_is_a_claim_too(inbox: InboxScenario) -> None:
    inbox.agent.session("s-1", title="Docs only: explain rounding")
    gate = push(inbox, arguments={"branch": "x", "files": ["docs/a.md", "app/tax.py"]}, why="")
    assert check(inbox, gate) == [
        ("warning", "Session title “Docs only”: 1 of 2 files is not docs.", "A source file.")
    ]


def test_a_dry_run_without_the_flag_of_earlier_calls_is_grave(inbox: InboxScenario) -> None:
    inbox.agent.session("s-1")
    report_call(inbox, "d-1", "s-1", "deploy", {"service": "api", "dry_run": True}, {})
    gate = inbox.gate(
        inbox.agent.plan("d-2", tool="deploy", arguments={"service": "api"}, why="Dry run")
    )
    (level, title, _sentence), *others = check(inbox, gate)
    assert (level, title) == ("danger", "Claim “Dry run”: the call has no dry_run.")
    assert others == []


def test_a_page_of_requests_takes_as_many_queries_as_one(inbox: InboxScenario) -> None:
    gates = []
    for number in range(12):
        key = f"s-{number}"
        inbox.agent.session(key, branch="docs/x")
        run_tests(inbox, "t-1", session=key)
        gates.append(push(inbox, session=key, why=f"{GREEN} Dry run."))
    requests = [build_request_of(gate) for gate in gates]
    counts = []
    for listed in (requests[-1:], requests):
        with CaptureQueriesContext(connection) as queries:
            facts = load_contradiction_facts(inbox.project.id, listed)
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 10
    assert all(facts[request.gate].test_runs for request in requests)


def test_claims_about_neither_tests_nor_dry_runs_take_one_query(inbox: InboxScenario) -> None:
    inbox.agent.session("s-1")
    request = build_request_of(push(inbox, why="Docs only, as agreed."))
    with CaptureQueriesContext(connection) as queries:
        load_contradiction_facts(inbox.project.id, [request])
    assert len(queries) == 1


def test_another_projects_facts_are_not_read(inbox: InboxScenario) -> None:
    inbox.agent.session("s-1", title="Docs only", branch="main")
    run_tests(inbox, "t-1")
    request = build_request_of(push(inbox))
    facts = load_contradiction_facts(inbox.organization.other.id, [request])[request.gate]
    assert (facts.session_title, facts.test_runs) == ("", None)


def test_card_and_list_show_the_contradiction(inbox: InboxScenario, rita: Reviewer) -> None:
    inbox.agent.session("s-1")
    gate = push(inbox, arguments={"branch": "x", "files": ["docs/a.md", "a.py"]}, why="Docs only")
    assert "Claim “Docs only”: 1 of 2 files is not docs." in rita.page(url_of(gate))
    assert "not docs only" in rita.page("/approvals/")


@pytest.mark.parametrize(
    "text",
    [
        '{"result": {"exit_code": 2, "stdout": ""}}',
        '{"result": [{"type": "text", "text": "FAIL src/a.test.ts"}]}',
        '{"result": "==== 1 failed, 3 passed ===="}',
        '{"result": "Exit code: 1"}',
        '{"result": {"status": "failed"}}',
    ],
)
def test_answers_of_failed_runs_are_recognized(text: str) -> None:
    assert has_failed_tests(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"result": "31 passed in 2 s"}',
        '{"result": "test_failed_login passed; 0 failed, 0 errors"}',
        '{"result": {"exit_code": 0, "stdout": "ok"}}',
        "{}",
        "",
    ],
)
def test_answers_of_green_runs_are_quiet(text: str) -> None:
    assert not has_failed_tests(text)
