"""A scenario with an answer to each audit question, written by agents and people."""

import time
from dataclasses import dataclass, field
from typing import Any

import time_machine
from django.db import transaction

from approvals import exemptions
from approvals.models import Exemption
from approvals.voting.votes import ShownGate
from db.clock import now_us
from journal import entries
from journal.entries import Draft
from sessions.models import Session
from tests.api.api_client import new_key
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import RULES, InboxScenario

US = 1_000_000
PERMISSION_S = 600  # duration of an exemption: longer than a test, shorter than a gate waits
PULL = "https://forge.example/web/pull/17"
ISSUE = "https://forge.example/web/issues/4"
NOTES = """  - id: notes
    title: Notes
    match: {tools: [note.write], risk_at_most: low}
    outcome: require
    require: {self_approval: true}
"""
TARGET = {"repository": "web", "ref": "main"}


@dataclass
class Scenario:
    """Effects and gates by the case that each represents."""

    inbox: InboxScenario
    effects: dict[str, dict[str, Any]] = field(default_factory=dict)
    exemption: Exemption | None = None

    def handle(self, name: str) -> str:
        return str(self.effects[name]["handle"])


def build_scenario(inbox: InboxScenario) -> Scenario:
    inbox.rules(RULES + NOTES)
    inbox.declare("note.write", "reversible")
    inbox.declare("mail.send", "compensable")
    scenario, agent = Scenario(inbox), inbox.agent

    def plan(name: str, **fields: Any) -> dict[str, Any]:
        scenario.effects[name] = agent.plan(name, **{"tool": "file.read", **fields})
        return scenario.effects[name]

    agent.session("s-1")
    # A run that failed in a tool, after a retry.
    failed = agent.session("broken", repository="web")
    retried = plan("retried", session="broken", target=TARGET)
    agent.dispatch(retried)
    agent.fail(retried, "rejected")
    agent.dispatch(plan("retried", session="broken", target=TARGET))
    agent.fail(retried, "rejected", 2)
    ended = agent.post(f"/sessions/{failed['id']}/end", {"status": "failed"})
    assert ended.status_code == 200, ended.text
    Session.objects.filter(key="broken").update(resumes=4)
    # Production, an unknown outcome, and an effect with a reference and its compensation.
    pushed = plan("pushed", target=TARGET)
    agent.dispatch(pushed)
    agent.acknowledge(pushed, external_reference=PULL)
    undone = agent.post(
        f"/effects/{pushed['id']}/compensate",
        {"effect_key": "undoing", "tool": "file.read", "arguments": {"pr": 17}},
    )
    assert undone.status_code == 201, undone.text
    scenario.effects["undoing"] = undone.json()
    plan("child", parent_effect=pushed["id"], arguments={"of": "pushed"})
    plan("apart", arguments={"of": "nothing"}, target={"resource": ISSUE})
    lost = plan("unknown", arguments={"n": 1})
    agent.dispatch(lost)
    agent.acknowledge(lost, outcome="unknown")
    # Votes: an immediate vote, a vote after reading, a self-approval, and a waiting gate.
    hasty, read = (
        plan("hasty", tool="git.push", arguments={"ref": "a"}),
        plan("read", tool="git.push", arguments={"ref": "b"}),
    )
    inbox.answer(inbox.gate(hasty), "reviewer")
    gate = inbox.gate(read)
    slow = inbox.shown(gate)
    slow = ShownGate(slow.version, slow.digest, slow.card_sha256, slow.complete, now_us() - 60 * US)
    assert inbox.answer(gate, "administrator", shown=slow).refusal is None
    Session.objects.filter(key="s-1").update(on_behalf_of=inbox.user("reviewer"))
    own = plan("own", tool="note.write", arguments={"text": "mine"})
    assert inbox.answer(inbox.gate(own), "reviewer").refusal is None
    plan("waiting", tool="git.push", arguments={"ref": "c"})
    # Run without permission; other arguments reported than those that were approved.
    plan("ran", tool="git.push", arguments={"ref": "d"}, target=TARGET)
    other = {
        "kind": "effect.planned",
        "effect_key": "read",
        "tool": "git.push",
        "arguments": {"ref": "another"},
    }
    report(inbox, {"kind": "effect.dispatched", "effect_key": "ran", "attempt": 1}, other)
    # An exemption whose effect ran after its end, and one that was used in time.
    with transaction.atomic():
        scenario.exemption = exemptions.create_exemption(
            inbox.project,
            tool="deploy",
            rule="deploy",
            reason="a release is going on",
            ends_at_us=now_us() + PERMISSION_S * US,
            user=inbox.user("administrator"),
            **proved(),
        )
        assert exemptions.confirm_exemption_grant(
            scenario.exemption, inbox.person("dan", "operator").user, **proved()
        )
        scenario.exemption.refresh_from_db()
        exemptions.create_exemption(
            inbox.project,
            tool="git.push",
            rule="push",
            reason="a release is going on",
            ends_at_us=now_us() + PERMISSION_S * US,
            user=inbox.person("dan", "operator").user,
            **proved(),
        )
    agent.dispatch(plan("in-time", tool="git.push", arguments={"ref": "e"}))
    plan("late", tool="deploy", arguments={"version": 1})
    late = {
        "kind": "effect.dispatched",
        "effect_key": "late",
        "attempt": 1,
        "occurred_us": now_us() + 3600 * US,
    }
    report(inbox, late)
    plan("later", tool="deploy", arguments={"version": 2})
    with time_machine.travel(
        time.time() + 2 * PERMISSION_S
    ):  # after the permission has expired and the ledger has ended the exemption
        report(inbox, {"kind": "effect.dispatched", "effect_key": "later", "attempt": 1})
    # A key reused with other content, and a writer without its lease.
    item = {
        "id": "twice",
        "kind": "effect.dispatched",
        "session": "s-1",
        "effect_key": "apart",
        "attempt": 1,
    }
    assert agent.report([item]).status_code == 200
    agent.report([{**item, "attempt": 2}])
    fenced = Draft(
        inbox.project.id, "gatebook", new_key(), "integrity.fenced", "system", "gatebook", "{}"
    )
    with transaction.atomic():
        entries.append_entries([fenced], now_us())
    return scenario


def report(inbox: InboxScenario, *facts: dict[str, Any]) -> None:
    """Report facts of session s-1."""
    answer = inbox.agent.report([{"id": new_key(), "session": "s-1", **fact} for fact in facts])
    assert answer.status_code == 200, answer.text


def advance_scenario(scenario: Scenario) -> None:
    """Settle what was open and repeat similar effects, a day later."""
    inbox, agent = scenario.inbox, scenario.inbox.agent
    agent.dispatch(scenario.effects["child"])
    agent.acknowledge(scenario.effects["child"], external_reference=PULL)
    assert inbox.answer(inbox.gate(scenario.effects["waiting"]), "administrator").refusal is None
    more = agent.plan("more", tool="file.read", arguments={"n": 2}, target=TARGET)
    agent.dispatch(more)
    agent.acknowledge(more, outcome="unknown")
    with transaction.atomic():
        exemptions.create_exemption(
            inbox.project,
            tool="git.push",
            rule="push",
            reason="another release",
            ends_at_us=now_us() + PERMISSION_S * US,
            user=inbox.user("administrator"),
            **proved(),
        )
