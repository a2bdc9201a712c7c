"""Tool declarations for the recovery tests, and the requests of a worker after a crash."""

from typing import Any

from django.db import transaction
from django.db.models import BigIntegerField, F, Value

from accounts.models import Project
from ledger.models import Attempt
from ledger.tools import cache, registry, tools_yaml
from tests.api.api_client import Caller

TOOLS = """
tools:
  page.read: {class: read_only}
  file.put: {class: idempotent, reversibility: reversible}
  file.put.seen: {class: idempotent, reversibility: reversible, probe: true, request_lifetime_s: 1}
  pay.keyed: {class: idempotency_key, reversibility: compensable, key_window_s: 86400}
  pay.short: {class: idempotency_key, key_window_s: 60, probe: true, request_lifetime_s: 1}
  pay.blind: {class: idempotency_key, key_window_s: 60}
  git.commit: {class: transactional, request_lifetime_s: 1}
  git.push: {class: probeable, request_lifetime_s: 1}
  git.push.slow: {class: probeable, request_lifetime_s: 600, max_probes: 2, undo: reference}
  vm.start: {class: compensable, undo: key, max_attempts: 2}
  vm.rent: {class: compensable, undo: reference}
  mail.send: {class: opaque}
"""


def declare(project: Project) -> None:
    """Declare the tools of these tests in `project`."""
    with transaction.atomic():
        registry.declare_tools(project, tools_yaml.parse_tools_yaml(TOOLS))
    cache.clear_tool_cache()


def verdict(agent: Caller, effect: dict[str, Any], process: str = "") -> dict[str, Any]:
    """Return the verdict of an effect."""
    answer = agent.get(
        f"/effects/{effect['id']}/verdict", **({"process": process} if process else {})
    )
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def row(agent: Caller, effect: dict[str, Any]) -> tuple[str, str, str]:
    """Return the answer, the row and the reason of an effect's verdict."""
    answer = verdict(agent, effect)
    return answer["verdict"], answer["row"], answer["reason"]


def probe(
    agent: Caller, effect: dict[str, Any], result: str, attempt: int = 1, **fields: Any
) -> dict[str, Any]:
    """Report a probe and return the response body."""
    answer = agent.post(
        f"/effects/{effect['id']}/probe", {"attempt": attempt, "result": result, **fields}
    )
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def replay(
    agent: Caller, effect: dict[str, Any], replays: int = 1, process: str = "p-2", **fields: Any
) -> Any:
    """Request to replace an attempt, and return the response."""
    body = {
        "process": process,
        "intent_digest": effect["intent_digest"],
        "replays": replays,
        **fields,
    }
    return agent.post(f"/effects/{effect['id']}/dispatch", body)


def age(effect: dict[str, Any], seconds: int) -> None:
    """Move all stored times of an effect's attempts back by `seconds`."""
    shift = Value(seconds * 1_000_000, output_field=BigIntegerField())
    Attempt.objects.filter(effect=effect["id"]).update(
        received_us=F("received_us") - shift,
        heard_us=F("heard_us") - shift,
        dispatched_at_us=F("dispatched_at_us") - shift,
    )


def dispatch_effect(agent: Caller, tool: str, key: str = "e-1", **fields: Any) -> dict[str, Any]:
    """Plan and dispatch an effect without a further report."""
    effect = agent.plan(key, tool=tool, **fields)
    agent.dispatch(effect)
    return effect
