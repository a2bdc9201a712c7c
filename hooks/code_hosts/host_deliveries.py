"""The one writer of CodeHostDelivery: webhook requests, stored once and as they came."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import orjson

from accounts.models import Project
from api.problems import Problem
from api.redaction import redact
from api.strictjson.canonical_json import to_canonical_text
from db.clock import now_us
from db.ids import new_uuid7
from db.row_changes import RowChange, write_row_changes
from db.text import to_column_text
from hooks.code_hosts import host_events
from hooks.code_hosts.event_facts import EventFacts, read_string
from hooks.code_hosts.github_payloads import read_github_event
from hooks.code_hosts.gitlab_payloads import read_gitlab_event
from hooks.models import CodeHostDelivery, CodeHostEvent, CodeHostSource
from journal import entries

DELIVERED: Final = "code_host.delivered"
_READERS: Final = {"github": read_github_event, "gitlab": read_gitlab_event}
# Hosts whose signature covers the body alone. Anyone who has a signed body can send it under any
# id and event name, and the times in it make every delivery of the host's own another body.
_SIGNS_BODY_ONLY: Final = frozenset({"github"})
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

    Must run inside a transaction. Problem 409 if the id was used for another body, or a body that
    alone is signed for another event.
    """
    now = now_us()
    digest = hashlib.sha256(received.body).hexdigest()
    if source.host in _SIGNS_BODY_ONLY:  # equal bodies at once wait for one another
        CodeHostSource.objects.select_for_update().get(id=source.id)
    stored = _find_stored_delivery(source, received, digest)
    if stored is not None:
        return stored, None
    words = {
        "kind": DELIVERED,
        "host": source.host,
        "event": received.event,
        "delivery": received.key,
        "body_digest": digest,
        "payload": _redact_payload(source.project_id, received.payload),
    }
    text = to_canonical_text(words)
    # The row has what its entry says, as a reader of the entry would find it: 1.0 is written as 1.
    columns, facts = read_delivered_words(source.host, orjson.loads(text))
    delivery, event, agent = new_uuid7(), None, None
    if facts is not None:
        event = new_uuid7()
        agent = host_events.find_sender_agent(source.project_id, source.host, facts)
    position = entries.record_system_entry(
        source.project_id,
        DELIVERED,
        event_id=digest_delivery_key(source.id, received.key),
        text=text,
        received_us=now,
        facts=entries.dump_sorted_json(
            {
                "host": source.host,
                "source": source.id,
                "delivery": delivery,
                "event": event,
                "agent": agent,
                "understood": columns["understood"],
                "body": digest_body_digest(digest),
            }
        ),
        subject=source.id,
    ).position
    # The entry waits for a request with the same id, which may have stored the delivery since.
    stored = _find_stored_delivery(source, received, digest)
    if stored is not None:
        return stored, None
    row = CodeHostDelivery.objects.create(
        id=delivery,
        project_id=source.project_id,
        source=source,
        position=position,
        received_us=now,
        **columns,
    )
    if facts is None or event is None:
        return row, None
    return row, host_events.record_host_event(event, row, facts, agent)


def read_delivered_words(
    host: str, words: Mapping[str, Any]
) -> tuple[dict[str, Any], EventFacts | None]:
    """Return what the body of a delivery's entry gives: its columns, and facts of its event.

    Entries of earlier versions give no `body_digest`. Also used by manage.py rebuild.
    """
    event, payload = words["event"], words["payload"]
    facts = _READERS[host](event, payload)
    columns = {
        "delivery_key": words["delivery"],
        "event": event,
        "action": to_column_text(read_string(payload.get("action"), 64)),
        "understood": facts is not None or event in _PINGS,
    }
    if "body_digest" in words:
        columns["body_digest"] = words["body_digest"]
    return columns, facts


def digest_delivery_key(source: UUID, key: str) -> str:
    """Return the id that the entry of a delivery has by the host's id of it."""
    return entries.keyed_digest("code_host", str(source), key)


def digest_body_digest(digest: str) -> str:
    """Return what the facts of a delivery's entry say of the digest of its bytes."""
    return entries.keyed_digest("code_host_body", digest)


def restore_host_deliveries(changes: Sequence[RowChange]) -> None:
    """Restore deliveries to what the journal gives (manage.py rebuild)."""
    write_row_changes(CodeHostDelivery, changes)


def _find_stored_delivery(
    source: CodeHostSource, received: ReceivedDelivery, digest: str
) -> CodeHostDelivery | None:
    """Return the delivery that this request repeats. Problem 409 if it contradicts it."""
    deliveries = CodeHostDelivery.objects.filter(source=source)
    stored = deliveries.filter(delivery_key=received.key).first()
    if stored is not None:
        if stored.body_digest != digest:
            detail = (
                "A delivery with this id and another body is stored. Nothing was changed. Send"
                " every delivery under an id of its own."
            )
            raise Problem(409, "delivery_conflict", detail)
        return stored
    if source.host not in _SIGNS_BODY_ONLY:
        return None
    stored = deliveries.filter(body_digest=digest).order_by("received_us", "position").first()
    if stored is not None and stored.event != received.event:
        detail = (
            f"This body is stored as the event {stored.event}, {stored}. Nothing was changed. Send"
            " a body with the event that it belongs to."
        )
        raise Problem(409, "delivery_conflict", detail)
    return stored


def _redact_payload(project: Any, payload: dict[str, Any]) -> dict[str, Any]:
    if not Project.objects.values_list("redacts", flat=True).get(id=project):
        return payload
    redacted, _count = redact.redact_value(payload, redact.derive_project_key(project))
    return redacted if isinstance(redacted, dict) else payload
