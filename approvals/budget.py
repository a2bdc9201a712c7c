"""The attention budget: what each rule costs the people it asks. A gate that always opens is not a gate.

It is about rules and never about persons. Reads only, and a bounded number of rows.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from django.db import connection

from approvals.counting import position_at
from approvals.models import Vote
from approvals.states import GIVEN
from journal.templatetags.gatebook import elapsed
from ledger.rows import vendor_id
from sessions.models import Project

DAYS: Final = 30
MOST_EFFECTS: Final = 20_000
MOST_GATES: Final = 20_000
MOST_VOTES: Final = 2_000  # whose times and answers stand for all
QUICK_US: Final = (
    2_000_000  # an answer sooner than this after the page was shown cannot have been read
)
_FEW: Final = 10  # of fewer nothing can be said


@dataclass(slots=True)
class Budget:
    """What one rule asked of people. Times are microseconds; shares are 0 to 1, None of nothing."""

    requests: int = 0
    approved: int = 0
    denied: int = 0
    returned: int = 0
    expired: int = 0
    waiting: int = 0
    quick: int = 0
    votes: int = 0
    took_us: list[int] = field(default_factory=list)

    @property
    def approval_rate(self) -> float | None:
        """The share of yes among the rulings."""
        ruled = self.approved + self.denied
        return self.approved / ruled if ruled else None

    @property
    def quick_rate(self) -> float | None:
        """The share of answers that came within two seconds of the page."""
        return self.quick / self.votes if self.votes else None

    @property
    def median_us(self) -> int | None:
        """The time from request to ruling that half of them stayed within."""
        return _quantile(self.took_us, 0.5)

    @property
    def p95_us(self) -> int | None:
        """The time that all but a twentieth stayed within."""
        return _quantile(self.took_us, 0.95)

    @property
    def hints(self) -> list[str]:
        """What the figures suggest, in sentences."""
        found = []
        rate, quick, median = self.approval_rate, self.quick_rate, self.median_us
        ruled = self.approved + self.denied
        if (
            rate is not None
            and median is not None
            and ruled >= _FEW
            and rate >= 0.95
            and median < 10_000_000
        ):
            found.append(
                f"{rate:.0%} approved, half of them within {elapsed(median)}: "
                "narrow it, or allow the part that can be undone."
            )
        if quick is not None and self.votes >= _FEW and quick >= 0.2:
            found.append(
                f"{quick:.0%} of the answers came within 2 s of the page: too soon to have read it."
            )
        if self.requests >= _FEW and self.expired / self.requests >= 0.2:
            found.append(
                f"{self.expired / self.requests:.0%} expired unanswered: ask others, or give more time."
            )
        return found


@dataclass(slots=True)
class Matches:
    """How often a rule was the one that decided, by what it said."""

    allow: int = 0
    ask: int = 0
    deny: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.allow + self.ask + self.deny


# The newest effects by effect_by_opening. An index on judged_by would cost every effect an entry, for this page alone.
_JUDGED: Final = """
SELECT judged_by, judged, COUNT(*) FROM (
  SELECT judged_by, judged FROM ledger_effect WHERE project_id = %s AND opened_position > %s
  ORDER BY opened_position DESC LIMIT %s
) AS lately WHERE judged_by <> '' GROUP BY judged_by, judged
"""


def matches(project: Project, name: str, since_us: int) -> dict[str, Matches]:
    """How often each rule of the sets called `name` decided since then, by its id; at most MOST_EFFECTS are looked at.

    Effects of which no rule spoke stand under the empty id. One query.
    """
    found: dict[str, Matches] = defaultdict(Matches)
    with connection.cursor() as cursor:
        cursor.execute(_JUDGED, [vendor_id(project.id), position_at(since_us), MOST_EFFECTS])
        for judged_by, judged, count in cursor.fetchall():
            policy_set, _, rule = judged_by.partition("/")
            if policy_set.partition("@")[0] == name:
                setattr(found[rule], judged, getattr(found[rule], judged) + count)
    return found


# The newest gates by gate_by_opening, counted in the database: it need not hand twenty thousand rows on.
_STOOD: Final = """
SELECT rule, status, late, COUNT(*) FROM (
  SELECT rule, status, CASE WHEN decide_by_us < %s THEN 1 ELSE 0 END AS late, policy_set_id
  FROM approvals_gate WHERE project_id = %s AND opened_position > %s ORDER BY opened_position DESC LIMIT %s
) AS lately WHERE policy_set_id IN (SELECT id FROM approvals_policyset WHERE project_id = %s AND name = %s)
GROUP BY rule, status, late
"""


def budgets(project: Project, name: str, since_us: int, now: int) -> dict[str, Budget]:
    """The budget of each rule of the sets called `name`, by its id, since then. Two queries.

    Requests are counted over the newest MOST_GATES, times and answers over the newest MOST_VOTES.
    """
    found: dict[str, Budget] = defaultdict(Budget)
    identity = vendor_id(project.id)
    with connection.cursor() as cursor:
        cursor.execute(_STOOD, [now, identity, position_at(since_us), MOST_GATES, identity, name])
        for rule, status, late, count in cursor.fetchall():
            one = found[rule]
            one.requests += count
            if status == "pending":
                status = "expired" if late else "waiting"
            column = (
                "approved" if status in GIVEN else "denied" if status == "denied_final" else status
            )
            if column in _COUNTED:
                setattr(one, column, getattr(one, column) + count)
    votes = Vote.objects.filter(
        project=project, voted_at_us__gte=since_us, gate__policy_set__name=name
    )
    ruled: set[int] = set()
    for rule, gate, requested, decided, shown, voted in votes.order_by("-voted_at_us").values_list(
        *_ANSWERED
    )[:MOST_VOTES]:
        one = found[rule]
        one.votes += 1
        one.quick += voted - shown < QUICK_US
        if decided is not None and gate not in ruled:
            ruled.add(gate)
            one.took_us.append(decided - requested)
    return found


_COUNTED: Final = ("approved", "denied", "returned", "expired", "waiting")
_ANSWERED: Final = (
    *("gate__rule", "gate__opened_position", "gate__requested_at_us", "gate__decided_at_us"),
    *("shown_at_us", "voted_at_us"),
)


def _quantile(values: list[int], share: float) -> int | None:
    """The smallest value that at least `share` of them do not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(share * 100) // 100) - 1)]
