"""A password set by another person must be replaced, and proves nothing until then."""

import json
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.hashers import check_password
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import Error, connection, transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, reverse

from accounts import people, projects
from accounts.models import Membership, Person
from approvals import exemptions
from config.urls import urlpatterns
from db.clock import now_us
from db.errors import ChangeRefused
from journal.models import Body, Entry
from tests.approvals.confirm_helpers import proved
from tests.matrices import keep_core
from tests.pages.people import PASSWORD, Organization
from tests.pages.test_people_passwords import SHOWN, reset

NEW = "orbit-lantern-slate-43"
OPEN = {"healthz", "readyz", "metrics", "sign-in/", "sign-out/", "settings/password/"}


def routes(patterns: Any = urlpatterns, before: str = "") -> Iterator[tuple[str, URLPattern]]:
    for pattern in patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, route)
        else:
            yield route, pattern


def address(route: str) -> str:
    """Return a URL of `route` with an example value for each argument."""
    kinds = {"uuid": str(UUID(int=7)), "int": "7", "slug": "a", "str": "a", "path": "a"}
    return "/" + re.sub(r"<(?:(\w+):)?\w+>", lambda match: kinds.get(match[1] or "str", "a"), route)


def reset_password(organization: Organization, role: str = "reviewer") -> str:
    """Reset the password of the person with `role`; return the password shown."""
    administrator = organization.client("administrator")
    administrator.post(reset(organization, role))
    shown = SHOWN.search(administrator.get(reverse("people")).text)
    assert shown is not None
    return shown[1]


def sign_in(name: str, password: str) -> Client:
    client = Client()
    assert client.post("/sign-in/", {"username": name, "password": password}).status_code == 302
    return client


def change(client: Client, old: str, new: str) -> Any:
    fields = {"old_password": old, "new_password1": new, "new_password2": new}
    return client.post("/settings/password/", fields)


@pytest.mark.parametrize("role", keep_core(["reviewer", "administrator"], ["reviewer"]))
def test_every_page_redirects_to_the_password_form_until_it_is_replaced(
    organization: Organization, role: str
) -> None:
    Person.objects.filter(user=organization.members[role].user).update(password_is_own=False)
    client = organization.client(role)
    entries = Entry.objects.count()
    checked = 0
    for route, _ in routes():
        if route in OPEN:
            continue
        # The same middleware redirects every method.
        for method in ("get", "post", *(() if checked % 10 else ("head", "put", "delete"))):
            answer = getattr(client, method)(address(route))
            assert (answer.status_code, answer["Location"]) == (302, "/settings/password/"), (
                method,
                route,
            )
        checked += 1
    assert checked > 80
    assert client.get("/nowhere/").status_code == 302
    assert Entry.objects.count() == entries
    page = client.get("/settings/password/").text
    assert "Choose your own password" in page
    assert organization.project.name not in page


def test_a_first_password_is_replaced_before_anything_else(organization: Organization) -> None:
    administrator = organization.client("administrator")
    administrator.post(reverse("people"), {"username": "zoe", "role": "reviewer"})
    shown = SHOWN.search(administrator.get(reverse("people")).text)
    assert shown is not None
    client = sign_in("zoe", shown[1])
    assert client.get("/", follow=True).redirect_chain[-1][0] == "/settings/password/"
    page = client.get("/settings/password/").text
    assert "<b>administrator</b> set your current password" in page
    same = change(client, shown[1], shown[1])
    assert "This is your current password. Choose another." in same.text
    assert client.get("/help/").status_code == 302
    answer = change(client, shown[1], NEW)
    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert client.get("/")["Location"] == reverse("invitations")
    assert client.get("/help/").status_code == 200
    assert sign_in("zoe", NEW).get("/help/").status_code == 200


def test_a_reset_names_its_author_and_its_password_only_opens_the_form(
    organization: Organization,
) -> None:
    shown = reset_password(organization)
    client = sign_in("reviewer", shown)
    assert client.get("/sessions/")["Location"] == "/settings/password/"
    assert (
        "<b>administrator</b> set your current password" in client.get("/settings/password/").text
    )
    assert change(client, shown, NEW).status_code == 302
    assert client.get("/sessions/").status_code == 200
    page = client.get("/settings/password/").text
    assert "administrator set a password for you" in page
    assert "You have replaced it since" in page
    kinds = list(
        Entry.objects.filter(kind__startswith="admin.password")
        .exclude(kind="admin.password_given")
        .order_by("position")
        .values_list("kind", "actor")
    )
    person = people.ensure_pseudonym(organization.members["reviewer"].user)
    by = people.ensure_pseudonym(organization.members["administrator"].user)
    assert kinds == [("admin.password_reset", by), ("admin.password_changed", person)]


def test_an_own_password_without_a_project_does_not_name_the_person(
    organization: Organization,
) -> None:
    projects.create_archive("imported", UUID(int=1))
    with transaction.atomic():
        people.create_user(organization.other, "newcomer", PASSWORD, actor="tests")
    client = sign_in("newcomer", PASSWORD)
    assert change(client, PASSWORD, NEW).status_code == 302
    assert people.has_own_password(User.objects.get(username="newcomer"))
    entry = Entry.objects.get(kind="admin.password_changed")
    first, _ = sorted((organization.project.id, organization.other.id))
    assert (entry.project, entry.actor) == (first, "gatebook")
    body = Body.objects.get(entry=entry).text
    assert body == '{"kind":"admin.password_changed"}'
    call_command("rebuild", "--check", "--table", "accounts_person")


def test_a_password_set_by_a_command_must_be_replaced(
    organization: Organization, monkeypatch: Any
) -> None:
    monkeypatch.setattr("getpass.getpass", lambda *_, **__: "typed-at-a-terminal-9")
    call_command("changepassword", "reviewer")
    user = User.objects.get(username="reviewer")
    entry = Entry.objects.get(kind="admin.password_reset")
    assert (entry.project, entry.actor) == (organization.project.id, "gatebook")
    assert json.loads(entry.facts)["password"] == people.digest_password(user.password)
    assert "reviewer" in Body.objects.get(entry=entry).text
    client = sign_in("reviewer", "typed-at-a-terminal-9")
    assert client.get("/sessions/")["Location"] == "/settings/password/"
    assert (
        "A command on the server set your current password"
        in client.get("/settings/password/").text
    )
    assert change(client, "typed-at-a-terminal-9", NEW).status_code == 302
    assert client.get("/sessions/").status_code == 200


def test_a_password_that_is_refused_at_a_terminal_changes_nothing(
    organization: Organization, monkeypatch: Any
) -> None:
    erased = User.objects.create(username="gone")
    erased.username = people.ensure_pseudonym(erased)
    erased.save()
    before = list(User.objects.order_by("pk").values_list("password"))
    for name, typed, words in (
        ("stranger", ["typed-at-a-terminal-9"] * 2, "no person 'stranger'"),
        ("reviewer", ["typed-at-a-terminal-9", "other"], "The passwords differ"),
        ("reviewer", ["short", "short"], "too short"),
    ):
        answers = iter(typed)
        monkeypatch.setattr("getpass.getpass", lambda *_, answers=answers, **__: next(answers))
        with pytest.raises(CommandError, match=words):
            call_command("changepassword", name)
    monkeypatch.setattr("getpass.getpass", lambda *_, **__: "typed-at-a-terminal-9")
    with pytest.raises(CommandError, match="was erased"), transaction.atomic():
        call_command("changepassword", erased.username)
    assert list(User.objects.order_by("pk").values_list("password")) == before
    assert not Entry.objects.filter(kind="admin.password_reset").exists()


def test_a_password_changed_in_a_console_must_be_replaced(organization: Organization) -> None:
    user = organization.members["viewer"].user
    assert people.has_own_password(user)
    User.objects.filter(pk=user.pk).update(last_name="x")
    assert people.has_own_password(user)
    User.objects.filter(pk=user.pk).update(password="md5$a$b")
    assert not people.has_own_password(user)


def test_a_rehash_at_sign_in_keeps_a_password_owned(
    organization: Organization, settings: Any
) -> None:
    shown = reset_password(organization, "operator")
    settings.PASSWORD_HASHERS = [
        "django.contrib.auth.hashers.PBKDF2PasswordHasher",
        *settings.PASSWORD_HASHERS,
    ]
    sign_in("viewer", PASSWORD)
    sign_in("operator", shown)
    for name, own, password in (("viewer", True, PASSWORD), ("operator", False, shown)):
        user = User.objects.get(username=name)
        # That of another is replaced before it allows anything.
        assert user.password.startswith("pbkdf2_") is own, name
        assert check_password(password, user.password)
        assert people.has_own_password(user) is own
    giver = people.load_password_giver(User.objects.get(username="operator"))
    assert giver is not None
    assert giver[0] == "administrator"


def test_service_and_schema_refuse_an_exemption_under_a_foreign_password(
    organization: Organization,
) -> None:
    operator = organization.members["operator"].user
    ends_at_us = now_us() + 60_000_000
    wanted: dict[str, Any] = {
        "tool": "git.push",
        "reason": "for the test of it",
        "ends_at_us": ends_at_us,
        **proved(),
    }
    reset_password(organization, "operator")
    with (
        pytest.raises(ChangeRefused, match="Another person set your password"),
        transaction.atomic(),
    ):
        exemptions.create_exemption(organization.project, user=operator, **wanted)
    columns = {
        "id": UUID(int=1).hex if connection.vendor == "sqlite" else UUID(int=1),
        "project_id": organization.project.id.hex
        if connection.vendor == "sqlite"
        else organization.project.id,
        "granted_by_id": operator.pk,
    }
    names = ", ".join(columns)
    refused = pytest.raises(Error, match="the person has chosen their password")
    with refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO approvals_exemption ({names}) VALUES (%s, %s, %s)", list(columns.values())
        )


def test_a_person_created_by_a_command_replaces_the_printed_password(
    organization: Organization, capsys: Any
) -> None:
    call_command("create_project", "elsewhere", administrator="newcomer")
    printed = capsys.readouterr().out.split()[-1]
    client = sign_in("newcomer", printed)
    assert client.get("/sessions/")["Location"] == "/settings/password/"


def test_the_first_administrator_owns_the_password_that_setup_printed(db: None) -> None:
    with transaction.atomic():
        user = people.create_administrator("boss", PASSWORD, projects.ensure_default_project())
    assert people.has_own_password(user)
    assert Membership.objects.filter(user=user).exists()
