"""The four controls: each fires when a worker's view of its work is wrong, is recorded once, and
is listed at resume."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import orjson
import pytest
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from journal import entries
from journal.models import Entry
from recovery.control_labels import CONTROL_LABELS
from recovery.detectors import CONTROL_NAMES
from sessions import facts
from sessions.models import Session
from tests.api.api_client import Caller, new_key
from tests.pages.people import Organization
from tests.pages.sample_data import connect_agent, done

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(organization: Organization) -> Iterator[Caller]:
    with connect_agent(organization.agent) as caller:
        yield caller


@pytest.fixture
def viewer(organization: Organization) -> Client:
    return organization.client("viewer")


@pytest.fixture
def session(agent: Caller) -> UUID:
    return UUID(agent.session("s-1")["id"])


def fired_controls(session: UUID) -> list[str]:
    """Return the controls that fired, in journal order."""
    fired = Entry.objects.filter(
        kind="control.fired", source=entries.SYSTEM_SOURCE, session=session
    )
    return [orjson.loads(row)["control"] for row in fired.values_list("facts", flat=True)]


def load_controls(agent: Caller, session: UUID) -> list[dict[str, Any]]:
    answer = agent.client.get(f"/sessions/{session}/resume")
    assert answer.status_code == 200
    controls: list[dict[str, Any]] = answer.json()["controls"]
    return controls


def is_shown(viewer: Client, session: UUID, words: str) -> bool:
    page = viewer.get(reverse("session", args=[session])).content.decode()
    with_state = viewer.get(reverse("session_resume", args=[session])).content.decode()
    return words in page and words in with_state


def test_a_handoff_over_the_budget_fires_handoff_overload(
    agent: Caller, viewer: Client, session: UUID
) -> None:
    done(agent.post(f"/sessions/{session}/handoffs", {"in_progress": ["the hotfix"]}))
    assert fired_controls(session) == []
    done(agent.post(f"/sessions/{session}/handoffs", {"can_wait": ["word " * 200] * 6}))
    assert fired_controls(session) == ["handoff_overload"]
    assert [control["control"] for control in load_controls(agent, session)] == ["handoff_overload"]
    assert is_shown(viewer, session, "at most 4,096 are recommended")


def test_two_sources_with_different_values_of_a_fact_fire_state_drift(
    agent: Caller, viewer: Client, session: UUID
) -> None:
    at = f"/sessions/{session}/facts"
    done(agent.post(at, {"name": "head", "value": "9d02a77", "source": "git"}))
    done(agent.post(at, {"name": "head", "value": "9d02a77", "source": "forge"}))
    assert fired_controls(session) == []
    done(agent.post(at, {"name": "head", "value": "4be1c9e", "source": "forge"}))
    assert fired_controls(session) == ["state_drift"]
    assert load_controls(agent, session)[0]["sources"] == ["forge", "git"]
    assert is_shown(viewer, session, "2 sources report different current values of head")
    done(agent.post(at, {"name": "head", "value": "9d02a77", "source": "forge"}))
    assert load_controls(agent, session) == []
    assert fired_controls(session) == ["state_drift"]  # a fired control stays in the journal


def test_facts_that_are_no_longer_fresh_do_not_drift(agent: Caller, session: UUID) -> None:
    at = f"/sessions/{session}/facts"
    done(agent.post(at, {"name": "head", "value": "a", "source": "git", "fresh_s": 1}))
    Session.objects.get(id=session).facts.update(fresh_until_us=1)
    done(agent.post(at, {"name": "head", "value": "b", "source": "forge"}))
    assert fired_controls(session) == []


def test_work_on_a_done_task_fires_completion_blindness(
    agent: Caller, viewer: Client, session: UUID
) -> None:
    task = done(agent.post(f"/sessions/{session}/tasks", {"key": "notify"}))
    agent.plan("first", str(session), task="notify")
    assert fired_controls(session) == []
    done(agent.post(f"/tasks/{task['id']}/done"))
    assert fired_controls(session) == [
        "completion_blindness"
    ]  # an effect of the task is still open
    late = agent.plan("second", str(session), task="notify", arguments={"again": 1})
    assert fired_controls(session) == ["completion_blindness"] * 2
    assert late["id"] in {control["effect"] for control in load_controls(agent, session)}
    assert is_shown(viewer, session, "It may repeat finished work.")
    page = viewer.get(reverse("session_people", args=[session])).text
    assert CONTROL_LABELS["completion_blindness"] in page
    assert set(CONTROL_LABELS) == set(CONTROL_NAMES)


def test_a_task_whose_effects_are_all_settled_may_be_done(agent: Caller, session: UUID) -> None:
    task = done(agent.post(f"/sessions/{session}/tasks", {"key": "notify"}))
    effect = agent.plan("first", str(session), task="notify")
    agent.dispatch(effect)
    agent.acknowledge(effect)
    done(agent.post(f"/tasks/{task['id']}/done"))
    assert (fired_controls(session), load_controls(agent, session)) == ([], [])


def test_a_handoff_that_waits_on_a_settled_effect_fires_stale_context(
    agent: Caller, viewer: Client, session: UUID
) -> None:
    waited = agent.plan("ci", str(session))
    sections = {"waits_on": [{"kind": "effect", "ref": waited["id"], "text": "CI"}]}
    handoff = done(agent.post(f"/sessions/{session}/handoffs", sections))
    assert load_controls(agent, session) == []
    agent.dispatch(waited)
    agent.acknowledge(waited)
    assert [control["control"] for control in load_controls(agent, session)] == ["stale_context"]
    assert is_shown(viewer, session, "The handoff is out of date.")
    assert fired_controls(session) == []  # nothing was recorded in the session yet
    call_command("sweep_stuck")
    call_command("sweep_stuck")
    assert fired_controls(session) == ["stale_context"]
    done(agent.post(f"/handoffs/{handoff['id']}/accept"))
    assert fired_controls(session) == ["stale_context"]  # recorded once


def test_accepting_a_stale_handoff_fires_the_control_without_a_sweep(
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
    assert fired_controls(session) == ["stale_context"]


def test_reports_fire_controls_too_and_once(agent: Caller, session: UUID) -> None:
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
    assert fired_controls(session) == ["state_drift"]
    assert agent.report(facts).status_code == 200
    assert Entry.objects.filter(session=session, kind="control.fired").count() == 1


def test_a_drift_is_found_among_more_facts_than_are_read(
    agent: Caller, viewer: Client, session: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "MAX_FACTS_READ", 3)
    at = f"/sessions/{session}/facts"
    for name in ("a", "b", "c", "head"):
        done(agent.post(at, {"name": name, "value": 1, "source": "git"}))
    assert done(agent.post(at, {"name": "head", "value": 2, "source": "forge"}))["drift"] is True
    assert [control["fact"] for control in load_controls(agent, session)] == ["head"]
    assert fired_controls(session) == ["state_drift"]
    assert is_shown(viewer, session, "2 sources report different current values of head")


def test_a_message_with_many_answers_is_listed_once(agent: Caller, session: UUID) -> None:
    question = done(agent.post("/messages", {"to": "shared", "body": "Which tag?"}))
    done(
        agent.post(
            f"/sessions/{session}/handoffs",
            {"waits_on": [{"kind": "message", "ref": question["id"]}]},
        )
    )
    assert load_controls(agent, session) == []
    for answer in ("v1", "v2"):
        done(
            agent.post("/messages", {"to": "shared", "body": answer, "in_reply_to": question["id"]})
        )
    assert [(control["kind"], control["became"]) for control in load_controls(agent, session)] == [
        ("message", "was answered")
    ]
