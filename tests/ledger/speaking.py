"""Commands about effects, for verbs that are called without a door; the session is locked as a door would."""

from dataclasses import dataclass, field
from typing import Any

from approvals import leave
from approvals.reading import Asked
from journal.ids import derived
from journal.models import Entry
from ledger import commands, effects, leaves
from ledger.commands import Answered, Plan
from ledger.fold import Fact
from ledger.models import Effect
from sessions import sessions
from sessions.models import Agent, Session
from tests.sessions.speaking import opened, origin, report


@dataclass
class Lane:
    """The command lane of one session, as its agent uses it. Intents are short words."""

    agent: Agent
    session: Session = field(init=False)

    def __post_init__(self) -> None:
        self.session = opened(self.agent)

    def plan(
        self, effect_key: str, intent: str = "push main", *, key: str | None = None, tool: str = "t", **values: Any
    ) -> Answered:
        sessions.lock(self.agent.project_id, self.session.id, 1, new_effects=0)
        wish = Plan(self.session.id, effect_key, tool, intent, values)
        return leave.plan(origin(self.agent, key), wish, Asked({}))

    def dispatch(
        self,
        effect_key: str,
        *,
        key: str | None = None,
        process: str = "p-1",
        intent: str = "push main",
        epoch: int | None = None,
    ) -> Answered:
        return leave.dispatch(
            origin(self.agent, key, lease_epoch=epoch),
            self.row(effect_key).id,
            process=process,
            asked=lambda _tool: intent,
            preconditions=None,
        )

    def acknowledge(
        self, effect_key: str, attempt: int = 1, outcome: str = "ok", reference: str = "", key: str | None = None
    ) -> Answered:
        return commands.acknowledge(
            origin(self.agent, key),
            self.row(effect_key).id,
            attempt=attempt,
            outcome=outcome,
            external_reference=reference,
            observe=leave.observe,
        )

    def fail(self, effect_key: str, reason: str, attempt: int = 1) -> Answered:
        effect = self.row(effect_key).id
        return commands.fail(origin(self.agent), effect, attempt=attempt, reason=reason, observe=leave.observe)

    def supersede(self, effect_key: str) -> Answered:
        return commands.supersede(origin(self.agent), self.row(effect_key).id, leave.observe)

    def hears(self, effect_key: str, kind: str, *, id: str = "seen", attempt: int = 1, **values: Any) -> Effect:  # noqa: A002 - the entry's
        """Something is reported of the effect, in the evidence lane."""
        effect, said = derived(self.session.id, effect_key), report(self.agent, id)
        fact = Fact(kind, said.mark, said.lane, id, 0, said.received_us, said.told_us, attempt, values=values)
        one = effects.Report(effect, self.agent.project_id, self.session.id, self.agent.id, effect_key, fact)
        effects.record([one], leave.observe)
        return self.row(effect_key)

    def row(self, effect_key: str) -> Effect:
        return Effect.objects.get(session=self.session, effect_key=effect_key)

    def holds(self, effect_key: str, **leave: Any) -> None:
        """Give the effect the leave that a policy would, until policies exist."""
        Effect.objects.filter(session=self.session, effect_key=effect_key).update(**leave)


def violations() -> list[str]:
    """The names of the violations in the book, in order."""
    found = Entry.objects.filter(kind="integrity.violation").order_by("position").values_list("facts", flat=True)
    return [facts.split('"')[3] for facts in found]


def word(answered: Answered) -> str:
    """What the agent hears: a refusal's code, or what it may do."""
    return answered.refusal[0] if answered.refusal else leaves.answer(answered.effect, answered.open_effect)
