"""A project of the running server for coding agents: its rules, its token, and a reviewer."""

import json
import re
import time
from dataclasses import dataclass
from typing import Any, Final

import httpx
from django.conf import settings

from tests.api.api_client import NO_TLS, Caller
from tests.approvals.confirm_helpers import code_in
from tests.config.server import Server
from tests.hooks.hook_client import RULES
from tests.pages.people import PASSWORD

_MAKE: Final = """
from django.db import transaction
from accounts import agents, people, projects, tokens
from approvals.policies import policies
from ledger.models import Tool
from tests.rows_with_entries import add_row
with transaction.atomic():
    project = projects.create_project({name!r})
    people.add_project_member(project, {person!r}, "reviewer", {password!r})
    add_row(Tool(project=project, name="git.push", tool_class="opaque",
        reversibility="compensable"))
    policies.activate_policy_set(project, policies.load_policy_set(project, {rules!r}), "enforce")
    print(tokens.issue_token(agents.ensure_agent(project, "coder"), expires_in=None, actor="tests"))
"""
_SEEN: Final = re.compile(r'name="seen" value="([^"]+)"')
_DRAFT: Final = re.compile(r'name="seen_draft" value="([^"]+)"')
_CSRF: Final = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')
WITHIN_S: Final = 60


@dataclass
class LiveProject:
    """One project of the running server; every test makes its own."""

    server: Server
    name: str
    token: str

    @property
    def agent(self) -> Caller:
        return Caller(self.token, address=self.server.url)

    def list_effects(self, **filters: str) -> list[dict[str, Any]]:
        """Return the effects of the project, oldest first."""
        items: list[dict[str, Any]] = self.agent.get("/effects", **filters).json()["items"]
        return items[::-1]

    def wait_for_gate(self, status: str = "pending") -> dict[str, Any]:
        """Return the newest gate as soon as it has a status."""
        until = time.monotonic() + WITHIN_S
        while time.monotonic() < until:
            items: list[dict[str, Any]] = self.agent.get("/gates").json()["items"]
            if items and items[0]["status"] == status:
                return items[0]
            time.sleep(0.05)
        raise AssertionError(f"no gate is {status}")

    def load_page(self, path: str) -> str:
        """Return a page as the project's reviewer sees it."""
        person = f"{self.name}-guy"
        key = self.server.run(
            f"from tests.pages.people import signed_in; print(signed_in({person!r}))"
        ).strip()
        with httpx.Client(base_url=self.server.url, verify=NO_TLS, timeout=60) as client:
            client.cookies.set(settings.SESSION_COOKIE_NAME, key)
            return client.get(path).text

    def rule(self, answer: str = "approve", reason: str = "agreed in INC-204") -> None:
        """Rule on the gate that waits through its page, as a person does."""
        gate = self.wait_for_gate()
        person = f"{self.name}-guy"
        key = self.server.run(
            f"from tests.pages.people import signed_in; print(signed_in({person!r}))"
        ).strip()
        client = httpx.Client(base_url=self.server.url, verify=NO_TLS, timeout=60)
        client.cookies.set(settings.SESSION_COOKIE_NAME, key)
        path = f"/approvals/{gate['id']}/"
        page = client.get(path).text
        seen, csrf = _SEEN.search(page), _CSRF.search(page)
        assert seen is not None, page
        assert csrf is not None, page
        fields = {
            "answer": answer,
            "reason": reason,
            "seen": seen[1],
            "settled": "1",
            "all_read": "1",
            "csrfmiddlewaretoken": csrf[1],
        }
        response = client.post(f"{path}vote/", data=fields, headers={"Referer": self.server.url})
        assert response.status_code == 302, response.text
        if response.headers["Location"].endswith("/confirm/"):
            page = client.get(response.headers["Location"]).text
            draft, csrf = _DRAFT.search(page), _CSRF.search(page)
            assert draft is not None, page
            assert csrf is not None, page
            fields = {
                "seen_draft": draft[1],
                "code": code_in(page),
                "password": PASSWORD,
                "csrfmiddlewaretoken": csrf[1],
            }
            headers = {"Referer": self.server.url}
            response = client.post(f"{path}confirm/", data=fields, headers=headers)
            assert response.status_code == 302, response.text
        assert self.agent.get(f"/gates/{gate['id']}").json()["status"] != "pending"

    def count_violations(self) -> int:
        """Return how many effects of the project ran without approval."""
        code = (
            "from ledger.models import Effect; print(Effect.objects.filter("
            f"project__name={self.name!r}, violates=True, permission='bypassed').count())"
        )
        return int(self.server.run(code))

    def load_results(self) -> list[Any]:
        """Return the stored results of the project's effects, oldest first."""
        code = (
            "import json; from journal.models import Entry; print(json.dumps([json.loads("
            "entry.body.text).get('result') for entry in Entry.objects.filter("
            f"kind='effect.acknowledged', session__in=__import__('sessions.models', fromlist=['x'])"
            f".Session.objects.filter(project__name={self.name!r}).values('id'))"
            ".order_by('position')]))"
        )
        results: list[Any] = json.loads(self.server.run(code))
        return results


def make_live_project(server: Server, name: str) -> LiveProject:
    """Make a project that asks a reviewer for pushes and allows everything else."""
    code = _MAKE.format(name=name, person=f"{name}-guy", password=PASSWORD, rules=RULES)
    return LiveProject(server, name, server.run(code).strip())
