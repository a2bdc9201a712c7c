"""The one writer of Vote: what people vote on a gate, and what follows from it.

A vote is bound to what the voter's page showed. Every check runs again with the rows locked; the
database repeats the most important ones.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, NamedTuple
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from accounts.models import Membership
from accounts.people import OWN_PASSWORD_REQUIRED_TEXT, ensure_pseudonym, has_own_password
from approvals.gates import deadlines, gates
from approvals.gates.states import MAX_DECIDE_WITHIN_S, MIN_REASON_CHARS, STEP_UPS, US, VOTE_ANSWERS
from approvals.inbox import updates
from approvals.models import Gate, Vote
from approvals.policies.engine import Requirement
from approvals.voting import quorum
from approvals.voting.eligibility import (
    CURRENT_PARTIES,
    NOT_A_REVIEWER,
    Eligibility,
    explain_interest,
    is_gate_reviewer,
    lock_membership,
)
from approvals.voting.eligibility import check_eligibility as check_eligibility
from approvals.voting.eligibility import load_current_requirement as load_current_requirement
from db import raw_sql
from db.clock import now_us
from db.ids import new_uuid7
from journal import entries
from ledger.store.rows import EffectRow
from sessions import messages

MAX_VOTE_REASON: Final = 4000
DEADLINE_EXTENSION_S: Final = 15 * 60


class ShownGate(NamedTuple):
    """What the voter's page showed of a gate, and when.

    The gate's version and digest, the card's hash, and whether the page showed everything.
    """

    version: int
    digest: str
    card_sha256: str
    complete: bool
    at_us: int


@dataclass(slots=True)
class VoteResult:
    """The result of a vote. `refusal` is (code, sentence); nothing was written then."""

    gate: Gate
    refusal: tuple[str, str] | None = None
    vote: Vote | None = None


@transaction.atomic(savepoint=False)
def cast_vote(
    gate: Gate,
    membership: Membership,
    answer: str,
    reason: str,
    shown: ShownGate,
    *,
    step_up: str = "none",
    password_at_us: int | None = None,
) -> VoteResult:
    """Vote on a gate: approve | deny | deny_session | return.

    `step_up` is the strongest proof that the person just gave. `password_at_us` is when they typed
    the password it rests on, up to five minutes earlier.

    A refused vote changes nothing. Its code is one of not_resolved (the gate has ended), expired,
    stale_view, not_eligible, own_password, self_approval, duplicate_vote, rationale_required,
    step_up_required. Raises gates.Gone when the gate or the people changed concurrently: run the
    transaction again.
    """
    row, locked, at_us = deadlines.lock_gate(gate)
    current_membership = lock_membership(membership)
    if current_membership is None:
        return VoteResult(locked, NOT_A_REVIEWER)
    if not has_own_password(current_membership.user):
        return VoteResult(locked, OWN_PASSWORD_REQUIRED)
    requirement = load_current_requirement(locked, row)
    eligibility = check_eligibility(locked, current_membership, requirement, row)
    refusal = _find_refusal(
        locked, current_membership, eligibility, requirement, answer, reason.strip(), shown, step_up
    )
    if refusal is not None:
        return VoteResult(locked, refusal)
    try:
        vote = _insert_vote(
            locked,
            current_membership,
            eligibility.team,
            answer,
            reason.strip(),
            shown,
            step_up,
            password_at_us,
            at_us,
        )
        _apply_votes(row, locked, vote, at_us)
    except IntegrityError as error:
        # Counting voters does not lock them: one left between this check and the trigger's.
        if any(law in str(error) for law in _VOTER_CONSTRAINTS):
            raise gates.GateConflict from error
        raise
    return VoteResult(locked, vote=vote)


OWN_PASSWORD_REQUIRED: Final = ("own_password", OWN_PASSWORD_REQUIRED_TEXT)
_VOTER_CONSTRAINTS: Final = (
    "gate_is_approved_by_its_quorum",
    "yes_is_of_somebody_who_is_asked",
    "vote_is_of_nobody_with_a_part_in_it",
)


@transaction.atomic(savepoint=False)
def revoke_approval(gate: Gate, membership: Membership, reason: str) -> VoteResult:
    """Revoke permission that was given and not used yet. Every reviewer can."""
    row, locked, at_us = deadlines.lock_gate(gate)
    if not is_gate_reviewer(locked, membership):
        return VoteResult(locked, NOT_A_REVIEWER)
    if not has_own_password(membership.user):
        return VoteResult(locked, OWN_PASSWORD_REQUIRED)
    if locked.status == "used":
        return VoteResult(
            locked,
            ("already_used", "The agent has already used this approval; it cannot be revoked."),
        )
    if locked.status != "approved":
        return VoteResult(locked, explain_ended_gate(locked))
    if not MIN_REASON_CHARS <= len(reason.strip()) <= MAX_VOTE_REASON:
        return VoteResult(locked, _REASON_REQUIRED)
    gates.end_gate(row, locked, "revoked", "by_person", at_us, ensure_pseudonym(membership.user))
    _record_vote_entry(
        locked, "gate.ruled", membership.user, {"ruling": "revoked"}, {"reason": reason.strip()}
    )
    return VoteResult(locked)


@transaction.atomic(savepoint=False)
def extend_deadline(
    gate: Gate, membership: Membership, seconds: int = DEADLINE_EXTENSION_S
) -> VoteResult:
    """Give people more time to decide, at most 30 days from the request; recorded."""
    row, locked, at_us = deadlines.lock_gate(gate)
    if not is_gate_reviewer(locked, membership):
        return VoteResult(locked, NOT_A_REVIEWER)
    if not has_own_password(membership.user):
        return VoteResult(locked, OWN_PASSWORD_REQUIRED)
    if locked.status != "pending":
        return VoteResult(locked, explain_ended_gate(locked))
    latest = locked.requested_at_us + MAX_DECIDE_WITHIN_S * US
    until = min(max(locked.decide_by_us, at_us) + seconds * US, latest)
    if until <= locked.decide_by_us:
        return VoteResult(locked, ("not_extended", "The maximum of 30 days is reached."))
    gates.extend_gate(row, locked, until)
    _record_vote_entry(locked, "gate.extended", membership.user, {"decide_by_us": until}, {})
    return VoteResult(locked)


def needs_reason(gate: Gate, answer: str) -> bool:
    """True if this answer needs a reason by the rule or the effect."""
    return _requires_reason(load_current_requirement(gate), answer)


def _requires_reason(requirement: Requirement, answer: str) -> bool:
    if answer != "approve":
        return answer == "request_changes" or requirement.rationale != "none"
    return requirement.rationale == "always"


def _find_refusal(
    gate: Gate,
    membership: Membership,
    eligibility: Eligibility,
    requirement: Requirement,
    answer: str,
    reason: str,
    shown: ShownGate,
    step_up: str,
) -> tuple[str, str] | None:
    if answer not in VOTE_ANSWERS:
        return "not_eligible", f"Choose one of {', '.join(VOTE_ANSWERS)}."
    if gate.status != "pending":
        return explain_ended_gate(gate)
    # People with an interest in the request may still deny it.
    if eligibility.refusal is not None and (
        answer == "approve" or eligibility.refusal[0] != "self_approval"
    ):
        return eligibility.refusal
    *parties, has_voted = CURRENT_PARTIES.rows(gate=gate.id, user=membership.user_id)[0]
    if answer == "approve" and (
        interest := explain_interest(membership.user, requirement, *parties)
    ):
        return "self_approval", interest
    if has_voted:
        return (
            "duplicate_vote",
            "You have already voted on this request. Another reviewer must vote.",
        )
    if (shown.version, shown.digest) != (gate.version, gate.digest):
        return (
            "stale_view",
            "This request changed after your page loaded. Review the changes, then vote.",
        )
    if answer == "approve" and not shown.complete:
        return (
            "stale_view",
            "Your page did not show everything that would run. Open the full arguments, then vote.",
        )
    return _find_missing_proof(requirement, answer, reason, step_up)


def _find_missing_proof(
    requirement: Requirement, answer: str, reason: str, step_up: str
) -> tuple[str, str] | None:
    """Return what is missing of reason or proof, as a refusal."""
    if len(reason) > MAX_VOTE_REASON:
        return "rationale_required", f"A reason has at most {MAX_VOTE_REASON} characters."
    if _requires_reason(requirement, answer):
        min_length = max(MIN_REASON_CHARS, requirement.rationale_characters)
        if len(reason) < min_length:
            return "rationale_required", f"Give a reason of at least {min_length} characters."
        if requirement.ticket and not any(
            fnmatchcase(token.strip(".,;:()"), requirement.ticket) for token in reason.split()
        ):
            return (
                "rationale_required",
                f"Name a ticket like {requirement.ticket} in the reason.",
            )
    if answer == "approve" and STEP_UPS.index(step_up) < STEP_UPS.index(requirement.step_up):
        names = {
            "reauth": "your password",
            "typed_digest": "the intent code and your password",
        }
        return "step_up_required", f"To approve this, give {names[requirement.step_up]}."
    return None


def explain_ended_gate(gate: Gate) -> tuple[str, str]:
    """Return why `gate` does not take the answer: who decided what, and when."""
    code = "expired" if gate.status == "expired" else "not_resolved"
    return code, updates.describe_end(
        gate
    ) or "This request is not approved yet, so there is nothing to revoke."


_REASON_REQUIRED: Final = (
    "rationale_required",
    f"Give a reason of {MIN_REASON_CHARS} to {MAX_VOTE_REASON} characters.",
)


def _insert_vote(
    gate: Gate,
    membership: Membership,
    team: str,
    answer: str,
    reason: str,
    shown: ShownGate,
    step_up: str,
    password_at_us: int | None,
    at_us: int,
) -> Vote:
    identity = new_uuid7()
    facts = {
        "vote": answer,
        "card": shown.card_sha256,
        "shown_version": shown.version,
        "step_up": step_up,
    }
    if password_at_us is not None:
        facts["password_at_us"] = password_at_us
    position = _record_vote_entry(
        gate, "gate.voted", membership.user, facts, {"reason": reason}, identity.hex
    )
    vote = Vote(
        id=identity,
        project_id=gate.project_id,
        gate=gate,
        user=membership.user,
        actor=ensure_pseudonym(membership.user),
        answer=answer,
        team=team,
        card_sha256=shown.card_sha256,
        shown_version=shown.version,
        shown_digest=shown.digest,
        shown_at_us=shown.at_us,
        view_complete=shown.complete,
        step_up=step_up,
        password_at_us=password_at_us,
        reason_characters=len(reason),
        position=position,
        voted_at_us=max(at_us, shown.at_us),
        own=answer == "approve" and membership.user_id in _party_ids(gate),
    )
    values = [getattr(vote, name) for name in _VOTE_COLUMNS]
    raw_sql.execute_write(
        _INSERT_VOTE_SQL,
        [raw_sql.vendor_id(value) if isinstance(value, UUID) else value for value in values],
    )
    return vote


_VOTE_COLUMNS: Final = [field.attname for field in Vote._meta.concrete_fields]  # also its columns
_INSERT_VOTE_SQL: Final = (
    f"INSERT INTO approvals_vote ({', '.join(_VOTE_COLUMNS)})"
    f" VALUES ({', '.join(['%s'] * len(_VOTE_COLUMNS))})"
)


def _party_ids(gate: Gate) -> tuple[int | None, ...]:
    return gate.requester_id, gate.session_owner_id, gate.agent_owner_id


def _apply_votes(row: EffectRow, gate: Gate, vote: Vote, now: int) -> None:
    """Move the gate if its votes are enough; denials come before approvals."""
    approvals = quorum.load_approvals([gate.id])[gate.id]
    denials = [vote.answer] if vote.answer != "approve" else []
    if gate.deny_threshold > 1:  # else the first denial ends the gate
        denials = list(
            Vote.objects.filter(gate=gate)
            .exclude(answer="approve")
            .values_list("answer", flat=True)
        )
    ruling = ""
    if vote.answer == "request_changes":
        ruling = "changes_requested"
    elif len(denials) >= gate.deny_threshold:
        ruling = "denied_session" if "deny_session" in denials else "denied"
    elif sum(not approval.fault for approval in approvals) >= gate.minimum:
        ruling = "approved"
    if not ruling:
        gates.touch_gate(gate)
        return
    _record_vote_entry(
        gate,
        "gate.ruled",
        vote.user,
        {
            "ruling": ruling,
            "votes": len(approvals) + len(denials),
            **quorum.build_uncounted_facts(approvals),
        },
        {},
    )
    if ruling == "approved":
        gates.approve_gate(row, gate, now, 1)
    else:
        gates.end_gate(row, gate, ruling, "", now, vote.actor, votes=1)
    if ruling == "changes_requested":
        # For an agent that no longer waits. The reason is stored with the vote and not repeated.
        subject = f"{gate}: changes requested"
        text = f"{gate} needs changes. Read them at GET /api/v1/gates/{gate.id}, then plan again."
        messages.send_person_message(
            vote.user, gate.agent, gate.session, subject, text, gate.id.hex
        )


def _record_vote_entry(
    gate: Gate,
    kind: str,
    user: User,
    facts: dict[str, object],
    body_fields: dict[str, object],
    key: str = "",
) -> int:
    """Append an entry about a gate in a person's name and return its position."""
    entry = entries.record_system_entry(
        gate.project_id,
        kind,
        event_id=key or new_uuid7().hex,
        text=orjson.dumps(
            {"kind": kind, "gate": gate.id, **facts, **body_fields}, option=orjson.OPT_SORT_KEYS
        ).decode(),
        received_us=now_us(),
        actor=ensure_pseudonym(user),
        facts=orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode(),
        session=gate.session_id,
        effect=gate.effect_id,
        subject=gate.id,
    )
    return entry.position
