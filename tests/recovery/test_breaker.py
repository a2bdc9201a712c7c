"""The circuit breaker of a tool: opens after failures in a row, admits one trial, closes on
success."""

from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from django.core.management import call_command
from django.db import transaction
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from accounts import agents, projects, tokens
from db.clock import now_us
from db.yaml_reader import DocumentError
from journal.models import Body, Entry
from ledger.circuit_breakers import US
from ledger.models import Breaker, Effect
from ledger.tools import cache, tools_yaml
from tests.api.api_client import Caller, code
from tests.journal.committed import committed, together
from tests.pages.people import Organization

__all__ = ["committed"]
PAUSE_S = 600
TOOLS = f"""
tools:
  flaky: {{class: opaque, deadline_s: 30, breaker: {{failures: 3, pause_s: {PAUSE_S}}}}}
  plain: {{class: opaque}}
"""


def load(folder: Path, text: str = TOOLS) -> None:
    file = folder / "tools.yaml"
    file.write_text(text)
    call_command("load_tools", str(file))
    cache.clear_tool_cache()


@pytest.fixture
def at_work(agent: Caller, tmp_path: Path) -> Caller:
    """An agent with a session, in a project that declares one tool with a breaker and one without."""
    load(tmp_path)
    agent.session()
    return agent


def start(agent: Caller, name: str, tool: str = "flaky") -> dict[str, Any]:
    """Plan and dispatch."""
    effect = agent.plan(name, tool=tool, arguments={"n": name})
    agent.dispatch(effect)
    return effect


def plan(agent: Caller, name: str, tool: str = "flaky") -> Any:
    body = {"session": "s-1", "effect_key": name, "tool": tool, "arguments": {"n": name}}
    return agent.post("/effects", body)


def open_breaker(agent: Caller, times: int = 3) -> None:
    for number in range(times):
        agent.fail(start(agent, f"bad-{number}"), "timeout")


def pass_time() -> None:
    """Move the ends of the pause and of the trial into the past."""
    Breaker.objects.exclude(until_us=None).update(until_us=now_us() - 1)
    Breaker.objects.exclude(trial=None).update(trial_until_us=now_us() - 1)


def breaker_moves() -> list[str]:
    rows = (
        Entry.objects.filter(kind="control.fired")
        .order_by("position")
        .values_list("facts", flat=True)
    )
    return [orjson.loads(facts)["moved"] for facts in rows]


def test_failures_in_a_row_open_the_breaker_and_only_plans_pause(at_work: Caller) -> None:
    running, waiting = (
        start(at_work, "slow"),
        at_work.plan("ready", tool="flaky", arguments={"n": "ready"}),
    )
    open_breaker(at_work, 2)
    assert plan(at_work, "third").status_code == 201
    at_work.fail(start(at_work, "bad-last"), "error")
    before = Entry.objects.count(), Effect.objects.count()
    refused = plan(at_work, "more")
    assert code(refused) == (429, "BREAKER_OPEN")
    assert PAUSE_S - 60 <= int(refused.headers["Retry-After"]) <= PAUSE_S
    assert (Entry.objects.count(), Effect.objects.count()) == before
    assert plan(at_work, "other", "plain").status_code == 201
    assert (
        plan(at_work, "ready").json()["answer"] == "proceed"
    )  # a repeated plan with permission gets its state
    at_work.dispatch(waiting)
    at_work.acknowledge(running)
    assert (
        Breaker.objects.get().failures == 3
    )  # a success sent before the breaker opened does not reset the count
    assert breaker_moves() == ["opened"]
    entry = Entry.objects.get(kind="control.fired")
    assert orjson.loads(entry.facts) == {
        "control": "breaker",
        "failures": 3,
        "moved": "opened",
        "pause_s": PAUSE_S,
    }
    assert '"tool":"flaky"' in Body.objects.get(entry=entry).text
    assert "flaky" not in entry.facts


def test_a_success_between_failures_resets_the_count(at_work: Caller) -> None:
    open_breaker(at_work, 2)
    at_work.acknowledge(start(at_work, "good"))
    assert Breaker.objects.get().failures == 0
    for name in ("again-1", "again-2"):
        at_work.acknowledge(start(at_work, name), outcome="unknown")
    assert plan(at_work, "still").status_code == 201
    at_work.acknowledge(start(at_work, "again-3"), outcome="error")
    assert code(plan(at_work, "more")) == (429, "BREAKER_OPEN")


def test_after_the_pause_one_plan_is_the_trial_and_its_success_closes(at_work: Caller) -> None:
    open_breaker(at_work)
    pass_time()
    trial = at_work.plan("trial", tool="flaky", arguments={"n": "trial"})
    assert code(plan(at_work, "second")) == (429, "BREAKER_OPEN")
    assert (
        plan(at_work, "trial").json()["answer"] == "proceed"
    )  # a repeated plan of the trial is admitted
    at_work.dispatch(trial)
    at_work.acknowledge(trial)
    assert plan(at_work, "second").status_code == 201
    row = Breaker.objects.get()
    assert (row.failures, row.opened_at_us, row.until_us, row.trial) == (0, None, None, None)
    assert breaker_moves() == ["opened", "closed"]


def test_a_failed_trial_opens_the_breaker_again_for_a_full_pause(at_work: Caller) -> None:
    open_breaker(at_work)
    pass_time()
    trial = start(at_work, "trial")
    at_work.fail(trial, "rejected")
    refused = plan(at_work, "second")
    assert code(refused) == (429, "BREAKER_OPEN")
    assert int(refused.headers["Retry-After"]) >= PAUSE_S - 60
    assert breaker_moves() == ["opened", "opened_again"]


def test_a_trial_without_a_report_is_replaced_after_the_pause(at_work: Caller) -> None:
    open_breaker(at_work)
    pass_time()
    start(at_work, "trial")
    row = Breaker.objects.get()
    assert row.trial_until_us is not None
    assert row.trial_until_us >= now_us() + (PAUSE_S - 60) * US
    assert code(plan(at_work, "second")) == (429, "BREAKER_OPEN")
    pass_time()
    assert plan(at_work, "second").status_code == 201
    assert code(plan(at_work, "third")) == (429, "BREAKER_OPEN")


def test_a_trial_that_a_probe_finds_closes_the_breaker(at_work: Caller) -> None:
    open_breaker(at_work)
    pass_time()
    trial = start(at_work, "trial")
    for result in ("error", "miss"):
        assert (
            at_work.post(
                f"/effects/{trial['id']}/probe", {"attempt": 1, "result": result}
            ).status_code
            == 200
        )
    assert code(plan(at_work, "second")) == (429, "BREAKER_OPEN")
    assert (
        at_work.post(f"/effects/{trial['id']}/probe", {"attempt": 1, "result": "hit"}).status_code
        == 200
    )
    assert plan(at_work, "second").status_code == 201
    assert breaker_moves() == ["opened", "closed"]


def test_a_late_failure_does_not_admit_a_second_trial(at_work: Caller) -> None:
    straggler = start(at_work, "straggler")
    open_breaker(at_work)
    pass_time()
    start(at_work, "trial")
    at_work.fail(straggler, "timeout")
    assert code(plan(at_work, "second")) == (429, "BREAKER_OPEN")
    assert Breaker.objects.get().trial is not None


def test_tools_without_a_breaker_are_not_counted(at_work: Caller) -> None:
    for number in range(5):
        at_work.fail(start(at_work, f"bad-{number}", "plain"), "error")
        at_work.fail(start(at_work, f"unknown-{number}", "nobody-declared"), "error")
    assert not Breaker.objects.exists()
    assert plan(at_work, "more", "plain").status_code == 201


def test_reports_and_late_answers_are_not_counted(at_work: Caller) -> None:
    effect = start(at_work, "late")
    at_work.acknowledge(effect)
    late = at_work.post(f"/effects/{effect['id']}/fail", {"attempt": 1, "reason": "error"})
    assert late.status_code == 202
    for number in range(4):
        item = {
            "id": f"r-{number}",
            "kind": "effect.planned",
            "session": "s-1",
            "effect_key": f"r-{number}",
        }
        at_work.report(
            [
                item | {"tool": "flaky"},
                {**item, "id": f"f-{number}", "kind": "effect.failed", "reason": "error"},
            ]
        )
    assert not Breaker.objects.exists()


def test_a_declaration_without_a_breaker_removes_its_state(at_work: Caller, tmp_path: Path) -> None:
    open_breaker(at_work)
    load(tmp_path, "tools:\n  flaky: {class: opaque}\n")
    assert not Breaker.objects.exists()
    assert plan(at_work, "more").status_code == 201


def test_the_breaker_of_another_project_is_separate(at_work: Caller, stranger: Caller) -> None:
    open_breaker(at_work)
    stranger.session()
    assert plan(stranger, "more").status_code == 201


def test_the_tools_page_shows_the_declared_breaker(
    organization: Organization, tmp_path: Path
) -> None:
    load(tmp_path)
    page = organization.client("viewer").get(reverse("tools")).content.decode()
    assert "after 3 failures in a row" in page


def test_the_tools_page_shows_the_state_of_the_breaker(
    organization: Organization, at_work: Caller
) -> None:
    open_breaker(at_work)
    page = organization.client("viewer").get(reverse("tools")).content.decode()
    assert "open until" in page
    assert Client().get(reverse("tools")).status_code == 302


@pytest.mark.parametrize(
    ("breaker", "sentence"),
    [
        ("5", "must be a mapping"),
        ("{failures: 5}", "has no `pause_s`"),
        ("{failures: 0, pause_s: 5}", "from 1 to 1000"),
        ("{failures: x, pause_s: 5}", "must be a whole number from"),
        ("{failures: 3, pause_s: 100000}", "from 1 to 86400"),
        ("{failures: 3, pause_s: 5, half: 1}", "unknown key 'half'"),
    ],
)
def test_an_invalid_breaker_declaration_is_refused_with_its_line(
    breaker: str, sentence: str
) -> None:
    with pytest.raises(DocumentError, match="Line 2") as refused:
        tools_yaml.parse_tools_yaml(f"tools:\n  a: {{class: opaque, breaker: {breaker}}}\n")
    assert sentence in str(refused.value)


def test_of_many_at_once_exactly_one_is_the_trial(
    committed: None, settings: Settings, tmp_path: Path
) -> None:
    from config.wsgi import application

    with transaction.atomic():
        token = tokens.issue_token(
            agents.ensure_agent(projects.ensure_default_project(), "tester"),
            expires_in=None,
            actor="tests",
        )
    load(tmp_path)
    sessions = [f"s-{number}" for number in range(8)]
    agent = Caller(token, app=application)
    for session in ("s-1", *sessions):
        agent.session(session)
    open_breaker(agent)
    pass_time()

    def ask(session: str) -> int:
        caller = Caller(token, app=application)
        body = {
            "session": session,
            "effect_key": "trial",
            "tool": "flaky",
            "arguments": {"n": session},
        }
        return caller.post("/effects", body).status_code

    answers = together(*[partial(ask, session) for session in sessions])
    assert sorted(answers) == [201] + [429] * 7
    assert Effect.objects.filter(effect_key="trial").count() == 1
