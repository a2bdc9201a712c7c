"""A form acts only in the project that its page showed: another tab may have switched the
project."""

import re
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from django.apps import apps
from django.conf import settings
from django.contrib.sessions.models import Session as SignIn
from django.test import Client
from django.urls import reverse

from accounts import people
from accounts.models import Membership, Project
from approvals.models import Gate
from journal.models import Entry
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import TOKEN, url_of
from tests.rows_with_entries import remove_members

pytestmark = pytest.mark.django_db
SHOWN: Final = re.compile(r'<input type="hidden" name="in_project" value="([^"]*)">')
FORM: Final = re.compile(r'<form[^>]*method="post"[^>]*>(?=(.{0,400}))', re.DOTALL)
INCLUDED: Final = '{% csrf_token %}{% include "_in_project.html" %}'
# Personal forms, which are valid in every project, and the switch itself.
OWN_PAGES: Final = (
    *("accounts/sign_in.html", "accounts/appearance.html"),
    *("accounts/password.html", "accounts/shortcuts.html", "accounts/invitations.html"),
)
PROJECTLESS_PAGES: Final = ("switch_project", "sign_out", "clock")
DRAFT: Final = (
    "name: basic\nrules:\n  - {id: all, title: Nobody pushes, match: {}, outcome: deny}\n"
)
REASON: Final = "The release train, INC-204."
ALL: Final = {"scope": "project", "subject": ""}
TOOL: Final = {"scope": "tool", "subject": "git.push"}
CHANNEL: Final[dict[str, Any]] = {
    "kind": "email",
    "target": "team@example.org",
    "minimum_risk": "high",
    "topics": ["requests", "violations"],
}

# Pages whose address names nothing of a project: the page's query, the typed fields, and a word of
# them.
PAGES: Final[dict[str, tuple[str, dict[str, str], dict[str, Any], str]]] = {
    "an exemption": ("grant_exemption", {}, {"tool": "*", "hours": "4", "reason": REASON}, REASON),
    "a stop of all": ("stop", ALL, {**ALL, "reason": REASON}, REASON),
    "a stop of a tool": ("stop", TOOL, {**TOOL, "reason": REASON}, REASON),
    "dry run": (
        "policy_draft",
        {},
        {"text": DRAFT, "days": "7", "mode": "enforce", "do": "dry_run"},
        "Nobody",
    ),
    "loading": (
        "policy_draft",
        {},
        {"text": DRAFT, "days": "7", "mode": "enforce", "do": "load"},
        "Nobody pushes",
    ),
    "a channel": ("notifications", {}, CHANNEL, "team@example.org"),
    "a token": ("tokens", {}, {"agent": "night-1", "expires": "1d", "scope": "agent"}, "night-1"),
    "a person": ("people", {}, {"username": "zoe", "role": "reviewer"}, "zoe"),
    "a team": ("teams", {}, {"name": "leads"}, "leads"),
    "ticks": ("batch", {}, {"gate": "0" * 32}, ""),
}


def rows() -> dict[str, int]:
    """The number of rows of every table, except for sign-ins."""
    models = [model for model in apps.get_models() if model is not SignIn]
    return {model.__name__: model._default_manager.count() for model in models}


def switch(client: Client, project: Project) -> None:
    """Switch the project as another tab of the same browser does."""
    assert client.post(reverse("switch_project"), {"project": str(project.id)}).status_code == 302


def in_both(
    inbox: InboxScenario, role: str = "administrator", there: str = "administrator"
) -> Client:
    """A member of the project "default" who belongs to "payments" too; both have gates to tick."""
    inbox.declare("note.write", "reversible")
    inbox.plan("note", tool="note.write", arguments={"n": 1})
    people.add_project_member(inbox.organization.other, role, there)
    client = inbox.organization.client(role)
    switch(client, inbox.project)
    return client


def shown_on(client: Client, url: str, query: dict[str, str] | None = None) -> str:
    """The project that every form of a page names."""
    [project] = set(SHOWN.findall(client.get(url, query or {}).content.decode()))
    return str(project)


@pytest.mark.parametrize("what", PAGES)
def test_a_form_that_was_opened_in_one_project_does_nothing_in_another(
    inbox: InboxScenario, gate: Gate, what: str
) -> None:
    url_name, query, typed, shown_word = PAGES[what]
    client = in_both(inbox)
    page = reverse("inbox") if url_name == "batch" else reverse(url_name)
    sent = {**typed, "in_project": shown_on(client, page, query)}
    switch(client, inbox.organization.other)
    before = rows()
    answer = client.post(reverse(url_name), sent)
    text = answer.content.decode()
    assert answer.status_code == 409
    assert "opened in <b>default</b>." in text
    assert "You are in <b>payments</b> now. Nothing was recorded." in text
    assert shown_word in text
    assert "Switch back to default" in text
    assert rows() == before
    switch(client, inbox.project)
    assert client.post(reverse(url_name), sent).status_code == (
        200 if what in ("dry run", "an exemption") else 302
    )


def things(inbox: InboxScenario, gate: Gate) -> dict[str, dict[str, Any]]:
    """Pages whose address names an object of the project "default", with the typed fields."""
    organization = inbox.organization
    return {
        reverse("gate_vote", args=[gate.id]): {
            "answer": "deny",
            "reason": REASON,
            "settled": "1",
        },
        reverse("gate_confirm", args=[gate.id]): {"reason": REASON},
        reverse("gate_extend", args=[gate.id]): {"reason": REASON},
        reverse("gate_revoke", args=[gate.id]): {"reason": REASON},
        reverse("repository", args=[organization.repository.id]): {
            "production": REASON,
            "protected": "",
        },
        reverse("agent_settings", args=[organization.agent.id]): {
            "charter": REASON,
            "version": "0",
        },
        reverse("change_role", args=[organization.members["viewer"].id]): {"role": REASON},
        reverse("erase_body", args=[gate.plan_position]): {"reason": REASON},
    }


def test_text_typed_about_an_object_of_another_project_is_not_lost(
    inbox: InboxScenario, gate: Gate
) -> None:
    client = in_both(inbox)
    seen = TOKEN.search(client.get(url_of(gate)).content.decode())
    assert seen
    switch(client, inbox.organization.other)
    before = rows()
    for url, typed in things(inbox, gate).items():
        answer = client.post(url, {**typed, "seen": seen[1], "in_project": str(inbox.project.id)})
        text = answer.content.decode()
        assert answer.status_code == 409, url
        assert f"\n{REASON}</textarea>" in text, url
        assert seen[1] not in text
        assert client.post(url, typed).status_code == 404, url
        assert (
            client.post(url, {**typed, "in_project": str(inbox.organization.other.id)}).status_code
            == 404
        ), url
    assert rows() == before


def test_every_form_of_a_page_names_its_project(inbox: InboxScenario, gate: Gate) -> None:
    client = in_both(inbox)
    pages = [
        url_of(gate),
        reverse("inbox"),
        reverse("notifications"),
        reverse("teams"),
        reverse("people"),
    ]
    for url in pages:
        forms = FORM.findall(client.get(url).content.decode())
        named = [
            form
            for form in forms
            if f'name="in_project" value="{inbox.project.id}"' in form.partition("</form>")[0]
        ]
        assert len(named) == len(forms) - 3 > 0, (
            url
        )  # without the switch, the clock and the way out


def test_typed_text_is_inert_and_the_back_link_leads_back(inbox: InboxScenario) -> None:
    client = in_both(inbox)
    sent = {
        "tool": "*",
        "hours": "4",
        "reason": "x < y </textarea>",
        "in_project": str(inbox.project.id),
    }
    switch(client, inbox.organization.other)
    text = client.post(reverse("grant_exemption"), sent).content.decode()
    assert "x &lt; y &lt;/textarea&gt;" in text
    back = re.search(r'<input type="hidden" name="project" value="([^"]+)"', text)
    assert back
    client.post(reverse("switch_project"), {"project": back[1]})
    assert "in default" in client.get(reverse("grant_exemption")).content.decode()


def test_the_question_of_the_project_comes_before_that_of_the_role(inbox: InboxScenario) -> None:
    client = in_both(inbox, "operator", "viewer")
    sent = {"tool": "*", "hours": "4", "reason": REASON}
    switch(client, inbox.organization.other)
    assert client.post(reverse("grant_exemption"), sent).status_code == 403
    answer = client.post(reverse("grant_exemption"), {**sent, "in_project": str(inbox.project.id)})
    assert answer.status_code == 409
    assert REASON in answer.content.decode()


@pytest.mark.parametrize("named", ["left", "other", "random", "", "x", "both"])
def test_a_project_that_is_not_ones_own_is_not_named(inbox: InboxScenario, named: str) -> None:
    """A person who left the project that the page showed is in another project now, without a
    switch."""
    client = inbox.organization.client("administrator")
    if named == "left":
        people.add_project_member(inbox.organization.other, "administrator", "administrator")
        remove_members(
            Membership.objects.filter(project=inbox.project, user__username="administrator")
        )
    given = {
        "left": inbox.project.id,
        "other": inbox.organization.other.id,
        "random": UUID(int=7),
    }.get(named, named)
    shown = (
        [str(inbox.project.id), str(inbox.organization.other.id)] if named == "both" else str(given)
    )
    before = Entry.objects.count()
    answer = client.post(reverse("teams"), {"name": "leads", "in_project": shown})
    text = answer.content.decode()
    assert answer.status_code == 409
    assert "opened in a project to which you do not belong" in text
    assert ("default" if named == "left" else "payments") not in text
    assert "Switch back" not in text
    assert Entry.objects.count() == before


def test_the_question_whether_to_stop_names_the_project(inbox: InboxScenario) -> None:
    client = inbox.organization.client("reviewer")
    assert "Stop the whole project default?" in client.get(reverse("stop"), ALL).content.decode()
    assert "in default only" in client.get(reverse("stop"), TOOL).content.decode()


def test_no_password_is_shown_again(inbox: InboxScenario, gate: Gate) -> None:
    client = in_both(inbox)
    switch(client, inbox.organization.other)
    sent = {"code": "0f0f0f0f", "password": "slate-lantern", "in_project": str(inbox.project.id)}
    text = client.post(reverse("gate_confirm", args=[gate.id]), sent).content.decode()
    assert "Nothing was recorded." in text
    assert "slate-lantern" not in text
    assert "0f0f0f0f" not in text


def test_forms_for_every_project_need_no_project_field(inbox: InboxScenario) -> None:
    client = in_both(inbox)
    for url_name, sent in (
        ("clock", {"clock": "local"}),
        ("appearance", {"theme": "dark", "clock": "utc"}),
    ):
        assert client.post(reverse(url_name), sent).status_code == 302


def test_every_form_of_a_template_names_its_project() -> None:
    folder = Path(settings.BASE_DIR) / "templates"
    form_count = 0
    for path in sorted(folder.rglob("*.html")):
        name = path.relative_to(folder).as_posix()
        if name in OWN_PAGES:
            continue
        text = path.read_text()
        for match in re.finditer(r"<form\b[^>]*>", text, re.IGNORECASE):
            tag = match[0]
            if "post" not in tag.lower() or any(
                f"{{% url '{url_name}' %}}" in tag for url_name in PROJECTLESS_PAGES
            ):
                continue
            form_count += 1
            assert text[match.end() :].lstrip().startswith(INCLUDED), (name, tag)
    assert form_count >= 30
