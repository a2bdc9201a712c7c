"""A person's word on an effect of which nobody can know, and what follows at the desk: requests that it ends.

What it says is ledger/resolutions.py's; leave it never gives. Where a policy holds the effect, its next attempt asks
anew, and whoever said that the last one did not happen counts as the one who asks (approvals/quorum.py).
"""

from uuid import UUID

from approvals import gates
from approvals.models import Gate
from approvals.states import OPEN
from journal import again
from journal.clock import now_us
from ledger import effects, resolutions
from ledger.resolutions import Resolved, Word
from sessions.models import Membership
from sessions.people import pseudonym_of

_ENDS = {"happened": "happened", "abandoned": "superseded"}  # a word after which nothing is left to ask for


def resolve(effect: UUID, membership: Membership, said: Word) -> Resolved:
    """Take `membership`'s word in a transaction of its own. Raises LookupError for an effect of another project."""
    return again.durably(lambda: _resolve(effect, membership, said), effects.LostRace, gates.Gone)


def _resolve(effect: UUID, membership: Membership, said: Word) -> Resolved:
    resolved = resolutions.resolve(membership.project_id, effect, said, membership.user)
    if resolved.refusal is None and said.answer in _ENDS:
        now = now_us()
        for gate in Gate.objects.select_for_update().filter(effect=effect, status__in=OPEN):
            gates.settle(resolved.effect, gate, now)
            if gate.status in OPEN:
                actor = pseudonym_of(membership.user)
                gates.end(resolved.effect, gate, "cancelled", _ENDS[said.answer], now, actor)
    return resolved
