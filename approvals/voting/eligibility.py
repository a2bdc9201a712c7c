"""Who may vote on a gate, read from the database for every vote."""

from typing import Any, Final, NamedTuple
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, QuerySet

from accounts import teams
from accounts.access import has_role
from accounts.models import Membership
from approvals.models import Gate, Vote
from approvals.policies import inputs
from approvals.policies.engine import Requirement
from approvals.policies.requirement import REQUEST_PARTIES
from db.compiled_query import CompiledQuerySet
from ledger import resolutions
from ledger.store.rows import EffectRow


class Eligibility(NamedTuple):
    """Whether a person may vote on a gate, through which team, or why not."""

    refusal: tuple[str, str] | None
    team: str = ""


def load_current_requirement(gate: Gate, row: EffectRow | None = None) -> Requirement:
    """Return the present requirement: the gate's, raised by later facts.

    Facts never lower a requirement. `row` is the gate's effect if it was read already.
    """
    severity = inputs.compute_current_severity(gate, row)
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


def check_eligibility(
    gate: Gate,
    membership: Membership,
    requirement: Requirement | None = None,
    row: EffectRow | None = None,
) -> Eligibility:
    """Return whether this person's approval would count.

    By their role, the teams or people that the rule names, and interests in the effect.
    `requirement` is the present one and `row` the effect, if they were read already.
    """
    if not is_gate_reviewer(gate, membership):
        return Eligibility(NOT_A_REVIEWER)
    requirement = load_current_requirement(gate, row) if requirement is None else requirement
    user = membership.user
    interest = _find_interest(gate, user, requirement, row)
    if interest:
        return Eligibility(("self_approval", interest))
    if not requirement.teams and not requirement.people:
        return Eligibility(None)
    if user.get_username() in requirement.people:
        return Eligibility(None)
    shared_teams = sorted(teams.load_team_names(membership.project, user) & set(requirement.teams))
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


def _find_interest(gate: Gate, user: User, requirement: Requirement, row: EffectRow | None) -> str:
    """Return why this person may not approve: an interest at opening time, or empty."""
    if "requester" in requirement.kept_away and resolutions.is_resolved_by(
        gate.effect if row is None else row, user
    ):
        return _RESOLVER_REASON
    return explain_interest(
        user, requirement, gate.requester_id, gate.session_owner_id, gate.agent_owner_id
    )


def _current_parties_query(gate: UUID, user: int) -> Any:
    """Query who has an interest in the gate now, and whether `user` has voted.

    Session and agent may have other owners than when the gate opened.
    """
    voted = Exists(Vote.objects.filter(gate=OuterRef("pk"), user=user))
    named = ("session__on_behalf_of", "session__owner", "agent__owner")
    return Gate.objects.filter(id=gate).values_list(*named, voted)


CURRENT_PARTIES: Final = CompiledQuerySet(_current_parties_query, gate=UUID, user=int)


def explain_interest(user: User, requirement: Requirement, *parties: int | None) -> str:
    """Return why this person, if one of `parties`, may not approve; else empty.

    `parties` are in the order of PARTIES.
    """
    own_parties = [
        party for party, user_id in zip(REQUEST_PARTIES, parties, strict=True) if user_id == user.pk
    ]
    return next(
        (_INTEREST_REASONS[party] for party in own_parties if party in requirement.kept_away), ""
    )
