"""The one writer of Breaker: pauses plans of a tool that fails repeatedly.

After the pause one trial is allowed. Only reports by command on an open attempt count, for tools
with a declared breaker. Only planning is paused: a permitted effect may be dispatched, and every
outcome is accepted.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from db.ids import new_uuid7
from db.jobs import CLOCK_STEP_US
from db.row_changes import RowChange, write_row_changes
from journal import entries
from ledger import refusals
from ledger.models import Breaker
from ledger.store.effect_rows import AttemptRow, EffectRow
from ledger.tools import cache

US: Final = 1_000_000


class CircuitOpen(Exception):
    """Plans of this tool are paused after repeated failures. Nothing was recorded."""

    def __init__(self, tool: str, failures: int, until_us: int, now_us: int) -> None:
        super().__init__(tool)
        self.until_us = until_us
        self.retry_after_s = max(1, -(-(until_us - now_us) // US))
        self.sentence = refusals.describe_open_circuit(failures)


@dataclass(frozen=True, slots=True)
class BreakerState:
    """A breaker on the tools page: closed, open, due or trying."""

    tool: str
    state: str
    failures: int
    since_us: int | None
    until_us: int | None


def count_outcome(row: EffectRow, attempt: AttemptRow, *, went_well: bool, now_us: int) -> None:
    """Count the outcome of an attempt; one query for a usual success.

    The effect's row is locked; breakers are always locked after effects.
    """
    limits = cache.load_tool(row.project_id, row.tool)
    if limits.breaker_failures is None or limits.breaker_pause_s is None:
        return
    breakers_of_tool = Breaker.objects.filter(project=row.project_id, tool=row.tool)
    if went_well:
        # Read without a lock first: successes of a healthy tool must not wait for each other.
        if not breakers_of_tool.filter(failures__gt=0).exists():
            return
        breaker = breakers_of_tool.select_for_update().get()
        _close_breaker(breaker, row, attempt, now_us)
        return
    Breaker.objects.get_or_create(project_id=row.project_id, tool=row.tool)
    breaker = breakers_of_tool.select_for_update().get()
    breaker.failures += 1
    moved = ""
    if breaker.opened_at_us is None and breaker.failures >= limits.breaker_failures:
        moved, breaker.opened_at_us = "opened", now_us
    elif breaker.trial == row.id:
        moved = "opened_again"
    if moved:
        breaker.until_us = now_us + limits.breaker_pause_s * US
        breaker.trial = breaker.trial_until_us = None
        _record_change(breaker, moved, row, now_us, pause_s=limits.breaker_pause_s)
    breaker.save()


def _close_breaker(breaker: Breaker, row: EffectRow, attempt: AttemptRow, now_us: int) -> None:
    """Close the breaker, unless the attempt was dispatched before it opened."""
    opened = breaker.opened_at_us
    if opened is not None and breaker.trial != row.id and (attempt.dispatched_at_us or 0) < opened:
        return
    breaker.failures, breaker.opened_at_us, breaker.until_us = 0, None, None
    breaker.trial = breaker.trial_until_us = None
    breaker.save()
    if opened is not None:
        _record_change(breaker, "closed", row, now_us)


def find_pause(project: UUID, tool: str, effect: UUID, now_us: int) -> CircuitOpen | None:
    """Return what pauses plans of `tool` now, or None if `effect` would be admitted."""
    breaker = Breaker.objects.filter(project=project, tool=tool, opened_at_us__isnull=False).first()
    return None if breaker is None else _find_pause_of(breaker, effect, now_us)


def admit_trial(row: EffectRow, now_us: int) -> None:
    """Admit a planned effect as the trial of its tool, or raise CircuitOpen; one at a time."""
    breaker = (
        Breaker.objects.select_for_update()
        .filter(project=row.project_id, tool=row.tool, opened_at_us__isnull=False)
        .first()
    )
    if breaker is None:
        return
    pause = _find_pause_of(breaker, row.id, now_us)
    if pause is not None:
        raise pause
    limits = cache.load_tool(row.project_id, row.tool)
    breaker.trial = row.id
    breaker.trial_until_us = now_us + max(limits.breaker_pause_s or 0, limits.deadline_s) * US
    breaker.save()


def _find_pause_of(breaker: Breaker, effect: UUID, now_us: int) -> CircuitOpen | None:
    if breaker.trial == effect:
        return None
    until_us = max(
        _pause_end(breaker, breaker.until_us, now_us),
        _pause_end(breaker, breaker.trial_until_us, now_us),
    )
    if now_us >= until_us:
        return None
    return CircuitOpen(breaker.tool, breaker.failures, until_us, now_us)


def _pause_end(breaker: Breaker, until_us: int | None, now_us: int) -> int:
    """Return the end of a pause or trial; 0 if the clock was set back."""
    limits = cache.load_tool(breaker.project_id, breaker.tool)
    longest_us = max(limits.breaker_pause_s or 0, limits.deadline_s) * US
    return 0 if until_us is None or until_us - now_us > longest_us + CLOCK_STEP_US else until_us


def delete_breakers(project: UUID, tools: Iterable[str]) -> None:
    """Delete the counts of tools that no longer have a breaker."""
    Breaker.objects.filter(project=project, tool__in=list(tools)).delete()


def restore_breakers(changes: Sequence[RowChange]) -> None:
    """Restore breakers to what the journal gives (manage.py rebuild)."""
    write_row_changes(Breaker, changes)


def load_breaker_states(project: UUID, now_us: int) -> dict[str, BreakerState]:
    """Return every breaker of the project that has counted a failure, by tool."""
    states = {}
    for breaker in Breaker.objects.filter(project=project, failures__gt=0).order_by("tool")[:1000]:
        state = "closed"
        if breaker.opened_at_us is not None and now_us < _pause_end(
            breaker, breaker.until_us, now_us
        ):
            state = "open"
        elif breaker.opened_at_us is not None:
            state = (
                "trying"
                if breaker.trial is not None
                and now_us < _pause_end(breaker, breaker.trial_until_us, now_us)
                else "due"
            )
        until_us = {"open": breaker.until_us, "trying": breaker.trial_until_us}.get(state)
        states[breaker.tool] = BreakerState(
            breaker.tool, state, breaker.failures, breaker.opened_at_us, until_us
        )
    return states


def _record_change(
    breaker: Breaker, moved: str, row: EffectRow, now_us: int, *, pause_s: int | None = None
) -> None:
    """Record a breaker's change; the erasable body has the tool's name."""
    facts = {"control": "breaker", "moved": moved, "failures": breaker.failures, "pause_s": pause_s}
    facts = {name: value for name, value in facts.items() if value is not None}
    entries.record_system_entry(
        row.project_id,
        "control.fired",
        event_id=new_uuid7().hex,
        text=entries.dump_sorted_json({"kind": "control.fired", "tool": row.tool, **facts}),
        received_us=now_us,
        facts=entries.dump_sorted_json(facts),
        session=row.session_id,
        effect=row.id,
    )
