"""Effects of a manual resolution on open gates, and the message to the agent.

ledger/resolutions.py records the resolution, which never grants permission. Where a policy asks for
approval, the next attempt needs a new one, and the person who stated that the last attempt did not
happen counts as its requester (approvals/voting/quorum.py).
"""

from typing import Final
from uuid import UUID

from accounts.models import Agent, Membership
from accounts.people import ensure_pseudonym
from approvals.gates import gates
from approvals.gates.statuses import OPEN_STATUSES
from approvals.models import Gate
from db import retry
from db.clock import now_us
from ledger import resolutions
from ledger.resolutions import ResolutionInput, ResolutionResult
from ledger.store import writer
from sessions import messages
from sessions.models import Session

# Resolutions after which no approval is needed -> reason of the cancelled gate.
_ENDS = {"happened": "happened", "abandoned": "superseded"}
# Resolution -> (summary, next step) of the message to the agent.
_MESSAGES: Final = {
    "happened": (
        "it happened",
        "Skip it. Its external reference, if known, is stored with the effect.",
    ),
    "not_happened": (
        "it did not happen",
        "Plan it again under the same effect key. One more attempt is possible with a new"
        " permission: do not act before it is granted.",
    ),
    "compensate": (
        "it must be undone",
        "Whether or not it happened, plan its compensation (POST /api/v1/effects/{id}/compensate)"
        " and run that when it has permission.",
    ),
    "abandoned": ("it is abandoned", "Do not repeat it and do not undo it."),
}


def resolve_effect(
    effect: UUID, membership: Membership, resolution: ResolutionInput
) -> ResolutionResult:
    """Record a resolution in its own transaction. Raises LookupError."""
    return retry.run_with_retry(
        lambda: _resolve_locked(effect, membership, resolution), writer.LostRace, gates.GateConflict
    )


def _resolve_locked(
    effect: UUID, membership: Membership, resolution: ResolutionInput
) -> ResolutionResult:
    resolved = resolutions.record_resolution(
        membership.project_id, effect, resolution, membership.user
    )
    if resolved.refusal is None:
        _send_message(resolved, membership, resolution)
    if resolved.refusal is None and resolution.answer in _ENDS:
        now = now_us()
        for gate in Gate.objects.select_for_update().filter(
            effect=effect, status__in=OPEN_STATUSES
        ):
            gates.settle_gate(resolved.effect, gate, now)
            if gate.status in OPEN_STATUSES:
                actor = ensure_pseudonym(membership.user)
                gates.end_gate(
                    resolved.effect, gate, "cancelled", _ENDS[resolution.answer], now, actor
                )
    return resolved


def _send_message(
    resolved: ResolutionResult, membership: Membership, resolution: ResolutionInput
) -> None:
    """Send the agent the resolution and the next step, without the person's evidence.

    The evidence stays with the resolution, where it can be erased.
    """
    row = resolved.effect
    agent, session = Agent.objects.get(id=row.agent_id), Session.objects.get(id=row.session_id)
    summary, next_step = _MESSAGES[resolution.answer]
    body = (
        f"A person resolved e_{row.opened_position} ({row.id}), whose outcome was unknown:"
        f" {summary}. {next_step}"
    )
    subject = f"e_{row.opened_position}: {summary}"
    messages.send_person_message(
        membership.user,
        agent,
        session,
        subject,
        body.replace("{id}", str(row.id)),
        str(resolved.position),
    )
