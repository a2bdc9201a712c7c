"""Changing a session that is open; where a branch came from, where it means to go, and where it
went."""

from typing import Any
from uuid import uuid4

import pytest

from journal.models import Entry
from sessions.models import Session
from tests.api.api_client import Caller, code


def read(agent: Caller, session: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = agent.get(f"/sessions/{session['id']}").json()
    return found


def test_what_is_not_sent_stays(agent: Caller) -> None:
    session = agent.session(title="Fix it")
    path = f"/sessions/{session['id']}/change"
    told = agent.post(path, {"cursor": "batch-2", "status": "waiting", "waiting_on": "CI"})
    assert (told.status_code, told.json()["status"]) == (200, "waiting")
    found = read(agent, session)
    assert (found["title"], found["cursor"], found["waiting_on"]) == ("Fix it", "batch-2", "CI")
    agent.post(path, {"title": "Fix it well", "status": "running"})
    found = read(agent, session)
    assert (found["title"], found["cursor"], found["status"]) == (
        "Fix it well",
        "batch-2",
        "running",
    )
    assert found["waiting_on"] == ""
    assert [
        entry.facts for entry in Entry.objects.filter(kind="session.changed").order_by("position")
    ] == [
        '{"status":"waiting"}',
        '{"status":"running"}',
    ]
    assert code(agent.post(path, {"status": "completed"})) == (422, "invalid")
    assert code(agent.post(path, {"waiting_on": "CI"})) == (422, "not_waiting")
    assert code(agent.post(path, {"status": "running", "waiting_on": "CI"})) == (422, "not_waiting")
    assert code(agent.post(f"/sessions/{uuid4()}/change", {})) == (404, "not_found")


def test_a_changed_title_is_no_other_description(agent: Caller) -> None:
    session = agent.session(title="Fix it")
    agent.post(f"/sessions/{session['id']}/change", {"title": "Fix it well"})
    assert agent.post("/sessions", {"key": "s-1", "title": "Fix it"}).status_code == 200
    assert code(agent.post("/sessions", {"key": "s-1", "title": "Fix it well"})) == (
        409,
        "SESSION_DIFFERS",
    )
    assert read(agent, session)["title"] == "Fix it well"


def test_what_has_ended_is_not_taken_up_again(agent: Caller) -> None:
    session = agent.session()
    agent.post(f"/sessions/{session['id']}/change", {"status": "waiting", "waiting_on": "CI"})
    agent.post(f"/sessions/{session['id']}/end", {"status": "completed"})
    refused = agent.post(f"/sessions/{session['id']}/change", {"status": "running"})
    assert code(refused) == (409, "SESSION_ENDED")
    assert refused.json()["session"]["status"] == "completed"
    assert read(agent, session)["waiting_on"] == ""


def test_a_branch_names_the_session_it_comes_from(agent: Caller, stranger: Caller) -> None:
    stem = agent.session("stem")
    stranger.session("theirs")
    for reference in ("stem", stem["id"]):
        branch = agent.session(f"branch of {reference}", branched_from=reference)
        assert read(agent, branch)["branched_from"] == stem["id"]
    for unknown in ("absent", "theirs", str(uuid4())):
        refused = agent.post("/sessions", {"key": "b", "branched_from": unknown})
        assert code(refused) == (422, "branched_from_unknown")
    assert not Session.objects.filter(key="b").exists()
    again = {"key": "branch of stem", "branched_from": "stem"}
    assert agent.post("/sessions", again).status_code == 200
    agent.session("other")
    assert code(agent.post("/sessions", again | {"branched_from": "other"})) == (
        409,
        "SESSION_DIFFERS",
    )
    assert read(agent, stem)["branched_from"] is None


def test_a_branch_says_where_it_means_to_go_and_where_it_went(agent: Caller) -> None:
    stem, other = agent.session("stem"), agent.session("other")
    branch = agent.session("branch", branched_from="stem")
    meant = {"merge_into": "stem", "merge_intent": "when the tests pass"}
    assert agent.post(f"/sessions/{branch['id']}/change", meant).status_code == 200
    found = read(agent, branch)
    assert (found["merge_into"], found["merge_intent"]) == (stem["id"], "when the tests pass")
    assert found["merged_into"] is None
    merged = agent.post(f"/sessions/{branch['id']}/merged", {"into": "stem"}, key="k")
    assert (merged.status_code, merged.json()["merged_into"]) == (200, stem["id"])
    assert read(agent, branch)["merged_into"] == stem["id"]
    for key in ("k", None):
        assert (
            agent.post(f"/sessions/{branch['id']}/merged", {"into": "stem"}, key=key).status_code
            == 200
        )
    refused = agent.post(f"/sessions/{branch['id']}/merged", {"into": "other"})
    assert code(refused) == (409, "ALREADY_MERGED")
    assert refused.json()["session"]["merged_into"] == stem["id"]
    assert Entry.objects.filter(kind="session.merged").count() == 1
    assert code(agent.post(f"/sessions/{other['id']}/merged", {"into": "absent"})) == (
        422,
        "session_unknown",
    )
    assert code(agent.post(f"/sessions/{other['id']}/merged", {"into": "other"})) == (
        422,
        "session_is_itself",
    )
    itself = agent.post(f"/sessions/{other['id']}/change", {"merge_into": other["id"]})
    assert code(itself) == (422, "session_is_itself")
    assert Session.objects.get(key="other").merged_into_id is None


def test_branches_may_be_reported_before_what_they_come_from(agent: Caller) -> None:
    told = [
        {"id": "f-1", "kind": "session.branched", "session": "branch", "branched_from": "stem"},
        {"id": "f-2", "kind": "session.merged", "session": "branch", "into": "stem"},
        {
            "id": "f-3",
            "kind": "session.changed",
            "session": "branch",
            "merge_into": "branch",
            "cursor": "7",
        },
        {
            "id": "f-4",
            "kind": "session.started",
            "session": "stem",
            "title": "The stem",
            "branched_from": "stem",
        },
    ]
    assert agent.report(told).json()["accepted"] == 4
    stem, branch = Session.objects.get(key="stem"), Session.objects.get(key="branch")
    assert (branch.branched_from_id, branch.merged_into_id, branch.merge_into_id) == (
        stem.id,
        stem.id,
        None,
    )
    assert (stem.title, stem.branched_from_id, branch.cursor) == ("The stem", None, "7")


@pytest.mark.parametrize("version", ['"1"', "1", "*", None])
def test_a_change_of_the_version_that_was_seen_is_made(agent: Caller, version: str | None) -> None:
    session = agent.session()
    seen = session["version"]
    headers = {} if version is None else {"If-Match": version.replace("1", str(seen))}
    told = agent.post(f"/sessions/{session['id']}/change", {"cursor": "x"}, headers=headers)
    assert (told.status_code, told.json()["version"]) == (200, seen + 1)
