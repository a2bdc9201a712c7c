"""The one writer of Vote: what a person answers on a gate, bound to what their page showed, and what follows from it.

Every check is made again here, with the rows locked; the schema makes the hardest of them a third time.
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
    """Answer a gate: approve | deny | deny_final | return. `step_up` is the strongest proof the person just gave.

    `password_at_us` is when they gave the password of it: up to five minutes before, for something else.

    Refused answers change nothing; their code says what to do: not_resolved (it has ended), expired, stale_view,
    not_eligible, own_password, self_approval, duplicate_vote, rationale_required, step_up_required. Raises gates.Gone
    when gate or people changed meanwhile: the transaction must be run again.
    """
    row, locked, at_us = deadlines.lock(gate)
    held = present(membership)
    if held is None:
        return Outcome(locked, NOT_A_REVIEWER)
    if not has_own_password(held.user):
        return Outcome(locked, NOT_OWN)
    needed = asks(locked, row)
    able = eligible(locked, held, needed, row)
    refusal = _refused(locked, held, able, needed, answer, reason.strip(), shown, step_up)
    if refusal is not None:
        return Outcome(locked, refusal)
    try:
        vote = _vote(
            locked, held, able.team, answer, reason.strip(), shown, step_up, password_at_us, at_us
        )
        _resolve(row, locked, vote, at_us)
    except IntegrityError as error:
        # People are not locked by those who count them: somebody left after we looked and before the schema did.
        if any(law in str(error) for law in _LAWS_OF_PEOPLE):
            raise gates.Gone from error
        raise
    return Outcome(locked, vote=vote)


NOT_OWN: Final = ("own_password", REPLACE_IT_FIRST)
_LAWS_OF_PEOPLE: Final = (
    *(
        "gate_is_approved_by_its_quorum",
        "yes_is_of_somebody_who_is_asked",
        "vote_is_of_nobody_with_a_part_in_it",
    ),
)


@transaction.atomic(savepoint=False)
def revoke(gate: Gate, membership: Membership, reason: str) -> Outcome:
    """Take leave back that was given and not yet used. Any reviewer may: saying no is never a matter of eligibility."""
    row, locked, at_us = deadlines.lock(gate)
    if not is_reviewer(locked, membership):
        return Outcome(locked, NOT_A_REVIEWER)
    if not has_own_password(membership.user):
        return Outcome(locked, NOT_OWN)
    if locked.status == "used":
        return Outcome(
            locked, ("already_used", "The agent has used this leave; it cannot be taken back.")
        )
    if locked.status != "approved":
        return Outcome(locked, ended(locked))
    if not LEAST_REASON <= len(reason.strip()) <= MOST_REASON:
        return Outcome(locked, _REASON)
    gates.end(row, locked, "revoked", "by_person", at_us, pseudonym_of(membership.user))
    _say(locked, "gate.ruled", membership.user, {"ruling": "revoked"}, {"reason": reason.strip()})
    return Outcome(locked)


@transaction.atomic(savepoint=False)
def extend(gate: Gate, membership: Membership, seconds: int = EXTENSION_S) -> Outcome:
    """Give people more time to decide; recorded. At most thirty days from the request."""
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
        return Outcome(
            locked, ("not_extended", "A gate stays open for at most thirty days, and this one has.")
        )
    gates.extend(row, locked, until)
    _say(locked, "gate.extended", membership.user, {"decide_by_us": until}, {})
    return Outcome(locked)


def needs_reason(gate: Gate, answer: str) -> bool:
    """True when this answer must come with words: every no, and a yes where the rule or the effect asks for them."""
    return _needs_words(asks(gate), answer)


def _needs_words(needed: Requirement, answer: str) -> bool:
    if answer != "approve":
        return answer == "return" or needed.rationale != "none"
    return needed.rationale == "always"


def _refused(
    gate: Gate,
    membership: Membership,
    able: Eligible,
    needed: Requirement,
    answer: str,
    reason: str,
    shown: Shown,
    step_up: str,
) -> tuple[str, str] | None:
    if answer not in ANSWERS:
        return "not_eligible", f"An answer is one of {', '.join(ANSWERS)}."
    if gate.status != "pending":
        return ended(gate)
    # Whoever has a part in it may still say no.
    if able.refusal is not None and (answer == "approve" or able.refusal[0] != "self_approval"):
        return able.refusal
    *parties, voted = PARTIES_NOW.rows(gate=gate.id, user=membership.user_id)[0]
    if answer == "approve" and (part := part_of(membership.user, needed, *parties)):
        return "self_approval", part
    if voted:
        return "duplicate_vote", "You have answered this gate; others must answer now."
    if (shown.version, shown.digest) != (gate.version, gate.digest):
        return (
            "stale_view",
            "The gate changed since your page was made. Look at what is new, then answer.",
        )
    if answer == "approve" and not shown.complete:
        return (
            "stale_view",
            "Your page did not show everything that would run; open the whole of it, then answer.",
        )
    return _wanting(needed, answer, reason, step_up)


def _wanting(needed: Requirement, answer: str, reason: str, step_up: str) -> tuple[str, str] | None:
    """What is missing of reason or proof."""
    if len(reason) > MOST_REASON:
        return "rationale_required", f"A reason has at most {MOST_REASON} characters."
    if _needs_words(needed, answer):
        least = max(LEAST_REASON, needed.rationale_characters)
        if len(reason) < least:
            return "rationale_required", f"Say why, in at least {least} characters."
        if needed.ticket and not any(
            fnmatchcase(word.strip(".,;:()"), needed.ticket) for word in reason.split()
        ):
            return (
                "rationale_required",
                f"The rule asks for a ticket like {needed.ticket} in the reason.",
            )
    if answer == "approve" and STEP_UPS.index(step_up) < STEP_UPS.index(needed.step_up):
        words = {
            "reauth": "your password",
            "typed_digest": "the code of this intent and your password",
        }
        return "step_up_required", f"To approve this, give {words[needed.step_up]}."
    return None


def ended(gate: Gate) -> tuple[str, str]:
    """Why `gate` takes no such answer: who decided what, and when."""
    code = "expired" if gate.status == "expired" else "not_resolved"
    return code, news.ended(
        gate
    ) or "This request was not approved yet; there is nothing to revoke."


_REASON: Final = ("rationale_required", f"Say why, in {LEAST_REASON} to {MOST_REASON} characters.")


def _vote(
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
    position = _say(gate, "gate.voted", membership.user, facts, {"reason": reason}, identity.hex)
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
        own=answer == "approve" and membership.user_id in _parties(gate),
    )
    values = [getattr(vote, name) for name in _VOTE]
    sql.write(
        _INSERT_VOTE, [sql.vendor_id(one) if isinstance(one, UUID) else one for one in values]
    )
    return vote


_VOTE: Final = [field.attname for field in Vote._meta.concrete_fields]  # which are also its columns
_INSERT_VOTE: Final = (
    f"INSERT INTO approvals_vote ({', '.join(_VOTE)}) VALUES ({', '.join(['%s'] * len(_VOTE))})"
)


def _parties(gate: Gate) -> tuple[int | None, ...]:
    return gate.requester_id, gate.session_owner_id, gate.agent_owner_id


def _resolve(row: EffectRow, gate: Gate, vote: Vote, now: int) -> None:
    """Let the gate move when the votes are enough: a no is heard before a yes, and only a yes that counts now."""
    yes = quorum.yeses([gate.id])[gate.id]
    noes = [vote.answer] if vote.answer != "approve" else []
    if gate.deny_threshold > 1:  # else the first no has ended it
        noes = list(
            Vote.objects.filter(gate=gate)
            .exclude(answer="approve")
            .values_list("answer", flat=True)
        )
    ruling = ""
    if vote.answer == "return":
        ruling = "returned"
    elif len(noes) >= gate.deny_threshold:
        ruling = "denied_final" if "deny_final" in noes else "denied"
    elif sum(not one.fault for one in yes) >= gate.minimum:
        ruling = "approved"
    if not ruling:
        gates.touch(gate)
        return
    _say(
        gate,
        "gate.ruled",
        vote.user,
        {"ruling": ruling, "votes": len(yes) + len(noes), **quorum.told(yes)},
        {},
    )
    if ruling == "approved":
        gates.approve(row, gate, now, 1)
    else:
        gates.end(row, gate, ruling, "", now, vote.actor, votes=1)
    if ruling == "returned":
        # For an agent that does not wait any more. The reason stands with the vote and is not told twice.
        words = f"{gate} was returned for changes. GET /api/v1/gates/{gate.id} says what they are; then plan again."
        messages.write(
            vote.user, gate.agent, gate.session, f"{gate} was returned", words, gate.id.hex
        )


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
        text=orjson.dumps(
            {"kind": kind, "gate": gate.id, **facts, **words}, option=orjson.OPT_SORT_KEYS
        ).decode(),
        received_us=now_us(),
        actor=pseudonym_of(user),
        facts=orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode(),
        session=gate.session_id,
        effect=gate.effect_id,
        subject=gate.id,
    )
    return appended.position
