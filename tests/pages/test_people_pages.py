"""Pages of people, tokens and repositories: roles, effects, and values shown once."""

import re
from typing import Protocol
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session as SignIn
from django.test import Client
from django.urls import reverse

from accounts import people, tokens
from accounts.models import ROLES, AgentToken, Invitation, Membership, Repository
from journal.models import Entry
from tests.pages.people import Organization

TOKEN = re.compile(r"gbk_[a-z0-9]{8}_[A-Za-z0-9_-]{43}")
FIRST_PASSWORD = re.compile(r"<output>((?:\w{6}-){3}\w{6})</output>")


class Answer(Protocol):
    """Type of the test client's answers."""

    @property
    def content(self) -> bytes: ...


def text(answer: Answer) -> str:
    return answer.content.decode()


def settings_pages(organization: Organization, *, foreign: bool = False) -> list[tuple[str, str]]:
    """Return (URL, least role) of every settings page.

    With `foreign`, return pages that name an object, with objects of the other project.
    """
    member = organization.neighbour if foreign else organization.members["viewer"]
    token = organization.other_token if foreign else organization.token
    repository = organization.other_repository if foreign else organization.repository
    named = [
        (reverse("change_role", args=[member.pk]), "administrator"),
        (reverse("remove_person", args=[member.pk]), "administrator"),
        (reverse("reset_password", args=[member.pk]), "administrator"),
        (reverse("agent_settings", args=[token.agent_id]), "administrator"),
        (reverse("revoke_token", args=[token.pk]), "administrator"),
        (reverse("repository", args=[repository.pk]), "administrator"),
    ]
    if foreign:
        return named
    return [
        *named,
        (reverse("people"), "administrator"),
        (reverse("tokens"), "administrator"),
        (reverse("repositories"), "administrator"),
        (reverse("tools"), "viewer"),
        (reverse("appearance"), "viewer"),
        (reverse("shortcuts"), "viewer"),
    ]


@pytest.mark.parametrize("role", ROLES)
def test_each_page_opens_from_its_role_upwards(organization: Organization, role: str) -> None:
    client = organization.client(role)
    for url, least in settings_pages(organization):
        allowed = ROLES.index(role) >= ROLES.index(least)
        expected = {200, 405} if allowed else {403, 405}
        assert client.get(url).status_code in expected, url
        if not allowed:
            answer = client.post(url, {"role": "administrator", "username": "zoe", "agent": "zoe"})
            assert answer.status_code in (403, 405), url
    assert organization.project.memberships.count() == len(ROLES)
    assert AgentToken.objects.filter(project=organization.project, revoked_at=None).count() == 1


def test_objects_of_another_project_are_not_found_and_not_changed(
    organization: Organization,
) -> None:
    client = organization.client("administrator")
    for url, _ in settings_pages(organization, foreign=True):
        for answer in (
            client.get(url),
            client.post(url, {"role": "viewer", "production": "x", "protected": ""}),
        ):
            assert answer.status_code in (404, 405), url
            assert b"payments" not in answer.content
    assert Membership.objects.get(pk=organization.neighbour.pk).role == "administrator"
    assert AgentToken.objects.get(pk=organization.other_token.pk).revoked_at is None
    assert Repository.objects.get(pk=organization.other_repository.pk).patterns_version == 1


def test_a_random_id_answers_as_a_foreign_one(organization: Organization) -> None:
    client = organization.client("administrator")
    foreign = client.get(reverse("repository", args=[organization.other_repository.pk]))
    absent = client.get(reverse("repository", args=[UUID(int=7)]))
    strip = re.compile(
        r'csrfmiddlewaretoken" value="\w+"|value="/settings[^"]*"|<time[\s\S]*?</time>'
    )
    assert strip.sub("", text(foreign)) == strip.sub("", text(absent))


def test_signed_out_people_are_redirected_to_sign_in(organization: Organization) -> None:
    client = Client()
    for url, _ in settings_pages(organization):
        answer = client.get(url)
        assert answer.status_code in (302, 405), url
        if answer.status_code == 302:
            assert answer["Location"] == f"/sign-in/?next={url}"
        assert client.post(url)["Location" if client.post(url).status_code == 302 else "Allow"]


def test_every_post_without_its_csrf_proof_is_refused(organization: Organization) -> None:
    client = organization.client("administrator", csrf=True)
    own = ["switch_project", "clock", "sign_out", "password", "sign_in"]
    for url in [*(url for url, _ in settings_pages(organization)), *map(reverse, own)]:
        answer = client.post(
            url, {"role": "operator", "username": "zoe", "agent": "zoe", "clock": "local"}
        )
        assert answer.status_code in (403, 405), url
    assert organization.client("administrator").get(reverse("people")).status_code == 200


def test_a_new_person_gets_a_password_shown_once(organization: Organization) -> None:
    client = organization.client("administrator")
    answer = client.post(reverse("people"), {"username": "zoe", "role": "operator"})
    assert (answer.status_code, answer["Location"]) == (302, reverse("people"))
    stored = SignIn.objects.get(session_key=client.session.session_key).get_decoded()
    shown = FIRST_PASSWORD.search(text(client.get(reverse("people"))))
    assert shown is not None
    assert User.objects.get(username="zoe").check_password(shown[1])
    assert shown[1] not in str(stored)
    assert shown[1] not in text(client.get(reverse("people")))
    assert not Membership.objects.filter(user__username="zoe").exists(), (
        "only their own yes makes a member"
    )
    assert (
        Invitation.objects.get(user__username="zoe", project=organization.project).role
        == "operator"
    )


def test_the_password_is_not_shown_to_another_browser_of_the_same_sign_in(
    organization: Organization,
) -> None:
    client = organization.client("administrator")
    client.post(reverse("people"), {"username": "zoe", "role": "operator"})
    del client.cookies["gatebook-once"]
    assert FIRST_PASSWORD.search(text(client.get(reverse("people")))) is None


@pytest.mark.parametrize(
    ("sent", "sentence"),
    [
        ({"username": "viewer", "role": "operator"}, "already belongs to default"),
        ({"username": "a b<i>", "role": "operator"}, "Enter a valid username"),
        ({"username": "zoe", "role": "owner"}, "Select a valid choice"),
        ({"username": "", "role": "operator"}, "This field is required"),
    ],
)
def test_a_refused_form_keeps_the_typed_values(
    organization: Organization, sent: dict[str, str], sentence: str
) -> None:
    answer = organization.client("administrator").post(reverse("people"), sent)
    assert answer.status_code == 422
    assert sentence in text(answer)
    assert 'aria-invalid="true"' in text(answer)
    assert "<i>" not in text(answer)
    assert not User.objects.filter(username="zoe").exists()


def test_a_role_changes_and_the_journal_names_who_did_it(organization: Organization) -> None:
    client = organization.client("administrator")
    page = client.post(
        reverse("change_role", args=[organization.members["viewer"].pk]),
        {"role": "operator"},
        follow=True,
    )
    assert "viewer is operator now." in text(page)
    entry = Entry.objects.filter(kind="admin.member_changed").latest("position")
    assert entry.actor == people.ensure_pseudonym(organization.members["administrator"].user)


def test_the_last_administrator_stays_and_the_page_explains_why(organization: Organization) -> None:
    client = organization.client("administrator")
    own = organization.members["administrator"].pk
    for url, sent in (
        (reverse("change_role", args=[own]), {"role": "viewer"}),
        (reverse("remove_person", args=[own]), {}),
    ):
        assert "is the last active administrator of default" in text(
            client.post(url, sent, follow=True)
        )
    assert Membership.objects.get(pk=own).role == "administrator"


def test_removing_asks_first_and_ends_access_at_the_next_click(organization: Organization) -> None:
    client, gone = organization.client("administrator"), organization.client("viewer")
    url = reverse("remove_person", args=[organization.members["viewer"].pk])
    assert "Remove viewer from default?" in text(client.get(url))
    assert gone.get(reverse("tools")).status_code == 200
    client.post(url)
    answer = gone.get(reverse("tools"))
    assert answer.status_code == 403
    assert "You belong to no project" in text(answer)


def test_a_token_is_shown_once_and_works(organization: Organization) -> None:
    client = organization.client("administrator")
    sent = {"agent": "fresh", "owner": "operator", "expires": "1d", "scope": "agent"}
    client.post(reverse("tokens"), sent)
    shown = TOKEN.search(text(client.get(reverse("tokens"))))
    assert shown is not None
    authenticated = tokens.authenticate_token(f"Bearer {shown[0]}")
    assert authenticated is not None
    issued = AgentToken.objects.get(pk=authenticated.token)
    assert (issued.agent.name, issued.agent.owner) == (
        "fresh",
        organization.members["operator"].user,
    )
    again = text(client.get(reverse("tokens")))
    assert TOKEN.search(again) is None
    assert f"gbk_{issued.public_id}" in again
    assert not SignIn.objects.filter(session_data__contains=shown[0]).exists()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"owner": "neighbour"}, "Select a valid choice"),
        ({"agent": "deploy-7", "owner": "viewer"}, "belongs to operator"),
        ({"agent": "a\u202eb"}, "printable characters"),
        ({"expires": "10000d"}, "Select a valid choice"),
    ],
)
def test_a_refused_token_is_not_issued(
    organization: Organization, changed: dict[str, str], sentence: str
) -> None:
    sent = {"agent": "fresh", "owner": "", "expires": "1d", "scope": "agent", **changed}
    answer = organization.client("administrator").post(reverse("tokens"), sent)
    assert answer.status_code == 422
    assert sentence in text(answer)
    assert AgentToken.objects.count() == 2


def test_revoking_asks_first_and_is_final(organization: Organization) -> None:
    client = organization.client("administrator")
    url = reverse("revoke_token", args=[organization.token.pk])
    assert f"Revoke gbk_{organization.token.public_id}" in text(client.get(url))
    assert AgentToken.objects.get(pk=organization.token.pk).revoked_at is None
    assert "is revoked" in text(client.post(url, follow=True))
    assert AgentToken.objects.get(pk=organization.token.pk).revoked_at is not None
    assert "was revoked" in text(client.get(url))


def test_patterns_are_stored_as_a_new_version(organization: Organization) -> None:
    client = organization.client("administrator")
    url = reverse("repository", args=[organization.repository.pk])
    assert "Saved as version 2" in text(
        client.post(url, {"production": "trunk", "protected": "v*"}, follow=True)
    )
    assert "No changes." in text(
        client.post(url, {"production": "trunk", "protected": "v*"}, follow=True)
    )
    answer = client.post(url, {"production": "ok\nnot ok", "protected": "kept as typed"})
    assert answer.status_code == 422
    assert "Line 2" in text(answer)
    assert "kept as typed" in text(answer)


def test_hostile_names_are_shown_inert(organization: Organization) -> None:
    Repository.objects.create(project=organization.project, name="<img src=x>\u202ebew")
    page = text(organization.client("administrator").get(reverse("repositories")))
    assert "<img" not in page
    assert "[U+202E]" in page
