"""Commands about effects, for tests that call the verbs without an endpoint.

The session is locked as an endpoint locks it.
"""

from dataclasses import dataclass, field
from typing import Any

from accounts.models import Agent
from approvals import dispatch_command, gated_commands, plan_command
from approvals.dispatch_command import DispatchRequest
from approvals.policies.policy_evaluation import PlanPayload
from db.ids import derive_uuid
from journal.models import Entry
from ledger import commands, permissions
from ledger.commands import CommandResult, Plan
from ledger.fold.effect_state import Fact
from ledger.models import Effect
from ledger.store import writer
from sessions import sessions
from sessions.models import Session
from tests.sessions.command_factories import opened, origin, report


@dataclass
class Lane:
    """The command lane of one session, as its agent uses it. Intents are short words."""

    agent: Agent
    session: Session = field(init=False)

    def __post_init__(self) -> None:
        self.session = opened(self.agent)

    def plan(
        self,
        effect_key: str,
        intent: str = "push main",
        *,
        key: str | None = None,
        tool: str = "t",
        **values: Any,
    ) -> CommandResult:
        sessions.lock_session_row(self.agent.project_id, self.session.id, 1, new_effects=0)
        wish = Plan(self.session.id, effect_key, tool, intent, values)
        return plan_command.plan_with_policy(origin(self.agent, key), wish, PlanPayload({}))

    def dispatch(
        self,
        effect_key: str,
        *,
        key: str | None = None,
        process: str = "p-1",
        intent: str = "push main",
        epoch: int | None = None,
    ) -> CommandResult:
        return dispatch_command.dispatch_with_policy(
            origin(self.agent, key, lease_epoch=epoch),
            DispatchRequest(self.row(effect_key).id, process, lambda _tool: intent),
        )

    def acknowledge(
        self,
        effect_key: str,
        attempt: int = 1,
        outcome: str = "ok",
        reference: str = "",
        key: str | None = None,
    ) -> CommandResult:
        return commands.acknowledge_attempt(
            origin(self.agent, key),
            self.row(effect_key).id,
            attempt=attempt,
            outcome=outcome,
            external_reference=reference,
        )

    def fail(self, effect_key: str, reason: str, attempt: int = 1) -> CommandResult:
        effect = self.row(effect_key).id
        return commands.fail_attempt(
            origin(self.agent),
            effect,
            attempt=attempt,
            reason=reason,
        )

    def supersede(self, effect_key: str) -> CommandResult:
        return gated_commands.supersede_with_gates(origin(self.agent), self.row(effect_key).id)

    def apply_report(
        self,
        effect_key: str,
        kind: str,
        *,
        id: str = "seen",  # noqa: A002
        attempt: int = 1,
        **values: Any,
    ) -> Effect:
        """Apply a report about the effect, in the evidence lane."""
        effect, source = derive_uuid(self.session.id, effect_key), report(self.agent, id)
        fact = Fact(
            kind,
            source.mark,
            source.lane,
            id,
            0,
            source.received_us,
            source.told_us,
            attempt,
            values=values,
        )
        effect_fact = writer.EffectFact(
            effect, self.agent.project_id, self.session.id, self.agent.id, effect_key, fact
        )
        writer.apply_effect_facts([effect_fact])
        return self.row(effect_key)

    def row(self, effect_key: str) -> Effect:
        return Effect.objects.get(session=self.session, effect_key=effect_key)

    def set_permission(self, effect_key: str, **permission: Any) -> None:
        """Give the effect the permission that a policy would give it."""
        Effect.objects.filter(session=self.session, effect_key=effect_key).update(**permission)


def violations() -> list[str]:
    """The names of the violations in the journal, in order."""
    facts_of_entries = (
        Entry.objects.filter(kind="integrity.violation")
        .order_by("position")
        .values_list("facts", flat=True)
    )
    return [facts.split('"')[3] for facts in facts_of_entries]


def short_answer(result: CommandResult) -> str:
    """Return the code of a refusal, or the answer to the agent."""
    return (
        result.refusal[0]
        if result.refusal
        else permissions.agent_answer(result.effect, result.open_effect)
    )
