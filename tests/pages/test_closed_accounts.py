"""Closing the account of a person who leaves, and opening it again."""

import json
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session as SignIn
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from accounts import people, projects
from accounts.models import Membership
from db.errors import ChangeRefused
from erasure import person_erasure
from journal.models import Body, Entry
from tests.journal.committed import committed, together
from tests.pages.people import PASSWORD, Organization, build, signed_in

__all__ = ["committed"]

pytestmark = pytest.mark.django_db


def run_command(name: str, username: str) -> str:
    out = StringIO()
    call_command(name, username, stdout=out)
    return out.getvalue().strip()


def sign_in(username: str) -> bool:
    """Return True if the person can sign in with the password that they have."""
    client = Client()
    client.post(reverse("sign_in"), {"username": username, "password": PASSWORD})
    return client.get("/sessions/").status_code == 200


def test_a_closed_account_is_signed_out_everywhere(organization: Organization) -> None:
    browsers = [organization.client("viewer"), organization.client("viewer")]
    other = organization.client("reviewer")
    assert all(browser.get("/sessions/").status_code == 200 for browser in [*browsers, other])
    assert run_command("close_account", "viewer") == (
        "The account of viewer is closed. Sign-ins that ended: 2."
    )
    assert [browser.get("/sessions/").status_code for browser in browsers] == [302, 302]
    assert other.get("/sessions/").status_code == 200
    assert not sign_in("viewer")
    page = organization.client("administrator").get(reverse("people")).text
    assert page.count("account closed") == 1
    # A browser of before does not come back with the account; the password and the role do.
    assert run_command("open_account", "viewer") == "The account of viewer is open."
    assert [browser.get("/sessions/").status_code for browser in browsers] == [302, 302]
    assert sign_in("viewer")
    assert Membership.objects.get(user__username="viewer").role == "viewer"
    page = organization.client("administrator").get(reverse("people")).text
    assert "account closed" not in page


def test_a_sign_in_that_was_stored_too_late_is_refused(organization: Organization) -> None:
    people.close_account("viewer")
    signed_in("viewer")
    assert organization.client("viewer").get("/sessions/").status_code == 302
    assert SignIn.objects.exists()


def test_each_project_of_the_person_records_it(organization: Organization) -> None:
    elsewhere = people.add_project_member(organization.other, "viewer", "reviewer")
    member = organization.members["viewer"]
    pseudonym = people.ensure_pseudonym(member.user)
    people.close_account("viewer")
    people.open_account("viewer", actor="p_1")
    for kind, actor in (("admin.account_closed", "gatebook"), ("admin.account_opened", "p_1")):
        entries = Entry.objects.filter(kind=kind)
        assert {(entry.project, entry.subject, entry.actor) for entry in entries} == {
            (organization.project.id, member.id, actor),
            (organization.other.id, elsewhere.id, actor),
        }
        for entry in entries:
            account = people.digest_account(pseudonym, member.user_id)
            assert json.loads(entry.facts) == {"person": pseudonym, "account": account}
            assert json.loads(Body.objects.get(entry=entry).text)["username"] == "viewer"


def test_without_a_project_the_oldest_one_records_it_without_the_name(
    organization: Organization,
) -> None:
    zoe = User.objects.create(username="zoe")
    people.close_account("zoe", actor="p_1")
    entry = Entry.objects.get(kind="admin.account_closed")
    assert (entry.project, entry.subject) == (projects.load_oldest_project(), None)
    assert (entry.actor, json.loads(entry.facts)["person"]) == (
        "gatebook",
        people.ensure_pseudonym(zoe),
    )
    assert "zoe" not in Body.objects.get(entry=entry).text


def test_what_cannot_be_closed_or_opened_is_refused(organization: Organization) -> None:
    def refuse(name: str, username: str, sentence: str) -> None:
        before = list(User.objects.order_by("pk").values_list("pk", "is_active"))
        entries = Entry.objects.count()
        with pytest.raises(CommandError, match=sentence):
            run_command(name, username)
        assert list(User.objects.order_by("pk").values_list("pk", "is_active")) == before
        assert Entry.objects.count() == entries

    refuse("close_account", "nemo", "There is no person 'nemo'")
    refuse("open_account", "nemo", "There is no person 'nemo'")
    refuse("open_account", "viewer", "The account of viewer is open already")
    run_command("close_account", "viewer")
    refuse("close_account", "viewer", "The account of viewer is closed already")
    with pytest.raises(CommandError, match=r"viewer is closed\. Open it first"):
        call_command("create_project", "third", administrator="viewer")
    assert projects.find_project("third") is None
    refuse("close_account", "neighbour", "neighbour is the last active administrator of payments")
    people.add_project_member(organization.other, "administrator", "administrator")
    run_command("close_account", "neighbour")
    refuse("close_account", "administrator", "the last active administrator of default")


def test_a_closed_administrator_is_no_other_administrator(organization: Organization) -> None:
    people.add_project_member(organization.project, "second", "administrator", PASSWORD)
    people.close_account("second")
    member = organization.members["administrator"]
    with pytest.raises(ChangeRefused, match="last active administrator"), transaction.atomic():
        people.change_project_role(member, "viewer", actor="gatebook")
    with pytest.raises(ChangeRefused, match="last active administrator"):
        person_erasure.check_erasable_person(member.user)
    people.open_account("second")
    people.change_project_role(member, "viewer", actor="gatebook")
    # No project depends on an administrator who is closed already.
    people.add_project_member(organization.project, "third", "administrator", PASSWORD)
    people.close_account("second")
    person_erasure.check_erasable_person(User.objects.get(username="second"))


def test_one_active_administrator_stays_whatever_happens_at_once(
    committed: None, settings: Settings
) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    organization = build()
    first = organization.members["administrator"]
    second = people.add_project_member(organization.project, "second", "administrator", PASSWORD)

    def demote() -> None:
        people.change_project_role(first, "viewer", actor="gatebook")

    def close_first() -> None:
        people.close_account("administrator")

    def close_second() -> None:
        people.close_account("second")

    for _round in range(5):
        for other in (close_first, demote):
            results = together(close_second, other)
            assert results.count(None) == 1, results
            assert [type(error) for error in results if error is not None] == [ChangeRefused]
            active = Membership.objects.filter(role="administrator", user__is_active=True)
            assert active.filter(project=organization.project).count() == 1
            for member in (first, second):
                member.refresh_from_db()
                if not User.objects.get(pk=member.user_id).is_active:
                    people.open_account(member.user.username)
                people.change_project_role(member, "administrator", actor="gatebook")


def test_an_erasure_closes_the_account_for_good(organization: Organization) -> None:
    viewer, member = organization.members["viewer"].user, organization.members["viewer"]
    for _ in range(2):  # the job may begin again
        person_erasure.end_person_access(viewer, actor="p_1")
    entry = Entry.objects.get(kind="admin.account_closed")
    assert (entry.project, entry.subject, entry.actor) == (
        organization.project.id,
        member.id,
        "p_1",
    )
    with pytest.raises(CommandError, match="viewer was erased"):
        run_command("open_account", "viewer")
    person_erasure.erase_account(viewer)
    pseudonym = people.ensure_pseudonym(viewer)
    User.objects.filter(pk=viewer.pk).update(password="md5$salt$0")
    with pytest.raises(CommandError, match=f"{pseudonym} was erased"):
        run_command("open_account", pseudonym)
    # An account that was closed before needs no second entry.
    people.close_account("reviewer")
    person_erasure.end_person_access(organization.members["reviewer"].user, actor="p_1")
    assert Entry.objects.filter(kind="admin.account_closed").count() == 2
