"""Wrong passwords count wherever they are typed; sign-ins and locks are journalled."""

import json
import logging
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from accounts import one_time_secret, people, sign_ins
from journal.models import Body, Entry
from tests.pages.people import PASSWORD, Organization

NEW = "orbit-lantern-slate-43"


def attempt(name: str, password: str, address: str = "192.0.2.7", **headers: str) -> int:
    answer = Client().post(
        "/sign-in/", {"username": name, "password": password}, REMOTE_ADDR=address, headers=headers
    )
    return answer.status_code


def kinds(organization: Organization) -> list[str]:
    entries = Entry.objects.filter(
        project=organization.project.id, kind__startswith="access."
    ).order_by("position")
    return list(entries.values_list("kind", flat=True))


def test_guesses_of_the_current_password_are_counted_and_lock_it(
    organization: Organization,
) -> None:
    client = organization.client("viewer")
    for guess in range(4):
        fields = {"old_password": f"guess-{guess}", "new_password1": NEW, "new_password2": NEW}
        answer = client.post("/settings/password/", fields)
        assert answer.status_code == 200
        assert "Your old password was entered incorrectly" in answer.text
    assert client.post("/settings/password/", fields).status_code == 429
    right = {"old_password": PASSWORD, "new_password1": NEW, "new_password2": NEW}
    assert client.post("/settings/password/", right).status_code == 429, "the right one neither"
    assert User.objects.get(username="viewer").check_password(PASSWORD)
    assert attempt("viewer", PASSWORD, "127.0.0.1") == 429, "the sign-in counts the same guesses"
    stored = "".join(
        map(str, AccessAttempt.objects.values_list("post_data", "get_data", "username"))
    )
    assert "guess-" not in stored
    assert NEW not in stored


def test_sign_ins_failures_and_the_lock_are_recorded_once_each(
    organization: Organization, caplog: Any
) -> None:
    caplog.set_level(logging.INFO, "gatebook.sign_in")
    assert attempt("reviewer", PASSWORD) == 302
    for _ in range(4):
        assert attempt("reviewer", "wrong") == 200
    for _ in range(3):
        assert attempt("reviewer", "wrong") == 429
    assert kinds(organization) == [
        "access.signed_in",
        *["access.sign_in_failed"] * 5,
        "access.locked_out",
    ]
    person = people.ensure_pseudonym(organization.members["reviewer"].user)
    entries = Entry.objects.filter(kind__startswith="access.").order_by("position")
    assert [entry.actor for entry in entries] == [person, *["gatebook"] * 6]
    assert {entry.facts for entry in entries} == {
        json.dumps({"person": person}, separators=(",", ":"))
    }
    body = json.loads(Body.objects.get(entry=entries[0]).text)
    assert (body["address"], body["page"]) == ("192.0.2.7", "/sign-in/")
    log = caplog.text
    assert log.count("locked_out") == 1
    assert log.count("refused_while_locked") == 2
    assert log.count("'name': 'reviewer'") == 9


def test_an_unknown_name_may_be_a_password_and_is_stored_nowhere(
    organization: Organization, caplog: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    typed = "my-secret-by-mistake-77"
    for _ in range(5):
        attempt(typed, "x")
    assert attempt(typed, "x") == 429
    assert kinds(organization) == []
    assert typed not in caplog.text
    assert "(unknown)" in caplog.text
    assert typed not in str(list(AccessAttempt.objects.values()))


def test_a_name_is_never_locked_for_an_uninvolved_address(organization: Organization) -> None:
    for number in range(20):
        attempt("administrator", "wrong", f"198.51.100.{number // 5}")
    assert attempt("administrator", PASSWORD, "198.51.100.1") == 429
    assert attempt("administrator", PASSWORD, "192.0.2.99") == 302


@pytest.mark.parametrize(
    ("trusted", "forwarded", "address"),
    [
        (False, "203.0.113.9", "192.0.2.7"),
        (True, "203.0.113.9", "203.0.113.9"),
        (True, "10.0.0.1, 203.0.113.9", "203.0.113.9"),
        (True, "2001:db8::1", "2001:db8::1"),
        (True, "203.0.113.9, nonsense", "192.0.2.7"),
        (True, "", "192.0.2.7"),
    ],
)
def test_the_address_comes_from_the_proxy_only_if_configured(
    settings: Settings, trusted: bool, forwarded: str, address: str
) -> None:
    settings.GATEBOOK_FORWARDED_FOR = trusted
    request = HttpRequest()
    request.META = {"REMOTE_ADDR": "192.0.2.7", "HTTP_X_FORWARDED_FOR": forwarded}
    assert sign_ins.get_client_address(request) == address


def test_behind_a_proxy_a_guesser_locks_their_own_address_alone(
    organization: Organization, settings: Settings
) -> None:
    settings.GATEBOOK_FORWARDED_FOR = True
    forged = {"x-forwarded-for": "192.0.2.50, 203.0.113.9"}
    for _ in range(5):
        attempt("administrator", "wrong", "127.0.0.1", **forged)
    assert attempt("administrator", PASSWORD, "127.0.0.1", **forged) == 429
    assert (
        attempt("administrator", PASSWORD, "127.0.0.1", **{"x-forwarded-for": "192.0.2.50"}) == 302
    )


@pytest.mark.parametrize(
    ("kind", "heading", "never"),
    [
        ("webhook", "Secret of the webhook hooks.example", "password"),
        ("password", "hooks.example is invited", "webhook"),
        ("reset", "New password of hooks.example", "webhook"),
        ("token", "New token of hooks.example", "password"),
    ],
)
def test_a_value_shown_once_is_called_by_its_name(
    organization: Organization, monkeypatch: pytest.MonkeyPatch, kind: str, heading: str, never: str
) -> None:
    shown = {"secret": "s3cret", "kind": kind, "name": "hooks.example"}
    monkeypatch.setattr(one_time_secret, "take_secret_once", lambda request: shown)
    page = organization.client("administrator").get(reverse("tokens")).text
    part = page[page.index('aria-labelledby="secret"') :].partition("</section>")[0]
    assert heading in part
    assert never not in part
