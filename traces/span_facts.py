"""Facts that a tool call in a span becomes. Pure.

A call that no recorded effect meets becomes an effect that only reports know: its plan without a
time, its start and its end. A call that meets an effect becomes one entry next to that effect.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from api.endpoint import ITEM_BYTES
from api.redaction import redact
from api.strictjson.canonical_json import to_canonical_text
from api.strictjson.parser import Parsed
from traces.spans import Attributes, Span, SpanFault
from traces.tool_calls import ToolCall

SPAN_KIND: Final = "span.recorded"
TRACE_KIND: Final = "trace.named"
KEY_PREFIX: Final = "otlp:"  # of effect keys and sessions that only spans name
MAX_TEXT_BYTES: Final = 65_536  # of one text inside a span; longer ones become their digest
# Attributes of a resource that a session keeps as labels.
_LABELS: Final = (
    "service.name",
    "service.version",
    "service.namespace",
    "deployment.environment.name",
    "deployment.environment",
    "host.name",
)
_MAX_LABEL: Final = 200
_MAX_KEY: Final = 200
_REPOSITORIES: Final = ("gatebook.repository", "vcs.repository.url.full", "vcs.repository.name")
_BRANCHES: Final = ("gatebook.branch", "vcs.ref.head.name")


def build_span_id(span: Span) -> str:
    """Return the id of the entry that exists if a span is recorded."""
    return f"{KEY_PREFIX}{span.trace}:{span.id}"


def name_trace_session(trace: str) -> str:
    """Return the key of the session of a trace whose spans name no conversation."""
    return f"{KEY_PREFIX}{trace}"


def name_conversation(conversation: str) -> str:
    """Return the key of the session of a conversation: its id, or a digest where it is no key."""
    if (
        len(conversation) <= _MAX_KEY
        and conversation.isprintable()
        and not redact.might_contain_secret(conversation)
    ):
        return conversation
    return KEY_PREFIX + hashlib.sha256(conversation.encode()).hexdigest()


def build_trace_id(trace: str) -> str:
    """Return the id of the entry that names the conversation of a trace."""
    return f"{KEY_PREFIX}{trace}"


def build_trace_fact(trace: str, session_key: str) -> dict[str, str]:
    """Build the entry that names the conversation of a trace."""
    return {
        "id": build_trace_id(trace),
        "kind": TRACE_KIND,
        "trace_id": trace,
        "session_key": session_key,
    }


def name_span_effect(call: ToolCall) -> str:
    """Return the effect key of a call that only spans know.

    Claude Code describes one call in two spans, so its call id names the effect.
    """
    if call.convention == "claude_code" and call.call_id:
        return f"{KEY_PREFIX}{call.call_id}"
    return f"{KEY_PREFIX}{call.span.trace}:{call.span.id}"


def build_session_fact(key: str, resource: Attributes, parent: str = "") -> dict[str, Any]:
    """Build the start of a session from a resource; equal input gives the same fact.

    A start that names a parent counts before one that does not, in every order of arrival.
    """
    labels = {name: str(resource[name])[:_MAX_LABEL] for name in _LABELS if resource.get(name)}
    values: dict[str, Any] = {
        "kind": "session.started",
        "session": key,
        "mode": "reported",
        "producer_seq": 0 if parent else 1,
        "labels": {name: value for name, value in labels.items() if value.isprintable()},
    }
    repository, branch = _read_text(resource, _REPOSITORIES), _read_text(resource, _BRANCHES)
    values |= {"repository": repository} if repository else {}
    values |= {"branch": branch} if branch else {}
    values |= {"parent": parent} if parent else {}
    digest = hashlib.sha256(to_canonical_text(values).encode()).hexdigest()
    return values | {"id": f"{KEY_PREFIX}s:{digest[:48]}"}


def build_call_facts(call: ToolCall, session: str) -> list[dict[str, Any]]:
    """Build the facts of an effect that only spans know; the one with the span's id is last.

    Raises SpanFault for a span that is too large.
    """
    span, span_id = call.span, build_span_id(call.span)
    base: dict[str, Any] = {"session": session, "effect_key": name_span_effect(call)}
    facts: list[dict[str, Any]] = []
    if call.tool:
        planned = base | {"kind": "effect.planned", "tool": call.tool[:100], "producer_seq": 0}
        planned |= {"call_id": call.call_id} if call.call_id else {}
        planned |= {"turn": span.parent} if span.parent else {}
        if call.has_arguments:
            planned["arguments"] = call.arguments
        target = _build_target(span.source.resource)
        planned |= {"target": target} if target else {}
        facts.append(planned)
    if call.outcome or call.failed:
        base["attempt"] = 1
        started = base | {"kind": "effect.dispatched", "producer_seq": 1}
        facts.append(started | ({"occurred_us": span.start_us} if span.start_us else {}))
        ended = base | {"producer_seq": 2}
        ended |= {"occurred_us": span.end_us} if span.end_us else {}
        if call.failed:
            ended |= {"kind": "effect.failed", "reason": "error"}
            ended["detail"] = call.result if call.has_result else span.status_message
        else:
            ended |= {"kind": "effect.acknowledged", "outcome": call.outcome}
            ended |= {"result": call.result} if call.has_result else {}
        facts.append(ended)
    for fact, suffix in zip(facts, (":p", ":d"), strict=False):
        fact["id"] = span_id + suffix
    if facts:
        facts[-1] |= {"id": span_id, "span": describe_span(call)}
    return [_shorten_fact(fact) for fact in facts]


def build_evidence_fact(call: ToolCall, session: str, effect_key: str) -> dict[str, Any]:
    """Build the entry of a span next to the effect that it meets. Raises SpanFault."""
    span = call.span
    fact: dict[str, Any] = {
        "id": build_span_id(span),
        "kind": SPAN_KIND,
        "session": session,
        "effect_key": effect_key,
        "tool": call.tool,
        "outcome": call.outcome or "unknown",
        "failed": call.failed,
        "started_us": span.start_us,
        "span": describe_span(call),
    }
    fact |= {"occurred_us": span.end_us} if span.end_us else {}
    fact |= {"call_id": call.call_id} if call.call_id else {}
    fact |= {"arguments": call.arguments} if call.has_arguments else {}
    fact |= {"result": call.result} if call.has_result else {}
    return _shorten_fact(fact)


def describe_span(call: ToolCall) -> dict[str, Any]:
    """Return a span as its entry keeps it, without what the fact already has."""
    span = call.span
    attributes = {name: value for name, value in span.attributes.items() if name not in call.used}
    description: dict[str, Any] = {
        "trace_id": span.trace,
        "span_id": span.id,
        "parent_span_id": span.parent,
        "name": span.name,
        "kind": span.kind,
        "start_us": span.start_us,
        "end_us": span.end_us,
        "status": span.status,
        "status_message": span.status_message,
        "convention": call.convention,
        "attributes": attributes,
        "exceptions": list(span.exceptions),
        "scope": span.source.scope,
        "scope_version": span.source.scope_version,
        "resource": dict(span.source.resource),
    }
    return {name: value for name, value in description.items() if value not in ("", [], {})}


def parse_fact(fact: dict[str, Any]) -> Parsed:
    """Return a fact as the batch parser takes it."""
    return Parsed(fact, to_canonical_text(fact))


def _read_text(attributes: Attributes, names: Iterable[str]) -> str:
    for name in names:
        value = attributes.get(name)
        if isinstance(value, str) and 0 < len(value) <= _MAX_KEY and value.isprintable():
            return value
    return ""


def _build_target(resource: Attributes) -> dict[str, str]:
    repository = _read_text(resource, _REPOSITORIES)
    environment = _read_text(resource, ("deployment.environment.name", "deployment.environment"))
    target = {"repository": repository} if repository else {}
    return target | ({"environment": environment} if 0 < len(environment) <= 64 else {})


def _shorten_fact(fact: dict[str, Any]) -> dict[str, Any]:
    """Return a fact of at most ITEM_BYTES: long texts become their length and SHA-256.

    Raises SpanFault if it is too large even so.
    """
    if _estimate_size(fact) <= MAX_TEXT_BYTES:
        return fact
    shortened: dict[str, Any] = _shorten_value(fact)
    if len(to_canonical_text(shortened).encode()) > ITEM_BYTES:
        raise SpanFault(f"The span has more than {ITEM_BYTES} bytes. Send fewer attributes.")
    return shortened


def _estimate_size(value: Any) -> int:
    """Return about how many bytes the texts of a value have; stops above MAX_TEXT_BYTES."""
    size, stack = 0, [value]
    while stack and size <= MAX_TEXT_BYTES:
        node = stack.pop()
        if type(node) is str:
            size += len(node)
        elif isinstance(node, Mapping):
            size += 8 * len(node)
            stack.extend(node)
            stack.extend(node.values())
        elif type(node) is list:
            size += 4 * len(node)
            stack.extend(node)
    return size


def _shorten_value(value: Any) -> Any:
    if isinstance(value, str):
        if len(value) <= MAX_TEXT_BYTES // 4:
            return value
        data = value.encode()
        if len(data) <= MAX_TEXT_BYTES:
            return value
        return {"omitted_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    if isinstance(value, dict):
        return {name: _shorten_value(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_shorten_value(inner) for inner in value]
    return value
