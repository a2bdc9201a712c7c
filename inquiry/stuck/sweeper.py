"""Periodic job that evaluates the stuck rules and records what begins and ends to be stuck.

Pages derive the same state by the same rules; a late sweep only delays notifications.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from django.db import transaction

from inquiry import controls
from inquiry.models import StuckTransition
from inquiry.sentences import Sentence
from inquiry.stuck import limits as limits_of
from inquiry.stuck import loops, pulses, reading, transitions
from inquiry.stuck.following import Episode, follow
from inquiry.stuck.rules import Reason
from inquiry.stuck.transitions import Seen, key_of
from journal import beating
from journal.clock import now_us
from journal.horizon import last_position
from ledger import cases
from ledger.models import Effect
from sessions import leases
from sessions.models import Agent, Project
from sessions.models_leases import Lease

NAME: Final = "sweeper"
SILENCES: Final = 1_000  # expired leases recorded in the journal by one sweep
JUDGED: Final = 200  # effects whose verdict is computed at once
SILENT_FROM: Final = 3  # S10: leases of one agent, all dead


@dataclass(slots=True)
class Swept:
    """Counts of one evaluation."""

    stuck: int = 0
    raised: int = 0
    cleared: int = 0
    held: bool = False  # alerts are paused after an outage of Gatebook


@dataclass(slots=True)
class _Steps:
    see: list[Seen] = field(default_factory=list)
    rise: list[StuckTransition] = field(default_factory=list)
    clear: list[StuckTransition] = field(default_factory=list)
    forget: list[StuckTransition] = field(default_factory=list)


@beating.watched(NAME)
def sweep(at_us: int | None = None) -> Swept:
    """Evaluate every rule once and record transitions. Two evaluations in a row raise."""
    now = now_us() if at_us is None else at_us
    # Without the web server no agent can send heartbeats, and after a restart all need a moment.
    web_is_down = pulses.is_away("waker", now)
    pulse = pulses.beat(NAME, now)
    done = Swept(held=web_is_down or now < pulses.held_until())
    with transaction.atomic():
        leases.fall_silent(SILENCES, now)
    settled = last_position()
    window = loops.window(pulse.position or max(settled - loops.READ, 0), settled)
    for project in Project.objects.filter(archive=False).values_list("id", flat=True):
        _sweep_project(project, window, now, pulse.beats, done)
    controls.sweep(now)
    pulses.read_to(NAME, window.until)
    return done


def _sweep_project(
    project: UUID, window: loops.Window, now: int, evaluation: int, done: Swept
) -> None:
    limits = limits_of.known(project)
    episodes = transitions.of(project)
    looping = [row.session_id for row in episodes if row.rule == "S5"]
    zombies = [row.session_id for row in episodes if row.rule == "S8"]
    acting = _some(
        [*looping, *(session for project_id, session in window.acting if project_id == project)],
        evaluation,
    )
    stale = {session for project_id, session in window.fenced if project_id == project} | {
        session for session in zombies if session is not None
    }
    found_loops, found_fenced = loops.found(acting), loops.fenced(stale, now)
    overdue = reading.candidates(project, now, limits)
    found_loops = loops.constant(overdue, now) | found_loops
    among = {*overdue, *found_loops, *found_fenced}
    held: dict[transitions.Key, Seen] = {}
    ordered = sorted(among, key=lambda session: session.int)
    for start in range(0, len(ordered), reading.MOST):
        part = ordered[start : start + reading.MOST]
        for item in reading.found(
            project, part, now, limits, loops=found_loops, fenced=found_fenced
        ):
            for reason in item.reasons:
                seen = Seen(project, item.session.id, reason)
                held[seen.key] = seen
    for silent in _silent(project, list(held.values()), now):
        held[silent.key] = silent
    done.stuck += len(held)
    _record(held, episodes, now, evaluation, done)
    _judge(project, held, now)


def _record(
    held: dict[transitions.Key, Seen],
    episodes: Sequence[StuckTransition],
    now: int,
    evaluation: int,
    done: Swept,
) -> None:
    steps, row_by_key = _Steps(), {key_of(row): row for row in episodes}
    for key, seen in held.items():
        row = row_by_key.get(key)
        episode = None if row is None else Episode(row.seen_sweep, row.raised_us is not None)
        step = follow(episode, holds=True, evaluation=evaluation, held=done.held)
        if row is None:
            steps.see.append(seen)
        elif step == "raise":
            steps.rise.append(row)
        if (
            row is not None
            and seen.reason.rule in ("S5", "S8")
            and row.says != transitions.as_json(seen.reason.says)
        ):
            transitions.note(row, says=seen.reason.says)
    for key, row in row_by_key.items():
        if key not in held:
            (steps.clear if row.raised_us is not None else steps.forget).append(row)
    transitions.see(steps.see, evaluation, now)
    done.raised += transitions.raise_(steps.rise, now)
    done.cleared += transitions.clear(steps.clear, now)
    transitions.forget(steps.forget, now)


def _some(sessions: Iterable[UUID | None], evaluation: int) -> list[UUID]:
    """Choose at most AT_ONCE sessions, different ones in every evaluation."""
    distinct = list(dict.fromkeys(session for session in sessions if session is not None))
    if len(distinct) <= loops.AT_ONCE:
        return distinct
    return sorted(distinct, key=lambda session: (session.int * (2 * evaluation + 1)) & 0xFFFFFFFF)[
        : loops.AT_ONCE
    ]


def _silent(project: UUID, held: Iterable[Seen], now: int) -> list[Seen]:
    """S10: find agents that hold several leases, all of them dead."""
    dead = {
        item.session: item for item in held if item.reason.rule == "S2" and item.session is not None
    }
    if len(dead) < SILENT_FROM:
        return []
    open_leases = Lease.objects.filter(kind="session", released_at_us__isnull=True)
    of_agent: dict[UUID, list[Seen]] = {}
    for session, agent in open_leases.filter(session__in=dead).values_list("session", "agent"):
        if session is not None:
            of_agent.setdefault(agent, []).append(dead[session])
    silent = []
    for row in Agent.objects.filter(project=project, id__in=of_agent):
        dead_sessions = of_agent[row.id]
        if (
            len(dead_sessions) >= SILENT_FROM
            and not open_leases.filter(agent=row, dead_at_us__gte=now).exists()
        ):
            since = max(item.reason.since_us for item in dead_sessions)
            says: Sentence = [
                f"no heartbeat from any of the {len(dead_sessions)} sessions of {row.name}"
            ]
            silent.append(
                Seen(project, None, Reason("S10", row.id, "agent", 0, since, [], says, row.name))
            )
    return silent


def _judge(project: UUID, held: dict[transitions.Key, Seen], now: int) -> None:
    """Store on each unknown outcome whether its current verdict needs a person."""
    unknown = {key[1]: key for key in held if key[0] == "S4"}
    if not unknown:
        return
    rows = {row.subject: row for row in transitions.of(project) if row.rule == "S4"}
    effects = list(
        Effect.objects.filter(id__in=[effect_id for effect_id in unknown if effect_id in rows])
    )
    for start in range(0, len(effects), JUDGED):
        verdicts = cases.judge(project, effects[start : start + JUDGED], now)
        for effect, case in verdicts.items():
            needs = case.verdict.answer == "escalate"
            if rows[effect].needs_person != needs:
                transitions.note(rows[effect], needs_person=needs)
