"""Looks through the deadlines that have passed and records what began and ended to be stuck. It decides nothing.

Whoever reads a page derives the same by the same rules; a sweep that comes late only lets people hear of it late.
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
SILENCES: Final = 1_000  # that one sweep writes into the book
JUDGED: Final = 200  # effects judged at once
SILENT_FROM: Final = 3  # S10: leases of one agent, all of them dead


@dataclass(slots=True)
class Swept:
    """What one evaluation did."""

    stuck: int = 0
    raised: int = 0
    cleared: int = 0
    held: bool = False  # alarms are, because we were away ourselves


@dataclass(slots=True)
class _Steps:
    see: list[Seen] = field(default_factory=list)
    rise: list[StuckTransition] = field(default_factory=list)
    clear: list[StuckTransition] = field(default_factory=list)
    forget: list[StuckTransition] = field(default_factory=list)


@beating.watched(NAME)
def sweep(at_us: int | None = None) -> Swept:
    """Evaluate every rule once and record the transitions. Two evaluations in a row raise."""
    now = now_us() if at_us is None else at_us
    # While our doors are shut nobody can beat, and when they open everybody needs a moment.
    shut = pulses.is_away("waker", now)
    pulse = pulses.beat(NAME, now)
    done = Swept(held=shut or now < pulses.held_until())
    with transaction.atomic():
        leases.fall_silent(SILENCES, now)
    settled = last_position()
    heard = loops.window(pulse.position or max(settled - loops.READ, 0), settled)
    for project in Project.objects.filter(archive=False).values_list("id", flat=True):
        _sweep_project(project, heard, now, pulse.beats, done)
    controls.sweep(now)
    pulses.read_to(NAME, heard.until)
    return done


def _sweep_project(project: UUID, heard: loops.Window, now: int, evaluation: int, done: Swept) -> None:
    known = limits_of.known(project)
    episodes = transitions.of(project)
    looping = [row.session_id for row in episodes if row.rule == "S5"]
    zombies = [row.session_id for row in episodes if row.rule == "S8"]
    acting = _some([*looping, *(session for home, session in heard.acting if home == project)], evaluation)
    stale = {session for home, session in heard.fenced if home == project} | {one for one in zombies if one is not None}
    found_loops, found_fenced = loops.found(acting), loops.fenced(stale, now)
    overdue = reading.candidates(project, now, known)
    found_loops = loops.constant(overdue, now) | found_loops
    among = {*overdue, *found_loops, *found_fenced}
    held: dict[transitions.Key, Seen] = {}
    ordered = sorted(among, key=lambda one: one.int)
    for start in range(0, len(ordered), reading.MOST):
        part = ordered[start : start + reading.MOST]
        for one in reading.found(project, part, now, known, loops=found_loops, fenced=found_fenced):
            for reason in one.reasons:
                seen = Seen(project, one.session.id, reason)
                held[seen.key] = seen
    for silent in _silent(project, list(held.values()), now):
        held[silent.key] = silent
    done.stuck += len(held)
    _record(held, episodes, now, evaluation, done)
    _judge(project, held, now)


def _record(
    held: dict[transitions.Key, Seen], episodes: Sequence[StuckTransition], now: int, evaluation: int, done: Swept
) -> None:
    steps, known = _Steps(), {key_of(row): row for row in episodes}
    for key, seen in held.items():
        row = known.get(key)
        episode = None if row is None else Episode(row.seen_sweep, row.raised_us is not None)
        step = follow(episode, holds=True, evaluation=evaluation, held=done.held)
        if row is None:
            steps.see.append(seen)
        elif step == "raise":
            steps.rise.append(row)
        if row is not None and seen.reason.rule in ("S5", "S8") and row.says != transitions.as_json(seen.reason.says):
            transitions.note(row, says=seen.reason.says)
    for key, row in known.items():
        if key not in held:
            (steps.clear if row.raised_us is not None else steps.forget).append(row)
    transitions.see(steps.see, evaluation, now)
    done.raised += transitions.raise_(steps.rise, now)
    done.cleared += transitions.clear(steps.clear, now)
    transitions.forget(steps.forget, now)


def _some(sessions: Iterable[UUID | None], evaluation: int) -> list[UUID]:
    """At most AT_ONCE of them, others in every evaluation; those that loop already come first."""
    distinct = list(dict.fromkeys(one for one in sessions if one is not None))
    if len(distinct) <= loops.AT_ONCE:
        return distinct
    return sorted(distinct, key=lambda one: (one.int * (2 * evaluation + 1)) & 0xFFFFFFFF)[: loops.AT_ONCE]


def _silent(project: UUID, held: Iterable[Seen], now: int) -> list[Seen]:
    """S10: agents that hold several leases, of which not one is alive."""
    dead = {one.session: one for one in held if one.reason.rule == "S2" and one.session is not None}
    if len(dead) < SILENT_FROM:
        return []
    standing = Lease.objects.filter(kind="session", released_at_us__isnull=True)
    of_agent: dict[UUID, list[Seen]] = {}
    for session, agent in standing.filter(session__in=dead).values_list("session", "agent"):
        if session is not None:
            of_agent.setdefault(agent, []).append(dead[session])
    found = []
    for row in Agent.objects.filter(project=project, id__in=of_agent):
        theirs = of_agent[row.id]
        if len(theirs) >= SILENT_FROM and not standing.filter(agent=row, dead_at_us__gte=now).exists():
            since = max(one.reason.since_us for one in theirs)
            says: Sentence = [f"all {len(theirs)} sessions that {row.name} holds fell silent"]
            found.append(Seen(project, None, Reason("S10", row.id, "agent", 0, since, [], says, row.name)))
    return found


def _judge(project: UUID, held: dict[transitions.Key, Seen], now: int) -> None:
    """Keep beside each unknown outcome whether it settles without a person, by its verdict as of now."""
    unknown = {key[1]: key for key in held if key[0] == "S4"}
    if not unknown:
        return
    rows = {row.subject: row for row in transitions.of(project) if row.rule == "S4"}
    effects = list(Effect.objects.filter(id__in=[one for one in unknown if one in rows]))
    for start in range(0, len(effects), JUDGED):
        verdicts = cases.judge(project, effects[start : start + JUDGED], now)
        for effect, judged in verdicts.items():
            needs = judged.verdict.answer == "escalate"
            if rows[effect].needs_person != needs:
                transitions.note(rows[effect], needs_person=needs)
