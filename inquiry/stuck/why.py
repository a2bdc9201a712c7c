"""Explain one session: every rule that applies, with terms, current values and thresholds."""

from dataclasses import dataclass

from inquiry.stuck import limits as limits_of
from inquiry.stuck import loops, reading
from inquiry.stuck.rules import RULES, VERSION, Reason, judge
from sessions.models import ENDED, Session


@dataclass(frozen=True, slots=True)
class Why:
    """The rules that are true and those that are not; none for an ended session."""

    holding: list[Reason]
    others: list[Reason]
    ended: bool
    version: int = VERSION

    @property
    def waits(self) -> list[Reason]:
        """Waits that are not overdue: approvals, tool results, acceptance of a handoff."""
        return [reason for reason in self.others if reason.kind != "session"]

    @property
    def titles(self) -> dict[str, str]:
        """Rule titles by id."""
        return RULES


def of(session: Session, now_us: int) -> Why:
    """Evaluate the rules for one session now. About ten queries; none for an ended session."""
    if session.status in ENDED:
        return Why([], [], True)
    limits = limits_of.known(session.project_id)
    agent_limits = limits.of(session.agent_id)
    looping = loops.constant([session.id], now_us) | loops.found([session.id], agent_limits)
    fenced = loops.fenced([session.id], now_us, agent_limits)
    inputs = list(
        reading.facts(session.project_id, [session.id], now_us, loops=looping, fenced=fenced)
    )
    reasons = [reason for _session, seen in inputs for reason in judge(seen, now_us, agent_limits)]
    return Why(
        [reason for reason in reasons if reason.holds],
        [reason for reason in reasons if not reason.holds],
        False,
    )
