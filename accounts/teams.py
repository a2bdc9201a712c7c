"""The one writer of Team and TeamMember, which rules can ask for approval."""

import re
from collections.abc import Sequence
from typing import Final

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from accounts import people
from accounts.audit_log import record_admin_entry
from accounts.models import Membership, Project, Team, TeamMember
from db.errors import ChangeRefused
from db.row_changes import RowChange, write_row_changes
from journal.entries import SYSTEM_SOURCE

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def load_team_names(project: Project, user: User) -> set[str]:
    """Return the names of the teams of `project` that `user` belongs to now."""
    memberships = TeamMember.objects.filter(team__project=project, membership__user=user)
    return set(memberships.values_list("team__name", flat=True))


@transaction.atomic(savepoint=False)
def create_team(project: Project, name: str, *, actor: str = SYSTEM_SOURCE) -> Team:
    """Create an empty team. Raises ChangeRefused for an invalid or taken name."""
    if not _NAME.fullmatch(name):
        raise ChangeRefused("A team's name has 1 to 64 characters of a-z, 0-9 and hyphen.")
    try:
        with transaction.atomic():
            team = Team.objects.create(project=project, name=name)
    except IntegrityError as error:
        raise ChangeRefused(f"There is already a team called {name!r}.") from error
    record_admin_entry(
        project.id,
        "admin.team_created",
        actor=actor,
        subject=team.id,
        facts={},
        words={"name": name},
    )
    return team


@transaction.atomic(savepoint=False)
def add_team_member(team: Team, membership: Membership, *, actor: str = SYSTEM_SOURCE) -> None:
    """Add a member of the project to a team; repeating it changes nothing.

    Raises ChangeRefused for a member of another project.
    """
    if membership.project_id != team.project_id:
        raise ChangeRefused("Only members of the project can belong to its teams.")
    _lock_team(team)
    if not TeamMember.objects.filter(team=team, membership=membership).exists():
        _record(team, membership, "admin.team_member_added", actor)
        TeamMember.objects.create(project_id=team.project_id, team=team, membership=membership)


@transaction.atomic(savepoint=False)
def remove_team_member(team: Team, membership: Membership, *, actor: str = SYSTEM_SOURCE) -> None:
    """Remove a member from a team. Their votes stay on record."""
    _lock_team(team)
    members = TeamMember.objects.filter(team=team, membership=membership)
    if members.exists():
        _record(team, membership, "admin.team_member_removed", actor)
        members.delete()


@transaction.atomic(savepoint=False)
def remove_from_all_teams(membership: Membership, *, actor: str) -> None:
    """Remove a person who leaves the project from all its teams, recording each."""
    for team in Team.objects.filter(members__membership=membership).order_by("name"):
        remove_team_member(team, membership, actor=actor)


@transaction.atomic(savepoint=False)
def delete_team(team: Team, *, actor: str) -> None:
    """Delete a team and its memberships. Rules that name it then ask an empty team."""
    members = TeamMember.objects.select_related("membership__user").filter(team=team)
    for member in members.order_by("id"):
        remove_team_member(team, member.membership, actor=actor)
    record_admin_entry(
        team.project_id,
        "admin.team_removed",
        actor=actor,
        subject=team.id,
        facts={},
        words={"name": team.name},
    )
    team.delete()


def restore_teams(changes: Sequence[RowChange]) -> None:
    """Restore teams to what the journal gives (manage.py rebuild)."""
    write_row_changes(Team, changes)


def restore_team_members(changes: Sequence[RowChange]) -> None:
    """Restore teams' members to what the journal gives (manage.py rebuild)."""
    write_row_changes(TeamMember, changes)


def _lock_team(team: Team) -> None:
    """Serialize changes of a team's members, each of which follows its entry."""
    Team.objects.select_for_update().only("id").filter(pk=team.pk).first()


def _record(team: Team, membership: Membership, kind: str, actor: str) -> None:
    facts = {"person": people.ensure_pseudonym(membership.user)}
    words = {"team": team.name, "username": membership.user.get_username(), **facts}
    record_admin_entry(
        team.project_id, kind, actor=actor, subject=team.id, facts=facts, words=words
    )
