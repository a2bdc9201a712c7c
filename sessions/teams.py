"""The one writer of Team and TeamMember: named groups of a project's members, whom rules may ask for leave."""

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
    """The names of the teams of `project` that `user` belongs to now."""
    named = TeamMember.objects.filter(team__project=project, membership__user=user)
    return set(named.values_list("team__name", flat=True))


@transaction.atomic(savepoint=False)
def create(project: Project, name: str, *, actor: str = SYSTEM_SOURCE) -> Team:
    """Create a team of nobody. Raises RefusedError for a name that rules cannot write, or that is taken."""
    if not _NAME.fullmatch(name):
        raise RefusedError("A team's name is 1 to 64 of a-z, 0-9 and -, as rules write it.")
    try:
        with transaction.atomic():
            team = Team.objects.create(project=project, name=name)
    except IntegrityError as error:
        raise RefusedError(f"There is already a team called {name!r}.") from error
    record(project.id, "admin.team_created", actor=actor, subject=team.id, facts={}, words={"name": name})
    return team


@transaction.atomic(savepoint=False)
def add(team: Team, membership: Membership, *, actor: str = SYSTEM_SOURCE) -> None:
    """Put a member of the project into a team; repeating it changes nothing. Raises RefusedError for a stranger."""
    if membership.project_id != team.project_id:
        raise RefusedError("Only members of the project can belong to its teams.")
    _, made = TeamMember.objects.get_or_create(project_id=team.project_id, team=team, membership=membership)
    if made:
        _record(team, membership, "admin.team_member_added", actor)


@transaction.atomic(savepoint=False)
def remove(team: Team, membership: Membership, *, actor: str = SYSTEM_SOURCE) -> None:
    """Take a member out of a team; what they voted stays on record."""
    if TeamMember.objects.filter(team=team, membership=membership).delete()[0]:
        _record(team, membership, "admin.team_member_removed", actor)


@transaction.atomic(savepoint=False)
def leave_all(membership: Membership, *, actor: str) -> None:
    """Take a person who is leaving the project out of every team of it; each is recorded."""
    for team in Team.objects.filter(members__membership=membership).order_by("name"):
        remove(team, membership, actor=actor)


@transaction.atomic(savepoint=False)
def dissolve(team: Team, *, actor: str) -> None:
    """Remove a team and everybody from it. Rules that name it then ask people who are not there."""
    for one in TeamMember.objects.select_related("membership__user").filter(team=team).order_by("id"):
        remove(team, one.membership, actor=actor)
    record(team.project_id, "admin.team_removed", actor=actor, subject=team.id, facts={}, words={"name": team.name})
    team.delete()


def _record(team: Team, membership: Membership, kind: str, actor: str) -> None:
    facts = {"person": people.pseudonym_of(membership.user)}
    words = {"team": team.name, "username": membership.user.get_username(), **facts}
    record(team.project_id, kind, actor=actor, subject=team.id, facts=facts, words=words)
