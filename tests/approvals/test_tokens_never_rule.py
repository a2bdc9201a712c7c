"""No token rules, revokes, stops or changes policy: a token tries every route of both URL tables.

The routes are read from the tables, so a route that is added tomorrow is tried tomorrow.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import pytest
from django.apps import apps
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from api.urls import urlpatterns as agents_doors
from approvals.models import Gate
from tests.api.test_api_endpoints import BODIES
from tests.approvals.inbox_scenario import InboxScenario
from tests.matrices import keep_core

pytestmark = pytest.mark.django_db
APP_LABELS: Final = ("agent_sessions", "ledger", "approvals", "auth")
# What an agent may do for itself: read, and withdraw its own requests.
OF_AGENTS: Final = {"gates", "gates/wait", "gates/<gate:gate>", "gates/<gate:gate>/cancel"}
OPEN_TO_ALL: Final = {
    *("healthz", "readyz", "metrics", "help/", "help/glossary/", "sign-in/", "sign-out/"),
    "proofs/gatebook-verify.py",
    "settings/connect/claim/",  # of the command `gatebook connect`, which has a secret of its own
}
VERBS: Final = (
    *(
        "approve",
        "deny",
        "answer",
        "vote",
        "rule",
        "ruling",
        "revoke",
        "extend",
        "stop",
        "lift",
        "confirm",
    ),
    *("activate", "policies", "exempt", "exemptions"),
)


def routes(patterns: Any, before: str = "") -> Iterator[str]:
    """Every route of both tables, as written there."""
    for pattern in patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            yield route


PEOPLES: Final = sorted(set(routes(get_resolver("config.urls").url_patterns)))


def filled(route: str, gate: Gate) -> str:
    """The route with ids of existing objects."""
    identities = {
        "effect": gate.effect_id,
        "session": gate.session_id,
        "gate": gate.id,
        "agent": gate.agent_id,
    }

    def fill(match: re.Match[str]) -> str:
        kind, _, name = match[1].rpartition(":")
        return str(gate.opened_position if kind == "int" else identities.get(name, UUID(int=7)))

    return re.sub(r"<([^>]+)>", fill, route)


def rows() -> dict[str, list[Any]]:
    """All rows that could be changed."""
    rows_by_model = {}
    for app_label in APP_LABELS:
        for model in apps.get_app_config(app_label).get_models():
            if model.__name__ != "AgentToken":  # its time of last use changes
                rows_by_model[model.__name__] = list(model._default_manager.order_by("pk").values())
    return rows_by_model


def test_the_tables_were_read() -> None:
    assert len(PEOPLES) > 25
    assert {
        str(route_pattern.pattern)
        for route_pattern in agents_doors
        if "gate" in str(route_pattern.pattern)
    } == OF_AGENTS


@pytest.mark.parametrize(
    "method", keep_core(["get", "post", "put", "patch", "delete"], ["get", "post"])
)
def test_a_token_opens_no_page_of_people(inbox: InboxScenario, method: str) -> None:
    gate = inbox.gate(inbox.plan())
    inbox.person("reviewer")
    before = rows()
    client = Client(enforce_csrf_checks=False)
    fields = {
        "answer": "approve",
        "reason": "because I say so",
        "mode": "observe",
        "scope": "project",
    }
    for route in PEOPLES:
        if route in OPEN_TO_ALL:
            continue
        headers = {"Authorization": f"Bearer {inbox.agent.token}"}
        answer = getattr(client, method)(f"/{filled(route, gate)}", fields, headers=headers)
        assert answer.status_code in (302, 403, 404, 405), (method, route, answer.status_code)
        if answer.status_code == 302:
            assert answer["Location"].startswith("/sign-in/"), (method, route, answer["Location"])
    assert rows() == before


def test_an_agents_gate_has_no_endpoint_that_rules_it(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan())
    before = rows()
    fields = {
        "answer": "approve",
        "reason": "because I say so",
        "status": "approved",
        "person": "reviewer",
    }
    for verb in VERBS:
        for path in (
            f"/gates/{gate.id}/{verb}",
            f"/gates/{verb}",
            f"/{verb}",
            f"/effects/{gate.effect_id}/{verb}",
        ):
            assert inbox.agent.post(path, fields).status_code == 404, path
    for method in ("post", "put", "patch", "delete"):
        answer = inbox.agent.client.request(method, f"/gates/{gate.id}", json=fields)
        assert answer.status_code == 405, method
    assert rows() == before


def test_nothing_that_an_agent_may_send_approves_its_gate(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan())
    identities = {"session": gate.session_id, "effect": gate.effect_id, "gate": gate.id}
    named = defaultdict(lambda: UUID(int=7), identities)
    for route_pattern in agents_doors:
        path = "/" + re.sub(r"<uuid:(\w+)>", r"{\1}", str(route_pattern.pattern))
        if path.endswith(("/cancel", "/supersede", "/end")):
            continue  # they end the request, which is the agent's right
        body = {
            **BODIES.get(path, {}),
            "status": "approved",
            "permission": "granted",
            "permission_basis": "ruling",
        }
        for sent in (BODIES.get(path, {}), body):
            inbox.agent.post(path.format_map(named), sent)
    kinds = (
        "gate.voted",
        "gate.ruled",
        "gate.used",
        "effect.granted",
        "stop.lifted",
        "policy.activated",
    )
    for number, kind in enumerate(kinds):
        item = {
            "id": f"forged-{number}",
            "kind": kind,
            "session": "s-1",
            "effect_key": "e-1",
            "gate": str(gate.id),
        }
        inbox.agent.report([item])
    stored = Gate.objects.get(id=gate.id)
    assert stored.status != "approved"
    assert stored.decided_at_us is None
    assert stored.effect.permission not in ("granted", "used")
