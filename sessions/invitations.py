"""The one writer of Invitation: somebody is asked into a project, and belongs to it from their own yes on.

Names belong to the whole installation. So inviting says nothing of whether a name is taken: a password is shown either
way, and a name that is taken keeps its own. Nobody can therefore take hold of a person of another project by adding
them, nor keep that project's administrators from resetting their password.
"""

from uuid import UUID

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet

from journal.entries import SYSTEM_SOURCE
from sessions import people
from sessions.models import Invitation, Membership, Project
from sessions.records import record
from sessions.refused import RefusedError


@transaction.atomic(savepoint=False)
def invite(project: Project, username: str, role: str, *, actor: str) -> str:
    """Ask the person called `username` to take a role in `project`; return the password to show. Raises RefusedError.

    Where nobody has the name, or nobody ever used it, it becomes its first password. Otherwise it opens nothing.
    """
    people.check_role(role)
    try:
        User._meta.get_field("username").run_validators(username)
    except ValidationError as error:
        raise RefusedError(" ".join(error.messages)) from error
    user = User.objects.select_for_update().filter(username=username).first()
    if user is not None and Membership.objects.filter(project=project, user=user).exists():
        raise RefusedError(f"{username} already belongs to {project.name}. Change the role instead.")
    if user is not None and Invitation.objects.filter(project=project, user=user).exists():
        raise RefusedError(f"{username} is invited to {project.name} already. Withdraw that invitation first.")
    password = people.generated_password()
    if user is None:
        user = people.create(username, password, actor=actor)
    elif _is_unused(user):
        people.give_first_password(user, password, actor=actor)
    else:
        make_password(password)  # as slow as the other ways, so that the time does not say whether the name is taken
    invitation = Invitation.objects.create(project=project, user=user, role=role, invited_by=actor)
    _record(invitation, "admin.member_invited", actor)
    return password


@transaction.atomic(savepoint=False)
def accept(invitation: UUID, user: User) -> Membership:
    """Join the project of an invitation to `user`. Raises RefusedError where it does not stand any more."""
    people.expect_own_password(user)
    found = _of(invitation, user)
    administrators = Membership.objects.filter(project=found.project, role="administrator")
    if (
        found.invited_by != SYSTEM_SOURCE
        and not administrators.filter(user__person__pseudonym=found.invited_by).exists()
    ):
        raise RefusedError(
            f"The person who invited you no longer administers {found.project.name}. Ask for a new invitation."
        )
    membership = people.add(found.project, user.get_username(), found.role, actor=found.invited_by)
    found.delete()
    return membership


@transaction.atomic(savepoint=False)
def decline(invitation: UUID, user: User) -> None:
    """Refuse an invitation to `user`. Raises RefusedError where it does not stand any more."""
    found = _of(invitation, user)
    _record(found, "admin.invitation_declined", people.pseudonym_of(user))
    found.delete()


@transaction.atomic(savepoint=False)
def withdraw(project: Project, invitation: UUID, *, actor: str) -> str:
    """Take an invitation back; return the name that was invited. Raises RefusedError where it does not stand."""
    found = Invitation.objects.select_for_update(of=("self",)).filter(project=project, pk=invitation).first()
    if found is None:
        raise RefusedError("This invitation was accepted, declined or withdrawn. Load the page again.")
    _record(found, "admin.invitation_withdrawn", actor)
    found.delete()
    return found.user.get_username()


def of_person(user: User) -> "QuerySet[Invitation]":
    """The invitations that wait for `user`."""
    return Invitation.objects.filter(user=user).select_related("project").order_by("created_at")


def _is_unused(user: User) -> bool:
    """True for an account that nobody signed in with, that belongs nowhere and was asked nowhere else."""
    if user.last_login is not None or user.is_superuser or people.has_own_password(user):
        return False
    return not user.memberships.exists() and not Invitation.objects.filter(user=user).exists()


def _of(invitation: UUID, user: User) -> Invitation:
    waiting = Invitation.objects.select_for_update(of=("self",)).filter(user=user, pk=invitation)
    found = waiting.select_related("project").first()
    if found is None:
        raise RefusedError("This invitation was withdrawn, or you answered it before.")
    return found


def _record(invitation: Invitation, kind: str, actor: str) -> None:
    # No pseudonym: until they join, the project learns of the person no more than the name that it wrote.
    record(
        invitation.project_id,
        kind,
        actor=actor,
        subject=invitation.id,
        facts={"role": invitation.role},
        words={"username": invitation.user.get_username(), "role": invitation.role},
    )
