"""Ways round a gate, each tried once: permission is for one intent, one agent and one use."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import time_machine
from django.db import transaction

from accounts import agents
from accounts.models import Agent
from approvals.gates import gates
from approvals.gates.statuses import US
from approvals.models import Gate
from approvals.voting import votes
from db.clock import now_us
from journal.models import Entry
from ledger.models import Attempt, Effect
from tests.api.api_client import Caller, code
from tests.approvals.inbox_scenario import RULES, InboxScenario
from tests.pages.sample_data import connect_agent
from tests.rows_with_entries import change_agents
from tests.sessions.team_helpers import one_team

pytestmark = pytest.mark.django_db

ALLOW = "name: basic\nrules:\n  - {id: all, title: Everything, match: {}, outcome: allow}\n"
BY_COMMAND = """
name: shell
rules:
  - id: listing
    title: Listing changes nothing
    match: {tools: [shell.run], arguments: [{path: command, prefix: ls}]}
    outcome: allow
"""


def dispatch(
    inbox: InboxScenario, effect: dict[str, Any], by: Caller | None = None, **fields: Any
) -> Any:
    body = {"process": "p-1", "intent_digest": effect["intent_digest"], **fields}
    sent = {name: value for name, value in body.items() if value is not None}
    return (by or inbox.agent).post(f"/effects/{effect['id']}/dispatch", sent)


def fact(identity: str, kind: str, effect_key: str = "e-1", **fields: Any) -> dict[str, Any]:
    return {"id": identity, "kind": kind, "session": "s-1", "effect_key": effect_key, **fields}


def approved(inbox: InboxScenario, effect_key: str = "e-1", **fields: Any) -> dict[str, Any]:
    """An effect with permission by ruling."""
    planned = inbox.plan(effect_key, **fields)
    assert inbox.answer(inbox.gate(planned), "reviewer").refusal is None
    return planned


def rejected(inbox: InboxScenario, planned: dict[str, Any]) -> None:
    """Dispatch an effect that has permission, and let the remote reject it."""
    assert dispatch(inbox, planned).status_code == 200
    inbox.agent.fail(planned, "rejected", inbox.effect(planned).attempt_count)


@pytest.fixture
def second(inbox: InboxScenario) -> Iterator[Caller]:
    """Another agent of the same project, owned by the reviewer."""
    with connect_agent(
        agents.ensure_agent(inbox.project, "build-9", inbox.user("reviewer"))
    ) as caller:
        one_team("deploy-7", "build-9")
        yield caller


# --- permission for one intent, used for another ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules", [BY_COMMAND, BY_COMMAND.replace("allow", "require\n    require: {minimum: 1}")]
)
def test_calling_the_command_free_text_does_not_let_another_one_run(
    quiet: InboxScenario, rules: str
) -> None:
    quiet.rules(rules)
    quiet.declare("shell.run")
    planned = quiet.plan(tool="shell.run", arguments={"command": "ls"}, free_text=["command"])
    if planned["answer"] == "wait":
        quiet.answer(quiet.gate(planned), "reviewer")
    other: dict[str, Any] = {
        "arguments": {"command": "rm -rf /"},
        "free_text": ["command"],
        "intent_digest": None,
    }
    assert code(dispatch(quiet, planned, **other)) == (409, "INTENT_MISMATCH")
    assert not Attempt.objects.exists()
    same: dict[str, Any] = {
        "arguments": {"command": "ls"},
        "free_text": ["command"],
        "intent_digest": None,
    }
    assert dispatch(quiet, planned, **same).status_code == 200


def test_an_allowed_plan_is_not_replaced_by_a_report_that_sorts_before(
    inbox: InboxScenario,
) -> None:
    inbox.agent.session("s-1")
    inbox.agent.report([fact("z", "effect.planned", tool="file.read", arguments={})])
    assert inbox.plan(tool="file.read", arguments={})["answer"] == "proceed"
    inbox.agent.report([fact("a", "effect.planned", tool="git.tag", arguments={"ref": "v1"})])
    now = inbox.agent.get(f"/effects/{Effect.objects.get().id}").json()
    assert dispatch(inbox, now).status_code == 200
    assert Effect.objects.get().tool == "file.read"


def test_permission_that_one_agent_has_is_not_used_by_another(
    inbox: InboxScenario, second: Caller
) -> None:
    """Otherwise the owner of the second agent could approve what their own agent then does."""
    planned = approved(inbox)
    assert code(dispatch(inbox, planned, second)) == (409, "NO_PERMISSION")
    assert not Attempt.objects.exists()
    assert dispatch(inbox, planned).status_code == 200


def test_permission_that_policy_gives_one_agent_is_not_used_by_another(
    inbox: InboxScenario, second: Caller
) -> None:
    inbox.rules(ALLOW.replace("match: {}", "match: {agents: [deploy-7]}"))
    planned = inbox.plan()
    assert planned["answer"] == "proceed"
    assert dispatch(inbox, planned, second).status_code == 409
    assert not Attempt.objects.exists()


def test_an_effect_that_another_agent_reported_can_be_requested_and_run(
    inbox: InboxScenario, second: Caller
) -> None:
    """The gate binds the agent that requests, not the agent whose report came first."""
    inbox.agent.session("s-1")
    second.report([fact("z", "effect.planned", tool="git.push", arguments={"ref": "main"})])
    planned = inbox.plan()
    inbox.answer(inbox.gate(planned), "administrator")
    assert dispatch(inbox, planned).status_code == 200


def test_one_permission_covers_one_attempt_and_a_second_one_reported_ran_without(
    inbox: InboxScenario,
) -> None:
    planned = approved(inbox)
    rejected(inbox, planned)
    inbox.agent.report([fact("d", "effect.dispatched", attempt=2)])
    effect = inbox.effect(planned)
    assert (effect.permission, effect.violates) == ("bypassed", True)
    assert list(Attempt.objects.order_by("number").values_list("permission", flat=True)) == [
        "used",
        "bypassed",
    ]


def test_two_attempts_reported_at_once_do_not_share_permission(inbox: InboxScenario) -> None:
    planned = approved(inbox)
    answer = inbox.agent.report(
        [fact("c", "effect.dispatched", attempt=1), fact("d", "effect.dispatched", attempt=2)]
    )
    assert answer.status_code == 200
    gate = inbox.gate(planned)
    assert (gate.status, gate.reason, inbox.effect(planned).permission) == (
        "cancelled",
        "bypassed",
        "bypassed",
    )
    assert set(Attempt.objects.values_list("permission", flat=True)) == {"bypassed"}


# --- whose report counts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["revoke", "extend"])
@pytest.mark.parametrize("name", ["viewer", "neighbour"])
def test_a_person_who_may_not_vote_may_neither_revoke_nor_extend(
    inbox: InboxScenario, verb: str, name: str
) -> None:
    gate = inbox.gate(approved(inbox) if verb == "revoke" else inbox.plan())
    person = inbox.organization.neighbour if name == "neighbour" else inbox.person(name)
    with transaction.atomic():
        outcome = (
            votes.revoke_approval(gate, person, "because")
            if verb == "revoke"
            else votes.extend_deadline(gate, person)
        )
    assert outcome.refusal is not None
    assert outcome.refusal[0] == "not_eligible"
    assert Gate.objects.get().version == gate.version


def test_a_person_who_becomes_owner_while_it_waits_is_a_party(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan())
    change_agents(Agent.objects.filter(id=gate.agent_id), owner=inbox.user("reviewer"))
    assert inbox.answer(gate, "reviewer").refusal[0] == "self_approval"  # type: ignore[index]


# --- what the journal alone shows -------------------------------------------------------------------------------------


def facts(effect: dict[str, Any], kind: str) -> list[str]:
    entries = Entry.objects.filter(effect=UUID(effect["id"]), kind=kind).order_by("position")
    return list(entries.values_list("facts", flat=True))


def test_the_journal_names_the_rule_that_gave_permission(inbox: InboxScenario) -> None:
    assert (
        '"policy_rule":"basic@1/reads"' in facts(inbox.plan(tool="file.read"), "effect.planned")[0]
    )


def test_the_journal_records_that_permission_was_withdrawn(inbox: InboxScenario) -> None:
    planned = inbox.plan(tool="file.read")
    inbox.rules(RULES.replace("outcome: allow", "outcome: deny"))
    assert code(dispatch(inbox, planned)) == (409, "GATE_GONE")
    assert inbox.effect(planned).permission == "none"
    (fact,) = facts(planned, "effect.withheld")
    assert fact.startswith('{"basis":"revoked",')
    assert '"permission":"none"' in fact


def test_the_journal_records_the_requirement_and_deadline_of_a_gate(inbox: InboxScenario) -> None:
    planned = approved(inbox)
    gate = inbox.gate(planned)
    (requested,) = facts(planned, "gate.requested")
    for expected in (
        f'"decide_by_us":{gate.decide_by_us}',
        '"minimum":1',
        f'"policy_set":"{gate.policy_set_id.hex}"',  # type: ignore[union-attr]
    ):
        assert expected in requested
    assert f'"until_us":{gate.permission_until_us}' in facts(planned, "effect.granted")[0]


def test_nothing_is_used_before_it_was_decided(inbox: InboxScenario) -> None:
    """A dispatch that waited for the ruling's rows was received before the ruling, and used it
    afterwards."""
    planned = inbox.plan()
    with time_machine.travel(now_us() / US - 5, tick=False):
        early = now_us()
    gate = inbox.gate(planned)
    inbox.answer(gate, "reviewer")
    gate.refresh_from_db()
    with transaction.atomic():
        locked = gates.lock_gate(gate).gate
        gates.use_gate(locked, 1, early)
    gate.refresh_from_db()
    assert (gate.used_at_us or 0) >= (gate.decided_at_us or 0)
