"""Parses the items of a batch by the schema of their kind."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from api.endpoint import Call, convert_to_struct
from api.plan_columns import build_plan_columns, compute_intent_digest, resolve_effect_key
from api.problems import Problem, check_meta
from api.redaction import redact
from api.redaction.patterns import Hints
from api.schemas import core, working_state
from api.strictjson.canonical_json import to_canonical_text
from api.strictjson.parser import ItemFault, Parsed
from journal.entries import Origin
from ledger.fold import effect_state
from sessions.writers import WriterStatus

# The schema of each kind of reported fact.
EVENT_SCHEMAS: Final[dict[str, type[msgspec.Struct]]] = {
    **core.REPORTED,
    **working_state.REPORTED,
}


class BatchItem(NamedTuple):
    """One readable item of a batch. The steps of the flow return completed copies."""

    item_index: int
    envelope: core.Envelope
    fields: Any
    origin: Origin
    effect_key: str
    values: Mapping[str, Any]  # the values of a fact about an effect
    session: UUID = UUID(int=0)  # completed by `resolve_items`
    session_key: str | None = None
    effect: UUID | None = None
    writer_status: WriterStatus = WriterStatus.SPEAKS  # completed by `decide_writer_statuses`
    position: int = 0  # completed by `decide_results`

    @property
    def is_claim(self) -> bool:
        """True if the item is recorded but changes no state."""
        return self.origin.lane == "claim"

    @property
    def field_values(self) -> dict[str, Any]:
        """The fields of the item's kind by name."""
        return {name: getattr(self.fields, name) for name in self.fields.__struct_fields__}


def parse_items(
    call: Call, parsed: Iterable[Parsed | ItemFault]
) -> tuple[list[BatchItem], list[dict[str, Any]]]:
    """Parse items by their kind's schema; return the readable, and the rejections."""
    items: list[BatchItem] = []
    rejected_results: list[dict[str, Any]] = []
    key = call.redaction_key
    parsed = list(parsed)
    hints = redact.select_hints(
        item.text for item in parsed if key is not None and isinstance(item, Parsed)
    )
    agent = call.token.agent_name
    for index, item in enumerate(parsed):
        if isinstance(item, ItemFault):
            rejected_results.append(
                build_item_result(
                    item.index, item.id, item.status, item.code, item.detail, item.pointer
                )
            )
            continue
        try:
            items.append(_read_item(call, index, item, key, hints, agent))
        except Problem as problem:
            identity = item.value.get("id")
            item_id = identity if isinstance(identity, str) and len(identity) <= 64 else None
            rejected_results.append(
                build_item_result(
                    index, item_id, "invalid", problem.code, problem.detail, problem.pointer
                )
            )
    return items, rejected_results


def _read_item(
    call: Call, index: int, item: Parsed, key: bytes | None, hints: Hints, agent: str
) -> BatchItem:
    value, text, redactions = item.value, item.text, 0
    if key is not None and hints.in_text(text):
        value, redactions = redact.redact_value(value, key)
        if redactions:
            text = to_canonical_text(value)
    envelope = convert_to_struct(value, core.Envelope)
    fields = convert_to_struct(value, EVENT_SCHEMAS.get(envelope.kind, core.OtherFact))
    if meta := getattr(fields, "meta", None):
        check_meta(meta)
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
    effect_key = envelope.effect_key or ""
    values: dict[str, Any] = {}
    if envelope.kind in effect_state.REPORTABLE_KINDS:
        effect_key, values = _read_effect(envelope, fields, redactions)
    return BatchItem(index, envelope, fields, origin, effect_key, values)


def _read_effect(
    envelope: core.Envelope, fields: Any, redactions: int
) -> tuple[str, dict[str, Any]]:
    """Return the effect key and the values of a fact about an effect."""
    if isinstance(fields, core.ReportedPlan):
        digest = compute_intent_digest(fields.tool, fields.arguments, fields.free_text)
        columns = build_plan_columns(fields, redactions)
        values = {"tool": fields.tool, "intent_digest": digest, **columns}
        return resolve_effect_key(fields, digest), values
    if not envelope.effect_key:
        detail = "The effect key is missing. Send `effect_key` to name the effect of this fact."
        raise Problem(422, "effect_key_missing", detail, pointer="/effect_key")
    if isinstance(fields, core.ReportedDispatch):
        return envelope.effect_key, {"process": fields.process or ""}
    if isinstance(fields, core.FailFields):
        return envelope.effect_key, {"reason": fields.reason}
    if isinstance(fields, core.OutcomeFields | core.ReportedProbe):
        name = "outcome" if isinstance(fields, core.OutcomeFields) else "result"
        reference = fields.external_reference or ""
        return envelope.effect_key, {name: getattr(fields, name), "external_reference": reference}
    return envelope.effect_key, {}


def build_item_result(
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
