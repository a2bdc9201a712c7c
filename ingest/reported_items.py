"""Parses the items of a batch by the schema of their kind."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ingest import redaction, shapes
from ingest.canonical import canonical_text
from ingest.doors import Call, convert
from ingest.planned import intent_digest, key_of, plan_columns
from ingest.problems import Problem
from ingest.reported import SHAPES
from ingest.secret_kinds import Hints
from ingest.shapes_verdicts import ReportedProbe
from ingest.strict import ItemFault, Parsed
from ledger import fold
from sessions.origin import Origin
from sessions.speakers import Standing


@dataclass(slots=True)
class Item:
    """One readable item of a batch."""

    index: int
    envelope: shapes.Envelope
    fields: Any
    origin: Origin
    redactions: int
    session: UUID = field(default_factory=lambda: UUID(int=0))
    session_key: str | None = None
    effect: UUID | None = None
    effect_key: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    position: int = 0
    standing: Standing = Standing.SPEAKS  # the sender's standing in the session

    @property
    def is_claim(self) -> bool:
        """True if the item is recorded but changes no state."""
        return self.origin.lane == "claim"


def read(
    call: Call, parsed: Iterable[Parsed | ItemFault]
) -> tuple[list[Item], list[dict[str, Any]]]:
    """Parse each item by the schema of its kind.

    Returns the readable items, and a result for each rejected item.
    """
    items: list[Item] = []
    rejected_results: list[dict[str, Any]] = []
    key = call.redaction_key
    parsed = list(parsed)
    hints = redaction.hints_of(
        item.text for item in parsed if key is not None and isinstance(item, Parsed)
    )
    agent = call.token.agent_name
    for index, item in enumerate(parsed):
        if isinstance(item, ItemFault):
            rejected_results.append(
                result_of(item.index, item.id, item.status, item.code, item.detail, item.pointer)
            )
            continue
        try:
            items.append(_read_item(call, index, item, key, hints, agent))
        except Problem as problem:
            identity = item.value.get("id")
            item_id = identity if isinstance(identity, str) and len(identity) <= 64 else None
            rejected_results.append(
                result_of(index, item_id, "invalid", problem.code, problem.detail, problem.pointer)
            )
    return items, rejected_results


def _read_item(
    call: Call, index: int, item: Parsed, key: bytes | None, hints: Hints, agent: str
) -> Item:
    value, text, redactions = item.value, item.text, 0
    if key is not None and hints.in_text(text):
        value, redactions = redaction.redact(value, key)
        if redactions:
            text = canonical_text(value)
    envelope = convert(value, shapes.Envelope)
    fields = convert(value, SHAPES.get(envelope.kind, shapes.Free))
    claimed_source = envelope.source or ""
    is_own_source = (
        not claimed_source
        or claimed_source == agent
        or claimed_source.startswith((f"{agent}/", f"{agent}:"))
    )
    origin = Origin(
        project=call.project,
        agent=call.token.agent,
        source=claimed_source if claimed_source and is_own_source else agent,
        actor=f"agent:{call.token.agent.hex}",
        lane="evidence",
        key=envelope.id,
        text=text,
        received_us=call.received_us,
        claimed_source="" if is_own_source else claimed_source,
        occurred_us=envelope.occurred_us,
        producer_seq=envelope.producer_seq,
        lease_epoch=envelope.lease_epoch,
        imports=call.token.scope == "import",
        team=call.token.team,
    )
    read_item = Item(index, envelope, fields, origin, redactions)
    if envelope.kind in fold.KINDS:
        _read_effect(read_item)
    elif envelope.effect_key:
        read_item.effect_key = envelope.effect_key
    return read_item


def _read_effect(item: Item) -> None:
    fields = item.fields
    if isinstance(fields, shapes.ReportedPlan):
        digest = intent_digest(fields.tool, fields.arguments, fields.free_text)
        item.effect_key = key_of(fields, digest)
        item.values = {
            "tool": fields.tool,
            "intent_digest": digest,
            **plan_columns(fields, item.redactions),
        }
        return
    if not item.envelope.effect_key:
        detail = "The effect key is missing. Send `effect_key` to name the effect of this fact."
        raise Problem(422, "effect_key_missing", detail, pointer="/effect_key")
    item.effect_key = item.envelope.effect_key
    if isinstance(fields, shapes.ReportedDispatch):
        item.values = {"process": fields.process or ""}
    elif isinstance(fields, shapes.AnswerFields):
        item.values = {
            "outcome": fields.outcome,
            "external_reference": fields.external_reference or "",
        }
    elif isinstance(fields, shapes.FailFields):
        item.values = {"reason": fields.reason}
    elif isinstance(fields, ReportedProbe):
        item.values = {"found": fields.found, "external_reference": fields.external_reference or ""}


def result_of(
    index: int,
    identity: str | None,
    status: str,
    code: str | None,
    detail: str | None,
    pointer: str | None,
) -> dict[str, Any]:
    """Build the result of one item; with a `code` it is not retryable."""
    result: dict[str, Any] = {"index": index, "id": identity, "status": status}
    if code is not None:
        result |= {"code": code, "detail": detail, "retryable": False}
    if pointer is not None:
        result["pointer"] = pointer
    return result
