"""Explain one session: every rule that applies, with terms, current values and thresholds."""

from dataclasses import dataclass

from monitoring.stuck import loops, rule_queries
from monitoring.stuck import rule_limits as limits_of
from monitoring.stuck.rule_names import RULES
from monitoring.stuck.rules import RULES_VERSION, RuleResult, evaluate_stuck_rules
from sessions.models import ENDED, Session


@dataclass(frozen=True, slots=True)
class Explanation:
    """The rules that are true and those that are not; none for an ended session."""

    holding: list[RuleResult]
    others: list[RuleResult]
    ended: bool
    version: int = RULES_VERSION

    @property
    def waits(self) -> list[RuleResult]:
        """Waits that are not overdue: approvals, tool results, acceptance of a handoff."""
        return [reason for reason in self.others if reason.kind != "session"]

    @property
    def titles(self) -> dict[str, str]:
        """Rule titles by id."""
        return RULES


def explain_session(session: Session, now_us: int) -> Explanation:
    """Evaluate the rules for one session now. About ten queries; none for an ended session."""
    if session.status in ENDED:
        return Explanation([], [], True)
    limits = limits_of.load_limits(session.project_id)
    agent_limits = limits.of(session.agent_id)
    looping = loops.find_constant_tokens([session.id], now_us) | loops.find_loops(
        [session.id], agent_limits
    )
    fenced = loops.find_fenced_writers([session.id], now_us, agent_limits)
    inputs = list(
        rule_queries.load_rule_inputs(
            session.project_id, [session.id], now_us, loops=looping, fenced=fenced
        )
    )
    reasons = [
        reason
        for _session, seen in inputs
        for reason in evaluate_stuck_rules(seen, now_us, agent_limits)
    ]
    return Explanation(
        [reason for reason in reasons if reason.holds],
        [reason for reason in reasons if not reason.holds],
        False,
    )
