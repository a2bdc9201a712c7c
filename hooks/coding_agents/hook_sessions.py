"""The sessions of coding agents: one per client session, and a child for each subagent.

A session is opened by the first hook that names it and is never ended: the client may resume it at
any time. Between two processes it is suspended. It has no lease (mode `one_shot`).
"""

from typing import Any, Final
from uuid import UUID

from api.endpoint import Call
from api.strictjson.canonical_json import to_canonical_text
from hooks.coding_agents.hook_events import (
    HookEvent,
    compute_text_digest,
    read_text_field,
    to_plain_text,
)
from journal.entries import Origin
from sessions import lookup, sessions
from sessions.models import Session

MAX_SUBAGENTS: Final = 200  # of one session that are searched for open calls
# Fields that describe the client's process. Shown, never compared.
_META_FIELDS: Final = (
    *("cwd", "transcript_path", "permission_mode", "model", "source", "agent_type"),
    "agent_transcript_path",
)


def build_origin(call: Call, event: HookEvent, key: str, body: dict[str, Any]) -> Origin:
    """Return the envelope of a command that a hook causes.

    Equal deliveries have equal keys, so that the journal stores each fact once.
    """
    origin = call.origin(to_canonical_text({**body, "client": event.client}))
    origin.key = key
    origin.occurred_us = event.occurred_us
    return origin


def build_fact_key(*parts: object) -> str:
    """Return the journal key of a fact that follows from a hook: 64 characters."""
    text = "\0".join(map(str, parts))
    return f"hook:{compute_text_digest(text)[:59]}"


def ensure_session(call: Call, event: HookEvent) -> UUID:
    """Return the session of a hook, locked; open it if it is new."""
    if event.parent_key:
        _open_session(call, event, event.parent_key, "")
    return _open_session(call, event, event.session_key, event.parent_key)


def _open_session(call: Call, event: HookEvent, key: str, parent: str) -> UUID:
    session = lookup.derive_session_id(call.project, key)
    if sessions.lock_session_row(call.project, session, call.received_us, new_effects=0):
        return session
    labels: dict[str, str] = {"client": event.program}
    for name in ("agent_type", "model"):
        text = read_text_field(event.fields, name)
        if text and (parent or name != "agent_type"):
            labels[name] = to_plain_text(text, 200)
    values: dict[str, Any] = {
        "key": key,
        "title": build_title(event) if not parent else f"Subagent {labels.get('agent_type', '')}",
        "mode": "one_shot",
        "labels": labels,
    }
    if parent:
        values["parent"] = parent
    repository = to_plain_text(read_text_field(event.facts, "repository"), 200)
    if repository:
        values["repository"] = repository
    branch = to_plain_text(read_text_field(event.facts, "branch"), 200)
    if branch:
        values["branch"] = branch
    body = {**values, "kind": "session.started", "meta": build_meta(event)}
    origin = build_origin(call, event, build_fact_key("session.started", key), body)
    sessions.open_session(origin, values)
    return session


def list_family(project: UUID, root: UUID) -> list[UUID]:
    """Return a session and its newest subagents: after a crash, another of them repeats a call."""
    children = Session.objects.filter(project=project, parent=root).order_by("-opened_position")
    return [root, *children.values_list("id", flat=True)[:MAX_SUBAGENTS]]


def build_meta(event: HookEvent) -> dict[str, Any]:
    """Return what a hook says about the client's process."""
    return {name: event.fields[name] for name in _META_FIELDS if event.fields.get(name)}


def build_title(event: HookEvent) -> str:
    """Return the first line of the prompt, or an empty title."""
    lines = read_text_field(event.fields, "prompt").strip().splitlines()
    return lines[0][:300] if lines else ""


def load_hook_session(session: UUID) -> Session:
    """Return the stored session with the columns that hooks change."""
    names = ("id", "key", "status", "version", "title", "effect_count")
    return Session.objects.only(*names).get(id=session)
