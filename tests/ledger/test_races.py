"""Many processes at the command lane at once, over the agents' endpoints and with real commits."""

from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest
from django.db import connection, transaction

from accounts import agents, tokens
from accounts.models import Project
from db import retry
from journal import entries
from journal.models import Entry
from ledger.models import Attempt, Effect
from ledger.store import writer
from ledger.store.effect_rows import AttemptRow, EffectRow
from sessions import sessions
from sessions.models import Session
from tests.api.api_client import Caller
from tests.journal.committed import together
from tests.journal.drafts import NOW_US, draft
from tests.ledger.rows_by_hand import World

INTENT = {"session": "s-1", "tool": "git.push", "arguments": {"ref": "main"}}


@pytest.fixture
def agent(application_outside: Callable[[str], Caller]) -> Caller:
    """An agent with an open session; the application commits its requests."""
    caller = application_outside("races")
    caller.session("s-1")
    return caller


def at_once(
    agent: Caller, *requests: tuple[str, dict[str, Any], str | None]
) -> list[httpx.Response]:
    """Send the requests (path, body, key) at the same moment, each over a client of its own."""
    application = agent.client._transport.app  # type: ignore[attr-defined]  # that of WSGITransport
    senders = [
        partial(Caller(agent.token, app=application).post, path, body, key=key)
        for path, body, key in requests
    ]
    answers = together(*senders)
    assert all(isinstance(answer, httpx.Response) for answer in answers), answers
    assert all(answer.status_code < 500 for answer in answers), [answer.text for answer in answers]
    return answers


def test_of_two_processes_planning_one_intent_exactly_one_proceeds(agent: Caller) -> None:
    for round_ in range(4):
        intent = {**INTENT, "arguments": {"round": round_}}
        keys = (f"e{round_}", f"f{round_}")
        answers = at_once(
            agent, *(("/effects", {**intent, "effect_key": key}, None) for key in keys)
        )
        assert sorted(answer.json()["answer"] for answer in answers) == ["ambiguous", "proceed"]
        permissions = Effect.objects.filter(effect_key__in=keys).values_list(
            "permission", flat=True
        )
        assert sorted(permissions) == ["granted", "none"]


def test_sixteen_processes_planning_under_one_key_make_one_effect_with_one_grant(
    agent: Caller,
) -> None:
    request = ("/effects", {**INTENT, "effect_key": "e"}, "k")
    answers = at_once(agent, *[request] * 16)
    assert sorted(answer.status_code for answer in answers) == [200] * 15 + [201]
    assert {answer.json()["id"] for answer in answers} == {str(Effect.objects.get().id)}
    assert (
        Entry.objects.filter(
            kind__in=["effect.planned", "effect.granted", "effect.withheld"]
        ).count()
        == 1
    )
    assert Session.objects.get().effect_count == 1


def test_of_sixteen_processes_dispatching_exactly_one_may_act(agent: Caller) -> None:
    effect = agent.plan("e")
    body = {"intent_digest": effect["intent_digest"]}
    path = f"/effects/{effect['id']}/dispatch"
    answers = at_once(
        agent, *((path, {**body, "process": f"p-{number}"}, None) for number in range(16))
    )
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 15
    assert {answer.json()["code"] for answer in answers if answer.status_code == 409} == {
        "ALREADY_DISPATCHED"
    }
    assert Attempt.objects.get().is_open
    assert Entry.objects.filter(kind="effect.dispatched").count() == 1


def test_one_process_that_repeats_itself_is_granted_one_attempt(agent: Caller) -> None:
    effect = agent.plan("e")
    request = (
        f"/effects/{effect['id']}/dispatch",
        {"process": "p", "intent_digest": effect["intent_digest"]},
        "k",
    )
    answers = at_once(agent, *[request] * 8)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["remote_key"] for answer in answers}) == 1
    assert Attempt.objects.count() == 1


def test_of_two_processes_that_retry_after_a_rejection_one_proceeds(agent: Caller) -> None:
    effect = agent.plan("e")
    agent.dispatch(effect)
    agent.fail(effect, "rejected")
    at_once(agent, *[("/effects", {**INTENT, "effect_key": "e"}, None)] * 4)
    body = {"intent_digest": effect["intent_digest"]}
    path = f"/effects/{effect['id']}/dispatch"
    answers = at_once(
        agent, *((path, {**body, "process": f"p-{number}"}, None) for number in range(4))
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    assert Entry.objects.filter(kind="effect.granted").count() == 1
    assert Attempt.objects.count() == 2


def test_of_two_processes_compensating_exactly_one_proceeds(agent: Caller) -> None:
    for round_ in range(4):
        effect = agent.plan(f"e{round_}", arguments={"round": round_})
        agent.dispatch(effect)
        agent.acknowledge(effect)
        undo = {"tool": "git.revert", "arguments": {"round": round_}}
        path = f"/effects/{effect['id']}/compensate"
        answers = at_once(
            agent, *((path, {**undo, "effect_key": f"undo {round_} {n}"}, None) for n in range(3))
        )
        assert sorted(answer.status_code for answer in answers) == [201, 409, 409], [
            answer.text for answer in answers
        ]
        assert {answer.json()["code"] for answer in answers if answer.status_code == 409} == {
            "COMPENSATION_OPEN"
        }


def test_commands_and_reports_of_one_effect_do_not_lock_each_other_out(
    agent: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every transaction of a session takes its locks in one order: none has to be retried."""
    monkeypatch.setattr(retry, "MAX_TRIES", 1)
    effect = agent.plan("e")
    agent.dispatch(effect)
    application = agent.client._transport.app  # type: ignore[attr-defined]  # that of WSGITransport

    def report(number: int) -> int:
        batch = [
            {
                "id": f"{number}-{n}",
                "kind": "effect.acknowledged",
                "session": "s-1",
                "effect_key": key,
                "outcome": "ok",
            }
            for n, key in enumerate(
                ["e", "x", "y", "undo"] if number % 2 else ["undo", "y", "x", "e"]
            )
        ]
        return Caller(agent.token, app=application).report(batch).status_code

    def answer() -> int:
        body = {"attempt": 1, "outcome": "ok"}
        return (
            Caller(agent.token, app=application)
            .post(f"/effects/{effect['id']}/acknowledge", body)
            .status_code
        )

    def plan() -> int:
        body = {**INTENT, "effect_key": "e"}
        return Caller(agent.token, app=application).post("/effects", body).status_code

    for round_ in range(3):
        reports = [partial(report, 10 * round_ + number) for number in range(4)]
        codes = together(*reports, answer, plan, answer, plan)
        assert all(code in (200, 202) for code in codes), codes
    assert Effect.objects.count() == 4
    assert Session.objects.get().effect_count == 4


def test_a_position_is_never_handed_out_twice_by_two_writers(agent: Caller) -> None:
    def write(number: int) -> None:
        for n in range(5):
            with transaction.atomic():
                entries.append_entries(
                    [draft(f"{number} {n}", project=Session.objects.get().project_id)], NOW_US
                )

    assert together(*(partial(write, number) for number in range(4))) == [None] * 4
    positions = list(Entry.objects.values_list("position", flat=True))
    assert len(positions) == len(set(positions))


@pytest.mark.django_db
def test_the_loser_of_a_race_for_a_new_effect_sees_the_race_and_no_constraint() -> None:
    """The loser's attempt was folded under another permission than the winner's effect has, so the
    transaction is retried."""
    world = World()
    world.write(Attempt, number=1)
    won = world.used
    lost = EffectRow(
        id=won.id,
        project_id=won.project_id,
        session_id=won.session_id,
        agent_id=won.agent_id,
        effect_key=won.effect_key,
        opened_position=won.opened_position,
        received_us=NOW_US,
        changed_us=NOW_US,
        permission="observed",
        permission_basis="observe",
    )
    attempts = [
        AttemptRow(won.project_id, won.id, number, "gbk", "observed", dispatched_mark="m")
        for number in (1, 2)
    ]
    with pytest.raises(writer.LostRace):
        writer.write_effects([lost], attempts)
    assert list(Attempt.objects.values_list("number", "permission")) == [(1, "used")]


@pytest.mark.parametrize("named", [False, True], ids=["new", "named before"])
def test_a_session_that_many_agents_report_at_once_belongs_to_one_agent(
    agent: Caller, named: bool
) -> None:
    """The other agents lost the race: their reports are claims."""
    application = agent.client._transport.app  # type: ignore[attr-defined]
    project = Project.objects.get(name="races")
    if named:
        child = {"id": "1", "kind": "session.started", "session": "child", "parent": "raced"}
        assert agent.report([child]).status_code == 200
    callers = []
    for number in range(6):
        with transaction.atomic():
            token = tokens.issue_token(
                agents.ensure_agent(project, f"racer-{number}"), expires_in=None, actor="tests"
            )
        callers.append(Caller(token, app=application))
    fact = {"id": "f", "kind": "effect.dispatched", "session": "raced", "effect_key": "e"}
    answers = together(*(partial(caller.report, [fact]) for caller in callers))
    notes = [answer.json()["results"][0].get("note") for answer in answers]
    assert sorted(map(str, notes)) == ["None", *["other_agent"] * 5]
    assert Session.objects.get(key="raced").agent.name == f"racer-{notes.index(None)}"
    entries_of_dispatch = Entry.objects.filter(kind="effect.dispatched")
    assert sorted(entries_of_dispatch.values_list("lane", flat=True)) == [
        *["claim"] * 5,
        "evidence",
    ]
    assert Attempt.objects.get().effect.agent.name == f"racer-{notes.index(None)}"


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer")
def test_a_request_runs_again_when_another_wrote_its_row_first(
    agent: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ON CONFLICT (id) does not cover a table's other unique indexes: PostgreSQL may refuse there."""
    touch_sessions = sessions.touch_sessions
    refused: list[Any] = []

    def touch_late(*arguments: Any) -> None:
        if not refused:
            refused.append(arguments)
            Project.objects.create(name="races")  # violates a unique index
        touch_sessions(*arguments)

    monkeypatch.setattr(sessions, "touch_sessions", touch_late)
    fact = {"id": "g", "kind": "effect.dispatched", "session": "late", "effect_key": "late"}
    assert agent.report([fact]).json()["results"][0]["status"] == "created"
    assert refused
    assert Entry.objects.filter(kind="effect.dispatched").count() == 1
