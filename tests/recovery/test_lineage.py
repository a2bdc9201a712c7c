"""Changes of an open session; the origin, the merge target and the merge of a branch."""

from typing import Any
from uuid import uuid4

import pytest

from journal.models import Entry
from sessions.models import Session
from tests.api.api_client import Caller, code


def get_session(agent: Caller, session: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = agent.get(f"/sessions/{session['id']}").json()
    return body


def test_fields_that_are_not_sent_keep_their_values(agent: Caller) -> None:
    session = agent.session(title="Fix it")
    path = f"/sessions/{session['id']}/change"
    answer = agent.post(path, {"cursor": "batch-2", "status": "waiting", "waiting_on": "CI"})
    assert (answer.status_code, answer.json()["status"]) == (200, "waiting")
    current = get_session(agent, session)
    assert (current["title"], current["cursor"], current["waiting_on"]) == (
        "Fix it",
        "batch-2",
        "CI",
    )
    agent.post(path, {"title": "Fix it well", "status": "running"})
    current = get_session(agent, session)
    assert (current["title"], current["cursor"], current["status"]) == (
        "Fix it well",
        "batch-2",
        "running",
    )
    assert current["waiting_on"] == ""
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


def test_a_changed_title_does_not_make_a_session_differ(agent: Caller) -> None:
    session = agent.session(title="Fix it")
    agent.post(f"/sessions/{session['id']}/change", {"title": "Fix it well"})
    assert agent.post("/sessions", {"key": "s-1", "title": "Fix it"}).status_code == 200
    assert code(agent.post("/sessions", {"key": "s-1", "title": "Fix it well"})) == (
        409,
        "SESSION_DIFFERS",
    )
    assert get_session(agent, session)["title"] == "Fix it well"


def test_an_ended_session_cannot_be_changed(agent: Caller) -> None:
    session = agent.session()
    agent.post(f"/sessions/{session['id']}/change", {"status": "waiting", "waiting_on": "CI"})
    agent.post(f"/sessions/{session['id']}/end", {"status": "completed"})
    refused = agent.post(f"/sessions/{session['id']}/change", {"status": "running"})
    assert code(refused) == (409, "SESSION_ENDED")
    assert refused.json()["session"]["status"] == "completed"
    assert get_session(agent, session)["waiting_on"] == ""


def test_a_branch_names_the_session_it_comes_from(agent: Caller, stranger: Caller) -> None:
    stem = agent.session("stem")
    stranger.session("theirs")
    for reference in ("stem", stem["id"]):
        branch = agent.session(f"branch of {reference}", branched_from=reference)
        assert get_session(agent, branch)["branched_from"] == stem["id"]
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
    assert get_session(agent, stem)["branched_from"] is None


def test_a_branch_shows_its_merge_target_and_its_merge(agent: Caller) -> None:
    stem, other = agent.session("stem"), agent.session("other")
    branch = agent.session("branch", branched_from="stem")
    meant = {"merge_into": "stem", "merge_intent": "when the tests pass"}
    assert agent.post(f"/sessions/{branch['id']}/change", meant).status_code == 200
    current = get_session(agent, branch)
    assert (current["merge_into"], current["merge_intent"]) == (stem["id"], "when the tests pass")
    assert current["merged_into"] is None
    merged = agent.post(f"/sessions/{branch['id']}/merged", {"into": "stem"}, key="k")
    assert (merged.status_code, merged.json()["merged_into"]) == (200, stem["id"])
    assert get_session(agent, branch)["merged_into"] == stem["id"]
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


def test_branches_may_be_reported_before_their_origin(agent: Caller) -> None:
    reports = [
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
    assert agent.report(reports).json()["accepted"] == 4
    stem, branch = Session.objects.get(key="stem"), Session.objects.get(key="branch")
    assert (branch.branched_from_id, branch.merged_into_id, branch.merge_into_id) == (
        stem.id,
        stem.id,
        None,
    )
    assert (stem.title, stem.branched_from_id, branch.cursor) == ("The stem", None, "7")


@pytest.mark.parametrize("version", ['"1"', "1", "*", None])
def test_a_change_of_the_current_version_succeeds(agent: Caller, version: str | None) -> None:
    session = agent.session()
    seen = session["version"]
    headers = {} if version is None else {"If-Match": version.replace("1", str(seen))}
    answer = agent.post(f"/sessions/{session['id']}/change", {"cursor": "x"}, headers=headers)
    assert (answer.status_code, answer.json()["version"]) == (200, seen + 1)
