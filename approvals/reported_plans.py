"""Evaluate the active policy for reported plans, a batch at a time."""

from collections import Counter
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, NamedTuple, Self
from uuid import UUID

from approvals.policies import policy_evaluation, rate_counters
from approvals.policies.engine import SAME_CALL, PlanRate, RateCounter
from approvals.policies.policy_evaluation import (
    ActivePolicy,
    LazySessionLabels,
    PlanPayload,
    PolicyEvaluation,
)
from approvals.policies.rate_counters import RATE_KINDS, RateScope, get_rate_scope
from journal.entries import Origin
from ledger.models import Effect


class _EarlierPlans(NamedTuple):
    """What was planned before an effect, and the tool of its plan.

    Journal entries below `position` (None: all of them), and plans of the same batch.
    """

    tool: str
    position: int | None
    planned: Counter[tuple[str, RateScope]]


class ReportedPlanBatch:
    """The plans that one agent reports in a batch, evaluated in their order of arrival.

    They count each other, and each query of a count runs once. Every plan is evaluated, also a
    repeated one: whether it counts is decided with its effect (ledger/store/writer.py).
    """

    def __init__(
        self,
        policy: ActivePolicy,
        project: UUID,
        agent: UUID,
        at_us: int,
        earlier: dict[UUID, _EarlierPlans] | None,
    ) -> None:
        self._policy, self._project, self._agent, self._at_us = policy, project, agent, at_us
        self._earlier = earlier  # by effect; None if no rule has a rate
        self._planned: Counter[tuple[str, RateScope]] = Counter()
        self._stored: dict[tuple[PlanRate, RateScope, int | None], int] = {}
        self._find_start = cache(rate_counters.find_position_before)
        self._labels: dict[UUID, LazySessionLabels] = {}

    @classmethod
    def lock_and_load(
        cls,
        policy: ActivePolicy,
        project: UUID,
        agent: UUID,
        at_us: int,
        plans: Collection[tuple[UUID, str]],
    ) -> Self:
        """Lock the rates of these plans, and load the counts before known effects.

        `plans` names the effect and the tool of each. The rows of their sessions are locked, those
        of effects not yet.
        """
        earlier = None
        rate_counters.serialize_rated_plans(project, policy.compiled, (tool for _, tool in plans))
        if any(rule.rates for rule in policy.compiled.rules):
            stored = Effect.objects.filter(project=project, id__in={effect for effect, _ in plans})
            rows = stored.values_list("id", "tool", "opened_position")
            earlier = {
                effect: _EarlierPlans(tool, position, Counter()) for effect, tool, position in rows
            }
        return cls(policy, project, agent, at_us, earlier)

    def evaluate_plan(
        self,
        origin: Origin,
        session: UUID,
        effect: UUID,
        tool: str,
        values: Mapping[str, Any],
        payload: PlanPayload,
        intent: str,
    ) -> dict[str, Any]:
        """Return the policy columns of the next reported plan."""
        labels = self._labels.setdefault(session, LazySessionLabels(session))
        policy_input = policy_evaluation.build_policy_input(
            origin.project, session, origin.source, tool, values, payload, labels
        )
        before = self._earlier.get(effect) if self._earlier is not None else None
        # A repeated report must not count its own effect; under another tool it is another plan.
        is_repeated = before is not None and before.tool == tool
        counter = self._make_counter(session, tool, before if is_repeated else None, intent)
        decision = self._policy.evaluate(policy_input, counter)
        if self._earlier is not None and before is None:
            self._earlier[effect] = self._count_plan(session, tool)
        return PolicyEvaluation(self._policy, policy_input, decision).columns

    def _make_counter(
        self, session: UUID, tool: str, before: _EarlierPlans | None, intent: str
    ) -> RateCounter:
        """Return a function that counts the plans before the next one, or `before` it."""
        _tool, position, planned = before or _EarlierPlans(tool, None, self._planned)
        count_stored = rate_counters.make_rate_counter(
            self._project,
            self._agent,
            session,
            tool,
            self._at_us,
            position,
            intent=intent,
            find_start=self._find_start,
        )

        def count(rate: PlanRate) -> int:
            if rate == SAME_CALL:
                return count_stored(rate)
            scope = get_rate_scope(rate.per, self._agent, session, tool)
            cache_key = (rate, scope, position)
            if cache_key not in self._stored:
                self._stored[cache_key] = count_stored(rate)
            return self._stored[cache_key] + planned[rate.per, scope]

        return count

    def _count_plan(self, session: UUID, tool: str) -> _EarlierPlans:
        """Count a new plan from now on, and return the counts before it."""
        scopes = [(kind, get_rate_scope(kind, self._agent, session, tool)) for kind in RATE_KINDS]
        before = Counter({scope: self._planned[scope] for scope in scopes})
        self._planned.update(scopes)
        return _EarlierPlans(tool, None, before)
