"""The one writer of Vote: what a person answers on a gate, bound to what their page showed, and what follows from it.

Every check is made again here, with the rows locked; the schema makes the hardest of them a third time.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

import orjson
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from approvals import gates, quorum, reading
from approvals.matching import Requirement
from approvals.models import Gate, Vote
from approvals.requirement import PARTIES
from approvals.states import ANSWERS, LEAST_REASON, LONGEST_DECIDE_WITHIN_S, OPEN, STEP_UPS, US
from journal import entries
from journal.clock import now_us
from journal.ids import uuid7
from ledger import resolutions
from ledger.rows import EffectRow
from sessions import messages, teams
from sessions.access import may
from sessions.models import Membership
from sessions.people import pseudonym_of

MOST_REASON: Final = 4000
EXTENSION_S: Final = 15 * 60


class Shown(NamedTuple):
    """What the voter's page showed: the gate's version and digest, the card's hash, whether all of it, and when."""

    version: int
    digest: str
    card_sha256: str
    complete: bool
    at_us: int


@dataclass(slots=True)
class Outcome:
    """What became of an answer. `refusal` is a code of approvals.md with its sentence; nothing was written then."""

    gate: Gate
    refusal: tuple[str, str] | None = None
    vote: Vote | None = None


class Eligible(NamedTuple):
    """Whether a person may answer a gate, through which team, or why not."""

    refusal: tuple[str, str] | None
    team: str = ""


@transaction.atomic(savepoint=False)
def answer(
    gate: Gate, membership: Membership, answer: str, reason: str, shown: Shown, *, step_up: str = "none"
) -> Outcome:
    """Answer a gate: approve | deny | deny_final | return. `step_up` is the strongest proof the person just gave.

    Refused answers change nothing; their code says what to do: not_resolved (it has ended), expired, stale_view,
    not_eligible, self_approval, duplicate_vote, rationale_required, step_up_required. Raises gates.Gone when gate or
    people changed meanwhile: the transaction must be run again.
    """
    row, locked, at_us = gates.lock(gate)
    present = _present(membership)
    if present is None:
        return Outcome(locked, _NOT_A_REVIEWER)
    refusal = _refused(locked, present, answer, reason.strip(), shown, step_up)
    if refusal is not None:
        return Outcome(locked, refusal)
    try:
        vote = _vote(locked, present, answer, reason.strip(), shown, step_up, at_us)
        gates.touch(locked)
        _resolve(row, locked, vote, at_us)
    except IntegrityError as error:
        # People are not locked by those who count them: somebody left after we looked and before the schema did.
        if any(law in str(error) for law in _LAWS_OF_PEOPLE):
            raise gates.Gone from error
        raise
    return Outcome(locked, vote=vote)


_LAWS_OF_PEOPLE: Final = (
    *("gate_is_approved_by_its_quorum", "yes_is_of_somebody_who_is_asked", "vote_is_of_nobody_with_a_part_in_it"),
)


@transaction.atomic(savepoint=False)
def revoke(gate: Gate, membership: Membership, reason: str) -> Outcome:
    """Take leave back that was given and not yet used. Any reviewer may: saying no is never a matter of eligibility."""
    row, locked, at_us = gates.lock(gate)
    if not _is_reviewer(locked, membership):
        return Outcome(locked, _NOT_A_REVIEWER)
    if locked.status == "used":
        return Outcome(locked, ("already_used", "The agent has used this leave; it cannot be taken back."))
    if locked.status != "approved":
        return Outcome(locked, _ended(locked))
    if not LEAST_REASON <= len(reason.strip()) <= MOST_REASON:
        return Outcome(locked, _REASON)
    gates.end(row, locked, "revoked", "by_person", at_us, pseudonym_of(membership.user))
    _say(locked, "gate.ruled", membership.user, {"ruling": "revoked"}, {"reason": reason.strip()})
    return Outcome(locked)


@transaction.atomic(savepoint=False)
def extend(gate: Gate, membership: Membership, seconds: int = EXTENSION_S) -> Outcome:
    """Give people more time to decide; recorded. At most thirty days from the request."""
    row, locked, at_us = gates.lock(gate)
    if not _is_reviewer(locked, membership):
        return Outcome(locked, _NOT_A_REVIEWER)
    if locked.status != "pending":
        return Outcome(locked, _ended(locked))
    latest = locked.requested_at_us + LONGEST_DECIDE_WITHIN_S * US
    until = min(max(locked.decide_by_us, at_us) + seconds * US, latest)
    if until <= locked.decide_by_us:
        return Outcome(locked, ("not_extended", "A gate stays open for at most thirty days, and this one has."))
    gates.extend(row, locked, until)
    _say(locked, "gate.extended", membership.user, {"decide_by_us": until}, {})
    return Outcome(locked)


def asks(gate: Gate) -> Requirement:
    """What a yes takes now: what the gate binds, raised by what has become known since. Facts never lower it."""
    about = reading.about_now(gate)
    return Requirement.of(gate.requirement).strengthened(about.reversibility, about.risk)


def _present(membership: Membership) -> Membership | None:
    """The membership as it stands, held so until the answer is stored; None when the person has left."""
    held = Membership.objects.select_for_update(of=("self",), no_key=True).select_related("user", "project")
    return held.filter(pk=membership.pk).first()


def eligible(gate: Gate, membership: Membership) -> Eligible:
    """Whether this person's yes would count: their role, the teams or people the rule names, and no part in it."""
    needed = asks(gate)
    if not _is_reviewer(gate, membership):
        return Eligible(_NOT_A_REVIEWER)
    user = membership.user
    part = _part(gate, user, needed)
    if part:
        return Eligible(("self_approval", part))
    if not needed.teams and not needed.people:
        return Eligible(None)
    if user.get_username() in needed.people:
        return Eligible(None)
    through = sorted(teams.teams_of(membership.project, user) & set(needed.teams))
    if not through:
        wanted = ", ".join([*needed.teams, *needed.people])
        return Eligible(("not_eligible", f"The rule asks for {wanted}; you do not belong to them."))
    return Eligible(None, through[0])


def _is_reviewer(gate: Gate, membership: Membership) -> bool:
    return membership.project_id == gate.project_id and membership.user.is_active and may(membership, "reviewer")


_NOT_A_REVIEWER: Final = ("not_eligible", "Only reviewers of this project answer its gates.")
_PARTS: Final = {
    "requester": "The agent says that it asks on your behalf; somebody else must say yes.",
    "session_owner": "This session is yours; somebody else must say yes.",
    "agent_owner": "This agent is yours; somebody else must say yes.",
}
_RESOLVER: Final = "You said what became of it before, so this is asked on your word; somebody else must say yes."


def _part(gate: Gate, user: User, needed: Requirement) -> str:
    """Why this person may not say yes, in a sentence: they had a part in it when it was asked. Empty: they had none."""
    if "requester" in needed.kept_away and resolutions.is_by(gate.effect, user):
        return _RESOLVER
    return _part_of(user, needed, gate.requester_id, gate.session_owner_id, gate.agent_owner_id)


def _part_now(gate: Gate, user: User, needed: Requirement) -> str:
    """The same as of now: session and agent may belong to others than when it was asked."""
    now = Gate.objects.values_list("session__on_behalf_of", "session__owner", "agent__owner").get(id=gate.id)
    return _part_of(user, needed, *now)


def _part_of(user: User, needed: Requirement, *parties: int | None) -> str:
    theirs = [party for party, one in zip(PARTIES, parties, strict=True) if one == user.pk]
    return next((_PARTS[party] for party in theirs if party in needed.kept_away), "")


def needs_reason(gate: Gate, answer: str) -> bool:
    """True when this answer must come with words: every no, and a yes where the rule or the effect asks for them."""
    needed = asks(gate)
    if answer != "approve":
        return answer == "return" or needed.rationale != "none"
    return needed.rationale == "always"


def _refused(
    gate: Gate, membership: Membership, answer: str, reason: str, shown: Shown, step_up: str
) -> tuple[str, str] | None:
    if answer not in ANSWERS:
        return "not_eligible", f"An answer is one of {', '.join(ANSWERS)}."
    if gate.status != "pending":
        return _ended(gate)
    able = eligible(gate, membership)
    # Whoever has a part in it may still say no.
    if able.refusal is not None and (answer == "approve" or able.refusal[0] != "self_approval"):
        return able.refusal
    if answer == "approve" and (part := _part_now(gate, membership.user, asks(gate))):
        return "self_approval", part
    if Vote.objects.filter(gate=gate, user=membership.user).exists():
        return "duplicate_vote", "You have answered this gate; others must answer now."
    if (shown.version, shown.digest) != (gate.version, gate.digest):
        return "stale_view", "The gate changed since your page was made. Look at what is new, then answer."
    if answer == "approve" and not shown.complete:
        return "stale_view", "Your page did not show everything that would run; open the whole of it, then answer."
    return _wanting(gate, answer, reason, step_up)


def _wanting(gate: Gate, answer: str, reason: str, step_up: str) -> tuple[str, str] | None:
    """What is missing of reason or proof."""
    needed = asks(gate)
    if len(reason) > MOST_REASON:
        return "rationale_required", f"A reason has at most {MOST_REASON} characters."
    if needs_reason(gate, answer):
        least = max(LEAST_REASON, needed.rationale_characters)
        if len(reason) < least:
            return "rationale_required", f"Say why, in at least {least} characters."
        if needed.ticket and not any(fnmatchcase(word.strip(".,;:()"), needed.ticket) for word in reason.split()):
            return "rationale_required", f"The rule asks for a ticket like {needed.ticket} in the reason."
    if answer == "approve" and STEP_UPS.index(step_up) < STEP_UPS.index(needed.step_up):
        words = {"reauth": "your password", "typed_digest": "the code of this intent and your password"}
        return "step_up_required", f"To approve this, give {words[needed.step_up]}."
    return None


def _ended(gate: Gate) -> tuple[str, str]:
    if gate.status == "expired":
        return "expired", "Its time was over before this answer came, and that is never an approval."
    if gate.status in OPEN:
        return "not_resolved", f"The gate is {gate.status}; this does not apply to it now."
    return "not_resolved", f"The gate has ended: {gate.status.replace('_', ' ')}. Nothing was recorded."


_REASON: Final = ("rationale_required", f"Say why, in {LEAST_REASON} to {MOST_REASON} characters.")


def _vote(gate: Gate, membership: Membership, answer: str, reason: str, shown: Shown, step_up: str, at_us: int) -> Vote:
    identity = uuid7()
    facts = {"vote": answer, "card": shown.card_sha256, "shown_version": shown.version, "step_up": step_up}
    position = _say(gate, "gate.voted", membership.user, facts, {"reason": reason}, identity.hex)
    return Vote.objects.create(
        id=identity,
        project_id=gate.project_id,
        gate=gate,
        user=membership.user,
        actor=pseudonym_of(membership.user),
        answer=answer,
        team=eligible(gate, membership).team,
        card_sha256=shown.card_sha256,
        shown_version=shown.version,
        shown_digest=shown.digest,
        shown_at_us=shown.at_us,
        view_complete=shown.complete,
        step_up=step_up,
        reason_characters=len(reason),
        position=position,
        voted_at_us=max(at_us, shown.at_us),
        own=answer == "approve" and membership.user_id in _parties(gate),
    )


def _parties(gate: Gate) -> tuple[int | None, ...]:
    return gate.requester_id, gate.session_owner_id, gate.agent_owner_id


def _resolve(row: EffectRow, gate: Gate, vote: Vote, now: int) -> None:
    """Let the gate move when the votes are enough: a no is heard before a yes, and only a yes that counts now."""
    answers = list(Vote.objects.filter(gate=gate).values_list("answer", flat=True))
    yes = quorum.yeses([gate.id])[gate.id]
    ruling = ""
    if vote.answer == "return":
        ruling = "returned"
    elif sum(one in ("deny", "deny_final") for one in answers) >= gate.deny_threshold:
        ruling = "denied_final" if "deny_final" in answers else "denied"
    elif sum(not one.fault for one in yes) >= gate.minimum:
        ruling = "approved"
    if not ruling:
        return
    _say(gate, "gate.ruled", vote.user, {"ruling": ruling, "votes": len(answers), **quorum.told(yes)}, {})
    if ruling == "approved":
        gates.approve(row, gate, now)
    else:
        gates.end(row, gate, ruling, "", now, vote.actor)
    if ruling == "returned":
        # For an agent that does not wait any more. The reason stands with the vote and is not told twice.
        words = f"{gate} was returned for changes. GET /api/v1/gates/{gate.id} says what they are; then plan again."
        messages.write(vote.user, gate.agent, gate.session, f"{gate} was returned", words, gate.id.hex)


def _say(
    gate: Gate,
    kind: str,
    user: User,
    facts: dict[str, object],
    words: dict[str, object],
    key: str = "",
) -> int:
    """Append one entry about a gate in a person's name and return its position."""
    appended = entries.record(
        gate.project_id,
        kind,
        event_id=key or uuid7().hex,
        text=orjson.dumps({"kind": kind, "gate": gate.id, **facts, **words}, option=orjson.OPT_SORT_KEYS).decode(),
        received_us=now_us(),
        actor=pseudonym_of(user),
        facts=orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode(),
        session=gate.session_id,
        effect=gate.effect_id,
        subject=gate.id,
    )
    return appended.position
