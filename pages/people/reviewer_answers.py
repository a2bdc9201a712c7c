"""The answers of one reviewer with their speed, one sitting against the rest. Reads only.

A sitting is a run of answers without a pause of more than PAUSE_US. Figures describe; they are
never a score, and nobody is compared with anybody else.
"""

import itertools
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Q

from approvals.models import Gate, Vote
from approvals.policies.rate_counters import find_position_before
from db.whole_days import DayPeriod

MAX_ANSWERS: Final = 2_000  # the newest of a period
PAGE: Final = 100
QUICK_US: Final = 2_000_000
PAUSE_US: Final = 30 * 60 * 1_000_000
_SLACK_US: Final = 60_000_000  # how far the order of positions and of the server's clock differ


@dataclass(frozen=True, slots=True)
class Sitting:
    """Consecutive answers, oldest first; `number` counts from the newest sitting, 1."""

    number: int
    answers: list[Any]

    @property
    def began_us(self) -> int:
        """When its first request was shown."""
        return int(self.answers[0].shown_at_us)

    @property
    def ended_us(self) -> int:
        """When its last answer came."""
        return int(self.answers[-1].voted_at_us)

    @property
    def speed(self) -> "AnswerSpeed":
        """The figures of the sitting."""
        return measure_speed(self.answers)


@dataclass(frozen=True, slots=True)
class AnswerSpeed:
    """Times from showing a request to its answer, in microseconds; None without answers."""

    count: int
    median_us: int | None
    quick: int
    longest_pause_us: int | None


def load_answers(project: UUID, person: User, period: DayPeriod) -> list[Any]:
    """Load the newest answers of a person in a period, newest first. One query."""
    votes = Vote.objects.filter(
        project=project, user=person, voted_at_us__gte=period.since_us
    ).select_related("gate", "gate__agent")
    return list(votes.order_by("-voted_at_us", "-position")[:MAX_ANSWERS])


def split_sittings(answers: list[Any]) -> list[Sitting]:
    """Return the sittings of answers that are newest first; the newest sitting first."""
    runs: list[list[Any]] = []
    for vote in answers:
        if runs and runs[-1][-1].voted_at_us - vote.voted_at_us <= PAUSE_US:
            runs[-1].append(vote)
        else:
            runs.append([vote])
    return [Sitting(number, run[::-1]) for number, run in enumerate(runs, 1)]


def measure_speed(answers: list[Any]) -> AnswerSpeed:
    """Measure answers in the order of their time."""
    took = sorted(vote.voted_at_us - vote.shown_at_us for vote in answers)
    ordered = sorted(vote.voted_at_us for vote in answers)
    pauses = [after - before for before, after in itertools.pairwise(ordered)]
    return AnswerSpeed(
        len(took),
        took[(len(took) + 1) // 2 - 1] if took else None,
        sum(us < QUICK_US for us in took),
        max(pauses, default=None),
    )


def load_expiries(project: UUID, sittings: list[Sitting], period: DayPeriod) -> list[Gate]:
    """Load requests that expired during a sitting, newest first; at most PAGE. Two queries."""
    during = Q(pk__in=())
    for sitting in sittings[:PAGE]:
        during |= Q(decide_by_us__range=(sitting.began_us, sitting.ended_us))
    gates = Gate.objects.filter(
        during,
        project=project,
        status="expired",
        opened_position__gt=find_position_before(period.since_us - 30 * 86_400_000_000 - _SLACK_US),
    )
    return list(gates.select_related("agent").order_by("-opened_position")[:PAGE])
