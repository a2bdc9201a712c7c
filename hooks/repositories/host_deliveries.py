"""The one writer of CodeHostDelivery: webhook requests, stored once and as they came."""

import hashlib
from dataclasses import dataclass
from typing import Any, Final

from accounts.models import Project
from api.problems import Problem
from api.redaction import redact
from api.strictjson.canonical_json import to_canonical_text
from db.clock import now_us
from db.text import to_column_text
from hooks.models import CodeHostDelivery, CodeHostEvent, CodeHostSource
from hooks.repositories import host_events
from hooks.repositories.event_facts import read_string
from hooks.repositories.github_payloads import read_github_event
from hooks.repositories.gitlab_payloads import read_gitlab_event
from journal import entries

DELIVERED: Final = "code_host.delivered"
_READERS: Final = {"github": read_github_event, "gitlab": read_gitlab_event}
# A ping says that the webhook works; nothing happened.
_PINGS: Final = ("ping",)


@dataclass(frozen=True, slots=True)
class ReceivedDelivery:
    """A request with a valid signature: the host's id and event, the bytes and their value."""

    key: str
    event: str
    body: bytes
    payload: dict[str, Any]


def record_delivery(
    source: CodeHostSource, received: ReceivedDelivery
) -> tuple[CodeHostDelivery, CodeHostEvent | None]:
    """Store a delivery with its journal entry and event; a repeated one returns what is stored.

    Must run inside a transaction. Problem 409 if the id was used for another body.
    """
    now = now_us()
    digest = hashlib.sha256(received.body).hexdigest()
    same = CodeHostDelivery.objects.filter(source=source, delivery_key=received.key)
    if (stored := same.first()) is not None:
        return _check_repeated(stored, digest), None
    payload = _redact_payload(source.project_id, received.payload)
    facts = _READERS[source.host](received.event, payload)
    position = _append_entry(source, received, payload, now)
    # The entry waits for a request with the same id, which may have stored the delivery since.
    if (stored := same.first()) is not None:
        return _check_repeated(stored, digest), None
    delivery = CodeHostDelivery.objects.create(
        project_id=source.project_id,
        source=source,
        delivery_key=received.key,
        event=received.event,
        action=to_column_text(read_string(payload.get("action"), 64)),
        body_digest=digest,
        understood=facts is not None or received.event in _PINGS,
        position=position,
        received_us=now,
    )
    if facts is None:
        return delivery, None
    return delivery, host_events.record_host_event(delivery, source.host, facts)


def _check_repeated(stored: CodeHostDelivery, digest: str) -> CodeHostDelivery:
    if stored.body_digest != digest:
        detail = (
            "A delivery with this id and another body is stored. Nothing was changed. Send every"
            " delivery under an id of its own."
        )
        raise Problem(409, "delivery_conflict", detail)
    return stored


def _redact_payload(project: Any, payload: dict[str, Any]) -> dict[str, Any]:
    if not Project.objects.values_list("redacts", flat=True).get(id=project):
        return payload
    redacted, _count = redact.redact_value(payload, redact.derive_project_key(project))
    return redacted if isinstance(redacted, dict) else payload


def _append_entry(
    source: CodeHostSource, received: ReceivedDelivery, payload: dict[str, Any], now: int
) -> int:
    facts = {"host": source.host, "source": source.id}
    words = {
        "kind": DELIVERED,
        "host": source.host,
        "event": received.event,
        "delivery": received.key,
        "payload": payload,
    }
    return entries.record_system_entry(
        source.project_id,
        DELIVERED,
        event_id=entries.keyed_digest("code_host", str(source.id), received.key),
        text=to_canonical_text(words),
        received_us=now,
        facts=entries.dump_sorted_json(facts),
        subject=source.id,
    ).position
