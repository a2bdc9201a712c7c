"""Who may answer a gate: read anew at every question, so that whoever has left or become a party answers no more."""

from typing import Any, Final, NamedTuple
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, QuerySet

from approvals import reading
from approvals.matching import Requirement
from approvals.models import Gate, Vote
from approvals.requirement import PARTIES
from journal.compiled import Compiled
from ledger import resolutions
from ledger.rows import EffectRow
from sessions import teams
from sessions.access import may
from sessions.models import Membership


class Eligible(NamedTuple):
    """Whether a person may answer a gate, through which team, or why not."""

    refusal: tuple[str, str] | None
    team: str = ""


def asks(gate: Gate, row: EffectRow | None = None) -> Requirement:
    """What a yes takes now: what the gate binds, raised by what has become known since. Facts never lower it.

    `row` is the gate's effect where it has been read.
    """
    about = reading.about_now(gate, row)
    return Requirement.of(gate.requirement).strengthened(about.reversibility, about.risk)


def present(membership: Membership) -> Membership | None:
    """The membership as it stands, held so until the answer is stored; None when the person has left."""
    found: list[Membership] = _HELD.rows(membership=membership.pk)
    return found[0] if found else None


def _one_held(membership: UUID) -> "QuerySet[Membership]":
    held = Membership.objects.select_for_update(of=("self",), no_key=True).filter(pk=membership)
    return held.select_related("user__person", "project")


_HELD: Final = Compiled(_one_held, membership=UUID)


def eligible(
    gate: Gate,
    membership: Membership,
    needed: Requirement | None = None,
    row: EffectRow | None = None,
) -> Eligible:
    """Whether this person's yes would count: their role, the teams or people the rule names, and no part in it.

    `needed` is what it asks now and `row` its effect, where they are known.
    """
    if not is_reviewer(gate, membership):
        return Eligible(NOT_A_REVIEWER)
    needed = asks(gate, row) if needed is None else needed
    user = membership.user
    part = _part(gate, user, needed, row)
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


def is_reviewer(gate: Gate, membership: Membership) -> bool:
    """Whether somebody may answer gates of this project at all."""
    return (
        membership.project_id == gate.project_id
        and membership.user.is_active
        and may(membership, "reviewer")
    )


NOT_A_REVIEWER: Final = ("not_eligible", "Only reviewers of this project answer its gates.")
_PARTS: Final = {
    "requester": "The agent says that it asks on your behalf; somebody else must say yes.",
    "session_owner": "This session is yours; somebody else must say yes.",
    "agent_owner": "This agent is yours; somebody else must say yes.",
}
_RESOLVER: Final = (
    "You said what became of it before, so this is asked on your word; somebody else must say yes."
)


def _part(gate: Gate, user: User, needed: Requirement, row: EffectRow | None) -> str:
    """Why this person may not say yes, in a sentence: they had a part in it when it was asked. Empty: they had none."""
    if "requester" in needed.kept_away and resolutions.is_by(
        gate.effect if row is None else row, user
    ):
        return _RESOLVER
    return part_of(user, needed, gate.requester_id, gate.session_owner_id, gate.agent_owner_id)


def _parties_now(gate: UUID, user: int) -> Any:
    """Who has a part in it now, for session and agent may belong to others than then; and whether `user` voted."""
    voted = Exists(Vote.objects.filter(gate=OuterRef("pk"), user=user))
    named = ("session__on_behalf_of", "session__owner", "agent__owner")
    return Gate.objects.filter(id=gate).values_list(*named, voted)


PARTIES_NOW: Final = Compiled(_parties_now, gate=UUID, user=int)


def part_of(user: User, needed: Requirement, *parties: int | None) -> str:
    """Why this person may not say yes where `parties` are those of PARTIES, in a sentence; empty when they may."""
    theirs = [party for party, one in zip(PARTIES, parties, strict=True) if one == user.pk]
    return next((_PARTS[party] for party in theirs if party in needed.kept_away), "")
