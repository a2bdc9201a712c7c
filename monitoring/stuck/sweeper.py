"""Periodic job that evaluates the stuck rules and records what begins and ends to be stuck.

Pages derive the same state by the same rules; a late sweep only delays notifications.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from django.db import transaction

from accounts import projects
from accounts.models import Agent, Project
from db import jobs as db_job_heartbeats
from db.clock import now_us
from display.effect_headline import Sentence
from journal.running_writers import load_last_position, wait_until_stable
from ledger.models import Effect
from ledger.verdicts import evaluate
from monitoring import job_heartbeats
from monitoring.models import StuckEpisode
from monitoring.stuck import episodes as stuck_episodes
from monitoring.stuck import loops, rule_queries
from monitoring.stuck import rule_limits as limits_of
from monitoring.stuck.episodes import ActiveRule, episode_key
from monitoring.stuck.hysteresis import EpisodeState, next_step
from monitoring.stuck.rules import RuleResult
from recovery import detectors
from sessions import leases
from sessions.models import Lease

NAME: Final = "stuck_checks"
MAX_SILENCES: Final = 1_000  # expired leases recorded in the journal by one sweep
VERDICT_BATCH: Final = 200  # effects whose verdict is computed at once
MIN_SILENT_LEASES: Final = 3  # S10: leases of one agent, all dead


@dataclass(slots=True)
class SweepResult:
    """Counts of one evaluation."""

    stuck: int = 0
    raised: int = 0
    cleared: int = 0
    is_paused: bool = False  # nothing is raised after an outage of Gatebook


@dataclass(slots=True)
class _Steps:
    see: list[ActiveRule] = field(default_factory=list)
    rise: list[StuckEpisode] = field(default_factory=list)
    clear: list[StuckEpisode] = field(default_factory=list)
    forget: list[StuckEpisode] = field(default_factory=list)


@db_job_heartbeats.record_run(NAME)
def sweep_stuck(at_us: int | None = None) -> SweepResult:
    """Evaluate every rule once and record transitions. Two evaluations in a row raise."""
    now = now_us() if at_us is None else at_us
    # Without the web server no agent can send heartbeats, and after a restart all need a moment.
    web_is_down = job_heartbeats.is_job_silent("gate_listener", now)
    job_heartbeat = job_heartbeats.record_heartbeat(NAME, now)
    done = SweepResult(is_paused=web_is_down or now < job_heartbeats.load_pause_end())
    with transaction.atomic():
        leases.record_silent_holders(MAX_SILENCES, now)
    position = job_heartbeats.load_possible_position(NAME)
    stable = max(wait_until_stable(load_last_position()), position)
    window = loops.read_window(position or max(stable - loops.MAX_ENTRIES_READ, 0), stable)
    hidden = set(projects.query_hidden_samples().values_list("id", flat=True))
    for project in Project.objects.filter(archive=False).values_list("id", flat=True):
        if project in hidden:
            continue
        _sweep_project(project, window, now, job_heartbeat.heartbeats, done)
    detectors.sweep_stale_handoffs(now)
    job_heartbeats.store_position(NAME, window.until)
    return done


def _sweep_project(
    project: UUID, window: loops.JournalWindow, now: int, evaluation: int, done: SweepResult
) -> None:
    limits = limits_of.load_limits(project)
    episodes = stuck_episodes.load_episodes(project)
    looping = [row.session_id for row in episodes if row.rule == "S5"]
    zombies = [row.session_id for row in episodes if row.rule == "S8"]
    acting = _choose_sessions(
        [*looping, *(session for project_id, session in window.acting if project_id == project)],
        evaluation,
    )
    stale = {session for project_id, session in window.fenced if project_id == project} | {
        session for session in zombies if session is not None
    }
    found_loops, found_fenced = loops.find_loops(acting), loops.find_fenced_writers(stale, now)
    overdue = rule_queries.find_candidates(project, now, limits)
    found_loops = loops.find_constant_tokens(overdue, now) | found_loops
    among = {*overdue, *found_loops, *found_fenced}
    active_rules: dict[stuck_episodes.EpisodeKey, ActiveRule] = {}
    ordered = sorted(among, key=lambda session: session.int)
    for start in range(0, len(ordered), rule_queries.MOST):
        part = ordered[start : start + rule_queries.MOST]
        for item in rule_queries.load_stuck_sessions(
            project, part, now, limits, loops=found_loops, fenced=found_fenced
        ):
            for reason in item.reasons:
                seen = ActiveRule(project, item.session.id, reason)
                active_rules[seen.key] = seen
    for silent in _find_silent_agents(project, list(active_rules.values()), now):
        active_rules[silent.key] = silent
    done.stuck += len(active_rules)
    _record_transitions(active_rules, episodes, now, evaluation, done)
    _store_verdicts(project, active_rules, now)


def _record_transitions(
    active_rules: dict[stuck_episodes.EpisodeKey, ActiveRule],
    episodes: Sequence[StuckEpisode],
    now: int,
    evaluation: int,
    done: SweepResult,
) -> None:
    steps, row_by_key = _Steps(), {episode_key(row): row for row in episodes}
    for key, seen in active_rules.items():
        row = row_by_key.get(key)
        episode = None if row is None else EpisodeState(row.seen_sweep, row.raised_us is not None)
        step = next_step(episode, holds=True, evaluation=evaluation, is_paused=done.is_paused)
        if row is None:
            steps.see.append(seen)
        elif step == "raise":
            steps.rise.append(row)
        if (
            row is not None
            and seen.reason.rule in ("S5", "S8")
            and row.says != stuck_episodes.sentence_to_json(seen.reason.says)
        ):
            stuck_episodes.update_episode(row, says=seen.reason.says)
    for key, row in row_by_key.items():
        if key not in active_rules:
            (steps.clear if row.raised_us is not None else steps.forget).append(row)
    stuck_episodes.store_episodes(steps.see, evaluation, now)
    done.raised += stuck_episodes.raise_episodes(steps.rise, now)
    done.cleared += stuck_episodes.clear_episodes(steps.clear, now)
    stuck_episodes.delete_unraised(steps.forget, now)


def _choose_sessions(sessions: Iterable[UUID | None], evaluation: int) -> list[UUID]:
    """Choose at most AT_ONCE sessions, different ones in every evaluation."""
    distinct = list(dict.fromkeys(session for session in sessions if session is not None))
    if len(distinct) <= loops.AT_ONCE:
        return distinct
    return sorted(distinct, key=lambda session: (session.int * (2 * evaluation + 1)) & 0xFFFFFFFF)[
        : loops.AT_ONCE
    ]


def _find_silent_agents(
    project: UUID, active_rules: Iterable[ActiveRule], now: int
) -> list[ActiveRule]:
    """S10: find agents that hold several leases, all of them dead."""
    dead = {
        item.session: item
        for item in active_rules
        if item.reason.rule == "S2" and item.session is not None
    }
    if len(dead) < MIN_SILENT_LEASES:
        return []
    open_leases = Lease.objects.filter(kind="session", released_at_us__isnull=True)
    of_agent: dict[UUID, list[ActiveRule]] = {}
    for session, agent in open_leases.filter(session__in=dead).values_list("session", "agent"):
        if session is not None:
            of_agent.setdefault(agent, []).append(dead[session])
    silent = []
    for row in Agent.objects.filter(project=project, id__in=of_agent):
        dead_sessions = of_agent[row.id]
        if (
            len(dead_sessions) >= MIN_SILENT_LEASES
            and not open_leases.filter(agent=row, dead_at_us__gte=now).exists()
        ):
            since = max(item.reason.since_us for item in dead_sessions)
            says: Sentence = [
                f"no heartbeat from any of the {len(dead_sessions)} sessions of {row.name}"
            ]
            silent.append(
                ActiveRule(
                    project, None, RuleResult("S10", row.id, "agent", 0, since, [], says, row.name)
                )
            )
    return silent


def _store_verdicts(
    project: UUID, active_rules: dict[stuck_episodes.EpisodeKey, ActiveRule], now: int
) -> None:
    """Store on each unknown outcome whether its current verdict needs a person."""
    unknown = {key[1]: key for key in active_rules if key[0] == "S4"}
    if not unknown:
        return
    rows = {row.subject: row for row in stuck_episodes.load_episodes(project) if row.rule == "S4"}
    effects = list(
        Effect.objects.filter(id__in=[effect_id for effect_id in unknown if effect_id in rows])
    )
    for start in range(0, len(effects), VERDICT_BATCH):
        verdicts = evaluate.evaluate_effects(project, effects[start : start + VERDICT_BATCH], now)
        for effect, case in verdicts.items():
            needs = case.verdict.answer == "escalate"
            if rows[effect].needs_person != needs:
                stuck_episodes.update_episode(rows[effect], needs_person=needs)
