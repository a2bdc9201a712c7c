"""Checks of what sessions recorded: artifacts, checkpoints, decisions, handoffs, observed facts."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from django.db.models import Model, QuerySet

from api.events.working_state import measure_checkpoint
from api.schemas.working_state import CheckpointFields
from api.strictjson.canonical_json import to_canonical_text
from investigation.history.past_entries import PastEntry
from rebuild.checks.session_checks import row_values
from rebuild.registry import FoldedRow, RebuildBatch, RowCheck, register_row_check
from rebuild.session_journal import SessionJournal, load_session_journals
from sessions import artifacts, checkpoints, decisions, facts, handoffs
from sessions.models import Artifact, Checkpoint, Decision, Handoff, ObservedFact

_AGENT_LANES: Final = ("command", "evidence")
_WRITES: Final = {"version": "counts how often the row was written"}
ARTIFACT_UNCOMPUTED: Final = {
    "stored_at_us": "when its bytes arrived, which manage.py verify_artifacts compares"
}
FACT_UNCOMPUTED: Final = {"id": "a number of the table, to which nothing refers"}
_ARTIFACT_TEXTS: Final = ("type", "name", "uri", "media_type", "retention")
_CHECKPOINT_TEXTS: Final = ("cache_keys", "cursor", "pins", "size")


def _list_facts(journal: SessionJournal, *kinds: str) -> Iterator[PastEntry]:
    """Yield the facts of agents of some kinds."""
    return (entry for entry in journal.list_entries(*kinds) if entry.lane in _AGENT_LANES)


def _fold_artifacts(batch: RebuildBatch) -> Iterator[FoldedRow]:
    for journal in load_session_journals(batch).values():
        seen: set[UUID] = set()
        for entry in _list_facts(journal, "artifact.recorded"):
            if entry.subject is None or entry.subject in seen:
                continue
            seen.add(entry.subject)
            body = journal.read_body(entry.position)
            texts = {name: body.get(name) or "" for name in _ARTIFACT_TEXTS}
            values = {
                "id": entry.subject,
                "project_id": journal.project,
                "session_id": journal.session,
                "effect": entry.effect,
                **texts,
                "retention": texts["retention"] or "standard",
                "sha256": entry.facts["sha256"],
                "size": entry.facts["size"],
                "opened_position": entry.position,
                "created_at_us": entry.received_us,
            }
            unknown = _explain(journal, entry, _ARTIFACT_TEXTS)
            yield FoldedRow((entry.subject,), values, entry.position, unknown)


def _explain(journal: SessionJournal, entry: PastEntry, columns: tuple[str, ...]) -> dict[str, str]:
    """Return the columns that are unknown because the body of their entry cannot be read."""
    if journal.has_body(entry.position):
        return {}
    return dict.fromkeys(columns, journal.explain_missing_body(entry.position))


def _fold_checkpoints(batch: RebuildBatch) -> Iterator[FoldedRow]:
    for journal in load_session_journals(batch).values():
        rows: dict[UUID, tuple[Checkpoint, PastEntry]] = {}
        for entry in _list_facts(journal, "checkpoint.written"):
            body = journal.read_body(entry.position)
            values = {name: body.get(name) for name in CheckpointFields.__struct_fields__}
            row = checkpoints.build_checkpoint(
                checkpoints.CheckpointFact(
                    journal.session,
                    journal.build_origin(entry),
                    entry.position,
                    measure_checkpoint(values),
                    values,
                )
            )
            rows[row.id] = row, entry
        kept = sorted(rows.values(), key=lambda pair: pair[0].mark)
        for row, entry in kept[-checkpoints.KEPT_CHECKPOINTS :]:
            unknown = _explain(journal, entry, _CHECKPOINT_TEXTS)
            yield FoldedRow((row.id,), row_values(row, {}), entry.position, unknown)


def _fold_decisions(batch: RebuildBatch) -> Iterator[FoldedRow]:
    for journal in load_session_journals(batch).values():
        rows: dict[UUID, Decision] = {}
        last: dict[UUID, int] = {}
        unknown: dict[UUID, dict[str, str]] = {}
        for entry in _list_facts(journal, "decision.recorded", "decision.concluded"):
            if entry.subject is None:
                continue
            body = journal.read_body(entry.position)
            is_command = entry.lane == "command"
            # The conclusion of a command names the decision by its id.
            key = body.get("key" if is_command else "decision") or ""
            if is_command and entry.kind == "decision.concluded":
                key = rows[entry.subject].key if entry.subject in rows else ""
            fact = decisions.DecisionFact(
                journal.session,
                key,
                journal.build_origin(entry),
                entry.position,
                entry.facts.get("status", "open"),
                entry.effect if entry.kind == "decision.recorded" else None,
            )
            row = rows[entry.subject] = decisions.fold_decision_fact(rows.get(entry.subject), fact)
            row.id, row.key = entry.subject, row.key or key
            last[entry.subject] = entry.position
            if not row.key:
                unknown[entry.subject] = _explain(journal, entry, ("key",))
        for identity, row in rows.items():
            values = row_values(row, _WRITES)
            yield FoldedRow((identity,), values, last[identity], unknown.get(identity, {}))


def _fold_handoffs(batch: RebuildBatch) -> Iterator[FoldedRow]:
    for journal in load_session_journals(batch).values():
        rows: dict[UUID, Handoff] = {}
        last: dict[UUID, int] = {}
        unknown: dict[UUID, dict[str, str]] = {}
        for entry in _list_facts(journal, "handoff.written", "handoff.accepted"):
            if entry.subject is None:
                continue
            is_command = entry.lane == "command"
            key = journal.read_body(entry.position).get("handoff") or ""
            if is_command:
                key = f"{entry.source}/{entry.event_id}" if "size" in entry.facts else ""
            fact = handoffs.HandoffFact(
                journal.session,
                key,
                journal.build_origin(entry),
                entry.position,
                entry.facts.get("size"),
                entry.facts.get("waits_on", []),
            )
            row = rows[entry.subject] = handoffs.fold_handoff_fact(rows.get(entry.subject), fact)
            row.id, row.key = entry.subject, row.key or key
            handoffs.settle_acceptance_deadlines(rows.values())
            last[entry.subject] = entry.position
            if not row.key:
                unknown[entry.subject] = _explain(journal, entry, ("key",))
        for identity, row in rows.items():
            values = row_values(row, _WRITES)
            yield FoldedRow((identity,), values, last[identity], unknown.get(identity, {}))


ERASED_FACT: Final = "an entry about observed facts of the session has no body any more"


def _fold_observed_facts(batch: RebuildBatch) -> Iterator[FoldedRow]:
    for journal in load_session_journals(batch).values():
        latest: dict[tuple[str, str], tuple[facts.FactObservation, int]] = {}
        for entry in _list_facts(journal, "fact.observed"):
            body = journal.read_body(entry.position)
            if not body:
                _list_lost_facts(batch, journal.session).add(entry.position)
                continue
            origin = journal.build_origin(entry)
            source = origin.claimed_source or origin.source
            fact = facts.FactObservation(
                journal.session,
                body["name"],
                body["source"] if entry.lane == "command" else source,
                facts.digest_fact_value(journal.project, to_canonical_text(body["value"])),
                body.get("fresh_s") or facts.DEFAULT_FACT_FRESH_S,
                origin,
                entry.position,
            )
            before = latest.get((fact.name, fact.source))
            opened = entry.position if before is None else before[1]
            if before is None or before[0].mark < fact.mark:
                latest[fact.name, fact.source] = fact, opened
        for fact, opened in latest.values():
            values = {
                "project_id": journal.project,
                "session_id": journal.session,
                "name": fact.name,
                "source": fact.source,
                "digest": fact.digest,
                "mark": fact.mark,
                "position": fact.position,
                "opened_position": opened,
                "observed_at_us": fact.seen_us,
                "fresh_until_us": fact.seen_us + fact.fresh_s * 1_000_000,
            }
            is_lost = bool(_list_lost_facts(batch, journal.session))
            unknown = dict.fromkeys(_OF_FACT, ERASED_FACT) if is_lost else {}
            key = (journal.session, fact.name, fact.source)
            yield FoldedRow(key, values, fact.position, unknown)


_OF_FACT: Final = (
    *("digest", "mark", "position", "opened_position", "observed_at_us", "fresh_until_us"),
)


def _list_lost_facts(batch: RebuildBatch, session: UUID) -> set[int]:
    """Return the positions of a session's entries about facts that have no body any more."""
    lost: dict[UUID, set[int]] = batch.cache.setdefault("lost facts", {})
    return lost.setdefault(session, set())


def _is_lost_fact(batch: RebuildBatch, stored: Mapping[str, Any]) -> str:
    """Excuse a fact that only entries of its session without a body tell."""
    lost = _list_lost_facts(batch, stored["session_id"])
    return ERASED_FACT if {stored["position"], stored["opened_position"]} <= lost else ""


def _complete_version(_row: FoldedRow) -> Mapping[str, Any]:
    return {"version": 1}


def _select_by_session(model: type[Model]) -> Callable[[RebuildBatch], "QuerySet[Any]"]:
    def select(batch: RebuildBatch) -> "QuerySet[Any]":
        return model._default_manager.filter(session__in=batch.sessions)

    return select


def register_working_state_checks() -> None:
    """Register the checks of what sessions recorded."""
    register_row_check(
        Artifact._meta.db_table,
        RowCheck(
            Artifact,
            ("id",),
            "session",
            _fold_artifacts,
            _select_by_session(Artifact),
            artifacts.restore_artifacts,
            ARTIFACT_UNCOMPUTED,
        ),
    )
    register_row_check(
        Checkpoint._meta.db_table,
        RowCheck(
            Checkpoint,
            ("id",),
            "session",
            _fold_checkpoints,
            _select_by_session(Checkpoint),
            checkpoints.restore_checkpoints,
        ),
    )
    register_row_check(
        Decision._meta.db_table,
        RowCheck(
            Decision,
            ("id",),
            "session",
            _fold_decisions,
            _select_by_session(Decision),
            decisions.restore_decisions,
            _WRITES,
            _complete_version,
        ),
    )
    register_row_check(
        Handoff._meta.db_table,
        RowCheck(
            Handoff,
            ("id",),
            "session",
            _fold_handoffs,
            _select_by_session(Handoff),
            handoffs.restore_handoffs,
            _WRITES,
            _complete_version,
        ),
    )
    register_row_check(
        ObservedFact._meta.db_table,
        RowCheck(
            ObservedFact,
            ("session_id", "name", "source"),
            "session",
            _fold_observed_facts,
            _select_by_session(ObservedFact),
            facts.restore_observed_facts,
            FACT_UNCOMPUTED,
            excuse=_is_lost_fact,
        ),
    )
