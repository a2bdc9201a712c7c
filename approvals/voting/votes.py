"""The one writer of Vote: what people vote on a gate, and what follows from it.

A vote is bound to what the voter's page showed. It is decided with the rows locked, whatever the
page checked before; the database repeats the most important checks. Read `cast_vote` first: it
loads a `VoteContext`, decides without the database, and writes the `VoteDecision`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final, NamedTuple
from uuid import UUID

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from accounts.models import Membership
from accounts.people import OWN_PASSWORD_REQUIRED_TEXT, ensure_pseudonym, has_own_password
from approvals import labels
from approvals.checks.check_results import CheckResult
from approvals.gates import gates
from approvals.gates.gates import LockedGate
from approvals.gates.statuses import (
    MAX_DECIDE_WITHIN_S,
    MIN_REASON_CHARS,
    STEP_UPS,
    US,
    VOTE_ANSWERS,
)
from approvals.inbox import updates
from approvals.models import Gate, Vote
from approvals.policies.engine import Requirement
from approvals.voting import quorum
from approvals.voting.eligibility import (
    CURRENT_PARTIES,
    NOT_A_REVIEWER,
    Eligibility,
    Voter,
    decide_eligibility,
    explain_interest,
    is_gate_reviewer,
    load_current_requirement,
    load_voter,
    lock_membership,
)
from approvals.voting.quorum import ApprovalVote
from approvals.voting.warned_proof import (
    ApprovalProof,
    NameToType,
    decide_approval_proof,
    find_unseen_warnings,
    find_wrong_names,
    load_request_checks,
)
from db import raw_sql
from db.clock import now_us
from db.ids import new_uuid7
from db.row_changes import RowChange, write_row_changes
from journal import entries
from journal.entry_times import STATED_US
from journal.models import Entry
from sessions import messages

MAX_VOTE_REASON: Final = 4000
DEADLINE_EXTENSION_S: Final = 15 * 60
OWN_PASSWORD_REQUIRED: Final = ("own_password", OWN_PASSWORD_REQUIRED_TEXT)
UNSEEN_WARNING: Final = (
    "stale_view",
    "A check of this request warns since you opened your page. Read the warnings, then vote.",
)
# Refusals of a form before the vote is decided.
STALE_VOTE_FORM: Final = (
    "stale_view",
    "This form is not yours or is older than 12 hours. Review the request below, then answer.",
)
CHANGED_GATE: Final = (
    "stale_view",
    "The request changed after you opened it. Review what changed, then answer.",
)
HIDDEN_NOT_SEEN: Final = (
    "not_seen",
    "To approve, tick that you have seen the hidden characters.",
)
LINES_NOT_READ: Final = (
    "not_seen",
    "To approve, tick that you have read all lines.",
)
_REASON_REQUIRED: Final = (
    "rationale_required",
    f"Give a reason of {MIN_REASON_CHARS} to {MAX_VOTE_REASON} characters.",
)
# Names in approvals/triggers.py: an approval fails these checks if a voter changed since the count.
_VOTER_CONSTRAINTS: Final = (
    "gate_is_approved_by_its_quorum",
    "approver_is_eligible",
    "approver_is_not_a_party",
)


class ShownGate(NamedTuple):
    """What the voter's page showed of a gate, and when.

    The gate's version and digest, the card's hash, whether the page showed everything, warnings.
    """

    version: int
    digest: str
    card_sha256: str
    complete: bool
    at_us: int
    warnings: tuple[str, ...] = ()  # check ids of the warnings that it showed, sorted


@dataclass(frozen=True, slots=True)
class Ballot:
    """What a person votes: approve | deny | deny_session | request_changes.

    `step_up` is the strongest proof that the person just gave. `password_at_us` is when they typed
    the password it rests on, up to five minutes earlier, and `password_for` whether for this answer
    or an earlier one. `typed_names` are the names that they typed from their own records.
    """

    answer: str
    reason: str
    shown: ShownGate
    step_up: str = "none"
    password_at_us: int | None = None
    password_for: str = ""
    typed_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VoteContext:
    """What decides a vote, read with the effect, the gate and the membership locked.

    `ended` is why the gate takes no votes. `parties` have an interest in the effect now, in the
    order of `engine.REQUEST_PARTIES`; `voter` has those at the gate's opening. `approvals` and
    `denials` are the votes so far. `checks` are the results of the request's checks, empty unless
    it is approved.
    """

    voter: Voter
    has_own_password: bool  # no other person set it
    requirement: Requirement
    version: int
    digest: str
    minimum: int
    deny_threshold: int
    ended: tuple[str, str] | None = None
    parties: tuple[int | None, ...] = (None, None, None)
    has_voted: bool = False
    approvals: tuple[ApprovalVote, ...] = ()
    denials: tuple[str, ...] = ()
    checks: tuple[CheckResult, ...] = ()

    @property
    def proof(self) -> ApprovalProof:
        """What an approval needs, with the present warnings."""
        return decide_approval_proof(self.requirement, self.checks)


@dataclass(frozen=True, slots=True)
class VoteDecision:
    """What follows from a ballot; nothing if `refusal` is set.

    The voter approves through `team`, if the rule asks teams. `ruling` is the gate's next status,
    empty while it needs more votes; `votes` and `uncounted` explain it in the journal.
    """

    refusal: tuple[str, str] | None = None
    team: str = ""
    own: bool = False  # an approval by a person with an interest, where the rule permits it
    ruling: str = ""
    votes: int = 0
    uncounted: tuple[ApprovalVote, ...] = ()
    names: tuple[NameToType, ...] = ()  # that the voter typed


@dataclass(slots=True)
class VoteResult:
    """The result of a vote. `refusal` is (code, sentence); no vote was stored then."""

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
    password_for: str = "",
    typed_names: Sequence[str] = (),
) -> VoteResult:
    """Vote on a gate; the other parameters are those of `Ballot`.

    A refused vote stores nothing but a deadline that has passed. Its code is one of not_resolved
    (the gate has ended), expired, stale_view, not_eligible, own_password, self_approval,
    duplicate_vote, rationale_required, step_up_required. Raises GateConflict when the gate or the
    people changed concurrently: run the transaction again.
    """
    ballot = Ballot(
        answer, reason.strip(), shown, step_up, password_at_us, password_for, tuple(typed_names)
    )
    locked = gates.lock_gate(gate)
    current_membership = lock_membership(membership)
    if current_membership is None:
        return VoteResult(locked.gate, NOT_A_REVIEWER)
    context = load_vote_context(locked, current_membership, answer)
    decision = decide_vote(context, ballot)
    if decision.refusal is not None:
        return VoteResult(locked.gate, decision.refusal)
    vote = write_vote(locked, current_membership.user, ballot, decision)
    return VoteResult(locked.gate, vote=vote)


def load_vote_context(
    locked: LockedGate, membership: Membership, answer: str = "approve"
) -> VoteContext:
    """Load what decides the vote of a locked member on a locked gate.

    The votes so far are read only while the gate is pending, and the request is checked again only
    for an approval: a warning never stands in the way of a denial.
    """
    row, gate, _at_us = locked
    requirement = load_current_requirement(gate, row)
    context = VoteContext(
        voter=load_voter(gate, membership, requirement, row),
        has_own_password=has_own_password(membership.user),
        requirement=requirement,
        version=gate.version,
        digest=gate.digest,
        minimum=gate.minimum,
        deny_threshold=gate.deny_threshold,
    )
    if gate.status != "pending":
        return replace(context, ended=explain_ended_gate(gate))
    *parties, has_voted = CURRENT_PARTIES.rows(gate=gate.id, user=membership.user_id)[0]
    denials = Vote.objects.filter(gate=gate).exclude(answer="approve")
    return replace(
        context,
        parties=tuple(parties),
        has_voted=has_voted,
        approvals=tuple(quorum.load_approvals([gate.id])[gate.id]),
        # The first denial ends the gate, unless the rule requires more.
        denials=tuple(denials.values_list("answer", flat=True)) if gate.deny_threshold > 1 else (),
        checks=load_request_checks(gate, row) if answer == "approve" else (),
    )


def decide_vote(context: VoteContext, ballot: Ballot) -> VoteDecision:
    """Decide whether a ballot counts and what the gate becomes. Pure.

    A ruling needs the quorum: denials come before approvals, and only approvals that still count.
    """
    eligibility = decide_eligibility(context.voter, context.requirement)
    refusal = _find_refusal(context, ballot, eligibility)
    if refusal is not None:
        return VoteDecision(refusal)
    approves = ballot.answer == "approve"
    counted = sum(not approval.fault for approval in context.approvals) + approves
    denials = context.denials if approves else (*context.denials, ballot.answer)
    ruling = ""
    if ballot.answer == "request_changes":
        ruling = "changes_requested"
    elif len(denials) >= context.deny_threshold:
        ruling = "denied_session" if "deny_session" in denials else "denied"
    elif counted >= context.minimum:
        ruling = "approved"
    return VoteDecision(
        team=eligibility.team,
        own=approves and context.voter.user_id in context.voter.parties,
        ruling=ruling,
        votes=len(context.approvals) + approves + len(denials),
        uncounted=tuple(approval for approval in context.approvals if approval.fault),
        names=context.proof.names if approves else (),
    )


def _find_refusal(
    context: VoteContext, ballot: Ballot, eligibility: Eligibility
) -> tuple[str, str] | None:
    if not context.has_own_password:
        return OWN_PASSWORD_REQUIRED
    if ballot.answer not in VOTE_ANSWERS:
        return "not_eligible", f"Choose one of {', '.join(VOTE_ANSWERS)}."
    if context.ended is not None:
        return context.ended
    approves = ballot.answer == "approve"
    # People with an interest in the request may still deny it.
    if eligibility.refusal is not None and (approves or eligibility.refusal[0] != "self_approval"):
        return eligibility.refusal
    if approves and (
        interest := explain_interest(context.voter.user_id, context.requirement, context.parties)
    ):
        return "self_approval", interest
    if context.has_voted:
        return (
            "duplicate_vote",
            "You have already voted on this request. Another reviewer must vote.",
        )
    if (ballot.shown.version, ballot.shown.digest) != (context.version, context.digest):
        return (
            "stale_view",
            "This request changed after your page loaded. Review the changes, then vote.",
        )
    if approves and not ballot.shown.complete:
        return (
            "stale_view",
            "Your page did not show everything that would run. Open the full arguments, then vote.",
        )
    if approves and find_unseen_warnings(context.checks, ballot.shown.warnings):
        return UNSEEN_WARNING
    return _find_missing_proof(context.requirement, context.proof, ballot)


def _find_missing_proof(
    requirement: Requirement, proof: ApprovalProof, ballot: Ballot
) -> tuple[str, str] | None:
    """Return what is missing of reason or proof, as a refusal."""
    if len(ballot.reason) > MAX_VOTE_REASON:
        return "rationale_required", f"A reason has at most {MAX_VOTE_REASON} characters."
    if is_reason_required(requirement, ballot.answer):
        min_length = max(MIN_REASON_CHARS, requirement.rationale_characters)
        if len(ballot.reason) < min_length:
            return "rationale_required", f"Give a reason of at least {min_length} characters."
        if requirement.ticket and not any(
            fnmatchcase(token.strip(".,;:()"), requirement.ticket)
            for token in ballot.reason.split()
        ):
            return (
                "rationale_required",
                f"Name a ticket like {requirement.ticket} in the reason.",
            )
    if ballot.answer != "approve":
        return None
    wrong_names = find_wrong_names(proof.names, ballot.typed_names)
    if wrong_names:
        return "step_up_required", next(iter(wrong_names.values()))
    if STEP_UPS.index(ballot.step_up) < STEP_UPS.index(proof.step_up):
        names = {
            "reauth": "your password",
            "typed_digest": "the intent code and your password",
        }
        return "step_up_required", f"To approve this, give {names[proof.step_up]}."
    return None


def is_reason_required(requirement: Requirement, answer: str) -> bool:
    """True if this answer needs a reason by the rule or the effect."""
    if answer != "approve":
        return answer == "request_changes" or requirement.rationale != "none"
    return requirement.rationale == "always"


def describe_missing_reason(answer: str) -> str:
    """Return the sentence that asks for the reason of an answer that has none."""
    return f"Add a reason to {labels.VOTE_ANSWER_LABELS[answer][1].lower()}."


def write_vote(locked: LockedGate, user: User, ballot: Ballot, decision: VoteDecision) -> Vote:
    """Store the vote, and move the gate and its effect's permission as decided."""
    try:
        vote = _insert_vote(locked, user, ballot, decision)
        _apply_ruling(locked, vote, decision)
    except IntegrityError as error:
        # Counting voters does not lock them: one left between the count and the trigger's.
        if any(name in str(error) for name in _VOTER_CONSTRAINTS):
            raise gates.GateConflict from error
        raise
    return vote


def _insert_vote(locked: LockedGate, user: User, ballot: Ballot, decision: VoteDecision) -> Vote:
    """Write the vote and its entry."""
    gate, shown = locked.gate, ballot.shown
    identity = new_uuid7()
    first_shown_us = load_first_view_us(gate, ensure_pseudonym(user), shown.at_us)
    voted_at_us = max(locked.at_us, shown.at_us, first_shown_us)
    facts: dict[str, object] = {
        "vote": ballot.answer,
        "card": shown.card_sha256,
        "shown_version": shown.version,
        "first_shown_us": first_shown_us,
        "page_shown_us": shown.at_us,
        "warnings": list(shown.warnings),
        "step_up": ballot.step_up,
        "proof": "typed_name" if decision.names else ballot.step_up,
        "complete": shown.complete,
        "at_us": voted_at_us,
        "reason_characters": len(ballot.reason),
    }
    if decision.team:
        facts["team"] = decision.team
    if decision.own:
        facts["own"] = True
    if ballot.password_at_us is not None:
        facts["password_at_us"] = ballot.password_at_us
    if ballot.password_for:
        facts["password_for"] = ballot.password_for
    body: dict[str, object] = {"reason": ballot.reason}
    if decision.names:
        body["typed_names"] = list(ballot.typed_names[: len(decision.names)])
    position = _record_vote_entry(gate, "gate.voted", user, facts, body, identity.hex)
    vote = Vote(
        id=identity,
        project_id=gate.project_id,
        gate=gate,
        user=user,
        actor=ensure_pseudonym(user),
        answer=ballot.answer,
        team=decision.team,
        card_sha256=shown.card_sha256,
        shown_version=shown.version,
        shown_digest=shown.digest,
        shown_at_us=first_shown_us,
        view_complete=shown.complete,
        step_up=ballot.step_up,
        password_at_us=ballot.password_at_us,
        reason_characters=len(ballot.reason),
        position=position,
        voted_at_us=voted_at_us,
        own=decision.own,
    )
    values = [getattr(vote, name) for name in _VOTE_COLUMNS]
    raw_sql.execute_write(
        _INSERT_VOTE_SQL,
        [raw_sql.vendor_id(value) if isinstance(value, UUID) else value for value in values],
    )
    return vote


def restore_votes(changes: Sequence[RowChange]) -> None:
    """Restore votes to what the journal gives (manage.py rebuild)."""
    write_row_changes(Vote, changes)


def load_first_view_us(gate: Gate, actor: str, page_us: int) -> int:
    """Return when a gate was first shown to a person in any view, at the latest at `page_us`.

    Every view records access.viewed. One query, by the index of the effect's entries.
    """
    views = Entry.objects.filter(
        project=gate.project_id,
        effect=gate.effect_id,
        subject=gate.id,
        kind="access.viewed",
        actor=actor,
    )
    first = views.order_by("position").values_list(STATED_US, flat=True).first()
    return page_us if first is None else min(first, page_us)


_VOTE_COLUMNS: Final = [field.attname for field in Vote._meta.concrete_fields]  # also its columns
_INSERT_VOTE_SQL: Final = (
    f"INSERT INTO approvals_vote ({', '.join(_VOTE_COLUMNS)})"
    f" VALUES ({', '.join(['%s'] * len(_VOTE_COLUMNS))})"
)


def _apply_ruling(locked: LockedGate, vote: Vote, decision: VoteDecision) -> None:
    """Move the gate as decided, and inform the agent that no longer waits."""
    row, gate, now = locked
    if not decision.ruling:
        gates.touch_gate(gate)
        return
    facts = {
        "ruling": decision.ruling,
        "votes": decision.votes,
        "at_us": now,
        **quorum.build_uncounted_facts(decision.uncounted),
    }
    _record_vote_entry(gate, "gate.ruled", vote.user, facts, {})
    if decision.ruling == "approved":
        gates.approve_gate(row, gate, now, 1)
    else:
        gates.end_gate(row, gate, decision.ruling, "", now, vote.actor, votes=1)
    if decision.ruling == "changes_requested":
        # The reason is stored with the vote and not repeated.
        subject = f"{gate}: changes requested"
        text = f"{gate} needs changes. Read them at GET /api/v1/gates/{gate.id}, then plan again."
        messages.send_person_message(
            vote.user, gate.agent, gate.session, subject, text, gate.id.hex
        )


@transaction.atomic(savepoint=False)
def revoke_approval(gate: Gate, membership: Membership, reason: str) -> VoteResult:
    """Revoke permission that was given and not used yet. Every reviewer can."""
    row, locked, at_us = gates.lock_gate(gate)
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
    row, locked, at_us = gates.lock_gate(gate)
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
    _record_vote_entry(locked, "gate.extended", membership.user, {"decide_by_us": until}, {})
    gates.extend_gate(row, locked, until)
    return VoteResult(locked)


def explain_ended_gate(gate: Gate) -> tuple[str, str]:
    """Return why `gate` does not take the answer: who decided what, and when."""
    code = "expired" if gate.status == "expired" else "not_resolved"
    return code, updates.describe_end(
        gate
    ) or "This request is not approved yet, so there is nothing to revoke."


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
        text=entries.dump_sorted_json({"kind": kind, "gate": gate.id, **facts, **body_fields}),
        received_us=now_us(),
        actor=ensure_pseudonym(user),
        facts=entries.dump_sorted_json(facts),
        session=gate.session_id,
        effect=gate.effect_id,
        subject=gate.id,
    )
    return entry.position
