"""The layout: signing in, the current project, common parts of pages, and error pages."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.db import connection
from django.template import Context, Template
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts import people
from accounts.models import Membership, Person
from db.clock import now_us
from journal.models import Body, Entry
from ledger.models import Effect
from tests.pages.people import PASSWORD, Organization
from tests.rows_with_entries import mark_own_password, remove_members
from web.templatetags import gatebook

pytestmark = [pytest.mark.django_db, pytest.mark.once]
HTMX_2_SHA256 = {"2.0.10": "71ea67185bfa8c98c39d31717c6fce5d852370fcdfd129db4543774d3145c0de"}


def page(client: Client, url: str) -> str:
    return client.get(url).content.decode()


def test_signing_in_redirects_to_the_requested_page(organization: Organization) -> None:
    client = Client()
    answer = client.post(
        "/sign-in/?next=/tools/", {"username": "viewer", "password": PASSWORD, "next": "/tools/"}
    )
    assert (answer.status_code, answer["Location"]) == (302, "/tools/")
    assert client.post("/sign-out/").status_code == 302
    assert client.get("/tools/").status_code == 302


def test_pages_are_compressed_except_where_a_secret_may_be(organization: Organization) -> None:
    client = organization.client("administrator")

    def find_encoding(url: str, form: dict[str, str] | None = None) -> str:
        send = client.get if form is None else client.post
        answer = send(url, form, headers={"Accept-Encoding": "gzip"})
        return answer.get("Content-Encoding", "")

    assert find_encoding("/tools/") == find_encoding("/help/") == "gzip"
    assert find_encoding("/settings/notifications/") == ""
    assert find_encoding("/settings/tokens/", {"agent": "", "expires": "1d"}) == ""
    assert find_encoding("/proofs/gatebook-verify.py") == ""
    assert client.get("/tools/").get("Content-Encoding") is None


def test_signing_out_by_a_link_is_not_possible(organization: Organization) -> None:
    client = organization.client("viewer")
    assert client.get("/sign-out/").status_code == 405
    assert client.get("/tools/").status_code == 200


def test_five_wrong_passwords_lock_a_name_and_the_page_shows_it(organization: Organization) -> None:
    client = Client()
    for _ in range(4):
        assert (
            "do not belong together"
            in client.post("/sign-in/", {"username": "viewer", "password": "x"}).content.decode()
        )
    locked = client.post("/sign-in/", {"username": "viewer", "password": "x"})
    assert locked.status_code == 429
    assert "Sign-in locked for 15 minutes" in locked.content.decode()
    assert client.post("/sign-in/", {"username": "viewer", "password": PASSWORD}).status_code == 429
    assert (
        client.post("/sign-in/", {"username": "operator", "password": PASSWORD}).status_code == 302
    )


def test_a_person_without_a_project_gets_an_explanation(organization: Organization) -> None:
    lost = User.objects.create_user("lost", password=PASSWORD)
    mark_own_password(lost)
    answer = organization.client("lost").get("/tools/")
    assert answer.status_code == 403
    assert "You belong to no project" in answer.content.decode()


def test_the_project_is_switched_by_a_form_and_kept_for_the_sign_in(
    organization: Organization,
) -> None:
    people.add_project_member(organization.other, "viewer", "administrator")
    client = organization.client("viewer")
    assert client.get(reverse("people")).status_code == 403
    assert client.get("/navigation/project/").status_code == 405
    client.post("/navigation/project/", {"project": str(organization.other.pk)})
    assert "of payments" in page(client, reverse("people"))


@pytest.mark.parametrize("wanted", ["", "x", "00000000-0000-0000-0000-000000000000", "other"])
def test_a_foreign_project_is_not_found(organization: Organization, wanted: str) -> None:
    client = organization.client("viewer")
    answer = client.post(
        "/navigation/project/",
        {"project": str(organization.other.pk) if wanted == "other" else wanted},
    )
    assert answer.status_code == 404
    assert "declared for default" in page(client, "/tools/")


def test_a_person_removed_from_the_chosen_project_falls_back_to_another(
    organization: Organization,
) -> None:
    membership = people.add_project_member(organization.other, "viewer", "viewer")
    client = organization.client("viewer")
    client.post("/navigation/project/", {"project": str(organization.other.pk)})
    remove_members(Membership.objects.filter(pk=membership.pk))
    assert "declared for default" in page(client, "/tools/")


def test_one_project_needs_no_switcher(organization: Organization) -> None:
    assert 'action="/navigation/project/"' not in page(organization.client("viewer"), "/tools/")


@pytest.mark.parametrize("role", ["viewer", "administrator"])
def test_the_rail_shows_the_apps_of_the_role(organization: Organization, role: str) -> None:
    html = page(organization.client(role), "/tools/")
    assert ("People" in html) == (role == "administrator")
    assert re.search(r'href="/tools/"\s+aria-current="page"', html)


def test_the_journal_belongs_to_search(organization: Organization) -> None:
    rail = (
        page(organization.client("viewer"), "/journal/")
        .partition('id="rail"')[2]
        .partition("</nav>")[0]
    )
    assert re.findall(r'href="([^"]+)"\s+aria-current', rail) == ["/search/"]


def test_every_page_shows_observe_mode_and_how_fresh_the_page_is(
    organization: Organization,
) -> None:
    for url in (
        "/tools/",
        "/settings/people/",
        "/settings/appearance/",
        "/help/",
        "/settings/password/",
    ):
        html = page(organization.client("administrator"), url)
        assert "<b>Observe mode:</b> nothing is blocked." in html
        assert re.search(
            r"Data as of <time[^>]*>\d\d:\d\d:\d\d UTC</time></span>\s*<span>Last entry #\d", html
        )


def test_the_layout_costs_few_queries(organization: Organization) -> None:
    client = organization.client("viewer")
    page(client, "/verdicts/")
    with CaptureQueriesContext(connection) as queries:
        page(client, "/verdicts/")
    assert len(queries) <= 7


def test_htmx_is_configured_strictly_and_has_a_reviewed_version(organization: Organization) -> None:
    html = page(organization.client("viewer"), "/tools/")
    match = re.search(r"<meta name=\"htmx-config\"\s+content='([^']+)'>", html)
    assert match is not None
    config = json.loads(match[1])
    assert {
        "allowEval": False,
        "allowScriptTags": False,
        "includeIndicatorStyles": False,
    }.items() <= config.items()
    assert {"historyCacheSize": 0, "selfRequestsOnly": True}.items() <= config.items()
    script = Path(str(finders.find("django_htmx/htmx-2.min.js"))).read_bytes()
    version = re.search(rb'version:"(2\.\d+\.\d+)"', script)
    assert version is not None
    assert hashlib.sha256(script).hexdigest() == HTMX_2_SHA256[version[1].decode()]


def test_nothing_is_inline(organization: Organization) -> None:
    for url in (
        "/sign-in/",
        "/help/",
        "/tools/",
        "/settings/people/",
        "/settings/tokens/",
        "/settings/appearance/",
    ):
        html = page(organization.client("administrator") if url != "/sign-in/" else Client(), url)
        assert not re.search(
            r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)|javascript:", html
        ), url


def test_theme_and_clock_are_stored_and_rendered_by_the_server(organization: Organization) -> None:
    client = organization.client("viewer")
    assert 'data-theme="system"\n    data-clock="utc"\n    data-keys="on">' in page(
        client, "/tools/"
    )
    client.post("/settings/appearance/", {"theme": "dark", "clock": "local"})
    client.post("/settings/shortcuts/", {})
    assert 'data-theme="dark"\n    data-clock="local"\n    data-keys="off">' in page(
        client, "/tools/"
    )
    client.post("/settings/shortcuts/", {"single_keys": "on"})
    client.post("/settings/appearance/clock/", {"clock": "sundial", "next": "/tools/"})
    person = Person.objects.get(user__username="viewer")
    assert (person.theme, person.clock, person.single_keys) == ("dark", "local", True)


@pytest.mark.parametrize(
    ("wanted", "arrives"),
    [
        ("/tools/?q=1", "/tools/?q=1"),
        ("//evil.example/", "/"),
        ("https://evil.example/", "/"),
        ("", "/"),
        ("/\\evil", "/"),
    ],
)
def test_the_clock_form_redirects_back_and_to_no_other_site(
    organization: Organization, wanted: str, arrives: str
) -> None:
    answer = organization.client("viewer").post(
        "/settings/appearance/clock/", {"clock": "relative", "next": wanted}
    )
    assert answer["Location"] == arrives
    assert Person.objects.get(user__username="viewer").clock == "relative"


def test_changing_the_own_password_keeps_the_sign_in(organization: Organization) -> None:
    client, elsewhere = organization.client("viewer"), organization.client("viewer")
    new = "harbour-violet-cinder-7"
    sent = {"old_password": PASSWORD, "new_password1": new, "new_password2": new}
    assert (
        "Your password was changed"
        in client.post("/settings/password/", sent, follow=True).content.decode()
    )
    assert client.get("/tools/").status_code == 200
    assert elsewhere.get("/tools/").status_code == 302
    entry = Entry.objects.get(kind="admin.password_changed")
    assert entry.actor == Person.objects.get(user__username="viewer").pseudonym
    assert new not in Body.objects.get(entry=entry).text


def test_an_unknown_address_is_a_404_in_the_layout(organization: Organization) -> None:
    answer = organization.client("viewer").get("/nowhere/")
    assert answer.status_code == 404
    assert "Page not found in default" in answer.content.decode()
    assert 'class="rail"' in answer.content.decode()
    assert Client().get("/nowhere/").status_code == 404


def test_a_refused_form_explains_what_to_do(organization: Organization) -> None:
    answer = organization.client("viewer", csrf=True).post(
        "/settings/appearance/clock/", {"clock": "utc"}
    )
    assert answer.status_code == 403
    assert "reload the page" in answer.content.decode()


def test_an_internal_error_names_its_time(
    organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("ledger.tools.registry.list_undeclared_tools", break_down)
    client = organization.client("viewer")
    client.raise_request_exception = False
    answer = client.get("/tools/")
    assert answer.status_code == 500
    assert re.search(r"Give the operator this time:\s*<b>\d{4}-", answer.content.decode())


def test_an_unknown_host_is_a_400() -> None:
    answer = Client().get("/tools/", HTTP_HOST="evil.example")
    assert answer.status_code == 400
    assert "could not be read" in answer.content.decode()


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"state": "planned", "permission": "granted"}, "planned"),
        ({"state": "planned", "permission": "pending"}, "awaiting approval"),
        ({"state": "dispatched", "deadline_us": None}, "dispatched"),
        ({"state": "dispatched", "deadline_us": 9}, "dispatched"),
        ({"state": "dispatched", "deadline_us": 5}, "unknown"),
        ({"state": "acknowledged", "outcome": "error"}, "acknowledged"),
        ({"state": "acknowledged", "outcome": "unknown"}, "unknown"),
        ({"state": "failed", "outcome": "unknown"}, "unknown"),
        ({"state": "superseded", "outcome": "unknown"}, "superseded"),
    ],
)
def test_a_state_is_shown_in_plain_words(columns: dict[str, object], word: str) -> None:
    assert gatebook.derive_shown_state(Effect(**columns), 7) == word
    shape = gatebook.STATES[word]
    html = Template("{% load gatebook %}{% state_word word %}").render(Context({"word": word}))
    assert shape[0] in html
    assert f'href="#{shape[1]}"' in html
    assert f"</svg>{word}</span>" in html


def test_moments_sizes_and_digests_are_formatted() -> None:
    at = 1_790_000_000_123_456
    assert '<time datetime="2026-09-21T14:13:20.123Z"' in gatebook.moment(at)
    assert gatebook.moment(at, "time").endswith(">14:13:20.123</time>")
    assert gatebook.moment(None).endswith(">—</span>")
    assert [gatebook.size(n) for n in (0, 1023, 1024, 6_246, 5 * 2**30)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "6.1 KiB",
        "5.0 GiB",
    ]
    assert [gatebook.elapsed(n) for n in (850_000, 4_200_000, 723_000_000, 90_000_000_000)] == [
        "850 ms",
        "4.2 s",
        "12 min 3 s",
        "1 d 1 h",
    ]
    assert gatebook.grouped(48211) == "48\u202f211"
    assert ">7c1e…a90b</code>" in gatebook.digest("v1:7c1e" + "0" * 56 + "a90b")
    assert now_us() > at
