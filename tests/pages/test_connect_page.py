"""A token for `gatebook connect`: granted on a page, fetched once with the secret."""

import hashlib
import json
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts import tokens
from accounts.models import Agent, AgentToken
from journal.models import Entry
from tests.pages.people import Organization

pytestmark = pytest.mark.django_db
SECRET = "s" * 43
CODE = hashlib.sha256(SECRET.encode()).hexdigest()
PAGE = f"/settings/connect/{CODE}/"
FORM = {"agent": "coder", "expires": "90d", "compared": "on"}


def claim(secret: Any = SECRET) -> tuple[int, dict[str, Any]]:
    response = Client(enforce_csrf_checks=True).post(
        "/settings/connect/claim/", json.dumps({"secret": secret}), content_type="application/json"
    )
    return response.status_code, response.json()


def test_the_token_is_issued_when_it_is_fetched_and_once(organization: Organization) -> None:
    administrator = organization.client("administrator")
    assert claim() == (202, {"status": "waiting"})
    page = administrator.get(PAGE)
    shown = f"{CODE[:4]}-{CODE[4:8]}-{CODE[8:12]}".upper()
    assert shown in page.content.decode()
    before = AgentToken.objects.count()
    granted = administrator.post(PAGE, FORM)
    assert "Return to the terminal" in granted.content.decode()
    assert AgentToken.objects.count() == before
    status, answer = claim()
    assert (status, answer["agent"], answer["project"]) == (200, "coder", "default")
    identity = tokens.authenticate_token(f"Bearer {answer['token']}")
    assert identity is not None
    assert (identity.agent_name, identity.scope) == ("coder", "agent")
    assert identity.project == organization.project.id
    assert claim() == (202, {"status": "waiting"})
    assert AgentToken.objects.count() == before + 1
    entry = Entry.objects.filter(kind="admin.token_issued").latest("position")
    assert entry.actor.startswith("p_")
    assert answer["token"] not in administrator.get(PAGE).content.decode()


@pytest.mark.parametrize(("secret", "reads"), [(SECRET, 1), ("s", 0)])
def test_asking_while_nobody_has_granted_a_token_opens_no_transaction(
    secret: str, reads: int
) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert claim(secret) == (202, {"status": "waiting"})
    assert [query["sql"].split()[0] for query in queries] == ["SELECT"] * reads


def test_no_token_is_stored_before_it_is_fetched(organization: Organization) -> None:
    organization.client("administrator").post(PAGE, FORM)
    stored = [row.get_decoded() for row in Session.objects.all()]
    (grant,) = [row["connect_grant"] for row in stored if "connect_grant" in row]
    assert "gbk_" not in json.dumps(grant)
    assert SECRET not in json.dumps(grant)
    assert not Session.objects.filter(session_key__contains=CODE[:20]).exists()


def test_a_grant_expires(organization: Organization) -> None:
    organization.client("administrator").post(PAGE, FORM)
    with time_machine.travel(timezone.now() + timedelta(minutes=11)):
        assert claim()[0] == 202
    assert not AgentToken.objects.filter(agent__name="coder").exists()


@pytest.mark.parametrize("role", ["viewer", "reviewer", "operator"])
def test_only_administrators_grant(organization: Organization, role: str) -> None:
    client = organization.client(role)
    assert client.get(PAGE).status_code == 403
    assert client.post(PAGE, FORM).status_code == 403
    assert claim()[0] == 202


def test_a_visitor_signs_in_first_and_returns_to_the_page() -> None:
    response = Client().get(PAGE)
    assert response.status_code == 302
    assert CODE in response["Location"]


@pytest.mark.parametrize("left_out", ["agent", "compared", "expires"])
def test_every_field_is_needed(organization: Organization, left_out: str) -> None:
    fields = {name: value for name, value in FORM.items() if name != left_out}
    assert organization.client("administrator").post(PAGE, fields).status_code == 422
    assert claim()[0] == 202


def test_the_form_needs_the_token_of_its_page(organization: Organization) -> None:
    client = organization.client("administrator", csrf=True)
    assert client.post(PAGE, FORM).status_code == 403


def test_an_agent_of_another_owner_keeps_its_name_and_a_wrong_name_is_refused(
    organization: Organization,
) -> None:
    client = organization.client("administrator")
    assert client.post(PAGE, FORM | {"agent": "a/b"}).status_code == 422
    assert client.post(PAGE, FORM | {"agent": "deploy-7"}).status_code == 200
    assert claim()[1]["agent"] == "deploy-7"
    assert Agent.objects.filter(name="deploy-7").count() == 1


@pytest.mark.parametrize("code", ["x", "A" * 64, "0" * 63, "../" * 5])
def test_another_form_of_code_is_not_there(organization: Organization, code: str) -> None:
    client = organization.client("administrator")
    assert client.get(f"/settings/connect/{code}/").status_code == 404


@pytest.mark.parametrize("secret", [CODE, "", "x", "s" * 42, "s" * 44, "ß" * 43])
def test_the_code_of_the_page_or_another_secret_fetches_nothing(
    organization: Organization, secret: str
) -> None:
    organization.client("administrator").post(PAGE, FORM)
    assert claim(secret)[0] == 202
    assert claim()[0] == 200


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"secret": 1}', b"{" * 2000, b"\xff"])
def test_a_body_that_is_no_claim_is_refused(body: bytes) -> None:
    response = Client().post("/settings/connect/claim/", body, content_type="application/json")
    assert response.status_code == 400
    assert "secret" in response.json()["detail"]


def test_the_stored_grant_signs_nobody_in(organization: Organization) -> None:
    organization.client("administrator").post(PAGE, FORM)
    (row,) = [row for row in Session.objects.all() if "connect_grant" in row.get_decoded()]
    client = Client()
    client.cookies["gatebook"] = row.session_key
    assert client.get("/settings/tokens/").status_code == 302
