"""The evidence lane: facts reported after the event, in batches. Every well-formed fact is kept; the folds decide.

One transaction composes the rooms below, each table written by its own module: journal, then sessions, tasks, effects,
items, artifacts. Nothing is refused for being late, stale or contradictory; a malformed item never sinks the others.
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
from sessions import artifacts, items, leases, openings, references, registers, sessions, speakers, tasks
from sessions.speakers import Standing


class RefusedWhole(Exception):
    """A batch asked for all or nothing, and something in it could not be taken."""

    def __init__(self, results: list[dict[str, Any]]) -> None:
        super().__init__("batch refused")
        self.results = results


def record(call: Call, found: list[Item], refused: list[dict[str, Any]], *, whole: bool) -> list[dict[str, Any]]:
    """Keep the readable items and return a result for every item, in order. Runs inside the door's transaction.

    With `whole`, raises RefusedWhole when any item was refused or conflicts, so that nothing is kept.
    """
    meant = _resolve(call.project, found)
    unheard = claimed.mark(found)
    fates = entries.append([_draft(item, meant) for item in found], call.received_us)
    results = list(refused)
    created: list[Item] = []
    for item, fate in zip(found, fates, strict=True):
        item.position = fate.position
        detail = None
        if fate.status is Status.CREATED:
            created.append(item)
        elif fate.status is Status.CONFLICT:
            detail = "This id was used for another fact; send a new id. Both are kept."
        code = "key_reuse" if fate.status is Status.CONFLICT else None
        result = result_of(item.index, item.envelope.id, fate.status.value, code, detail, None)
        if item.is_claim and fate.status is Status.CREATED:
            result |= {"note": item.standing.value, "detail": claimed.NOTES[item.standing]}
        results.append(result)
    results.sort(key=lambda result: int(result["index"]))
    if whole and any(result["status"] not in ("created", "duplicate") for result in results):
        raise RefusedWhole(results)
    counting = [item for item in created if not item.is_claim]
    rows = _post(call, counting, meant, unheard) if counting else {}
    fencing.mark([_held(item, rows) for item in created if _names_an_epoch(item)])
    return results


def _names_an_epoch(item: Item) -> bool:
    """True for an item that a fence may be compared with; a stranger's word says nothing of the lease."""
    return item.envelope.lease_epoch is not None and item.standing is not Standing.OTHER_AGENT


def _resolve(project: UUID, found: list[Item]) -> dict[str, UUID]:
    """Say which session each item means, and return the ids of the others that are spoken of, by reference."""
    named = {item.envelope.session for item in found}
    spoken = {reference for item in found for reference in _links(item)}
    meant = references.by_reference(project, named | spoken)
    for item in found:
        item.session, item.session_key = meant[item.envelope.session]
        if item.effect_key:
            item.effect = derived(item.session, item.effect_key)
    return {reference: meant[reference][0] for reference in spoken}


def _links(item: Item) -> set[str]:
    """The other sessions that an item speaks of, by id or key."""
    if item.envelope.kind not in sessions.KINDS:
        return set()
    return registers.references({name: getattr(item.fields, name) for name in item.fields.__struct_fields__})


def _draft(item: Item, meant: dict[str, UUID]) -> Draft:
    envelope, fields, origin = item.envelope, item.fields, item.origin
    if envelope.kind in reported_work.KINDS:
        subject, text = reported_work.said(fields, origin, item.session, meant)
        return origin.draft(envelope.kind, facts=text, session=item.session, effect=item.effect, subject=subject)
    if isinstance(fields, shapes.ArtifactFields):
        return artifacts.draft(origin, item.session, item.effect, {"sha256": fields.sha256, "size": fields.size})
    facts: dict[str, Any] = {}
    subject = None
    if envelope.kind in fold.KINDS:
        facts = {name: item.values[name] for name in ("outcome", "reason") if name in item.values}
        if isinstance(fields, ReportedProbe):
            began_us = fields.began_us if fields.began_us is not None else envelope.occurred_us
            facts = probes.facts_of(envelope.attempt or 1, fields.found, origin.received_us, began_us, live=False)
        if "intent_digest" in item.values:
            facts["intent"] = item.values["intent_digest"]
        if origin.imports:
            facts["imported"] = True  # under what leave it is taken to have run depends on it
    elif isinstance(fields, shapes.SessionFields):
        said = {"mode": fields.mode, "on_behalf_of": fields.on_behalf_of}
        facts = openings.started_facts(origin.project, said, meant.get(fields.parent or ""))
    elif isinstance(fields, shapes.ReportedEnd):
        facts = {"status": fields.status}
    elif isinstance(fields, shapes.ReportedTask | shapes.ReportedTaskEnd | shapes.ReportedItem):
        subject = tasks.identity(item.session, fields.task)
        if isinstance(fields, shapes.ReportedTask) and fields.state:
            facts = {"state": fields.state}
    text = orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode() if facts else "{}"
    attempt = (envelope.attempt or 1) if envelope.kind in _OF_AN_ATTEMPT else None
    return origin.draft(
        envelope.kind, facts=text, session=item.session, effect=item.effect, attempt=attempt, subject=subject
    )


_OF_AN_ATTEMPT = frozenset({"effect.dispatched", "effect.acknowledged", "effect.failed", "effect.probed"})


def _post(call: Call, created: list[Item], meant: dict[str, UUID], unheard: set[UUID]) -> Mapping[UUID, EffectRow]:
    """Post what is new from the journal to the tables that follow from it; return the rows of its effects."""
    _touch_sessions(created, meant, unheard)
    _post_tasks(created)
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
    sessions.report(session_facts, meant)
    reported_work.post([item for item in created if item.envelope.kind in reported_work.KINDS])
    for session in sorted({item.session for item in created if item.envelope.kind in _WATCHED}):
        controls.watch(session, call.received_us)
    for item in created:
        if isinstance(item.fields, shapes.ReportedEnd):
            cancelling.cancel_of_session(item.session, call.received_us)
            leases.end_of_session(item.session, call.received_us)
    return rows


_WATCHED = frozenset({"handoff.written", "fact.observed", "task.done"})  # what may show that a control fires


def _held(item: Item, rows: Mapping[UUID, EffectRow]) -> fencing.Fact:
    """An item that names an epoch, with the task by whose lease it may be fenced."""
    row = rows.get(item.effect) if item.effect is not None else None
    key = getattr(item.fields, "task", None)
    task = tasks.identity(item.session, key) if key else row.task_id if row is not None else None
    return item.origin, item.envelope.kind, item.session, item.effect, item.envelope.attempt, task


def _touch_sessions(created: list[Item], meant: dict[str, UUID], unheard: set[UUID]) -> None:
    """Store or move the clock of every session spoken of; one that is only named, by another, is opened as a stub.

    Those `unheard` belong to who speaks for them first. Raises LostRace where that was another agent by now.
    """
    keys: dict[UUID, str | None] = {}
    opened: dict[UUID, int] = {}
    for item in created:
        if item.session not in keys:
            keys[item.session], opened[item.session] = item.session_key, item.position
    above: dict[UUID, str] = {}
    for item in created:
        for reference in _links(item):
            named = meant[reference]
            if named not in keys and named == references.identity(item.origin.project, reference):
                above[named] = reference
    new = sessions.name(created[0].origin, above)
    for other, key in above.items():
        keys[other] = key if other in new else None
    origin = created[0].origin
    sessions.touch(origin, keys, opened | new)
    mine = unheard & opened.keys()
    if not mine:
        return
    others = [session for session, agent in sessions.agents_of(mine).items() if agent != origin.agent]
    if others:
        if speakers.are_unheard(others, but=origin.actor) != set(others):
            raise LostRace
        sessions.adopt(others, origin.agent)


def _post_tasks(created: list[Item]) -> None:
    """Fold task facts; make the tasks that plans and items mention; then fold the items."""
    task_facts = []
    item_facts = []
    mentioned: dict[tuple[UUID, str], Item] = {}
    for item in created:
        fields, kind = item.fields, item.envelope.kind
        if kind in tasks.KINDS:
            values = {name: getattr(fields, name) for name in fields.__struct_fields__}
            task_facts.append(tasks.Report(item.session, fields.task, item.origin, kind, item.position, values))
        elif isinstance(fields, shapes.ReportedItem):
            mentioned.setdefault((item.session, fields.task), item)
            task = tasks.identity(item.session, fields.task)
            item_facts.append(items.Report(task, fields.item, item.origin, items.STATE_OF_KIND[kind], item.position))
        elif isinstance(fields, shapes.ReportedPlan) and fields.task:
            mentioned.setdefault((item.session, fields.task), item)
    tasks.apply(task_facts)
    for (session, key), item in mentioned.items():
        tasks.ensure(item.origin, session, key, item.position)
    items.apply(item_facts)
    if item_facts:
        tasks.count_changes({fact.task for fact in item_facts}, item_facts[0].origin.received_us)
