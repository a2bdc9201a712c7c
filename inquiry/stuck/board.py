"""The board: everything that is stuck in a project as of now, by cause, with its evidence and one safe action each."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

import orjson

from approvals.models import Gate
from inquiry import liveness
from inquiry.models import StuckTransition
from inquiry.sentences import Sentence
from inquiry.stuck import limits as limits_of
from inquiry.stuck import reading, transitions
from inquiry.stuck.rules import RULES, Reason
from inquiry.stuck.seen import Fenced, Loop
from inquiry.stuck.seen import Seen as StuckSeen
from inquiry.stuck.transitions import Key, Seen
from ledger.models import Effect
from sessions.models import Agent, Project, Session
from sessions.models_state import Handoff

MOST: Final = 2_000  # sessions judged for one page
SHOWN: Final = 25  # rows of a cause on the board
PAGE: Final = 100  # rows of one cause by itself


@dataclass(frozen=True, slots=True)
class Cause:
    """Why things are stuck: the rule, its heading, and how it looks."""

    key: str
    title: str
    rule: str
    looks: str
    shape: str
    remark: str = ""


CAUSES: Final = (
    Cause("unknown", "Outcome unknown, needs a person", "S4", "is-unknown", "unknown"),
    Cause("unattended", "Outcome unknown, and no worker to check it", "S4", "is-unknown", "unknown"),
    Cause("looping", RULES["S5"], "S5", "is-failed", "failed"),
    Cause("waiting", RULES["S6"], "S6", "is-awaiting", "awaiting"),
    Cause("dead", RULES["S2"], "S2", "is-failed", "failed"),
    Cause("orphan", RULES["S7"], "S7", "is-failed", "handoff"),
    Cause("wedged", RULES["S3"], "S3", "is-awaiting", "pause"),
    Cause("late", RULES["S1"], "S1", "is-planned", "planned"),
    Cause("zombie", RULES["S8"], "S8", "is-failed", "stop"),
    Cause("blind", RULES["S10"], "S10", "is-unknown", "warn"),
    Cause("settling", "Waiting on a fence or a probe", "S4", "is-dispatched", "dispatched", "settles by itself"),
)
_BY_KEY: Final = {one.key: one for one in CAUSES}
_OF_RULE: Final = {one.rule: one.key for one in reversed(CAUSES)}


@dataclass(slots=True)
class Row:
    """One stuck thing. `owner` is whoever looks after it by assignment, else its session's owner, else its agent's."""

    reason: Reason
    session: Session | None
    cause: str
    owner: str = ""
    owner_id: int | None = None
    snoozed_until_us: int | None = None
    snoozed_because: str = ""
    given_up: bool = False  # its lease is

    @property
    def key(self) -> Key:
        """What an episode is one of."""
        return self.reason.rule, self.reason.subject, self.reason.epoch

    @property
    def releasable(self) -> bool:
        """True where what is stuck is a session whose lease nobody has given up."""
        return self.reason.kind == "session" and self.reason.rule in ("S2", "S3", "S7") and not self.given_up


@dataclass(slots=True)
class Group:
    """The rows of a cause, the oldest first; `more` are there beyond those that are shown."""

    cause: Cause
    rows: list[Row]
    count: int
    oldest_us: int

    @property
    def more(self) -> int:
        """How many rows are not shown."""
        return self.count - len(self.rows)


@dataclass(slots=True)
class Board:
    """What is stuck. `since` names exactly this state of it, for whoever polls."""

    rows: list[Row] = field(default_factory=list)  # neither snoozed nor folded
    snoozed: list[Row] = field(default_factory=list)
    overflow: bool = False

    @property
    def since(self) -> str:
        """A digest of what is stuck, who looks after it and what is snoozed: another as soon as one of them is."""
        told = [f"{row.key} {row.owner} {row.reason.grade} {row.cause}" for row in self.rows]
        told += [f"{row.key} {row.snoozed_until_us}" for row in self.snoozed]
        return hashlib.sha256("\n".join(sorted(told)).encode()).hexdigest()[:16]

    def groups(self, cause: str = "", start: int = 0) -> list[Group]:
        """The causes that have rows, the oldest first; of one `cause` a page from `start`."""
        found = []
        for one in CAUSES:
            rows = [row for row in self.rows if row.cause == one.key]
            if rows and cause in ("", one.key):
                shown = rows[start : start + PAGE] if cause else rows[:SHOWN]
                found.append(Group(one, shown, len(rows), rows[0].reason.since_us))
        return sorted(found, key=lambda group: (group.cause.remark != "", group.oldest_us))

    def clear(self) -> list[str]:
        """Rules of which nothing is stuck, in words."""
        present = {row.reason.rule for row in (*self.rows, *self.snoozed)}
        return [f"{rule} {title.partition(':')[0].lower()}" for rule, title in RULES.items() if rule not in present]


def of(
    project: Project, now_us: int, *, has_stops: bool = True, mine: int | None = None, only: UUID | None = None
) -> Board:
    """The board of a project as of `now_us`, of one person's own where `mine` names them, or of one session.

    Five queries, six where there are stops, however much is stuck; one more where a whole source is silent, and one for
    limits now and then.
    """
    if project.archive:  # nobody is at work there, so nothing of it is stuck
        return Board()
    limits = limits_of.known(project.id)
    episodes = transitions.of(project.id)
    sessions = [only] if only is not None else reading.candidates(project.id, now_us, limits)
    loops, fenced = _said(episodes)
    among = sessions[:MOST]
    every = reading.found(project.id, among, now_us, limits, loops=loops, fenced=fenced, has_stops=has_stops)
    board = Board(overflow=len(sessions) > MOST)
    known = {transitions.key_of(row): row for row in episodes}
    for row in sorted(_rows(every, episodes, now_us), key=lambda one: (one.reason.since_us, str(one.reason.subject))):
        _cared_for(row, known.get(row.key))
        if mine is not None and row.owner_id != mine:
            continue
        awake = row.snoozed_until_us is None or row.snoozed_until_us <= now_us
        (board.rows if awake else board.snoozed).append(row)
    return board


def one(project: Project, rule: str, subject: UUID, now_us: int) -> tuple[Row, Seen] | None:
    """One row of the board, snoozed or not; None when it is not stuck any more."""
    board = of(project, now_us, only=_session_of(project, subject))  # also where more is stuck than a board shows
    for row in (*board.rows, *board.snoozed):
        if (row.reason.rule, row.reason.subject) == (rule, subject):
            session = row.session.id if row.session is not None else None
            return row, Seen(project.id, session, row.reason)
    return None


def _session_of(project: Project, subject: UUID) -> UUID:
    """The session that a session, effect, request or handoff is of."""
    for home in (Effect, Gate, Handoff):
        session: UUID | None = (
            home._default_manager.filter(project=project, id=subject).values_list("session", flat=True).first()
        )
        if session is not None:
            return session
    return subject


def _said(episodes: Sequence[StuckTransition]) -> tuple[dict[UUID, Loop], dict[UUID, Fenced]]:
    """What the last evaluation saw of loops and fenced writers, which no deadline tells."""
    loops, fenced = {}, {}
    for row in episodes:
        if row.session_id is not None and row.rule == "S5":
            loops[row.session_id] = Loop(calls=10**6, since_us=row.since_us)
        elif row.session_id is not None and row.rule == "S8":
            fenced[row.session_id] = Fenced(row.epoch, 1, row.since_us)
    return loops, fenced


def _rows(every: Iterable[reading.Found], episodes: Sequence[StuckTransition], now_us: int) -> Iterable[Row]:
    said = {transitions.key_of(row): transitions.as_sentence(row.says) for row in episodes}
    itself = {row.subject for row in episodes if row.rule == "S4" and not row.needs_person}
    for stuck in every:
        # One thing is told once: an orphan is dead by then, and what loops does not progress.
        told = {reason.rule for reason in stuck.reasons if reason.kind == "session"}
        folded = {"S2" if "S7" in told else "", "S3" if "S5" in told else ""}
        for reason in stuck.reasons:
            if reason.rule in folded:
                continue
            lease, cause = stuck.seen.lease, _OF_RULE[reason.rule]
            if reason.rule == "S4" and reason.subject in itself:
                cause = "settling" if _has_worker(stuck.seen, now_us) else "unattended"
            row = Row(reason, stuck.session, cause, given_up=lease is None or lease.released_at_us is not None)
            if reason.rule in ("S5", "S8"):
                reason.says = said.get(row.key, reason.says)
            row.owner, row.owner_id = answerable(stuck.session)
            yield row
    blind = [row.subject for row in episodes if row.rule == "S10"]
    names = dict(Agent.objects.filter(id__in=blind).values_list("id", "name")) if blind else {}
    for episode in episodes:
        if episode.rule == "S10":
            says: Sentence = transitions.as_sentence(episode.says)
            reason = Reason(
                "S10", episode.subject, "agent", 0, episode.since_us, [], says, names.get(episode.subject, "")
            )
            yield Row(reason, None, "blind")


def _has_worker(seen: StuckSeen, now: int) -> bool:
    """Whether anybody is there who settles by itself what may be settled."""
    word = liveness.word(seen.status, seen.mode, seen.start_by_us, seen.lease, seen.helped, now)
    return word not in liveness.WORDS


def answerable(session: Session) -> tuple[str, int | None]:
    """Whose session it is, else whose agent: their name and user."""
    person = session.owner or session.agent.owner
    return (person.get_username(), person.pk) if person is not None else ("", None)


def _cared_for(row: Row, episode: StuckTransition | None) -> None:
    if episode is None:
        return
    if episode.owner is not None:
        row.owner, row.owner_id = episode.owner.get_username(), episode.owner.pk
    row.snoozed_until_us = episode.snoozed_until_us
    text: str | None = getattr(episode, "snoozed_text", None)
    if text is not None:
        row.snoozed_because = str(orjson.loads(text).get("reason", ""))


def is_cause(key: str) -> bool:
    """True for the key of a cause."""
    return key in _BY_KEY
