"""What the first steps show: connected agents, the first effects, the first rule and request."""

import hashlib
from dataclasses import dataclass, field
from typing import Final

from accounts.models import AgentToken, Project
from approvals.models import Activation, Gate
from approvals.policies import dry_run, policies
from display.entry_bodies import load_body_texts
from journal import summaries
from ledger.models import Effect
from pages.first_steps.rule_proposals import RuleProposal, SeenCall, propose_rules

SHOWN_EFFECTS: Final = 3
MOST_TESTED: Final = 200  # effects of a dry run; an empty project has few
TESTED_DAYS: Final = 14
FIRST_AGENT: Final = "my-agent"
# How to run an agent again, by the beginning of the session's key that the page's scripts choose.
_COMMANDS: Final = {"python-": ".venv/bin/python my_agent.py", "curl-": "sh my-agent.sh"}


@dataclass(slots=True)
class FirstSteps:
    """The state of the three steps of a project, and of the request to show below them."""

    project: Project
    token: AgentToken | None  # of the agent that connected first
    effects: list[Effect]  # the first ones
    activation: Activation | None
    gate: Gate | None  # the first request that waits, otherwise the newest
    arguments: dict[int, str] = field(default_factory=dict)  # summary, by the position of the plan

    @property
    def done(self) -> int:
        """How many of the three steps are done."""
        return sum((self.token is not None, bool(self.effects), self.activation is not None))

    @property
    def current(self) -> int:
        """The number of the first step that is not done; 4 after the last."""
        ticks = (self.token is not None, bool(self.effects), self.activation is not None)
        return next((number for number, tick in enumerate(ticks, 1) if not tick), 4)

    @property
    def mark(self) -> str:
        """Changes whenever what the steps show changes."""
        shown = (
            self.token and self.token.pk,
            [(e.pk, e.state, e.outcome, e.permission) for e in self.effects],
            self.activation and self.activation.pk,
            self.gate and (self.gate.pk, self.gate.status),
        )
        return hashlib.sha256(repr(shown).encode()).hexdigest()[:16]

    @property
    def command(self) -> str:
        """The command that runs the agent of the newest shown effect again; "" if it is unknown."""
        if not self.effects:
            return ""
        newest = self.effects[-1]
        if newest.session.labels.get("client") == "claude-code":
            return "claude"
        if newest.agent.name != FIRST_AGENT:
            return ""
        key = newest.session.key
        return next((run for start, run in _COMMANDS.items() if key.startswith(start)), "")

    @property
    def effect_rows(self) -> list[tuple[Effect, str]]:
        """The first effects, each with a summary of its arguments."""
        return [(row, self.arguments.get(row.plan_position or 0, "")) for row in self.effects]


@dataclass(frozen=True, slots=True)
class TestedProposal:
    """A proposal, and how many of the recorded effects it would have asked for."""

    proposal: RuleProposal
    requests: int
    looked: int
    warnings: list[tuple[str, str]] = field(default_factory=list)


def load_first_steps(project: Project) -> FirstSteps:
    """Load the state of the steps; at most five queries."""
    token = (
        AgentToken.objects.filter(project=project, used_at__isnull=False)
        .select_related("agent")
        .order_by("created_at")
        .first()
    )
    first = Effect.objects.filter(project=project).select_related("repository", "agent", "session")
    rows = first.order_by("opened_position")[: SHOWN_EFFECTS * 2]
    # `gatebook connect` plans a call to test its hooks, and withdraws it.
    effects = [effect for effect in rows if effect.tool and effect.state != "superseded"]
    gates = Gate.objects.filter(project=project).select_related("effect")
    waiting = gates.filter(status="pending").order_by("opened_position").first()
    return FirstSteps(
        project,
        token,
        effects[:SHOWN_EFFECTS],
        policies.load_activation(project),
        waiting or gates.order_by("-opened_position").first(),
    )


def load_arguments(steps: FirstSteps) -> dict[int, str]:
    """Return what the shown effects' arguments say, by the position of their plan; one query."""
    positions = [row.plan_position for row in steps.effects if row.plan_position]
    bodies = load_body_texts(steps.project.id, positions)
    return {position: summaries.summarize_plan(text) for position, text in bodies.items()}


def load_proposals(steps: FirstSteps) -> list[RuleProposal]:
    """Return the rules that the first effects propose; no query."""
    return propose_rules(
        SeenCall(
            effect.tool,
            effect.repository.name if effect.repository else "",
            effect.ref,
            effect.environment,
            effect.resource,
        )
        for effect in steps.effects
    )


def evaluate_proposals(project: Project, proposals: list[RuleProposal]) -> list[TestedProposal]:
    """Test each proposal on what was recorded; a dry run each, of at most 200 effects."""
    tested = []
    for proposal in proposals:
        replay = dry_run.prepare_dry_run(project, proposal.text, days=TESTED_DAYS, most=MOST_TESTED)
        for _change in replay:
            pass
        requests = sum(count for (_, after), count in replay.outcomes.items() if after != "allow")
        tested.append(TestedProposal(proposal, requests, replay.looked, replay.warnings))
    return tested
