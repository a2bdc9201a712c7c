"""The one writer of Invitation: people join a project only when they accept.

Usernames belong to the whole installation, and inviting does not reveal whether a name is taken: a
password is shown either way, and an existing account keeps its own. So administrators can neither
take over a person of another project by adding them, nor keep that project's administrators from
resetting the person's password.
"""

from collections.abc import Sequence
from uuid import UUID

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet

from accounts import people
from accounts.audit_log import record_admin_entry
from accounts.models import Invitation, Membership, Project
from db.errors import ChangeRefused
from db.row_changes import RowChange, write_row_changes
from journal.entries import SYSTEM_SOURCE, keyed_digest


@transaction.atomic(savepoint=False)
def invite_person(project: Project, username: str, role: str, *, actor: str) -> str:
    """Invite the person called `username` to a role; return the password to show.

    Where the account is new or unused, this becomes its first password. Otherwise the password
    opens nothing. Raises ChangeRefused.
    """
    people.check_role(role)
    try:
        User._meta.get_field("username").run_validators(username)
    except ValidationError as error:
        raise ChangeRefused(" ".join(error.messages)) from error
    user = User.objects.select_for_update().filter(username=username).first()
    if user is not None and Membership.objects.filter(project=project, user=user).exists():
        raise ChangeRefused(
            f"{username} already belongs to {project.name}. Change the role instead."
        )
    if user is not None and Invitation.objects.filter(project=project, user=user).exists():
        raise ChangeRefused(
            f"{username} is invited to {project.name} already. Withdraw that invitation first."
        )
    password = people.generate_password()
    if user is None:
        user = people.create_user(project, username, password, actor=actor, is_invited=True)
        stored = user.password
    elif _is_unused(user):
        people.give_first_password(user, password, actor=actor)
        stored = user.password
    else:  # as slow as the other branches and recorded alike, to hide whether the name is taken
        stored = make_password(password)
    invitation = Invitation(project=project, user=user, role=role, invited_by=actor)
    # The entry comes first: guards refuse a role without one (account_guards.py).
    _record(invitation, "admin.member_invited", actor, password=people.digest_password(stored))
    invitation.save(force_insert=True)
    return password


@transaction.atomic(savepoint=False)
def accept_invitation(invitation: UUID, user: User) -> Membership:
    """Join the project of an invitation to `user`. Raises ChangeRefused if it is gone."""
    people.require_own_password(user)
    stored = _lock_invitation(invitation, user)
    administrators = Membership.objects.filter(project=stored.project, role="administrator")
    if (
        stored.invited_by != SYSTEM_SOURCE
        and not administrators.filter(user__person__pseudonym=stored.invited_by).exists()
    ):
        raise ChangeRefused(
            f"The person who invited you no longer administers {stored.project.name}."
            " Ask for a new invitation."
        )
    membership = people.add_project_member(
        stored.project,
        user.get_username(),
        stored.role,
        actor=stored.invited_by,
        invitation=stored.id,
    )
    stored.delete()
    return membership


@transaction.atomic(savepoint=False)
def decline_invitation(invitation: UUID, user: User) -> None:
    """Decline an invitation to `user`. Raises ChangeRefused if it is gone."""
    stored = _lock_invitation(invitation, user)
    _record(stored, "admin.invitation_declined", people.ensure_pseudonym(user))
    stored.delete()


@transaction.atomic(savepoint=False)
def cancel_invitation(project: Project, invitation: UUID, *, actor: str) -> str:
    """Withdraw an invitation; return its name. Raises ChangeRefused if it is gone."""
    stored = (
        Invitation.objects.select_for_update(of=("self",))
        .filter(project=project, pk=invitation)
        .first()
    )
    if stored is None:
        raise ChangeRefused("This invitation was accepted, declined or withdrawn. Reload the page.")
    _record(stored, "admin.invitation_withdrawn", actor)
    stored.delete()
    return stored.user.get_username()


def digest_invited_account(invitation: UUID, user: int) -> str:
    """Return the journal's keyed digest of the account that an invitation is for."""
    return keyed_digest("invited", invitation.hex, str(user))


def query_invitations(user: User) -> "QuerySet[Invitation]":
    """Return the open invitations of `user`."""
    return Invitation.objects.filter(user=user).select_related("project").order_by("created_at")


def restore_invitations(changes: Sequence[RowChange]) -> None:
    """Restore invitations to what the journal gives (manage.py rebuild)."""
    write_row_changes(Invitation, changes)


def _is_unused(user: User) -> bool:
    """Return True for an account without sign-in, project, own password or invitation."""
    if user.last_login is not None or user.is_superuser or people.has_own_password(user):
        return False
    return not user.memberships.exists() and not Invitation.objects.filter(user=user).exists()


def _lock_invitation(invitation: UUID, user: User) -> Invitation:
    waiting = Invitation.objects.select_for_update(of=("self",)).filter(user=user, pk=invitation)
    stored = waiting.select_related("project").first()
    if stored is None:
        raise ChangeRefused("This invitation was withdrawn or already answered. Reload the page.")
    return stored


def _record(invitation: Invitation, kind: str, actor: str, **facts: str) -> None:
    # No pseudonym: until they join, the project knows only the name that it entered. The digest
    # is another one in each invitation.
    account = digest_invited_account(invitation.id, invitation.user_id)
    record_admin_entry(
        invitation.project_id,
        kind,
        actor=actor,
        subject=invitation.id,
        facts={"role": invitation.role, "account": account, **facts},
        words={"username": invitation.user.get_username(), "role": invitation.role},
    )
