"""The four controls: each fires when a worker's picture of its work is wrong, is kept once, and is
told at resume."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from journal.models import Entry
from recovery import detectors
from sessions import facts
from sessions.models import Session
from tests.api.api_client import Caller, new_key
from tests.pages.people import House
from tests.pages.sample_data import done, doors

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(house: House) -> Iterator[Caller]:
    with doors(house.agent) as caller:
        yield caller


@pytest.fixture
def viewer(house: House) -> Client:
    return house.client("viewer")


@pytest.fixture
def session(agent: Caller) -> UUID:
    return UUID(agent.session("s-1")["id"])


def fired(session: UUID) -> list[str]:
    """The controls that fired, in the order of the journal."""
    return [
        one["control"]
        for one in reversed(detectors.load_fired_controls(Session.objects.get(id=session), 50))
    ]


def told(agent: Caller, session: UUID) -> list[dict[str, Any]]:
    answer = agent.client.get(f"/sessions/{session}/resume")
    assert answer.status_code == 200
    found: list[dict[str, Any]] = answer.json()["controls"]
    return found


def is_shown(viewer: Client, session: UUID, words: str) -> bool:
    page = viewer.get(reverse("session", args=[session])).content.decode()
    with_state = viewer.get(reverse("session_resume", args=[session])).content.decode()
    return words in page and words in with_state


def test_a_handoff_that_is_too_long_to_be_read(
    agent: Caller, viewer: Client, session: UUID
) -> None:
    done(agent.post(f"/sessions/{session}/handoffs", {"in_progress": ["the hotfix"]}))
    assert fired(session) == []
    done(agent.post(f"/sessions/{session}/handoffs", {"can_wait": ["word " * 200] * 6}))
    assert fired(session) == ["handoff_overload"]
    assert [one["control"] for one in told(agent, session)] == ["handoff_overload"]
    assert is_shown(viewer, session, "at most 4,096 are recommended")


def test_two_sources_that_tell_different_values_of_one_fact(
    agent: Caller, viewer: Client, session: UUID
) -> None:
    at = f"/sessions/{session}/facts"
    done(agent.post(at, {"name": "head", "value": "9d02a77", "source": "git"}))
    done(agent.post(at, {"name": "head", "value": "9d02a77", "source": "forge"}))
    assert fired(session) == []
    done(agent.post(at, {"name": "head", "value": "4be1c9e", "source": "forge"}))
    assert fired(session) == ["state_drift"]
    assert told(agent, session)[0]["sources"] == ["forge", "git"]
    assert is_shown(viewer, session, "2 sources report different current values of head")
    done(agent.post(at, {"name": "head", "value": "9d02a77", "source": "forge"}))
    assert told(agent, session) == []
    assert fired(session) == ["state_drift"]  # what fired stays in the journal


def test_facts_that_are_no_longer_fresh_drift_no_more(agent: Caller, session: UUID) -> None:
    at = f"/sessions/{session}/facts"
    done(agent.post(at, {"name": "head", "value": "a", "source": "git", "fresh_s": 1}))
    Session.objects.get(id=session).facts.update(fresh_until_us=1)
    done(agent.post(at, {"name": "head", "value": "b", "source": "forge"}))
    assert fired(session) == []


def test_work_on_a_task_that_is_done(agent: Caller, viewer: Client, session: UUID) -> None:
    task = done(agent.post(f"/sessions/{session}/tasks", {"key": "notify"}))
    agent.plan("first", str(session), task="notify")
    assert fired(session) == []
    done(agent.post(f"/tasks/{task['id']}/done"))
    assert fired(session) == ["completion_blindness"]  # an effect of it is open yet
    late = agent.plan("second", str(session), task="notify", arguments={"again": 1})
    assert fired(session) == ["completion_blindness"] * 2
    assert late["id"] in {one["effect"] for one in told(agent, session)}
    assert is_shown(viewer, session, "It may repeat finished work.")


def test_a_task_whose_effects_are_all_settled_may_be_done(agent: Caller, session: UUID) -> None:
    task = done(agent.post(f"/sessions/{session}/tasks", {"key": "notify"}))
    effect = agent.plan("first", str(session), task="notify")
    agent.dispatch(effect)
    agent.acknowledge(effect)
    done(agent.post(f"/tasks/{task['id']}/done"))
    assert (fired(session), told(agent, session)) == ([], [])


def test_a_handoff_that_waits_on_what_has_been_settled(
    agent: Caller, viewer: Client, session: UUID
) -> None:
    waited = agent.plan("ci", str(session))
    sections = {"waits_on": [{"kind": "effect", "ref": waited["id"], "text": "CI"}]}
    handoff = done(agent.post(f"/sessions/{session}/handoffs", sections))
    assert told(agent, session) == []
    agent.dispatch(waited)
    agent.acknowledge(waited)
    assert [one["control"] for one in told(agent, session)] == ["stale_context"]
    assert is_shown(viewer, session, "The handoff is out of date.")
    assert fired(session) == []  # nobody told the session
    call_command("sweep_stuck")
    call_command("sweep_stuck")
    assert fired(session) == ["stale_context"]
    done(agent.post(f"/handoffs/{handoff['id']}/accept"))
    assert fired(session) == ["stale_context"]  # said once


def test_whoever_takes_a_handoff_up_is_told_although_no_sweep_came(
    agent: Caller, session: UUID
) -> None:
    waited = agent.plan("ci", str(session))
    handoff = done(
        agent.post(
            f"/sessions/{session}/handoffs", {"waits_on": [{"kind": "effect", "ref": waited["id"]}]}
        )
    )
    agent.dispatch(waited)
    agent.fail(waited, "rejected")
    done(agent.post(f"/handoffs/{handoff['id']}/accept"))
    assert fired(session) == ["stale_context"]


def test_reports_fire_them_too_and_once(agent: Caller, session: UUID) -> None:
    facts = [
        {
            "id": new_key(),
            "kind": "fact.observed",
            "session": "s-1",
            "name": "head",
            "value": value,
            "source": source,
        }
        for value, source in (("a", "git"), ("b", "forge"))
    ]
    assert agent.report(facts).status_code == 200
    assert fired(session) == ["state_drift"]
    assert agent.report(facts).status_code == 200
    assert Entry.objects.filter(session=session, kind="control.fired").count() == 1


def test_values_that_differ_are_found_however_many_facts_there_are(
    agent: Caller, viewer: Client, session: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "MAX_FACTS_READ", 3)
    at = f"/sessions/{session}/facts"
    for name in ("a", "b", "c", "head"):
        done(agent.post(at, {"name": name, "value": 1, "source": "git"}))
    assert done(agent.post(at, {"name": "head", "value": 2, "source": "forge"}))["drift"] is True
    assert [one["fact"] for one in told(agent, session)] == ["head"]
    assert fired(session) == ["state_drift"]
    assert is_shown(viewer, session, "2 sources report different current values of head")


def test_a_message_that_was_answered_by_many_is_told_once(agent: Caller, session: UUID) -> None:
    asked = done(agent.post("/messages", {"to": "shared", "body": "Which tag?"}))
    done(
        agent.post(
            f"/sessions/{session}/handoffs", {"waits_on": [{"kind": "message", "ref": asked["id"]}]}
        )
    )
    assert told(agent, session) == []
    for answer in ("v1", "v2"):
        done(agent.post("/messages", {"to": "shared", "body": answer, "in_reply_to": asked["id"]}))
    assert [(one["kind"], one["became"]) for one in told(agent, session)] == [
        ("message", "was answered")
    ]
