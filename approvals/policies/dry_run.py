"""Dry run: replay a draft policy over recent effects and list changed outcomes.

Each recorded effect is evaluated twice: by the active policy and by the draft. Both use today's
tool declarations and ignore exemptions. Writes nothing.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from accounts.models import Agent, Project
from approvals.policies import policies, policies_yaml, policy_evaluation
from approvals.policies.engine import (
    DEFAULT_REQUIREMENT,
    REQUEST_PARTIES,
    SAME_CALL,
    CompiledPolicy,
    PolicyDecision,
    PolicyInput,
    RateCounter,
    compile_rules,
    evaluate_rules,
)
from approvals.policies.policy_evaluation import PlanPayload, build_policy_input
from approvals.policies.rate_counters import make_rate_counter
from approvals.policies.staffing_check import (
    count_eligible_approvers,
    find_understaffed_rules,
    load_eligible_reviewers,
)
from db.clock import now_us
from journal.models import Body
from ledger import same_calls
from ledger.models import Effect
from sessions import sessions
from sessions.models import Session

EFFECTS_PER_QUERY: Final = 500  # effects per query
DAY_US: Final = 86_400_000_000
IMPOSSIBLE: Final = "impossible"  # too few people could approve, so the request can only expire
_COLUMNS: Final = (
    "id",
    "opened_position",
    "received_us",
    "tool",
    "repository__name",
    "ref",
    "moved_refs",
    "ref_class",
    "environment",
    "resource",
    "plan_position",
    "agent_id",
    "agent__name",
    "session_id",
    "session__opened_position",
)


@dataclass(frozen=True, slots=True)
class OutcomeChange:
    """An effect whose outcome would change. Rules: "acme@3/push", "acme@3/" if none."""

    effect: UUID
    handle: str
    session: str
    tool: str
    target: str
    received_us: int
    before: str
    before_rule: str
    after: str
    after_rule: str
    error: str


class _Row(NamedTuple):
    id: UUID
    opened_position: int
    received_us: int
    tool: str
    repository: str | None
    ref: str
    moved_refs: str
    ref_class: str
    environment: str
    resource: str
    plan_position: int | None
    agent_id: UUID
    agent: str
    session_id: UUID
    session_position: int


@dataclass(slots=True)
class DryRun:
    """A dry run: iterate over it for the changes, newest first.

    The counts are complete after the iteration. `outcomes` counts (before, after). `unplanned`
    effects have no plan yet and are left out; `erased` ones are evaluated without arguments.
    `cut_at_us` is the time of the first effect beyond the limit `most`, if there was one.
    """

    project: Project
    draft: CompiledPolicy
    draft_name: str
    mode: str
    since_us: int
    most: int | None = None
    looked: int = 0
    unplanned: int = 0
    erased: int = 0
    asked_otherwise: int = 0
    cut_at_us: int | None = None
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    # Rules of the draft that too few people could approve.
    warnings: list[tuple[str, str]] = field(default_factory=list)
    _eligible: dict[str, set[str]] = field(default_factory=dict)
    _parties_cache: dict[tuple[UUID, UUID], tuple[str | None, ...]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[OutcomeChange]:
        policy = policy_evaluation.load_active_policy(self.project.id)
        for row, arguments in self._effects():
            payload = PlanPayload(arguments, row.repository or "")
            policy_input = build_policy_input(
                self.project.id, row.session_id, row.agent, row.tool, row._asdict(), payload
            )
            count = self._counter(row)
            before = (
                policy.evaluate(policy_input, count)
                if policy
                else PolicyDecision("allow", "", None)
            )
            after = evaluate_rules(self.draft, policy_input, self.mode, count)
            outcome_before, outcome_after = (
                self._outcome(before, policy_input, row),
                self._outcome(after, policy_input, row),
            )
            self.outcomes[outcome_before, outcome_after] += 1
            if outcome_before == outcome_after:
                self.asked_otherwise += before.requirement != after.requirement
                continue
            yield OutcomeChange(
                effect=row.id,
                handle=f"e_{row.opened_position}",
                session=f"s_{row.session_position}",
                tool=row.tool,
                target=" ".join(
                    filter(None, (row.repository, row.ref, row.environment, row.resource))
                ),
                received_us=row.received_us,
                before=outcome_before,
                before_rule=f"{policy.name}/{before.rule}" if policy else "",
                after=outcome_after,
                after_rule=f"{self.draft_name}/{after.rule}",
                error=after.error,
            )

    def _counter(self, row: _Row) -> RateCounter:
        """Return rate counts as of the effect's time.

        Whether the same call was unknown in another session is read from what was stored then.
        """
        count = make_rate_counter(
            self.project.id,
            row.agent_id,
            row.session_id,
            row.tool,
            row.received_us,
            row.opened_position,
            intent="",
        )
        return lambda rate: (
            same_calls.has_earlier_same_call(row.id) if rate == SAME_CALL else count(rate)
        )

    def _outcome(self, decision: PolicyDecision, policy_input: PolicyInput, row: _Row) -> str:
        """Return the outcome; `impossible` if too few people could approve."""
        if decision.outcome != "ask":
            return decision.outcome
        requirement = (decision.requirement or DEFAULT_REQUIREMENT).strengthened(
            policy_input.reversibility, policy_input.risk
        )
        parties = self._parties(row.session_id, row.agent_id)
        excluded = {
            name
            for party, name in zip(REQUEST_PARTIES, parties, strict=True)
            if name and party in requirement.kept_away
        }
        return (
            "ask"
            if count_eligible_approvers(requirement, self._eligible, excluded)
            >= requirement.minimum
            else IMPOSSIBLE
        )

    def _parties(self, session: UUID, agent: UUID) -> tuple[str | None, ...]:
        """Return the user names of the parties of a request, in the order of REQUEST_PARTIES."""
        parties = self._parties_cache.get((session, agent))
        if parties is None:
            session_owner = Session.objects.values_list("owner__username", flat=True).get(
                id=session
            )
            agent_owner = Agent.objects.values_list("owner__username", flat=True).get(id=agent)
            parties = self._parties_cache[session, agent] = (
                sessions.find_requester(session),
                session_owner,
                agent_owner,
            )
        return parties

    def _effects(self) -> Iterator[tuple[_Row, Any]]:
        """Yield each planned effect since `since_us` with its arguments, newest first."""
        below: int | None = None
        while True:
            rows = Effect.objects.filter(project=self.project)
            if below is not None:
                rows = rows.filter(opened_position__lt=below)
            page = [
                _Row(*values)
                for values in rows.order_by("-opened_position").values_list(*_COLUMNS)[
                    :EFFECTS_PER_QUERY
                ]
            ]
            bodies = _bodies([row.plan_position for row in page if row.plan_position is not None])
            for row in page:
                if row.received_us < self.since_us:
                    return
                if self.most is not None and self.looked >= self.most:
                    self.cut_at_us = row.received_us
                    return
                self.looked += 1
                if not row.tool or row.plan_position is None:
                    self.unplanned += 1
                    continue
                text = bodies.get(row.plan_position)
                self.erased += text is None
                yield row, None if text is None else _arguments(text)
            if len(page) < EFFECTS_PER_QUERY:
                return
            below = page[-1].opened_position


def prepare_dry_run(
    project: Project, text: str, *, days: int = 14, mode: str = "enforce", most: int | None = None
) -> DryRun:
    """Prepare the dry run of a draft `text` in `mode` over the last `days`.

    At most the newest `most` effects. Raises DocumentError.
    """
    rules = policies_yaml.parse_policies(text)
    policy_set = policies.find_policy_set(project, text)
    name = str(policy_set) if policy_set else f"{rules['name']}, draft"
    replay = DryRun(project, compile_rules(rules), name, mode, now_us() - days * DAY_US, most)
    replay.warnings = find_understaffed_rules(project, rules)
    replay._eligible = load_eligible_reviewers(project)
    return replay


def _bodies(positions: list[int]) -> dict[int, str]:
    return dict(Body.objects.filter(entry_id__in=positions).values_list("entry_id", "text"))


def _arguments(text: str) -> Any:
    """Return the arguments in the body of a plan; None if it has none."""
    body = json.loads(text)
    return body.get("arguments") if isinstance(body, dict) else None
