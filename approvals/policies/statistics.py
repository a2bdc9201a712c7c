"""Per-rule statistics: requests, approval rate and time to decide.

Figures are per rule, never per person. Reads only, and a bounded number of rows.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from django.db import connection

from accounts.models import Project
from approvals.gates.statuses import APPROVED_STATUSES
from approvals.models import Vote
from approvals.policies.rate_counters import find_position_before
from ledger.store.effect_rows import vendor_id
from web.templatetags.gatebook import elapsed

DAYS: Final = 30
MOST_EFFECTS: Final = 20_000
MOST_GATES: Final = 20_000
MOST_VOTES: Final = 2_000  # the sample for times and answers
QUICK_VOTE_US: Final = 2_000_000  # a vote this soon after the page loads cannot follow a reading
_MIN_SAMPLE: Final = 10  # no hints below this number


@dataclass(slots=True)
class RuleStatistics:
    """Statistics of one rule: microseconds, and shares 0 to 1, None without data."""

    requests: int = 0
    approved: int = 0
    denied: int = 0
    changes_requested: int = 0
    expired: int = 0
    waiting: int = 0
    last_denied_us: int | None = None
    quick: int = 0
    votes: int = 0
    took_us: list[int] = field(default_factory=list)

    @property
    def approval_rate(self) -> float | None:
        """The share of approvals among the decisions."""
        ruled = self.approved + self.denied
        return self.approved / ruled if ruled else None

    @property
    def quick_rate(self) -> float | None:
        """The share of votes within two seconds of the page."""
        return self.quick / self.votes if self.votes else None

    @property
    def median_us(self) -> int | None:
        """The median time from request to decision."""
        return _quantile(self.took_us, 0.5)

    @property
    def p95_us(self) -> int | None:
        """The 95th percentile of the time from request to decision."""
        return _quantile(self.took_us, 0.95)

    @property
    def hints(self) -> list[str]:
        """What the figures suggest, in sentences."""
        hints = []
        rate, quick, median = self.approval_rate, self.quick_rate, self.median_us
        ruled = self.approved + self.denied
        if (
            rate is not None
            and median is not None
            and ruled >= _MIN_SAMPLE
            and rate >= 0.95
            and median < 10_000_000
        ):
            hints.append(
                f"{rate:.0%} approved, half of them within {elapsed(median)}: "
                "narrow the rule, or allow what can be undone."
            )
        if quick is not None and self.votes >= _MIN_SAMPLE and quick >= 0.2:
            hints.append(
                f"{quick:.0%} of the votes came within 2 s of the first view: "
                "too quick to have read it."
            )
        if self.requests >= _MIN_SAMPLE and self.expired / self.requests >= 0.2:
            hints.append(
                f"{self.expired / self.requests:.0%} expired: ask other people, or give more time."
            )
        return hints


@dataclass(slots=True)
class RuleMatchCounts:
    """How often a rule decided, by outcome."""

    allow: int = 0
    ask: int = 0
    deny: int = 0
    rules: list[str] = field(default_factory=list)  # set@version/rule of each version that decided

    @property
    def query(self) -> str:
        """The condition of a search for the effects that the rule decided about."""
        named = ",".join(f'"{rule}"' for rule in sorted(self.rules))
        return f"rule:[{named}]"

    @property
    def total(self) -> int:
        """The sum of all outcomes."""
        return self.allow + self.ask + self.deny


# The newest effects by the index effect_by_opening. An index on the rule would cost every effect an
# entry for this page alone.
_MATCHES_SQL: Final = """
SELECT policy_rule, policy_outcome, COUNT(*) FROM (
  SELECT policy_rule, policy_outcome FROM ledger_effect
  WHERE project_id = %s AND opened_position > %s ORDER BY opened_position DESC LIMIT %s
) AS lately WHERE policy_rule <> '' GROUP BY policy_rule, policy_outcome
"""


def count_rule_matches(project: Project, name: str, since_us: int) -> dict[str, RuleMatchCounts]:
    """Count by rule id how often each rule of the sets called `name` decided.

    Reads at most MOST_EFFECTS effects since `since_us`. Effects that no rule matched are under the
    empty id. One query.
    """
    by_rule: dict[str, RuleMatchCounts] = defaultdict(RuleMatchCounts)
    with connection.cursor() as cursor:
        cursor.execute(
            _MATCHES_SQL, [vendor_id(project.id), find_position_before(since_us), MOST_EFFECTS]
        )
        for policy_rule, outcome, count in cursor.fetchall():
            policy_set, _, rule = policy_rule.partition("/")
            if policy_set.partition("@")[0] == name:
                if policy_rule not in by_rule[rule].rules:
                    by_rule[rule].rules.append(policy_rule)
                setattr(by_rule[rule], outcome, getattr(by_rule[rule], outcome) + count)
    return by_rule


# The newest gates by the index gate_by_opening, counted in the database to transfer few rows.
_GATES_SQL: Final = """
SELECT rule, status, late, COUNT(*), MAX(decided_at_us) FROM (
  SELECT rule, status, decided_at_us, policy_set_id,
    CASE WHEN decide_by_us < %s THEN 1 ELSE 0 END AS late
  FROM approvals_gate WHERE project_id = %s AND opened_position > %s
  ORDER BY opened_position DESC LIMIT %s
) AS lately
WHERE policy_set_id IN (SELECT id FROM approvals_policyset WHERE project_id = %s AND name = %s)
GROUP BY rule, status, late
"""


def load_rule_statistics(
    project: Project, name: str, since_us: int, now: int
) -> dict[str, RuleStatistics]:
    """Return by rule id the statistics of the sets called `name`. Two queries.

    Since `since_us`. Requests are counted over the newest MOST_GATES, times and answers over the
    newest MOST_VOTES.
    """
    by_rule: dict[str, RuleStatistics] = defaultdict(RuleStatistics)
    identity = vendor_id(project.id)
    with connection.cursor() as cursor:
        cursor.execute(
            _GATES_SQL, [now, identity, find_position_before(since_us), MOST_GATES, identity, name]
        )
        for rule, status, late, count, decided_us in cursor.fetchall():
            rule_budget = by_rule[rule]
            rule_budget.requests += count
            if status in ("denied", "denied_session"):
                rule_budget.last_denied_us = max(rule_budget.last_denied_us or 0, decided_us)
            if status == "pending":
                status = "expired" if late else "waiting"
            column = (
                "approved"
                if status in APPROVED_STATUSES
                else "denied"
                if status == "denied_session"
                else status
            )
            if column in _COUNTED_STATUSES:
                setattr(rule_budget, column, getattr(rule_budget, column) + count)
    votes = Vote.objects.filter(
        project=project, voted_at_us__gte=since_us, gate__policy_set__name=name
    )
    ruled: set[int] = set()
    for rule, gate, requested, decided, shown, voted in votes.order_by("-voted_at_us").values_list(
        *_VOTE_FIELDS
    )[:MOST_VOTES]:
        rule_budget = by_rule[rule]
        rule_budget.votes += 1
        rule_budget.quick += voted - shown < QUICK_VOTE_US
        if decided is not None and gate not in ruled:
            ruled.add(gate)
            rule_budget.took_us.append(decided - requested)
    return by_rule


_COUNTED_STATUSES: Final = ("approved", "denied", "changes_requested", "expired", "waiting")
_VOTE_FIELDS: Final = (
    "gate__rule",
    "gate__opened_position",
    "gate__requested_at_us",
    "gate__decided_at_us",
    "shown_at_us",
    "voted_at_us",
)


def _quantile(values: list[int], share: float) -> int | None:
    """Return the smallest value that at least `share` of them do not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(share * 100) // 100) - 1)]
