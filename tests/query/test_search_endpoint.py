"""GET /api/v1/search: pages, groups, faults with their place, project isolation, who is told whom, and that
it is on record."""

import json
from typing import Any

import pytest

from display import time_limit
from journal.models import Body, Entry
from tests.api.api_client import Caller, code
from tests.pages.sample_data import doors
from tests.query.incident import Told

pytestmark = pytest.mark.django_db


def asked(caller: Caller, q: str, **more: Any) -> dict[str, Any]:
    answer = caller.get("/search", q=q, **more)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_pages_faults_project_isolation_and_who_is_told_of_whom(told: Told) -> None:
    agent = told.desk.agent
    whole = asked(agent, "effect session:s-1", limit=200)
    seen, before = [], None
    while True:
        page = asked(agent, "effect session:s-1", limit=4, **({"before": before} if before else {}))
        seen += page["rows"]
        before = page["next"]
        if before is None:
            break
    assert seen == whole["rows"]
    assert len(seen) > 8
    assert {"effect", "url", "state", "at", "session_key"} <= seen[0].keys()
    back = asked(agent, f"at:{seen[0]['at']} id:{seen[0]['effect']}")
    assert [row["effect"] for row in back["rows"]] == [seen[0]["effect"]]
    groups = asked(agent, "effect | group permission | count")["groups"]
    assert groups["names"] == ["permission", "count"]
    assert dict(groups["rows"])["bypassed"] == 2

    fault = agent.get("/search", q="effect state:unknwn")
    assert (fault.status_code, fault.json()["code"]) == (422, "query_invalid")
    assert (fault.json()["pointer"], fault.json()["at"], fault.json()["length"]) == ("/q", 13, 6)
    assert "unknown" in fault.json()["detail"]
    assert asked(agent, "effect agent:nobody")["notes"] == [
        "“nobody” is not the name of an agent in this project."
    ]
    wrong: tuple[dict[str, Any], ...] = (
        {},
        {"q": ""},
        {"q": "effect", "before": "x"},
        {"q": "effect", "before": 5, "after": 1},
        {"x": 1},
    )
    for one in wrong:
        assert agent.get("/search", **one).status_code == 422, one

    with doors(told.desk.house.other_token.agent) as neighbour:
        for query in ("effect", "session", "gate", "exemption", "event has:session"):
            assert asked(neighbour, query)["rows"] == [], query
        assert asked(neighbour, f"gate effect:{told.handle('read')}")["notes"]

    # Who decided is told to those who audit, and they only read.
    text = json.dumps(asked(agent, "gate")) + json.dumps(asked(agent, "event kind:gate.voted"))
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
    assert asked(agent, "event actor:deploy-7")["rows"]

    with doors(told.desk.house.agent, scope="audit") as auditor:
        assert [
            row["reviewers"] for row in asked(auditor, f"gate effect:{told.handle('own')}")["rows"]
        ] == [["reviewer approve"]]
        assert asked(auditor, "gate | group approver")["groups"]["rows"]
        before = Entry.objects.count()
        for path, body in (("/sessions", {"key": "new"}), ("/effects", {}), ("/events", [])):
            assert code(auditor.post(path, body)) == (403, "read_only")
        assert Entry.objects.count() == before


def test_a_search_is_on_record_once_an_hour_and_one_that_takes_too_long_is_stopped(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = told.desk.agent
    entries = Entry.objects.filter(kind="access.searched")
    for _ in range(3):
        asked(agent, "effect is:unknown")
    agent.get("/search", q="effect is:unknwn")
    asked(agent, "effect is:unknown", limit=1)
    entry = entries.get()
    assert entry.actor == f"agent:{told.desk.house.agent.id.hex}"
    assert json.loads(entry.facts) == {"entity": "effect", "found": 1, "more": False}
    assert json.loads(Body.objects.get(entry=entry).text)["q"] == "effect is:unknown"
    assert not Entry.objects.filter(kind="integrity.conflict", position__gt=entry.position).exists()
    asked(agent, "effect is:waiting")
    assert entries.count() == 2

    def late(*_args: Any, **_options: Any) -> Any:
        raise time_limit.QueryTimeout

    monkeypatch.setattr("investigation.query.execute.load_results", late)
    assert code(agent.get("/search", q="effect is:fenced")) == (422, "search_too_long")
    assert entries.count() == 2
