"""How long requests waited for their decision: a distribution for a project, tool or rule.

Requested in the last days and decided by people, by the server's clock. Reads only.
"""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.db.models import F

from approvals.models import Gate
from approvals.policies.rate_counters import find_position_before

MAX_WAITS: Final = 20_000
_US: Final = 1_000_000
_SLACK_US: Final = 60 * _US  # how far the order of positions and of the server's clock differ
# Limits of the bars in seconds, and how searches write them. The last bar has no end.
LIMITS: Final = (
    (2, "2s"),
    (5, "5s"),
    (15, "15s"),
    (60, "1m"),
    (300, "5m"),
    (900, "15m"),
    (3600, "1h"),
    (4 * 3600, "4h"),
    (86_400, "1d"),
)


@dataclass(frozen=True, slots=True)
class WaitBar:
    """Requests whose wait lies between two limits; `query` finds them."""

    label: str
    count: int
    query: str


@dataclass(frozen=True, slots=True)
class WaitDistribution:
    """Bars from the shortest to the longest wait, median and p95 in microseconds."""

    bars: list[WaitBar]
    count: int
    query: str
    median_us: int | None
    p95_us: int | None
    is_cut: bool  # only the newest MAX_WAITS are counted


def load_waiting_times(
    project: UUID, since_us: int, condition: str, *, tool: str = "", rule: str = ""
) -> WaitDistribution:
    """Load the waits of requests since a moment. Two queries.

    `condition` is the text of a search for the same requests, beginning with `gate`.
    """
    rows = Gate.objects.filter(
        project=project,
        requested_at_us__gte=since_us,
        decided_at_us__isnull=False,
        opened_position__gt=find_position_before(since_us - _SLACK_US),
    )
    if tool:
        rows = rows.filter(tool=tool)
    if rule:
        rows = rows.filter(rule=rule)
    waited = rows.annotate(waited_us=F("decided_at_us") - F("requested_at_us"))
    waits = list(
        waited.order_by("-opened_position").values_list("waited_us", flat=True)[: MAX_WAITS + 1]
    )
    is_cut, waits = len(waits) > MAX_WAITS, sorted(waits[:MAX_WAITS])
    return WaitDistribution(
        _count_bars(waits, condition),
        len(waits),
        f"{condition} has:decided_at",
        find_quantile(waits, 50),
        find_quantile(waits, 95),
        is_cut,
    )


def find_quantile(ordered: list[int], percent: int) -> int | None:
    """Return the nearest-rank percentile of sorted values; None without any."""
    return ordered[(len(ordered) * percent + 99) // 100 - 1] if ordered else None


def find_bar(us: int) -> int:
    """Return the number of the bar that counts a wait."""
    return sum(us >= limit * _US for limit, _ in LIMITS)


def _count_bars(waits: list[int], condition: str) -> list[WaitBar]:
    counts = [0] * (len(LIMITS) + 1)
    for us in waits:
        counts[find_bar(us)] += 1
    texts = [text for _, text in LIMITS]
    labels = [f"< {texts[0]}", *texts]
    bars = []
    for number, count in enumerate(counts):
        query = f"{condition} has:decided_at"
        query += f" wait:>={texts[number - 1]}" if number else ""
        query += f" wait:<{texts[number]}" if number < len(texts) else ""
        label = labels[number].replace("m", " min").replace("s", " s")
        bars.append(WaitBar(label.replace("h", " h").replace("d", " d"), count, query))
    return bars
