"""A person's word on an effect of which nobody can know, and what follows at the desk: requests that it ends.

What it says is ledger/resolutions.py's; leave it never gives. Where a policy holds the effect, its next attempt asks
anew, and whoever said that the last one did not happen counts as the one who asks (approvals/quorum.py). The agent is
told by a message.
"""

from typing import Final
from uuid import UUID

from approvals import deadlines, gates
from approvals.models import Gate
from approvals.states import OPEN
from journal import again
from journal.clock import now_us
from ledger import effects, resolutions
from ledger.resolutions import Resolved, Word
from sessions import messages
from sessions.models import Agent, Membership, Session
from sessions.people import pseudonym_of

_ENDS = {
    "happened": "happened",
    "abandoned": "superseded",
}  # a word after which nothing is left to ask for
# What the agent is told: how it is, and what to do now.
_TOLD: Final = {
    "happened": (
        "it happened",
        "Skip it; its reference, where one is known, stands with the effect.",
    ),
    "not_happened": (
        "it did not happen",
        "Plan it again under the same effect key. It may be tried once more, under leave of its own: do not act before"
        " the answer says so.",
    ),
    "compensate": (
        "it is to be undone",
        "Whether or not it happened: plan what undoes it (POST /api/v1/effects/{id}/compensate), and do it when that"
        " has leave.",
    ),
    "abandoned": ("it is given up", "Neither do it again nor undo it."),
}


def resolve(effect: UUID, membership: Membership, said: Word) -> Resolved:
    """Take `membership`'s word in a transaction of its own. Raises LookupError for an effect of another project."""
    return again.durably(lambda: _resolve(effect, membership, said), effects.LostRace, gates.Gone)


def _resolve(effect: UUID, membership: Membership, said: Word) -> Resolved:
    resolved = resolutions.resolve(membership.project_id, effect, said, membership.user)
    if resolved.refusal is None:
        _tell(resolved, membership, said)
    if resolved.refusal is None and said.answer in _ENDS:
        now = now_us()
        for gate in Gate.objects.select_for_update().filter(effect=effect, status__in=OPEN):
            deadlines.settle(resolved.effect, gate, now)
            if gate.status in OPEN:
                actor = pseudonym_of(membership.user)
                gates.end(resolved.effect, gate, "cancelled", _ENDS[said.answer], now, actor)
    return resolved


def _tell(resolved: Resolved, membership: Membership, said: Word) -> None:
    """Send the agent what was said and what follows; how they know stays with the answer, where it can be erased."""
    row = resolved.effect
    agent, session = Agent.objects.get(id=row.agent_id), Session.objects.get(id=row.session_id)
    what, then = _TOLD[said.answer]
    body = f"Of e_{row.opened_position} ({row.id}), of which nobody could know, a person says: {what}. {then}"
    subject = f"e_{row.opened_position}: {what}"
    messages.write(
        membership.user,
        agent,
        session,
        subject,
        body.replace("{id}", str(row.id)),
        str(resolved.position),
    )
