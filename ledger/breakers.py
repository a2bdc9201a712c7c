"""The one writer of Breaker: a tool that fails time after time is left in peace for a while, then tried once.

Only what agents tell by command of an attempt that is open counts, for tools whose declaration asks for it. Planning
alone is paused: what has leave may be dispatched, and what came of it is always heard.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import orjson

from journal import entries
from journal.beating import CLOCK_STEP_US
from journal.ids import uuid7
from ledger import declared
from ledger.models_breaker import Breaker
from ledger.rows import AttemptRow, EffectRow

US: Final = 1_000_000


class Paused(Exception):
    """A plan comes for a tool that has failed too often in a row. Nothing was recorded."""

    def __init__(self, tool: str, failures: int, until_us: int, now_us: int) -> None:
        super().__init__(tool)
        self.until_us = until_us
        self.retry_after_s = max(1, -(-(until_us - now_us) // US))
        self.sentence = (
            f"This tool has failed {failures} times in a row, and its plans pause; then one is let through to try it."
            " Plan again after that time, or do something else. What is under way may go on."
        )


@dataclass(frozen=True, slots=True)
class Shown:
    """A breaker as the tools page tells it. `state` is closed, open, due (a trial is awaited) or trying."""

    tool: str
    state: str
    failures: int
    since_us: int | None
    until_us: int | None


def count(row: EffectRow, attempt: AttemptRow, *, went_well: bool, now_us: int) -> None:
    """Count what came of an attempt of a tool that has a breaker; one query where it went well, as it usually does.

    The effect's row is locked; breakers are locked after effects, always.
    """
    limits = declared.tool(row.project_id, row.tool)
    if limits.breaker_failures is None or limits.breaker_pause_s is None:
        return
    breakers_of_tool = Breaker.objects.filter(project=row.project_id, tool=row.tool)
    if went_well:
        # Unlocked at first: those that never fail would else wait for each other at the row.
        if not breakers_of_tool.filter(failures__gt=0).exists():
            return
        breaker = breakers_of_tool.select_for_update().get()
        _went_well(breaker, row, attempt, now_us)
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
        _fire(breaker, moved, row, now_us, pause_s=limits.breaker_pause_s)
    breaker.save()


def _went_well(breaker: Breaker, row: EffectRow, attempt: AttemptRow, now_us: int) -> None:
    """Close it. What was sent before it opened tells nothing of the tool as it is now."""
    opened = breaker.opened_at_us
    if opened is not None and breaker.trial != row.id and (attempt.dispatched_at_us or 0) < opened:
        return
    breaker.failures, breaker.opened_at_us, breaker.until_us = 0, None, None
    breaker.trial = breaker.trial_until_us = None
    breaker.save()
    if opened is not None:
        _fire(breaker, "closed", row, now_us)


def look(project: UUID, tool: str, effect: UUID, now_us: int) -> None:
    """Raise Paused where `effect` would not be let through now. Decides nothing: `admit` does."""
    breaker = Breaker.objects.filter(project=project, tool=tool, opened_at_us__isnull=False).first()
    if breaker is not None:
        _check(breaker, effect, now_us)


def admit(row: EffectRow, now_us: int) -> None:
    """Let an effect that was just planned through as the trial of its tool, or raise Paused: one at a time is."""
    breaker = (
        Breaker.objects.select_for_update()
        .filter(project=row.project_id, tool=row.tool, opened_at_us__isnull=False)
        .first()
    )
    if breaker is None:
        return
    _check(breaker, row.id, now_us)
    limits = declared.tool(row.project_id, row.tool)
    breaker.trial = row.id
    breaker.trial_until_us = now_us + max(limits.breaker_pause_s or 0, limits.deadline_s) * US
    breaker.save()


def _check(breaker: Breaker, effect: UUID, now_us: int) -> None:
    if breaker.trial == effect:
        return
    until_us = max(
        _end(breaker, breaker.until_us, now_us), _end(breaker, breaker.trial_until_us, now_us)
    )
    if now_us < until_us:
        raise Paused(breaker.tool, breaker.failures, until_us, now_us)


def _end(breaker: Breaker, until_us: int | None, now_us: int) -> int:
    """When a pause or a trial ends. One that would last longer than it can began before the clock was set back."""
    limits = declared.tool(breaker.project_id, breaker.tool)
    longest_us = max(limits.breaker_pause_s or 0, limits.deadline_s) * US
    return 0 if until_us is None or until_us - now_us > longest_us + CLOCK_STEP_US else until_us


def forget(project: UUID, tools: Iterable[str]) -> None:
    """Forget what was counted of tools that have no breaker any more."""
    Breaker.objects.filter(project=project, tool__in=list(tools)).delete()


def shown(project: UUID, now_us: int) -> dict[str, Shown]:
    """Every breaker of the project that has counted something, by tool."""
    states = {}
    for breaker in Breaker.objects.filter(project=project, failures__gt=0).order_by("tool")[:1000]:
        state = "closed"
        if breaker.opened_at_us is not None and now_us < _end(breaker, breaker.until_us, now_us):
            state = "open"
        elif breaker.opened_at_us is not None:
            state = (
                "trying"
                if breaker.trial is not None
                and now_us < _end(breaker, breaker.trial_until_us, now_us)
                else "due"
            )
        until_us = {"open": breaker.until_us, "trying": breaker.trial_until_us}.get(state)
        states[breaker.tool] = Shown(
            breaker.tool, state, breaker.failures, breaker.opened_at_us, until_us
        )
    return states


def _fire(
    breaker: Breaker, moved: str, row: EffectRow, now_us: int, *, pause_s: int | None = None
) -> None:
    """Put into the book that the breaker did something. The tool's name stands in the body, where it can be erased."""
    facts = {"control": "breaker", "moved": moved, "failures": breaker.failures, "pause_s": pause_s}
    facts = {name: value for name, value in facts.items() if value is not None}
    entries.record(
        row.project_id,
        "control.fired",
        event_id=uuid7().hex,
        text=orjson.dumps(
            {"kind": "control.fired", "tool": row.tool, **facts}, option=orjson.OPT_SORT_KEYS
        ).decode(),
        received_us=now_us,
        facts=orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode(),
        session=row.session_id,
        effect=row.id,
    )
