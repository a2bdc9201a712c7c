"""The same call in another session while the first outcome is unknown: the answer names it, and a
rule can ask people."""

from typing import Any

import pytest
from django.test import Client

from accounts.models import Project
from approvals.models import Gate
from approvals.policies import dry_run
from db.raw_sql import vendor_id
from ledger import same_calls
from ledger.models import Effect, SameCall
from tests.api.api_client import Caller, code
from tests.approvals.inbox_scenario import InboxScenario
from tests.recovery.remote import declare
from tests.recovery.test_leases_fence import plan_of

pytestmark = pytest.mark.django_db
RULES = """
name: basic
rules:
  - {id: all, title: Anything but twice, match: {}, outcome: allow, same_call_unknown: ask, require: {minimum: 2}}
"""
LAX = "name: lax\nrules: [{id: all, title: Anything, match: {}, outcome: allow}]"


def begin_effect(agent: Caller, session: str = "first", **fields: Any) -> dict[str, Any]:
    """Dispatch an effect in its own session without a further report."""
    agent.session(session)
    effect = agent.plan("e-1", session, **({"tool": "mail.send"} | fields))
    agent.dispatch(effect)
    return effect


def named_calls(agent: Caller, effect: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return the same calls that an effect's answer names, and whether they are earlier."""
    calls = agent.get(f"/effects/{effect['id']}").json().get("same_calls", [])
    return [(call["effect"], call["earlier"]) for call in calls]


@pytest.fixture
def declared_agent(agent: Caller) -> Caller:
    declare(Project.objects.get(name="default"))
    return agent


def test_the_plan_of_a_same_call_names_the_earlier_effect_in_doubt(
    declared_agent: Caller,
) -> None:
    agent = declared_agent
    first = begin_effect(agent)
    agent.session("second")
    again = agent.plan("other", "second", tool="mail.send")
    assert (again["answer"], again["open_effect"]) == ("proceed", first["id"])
    assert (again["verdict"]["verdict"], again["verdict"]["reason"]) == ("escalate", "UNDECIDABLE")
    (named,) = again["same_calls"]
    assert (named["effect"], named["session_key"], named["state"], named["earlier"]) == (
        first["id"],
        "first",
        "dispatched",
        True,
    )
    dispatched = agent.dispatch(again)
    assert dispatched["open_effect"] == first["id"]
    assert SameCall.objects.count() == 1
    # From now on each effect names the other in every state.
    agent.acknowledge(again)
    agent.acknowledge(first)
    assert named_calls(agent, first) == [(again["id"], False)]
    assert named_calls(agent, again) == [(first["id"], True)]
    assert (
        agent.get(f"/effects/{first['id']}/verdict").json()["same_calls"][0]["effect"]
        == again["id"]
    )


@pytest.mark.parametrize(
    ("ended", "names"),
    [
        (lambda agent, effect: agent.acknowledge(effect), False),
        (lambda agent, effect: agent.acknowledge(effect, outcome="unknown"), True),
        (lambda agent, effect: agent.fail(effect, "rejected"), False),
        (lambda agent, effect: agent.fail(effect, "timeout"), True),
    ],
)
def test_only_effects_with_an_unknown_outcome_are_named(
    declared_agent: Caller, ended: Any, names: bool
) -> None:
    agent = declared_agent
    first = begin_effect(agent)
    ended(agent, first)
    agent.session("second")
    again = agent.plan("other", "second", tool="mail.send")
    assert (again.get("open_effect") == first["id"], SameCall.objects.exists()) == (names, names)


@pytest.mark.parametrize(
    "other",
    [
        {"arguments": {"ref": "other"}},
        {"tool": "who.knows"},
        {"tool": "page.read"},
        {"tool": "file.put"},
    ],
)
def test_other_calls_and_harmless_ones_are_not_named(
    declared_agent: Caller, other: dict[str, Any]
) -> None:
    agent = declared_agent
    begin_effect(agent, **({} if other.get("tool") not in ("page.read", "file.put") else other))
    agent.session("second")
    again = agent.plan("other", "second", **({"tool": "mail.send"} | other))
    assert "open_effect" not in again
    assert "same_calls" not in again
    assert not SameCall.objects.exists()


def test_effects_of_another_project_are_not_named(declared_agent: Caller, stranger: Caller) -> None:
    begin_effect(declared_agent)
    stranger.session("second")
    assert "open_effect" not in stranger.plan("other", "second", tool="mail.send")


def test_of_two_concurrent_plans_the_second_names_the_first_at_dispatch(
    declared_agent: Caller,
) -> None:
    agent = declared_agent
    agent.session("first")
    agent.session("second")
    first, other = (agent.plan("e", session, tool="mail.send") for session in ("first", "second"))
    assert "open_effect" not in first.keys() | other.keys()
    assert "open_effect" not in agent.dispatch(first)
    assert agent.dispatch(other)["open_effect"] == first["id"]
    assert named_calls(agent, first) == [(other["id"], False)]


def test_a_repeated_dispatch_names_a_later_call_and_does_not_link_it_as_earlier(
    declared_agent: Caller,
) -> None:
    agent = declared_agent
    agent.session("first")
    first = agent.plan("e", "first", tool="mail.send")
    agent.dispatch(first, key="dispatch-first")
    later = begin_effect(agent, "second")
    repeated = agent.dispatch(first, key="dispatch-first")
    assert (repeated["attempt"], repeated["open_effect"]) == (1, later["id"])
    assert named_calls(agent, first) == [(later["id"], False)]
    assert not SameCall.objects.filter(position=0).exists()


def test_a_rule_asks_people_only_while_the_outcome_is_unknown(
    inbox: InboxScenario, client: Client
) -> None:
    agent = inbox.agent
    inbox.rules(RULES)
    first = begin_effect(agent)
    assert not Gate.objects.exists()
    agent.session("second")
    again = agent.plan("other", "second", tool="mail.send")
    assert (again["answer"], again["open_effect"]) == ("wait", first["id"])
    assert Gate.objects.get().requirement["minimum"] == 2
    assert again["policy_rule"].endswith("/all")
    client.force_login(inbox.person("rita").user)
    page = client.get(f"/approvals/{again['gate']['id']}/").text
    assert "The same call in another session:" in page
    assert f">{first['handle']}</a>" in page
    assert "If it happened, approving this runs it a second time." in page
    agent.acknowledge(first)
    page = client.get(f"/approvals/{again['gate']['id']}/").text
    assert f">{first['handle']}</a>" in page
    assert "approving this runs it a second time" not in page
    assert (
        agent.plan("third", "second", tool="mail.send", arguments={"ref": "x"})["answer"]
        == "proceed"
    )
    agent.session("third")
    assert agent.plan("other", "third", tool="mail.send")["answer"] == "proceed"


def test_permission_by_policy_is_gone_after_the_same_call_was_dispatched(
    inbox: InboxScenario,
) -> None:
    agent = inbox.agent
    inbox.rules(RULES)
    agent.session("first")
    agent.session("second")
    first, other = (agent.plan("e", session, tool="mail.send") for session in ("first", "second"))
    agent.dispatch(first)
    start = {"process": "p-1", "intent_digest": other["intent_digest"]}
    assert code(agent.post(f"/effects/{other['id']}/dispatch", start)) == (409, "GATE_GONE")
    assert agent.plan("e", "second", tool="mail.send")["answer"] == "wait"


def test_a_dry_run_uses_what_was_unknown_at_the_time_of_the_plan(inbox: InboxScenario) -> None:
    inbox.rules(LAX)
    first = begin_effect(inbox.agent)
    inbox.agent.session("second")
    again = inbox.agent.plan("other", "second", tool="mail.send")
    inbox.agent.acknowledge(first)
    replayed = dry_run.prepare_dry_run(
        Project.objects.get(id=Effect.objects.get(id=first["id"]).project_id), RULES
    )
    assert [(str(row.effect), row.before, row.after) for row in replayed] == [
        (again["id"], "allow", "ask")
    ]


def test_pages_and_resume_name_both_effects(
    inbox: InboxScenario, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.rules(LAX)
    first = begin_effect(inbox.agent)
    inbox.agent.session("second")
    again = inbox.agent.plan("other", "second", tool="mail.send")
    client.force_login(inbox.person("rita").user)
    inbox.agent.session("third")
    at = inbox.agent.plan("later", "third")["handle"].removeprefix("e_")
    handles = {effect["id"]: effect["handle"] for effect in (first, again)}
    for own, other, words in (
        (first, again, "planned or started while this effect’s outcome was unknown"),
        (again, first, "its outcome was unknown when this effect was planned or started"),
    ):
        page = client.get(f"/effects/{own['id']}/").content.decode()
        assert words in page
        assert f">{handles[other['id']]}</a>" in page
        page = client.get(f"/sessions/{own['session']}/").content.decode()
        assert "The same call in another session" in page
        assert "The same call may have" not in page  # shown once
        assert f">{handles[other['id']]}</a>" in page
        assert (
            handles[other["id"]]
            in client.get(f"/sessions/{own['session']}/resume/").content.decode()
        )
        answer = inbox.agent.get(f"/sessions/{own['session']}/resume").json()
        (open_effect,) = answer["crash_recovery"]["open_effects"]
        assert open_effect["same_calls"][0]["effect"] == other["id"]
        assert handles[other["id"]] in open_effect["sentence"]
        as_of = client.get(f"/effects/{own['id']}/?asof=%23{at}").content.decode()
        assert f">{handles[other['id']]}</a>" in as_of
    before = int(again["handle"].removeprefix("e_")) - 1
    as_of = client.get(f"/effects/{first['id']}/?asof=%23{before}").content.decode()
    assert handles[first["id"]] in as_of
    assert f">{handles[again['id']]}</a>" not in as_of


def test_same_calls_are_found_by_an_index(declared_agent: Caller) -> None:
    effect = Effect.objects.get(id=begin_effect(declared_agent)["id"])
    assert same_calls.find_unknown_calls(
        effect.project_id, effect.project_id, effect.tool, effect.intent_digest
    ) == (effect.id,)
    parameters = [
        f"'{vendor_id(effect.project_id)}'",
        f"'{effect.intent_digest}'",
        f"'{vendor_id(effect.session_id)}'",
    ]
    assert "effect_unknown_intent" in plan_of(same_calls.UNKNOWN_CALLS_SQL % tuple(parameters))
