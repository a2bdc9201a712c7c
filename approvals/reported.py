"""What the policy in force says of reported plans: a batch at a time, so that what its plans share is read once."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from approvals import counting, reading
from approvals.counting import Before, Tally
from approvals.last_look import Judged
from approvals.policies import InForce
from approvals.reading import Asked, Labels
from ledger.models import Effect
from sessions.origin import Origin


class Batch:
    """The plans of one batch, judged in the order in which they came. Nobody waits for what is said of them.

    Each is judged, also one that was told before: whether that counts is seen with its effect (ledger/retold.py).
    `plans` names the effect and the tool of each. The rows of their sessions are locked, those of effects not yet.
    """

    def __init__(
        self,
        force: InForce,
        project: UUID,
        agent: UUID,
        at_us: int,
        plans: Collection[tuple[UUID, str]],
    ) -> None:
        self._force = force
        self._labels: dict[UUID, Labels] = {}
        self._tally = Tally(project, agent, at_us)
        # What was planned before effects that count already, by the tool of their plan; None where no rule has a rate.
        self._counted: dict[UUID, tuple[str, Before]] | None = None
        counting.alone(project, force.compiled, (tool for _, tool in plans))
        if any(rule.rates for rule in force.compiled.rules):
            stored = Effect.objects.filter(project=project, id__in={effect for effect, _ in plans})
            told = stored.values_list("id", "tool", "opened_position")
            self._counted = {
                effect: (tool, Before(position, Counter())) for effect, tool, position in told
            }

    def judge(
        self,
        origin: Origin,
        session: UUID,
        effect: UUID,
        tool: str,
        values: Mapping[str, Any],
        asked: Asked,
        intent: str,
    ) -> dict[str, Any]:
        """The columns that the next reported plan gets."""
        labels = self._labels.setdefault(session, Labels(session))
        seen = reading.wish_of(origin.project, session, origin.source, tool, values, asked, labels)
        known = self._counted.get(effect) if self._counted is not None else None
        # An effect does not count before itself, whoever tells of it again; under another tool it is another.
        before = known[1] if known is not None and known[0] == tool else None
        judgement = self._force.judge(
            seen, self._tally.counter(session, tool, before, intent=intent)
        )
        if self._counted is not None and known is None:
            self._counted[effect] = (tool, self._tally.planned(session, tool))
        return Judged(self._force, seen, judgement).columns
