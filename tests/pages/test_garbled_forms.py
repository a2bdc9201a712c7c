"""Forms with missing or garbled fields are refused; no page answers 5xx.

URLs come from the URL configuration, forms from the pages themselves.
"""

import re
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from accounts import invitations, teams
from accounts.models import Invitation
from approvals import exemptions
from approvals.policies import policies
from db.clock import now_us
from erasure import erasure_requests
from hooks.code_hosts import agent_identities
from investigation.exports import exports
from investigation.incidents import incidents
from investigation.saved_queries import saved_queries
from ledger import stops
from ledger.models import Effect
from notifications import channels
from pages.sample import sample_project
from retention import retention_sets
from sessions.models import Task
from tests.approvals.confirm_helpers import proved
from tests.approvals.conftest import inbox, quiet
from tests.approvals.inbox_scenario import InboxScenario
from tests.hooks.code_hosts.code_host import CodeHost
from tests.matrices import keep_core

__all__ = ["inbox", "quiet"]
pytestmark = pytest.mark.django_db
PYTHON: Final = (
    "approvals",
    "notifications",
    "accounts",
    "pages",
    "ledger",
    "erasure",
    "retention",
)
NOTHING: Final = ""
# The value of every field as sent: percent-encoded bytes.
GARBLED: Final = {
    "empty": "",
    "no text": "%ff%00%c3",
    "long": "x" * 2_001,
    "a large number": "9" * 40,
    "an odd number": "%D9%A3",
    "an id of nothing": "01a20587-6a60-77eb-870f-6a25881d28a6",
    "syntax": "%28%22%27%3B--%3Cscript%3E%7B%7B%7D%7D%5B",
}
OTHER_TYPES: Final = (
    "application/json",
    "multipart/form-data; boundary=x",
    "multipart/form-data",
    "text/plain",
)
MISSING: Final = "missing"
ONE_BY_ONE: Final = (MISSING, "no text", "a large number")
# In `make test` the value that a database cannot store.
CORE: Final = {"sqlite": ("a large number",), "postgresql": ("no text",)}


def field_names() -> set[str]:
    """Return every name that a view reads from a form."""
    names: set[str] = set()
    for app in PYTHON:
        for file in (settings.BASE_DIR / app).rglob("*.py"):
            text = file.read_text()
            names |= set(
                re.findall(
                    r"(?:POST|sent|asked|form|fields)(?:\.get(?:list)?\(|\[)f?\"([a-z_]+)", text
                )
            )
    return names


def routes(patterns: list[Any], before: str = "") -> Iterator[tuple[str, URLPattern]]:
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, f"{before}{pattern.pattern}")
        elif isinstance(pattern, URLPattern):
            yield f"{before}{pattern.pattern}", pattern


def addresses(ids: dict[str, Any]) -> dict[str, str]:
    """Return every URL of a page by its route, with ids of existing objects."""
    urls = {}
    for route, _pattern in routes(get_resolver("config.urls").url_patterns):
        urls[route] = "/" + re.sub(r"<\w+:(\w+)>", lambda match: str(ids[match[1]]), route)
    return urls


@pytest.fixture
def ids(inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Create an object of each kind that a URL names."""
    # It takes 20 seconds; test_sample_project.py loads it.
    monkeypatch.setattr(sample_project, "load_sample", lambda _user: inbox.project)
    agent, administrator = inbox.agent, inbox.organization.members["administrator"]
    effect = inbox.plan(arguments={"ref": "main"})
    agent.post(f"/sessions/{effect['session']}/tasks", {"key": "task", "title": "A task"})
    other = agent.session("s-2")
    with transaction.atomic():
        stop = stops.set_stop(
            inbox.project, "tool", "other.tool", "because", inbox.user("reviewer")
        )
        ends = now_us() + 10**9
        exemption = exemptions.create_exemption(
            inbox.project,
            tool="x",
            reason="for the drill",
            ends_at_us=ends,
            user=inbox.user("operator"),
            **proved(),
        )
        channel = channels.add_channel(
            inbox.project, "email", "ops@example.org", administrator.user
        )
        team = teams.create_team(inbox.project, "night")
        invitations.invite_person(inbox.project, "newcomer", "viewer", actor="p_1")
        incident = incidents.open_incident(
            inbox.project, "A push too many", administrator.user, key="k"
        )
        query = saved_queries.save_query(
            inbox.project, administrator.user, "Mine", "effect", shared=False
        )
    export = exports.request_export(administrator, "effect", "csv")
    policy_set = policies.load_activation(inbox.project)
    assert policy_set is not None
    row = Effect.objects.get(id=effect["id"])
    return {
        "gate": inbox.gate(effect).id,
        "file_name": "gatebook_client-0.1.0-py3-none-any.whl",
        "code": "a" * 64,
        "stop": stop.id,
        "exemption": exemption.id,
        "channel": channel.id,
        "policy_set": policy_set.policy_set_id,
        "team": team.id,
        "incident": incident.id,
        "saved_query": query.id,
        "export": export.id,
        "session": row.session_id,
        "effect": row.id,
        "position": row.plan_position,
        "token": inbox.organization.token.id,
        "repository": inbox.organization.repository.id,
        "agent": inbox.organization.agent.id,
        "member": inbox.organization.members["viewer"].id,
        "rule": "S6",
        "subject": inbox.gate(effect).id,
        "number": 1,
        "person": 1,
        "invitation": Invitation.objects.get().id,
        "task": Task.objects.values_list("id", flat=True).first(),
        "other": other["id"],
        "artifact": row.id,
        "level": 0,  # of a tile of the tree
        "name": "000",
        **load_code_host_ids(inbox),
        **load_erasure_ids(inbox),
    }


def load_code_host_ids(inbox: InboxScenario) -> dict[str, Any]:
    """Return a source with a delivery, and an identity of the agent."""
    host = CodeHost(inbox.organization, inbox.agent)
    event = host.push()
    identity = agent_identities.add_identity(
        inbox.organization.agent, "github", "release-bot", actor="gatebook"
    )
    return {"delivery": event.delivery_id, "source": host.source.id, "identity": identity.id}


def load_erasure_ids(inbox: InboxScenario) -> dict[str, Any]:
    """Return a request to erase, a hold, and a retention set."""
    user = inbox.organization.members["administrator"].user
    words = ["jane@customer.example"]
    request = erasure_requests.request_erasure(
        user, project=inbox.project, reason="ticket 88", words=words
    )
    hold = erasure_requests.set_legal_hold(user, inbox.project, reason="case 12", words=words)
    rules = "name: a\nclasses: [{name: b, keep: 90 days}]\nrules: [{class: b, kind: '*'}]\n"
    retention = retention_sets.load_retention_set(inbox.project, rules)
    return {"erasure": request.id, "hold": hold.id, "retention_set": retention.id}


def post_form(
    client: Client, url: str, body: str, content_type: str = "application/x-www-form-urlencoded"
) -> Any:
    """Return the answer to a POST; undo its changes, and sign in again if it signed out."""
    before, cookies = transaction.savepoint(), client.cookies.output()
    try:
        return client.post(url, body.encode(), content_type=content_type)
    finally:
        transaction.set_rollback(False)
        transaction.savepoint_rollback(before)
        client.cookies.clear()
        client.cookies.load(cookies.replace("Set-Cookie: ", "").replace("\r\n", "; "))


def browser(inbox: InboxScenario) -> Client:
    client = inbox.organization.client("administrator")
    client.raise_request_exception = False
    return client


@pytest.mark.parametrize("chosen", keep_core(["core", "every value"], ["core"]))
def test_no_field_value_makes_a_post_answer_5xx(
    inbox: InboxScenario, ids: dict[str, Any], chosen: str
) -> None:
    values = CORE[connection.vendor] if chosen == "core" else GARBLED
    names, client = sorted(field_names()), browser(inbox)
    assert {"q", "reason", "version", "gate", "role"} <= set(names)
    failed, taken = [], 0
    bodies = {what: "&".join(f"{name}={GARBLED[what]}" for name in names) for what in values}
    for route, url in addresses(ids).items():
        statuses = {"nothing": post_form(client, url, NOTHING).status_code}
        if statuses["nothing"] == 405:
            continue
        taken += 1
        for what, body in bodies.items():
            statuses[what] = post_form(client, url, body).status_code
        failed += [(route, what, status) for what, status in statuses.items() if status >= 500]
    assert failed == []
    assert taken > 40


@pytest.mark.once  # reading a body does not depend on the database
@pytest.mark.parametrize("content_type", keep_core(OTHER_TYPES, OTHER_TYPES[:1]))
def test_no_content_type_makes_a_post_answer_5xx(
    inbox: InboxScenario, ids: dict[str, Any], content_type: str
) -> None:
    client, body = browser(inbox), '--x\r\nContent-Disposition: form-data; name="q"\r\n\r\ne'
    answers = {
        route: post_form(client, url, body, content_type).status_code
        for route, url in addresses(ids).items()
    }
    assert {route: status for route, status in answers.items() if status >= 500} == {}


class _Forms(HTMLParser):
    """Collect the POST forms of a page: targets, and fields with their values."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[tuple[str, list[tuple[str, str]]]] = []
        self._open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._open = attributes.get("method", "get").lower() == "post"
            if self._open:
                self.forms.append((attributes.get("action", ""), []))
        elif (
            self._open
            and attributes.get("name")
            and tag in ("input", "textarea", "select", "button")
        ):
            unchecked = (
                attributes.get("type") in ("checkbox", "radio") and "checked" not in attributes
            )
            if not unchecked:
                self.forms[-1][1].append(
                    (attributes["name"], attributes.get("value", "a word of it"))
                )

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = False


@pytest.mark.matrix
def test_no_missing_or_garbled_field_makes_a_form_answer_5xx(
    inbox: InboxScenario, ids: dict[str, Any]
) -> None:
    client, failed, seen = browser(inbox), [], set[tuple[str, str]]()
    for url in addresses(ids).values():
        page = client.get(url)
        assert page.status_code < 500, url
        if page.status_code != 200 or not page.headers["Content-Type"].startswith("text/html"):
            continue
        forms = _Forms()
        forms.feed(page.content.decode())
        for action, fields in forms.forms:
            target = urlsplit(unescape(action) or url).path
            names = ",".join(sorted({name for name, _ in fields}))
            if (target, names) in seen:
                continue
            seen.add((target, names))
            for name in dict.fromkeys(name for name, _ in fields):
                others = urlencode([field for field in fields if field[0] != name])
                for what in ONE_BY_ONE:
                    body = others if what == MISSING else f"{others}&{name}={GARBLED[what]}"
                    answer = post_form(client, target, body)
                    if answer.status_code >= 500:
                        failed.append((target, name, what, answer.status_code))
    assert failed == []
    assert len(seen) > 25


@pytest.mark.parametrize("do", ["now", "later", ""])
@pytest.mark.parametrize("query", [{}, {"q": ""}, {"q": "  \t"}])
def test_an_export_without_a_query_is_refused_with_a_sentence(
    inbox: InboxScenario, do: str, query: dict[str, str]
) -> None:
    answer = inbox.organization.client("viewer").post(
        reverse("export"), {**query, "format": "csv", "do": do}
    )
    assert answer.status_code == 422
    assert "The query is empty. Name what to export, for example effect or session." in unescape(
        answer.content.decode()
    )
