"""People cannot exempt their own requests above low risk, at the plan and at every use."""

from itertools import product
from typing import Any, Final

import pytest
from django.urls import reverse

from accounts import agents
from accounts.models import Agent
from approvals.models import Exemption, Gate
from journal.models import Entry
from ledger.models import Attempt
from tests.api.api_client import Caller, code
from tests.approvals.confirm_helpers import grant
from tests.approvals.inbox_scenario import InboxScenario
from tests.matrices import keep_core
from tests.pages.sample_data import connect_agent
from tests.rows_with_entries import change_agents

pytestmark = pytest.mark.django_db
RULES: Final = """
name: basic
rules:
  - {id: all, title: Everything asks, match: {}, outcome: require, exemptible: irreversible}
"""
GRANTORS: Final = ("operator", "administrator")
RELATIONS: Final = ("none", "requester", "session_owner", "agent_owner")
RISKS: Final = {  # the tool's declaration, and the environment
    "low": ("reversible", ""),
    "medium": ("compensable", ""),
    "high": ("compensable", "production"),
    "high, final": ("irreversible", ""),
    "critical": ("irreversible", "production"),
}


def exempt(inbox: InboxScenario, grantor: str, agent: str = "deploy-7") -> None:
    """Exempt the agent's tool for an hour, by the form."""
    fields = {"tool": "act", "agent": agent, "hours": "1", "reason": "The release train, INC-204."}
    assert grant(inbox.organization.client(grantor), **fields).status_code == 302


def declared(inbox: InboxScenario, risk: str) -> dict[str, Any]:
    """Activate the rules and declare the tool; return the fields of a plan of this risk."""
    inbox.rules(RULES)
    reversibility, environment = RISKS[risk]
    inbox.declare("act", reversibility)
    return {"tool": "act", **({"target": {"environment": environment}} if environment else {})}


def dispatch(agent: Caller, effect: dict[str, Any]) -> Any:
    body = {"process": "p-1", "intent_digest": effect["intent_digest"]}
    return agent.post(f"/effects/{effect['id']}/dispatch", body)


@pytest.mark.once
@pytest.mark.parametrize(
    ("grantor", "relation", "risk"),
    keep_core(
        product(GRANTORS, RELATIONS, RISKS),
        [
            *(("operator", relation, "low") for relation in RELATIONS),
            *(("administrator", relation, "medium") for relation in RELATIONS),
            ("operator", "none", "critical"),
            ("operator", "requester", "critical"),
            ("operator", "agent_owner", "high"),
            ("operator", "session_owner", "high, final"),
        ],
    ),
)
def test_a_party_exempts_its_own_requests_only_at_low_risk(
    quiet: InboxScenario, grantor: str, relation: str, risk: str
) -> None:
    fields = declared(quiet, risk)
    owner = quiet.user(grantor if relation == "agent_owner" else "reviewer")
    change_agents(Agent.objects.filter(name="deploy-7"), owner=owner)
    session_fields = {
        "requester": {"on_behalf_of": grantor},
        "session_owner": {"owner": grantor},
    }.get(relation, {})
    quiet.agent.session("s-1", **session_fields)
    before = quiet.agent.plan("before", arguments={"n": 1}, **fields)
    assert before["answer"] == "wait"
    assert Gate.objects.get().risk == risk.partition(",")[0]
    exempt(quiet, grantor)
    after = quiet.agent.plan("after", arguments={"n": 2}, **fields)
    passes = relation == "none" or risk == "low"
    assert (after["answer"], after["permission_basis"]) == (
        ("proceed", "exemption") if passes else ("wait", "policy")
    )
    assert (
        Exemption.objects.get().uses
        == Entry.objects.filter(kind="exemption.used").count()
        == int(passes)
    )
    assert Gate.objects.count() == (1 if passes else 2)
    assert dispatch(quiet.agent, after).status_code == (200 if passes else 409)


@pytest.mark.parametrize("how", ["parent", "branched_from"])
def test_no_one_exempts_a_reported_session_below_one_that_works_for_them(
    quiet: InboxScenario, how: str
) -> None:
    fields = declared(quiet, "high")
    change_agents(Agent.objects.filter(name="deploy-7"), owner=quiet.user("reviewer"))
    quiet.agent.session("s-1", on_behalf_of="operator")
    below = {"id": "f-1", "kind": "session.started", "session": "below", how: "s-1"}
    assert quiet.agent.report([below]).json()["accepted"] == 1
    exempt(quiet, "operator")
    assert quiet.agent.plan("e-1", "below", **fields)["answer"] == "wait"
    exempt(quiet, "administrator")
    assert (
        quiet.agent.plan("e-2", "below", arguments={"n": 2}, **fields)["permission_basis"]
        == "exemption"
    )


def test_the_exemption_of_another_person_covers_it(quiet: InboxScenario) -> None:
    """The owner's exemption comes first in order, since it ends first."""
    fields = declared(quiet, "critical")
    for grantor in GRANTORS:
        exempt(quiet, grantor)
    assert quiet.plan(**fields)["permission_basis"] == "exemption"
    used = dict(Exemption.objects.values_list("granted_by__username", "uses"))
    assert used == {"operator": 0, "administrator": 1}


@pytest.mark.parametrize(
    ("mode", "risk"),
    keep_core(
        product(["enforce", "observe"], RISKS),
        [("enforce", "low"), ("enforce", "medium"), ("enforce", "critical"), ("observe", "high")],
    ),
)
def test_permission_of_an_exemption_ends_when_its_grantor_comes_to_own_the_agent(
    quiet: InboxScenario, risk: str, mode: str
) -> None:
    fields = declared(quiet, risk)
    exempt(quiet, "administrator", "build-9")
    with connect_agent(agents.ensure_agent(quiet.project, "build-9")) as agent:
        agent.session("s-1")
        planned = agent.plan(**fields)
        assert planned["permission_basis"] == "exemption"
        if mode == "observe":
            quiet.rules(RULES, mode)  # the next plan passes without any exemption
        owned = {"agent": "build-9", "owner": "administrator", "expires": "1d", "scope": "agent"}
        assert (
            quiet.organization.client("administrator").post(reverse("tokens"), owned).status_code
            == 302
        )
        answer = dispatch(agent, planned)
        if risk == "low" or mode == "observe":
            assert answer.status_code == 200
            return
        assert (code(answer), answer.json()["reason"]) == (
            (409, "GATE_GONE"),
            "requirement_changed",
        )
        assert not Attempt.objects.exists()
        assert agent.plan(**fields)["answer"] == "wait"
        exempt(quiet, "operator", "build-9")
        assert dispatch(agent, agent.plan("e-2", arguments={"n": 2}, **fields)).status_code == 200


def test_the_pages_show_that_parties_cannot_exempt(quiet: InboxScenario) -> None:
    client = quiet.organization.client("operator")
    assert "Above low risk it does not cover" in client.get(reverse("exemptions")).content.decode()
    assert (
        "Above low risk you cannot exempt your own work"
        in client.get(reverse("grant_exemption")).content.decode()
    )
