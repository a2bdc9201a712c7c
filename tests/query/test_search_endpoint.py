"""GET /api/v1/search: pages, groups, errors with positions, isolation and privacy."""

import json
from typing import Any

import pytest

from display import time_limit
from journal.models import Body, Entry
from tests.api.api_client import Caller, code
from tests.pages.sample_data import connect_agent
from tests.query.incident import Scenario

pytestmark = pytest.mark.django_db


def search_json(caller: Caller, q: str, **more: Any) -> dict[str, Any]:
    answer = caller.get("/search", q=q, **more)
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


def test_pages_errors_project_isolation_and_privacy(scenario: Scenario) -> None:
    agent = scenario.inbox.agent
    full_answer = search_json(agent, "effect session:s-1", limit=200)
    seen, before = [], None
    while True:
        page = search_json(
            agent, "effect session:s-1", limit=4, **({"before": before} if before else {})
        )
        seen += page["rows"]
        before = page["next"]
        if before is None:
            break
    assert seen == full_answer["rows"]
    assert len(seen) > 8
    assert {"effect", "url", "state", "at", "session_key"} <= seen[0].keys()
    back = search_json(agent, f"at:{seen[0]['at']} id:{seen[0]['effect']}")
    assert [row["effect"] for row in back["rows"]] == [seen[0]["effect"]]
    groups = search_json(agent, "effect | group permission | count")["groups"]
    assert groups["names"] == ["permission", "count"]
    assert dict(groups["rows"])["bypassed"] == 2

    fault = agent.get("/search", q="effect state:unknwn")
    assert (fault.status_code, fault.json()["code"]) == (422, "query_invalid")
    assert (fault.json()["pointer"], fault.json()["at"], fault.json()["length"]) == ("/q", 13, 6)
    assert "unknown" in fault.json()["detail"]
    assert search_json(agent, "effect agent:nobody")["notes"] == [
        "“nobody” is not the name of an agent in this project."
    ]
    assert search_json(agent, "effect state=failed")["notes"] == [
        "Part of this query is searched as words. Did you mean “effect state:failed”?"
    ]
    wrong: tuple[dict[str, Any], ...] = (
        {},
        {"q": ""},
        {"q": "effect", "before": "x"},
        {"q": "effect", "before": 5, "after": 1},
        {"x": 1},
    )
    for parameters in wrong:
        assert agent.get("/search", **parameters).status_code == 422, parameters

    with connect_agent(scenario.inbox.organization.other_token.agent) as neighbour:
        for query in ("effect", "session", "gate", "exemption", "event has:session"):
            assert search_json(neighbour, query)["rows"] == [], query
        assert search_json(neighbour, f"gate effect:{scenario.handle('read')}")["notes"]

    # Only the scope audit reads who decided, and that scope is read-only.
    text = json.dumps(search_json(agent, "gate")) + json.dumps(
        search_json(agent, "event kind:gate.voted")
    )
    assert "reviewer approve" not in text
    assert '"reviewers"' not in text
    assert "p_" not in text
    for query in (
        "gate reviewer:reviewer",
        "gate | group approver",
        "gate is:self_approved",
        "gate any(effect: on_behalf_of:reviewer)",
        "gate requester:@session_owner",
        "event actor:reviewer",
        "event | group actor",
    ):
        refused = agent.get("/search", q=query)
        assert code(refused) == (422, "query_invalid"), query
        assert "scope audit" in refused.json()["detail"]
    assert search_json(agent, "event actor:deploy-7")["rows"]

    with connect_agent(scenario.inbox.organization.agent, scope="audit") as auditor:
        assert [
            row["reviewers"]
            for row in search_json(auditor, f"gate effect:{scenario.handle('own')}")["rows"]
        ] == [["reviewer approve"]]
        assert search_json(auditor, "gate | group approver")["groups"]["rows"]
        before = Entry.objects.count()
        for path, body in (("/sessions", {"key": "new"}), ("/effects", {}), ("/events", [])):
            assert code(auditor.post(path, body)) == (403, "read_only")
        assert Entry.objects.count() == before


def test_a_search_is_recorded_once_an_hour_and_stopped_if_it_takes_too_long(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = scenario.inbox.agent
    entries = Entry.objects.filter(kind="access.searched")
    for _ in range(3):
        search_json(agent, "effect is:unknown")
    agent.get("/search", q="effect is:unknwn")
    search_json(agent, "effect is:unknown", limit=1)
    entry = entries.get()
    assert entry.actor == f"agent:{scenario.inbox.organization.agent.id.hex}"
    assert json.loads(entry.facts) == {"entity": "effect", "found": 1, "more": False}
    assert json.loads(Body.objects.get(entry=entry).text)["q"] == "effect is:unknown"
    assert not Entry.objects.filter(kind="integrity.conflict", position__gt=entry.position).exists()
    search_json(agent, "effect is:waiting")
    assert entries.count() == 2

    def late(*_args: Any, **_options: Any) -> Any:
        raise time_limit.QueryTimeout

    monkeypatch.setattr("investigation.query.execute.load_results", late)
    assert code(agent.get("/search", q="effect is:fenced")) == (422, "search_too_long")
    assert entries.count() == 2
