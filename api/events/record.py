"""Records batches of facts reported after the event (evidence lane).

Every well-formed fact is recorded, even if late, stale or contradictory; the folds derive the
state. An invalid item never affects the others. One transaction writes the journal, then sessions,
tasks, effects, items and artifacts, each table through its own module.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import orjson

from api import lease_conflicts
from api.endpoint import Call
from api.events import claims, effects, working_state
from api.events.parse import BatchItem, build_item_result
from api.schemas import core
from api.schemas.probes import ReportedProbe
from approvals import gated_commands
from approvals.gates import cancel
from db.ids import derive_uuid
from journal import entries
from journal.entries import AppendStatus, Draft
from ledger import probes
from ledger.fold import apply
from ledger.store import writer
from ledger.store.rows import EffectRow
from ledger.store.writer import LostRace
from recovery import controls
from sessions import artifacts, field_history, items, leases, lookup, sessions, speakers, tasks
from sessions import sessions as sessions_sessions
from sessions.speakers import WriterStatus


class AtomicBatchRejected(Exception):
    """An atomic batch has an item that cannot be recorded."""

    def __init__(self, results: list[dict[str, Any]]) -> None:
        super().__init__("batch refused")
        self.results = results


def record_events(
    call: Call, batch: list[BatchItem], rejected_results: list[dict[str, Any]], *, atomic: bool
) -> list[dict[str, Any]]:
    """Record the readable items and return a result for every item, in order.

    Runs in the endpoint's transaction. With `whole`, raises RefusedWhole if any item is rejected or
    conflicts, so that nothing is recorded.
    """
    sessions_by_reference = _resolve_sessions(call.project, batch)
    unclaimed = claims.mark_claims(batch)
    appended_entries = entries.append_entries(
        [_build_draft(item, sessions_by_reference) for item in batch], call.received_us
    )
    results = list(rejected_results)
    created: list[BatchItem] = []
    for item, appended in zip(batch, appended_entries, strict=True):
        item.position = appended.position
        detail = None
        if appended.status is AppendStatus.CREATED:
            created.append(item)
        elif appended.status is AppendStatus.CONFLICT:
            detail = (
                "This id was used for another fact. Both are recorded; send the new fact with a"
                " new id."
            )
        code = "key_reuse" if appended.status is AppendStatus.CONFLICT else None
        result = build_item_result(
            item.index, item.envelope.id, appended.status.value, code, detail, None
        )
        if item.is_claim and appended.status is AppendStatus.CREATED:
            result |= {"note": item.standing.value, "detail": claims.CLAIM_NOTES[item.standing]}
        results.append(result)
    results.sort(key=lambda result: int(result["index"]))
    if atomic and any(result["status"] not in ("created", "duplicate") for result in results):
        raise AtomicBatchRejected(results)
    counted_items = [item for item in created if not item.is_claim]
    rows = (
        _apply_items(call, counted_items, sessions_by_reference, unclaimed) if counted_items else {}
    )
    lease_conflicts.record_fenced_facts(
        [_to_fencing_fact(item, rows) for item in created if _has_checked_epoch(item)]
    )
    return results


def _has_checked_epoch(item: BatchItem) -> bool:
    """Return whether the item's lease epoch must be checked; not for a foreign agent."""
    return item.envelope.lease_epoch is not None and item.standing is not WriterStatus.OTHER_AGENT


def _resolve_sessions(project: UUID, batch: list[BatchItem]) -> dict[str, UUID]:
    """Resolve the session of each item; return linked sessions by reference."""
    own_references = {item.envelope.session for item in batch}
    linked = {reference for item in batch for reference in _get_linked_sessions(item)}
    resolved = lookup.resolve_session_references(project, own_references | linked)
    for item in batch:
        item.session, item.session_key = resolved[item.envelope.session]
        if item.effect_key:
            item.effect = derive_uuid(item.session, item.effect_key)
    return {reference: resolved[reference][0] for reference in linked}


def _get_linked_sessions(item: BatchItem) -> set[str]:
    """Return references to other sessions in an item, by id or key."""
    if item.envelope.kind not in sessions_sessions.SESSION_FACT_KINDS:
        return set()
    return field_history.collect_session_references(
        {name: getattr(item.fields, name) for name in item.fields.__struct_fields__}
    )


def _build_draft(item: BatchItem, sessions_by_reference: dict[str, UUID]) -> Draft:
    envelope, fields, origin = item.envelope, item.fields, item.origin
    if envelope.kind in working_state.WORKING_STATE_KINDS:
        subject, text = working_state.build_entry_facts(
            fields, origin, item.session, sessions_by_reference
        )
        return origin.draft(
            envelope.kind, facts=text, session=item.session, effect=item.effect, subject=subject
        )
    if isinstance(fields, core.ArtifactFields):
        return artifacts.build_artifact_entry(
            origin, item.session, item.effect, {"sha256": fields.sha256, "size": fields.size}
        )
    facts: dict[str, Any] = {}
    subject = None
    if envelope.kind in apply.REPORTABLE_KINDS:
        facts = {name: item.values[name] for name in ("outcome", "reason") if name in item.values}
        if isinstance(fields, ReportedProbe):
            began_us = fields.began_us if fields.began_us is not None else envelope.occurred_us
            facts = probes.probe_facts(
                envelope.attempt or 1, fields.found, origin.received_us, began_us, live=False
            )
        if "intent_digest" in item.values:
            facts["intent"] = item.values["intent_digest"]
        if origin.imports:
            # Determines which permission the effect is assumed to have had.
            facts["imported"] = True
    elif isinstance(fields, core.SessionFields):
        values = {"mode": fields.mode, "on_behalf_of": fields.on_behalf_of}
        facts = sessions.build_started_facts(
            origin.project, values, sessions_by_reference.get(fields.parent or "")
        )
    elif isinstance(fields, core.ReportedEnd):
        facts = {"status": fields.status}
    elif isinstance(fields, core.ReportedTask | core.ReportedTaskEnd | core.ReportedItem):
        subject = tasks.derive_task_id(item.session, fields.task)
        if isinstance(fields, core.ReportedTask) and fields.state:
            facts = {"state": fields.state}
    text = orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode() if facts else "{}"
    attempt = (envelope.attempt or 1) if envelope.kind in _ATTEMPT_KINDS else None
    return origin.draft(
        envelope.kind,
        facts=text,
        session=item.session,
        effect=item.effect,
        attempt=attempt,
        subject=subject,
    )


_ATTEMPT_KINDS = frozenset(
    {"effect.dispatched", "effect.acknowledged", "effect.failed", "effect.probed"}
)


def _apply_items(
    call: Call,
    created: list[BatchItem],
    sessions_by_reference: dict[str, UUID],
    unclaimed: set[UUID],
) -> Mapping[UUID, EffectRow]:
    """Apply new items to the derived tables; return the rows of their effects."""
    _touch_sessions(created, sessions_by_reference, unclaimed)
    _apply_tasks(created)
    reports = effects.build_effect_reports(call, created)
    rows: Mapping[UUID, EffectRow] = {}
    if reports:
        rows = writer.record_reports(reports, gated_commands.classify_observation)
        gated_commands.end_gates_of_moved_effects(rows.values(), call.received_us)
        fresh: dict[UUID, int] = {}
        for row in rows.values():
            if row.version == 1:
                fresh[row.session_id] = fresh.get(row.session_id, 0) + 1
        sessions_sessions.add_effect_counts(fresh)
    for item in created:
        if isinstance(item.fields, core.ArtifactFields):
            values = {name: getattr(item.fields, name) for name in item.fields.__struct_fields__}
            artifacts.store_artifact_row(
                item.origin, item.session, item.effect, values, item.position
            )
    session_facts = [
        sessions_sessions.SessionFact(
            item.session,
            item.session_key or "",
            item.origin,
            item.envelope.kind,
            item.position,
            {name: getattr(item.fields, name) for name in item.fields.__struct_fields__},
        )
        for item in created
        if item.envelope.kind in sessions_sessions.SESSION_FACT_KINDS
    ]
    sessions_sessions.apply_session_facts(session_facts, sessions_by_reference)
    working_state.apply_items(
        [item for item in created if item.envelope.kind in working_state.WORKING_STATE_KINDS]
    )
    for session in sorted(
        {item.session for item in created if item.envelope.kind in _CONTROL_KINDS}
    ):
        controls.check_session_controls(session, call.received_us)
    for item in created:
        if isinstance(item.fields, core.ReportedEnd):
            cancel.cancel_gates_of_session(item.session, call.received_us)
            leases.release_session_leases(item.session, call.received_us)
    return rows


# Facts that can fire a control.
_CONTROL_KINDS = frozenset({"handoff.written", "fact.observed", "task.done"})


def _to_fencing_fact(item: BatchItem, rows: Mapping[UUID, EffectRow]) -> lease_conflicts.FencedFact:
    """Return an item with a lease epoch as a fact for fencing, with its task."""
    row = rows.get(item.effect) if item.effect is not None else None
    key = getattr(item.fields, "task", None)
    task = (
        tasks.derive_task_id(item.session, key) if key else row.task_id if row is not None else None
    )
    return item.origin, item.envelope.kind, item.session, item.effect, item.envelope.attempt, task


def _touch_sessions(
    created: list[BatchItem], sessions_by_reference: dict[str, UUID], unclaimed: set[UUID]
) -> None:
    """Store or touch the sessions of the items; create stubs for linked ones.

    A session in `unclaimed` belongs to the first agent that writes to it. Raises LostRace if
    another agent was first.
    """
    keys: dict[UUID, str | None] = {}
    opened: dict[UUID, int] = {}
    for item in created:
        if item.session not in keys:
            keys[item.session], opened[item.session] = item.session_key, item.position
    linked: dict[UUID, str] = {}
    for item in created:
        for reference in _get_linked_sessions(item):
            linked_id = sessions_by_reference[reference]
            if linked_id not in keys and linked_id == lookup.derive_session_id(
                item.origin.project, reference
            ):
                linked[linked_id] = reference
    new_positions = sessions_sessions.record_named_sessions(created[0].origin, linked)
    for session_id, key in linked.items():
        keys[session_id] = key if session_id in new_positions else None
    origin = created[0].origin
    sessions_sessions.touch_sessions(origin, keys, opened | new_positions)
    unclaimed_here = unclaimed & opened.keys()
    if not unclaimed_here:
        return
    foreign = [
        session
        for session, agent in sessions_sessions.load_session_agents(unclaimed_here).items()
        if agent != origin.agent
    ]
    if foreign:
        if speakers.find_unreported_sessions(foreign, but=origin.actor) != set(foreign):
            raise LostRace
        sessions_sessions.assign_named_sessions(foreign, origin.agent)


def _apply_tasks(created: list[BatchItem]) -> None:
    """Fold task facts, create tasks named by plans and items, fold the items."""
    task_facts = []
    item_facts = []
    mentioned: dict[tuple[UUID, str], BatchItem] = {}
    for item in created:
        fields, kind = item.fields, item.envelope.kind
        if kind in tasks.TASK_FACT_KINDS:
            values = {name: getattr(fields, name) for name in fields.__struct_fields__}
            task_facts.append(
                tasks.TaskFact(item.session, fields.task, item.origin, kind, item.position, values)
            )
        elif isinstance(fields, core.ReportedItem):
            mentioned.setdefault((item.session, fields.task), item)
            task = tasks.derive_task_id(item.session, fields.task)
            item_facts.append(
                items.ItemFact(
                    task, fields.item, item.origin, items.STATE_OF_KIND[kind], item.position
                )
            )
        elif isinstance(fields, core.ReportedPlan) and fields.task:
            mentioned.setdefault((item.session, fields.task), item)
    tasks.apply_task_facts(task_facts)
    for (session, key), item in mentioned.items():
        tasks.ensure_task(item.origin, session, key, item.position)
    items.apply_item_facts(item_facts)
    if item_facts:
        tasks.bump_task_versions(
            {fact.task for fact in item_facts}, item_facts[0].origin.received_us
        )
