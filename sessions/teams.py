"""The one writer of Team and TeamMember, which rules can ask for approval."""

import re
from typing import Final

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from journal.entries import SYSTEM_SOURCE
from sessions import people
from sessions.models import Membership, Project
from sessions.models_teams import Team, TeamMember
from sessions.records import record
from sessions.refused import RefusedError

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def teams_of(project: Project, user: User) -> set[str]:
    """Return the names of the teams of `project` that `user` belongs to now."""
    memberships = TeamMember.objects.filter(team__project=project, membership__user=user)
    return set(memberships.values_list("team__name", flat=True))


@transaction.atomic(savepoint=False)
def create(project: Project, name: str, *, actor: str = SYSTEM_SOURCE) -> Team:
    """Create an empty team. Raises RefusedError for an invalid or taken name."""
    if not _NAME.fullmatch(name):
        raise RefusedError("A team's name has 1 to 64 characters of a-z, 0-9 and hyphen.")
    try:
        with transaction.atomic():
            team = Team.objects.create(project=project, name=name)
    except IntegrityError as error:
        raise RefusedError(f"There is already a team called {name!r}.") from error
    record(
        project.id,
        "admin.team_created",
        actor=actor,
        subject=team.id,
        facts={},
        words={"name": name},
    )
    return team


@transaction.atomic(savepoint=False)
def add(team: Team, membership: Membership, *, actor: str = SYSTEM_SOURCE) -> None:
    """Add a member of the project to a team; repeating it changes nothing.

    Raises RefusedError for a member of another project.
    """
    if membership.project_id != team.project_id:
        raise RefusedError("Only members of the project can belong to its teams.")
    _, created = TeamMember.objects.get_or_create(
        project_id=team.project_id, team=team, membership=membership
    )
    if created:
        _record(team, membership, "admin.team_member_added", actor)


@transaction.atomic(savepoint=False)
def remove(team: Team, membership: Membership, *, actor: str = SYSTEM_SOURCE) -> None:
    """Remove a member from a team. Their votes stay on record."""
    if TeamMember.objects.filter(team=team, membership=membership).delete()[0]:
        _record(team, membership, "admin.team_member_removed", actor)


@transaction.atomic(savepoint=False)
def leave_all(membership: Membership, *, actor: str) -> None:
    """Remove a person who leaves the project from all its teams, recording each."""
    for team in Team.objects.filter(members__membership=membership).order_by("name"):
        remove(team, membership, actor=actor)


@transaction.atomic(savepoint=False)
def dissolve(team: Team, *, actor: str) -> None:
    """Delete a team and its memberships. Rules that name it then ask an empty team."""
    members = TeamMember.objects.select_related("membership__user").filter(team=team)
    for member in members.order_by("id"):
        remove(team, member.membership, actor=actor)
    record(
        team.project_id,
        "admin.team_removed",
        actor=actor,
        subject=team.id,
        facts={},
        words={"name": team.name},
    )
    team.delete()


def _record(team: Team, membership: Membership, kind: str, actor: str) -> None:
    facts = {"person": people.pseudonym_of(membership.user)}
    words = {"team": team.name, "username": membership.user.get_username(), **facts}
    record(team.project_id, kind, actor=actor, subject=team.id, facts=facts, words=words)
