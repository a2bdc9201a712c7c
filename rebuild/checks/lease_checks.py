"""Checks of leases, reports of free capacity and circuit breakers: what makes agents wait."""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet

from investigation.history.past_entries import PastEntry
from ledger import circuit_breakers
from ledger.models import Breaker, Effect
from rebuild.project_journal import ERASED, ProjectEntry, load_project_entries
from rebuild.registry import FoldedRow, RebuildBatch, RowCheck, Unit, register_row_check
from rebuild.session_journal import SessionJournal, list_agent_journals
from sessions import capacity, leases
from sessions.lease_queries import DEAD_AFTER_TTLS, PROGRESS_WITHIN_S, US
from sessions.models import Capacity, Lease

_NOT_A_REFERENCE: Final = "a number of the table, to which nothing refers"
_HEARTBEATS: Final = "heartbeats move it, which are not in the journal"
_UNITS: Final[tuple[Unit, Unit]] = ("project", "session")
LEASE_UNCOMPUTED: Final = {
    **dict.fromkeys(
        (
            "heartbeat_at_us",
            "progress_at_us",
            "progress_token",
            "quiet_until_us",
            "expires_at_us",
            "dead_at_us",
            "wedged_at_us",
        ),
        _HEARTBEATS,
    ),
    "ttl_s": "a renewal may change it, which is a heartbeat",
    "version": "counts how often the row was written",
}
BREAKER_UNCOMPUTED: Final = {
    "id": _NOT_A_REFERENCE,
    "failures": "counts failures in a row; entries have the count of the moment when it paused",
    "trial": "the plan that may try the tool, which no entry names as a trial",
    "trial_until_us": "the end of that trial",
}


def _fold_leases(batch: RebuildBatch) -> Iterator[FoldedRow]:
    stored = dict(_select_leases(batch).values_list("id", "released_at_us"))
    for journal in list_agent_journals(batch):
        rows: dict[UUID, FoldedRow] = {}
        for entry in journal.list_entries("lease.", "session.silen"):
            key = entry.subject
            if key is None or entry.lane == "evidence":
                continue
            if entry.kind == "lease.acquired":
                rows[key] = _fold_acquisition(journal, entry, rows.get(key))
            elif key in rows and entry.facts.get("epoch") == rows[key].values["epoch"]:
                _fold_end(entry, rows[key].values, stored.get(key))
                rows[key].position = entry.position
        yield from rows.values()


def _fold_acquisition(
    journal: SessionJournal, entry: PastEntry, before: FoldedRow | None
) -> FoldedRow:
    body, facts = journal.read_body(entry.position), entry.facts
    kind, task, subject = facts["kind"], None, body.get("resource")
    if kind == "task" and body:
        task = UUID(body["task"])
        subject = str(task)
    elif kind == "session":
        subject = str(entry.session)
    unknown: dict[str, str] = {}
    if not body:
        texts = ("process",) if kind == "session" else ("process", "subject", "task_id")
        unknown = dict.fromkeys(texts, journal.explain_missing_body(entry.position))
    values = {
        "id": entry.subject,
        "project_id": journal.project,
        "kind": kind,
        "subject": subject,
        "session_id": entry.session,
        "task_id": task,
        "agent_id": entry.agent,
        "process": body.get("process"),
        "epoch": facts["epoch"],
        "acquired_at_us": facts["expires_at_us"] - facts["ttl_s"] * US,
        "released_at_us": None,
        "silent_since_us": None,
        "takeovers": 0 if before is None else before.values["takeovers"] + 1,
        "opened_position": entry.position,
    }
    row = FoldedRow((entry.subject,), values, entry.position, unknown)
    row.values["ttl_s"] = facts["ttl_s"]  # for a row that is missing
    return row


def _fold_end(entry: PastEntry, values: dict[str, Any], released_at_us: int | None) -> None:
    """Follow a release or a silence. The row's clock of a release is a moment before its entry."""
    if entry.kind == "lease.released":
        values["released_at_us"] = released_at_us or entry.received_us
        values["silent_since_us"] = None
    elif entry.kind == "session.silent":
        values["silent_since_us"] = entry.facts["since_us"]
    elif entry.kind == "session.silence_ended":
        values["silent_since_us"] = None


def _complete_lease(row: FoldedRow) -> Mapping[str, Any]:
    """Return what a missing lease gets: that of a holder who sent no heartbeat since."""
    start, ttl_s = row.values["acquired_at_us"], row.values["ttl_s"]
    texts = {"process": "(unknown)", "subject": str(row.key[0])}
    return {
        **{name: text for name, text in texts.items() if name in row.unknown},
        "ttl_s": ttl_s,
        "heartbeat_at_us": start,
        "progress_at_us": start,
        "expires_at_us": start + ttl_s * US,
        "dead_at_us": start + DEAD_AFTER_TTLS * ttl_s * US,
        "wedged_at_us": start + PROGRESS_WITHIN_S * US,
    }


def _fold_capacity(batch: RebuildBatch) -> Iterator[FoldedRow]:
    rows: dict[tuple[Any, ...], FoldedRow] = {}
    for journal in list_agent_journals(batch):
        for entry in journal.list_entries("capacity.reported"):
            if entry.lane != "command" or entry.agent is None:
                continue
            reported = {name: entry.facts.get(name) for name in capacity.CAPACITY_FIELDS}
            pace = capacity.compute_throttle_window(reported, entry.received_us)
            reason, from_us, until_us = pace or ("", None, None)
            key = (entry.agent, entry.session)
            values = {
                "project_id": journal.project,
                "agent_id": entry.agent,
                "session_id": entry.session,
                "reported_at_us": entry.received_us,
                "position": entry.position,
                "pace_reason": reason,
                "paced_from_us": from_us,
                "paced_until_us": until_us,
                **reported,
            }
            rows[key] = FoldedRow(key, values, entry.position)
    yield from rows.values()


def _fold_breakers(batch: RebuildBatch) -> Iterator[FoldedRow]:
    """Yield the tools whose plans are paused; a row of others only counts failures."""
    paused: dict[str, FoldedRow] = {}
    fired = load_project_entries(batch, ("control.fired", "admin.tools_loaded"))
    for entry in fired:
        if entry.kind == "admin.tools_loaded":
            _fold_load(paused, entry)
            continue
        if entry.facts.get("control") != "breaker":
            continue
        tool = _find_tool(entry)
        if entry.facts["moved"] == "closed":
            paused.pop(tool, None)
            continue
        before = paused.get(tool)
        opened_us = entry.received_us if before is None else before.values["opened_at_us"]
        values = {
            "project_id": batch.project,
            "tool": tool,
            "opened_at_us": opened_us,
            "until_us": entry.received_us + entry.facts["pause_s"] * US,
            "failures": entry.facts["failures"],  # for a row that is missing
        }
        paused[tool] = FoldedRow((tool,), values, entry.position)
    yield from paused.values()


def _fold_load(paused: dict[str, FoldedRow], entry: ProjectEntry) -> None:
    """Drop the tools that a load leaves without a breaker."""
    if entry.body is None or "tools" not in entry.body:
        for row in paused.values():
            row.unknown |= dict.fromkeys(("opened_at_us", "until_us"), ERASED)
        return
    kept = {tool["name"] for tool in entry.body["tools"] if tool.get("breaker_failures")}
    for name in paused.keys() - kept:
        del paused[name]


def _find_tool(entry: ProjectEntry) -> str:
    """Return the tool of a breaker; where the body is erased, that of the effect."""
    if entry.body is not None:
        return str(entry.body["tool"])
    if entry.effect is None:
        return ""
    tools = Effect.objects.filter(pk=entry.effect).values_list("tool", flat=True)
    return tools.first() or ""


def _excuse_breaker(_batch: RebuildBatch, stored: Mapping[str, Any]) -> str:
    """Return why a breaker may be there that no entry opens."""
    is_closed = stored["opened_at_us"] is None
    return "a count of failures that pauses nothing yet" if is_closed else ""


def _select_leases(batch: RebuildBatch) -> "QuerySet[Any]":
    if batch.sessions:
        return Lease.objects.filter(session__in=batch.sessions)
    return Lease.objects.filter(project=batch.project, session=None)


def _select_capacity(batch: RebuildBatch) -> "QuerySet[Any]":
    if batch.sessions:
        return Capacity.objects.filter(session__in=batch.sessions)
    # The agent's plans are throttled, whatever project the row names.
    return Capacity.objects.filter(agent__project=batch.project, session=None)


def _select_breakers(batch: RebuildBatch) -> "QuerySet[Any]":
    return Breaker.objects.filter(project=batch.project)


def register_lease_checks() -> None:
    """Register the checks of leases, capacity and breakers."""
    for unit in _UNITS:
        register_row_check(
            Lease._meta.db_table,
            RowCheck(
                Lease,
                ("id",),
                unit,
                _fold_leases,
                _select_leases,
                leases.restore_leases,
                LEASE_UNCOMPUTED,
                _complete_lease,
            ),
        )
        register_row_check(
            Capacity._meta.db_table,
            RowCheck(
                Capacity,
                ("agent_id", "session_id"),
                unit,
                _fold_capacity,
                _select_capacity,
                capacity.restore_capacity,
                {"id": _NOT_A_REFERENCE},
            ),
        )
    register_row_check(
        Breaker._meta.db_table,
        RowCheck(
            Breaker,
            ("tool",),
            "project",
            _fold_breakers,
            _select_breakers,
            circuit_breakers.restore_breakers,
            BREAKER_UNCOMPUTED,
            excuse=_excuse_breaker,
        ),
    )
