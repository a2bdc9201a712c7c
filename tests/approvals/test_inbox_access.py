"""Every page of approvals, from the URL table: who may open it, what a GET changes, project
isolation."""

import re
from collections.abc import Iterator
from itertools import product
from typing import Any, Final
from uuid import UUID

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, get_resolver, reverse
from django.utils.regex_helper import normalize

from accounts.models import ROLES, Agent
from approvals import exemptions
from approvals.models import Gate, Vote
from approvals.policies import policies
from db.clock import now_us
from journal.models import Entry
from ledger import stops
from notifications import channels
from sessions.models import Session
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import RULES, InboxScenario
from tests.matrices import keep_core
from tests.rows_with_entries import change_agents

pytestmark = pytest.mark.once

# The least role that may open each page, by its URL name; the test fails for a page that is
# missing.
LEAST: Final = {
    "inbox": "viewer",
    "gate": "viewer",
    "gate_arguments": "viewer",
    "gate_argument": "viewer",
    "stops": "viewer",
    "policies": "viewer",
    "policy_set": "viewer",
    "exemptions": "viewer",
    "grant_exemption": "operator",
    "confirm_exemption": "operator",
    "revoke_exemption": "operator",
    "policy_draft": "administrator",
    "activate_policy": "administrator",
    "notifications": "administrator",
    "channel": "administrator",
    "switch_channel": "administrator",
    "try_channel": "administrator",
    "remove_channel": "administrator",
    "gate_vote": "reviewer",
    "gate_confirm": "reviewer",
    "gate_extend": "reviewer",
    "gate_discard_draft": "reviewer",
    "gate_revoke": "reviewer",
    "gate_undo": "reviewer",
    "gate_comment": "reviewer",
    "review_settings": "reviewer",
    "gate_assign": "reviewer",
    "batch": "reviewer",
    "batch_confirm": "reviewer",
    "ended_requests": "reviewer",
    "stop": "reviewer",
    "lift": "reviewer",
}


RELATIONS: Final = ("nobody", "requester", "session_owner", "agent_owner")


def patterns() -> list[URLPattern]:
    """The URL patterns of approvals and of notifications."""
    return [
        pattern
        for urlconf in ("approvals.urls", "notifications.urls")
        for pattern in get_resolver(urlconf).url_patterns
        if isinstance(pattern, URLPattern)
    ]


@pytest.fixture
def gate(inbox: InboxScenario) -> Gate:
    return inbox.gate(inbox.plan(arguments={"ref": "main"}))


@pytest.fixture
def ids(inbox: InboxScenario, gate: Gate) -> dict[str, UUID]:
    with transaction.atomic():
        stop = stops.set_stop(
            inbox.project, "tool", "other.tool", "because", inbox.user("reviewer")
        )
        exemption = exemptions.create_exemption(
            inbox.project,
            tool="x",
            reason="for the drill",
            ends_at_us=now_us() + 10**9,
            user=inbox.user("operator"),
            **proved(),
        )
        channel = channels.add_channel(
            inbox.project, "email", "ops@example.org", inbox.user("administrator")
        )
    active = policies.load_activation(inbox.project)
    assert active is not None
    ids = {"gate": gate.id, "stop": stop.id, "exemption": exemption.id, "channel": channel.id}
    return {**ids, "policy_set": active.policy_set_id}


def urls(ids: dict[str, UUID]) -> dict[str, str]:
    """The URLs of the approvals pages by name."""
    urls_by_name = {}
    for pattern in patterns():
        assert pattern.name is not None
        names = pattern.pattern.converters
        urls_by_name[pattern.name] = reverse(
            pattern.name, kwargs={name: ids.get(name, 0) for name in names}
        )
    return urls_by_name


def test_every_page_of_approvals_is_in_the_table_and_declares_its_role(
    ids: dict[str, UUID],
) -> None:
    assert set(urls(ids)) == set(LEAST)
    for pattern in patterns():
        assert getattr(pattern.callback, "required_role", None) == LEAST[str(pattern.name)], (
            pattern.name
        )


def take_part(inbox: InboxScenario, user: User, relation: str) -> None:
    """Make `user` a party in one relation or in every relation, and no other person in any."""
    parts = {relation} if relation != EVERY_PART else set(RELATIONS)
    change_agents(
        Agent.objects.filter(id=inbox.organization.agent.id),
        owner=user if "agent_owner" in parts else None,
    )
    for column, named in (("owner", "session_owner"), ("on_behalf_of", "requester")):
        Session.objects.filter(project=inbox.project).update(
            **{column: user if named in parts else None}
        )


EVERY_PART: Final = "every part"
# A relation could open a page to the least role, or close a page to the highest role: a user with
# all relations at once shows whether one does.
PARTS: Final = [(role, "nobody") for role in ROLES] + [
    (role, EVERY_PART) for role in (ROLES[0], ROLES[-1])
]
# Of the least and the highest role, those with every relation.
CORE_PARTS: Final = [part for part in PARTS if (part[0], EVERY_PART) not in PARTS] + PARTS[-2:]


@pytest.mark.parametrize(("role", "relation"), keep_core(PARTS, CORE_PARTS))
def test_pages_open_from_their_role_upwards(
    inbox: InboxScenario, ids: dict[str, UUID], role: str, relation: str
) -> None:
    """A relation to the request opens no page and closes none; it removes the vote yes, as tested
    below."""
    take_part(inbox, inbox.user(role), relation)
    client = inbox.organization.client(role)
    for name, url in urls(ids).items():
        allowed = ROLES.index(role) >= ROLES.index(LEAST[name])
        for answer in (client.get(url), client.post(url, {})):
            assert (answer.status_code == 403) <= (not allowed), (name, role, answer.status_code)
            assert allowed or answer.status_code in (403, 405), (name, role, answer.status_code)
    assert not Vote.objects.exists()
    assert Gate.objects.get(id=ids["gate"]).status == "pending"


def test_strangers_are_sent_to_sign_in(ids: dict[str, UUID]) -> None:
    for url in urls(ids).values():
        for answer in (Client().get(url), Client().post(url)):
            assert answer.status_code in (302, 405)
            assert answer.status_code == 405 or answer["Location"].startswith("/sign-in/")


def test_no_post_without_its_csrf_proof(inbox: InboxScenario, ids: dict[str, UUID]) -> None:
    client = inbox.organization.client("administrator", csrf=True)
    for name, url in urls(ids).items():
        assert client.post(url, {"answer": "approve"}).status_code in (403, 405), name


def test_things_of_another_project_are_not_found(
    inbox: InboxScenario, ids: dict[str, UUID]
) -> None:
    """The neighbour administers the other project, and has every id of this project."""
    client = inbox.organization.client("neighbour")
    for name, url in urls(ids).items():
        if not any(str(identity) in url for identity in ids.values()):
            continue
        for answer in (
            client.get(url),
            client.post(url, {"answer": "approve", "reason": "because"}),
        ):
            assert answer.status_code in (404, 405), name
    assert str(ids["gate"]) not in client.get(reverse("inbox")).content.decode()
    client.post(reverse("batch"), {"gate": [str(ids["gate"])]})
    assert client.get(reverse("batch_confirm")).status_code == 409
    client.post(
        reverse("stop"),
        {"scope": "agent", "subject": inbox.organization.agent.id.hex, "reason": "because"},
    )
    assert len(stops.load_stops(inbox.project.id)) == 1
    assert not Vote.objects.exists()


@pytest.mark.parametrize(
    ("role", "relation"),
    keep_core(
        product(ROLES, RELATIONS),
        [
            *(("reviewer", relation) for relation in RELATIONS),
            *(("viewer", "nobody"), ("operator", "agent_owner"), ("administrator", "nobody")),
        ],
    ),
)
def test_who_may_approve_and_deny_by_role_and_relation(
    inbox: InboxScenario, role: str, relation: str
) -> None:
    inbox.agent.session("s-1")
    take_part(inbox, inbox.user(role), relation)
    inbox.rules(RULES.replace("match: {tools: [git.push]}", "match: {tools: [git.push, tidy]}"))
    inbox.declare("tidy", "reversible")
    gate = inbox.gate(inbox.plan(arguments={"ref": "main"}))
    together = inbox.gate(inbox.plan("e-2", tool="tidy", arguments={"ref": "next"}))
    approved = inbox.plan("e-3", arguments={"ref": "third"})
    inbox.answer(inbox.gate(approved), "carol")
    client = inbox.organization.client(role)
    reviews = ROLES.index(role) >= ROLES.index("reviewer")
    says_yes = reviews and relation == "nobody"
    assert answered(client, gate, "approve") == says_yes
    assert answered_in_a_batch(client, together) == says_yes
    if not says_yes:
        assert answered(client, gate, "deny") == reviews
    # All reviewers may extend and revoke.
    before = together.decide_by_us
    client.post(reverse("gate_extend", args=[together.id]))
    client.post(reverse("gate_revoke", args=[inbox.gate(approved).id]), {"reason": "not now"})
    assert (Gate.objects.get(id=together.id).decide_by_us > before) == (reviews and not says_yes)
    assert inbox.gate(approved).status == ("revoked" if reviews else "approved")


def answered(client: Client, gate: Gate, answer: str) -> bool:
    html = client.get(reverse("gate", args=[gate.id])).content.decode()
    token = re.search(r'name="seen" value="([^"]+)"', html)
    fields = {
        "answer": answer,
        "reason": "agreed in INC-204",
        "seen": token[1] if token else "",
        "settled": "1",
    }
    before = Vote.objects.filter(gate=gate, answer=answer).count()
    client.post(reverse("gate_vote", args=[gate.id]), fields)
    return Vote.objects.filter(gate=gate, answer=answer).count() > before


def answered_in_a_batch(client: Client, gate: Gate) -> bool:
    client.post(reverse("batch"), {"gate": [str(gate.id)]})
    html = client.get(reverse("batch_confirm")).content.decode()
    token = re.search(r'name="seen-[0-9a-f]+" value="([^"]+)"', html)
    fields = {
        "answer": "approve",
        "reason": "agreed in INC-204",
        "gate": str(gate.id),
        f"seen-{gate.id.hex}": token[1] if token else "",
    }
    client.post(reverse("batch_confirm"), fields)
    return Vote.objects.filter(gate=gate, answer="approve").exists()


def rows() -> dict[str, list[Any]]:
    """Every row of every table, except those that a GET may change."""
    rows_by_table = {}
    for model in apps.get_models():
        if model._meta.db_table == "django_session":
            continue
        table = model._default_manager.all()
        if model is Entry:
            table = table.exclude(kind__startswith="access.")
        if model._meta.db_table == "journal_body":
            table = table.exclude(entry__kind__startswith="access.")
        rows_by_table[model._meta.label] = sorted(map(str, table.values_list()))
    return rows_by_table


def every_get(urlconf: str, ids: dict[str, Any]) -> Iterator[str]:
    """Each URL of the table that can be built from the existing ids."""
    for pattern in walk(get_resolver(urlconf).url_patterns):
        for form, names in normalize(pattern):
            if set(names) <= ids.keys():
                yield "/" + form % {name: ids[name] for name in names}


def walk(patterns_below: list[Any], before: str = "") -> Iterator[str]:
    for pattern in patterns_below:
        route = before + str(pattern.pattern.regex.pattern).removeprefix("^").replace(
            "\\Z", ""
        ).removesuffix("$")
        if isinstance(pattern, URLPattern):
            yield route
        else:
            yield from walk(pattern.url_patterns, before + "")


@pytest.mark.matrix
def test_reading_every_page_changes_nothing(inbox: InboxScenario, ids: dict[str, UUID]) -> None:
    decided = inbox.gate(inbox.plan("done", arguments={"ref": "next"}))
    inbox.answer(decided, "carol")
    effect = Gate.objects.get(id=ids["gate"]).effect
    everything: dict[str, Any] = {
        **ids,
        "session": effect.session_id,
        "effect": effect.id,
        "position": effect.plan_position,
        "token": inbox.organization.token.id,
        "repository": inbox.organization.repository.id,
        "member": inbox.organization.members["viewer"].id,
        "rule": "S6",
        "subject": ids["gate"],
    }
    client = inbox.organization.client("administrator")
    client.get("/")
    before = rows()
    visited = 0
    for url in every_get("config.urls", everything):
        if url in ("/sign-in/", "/sign-out/"):
            continue
        answer = client.get(url)
        assert answer.status_code in (200, 204, 302, 404, 405, 409), (url, answer.status_code)
        visited += answer.status_code == 200
    client.get(reverse("gate", args=[decided.id]))
    assert visited >= 20
    assert rows() == before


def test_no_agent_decides_or_stops_by_any_page_for_people(
    inbox: InboxScenario, ids: dict[str, UUID]
) -> None:
    headers = {"Authorization": f"Bearer {inbox.agent.token}"}
    for name, url in urls(ids).items():
        answer = Client().post(url, {"answer": "approve", "reason": "because"}, headers=headers)
        assert answer.status_code in (302, 405), name
    assert not Vote.objects.exists()
    assert len(stops.load_stops(inbox.project.id)) == 1
