"""Erases a person of the installation: first their rights and sign-ins, at the end their name.

The row stays with its pseudonym, which the journal and every reference need. Nothing remains that
leads from the pseudonym to the person.
"""

from django.contrib.auth.models import User
from django.db import transaction

from accounts import invitations, people
from accounts.models import Invitation, Membership, Person
from db.errors import ChangeRefused


def check_erasable_person(user: User) -> None:
    """Raise ChangeRefused for a person whom a project needs as its administrator."""
    project = people.find_dependent_project(user)
    if project is not None:
        raise ChangeRefused(
            f"This person is the last active administrator of {project.name}. Make another member"
            " an administrator first."
        )


@transaction.atomic
def end_person_access(user: User, *, actor: str) -> None:
    """Remove the person from every project, and deactivate the account. Repeating is harmless."""
    check_erasable_person(user)
    people.deactivate_user(user, actor=actor)
    for membership in Membership.objects.select_related("user", "project").filter(user=user):
        people.remove_project_member(membership, actor=actor)
    for invitation in Invitation.objects.filter(user=user).select_related("project"):
        invitations.cancel_invitation(invitation.project, invitation.pk, actor=actor)


@transaction.atomic
def erase_account(user: User) -> None:
    """Replace the account's names and mail address with the pseudonym."""
    people.anonymize_user(user, Person.objects.get(user=user).pseudonym)
