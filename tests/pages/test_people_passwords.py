"""Password resets by administrators: who may reset, what ends, and what is kept."""

import json
import re

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session as SignIn
from django.urls import reverse

from accounts import people
from journal.models import Body, Entry
from tests.pages.people import PASSWORD, Organization

SHOWN = re.compile(r"<output>((?:\w{6}-){3}\w{6})</output>")


def reset(organization: Organization, role: str) -> str:
    return reverse("reset_password", args=[organization.members[role].pk])


def test_the_new_password_is_shown_once_and_every_sign_in_with_the_old_one_ends(
    organization: Organization,
) -> None:
    administrator, viewer = organization.client("administrator"), organization.client("viewer")
    assert viewer.get("/sessions/").status_code == 200
    assert "Give viewer a new password?" in administrator.get(reset(organization, "viewer")).text
    assert User.objects.get(username="viewer").check_password(PASSWORD), "asking changes nothing"
    answer = administrator.post(reset(organization, "viewer"))
    assert (answer.status_code, answer["Location"]) == (302, reverse("people"))
    stored = SignIn.objects.get(session_key=administrator.session.session_key).get_decoded()
    page = administrator.get(reverse("people")).text
    shown = SHOWN.search(page)
    assert shown is not None
    assert "New password of viewer" in page
    assert shown[1] not in str(stored)
    assert SHOWN.search(administrator.get(reverse("people")).text) is None
    assert viewer.get("/sessions/").status_code == 302
    user = User.objects.get(username="viewer")
    assert user.check_password(shown[1])
    assert not user.check_password(PASSWORD)
    entry = Entry.objects.get(kind="admin.password_reset")
    assert entry.actor == people.ensure_pseudonym(organization.members["administrator"].user)
    facts = json.loads(entry.facts)
    assert facts["person"] == people.ensure_pseudonym(user)
    assert facts["password"] == people.digest_password(user.password)
    assert shown[1] not in Body.objects.get(entry=entry).text


def test_the_own_password_cannot_be_reset(organization: Organization) -> None:
    administrator = organization.client("administrator")
    answer = administrator.post(reset(organization, "administrator"), follow=True)
    assert "Change your password under your name" in answer.text
    assert User.objects.get(username="administrator").check_password(PASSWORD)
    assert reset(organization, "administrator") not in answer.text
    assert reset(organization, "viewer") in answer.text


@pytest.mark.parametrize("administers_both", [False, True])
def test_a_password_reset_gives_no_access_to_another_project(
    organization: Organization, administers_both: bool
) -> None:
    """Allow a reset only to an administrator of all projects of the person.

    A reset allows signing in as the person.
    """
    people.add_project_member(organization.other, "viewer", "administrator")
    if administers_both:
        people.add_project_member(organization.other, "administrator", "administrator")
    answer = organization.client("administrator").post(reset(organization, "viewer"), follow=True)
    kept = User.objects.get(username="viewer").check_password(PASSWORD)
    assert kept != administers_both
    assert (
        "also belongs to a project that you do not administer" in answer.text
    ) != administers_both
    assert Entry.objects.filter(kind="admin.password_reset").exists() == administers_both
