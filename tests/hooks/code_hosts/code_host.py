"""A code host as the tests play it: signed deliveries of events, and the agent on the other side."""

import base64
import hashlib
import hmac
import itertools
import json
from dataclasses import dataclass, field
from typing import Any

import httpx
from django.db import transaction

from accounts.models import Project
from hooks.code_hosts import host_events, sources
from hooks.code_hosts.sources import derive_source_secret
from hooks.models import CodeHostEvent, CodeHostSource, EventMatch
from ledger.models import Effect
from tests.api.api_client import Caller, new_key
from tests.pages.people import Organization

SHA = "6f2c1d3e4b5a69788796a5b4c3d2e1f001122334"
OTHER_SHA = "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"
NO_SHA = "0" * 40
PUSHES = itertools.count(1)  # stands for the times in the payloads of a code host


@dataclass
class CodeHost:
    """One project with a source, its agent, and the code host that calls."""

    organization: Organization
    agent: Caller
    source: CodeHostSource = field(init=False)

    def __post_init__(self) -> None:
        self.source = self.add_source()

    @property
    def project(self) -> Project:
        return self.organization.project

    def add_source(self, host: str = "github", name: str = "acme") -> CodeHostSource:
        with transaction.atomic():
            return sources.add_source(self.project, host, name, actor="gatebook")

    def secret(self, source: CodeHostSource | None = None) -> str:
        of = source or self.source
        return derive_source_secret(of.id, of.secret_generation)

    def deliver(
        self,
        event: str,
        payload: Any,
        *,
        key: str = "",
        secret: str | None = None,
        path: str | None = None,
        **headers: str,
    ) -> httpx.Response:
        """Send a delivery as GitHub does, signed with the source's secret."""
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        signed = hmac.new((secret or self.secret()).encode(), body, hashlib.sha256).hexdigest()
        named = {
            "X_GitHub_Event": event,
            "X_GitHub_Delivery": key or new_key(),
            "X_Hub_Signature_256": f"sha256={signed}",
            **headers,
        }
        return self.agent.raw(path or f"/hooks/github/{self.source.id}", body, **named)

    def push(self, key: str = "", **values: Any) -> CodeHostEvent:
        """Deliver a push and return its event. Without a key it is another push every time."""
        if not key:
            values.setdefault("push_id", next(PUSHES))
        answer = self.deliver("push", build_push(**values), key=key)
        assert answer.status_code == 200, answer.text
        return CodeHostEvent.objects.get(position=answer.json()["position"])

    def plan_push(self, effect_key: str = "e-1", **fields: Any) -> dict[str, Any]:
        """Plan a push of main to acme/shop."""
        self.agent.session("s-1")
        body = {
            "tool": "git.push",
            "arguments": {"ref": "main"},
            "target": {"repository": "acme/shop", "ref": "main"},
        }
        return self.agent.plan(effect_key, **{**body, **fields})

    def dispatch_push(self, effect_key: str = "e-1", **fields: Any) -> Effect:
        """Plan and dispatch a push, without an answer."""
        planned = self.plan_push(effect_key, **fields)
        self.agent.dispatch(planned)
        return Effect.objects.get(id=planned["id"])


def build_push(
    *,
    ref: str = "refs/heads/main",
    after: str = SHA,
    before: str = OTHER_SHA,
    repository: str = "acme/shop",
    login: str = "release-bot",
    forced: bool = False,
    **more: Any,
) -> dict[str, Any]:
    """Return a push event as GitHub sends it, with the members that Gatebook reads."""
    web = f"https://github.com/{repository}"
    return {
        "ref": ref,
        "before": before,
        "after": after,
        "created": before == NO_SHA,
        "deleted": after == NO_SHA,
        "forced": forced,
        "compare": f"{web}/compare/a...b",
        "head_commit": {"id": after, "message": "Release 1.4", "url": f"{web}/commit/{after}"},
        "pusher": {"name": login, "email": f"{login}@example.org"},
        "repository": {"full_name": repository, "html_url": web},
        "sender": {"login": login, "id": 7},
        **more,
    }


def sign_for_gitlab(secret: str, key: str, timestamp: str, body: bytes) -> str:
    """Return the `webhook-signature` of a delivery."""
    mac_key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{key}.{timestamp}.".encode() + body
    digest = hmac.digest(mac_key, signed, hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"


def matches_of(event: CodeHostEvent) -> list[tuple[str, str]]:
    """Return the rule and status of each match of an event."""
    rows = EventMatch.objects.filter(event=event).order_by("position")
    return list(rows.values_list("rule", "status"))


def pass_time(event: CodeHostEvent, monkeypatch: Any, seconds: int) -> str:
    """Compare an event as if `seconds` had passed since it arrived; return its status."""
    later = event.received_us + seconds * 1_000_000
    monkeypatch.setattr(host_events, "now_us", lambda: later)
    status = host_events.compare_event(event.id)
    monkeypatch.undo()
    event.refresh_from_db()
    return status
