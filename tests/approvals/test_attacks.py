"""Ways round a gate, each tried once: permission is for one intent, one agent and one use."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import time_machine
from django.db import transaction

from accounts import agents
from accounts.models import Agent
from approvals.gates import deadlines, gates
from approvals.gates.statuses import US
from approvals.models import Gate
from approvals.voting import votes
from db.clock import now_us
from journal.models import Entry
from ledger.models import Attempt, Effect
from tests.api.api_client import Caller, code
from tests.approvals.inbox_scenario import RULES, Desk
from tests.pages.sample_data import doors
from tests.sessions.team_helpers import one_team

pytestmark = pytest.mark.django_db

ALLOW = "name: house\nrules:\n  - {id: all, title: Everything, match: {}, outcome: allow}\n"
BY_COMMAND = """
name: shell
rules:
  - id: listing
    title: Listing changes nothing
    match: {tools: [shell.run], arguments: [{path: command, prefix: ls}]}
    outcome: allow
"""


def dispatch(desk: Desk, effect: dict[str, Any], by: Caller | None = None, **fields: Any) -> Any:
    body = {"process": "p-1", "intent_digest": effect["intent_digest"], **fields}
    sent = {name: value for name, value in body.items() if value is not None}
    return (by or desk.agent).post(f"/effects/{effect['id']}/dispatch", sent)


def fact(identity: str, kind: str, effect_key: str = "e-1", **fields: Any) -> dict[str, Any]:
    return {"id": identity, "kind": kind, "session": "s-1", "effect_key": effect_key, **fields}


def approved(desk: Desk, effect_key: str = "e-1", **fields: Any) -> dict[str, Any]:
    """An effect with permission by ruling."""
    planned = desk.plan(effect_key, **fields)
    assert desk.answer(desk.gate(planned), "reviewer").refusal is None
    return planned


def rejected(desk: Desk, planned: dict[str, Any]) -> None:
    """Dispatch an effect that has permission, and let the remote reject it."""
    assert dispatch(desk, planned).status_code == 200
    desk.agent.fail(planned, "rejected", desk.effect(planned).attempt_count)


@pytest.fixture
def second(desk: Desk) -> Iterator[Caller]:
    """Another agent of the same project, owned by the reviewer."""
    with doors(agents.ensure_agent(desk.project, "build-9", desk.user("reviewer"))) as caller:
        one_team("deploy-7", "build-9")
        yield caller


# --- permission for one intent, used for another ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules", [BY_COMMAND, BY_COMMAND.replace("allow", "require\n    require: {minimum: 1}")]
)
def test_calling_the_command_free_text_does_not_let_another_one_run(
    quiet: Desk, rules: str
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


def test_an_allowed_plan_is_not_replaced_by_a_report_that_sorts_before(desk: Desk) -> None:
    desk.agent.session("s-1")
    desk.agent.report([fact("z", "effect.planned", tool="file.read", arguments={})])
    assert desk.plan(tool="file.read", arguments={})["answer"] == "proceed"
    desk.agent.report([fact("a", "effect.planned", tool="git.tag", arguments={"ref": "v1"})])
    now = desk.agent.get(f"/effects/{Effect.objects.get().id}").json()
    assert dispatch(desk, now).status_code == 200
    assert Effect.objects.get().tool == "file.read"


def test_permission_that_one_agent_has_is_not_used_by_another(desk: Desk, second: Caller) -> None:
    """Otherwise the owner of the second agent could approve what their own agent then does."""
    planned = approved(desk)
    assert code(dispatch(desk, planned, second)) == (409, "NO_PERMISSION")
    assert not Attempt.objects.exists()
    assert dispatch(desk, planned).status_code == 200


def test_permission_that_policy_gives_one_agent_is_not_used_by_another(
    desk: Desk, second: Caller
) -> None:
    desk.rules(ALLOW.replace("match: {}", "match: {agents: [deploy-7]}"))
    planned = desk.plan()
    assert planned["answer"] == "proceed"
    assert dispatch(desk, planned, second).status_code == 409
    assert not Attempt.objects.exists()


def test_an_effect_that_another_agent_reported_can_be_requested_and_run(
    desk: Desk, second: Caller
) -> None:
    """The gate binds the agent that requests, not the agent whose report came first."""
    desk.agent.session("s-1")
    second.report([fact("z", "effect.planned", tool="git.push", arguments={"ref": "main"})])
    planned = desk.plan()
    desk.answer(desk.gate(planned), "administrator")
    assert dispatch(desk, planned).status_code == 200


def test_one_permission_covers_one_attempt_and_a_second_one_reported_ran_without(
    desk: Desk,
) -> None:
    planned = approved(desk)
    rejected(desk, planned)
    desk.agent.report([fact("d", "effect.dispatched", attempt=2)])
    effect = desk.effect(planned)
    assert (effect.permission, effect.violates) == ("bypassed", True)
    assert list(Attempt.objects.order_by("number").values_list("permission", flat=True)) == [
        "used",
        "bypassed",
    ]


def test_two_attempts_reported_at_once_do_not_share_permission(desk: Desk) -> None:
    planned = approved(desk)
    answer = desk.agent.report(
        [fact("c", "effect.dispatched", attempt=1), fact("d", "effect.dispatched", attempt=2)]
    )
    assert answer.status_code == 200
    gate = desk.gate(planned)
    assert (gate.status, gate.reason, desk.effect(planned).permission) == (
        "cancelled",
        "bypassed",
        "bypassed",
    )
    assert set(Attempt.objects.values_list("permission", flat=True)) == {"bypassed"}


# --- whose report counts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["revoke", "extend"])
@pytest.mark.parametrize("name", ["viewer", "neighbour"])
def test_a_person_who_may_not_vote_may_neither_revoke_nor_extend(
    desk: Desk, verb: str, name: str
) -> None:
    gate = desk.gate(approved(desk) if verb == "revoke" else desk.plan())
    person = desk.house.neighbour if name == "neighbour" else desk.person(name)
    with transaction.atomic():
        outcome = (
            votes.revoke_approval(gate, person, "because")
            if verb == "revoke"
            else votes.extend_deadline(gate, person)
        )
    assert outcome.refusal is not None
    assert outcome.refusal[0] == "not_eligible"
    assert Gate.objects.get().version == gate.version


def test_a_person_who_becomes_owner_while_it_waits_is_a_party(desk: Desk) -> None:
    gate = desk.gate(desk.plan())
    Agent.objects.filter(id=gate.agent_id).update(owner=desk.user("reviewer"))
    assert desk.answer(gate, "reviewer").refusal[0] == "self_approval"  # type: ignore[index]


# --- what the journal alone shows -------------------------------------------------------------------------------------


def facts(effect: dict[str, Any], kind: str) -> list[str]:
    entries = Entry.objects.filter(effect=UUID(effect["id"]), kind=kind).order_by("position")
    return list(entries.values_list("facts", flat=True))


def test_the_journal_names_the_rule_that_gave_permission(desk: Desk) -> None:
    assert (
        '"policy_rule":"house@1/reads"' in facts(desk.plan(tool="file.read"), "effect.planned")[0]
    )


def test_the_journal_records_that_permission_was_withdrawn(desk: Desk) -> None:
    planned = desk.plan(tool="file.read")
    desk.rules(RULES.replace("outcome: allow", "outcome: deny"))
    assert code(dispatch(desk, planned)) == (409, "GATE_GONE")
    assert desk.effect(planned).permission == "none"
    (fact,) = facts(planned, "effect.withheld")
    assert fact.startswith('{"basis":"revoked",')
    assert '"permission":"none"' in fact


def test_the_journal_records_the_requirement_and_deadline_of_a_gate(desk: Desk) -> None:
    planned = approved(desk)
    gate = desk.gate(planned)
    (requested,) = facts(planned, "gate.requested")
    for expected in (
        f'"decide_by_us":{gate.decide_by_us}',
        '"minimum":1',
        f'"policy_set":"{gate.policy_set_id.hex}"',  # type: ignore[union-attr]
    ):
        assert expected in requested
    assert f'"until_us":{gate.permission_until_us}' in facts(planned, "effect.granted")[0]


def test_nothing_is_used_before_it_was_decided(desk: Desk) -> None:
    """A dispatch that waited for the ruling's rows was received before the ruling, and used it
    afterwards."""
    planned = desk.plan()
    with time_machine.travel(now_us() / US - 5, tick=False):
        early = now_us()
    gate = desk.gate(planned)
    desk.answer(gate, "reviewer")
    gate.refresh_from_db()
    with transaction.atomic():
        locked = deadlines.lock_gate(gate).gate
        gates.use_gate(locked, 1, early)
    gate.refresh_from_db()
    assert (gate.used_at_us or 0) >= (gate.decided_at_us or 0)
