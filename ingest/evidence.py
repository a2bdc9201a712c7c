"""Records batches of facts reported after the event (evidence lane).

Every well-formed fact is recorded, even if late, stale or contradictory; the folds derive the
state. An invalid item never affects the others. One transaction writes the journal, then sessions,
tasks, effects, items and artifacts, each table through its own module.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import orjson

from approvals import cancelling, leave
from ingest import claimed, fencing, reported_effects, reported_work, shapes
from ingest.doors import Call
from ingest.reported_items import Item, result_of
from ingest.shapes_verdicts import ReportedProbe
from inquiry import controls
from journal import entries
from journal.entries import Draft, Status
from journal.ids import derived
from ledger import effects, fold, probes
from ledger.effects import LostRace
from ledger.rows import EffectRow
from sessions import (
    artifacts,
    items,
    leases,
    openings,
    references,
    registers,
    sessions,
    speakers,
    tasks,
)
from sessions.speakers import Standing


class RefusedWhole(Exception):
    """An atomic batch has an item that cannot be recorded."""

    def __init__(self, results: list[dict[str, Any]]) -> None:
        super().__init__("batch refused")
        self.results = results


def record(
    call: Call, batch: list[Item], rejected_results: list[dict[str, Any]], *, whole: bool
) -> list[dict[str, Any]]:
    """Record the readable items and return a result for every item, in order.

    Runs in the endpoint's transaction. With `whole`, raises RefusedWhole if any item is rejected or
    conflicts, so that nothing is recorded.
    """
    sessions_by_reference = _resolve_sessions(call.project, batch)
    unclaimed = claimed.mark(batch)
    appended_entries = entries.append(
        [_build_draft(item, sessions_by_reference) for item in batch], call.received_us
    )
    results = list(rejected_results)
    created: list[Item] = []
    for item, appended in zip(batch, appended_entries, strict=True):
        item.position = appended.position
        detail = None
        if appended.status is Status.CREATED:
            created.append(item)
        elif appended.status is Status.CONFLICT:
            detail = (
                "This id was used for another fact. Both are recorded; send the new fact with a"
                " new id."
            )
        code = "key_reuse" if appended.status is Status.CONFLICT else None
        result = result_of(item.index, item.envelope.id, appended.status.value, code, detail, None)
        if item.is_claim and appended.status is Status.CREATED:
            result |= {"note": item.standing.value, "detail": claimed.NOTES[item.standing]}
        results.append(result)
    results.sort(key=lambda result: int(result["index"]))
    if whole and any(result["status"] not in ("created", "duplicate") for result in results):
        raise RefusedWhole(results)
    counted_items = [item for item in created if not item.is_claim]
    rows = (
        _apply_items(call, counted_items, sessions_by_reference, unclaimed) if counted_items else {}
    )
    fencing.mark([_to_fencing_fact(item, rows) for item in created if _has_checked_epoch(item)])
    return results


def _has_checked_epoch(item: Item) -> bool:
    """Return whether the item's lease epoch must be checked; not for a foreign agent."""
    return item.envelope.lease_epoch is not None and item.standing is not Standing.OTHER_AGENT


def _resolve_sessions(project: UUID, batch: list[Item]) -> dict[str, UUID]:
    """Resolve the session of each item; return linked sessions by reference."""
    own_references = {item.envelope.session for item in batch}
    linked = {reference for item in batch for reference in _get_linked_sessions(item)}
    resolved = references.by_reference(project, own_references | linked)
    for item in batch:
        item.session, item.session_key = resolved[item.envelope.session]
        if item.effect_key:
            item.effect = derived(item.session, item.effect_key)
    return {reference: resolved[reference][0] for reference in linked}


def _get_linked_sessions(item: Item) -> set[str]:
    """Return references to other sessions in an item, by id or key."""
    if item.envelope.kind not in sessions.KINDS:
        return set()
    return registers.references(
        {name: getattr(item.fields, name) for name in item.fields.__struct_fields__}
    )


def _build_draft(item: Item, sessions_by_reference: dict[str, UUID]) -> Draft:
    envelope, fields, origin = item.envelope, item.fields, item.origin
    if envelope.kind in reported_work.KINDS:
        subject, text = reported_work.said(fields, origin, item.session, sessions_by_reference)
        return origin.draft(
            envelope.kind, facts=text, session=item.session, effect=item.effect, subject=subject
        )
    if isinstance(fields, shapes.ArtifactFields):
        return artifacts.draft(
            origin, item.session, item.effect, {"sha256": fields.sha256, "size": fields.size}
        )
    facts: dict[str, Any] = {}
    subject = None
    if envelope.kind in fold.KINDS:
        facts = {name: item.values[name] for name in ("outcome", "reason") if name in item.values}
        if isinstance(fields, ReportedProbe):
            began_us = fields.began_us if fields.began_us is not None else envelope.occurred_us
            facts = probes.facts_of(
                envelope.attempt or 1, fields.found, origin.received_us, began_us, live=False
            )
        if "intent_digest" in item.values:
            facts["intent"] = item.values["intent_digest"]
        if origin.imports:
            # Determines which permission the effect is assumed to have had.
            facts["imported"] = True
    elif isinstance(fields, shapes.SessionFields):
        values = {"mode": fields.mode, "on_behalf_of": fields.on_behalf_of}
        facts = openings.started_facts(
            origin.project, values, sessions_by_reference.get(fields.parent or "")
        )
    elif isinstance(fields, shapes.ReportedEnd):
        facts = {"status": fields.status}
    elif isinstance(fields, shapes.ReportedTask | shapes.ReportedTaskEnd | shapes.ReportedItem):
        subject = tasks.identity(item.session, fields.task)
        if isinstance(fields, shapes.ReportedTask) and fields.state:
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
    call: Call, created: list[Item], sessions_by_reference: dict[str, UUID], unclaimed: set[UUID]
) -> Mapping[UUID, EffectRow]:
    """Apply new items to the derived tables; return the rows of their effects."""
    _touch_sessions(created, sessions_by_reference, unclaimed)
    _apply_tasks(created)
    reports = reported_effects.reports(call, created)
    rows: Mapping[UUID, EffectRow] = {}
    if reports:
        rows = effects.record(reports, leave.observe)
        leave.follow(rows.values(), call.received_us)
        fresh: dict[UUID, int] = {}
        for row in rows.values():
            if row.version == 1:
                fresh[row.session_id] = fresh.get(row.session_id, 0) + 1
        sessions.count_effects(fresh)
    for item in created:
        if isinstance(item.fields, shapes.ArtifactFields):
            values = {name: getattr(item.fields, name) for name in item.fields.__struct_fields__}
            artifacts.store(item.origin, item.session, item.effect, values, item.position)
    session_facts = [
        sessions.Report(
            item.session,
            item.session_key or "",
            item.origin,
            item.envelope.kind,
            item.position,
            {name: getattr(item.fields, name) for name in item.fields.__struct_fields__},
        )
        for item in created
        if item.envelope.kind in sessions.KINDS
    ]
    sessions.report(session_facts, sessions_by_reference)
    reported_work.post([item for item in created if item.envelope.kind in reported_work.KINDS])
    for session in sorted(
        {item.session for item in created if item.envelope.kind in _CONTROL_KINDS}
    ):
        controls.watch(session, call.received_us)
    for item in created:
        if isinstance(item.fields, shapes.ReportedEnd):
            cancelling.cancel_of_session(item.session, call.received_us)
            leases.end_of_session(item.session, call.received_us)
    return rows


# Facts that can fire a control.
_CONTROL_KINDS = frozenset({"handoff.written", "fact.observed", "task.done"})


def _to_fencing_fact(item: Item, rows: Mapping[UUID, EffectRow]) -> fencing.Fact:
    """Return an item with a lease epoch as a fact for fencing, with its task."""
    row = rows.get(item.effect) if item.effect is not None else None
    key = getattr(item.fields, "task", None)
    task = tasks.identity(item.session, key) if key else row.task_id if row is not None else None
    return item.origin, item.envelope.kind, item.session, item.effect, item.envelope.attempt, task


def _touch_sessions(
    created: list[Item], sessions_by_reference: dict[str, UUID], unclaimed: set[UUID]
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
            if linked_id not in keys and linked_id == references.identity(
                item.origin.project, reference
            ):
                linked[linked_id] = reference
    new_positions = sessions.name(created[0].origin, linked)
    for session_id, key in linked.items():
        keys[session_id] = key if session_id in new_positions else None
    origin = created[0].origin
    sessions.touch(origin, keys, opened | new_positions)
    unclaimed_here = unclaimed & opened.keys()
    if not unclaimed_here:
        return
    foreign = [
        session
        for session, agent in sessions.agents_of(unclaimed_here).items()
        if agent != origin.agent
    ]
    if foreign:
        if speakers.are_unheard(foreign, but=origin.actor) != set(foreign):
            raise LostRace
        sessions.adopt(foreign, origin.agent)


def _apply_tasks(created: list[Item]) -> None:
    """Fold task facts, create tasks named by plans and items, fold the items."""
    task_facts = []
    item_facts = []
    mentioned: dict[tuple[UUID, str], Item] = {}
    for item in created:
        fields, kind = item.fields, item.envelope.kind
        if kind in tasks.KINDS:
            values = {name: getattr(fields, name) for name in fields.__struct_fields__}
            task_facts.append(
                tasks.Report(item.session, fields.task, item.origin, kind, item.position, values)
            )
        elif isinstance(fields, shapes.ReportedItem):
            mentioned.setdefault((item.session, fields.task), item)
            task = tasks.identity(item.session, fields.task)
            item_facts.append(
                items.Report(
                    task, fields.item, item.origin, items.STATE_OF_KIND[kind], item.position
                )
            )
        elif isinstance(fields, shapes.ReportedPlan) and fields.task:
            mentioned.setdefault((item.session, fields.task), item)
    tasks.apply(task_facts)
    for (session, key), item in mentioned.items():
        tasks.ensure(item.origin, session, key, item.position)
    items.apply(item_facts)
    if item_facts:
        tasks.count_changes({fact.task for fact in item_facts}, item_facts[0].origin.received_us)
