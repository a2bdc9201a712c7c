"""Facts on the effect page that people and Gatebook record, and effects of other projects."""

import re
from typing import Any

import pytest
from django.db import transaction
from django.urls import reverse

from approvals import exemptions
from approvals.voting import votes
from db.clock import now_us
from journal.models import Entry
from ledger import stops
from ledger.models import Effect
from tests.api.api_client import Caller, new_key
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.people import Organization
from tests.pages.sample_data import connect_agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def inbox(organization: Organization, agent: Caller) -> InboxScenario:
    """Return a project whose rules require approval of pushes."""
    scenario = InboxScenario(organization, agent)
    scenario.rules()
    scenario.declare("git.push")
    return scenario


def page_of(organization: Organization, effect: str) -> str:
    """Return the page of an effect as a viewer sees it."""
    text: str = organization.client("viewer").get(reverse("effect", args=[effect])).content.decode()
    return text


def row_of(page: str, entry: Entry) -> str:
    """Return the two rows that show a fact."""
    return page.partition(f'id="p{entry.position}"')[2].partition('class="fact-row"')[0]


def effect_with_every_fact(inbox: InboxScenario) -> dict[str, Any]:
    """Return an effect with a fact of every kind that people and Gatebook record."""
    planned = inbox.plan()
    gate = inbox.gate(planned)
    with transaction.atomic():
        votes.extend_deadline(gate, inbox.person("rita"))
    inbox.answer(gate, "rita", "request_changes", "name the ticket first")
    planned = inbox.plan()
    inbox.agent.post(f"/gates/{inbox.gate(planned).id}/cancel")
    planned = inbox.plan()
    inbox.answer(inbox.gate(planned), "rita")
    with transaction.atomic():
        votes.revoke_approval(inbox.gate(planned), inbox.person("rita"), "the branch is frozen")
        stop = stops.set_stop(
            inbox.project, "effect", inbox.effect(planned).id.hex, "look first", inbox.user("rita")
        )
        stops.lift_stop(stop, "looked", inbox.user("rita"))
        exemptions.create_exemption(
            inbox.project,
            tool="git.*",
            reason="the freeze is over",
            ends_at_us=now_us() + 10**9,
            user=inbox.user("administrator"),
            **proved(),
        )
    planned = inbox.plan()
    inbox.agent.dispatch(planned)
    inbox.agent.acknowledge(planned)
    return planned


def test_facts_of_people_and_gatebook_have_known_kinds(inbox: InboxScenario) -> None:
    effect = effect_with_every_fact(inbox)
    kinds = set(Entry.objects.filter(effect=effect["id"]).values_list("kind", flat=True))
    assert {
        "gate.requested",
        "gate.voted",
        "gate.ruled",
        "gate.extended",
        "gate.cancelled",
        "gate.revoked",
    } <= kinds
    assert {
        "stop.set",
        "stop.lifted",
        "exemption.used",
        "effect.granted",
        "effect.acknowledged",
    } <= kinds
    assert "unknown kind" not in page_of(inbox.organization, effect["id"])


def test_the_same_kinds_reported_by_an_agent_change_nothing_and_are_labelled(
    inbox: InboxScenario,
) -> None:
    effect = inbox.plan()
    kinds = ("gate.cancelled", "gate.ruled", "effect.granted", "stop.lifted")
    items = [
        {"id": new_key(), "kind": kind, "session": "s-1", "effect_key": "e-1"} for kind in kinds
    ]
    assert inbox.agent.report(items).status_code == 200
    page = page_of(inbox.organization, effect["id"])
    for entry in Entry.objects.filter(effect=effect["id"], lane="evidence"):
        assert "unknown kind, ignored" in row_of(page, entry), entry.kind


def test_a_decision_about_an_effect_is_one_of_its_facts(inbox: InboxScenario) -> None:
    effect = inbox.plan()
    path = f"/sessions/{inbox.effect(effect).session_id}/decisions"
    decision = inbox.agent.post(
        path, {"key": "way", "choice": "push to fix", "effect_key": "e-1"}
    ).json()
    inbox.agent.post(
        f"/decisions/{decision['id']}/conclude", {"status": "done", "outcome": "pushed"}
    )
    page = page_of(inbox.organization, effect["id"])
    for kind, words in (("decision.recorded", "push to fix"), ("decision.concluded", "pushed")):
        row = row_of(page, Entry.objects.get(kind=kind))
        assert words in row
        assert "unknown kind" not in row


def test_only_facts_sent_by_an_agent_are_labelled_as_such(inbox: InboxScenario) -> None:
    effect = inbox.plan()
    inbox.answer(inbox.gate(effect), "rita", "deny", "not in this week")
    page = page_of(inbox.organization, effect["id"])
    for entry in Entry.objects.filter(effect=effect["id"]):
        assert ("from agent: the item as stored" in row_of(page, entry)) == (
            entry.lane != "system"
        ), entry.kind


def test_an_effect_of_another_project_is_never_shown_as_a_relation(
    organization: Organization, agent: Caller
) -> None:
    with connect_agent(organization.other_token.agent) as stranger:
        stranger.session("theirs")
        foreign = stranger.plan("e-1", "theirs", tool="payroll.pay")
    agent.session("ours")
    ours = agent.plan("e-1", "ours", tool="git.fetch")
    for key, parent in (("of-theirs", foreign), ("of-ours", ours)):
        plan = {
            "id": new_key(),
            "kind": "effect.planned",
            "session": "ours",
            "effect_key": key,
            "tool": "git.push",
        }
        assert (
            agent.report([{**plan, "arguments": {}, "parent_effect": parent["id"]}]).status_code
            == 200
        )
    pages = {
        key: page_of(organization, str(Effect.objects.get(effect_key=key).id))
        for key in ("of-theirs", "of-ours")
    }
    assert re.search(rf"/effects/{ours['id']}/.*git\.fetch", pages["of-ours"], re.DOTALL)
    assert "parent of this effect" not in pages["of-theirs"]
    assert "payroll.pay" not in pages["of-theirs"]
    assert f"/effects/{foreign['id']}/" not in pages["of-theirs"]
