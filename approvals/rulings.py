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

from approvals import deadlines, gates, news, quorum
from approvals.eligibility import (
    NOT_A_REVIEWER,
    PARTIES_NOW,
    Eligible,
    is_reviewer,
    part_of,
    present,
)
from approvals.eligibility import asks as asks
from approvals.eligibility import eligible as eligible
from approvals.matching import Requirement
from approvals.models import Gate, Vote
from approvals.states import ANSWERS, LEAST_REASON, LONGEST_DECIDE_WITHIN_S, STEP_UPS, US
from journal import entries, sql
from journal.clock import now_us
from journal.ids import uuid7
from ledger.rows import EffectRow
from sessions import messages
from sessions.models import Membership
from sessions.people import REPLACE_IT_FIRST, has_own_password, pseudonym_of

MOST_REASON: Final = 4000
EXTENSION_S: Final = 15 * 60


class Shown(NamedTuple):
    """What the voter's page showed of a gate, and when.

    The gate's version and digest, the card's hash, and whether the page showed everything.
    """

    version: int
    digest: str
    card_sha256: str
    complete: bool
    at_us: int


@dataclass(slots=True)
class Outcome:
    """The result of a vote. `refusal` is (code, sentence); nothing was written then."""

    gate: Gate
    refusal: tuple[str, str] | None = None
    vote: Vote | None = None


@transaction.atomic(savepoint=False)
def answer(
    gate: Gate,
    membership: Membership,
    answer: str,
    reason: str,
    shown: Shown,
    *,
    step_up: str = "none",
    password_at_us: int | None = None,
) -> Outcome:
    """Vote on a gate: approve | deny | deny_final | return.

    `step_up` is the strongest proof that the person just gave. `password_at_us` is when they typed
    the password it rests on, up to five minutes earlier.

    A refused vote changes nothing. Its code is one of not_resolved (the gate has ended), expired,
    stale_view, not_eligible, own_password, self_approval, duplicate_vote, rationale_required,
    step_up_required. Raises gates.Gone when the gate or the people changed concurrently: run the
    transaction again.
    """
    row, locked, at_us = deadlines.lock(gate)
    current_membership = present(membership)
    if current_membership is None:
        return Outcome(locked, NOT_A_REVIEWER)
    if not has_own_password(current_membership.user):
        return Outcome(locked, NOT_OWN)
    requirement = asks(locked, row)
    eligibility = eligible(locked, current_membership, requirement, row)
    refusal = _find_refusal(
        locked, current_membership, eligibility, requirement, answer, reason.strip(), shown, step_up
    )
    if refusal is not None:
        return Outcome(locked, refusal)
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
            raise gates.Gone from error
        raise
    return Outcome(locked, vote=vote)


NOT_OWN: Final = ("own_password", REPLACE_IT_FIRST)
_VOTER_CONSTRAINTS: Final = (
    "gate_is_approved_by_its_quorum",
    "yes_is_of_somebody_who_is_asked",
    "vote_is_of_nobody_with_a_part_in_it",
)


@transaction.atomic(savepoint=False)
def revoke(gate: Gate, membership: Membership, reason: str) -> Outcome:
    """Revoke permission that was given and not used yet. Every reviewer can."""
    row, locked, at_us = deadlines.lock(gate)
    if not is_reviewer(locked, membership):
        return Outcome(locked, NOT_A_REVIEWER)
    if not has_own_password(membership.user):
        return Outcome(locked, NOT_OWN)
    if locked.status == "used":
        return Outcome(
            locked,
            ("already_used", "The agent has already used this approval; it cannot be revoked."),
        )
    if locked.status != "approved":
        return Outcome(locked, ended(locked))
    if not LEAST_REASON <= len(reason.strip()) <= MOST_REASON:
        return Outcome(locked, _REASON_REQUIRED)
    gates.end(row, locked, "revoked", "by_person", at_us, pseudonym_of(membership.user))
    _record_vote_entry(
        locked, "gate.ruled", membership.user, {"ruling": "revoked"}, {"reason": reason.strip()}
    )
    return Outcome(locked)


@transaction.atomic(savepoint=False)
def extend(gate: Gate, membership: Membership, seconds: int = EXTENSION_S) -> Outcome:
    """Give people more time to decide, at most 30 days from the request; recorded."""
    row, locked, at_us = deadlines.lock(gate)
    if not is_reviewer(locked, membership):
        return Outcome(locked, NOT_A_REVIEWER)
    if not has_own_password(membership.user):
        return Outcome(locked, NOT_OWN)
    if locked.status != "pending":
        return Outcome(locked, ended(locked))
    latest = locked.requested_at_us + LONGEST_DECIDE_WITHIN_S * US
    until = min(max(locked.decide_by_us, at_us) + seconds * US, latest)
    if until <= locked.decide_by_us:
        return Outcome(locked, ("not_extended", "The maximum of 30 days is reached."))
    gates.extend(row, locked, until)
    _record_vote_entry(locked, "gate.extended", membership.user, {"decide_by_us": until}, {})
    return Outcome(locked)


def needs_reason(gate: Gate, answer: str) -> bool:
    """True if this answer needs a reason by the rule or the effect."""
    return _requires_reason(asks(gate), answer)


def _requires_reason(requirement: Requirement, answer: str) -> bool:
    if answer != "approve":
        return answer == "return" or requirement.rationale != "none"
    return requirement.rationale == "always"


def _find_refusal(
    gate: Gate,
    membership: Membership,
    eligibility: Eligible,
    requirement: Requirement,
    answer: str,
    reason: str,
    shown: Shown,
    step_up: str,
) -> tuple[str, str] | None:
    if answer not in ANSWERS:
        return "not_eligible", f"Choose one of {', '.join(ANSWERS)}."
    if gate.status != "pending":
        return ended(gate)
    # People with an interest in the request may still deny it.
    if eligibility.refusal is not None and (
        answer == "approve" or eligibility.refusal[0] != "self_approval"
    ):
        return eligibility.refusal
    *parties, has_voted = PARTIES_NOW.rows(gate=gate.id, user=membership.user_id)[0]
    if answer == "approve" and (interest := part_of(membership.user, requirement, *parties)):
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
    if len(reason) > MOST_REASON:
        return "rationale_required", f"A reason has at most {MOST_REASON} characters."
    if _requires_reason(requirement, answer):
        min_length = max(LEAST_REASON, requirement.rationale_characters)
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


def ended(gate: Gate) -> tuple[str, str]:
    """Return why `gate` does not take the answer: who decided what, and when."""
    code = "expired" if gate.status == "expired" else "not_resolved"
    return code, news.ended(
        gate
    ) or "This request is not approved yet, so there is nothing to revoke."


_REASON_REQUIRED: Final = (
    "rationale_required",
    f"Give a reason of {LEAST_REASON} to {MOST_REASON} characters.",
)


def _insert_vote(
    gate: Gate,
    membership: Membership,
    team: str,
    answer: str,
    reason: str,
    shown: Shown,
    step_up: str,
    password_at_us: int | None,
    at_us: int,
) -> Vote:
    identity = uuid7()
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
        actor=pseudonym_of(membership.user),
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
    sql.write(
        _INSERT_VOTE_SQL,
        [sql.vendor_id(value) if isinstance(value, UUID) else value for value in values],
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
    approvals = quorum.yeses([gate.id])[gate.id]
    denials = [vote.answer] if vote.answer != "approve" else []
    if gate.deny_threshold > 1:  # else the first denial ends the gate
        denials = list(
            Vote.objects.filter(gate=gate)
            .exclude(answer="approve")
            .values_list("answer", flat=True)
        )
    ruling = ""
    if vote.answer == "return":
        ruling = "returned"
    elif len(denials) >= gate.deny_threshold:
        ruling = "denied_final" if "deny_final" in denials else "denied"
    elif sum(not approval.fault for approval in approvals) >= gate.minimum:
        ruling = "approved"
    if not ruling:
        gates.touch(gate)
        return
    _record_vote_entry(
        gate,
        "gate.ruled",
        vote.user,
        {"ruling": ruling, "votes": len(approvals) + len(denials), **quorum.told(approvals)},
        {},
    )
    if ruling == "approved":
        gates.approve(row, gate, now, 1)
    else:
        gates.end(row, gate, ruling, "", now, vote.actor, votes=1)
    if ruling == "returned":
        # For an agent that no longer waits. The reason is stored with the vote and not repeated.
        subject = f"{gate}: changes requested"
        text = f"{gate} needs changes. Read them at GET /api/v1/gates/{gate.id}, then plan again."
        messages.write(vote.user, gate.agent, gate.session, subject, text, gate.id.hex)


def _record_vote_entry(
    gate: Gate,
    kind: str,
    user: User,
    facts: dict[str, object],
    body_fields: dict[str, object],
    key: str = "",
) -> int:
    """Append an entry about a gate in a person's name and return its position."""
    entry = entries.record(
        gate.project_id,
        kind,
        event_id=key or uuid7().hex,
        text=orjson.dumps(
            {"kind": kind, "gate": gate.id, **facts, **body_fields}, option=orjson.OPT_SORT_KEYS
        ).decode(),
        received_us=now_us(),
        actor=pseudonym_of(user),
        facts=orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode(),
        session=gate.session_id,
        effect=gate.effect_id,
        subject=gate.id,
    )
    return entry.position
