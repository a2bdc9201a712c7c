"""Who may vote on a gate, read from the database for every vote."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet

from accounts import teams
from accounts.access import has_role
from accounts.models import Membership
from approvals.models import Gate, Vote
from approvals.policies import policy_evaluation
from approvals.policies.engine import REQUEST_PARTIES, Requirement
from db.compiled_query import CompiledQuerySet
from ledger import resolutions
from ledger.models import Effect
from ledger.store.effect_rows import EffectRow


class Eligibility(NamedTuple):
    """Whether a person may vote on a gate, through which team, or why not."""

    refusal: tuple[str, str] | None
    team: str = ""


def load_current_requirement(
    gate: Gate, row: EffectRow | None = None, plan: Mapping[str, Any] | None = None
) -> Requirement:
    """Return the gate's requirement, strengthened for the present severity of its effect.

    The worse of the severity at the gate's opening and now counts, so that later facts never lower
    a requirement. `row` is the gate's effect and `plan` the body of its plan, if
    they were read already.
    """
    severity = policy_evaluation.compute_current_severity(gate, row, plan)
    return Requirement.of(gate.requirement).strengthened(severity.reversibility, severity.risk)


def lock_membership(membership: Membership) -> Membership | None:
    """Return the present membership, locked; None when the person has left."""
    memberships: list[Membership] = _MEMBERSHIP_LOCK.rows(membership=membership.pk)
    return memberships[0] if memberships else None


def _membership_lock_query(membership: UUID) -> "QuerySet[Membership]":
    memberships = Membership.objects.select_for_update(of=("self",), no_key=True).filter(
        pk=membership
    )
    return memberships.select_related("user__person", "project")


_MEMBERSHIP_LOCK: Final = CompiledQuerySet(_membership_lock_query, membership=UUID)


@dataclass(frozen=True, slots=True)
class Voter:
    """A person and what connects them with a gate, as the database has it now."""

    user_id: int
    username: str
    is_reviewer: bool
    parties: tuple[int | None, ...]  # at the gate's opening, in the order of REQUEST_PARTIES
    has_resolved: bool = False  # an earlier attempt of the effect
    teams: frozenset[str] = frozenset()


def check_eligibility(
    gate: Gate, membership: Membership, requirement: Requirement | None = None
) -> Eligibility:
    """Return whether this person's approval would count.

    `requirement` is the present one of the gate, if it was read already.
    """
    requirement = load_current_requirement(gate) if requirement is None else requirement
    return decide_eligibility(load_voter(gate, membership, requirement, gate.effect), requirement)


def load_voter(
    gate: Gate, membership: Membership, requirement: Requirement, effect: Effect | EffectRow
) -> Voter:
    """Load what decides the eligibility of a person. At most two queries.

    Reads no teams of a person who is excluded anyway.
    """
    user = membership.user
    voter = Voter(
        user.pk,
        user.get_username(),
        is_gate_reviewer(gate, membership),
        (gate.requester_id, gate.session_owner_id, gate.agent_owner_id),
    )
    if voter.is_reviewer and "requester" in requirement.kept_away:
        voter = replace(voter, has_resolved=resolutions.is_resolved_by(effect, user))
    if requirement.teams and _find_exclusion(voter, requirement) is None:
        names = teams.load_team_names(membership.project, user)
        voter = replace(voter, teams=frozenset(names))
    return voter


def decide_eligibility(voter: Voter, requirement: Requirement) -> Eligibility:
    """Decide by the person's role, interests in the effect, and the teams or people asked. Pure."""
    exclusion = _find_exclusion(voter, requirement)
    if exclusion is not None:
        return Eligibility(exclusion)
    if not requirement.teams and not requirement.people:
        return Eligibility(None)
    if voter.username in requirement.people:
        return Eligibility(None)
    shared_teams = sorted(voter.teams & set(requirement.teams))
    if not shared_teams:
        names = ", ".join([*requirement.teams, *requirement.people])
        return Eligibility(("not_eligible", f"Only {names} can approve this request."))
    return Eligibility(None, shared_teams[0])


def is_gate_reviewer(gate: Gate, membership: Membership) -> bool:
    """True if the person may vote on gates of this project at all."""
    return (
        membership.project_id == gate.project_id
        and membership.user.is_active
        and has_role(membership, "reviewer")
    )


NOT_A_REVIEWER: Final = ("not_eligible", "Only reviewers of this project can vote on its requests.")
_INTEREST_REASONS: Final = {
    "requester": "The agent acts on your behalf, so another person must approve.",
    "session_owner": "You own this session, so another person must approve.",
    "agent_owner": "You own this agent, so another person must approve.",
}
_RESOLVER_REASON: Final = (
    "You resolved an earlier attempt of this effect, so another person must approve."
)


def _find_exclusion(voter: Voter, requirement: Requirement) -> tuple[str, str] | None:
    """Return why this person may not approve at all: role, or interest at opening."""
    if not voter.is_reviewer:
        return NOT_A_REVIEWER
    if voter.has_resolved and "requester" in requirement.kept_away:
        return "self_approval", _RESOLVER_REASON
    interest = explain_interest(voter.user_id, requirement, voter.parties)
    return ("self_approval", interest) if interest else None


def _current_parties_query(gate: UUID, user: int) -> Any:
    """Query who has an interest in the gate now, and whether `user` has voted.

    Session and agent may have other owners than when the gate opened.
    """
    voted = Exists(Vote.objects.filter(gate=OuterRef("pk"), user=user))
    named = ("session__on_behalf_of", "session__owner", "agent__owner")
    return Gate.objects.filter(id=gate).values_list(*named, voted)


CURRENT_PARTIES: Final = CompiledQuerySet(_current_parties_query, gate=UUID, user=int)


def explain_interest(user_id: int, requirement: Requirement, parties: Sequence[int | None]) -> str:
    """Return why this person, if one of `parties`, may not approve; else empty.

    `parties` are in the order of REQUEST_PARTIES.
    """
    own_parties = [
        party
        for party, party_id in zip(REQUEST_PARTIES, parties, strict=True)
        if party_id == user_id
    ]
    return next(
        (_INTEREST_REASONS[party] for party in own_parties if party in requirement.kept_away), ""
    )
