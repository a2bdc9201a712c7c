"""Decisions: recorded before the action, concluded after it, and open ones listed first."""

from typing import Any

import pytest
from django.db import transaction

from accounts.models import Project
from db.clock import now_us
from db.ids import derive_uuid
from journal import erasures
from journal.models import Entry
from sessions import decisions
from sessions.models import Decision, Session
from tests.api.api_client import Caller, code

LEFT = {
    "key": "way",
    "choice": "go left",
    "rationale": "it is shorter",
    "planned_action": "push to fix",
    "alternatives": ["go right"],
}


@pytest.fixture
def path(agent: Caller) -> str:
    return f"/sessions/{agent.session()['id']}/decisions"


def test_a_decision_is_open_until_it_is_concluded(agent: Caller, path: str) -> None:
    created = agent.post(path, {**LEFT, "effect_key": "push-1"})
    assert (created.status_code, created.json()["status"], created.json()["version"]) == (
        201,
        "open",
        1,
    )
    (row,) = agent.get(path, open=1).json()["items"]
    assert {name: row[name] for name in LEFT} == LEFT
    assert (
        row["effect"]
        == str(derive_uuid(Session.objects.get().id, "push-1"))
        == agent.plan("push-1")["id"]
    )
    ended = agent.post(
        f"/decisions/{row['id']}/conclude", {"status": "done", "outcome": "pushed as 3f2a91c"}
    )
    assert (ended.status_code, ended.json()["status"]) == (200, "done")
    assert agent.get(path, open=1).json()["items"] == []
    (row,) = agent.get(path).json()["items"]
    assert (row["outcome"], row["choice"]) == ("pushed as 3f2a91c", "go left")
    kinds = (
        Entry.objects.filter(subject=row["id"]).order_by("position").values_list("kind", "facts")
    )
    assert list(kinds) == [("decision.recorded", "{}"), ("decision.concluded", '{"status":"done"}')]


def test_the_first_conclusion_counts(agent: Caller, path: str) -> None:
    ended = f"/decisions/{agent.post(path, LEFT).json()['id']}/conclude"
    first = agent.post(ended, {"status": "failed", "outcome": "blocked"}, key="k")
    again = agent.post(ended, {"status": "failed", "outcome": "blocked"}, key="k")
    assert (again.json(), again.headers["idempotent-replay"]) == (first.json(), "true")
    second = agent.post(ended, {"status": "done", "outcome": "went well"})
    assert code(second) == (409, "DECISION_CONCLUDED")
    assert second.json()["decision"]["status"] == "failed"
    assert code(agent.post(ended, {"status": "open", "outcome": "x"})) == (422, "invalid")
    assert code(agent.post(ended, {"status": "done"})) == (422, "invalid")
    assert Decision.objects.get().status == "failed"
    assert Entry.objects.filter(kind="decision.concluded").count() == 1


def test_a_used_key_returns_its_decision_unless_the_choice_differs(
    agent: Caller, path: str
) -> None:
    first = agent.post(path, LEFT, key="k").json()
    again = agent.post(path, {"key": "way", "choice": "go left"})
    assert (again.status_code, again.json()) == (200, first)
    assert agent.post(path, LEFT, key="k").status_code == 201  # the stored answer
    other = agent.post(path, {**LEFT, "choice": "go right"})
    assert code(other) == (409, "DECISION_DIFFERS")
    assert other.json()["decision"]["choice"] == "go left"
    assert Entry.objects.filter(kind="decision.recorded").count() == 1


@pytest.mark.parametrize(
    "body",
    [{}, {"key": "k"}, {"choice": "x"}, {"key": "", "choice": "x"}, {"key": "k", "choice": ""}],
    ids=str,
)
def test_an_invalid_decision_is_refused(agent: Caller, path: str, body: dict[str, Any]) -> None:
    assert code(agent.post(path, body)) == (422, "invalid")
    assert not Decision.objects.exists()


def test_decisions_of_another_project_are_not_found(
    agent: Caller, stranger: Caller, path: str
) -> None:
    created = agent.post(path, LEFT).json()
    ended = f"/decisions/{created['id']}/conclude"
    assert code(stranger.post(ended, {"status": "done", "outcome": "x"})) == (404, "not_found")
    assert code(stranger.get(path)) == (404, "not_found")
    assert code(agent.get(path, open="yes")) == (422, "invalid")


def test_erased_fields_are_null(agent: Caller, path: str) -> None:
    agent.post(path, LEFT)
    with transaction.atomic():
        position = Decision.objects.get().recorded_position
        assert position is not None
        project = Project.objects.get(name="default").id
        erasures.erase_body(project, position, reason="request", actor="tests", now_us=now_us())
    (row,) = agent.get(path).json()["items"]
    assert (row["key"], row["choice"], row["rationale"], row["status"]) == (
        "way",
        None,
        None,
        "open",
    )
    assert agent.post(path, {"key": "way", "choice": "who knows"}).status_code == 200


def test_open_decisions_are_listed_newest_first(agent: Caller, path: str) -> None:
    ids = [agent.post(path, {"key": f"d-{n}", "choice": "x"}).json()["id"] for n in range(4)]
    agent.post(f"/decisions/{ids[1]}/conclude", {"status": "abandoned", "outcome": "not needed"})
    page = agent.get(path, open=1, limit=2).json()
    assert [row["key"] for row in page["items"]] == ["d-3", "d-2"]
    assert [row["key"] for row in agent.get(path, open=1, after=page["next"]).json()["items"]] == [
        "d-0"
    ]
    assert [row.key for row in decisions.load_open_decisions(Session.objects.get(), 2)] == [
        "d-3",
        "d-2",
    ]


def test_a_command_wins_over_a_report(agent: Caller, path: str) -> None:
    ended = {
        "id": "f-2",
        "kind": "decision.concluded",
        "session": "s-1",
        "decision": "way",
        "status": "failed",
    }
    reported = {
        "id": "f-1",
        "kind": "decision.recorded",
        "session": "s-1",
        "decision": "way",
        "choice": "go right",
    }
    agent.post(path, {"key": "other", "choice": "x"})
    agent.report([ended | {"decision": "other"}])
    created = agent.post(path, LEFT).json()
    assert agent.report([reported]).json()["accepted"] == 1
    assert agent.get(path).json()["items"][0]["choice"] == "go left"
    agent.report([ended | {"id": "f-3"}])
    late = agent.post(f"/decisions/{created['id']}/conclude", {"status": "done", "outcome": "x"})
    assert code(late) == (409, "DECISION_CONCLUDED")
    assert {row.key: row.status for row in Decision.objects.all()} == {
        "way": "failed",
        "other": "failed",
    }
