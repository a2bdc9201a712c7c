"""The stuck board of a project: stuck items by cause, each with evidence and a safe action."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import QuerySet
from django.urls import reverse

from accounts.models import Agent, Project
from approvals.models import Gate
from display.effect_headline import Sentence
from display.effect_table import EffectTableRow, select_row_columns, to_effect_rows
from display.handles import parse_handle
from ledger.models import Effect
from monitoring.models import StuckEpisode
from monitoring.stuck import episodes as stuck_episodes
from monitoring.stuck import rule_limits as limits_of
from monitoring.stuck import rule_queries
from monitoring.stuck.episodes import ActiveRule, EpisodeKey
from monitoring.stuck.rule_inputs import FencedWrites, Loop
from monitoring.stuck.rule_inputs import RuleInput as StuckSeen
from monitoring.stuck.rule_names import RULES
from monitoring.stuck.rules import UNKNOWN_HEADINGS, RuleResult
from recovery import liveness
from sessions.models import Handoff, Session

MOST: Final = 2_000  # sessions evaluated for one page
SHOWN: Final = 25  # rows of a cause on the board
PAGE: Final = 100  # rows of one cause by itself


@dataclass(frozen=True, slots=True)
class Cause:
    """A group of the board: its rule, heading, CSS class and icon."""

    key: str
    title: str
    rule: str
    style: str
    shape: str
    remark: str = ""


CAUSES: Final = (
    Cause("unknown", UNKNOWN_HEADINGS["unknown"], "S4", "is-unknown", "unknown"),
    Cause("unattended", UNKNOWN_HEADINGS["unattended"], "S4", "is-unknown", "unknown"),
    Cause("looping", RULES["S5"], "S5", "is-failed", "failed"),
    Cause("waiting", RULES["S6"], "S6", "is-awaiting", "awaiting"),
    Cause("dead", RULES["S2"], "S2", "is-failed", "failed"),
    Cause("orphan", RULES["S7"], "S7", "is-failed", "handoff"),
    Cause("wedged", RULES["S3"], "S3", "is-awaiting", "pause"),
    Cause("late", RULES["S1"], "S1", "is-planned", "planned"),
    Cause("zombie", RULES["S8"], "S8", "is-failed", "stop"),
    Cause("blind", RULES["S10"], "S10", "is-unknown", "warn"),
    Cause(
        "settling",
        UNKNOWN_HEADINGS["settling"],
        "S4",
        "is-dispatched",
        "dispatched",
        "settles by itself",
    ),
)
# A machine settles these, or the people whom a request asks already know of it.
APART: Final = ("waiting", "settling")
# Each item is shown once.
IMPLIED_BY: Final = {"S2": "S7", "S3": "S5"}
_CAUSE_BY_KEY: Final = {cause.key: cause for cause in CAUSES}
_CAUSE_BY_RULE: Final = {cause.rule: cause.key for cause in reversed(CAUSES)}


@dataclass(slots=True)
class StuckRow:
    """A stuck item. `owner` is the assigned person, else the session's owner, else the agent's."""

    reason: RuleResult
    session: Session | None
    cause: str
    owner: str = ""
    owner_id: int | None = None
    snoozed_until_us: int | None = None
    snoozed_because: str = ""
    given_up: bool = False  # the lease was released, or never existed
    found_us: int | None = None  # when a sweep first saw it
    call: EffectTableRow | None = None  # S5: the call that a loop repeats

    @property
    def url(self) -> str:
        """The address of the row among those with its cause."""
        reason = self.reason
        return f"{reverse('stuck')}?cause={self.cause}#{reason.rule}-{reason.subject}"

    @property
    def needs_somebody(self) -> bool:
        """Whether a person must act who has not been asked yet."""
        return self.cause not in APART

    @property
    def key(self) -> EpisodeKey:
        """The identity of the item's episode."""
        return self.reason.rule, self.reason.subject, self.reason.epoch

    @property
    def releasable(self) -> bool:
        """Whether the item is a session whose lease can be released."""
        return (
            self.reason.kind == "session"
            and self.reason.rule in ("S2", "S3", "S7")
            and not self.given_up
        )


@dataclass(slots=True)
class CauseGroup:
    """The shown rows of a cause, oldest first."""

    cause: Cause
    rows: list[StuckRow]
    count: int
    oldest_us: int

    @property
    def is_apart(self) -> bool:
        """Whether everyone who has to act was asked."""
        return self.cause.key in APART

    @property
    def more(self) -> int:
        """How many rows are not shown."""
        return self.count - len(self.rows)


@dataclass(slots=True)
class StuckBoard:
    """The stuck items of a project. `overflow` is set when too many sessions were overdue."""

    rows: list[StuckRow] = field(default_factory=list)  # not snoozed
    snoozed: list[StuckRow] = field(default_factory=list)
    overflow: bool = False

    @property
    def needing(self) -> int:
        """How many rows need somebody; the others wait for a machine or for people asked."""
        return sum(row.needs_somebody for row in self.rows)

    @property
    def since(self) -> str:
        """A digest of items, owners and snoozes, for polling: changes with any of them."""
        lines = [f"{row.key} {row.owner} {row.reason.grade} {row.cause}" for row in self.rows]
        lines += [f"{row.key} {row.snoozed_until_us}" for row in self.snoozed]
        return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]

    def groups(self, cause: str = "", start: int = 0) -> list[CauseGroup]:
        """Group rows by cause, oldest first; with `cause` only that one, a page from `start`."""
        groups = []
        for candidate in CAUSES:
            rows = [row for row in self.rows if row.cause == candidate.key]
            if rows and cause in ("", candidate.key):
                shown = rows[start : start + PAGE] if cause else rows[:SHOWN]
                groups.append(CauseGroup(candidate, shown, len(rows), rows[0].reason.since_us))
        return sorted(groups, key=lambda group: (group.cause.key in APART, group.oldest_us))

    def clear(self) -> list[str]:
        """List the rules that found nothing: id and short title."""
        present = {row.reason.rule for row in (*self.rows, *self.snoozed)}
        return [
            f"{rule} {title.partition(':')[0].lower()}"
            for rule, title in RULES.items()
            if rule not in present
        ]


def load_board(
    project: Project,
    now_us: int,
    *,
    has_stops: bool = True,
    owner_id: int | None = None,
    only: UUID | None = None,
) -> StuckBoard:
    """Load the board of a project as of `now_us`.

    `owner_id` limits it to the rows of one user, `only` to one session. Five queries for any
    number of stuck items, six with stops; one more if an agent is silent (S10), one more if a
    session loops, one more when the cached limits have expired.
    """
    if project.archive:  # no agent works in an archive
        return StuckBoard()
    limits = limits_of.load_limits(project.id)
    episodes = stuck_episodes.load_episodes(project.id)
    sessions = (
        [only] if only is not None else rule_queries.find_candidates(project.id, now_us, limits)
    )
    loops, fenced = _loops_and_fenced_of(episodes)
    evaluated = sessions[:MOST]
    stuck_sessions = rule_queries.load_stuck_sessions(
        project.id, evaluated, now_us, limits, loops=loops, fenced=fenced, has_stops=has_stops
    )
    board = StuckBoard(overflow=len(sessions) > MOST)
    episode_by_key = {stuck_episodes.episode_key(row): row for row in episodes}
    for row in sorted(
        _build_rows(stuck_sessions, episodes, now_us),
        key=lambda row: (row.reason.since_us, str(row.reason.subject)),
    ):
        _apply_episode(row, episode_by_key.get(row.key))
        if owner_id is not None and row.owner_id != owner_id:
            continue
        is_shown = row.snoozed_until_us is None or row.snoozed_until_us <= now_us
        (board.rows if is_shown else board.snoozed).append(row)
    _attach_calls(project.id, board.rows)
    return board


def load_session_rows(session: Session) -> list[StuckRow]:
    """Return the rows about a session itself, as the last sweep saw them, oldest first.

    Rules about one effect or gate are left out. One query, two for a loop.
    """
    episodes = open_session_episodes(session.id).order_by("since_us", "id")
    rows = [
        StuckRow(
            RuleResult(
                episode.rule,
                episode.subject,
                "session",
                episode.epoch,
                episode.since_us,
                [],
                stuck_episodes.sentence_from_json(episode.says),
            ),
            session,
            _CAUSE_BY_RULE[episode.rule],
            found_us=episode.seen_us,
        )
        for episode in episodes
    ]
    present = {row.reason.rule for row in rows}
    rows = [row for row in rows if IMPLIED_BY.get(row.reason.rule) not in present]
    _attach_calls(session.project_id, rows)
    return rows


def open_session_episodes(session: Any) -> "QuerySet[StuckEpisode]":
    """Query the open episodes about a session itself, an id or a reference to one."""
    return StuckEpisode.objects.filter(session=session, cleared_us__isnull=True).exclude(
        rule__in=stuck_episodes.PER_SUBJECT_RULES
    )


def _attach_calls(project: UUID, rows: Iterable[StuckRow]) -> None:
    """Set `call` of each loop to the effect that its evidence names. One query for any loops."""
    named: dict[int, list[StuckRow]] = {}
    for row in rows:
        parts = row.reason.says if row.reason.rule == "S5" else []
        for part in parts:
            handle = parse_handle(part) if isinstance(part, str) else None
            if handle is not None:
                named.setdefault(handle[1], []).append(row)
    if named:
        effects = Effect.objects.filter(project=project, opened_position__in=list(named))
        for call in to_effect_rows(select_row_columns(effects)):
            for row in named[call.effect.opened_position]:
                row.call = call


def load_board_row(
    project: Project, rule: str, subject: UUID, now_us: int
) -> tuple[StuckRow, ActiveRule] | None:
    """Load one row of the board, snoozed or not; None if the item is no longer stuck."""
    board = load_board(project, now_us, only=_session_of(project, subject))
    for row in (*board.rows, *board.snoozed):
        if (row.reason.rule, row.reason.subject) == (rule, subject):
            session = row.session.id if row.session is not None else None
            return row, ActiveRule(project.id, session, row.reason)
    return None


def _session_of(project: Project, subject: UUID) -> UUID:
    """Return the session of a subject: a session, effect, gate or handoff."""
    for model in (Effect, Gate, Handoff):
        session: UUID | None = (
            model._default_manager.filter(project=project, id=subject)
            .values_list("session", flat=True)
            .first()
        )
        if session is not None:
            return session
    return subject


def _loops_and_fenced_of(
    episodes: Sequence[StuckEpisode],
) -> tuple[dict[UUID, Loop], dict[UUID, FencedWrites]]:
    """Take loops and fenced writers from the episodes: no deadline reveals them."""
    loops, fenced = {}, {}
    for row in episodes:
        if row.session_id is not None and row.rule == "S5":
            loops[row.session_id] = Loop(calls=10**6, since_us=row.since_us)
        elif row.session_id is not None and row.rule == "S8":
            fenced[row.session_id] = FencedWrites(row.epoch, 1, row.since_us)
    return loops, fenced


def _build_rows(
    every: Iterable[rule_queries.StuckSession], episodes: Sequence[StuckEpisode], now_us: int
) -> Iterable[StuckRow]:
    evidence_by_key = {
        stuck_episodes.episode_key(row): stuck_episodes.sentence_from_json(row.says)
        for row in episodes
    }
    settling = {row.subject for row in episodes if row.rule == "S4" and not row.needs_person}
    for stuck in every:
        session_rules = {reason.rule for reason in stuck.reasons if reason.kind == "session"}
        for reason in stuck.reasons:
            if IMPLIED_BY.get(reason.rule) in session_rules:
                continue
            lease, cause = stuck.seen.lease, _CAUSE_BY_RULE[reason.rule]
            if reason.rule == "S4" and reason.subject in settling:
                cause = "settling" if _has_worker(stuck.seen, now_us) else "unattended"
            row = StuckRow(
                reason,
                stuck.session,
                cause,
                given_up=lease is None or lease.released_at_us is not None,
            )
            if reason.rule in ("S5", "S8"):
                reason.says = evidence_by_key.get(row.key, reason.says)
            row.owner, row.owner_id = session_owner(stuck.session)
            yield row
    blind = [row.subject for row in episodes if row.rule == "S10"]
    names = dict(Agent.objects.filter(id__in=blind).values_list("id", "name")) if blind else {}
    for episode in episodes:
        if episode.rule == "S10":
            says: Sentence = stuck_episodes.sentence_from_json(episode.says)
            reason = RuleResult(
                "S10",
                episode.subject,
                "agent",
                0,
                episode.since_us,
                [],
                says,
                names.get(episode.subject, ""),
            )
            yield StuckRow(reason, None, "blind")


def _has_worker(seen: StuckSeen, now: int) -> bool:
    """Return whether a live worker can settle what needs no person."""
    status = liveness.shown_liveness(
        seen.status, seen.mode, seen.start_by_us, seen.lease, seen.helped, now
    )
    return status not in liveness.WORKERLESS


def session_owner(session: Session) -> tuple[str, int | None]:
    """Return name and user id of the session's owner, else of the agent's owner."""
    person = session.owner or session.agent.owner
    return (person.get_username(), person.pk) if person is not None else ("", None)


def _apply_episode(row: StuckRow, episode: StuckEpisode | None) -> None:
    if episode is None:
        return
    if episode.owner is not None:
        row.owner, row.owner_id = episode.owner.get_username(), episode.owner.pk
    row.found_us = episode.seen_us
    row.snoozed_until_us = episode.snoozed_until_us
    text: str | None = getattr(episode, "snoozed_text", None)
    if text is not None:
        row.snoozed_because = str(orjson.loads(text).get("reason", ""))


def is_cause(key: str) -> bool:
    """Return whether `key` names a cause."""
    return key in _CAUSE_BY_KEY
