"""What the policy in force says of reported plans: a batch at a time, so that what its plans share is read once."""

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from approvals import counting, reading
from approvals.counting import Tally
from approvals.last_look import Judged
from approvals.policies import InForce
from approvals.reading import Asked, Labels
from ledger.models import Effect
from sessions.origin import Origin


class Batch:
    """The plans of one batch, judged in the order in which they came. Nobody waits for what is said of them.

    `plans` names the effect and the tool of each. The rows of their sessions are locked, those of effects not yet.
    """

    def __init__(
        self, force: InForce, project: UUID, agent: UUID, at_us: int, plans: Collection[tuple[UUID, str]]
    ) -> None:
        self._force = force
        self._labels: dict[UUID, Labels] = {}
        self._tally = Tally(project, agent, at_us)
        self._counted: set[UUID] | None = None  # effects that count already; None where no rule has a rate
        counting.alone(project, force.compiled, (tool for _, tool in plans))
        if any(rule.rates for rule in force.compiled.rules):
            stored = Effect.objects.filter(project=project, id__in={effect for effect, _ in plans})
            self._counted = set(stored.values_list("id", flat=True))

    def judge(
        self, origin: Origin, session: UUID, effect: UUID, tool: str, values: Mapping[str, Any], asked: Asked
    ) -> dict[str, Any]:
        """The columns that the next reported plan gets."""
        labels = self._labels.setdefault(session, Labels(session))
        seen = reading.wish_of(origin.project, session, origin.source, tool, values, asked, labels)
        judgement = self._force.judge(seen, self._tally.counter(session, tool))
        if self._counted is not None and effect not in self._counted:
            self._counted.add(effect)
            self._tally.planned(session, tool)
        return Judged(self._force, seen, judgement).columns
