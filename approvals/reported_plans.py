"""Evaluate the active policy for reported plans, a batch at a time."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, Self
from uuid import UUID

from approvals.policies import policy_evaluation, rate_counters
from approvals.policies.policy_evaluation import (
    ActivePolicy,
    LazySessionLabels,
    PlanPayload,
    PolicyEvaluation,
)
from approvals.policies.rate_counters import BatchPlanCounter, EarlierPlans
from journal.entries import Origin
from ledger.models import Effect


class ReportedPlanBatch:
    """The plans of one batch, evaluated in their order of arrival.

    Every plan is evaluated, also a repeated one: whether it counts is decided with its effect
    (ledger/store/writer.py).
    """

    def __init__(
        self,
        policy: ActivePolicy,
        counter: BatchPlanCounter,
        counted: dict[UUID, tuple[str, EarlierPlans]] | None,
    ) -> None:
        self._policy, self._counter = policy, counter
        # Counts before known effects, with the tool of their plan; None if no rule has a rate.
        self._counted = counted
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
        counted = None
        rate_counters.serialize_rated_plans(project, policy.compiled, (tool for _, tool in plans))
        if any(rule.rates for rule in policy.compiled.rules):
            stored = Effect.objects.filter(project=project, id__in={effect for effect, _ in plans})
            rows = stored.values_list("id", "tool", "opened_position")
            counted = {
                effect: (tool, EarlierPlans(position, Counter())) for effect, tool, position in rows
            }
        return cls(policy, BatchPlanCounter(project, agent, at_us), counted)

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
        counted_before = self._counted.get(effect) if self._counted is not None else None
        # A repeated report must not count its own effect; under another tool it is another plan.
        before = (
            counted_before[1] if counted_before is not None and counted_before[0] == tool else None
        )
        decision = self._policy.evaluate(
            policy_input, self._counter.counter(session, tool, before, intent=intent)
        )
        if self._counted is not None and counted_before is None:
            self._counted[effect] = (tool, self._counter.count_plan(session, tool))
        return PolicyEvaluation(self._policy, policy_input, decision).columns
