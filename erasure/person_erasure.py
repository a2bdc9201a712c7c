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
    for membership in Membership.objects.filter(user=user, role="administrator"):
        others = Membership.objects.filter(project=membership.project, role="administrator")
        if not others.exclude(user=user).exists():
            raise ChangeRefused(
                f"This person is the last administrator of {membership.project.name}. Make another"
                " member an administrator first."
            )


@transaction.atomic
def end_person_access(user: User, *, actor: str) -> None:
    """Remove the person from every project, and deactivate the account. Repeating is harmless."""
    check_erasable_person(user)
    for membership in Membership.objects.select_related("user", "project").filter(user=user):
        people.remove_project_member(membership, actor=actor)
    for invitation in Invitation.objects.filter(user=user).select_related("project"):
        invitations.cancel_invitation(invitation.project, invitation.pk, actor=actor)
    people.deactivate_user(user)


@transaction.atomic
def erase_account(user: User) -> None:
    """Replace the account's names and mail address with the pseudonym."""
    people.anonymize_user(user, Person.objects.get(user=user).pseudonym)
