"""Records batches of facts reported after the event (evidence lane).

Every well-formed fact is recorded, even if late, stale or contradictory; the folds derive the
state. An invalid item never affects the others. One transaction writes the journal, then sessions,
tasks, effects, items and artifacts, each table through its own module.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from api.endpoint import Call
from api.events import effects, foreign_items, working_state
from api.events.foreign_items import ATTEMPT_KINDS, SenderContext
from api.events.parse import BatchItem, build_item_result
from api.schemas import core
from approvals import gated_commands
from approvals.gates import cancel
from db.ids import derive_uuid
from journal import entries
from journal.entries import AppendResult, AppendStatus, Draft
from ledger import probes
from ledger.fold import effect_state
from ledger.store import writer
from ledger.store.effect_rows import EffectRow
from ledger.store.writer import LostRace
from recovery import detectors
from sessions import (
    artifacts,
    heartbeats,
    items,
    leases,
    lookup,
    sessions,
    tasks,
    writers,
)
from sessions.models import Lease
from sessions.writers import StaleEpoch, WriterStatus

Result = dict[str, Any]  # of one item, as the response has it
# The session that each reference names, and its key unless the reference is the id of a stored one.
References = Mapping[str, tuple[UUID, str | None]]


class AtomicBatchRejected(Exception):
    """An atomic batch has an item that cannot be recorded."""

    def __init__(self, results: list[Result]) -> None:
        super().__init__("batch refused")
        self.results = results


def record_batch(
    call: Call, parsed: Sequence[BatchItem], rejected_results: list[Result], *, atomic: bool
) -> list[Result]:
    """Record the readable items and return a result for every item, in order.

    Runs in the endpoint's transaction. With `atomic`, raises AtomicBatchRejected if any item is
    rejected or conflicts, so that nothing is recorded.
    """
    references = load_session_ids(call.project, parsed)
    session_ids = _drop_keys(references)
    batch = resolve_items(parsed, references)
    context = foreign_items.load_sender_context(batch)
    batch = foreign_items.decide_writer_statuses(batch, context)
    appended = entries.append_entries(
        [_build_entry(item, session_ids) for item in batch], call.received_us
    )
    decision = decide_results(batch, appended, rejected_results)
    if atomic and decision.rejected_count:
        raise AtomicBatchRejected(decision.results)
    rows = apply_items(call, decision.counted, references, context) if decision.counted else {}
    record_fencing_and_progress(decision.created, rows)
    return decision.results


def load_session_ids(project: UUID, batch: Sequence[BatchItem]) -> References:
    """Find or derive the ids of the sessions that the items are about or link to."""
    own_references = {item.envelope.session for item in batch}
    linked = {reference for item in batch for reference in _get_linked_sessions(item)}
    return lookup.resolve_session_references(project, own_references | linked)


def _drop_keys(references: References) -> dict[str, UUID]:
    """Return the id of the session that each reference names."""
    return {reference: session for reference, (session, _key) in references.items()}


def resolve_items(batch: Sequence[BatchItem], references: References) -> list[BatchItem]:
    """Return the items with the ids of their sessions and effects. Pure."""
    resolved = []
    for item in batch:
        session, key = references[item.envelope.session]
        effect = derive_uuid(session, item.effect_key) if item.effect_key else None
        resolved.append(item._replace(session=session, session_key=key, effect=effect))
    return resolved


class BatchDecision(NamedTuple):
    """What a batch does: a result for every item in order, and the new items with positions."""

    results: list[Result]
    created: list[BatchItem]

    @property
    def counted(self) -> list[BatchItem]:
        """The new items that change state: all but claims."""
        return [item for item in self.created if not item.is_claim]

    @property
    def rejected_count(self) -> int:
        return sum(not is_accepted(result) for result in self.results)


def is_accepted(result: Result) -> bool:
    """Return whether the item of a result is recorded, now or before."""
    return result["status"] in ("created", "duplicate")


def decide_results(
    batch: Sequence[BatchItem],
    appended: Sequence[AppendResult],
    rejected_results: Sequence[Result],
) -> BatchDecision:
    """Decide which items are new, duplicates, conflicts or claims. Pure.

    `appended` has the journal's result for each item of `batch`.
    """
    results = list(rejected_results)
    created: list[BatchItem] = []
    for item, fate in zip(batch, appended, strict=True):
        status, code, detail = fate.status, None, None
        if status is AppendStatus.CREATED:
            created.append(item._replace(position=fate.position))
        elif status is AppendStatus.CONFLICT:
            code = "key_reuse"
            detail = (
                "This id was used for another fact. Both are recorded; send the new fact with a"
                " new id."
            )
        result = build_item_result(
            item.item_index, item.envelope.id, status.value, code, detail, None
        )
        if item.is_claim and status is AppendStatus.CREATED:
            note = foreign_items.CLAIM_NOTES[item.writer_status]
            result |= {"note": item.writer_status.value, "detail": note}
        results.append(result)
    results.sort(key=lambda result: int(result["index"]))
    return BatchDecision(results, created)


def _get_linked_sessions(item: BatchItem) -> set[str]:
    """Return references to other sessions in an item, by id or key."""
    if item.envelope.kind not in sessions.SESSION_FACT_KINDS:
        return set()
    return sessions.collect_session_references(item.field_values)


def _build_entry(item: BatchItem, session_ids: Mapping[str, UUID]) -> Draft:
    """Build the journal entry of an item, with what queries may compare as facts.

    For a session's start, `load_start_facts` reads and stores pseudonyms of people.
    """
    envelope, fields, origin = item.envelope, item.fields, item.origin
    if envelope.kind in working_state.WORKING_STATE_KINDS:
        subject, text = working_state.build_entry_facts(fields, origin, item.session)
        return origin.draft(
            envelope.kind, facts=text, session=item.session, effect=item.effect, subject=subject
        )
    if isinstance(fields, core.ChangeFields | core.ReportedBranch | core.ReportedMerge):
        text = sessions.dump_session_change_facts(item.field_values, session_ids)
        return origin.draft(envelope.kind, facts=text, session=item.session, effect=item.effect)
    if isinstance(fields, core.ArtifactFields):
        return artifacts.build_artifact_entry(
            origin, item.session, item.effect, {"sha256": fields.sha256, "size": fields.size}
        )
    facts: dict[str, Any] = {}
    subject = None
    if envelope.kind in effect_state.REPORTABLE_KINDS:
        facts = {name: item.values[name] for name in ("outcome", "reason") if name in item.values}
        if isinstance(fields, core.ReportedProbe):
            began_us = fields.began_us if fields.began_us is not None else envelope.occurred_us
            facts = probes.probe_facts(
                envelope.attempt or 1, fields.result, origin.received_us, began_us, live=False
            )
        if "intent_digest" in item.values:
            facts["intent"] = item.values["intent_digest"]
        if origin.imports:
            # Determines which permission the effect is assumed to have had.
            facts["imported"] = True
    elif isinstance(fields, core.SessionFields):
        values = {"mode": fields.mode, "on_behalf_of": fields.on_behalf_of}
        facts = sessions.load_start_facts(
            origin.project, values, session_ids.get(fields.parent or "")
        )
    elif isinstance(fields, core.ReportedEnd):
        facts = {"status": fields.status}
    elif isinstance(fields, core.ReportedTask | core.ReportedTaskEnd | core.ReportedItem):
        subject = tasks.derive_task_id(item.session, fields.task)
        if isinstance(fields, core.ReportedTask) and fields.state:
            facts = {"state": fields.state}
    text = entries.dump_sorted_json(facts) if facts else "{}"
    attempt = (envelope.attempt or 1) if envelope.kind in ATTEMPT_KINDS else None
    return origin.draft(
        envelope.kind,
        facts=text,
        session=item.session,
        effect=item.effect,
        attempt=attempt,
        subject=subject,
    )


def apply_items(
    call: Call,
    items: Sequence[BatchItem],
    references: References,
    context: SenderContext,
) -> Mapping[UUID, EffectRow]:
    """Apply new items to the rows of their sessions; return the rows of their effects."""
    _touch_sessions(items, references, context)
    _apply_tasks(items)
    rows = _apply_effects(call, items)
    for item in items:
        if isinstance(item.fields, core.ArtifactFields):
            artifacts.apply_artifact_fact(
                item.origin, item.session, item.effect, item.field_values, item.position
            )
    session_facts = [
        sessions.SessionFact(
            item.session,
            item.session_key or "",
            item.origin,
            item.envelope.kind,
            item.position,
            item.field_values,
        )
        for item in items
        if item.envelope.kind in sessions.SESSION_FACT_KINDS
    ]
    sessions.apply_session_facts(session_facts, _drop_keys(references))
    working_state.apply_working_state(
        [item for item in items if item.envelope.kind in working_state.WORKING_STATE_KINDS]
    )
    for session in sorted({item.session for item in items if item.envelope.kind in _CONTROL_KINDS}):
        detectors.check_session_controls(session, call.received_us)
    for item in items:
        if isinstance(item.fields, core.ReportedEnd):
            cancel.cancel_gates_of_session(item.session, call.received_us)
            leases.release_session_leases(item.session, call.received_us)
    return rows


def _apply_effects(call: Call, created: Sequence[BatchItem]) -> Mapping[UUID, EffectRow]:
    """Apply facts about effects, end the gates of effects that moved, count new effects."""
    columns = effects.load_plan_columns(call, created)
    facts, stubs = effects.build_effect_facts(created, columns)
    if not facts:
        return {}
    facts += writer.record_named_effects(
        stubs, {fact.effect for fact in facts}, call.project, call.received_us
    )
    rows = writer.apply_effect_facts(facts)
    # A reported dispatch under a granted permission uses its gate; other moves cancel it.
    gated_commands.end_gates_of_moved_effects(rows.values(), call.received_us)
    new_effects = Counter(row.session_id for row in rows.values() if row.version == 1)
    sessions.add_effect_counts(new_effects)
    return rows


# Facts that can fire a control.
_CONTROL_KINDS: Final = frozenset({"handoff.written", "fact.observed", "task.done"})


def _touch_sessions(
    created: Sequence[BatchItem], references: References, context: SenderContext
) -> None:
    """Store or touch the sessions of the items; create stubs for linked ones.

    A session without an owner belongs to the first agent that writes to it. Raises LostRace if
    another agent was first.
    """
    origin = created[0].origin
    keys: dict[UUID, str | None] = {}
    opened: dict[UUID, int] = {}
    for item in created:
        if item.session not in keys:
            keys[item.session], opened[item.session] = item.session_key, item.position
    linked: dict[UUID, str] = {}
    for item in created:
        for reference in _get_linked_sessions(item):
            session, key = references[reference]
            if key is not None and session not in keys:
                linked[session] = key
    new_positions = sessions.record_named_sessions(origin, linked)
    for session, key in linked.items():
        keys[session] = key if session in new_positions else None
    sessions.touch_sessions(origin, keys, opened | new_positions)
    unowned = [session for session in opened if context.is_unowned(session)]
    if not unowned:
        return
    agents = sessions.load_session_agents(unowned)
    foreign = [session for session, agent in agents.items() if agent != origin.agent]
    if foreign:
        if writers.find_unreported_sessions(foreign, but=origin.actor) != set(foreign):
            raise LostRace
        sessions.assign_named_sessions(foreign, origin.agent)


def _apply_tasks(created: Sequence[BatchItem]) -> None:
    """Fold task facts, create tasks named by plans and items, fold the items."""
    task_facts = []
    item_facts = []
    mentioned: dict[tuple[UUID, str], BatchItem] = {}
    for item in created:
        fields, kind = item.fields, item.envelope.kind
        if kind in tasks.TASK_FACT_KINDS:
            task_facts.append(
                tasks.TaskFact(
                    item.session, fields.task, item.origin, kind, item.position, item.field_values
                )
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


def record_fencing_and_progress(
    created: Sequence[BatchItem], rows: Mapping[UUID, EffectRow]
) -> None:
    """Record which new items came from a fenced writer; others count as progress.

    Only items with a lease epoch are compared with the leases. `rows` are those of `apply_items`.
    """
    checked = [item for item in created if _has_checked_epoch(item)]
    if not checked:
        return
    session_leases = Lease.objects.filter(session__in={item.session for item in checked})
    current_epochs = {lease.task_id or lease.session_id: lease.epoch for lease in session_leases}
    drafts, moving = [], {}
    for item in checked:
        origin, kind, session = item.origin, item.envelope.kind, item.session
        task = _find_task(item, rows)
        epoch = current_epochs.get(task, current_epochs.get(session))
        sent_epoch = origin.lease_epoch
        if epoch is not None and sent_epoch is not None and sent_epoch < epoch:
            stale = StaleEpoch(sent_epoch, epoch)
            drafts.append(
                writers.build_fenced_entry(
                    origin,
                    session,
                    stale,
                    kept=True,
                    effect=item.effect,
                    attempt=item.envelope.attempt,
                    subject=task,
                    kind=kind,
                )
            )
        elif (
            epoch is not None
            and origin.lane != "claim"
            and (kind in heartbeats.PROGRESS_KINDS or kind.startswith("effect."))
        ):
            moving[session, task] = origin
    if drafts:
        entries.append_entries(drafts, checked[0].origin.received_us)
    for (session, task), origin in sorted(moving.items(), key=lambda move: str(move[0])):
        heartbeats.record_progress(origin.project, session, task=task)


def _has_checked_epoch(item: BatchItem) -> bool:
    """Return whether the item's lease epoch must be checked; not for a foreign agent."""
    is_foreign = item.writer_status is WriterStatus.OTHER_AGENT
    return item.envelope.lease_epoch is not None and not is_foreign


def _find_task(item: BatchItem, rows: Mapping[UUID, EffectRow]) -> UUID | None:
    """Return the task that an item is about, by itself or by its effect."""
    if key := getattr(item.fields, "task", None):
        return tasks.derive_task_id(item.session, key)
    row = rows.get(item.effect) if item.effect is not None else None
    return row.task_id if row is not None else None
