"""Invitations: accounts stay private, and people become members only by accepting."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from accounts import invitations, people
from accounts.models import Invitation, Membership, Person
from db.errors import ChangeRefused
from db.triggers import suspend_triggers
from journal.models import Body, Entry
from tests.pages.people import PASSWORD, Organization
from tests.pages.test_own_password import NEW, change, sign_in
from tests.pages.test_people_passwords import SHOWN, reset
from tests.rows_with_entries import mark_own_password

CHANGING = re.compile(
    r'csrfmiddlewaretoken" '
    r'value="\w+"|<output>[^<]*</output>|<time[\s\S]*?</time>|[0-9a-f]{8}-[0-9a-f-]{27}'
    r"|Last entry #[\d\u202f\xa0]+",
    re.DOTALL,
)


def invite(
    organization: Organization, name: str, role: str = "viewer", by: str = "administrator"
) -> str:
    """Invite a person by the page; return the page that shows the password."""
    client = organization.client(by)
    assert client.post(reverse("people"), {"username": name, "role": role}).status_code == 302
    return client.get(reverse("people")).text


def password_on(page: str) -> str:
    shown = SHOWN.search(page)
    assert shown is not None
    return shown[1]


def answer(client: Client, verb: str, user: str) -> Any:
    identity = Invitation.objects.filter(user__username=user).values_list("id", flat=True).first()
    return client.post(
        reverse("invitations"), {"invitation": str(identity), "do": verb}, follow=True
    )


def test_the_pages_do_not_reveal_whether_a_name_has_an_account(organization: Organization) -> None:
    new = invite(organization, "aaaa-bbbb")
    with suspend_triggers(connection, ["accounts_invitation"]):
        Invitation.objects.all().delete()
    existing = invite(organization, "neighbour")
    assert "is invited</h2>" in new
    assert CHANGING.sub("", new).replace("aaaa-bbbb", "NAME") == CHANGING.sub("", existing).replace(
        "neighbour", "NAME"
    )
    entries = [
        (
            # The digests are keyed, and others in each invitation.
            re.sub(r'"(account|password)":"[0-9a-f]{32}"', "", entry.facts),
            Body.objects.get(entry=entry)
            .text.replace("aaaa-bbbb", "NAME")
            .replace("neighbour", "NAME"),
        )
        for entry in Entry.objects.filter(kind="admin.member_invited").order_by("position")
    ]
    assert entries[0] == entries[1]
    assert people.ensure_pseudonym(organization.neighbour.user) not in existing


def test_an_existing_person_keeps_the_password_and_joins_only_by_accepting(
    organization: Organization,
) -> None:
    shown = password_on(invite(organization, "neighbour", "reviewer"))
    assert not organization.neighbour.user.check_password(shown)
    assert User.objects.get(username="neighbour").check_password(PASSWORD)
    assert Person.objects.get(user=organization.neighbour.user).password_is_own
    client = organization.client("neighbour")
    page = client.get("/", follow=True).text
    assert "You are invited as <b>reviewer</b>" in page
    assert not Membership.objects.filter(
        project=organization.project, user=organization.neighbour.user
    ).exists()
    assert "You joined default as reviewer." in answer(client, "accept", "neighbour").text
    assert (
        Membership.objects.get(project=organization.project, user=organization.neighbour.user).role
        == "reviewer"
    )
    assert not Invitation.objects.exists()
    entry = Entry.objects.get(
        kind="admin.member_added",
        project=organization.project.id,
        subject__isnull=False,
        facts__contains=people.ensure_pseudonym(organization.neighbour.user),
    )
    assert entry.actor == people.ensure_pseudonym(organization.members["administrator"].user)


def test_an_invitation_to_another_project_does_not_block_a_password_reset(
    organization: Organization,
) -> None:
    invite(organization, "viewer", by="neighbour")
    page = (
        organization.client("administrator").post(reset(organization, "viewer"), follow=True).text
    )
    assert "New password of viewer" in page
    assert "payments" not in page
    assert Entry.objects.filter(kind="admin.password_reset").exists()


def test_a_new_person_joins_after_replacing_the_first_password(organization: Organization) -> None:
    shown = password_on(invite(organization, "zoe", "operator"))
    client = sign_in("zoe", shown)
    assert client.get(reverse("invitations"))["Location"] == reverse("password")
    assert answer(client, "accept", "zoe").redirect_chain[-1][0] == reverse("password")
    user = User.objects.get(username="zoe")
    with (
        pytest.raises(ChangeRefused, match="Another person set your password"),
        transaction.atomic(),
    ):
        invitations.accept_invitation(Invitation.objects.get().pk, user)
    assert change(client, shown, NEW).status_code == 302
    answer(client, "accept", "zoe")
    assert client.get("/sessions/").status_code == 200
    assert Membership.objects.get(user=user).role == "operator"


def test_a_declined_invitation_makes_no_member(organization: Organization) -> None:
    invite(organization, "neighbour")
    assert "You declined" in answer(organization.client("neighbour"), "decline", "neighbour").text
    assert not Invitation.objects.exists()
    assert Membership.objects.filter(user=organization.neighbour.user).count() == 1
    declined = Entry.objects.get(kind="admin.invitation_declined")
    assert declined.actor == people.ensure_pseudonym(organization.neighbour.user)


@pytest.mark.parametrize("verb", ["accept", "decline"])
def test_an_invitation_of_another_person_cannot_be_answered(
    organization: Organization, verb: str
) -> None:
    invite(organization, "neighbour", "administrator")
    page = answer(organization.client("viewer"), verb, "neighbour").text
    assert "This invitation was withdrawn or already answered." in page
    assert Invitation.objects.count() == 1
    assert (
        Membership.objects.get(project=organization.project, user__username="viewer").role
        == "viewer"
    )


def test_a_withdrawn_invitation_is_gone_and_a_first_password_can_be_reissued(
    organization: Organization,
) -> None:
    first = password_on(invite(organization, "zoe"))
    client = organization.client("administrator")
    again = client.post(reverse("people"), {"username": "zoe", "role": "viewer"})
    assert (again.status_code, "is invited to default already" in again.text) == (422, True)
    url = reverse("withdraw_invitation", args=[Invitation.objects.get().pk])
    assert organization.client("operator").post(url).status_code == 403
    assert organization.client("neighbour").post(url).status_code == 404
    assert "The invitation of zoe is withdrawn." in client.post(url, follow=True).text
    second = password_on(invite(organization, "zoe"))
    user = User.objects.get(username="zoe")
    assert user.check_password(second)
    assert not user.check_password(first)


def test_an_invitation_ends_with_the_rights_of_the_inviter(organization: Organization) -> None:
    people.add_project_member(organization.project, "boss", "administrator", PASSWORD)
    invite(organization, "neighbour", by="boss")
    with transaction.atomic():
        people.change_project_role(
            Membership.objects.get(user__username="boss"), "viewer", actor="gatebook"
        )
    page = answer(organization.client("neighbour"), "accept", "neighbour").text
    assert "no longer administers default" in page
    assert not Membership.objects.filter(
        project=organization.project, user=organization.neighbour.user
    ).exists()


def test_a_person_without_a_project_sees_their_invitations(organization: Organization) -> None:
    assert Client().get(reverse("invitations"))["Location"].startswith("/sign-in/")
    lost = User.objects.create_user("lost", password=PASSWORD)
    mark_own_password(lost)
    client = organization.client("lost")
    assert reverse("invitations") in client.get("/sessions/").text
    assert "You have no open invitations." in client.get(reverse("invitations")).text
