"""Observed facts: named values of sources, their freshness, and drift between sources."""

from typing import Any

import pytest

from sessions import facts
from sessions.models import ObservedFact, Session
from tests.api.api_client import Caller, code


@pytest.fixture
def path(agent: Caller) -> str:
    return f"/sessions/{agent.session()['id']}/facts"


def find_drift(now_us: int) -> dict[str, list[str]]:
    conflicts = facts.find_conflicting_facts(facts.load_fresh_facts(Session.objects.get(), now_us))
    return {name: [row.source for row in rows] for name, rows in conflicts.items()}


def test_the_latest_report_of_a_source_counts(agent: Caller, path: str) -> None:
    for value, key in (("1.3", "z"), ({"major": 1, "minor": 4}, "a")):
        answer = agent.post(
            path, {"name": "version", "value": value, "source": "package.json"}, key=key
        )
        assert (answer.status_code, answer.json()["drift"]) == (201, False)
    (row,) = agent.get(path).json()["items"]
    assert (row["name"], row["source"], row["value"]) == (
        "version",
        "package.json",
        {"major": 1, "minor": 4},
    )
    assert row["fresh_until_us"] - row["observed_at_us"] == facts.DEFAULT_FACT_FRESH_S * 1_000_000
    assert "minor" not in str(ObservedFact.objects.get().__dict__)


def test_two_sources_that_differ_are_a_drift_while_both_are_fresh(agent: Caller, path: str) -> None:
    agent.post(path, {"name": "head", "value": "3f2a", "source": "git", "fresh_s": 60})
    same = agent.post(path, {"name": "head", "value": "3f2a", "source": "ci"})
    assert same.json()["drift"] is False
    agent.post(path, {"name": "other", "value": 1, "source": "git"})
    differs = agent.post(path, {"name": "head", "value": "9c41", "source": "ci"})
    assert differs.json()["drift"] is True
    now_us = ObservedFact.objects.get(source="ci").observed_at_us
    assert find_drift(now_us) == {"head": ["ci", "git"]}
    over = ObservedFact.objects.get(name="head", source="git").fresh_until_us
    assert find_drift(over) == {"head": ["ci", "git"]}
    assert find_drift(over + 1) == {}
    assert (
        agent.post(path, {"name": "head", "value": "9c41", "source": "git"}).json()["drift"]
        is False
    )


def test_values_are_compared_as_json(agent: Caller, path: str) -> None:
    agent.post(path, {"name": "limits", "value": {"a": 1, "b": 2.0}, "source": "one"})
    assert (
        agent.post(path, {"name": "limits", "value": {"b": 2, "a": 1}, "source": "two"}).json()[
            "drift"
        ]
        is False
    )
    assert (
        agent.post(path, {"name": "limits", "value": {"b": "2", "a": 1}, "source": "two"}).json()[
            "drift"
        ]
        is True
    )


def test_facts_are_listed_by_name_and_freshness(agent: Caller, path: str) -> None:
    for name, fresh_s in (("a", 1), ("b", 3600), ("c", 3600)):
        agent.post(path, {"name": name, "value": None, "source": "s", "fresh_s": fresh_s})
    ObservedFact.objects.filter(name="a").update(fresh_until_us=1)
    assert [row["name"] for row in agent.get(path).json()["items"]] == ["c", "b", "a"]
    assert [row["name"] for row in agent.get(path, fresh=1).json()["items"]] == ["c", "b"]
    assert [(row["name"], row["fresh"]) for row in agent.get(path, name="a").json()["items"]] == [
        ("a", False)
    ]
    assert code(agent.get(path, fresh="no")) == (422, "invalid")


@pytest.mark.parametrize(
    "body",
    [
        {"name": "n", "source": "s"},
        {"name": "n", "value": 1},
        {"name": "", "value": 1, "source": "s"},
        {"name": "n", "value": 1, "source": "s\0"},
        {"name": "n", "value": 1, "source": "s", "fresh_s": 0},
        {"name": "n", "value": 1, "source": "s", "fresh_s": 2_592_001},
    ],
    ids=str,
)
def test_an_invalid_fact_is_refused(agent: Caller, path: str, body: dict[str, Any]) -> None:
    assert code(agent.post(path, body)) == (422, "invalid")
    assert not ObservedFact.objects.exists()


def test_the_default_source_of_a_report_is_its_agent(agent: Caller, path: str) -> None:
    fact = {"kind": "fact.observed", "session": "s-1", "name": "head", "value": 1}
    assert (
        agent.report([{**fact, "id": "f-1"}, {**fact, "id": "f-2", "source": "git"}]).json()[
            "accepted"
        ]
        == 2
    )
    assert sorted(ObservedFact.objects.values_list("source", flat=True)) == ["git", "tester"]


def test_a_producers_clock_makes_a_fact_older_and_never_younger(agent: Caller, path: str) -> None:
    fact = {"kind": "fact.observed", "session": "s-1", "value": 1, "fresh_s": 60}
    agent.report([{**fact, "id": "f-1", "name": "old", "occurred_us": 1_000_000}])
    agent.report([{**fact, "id": "f-2", "name": "ahead", "occurred_us": 2**53 - 1}])
    assert ObservedFact.objects.get(name="old").fresh_until_us == 61_000_000
    ahead = ObservedFact.objects.get(name="ahead")
    assert ahead.observed_at_us == Session.objects.get().seen_at_us
