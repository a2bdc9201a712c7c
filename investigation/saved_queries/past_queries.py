"""Queries that people ran lately, from the access log: a person's own, and popular ones."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from accounts.models import Project
from journal.models import Entry
from journal.summaries import parse_body
from ledger.partial_indexes import IS_OF_A_RARE_KIND

ENTRIES_READ: Final = 300  # newest recorded searches of the project
MAX_QUERIES: Final = 6  # of each list
MIN_PEOPLE: Final = 2  # who ran a popular query: one person's searches stay theirs


@dataclass(frozen=True, slots=True)
class PastQueries:
    """`recent` are (query, time) of one person, `popular` (query, people); best first."""

    recent: list[tuple[str, int]] = field(default_factory=list)
    popular: list[tuple[str, int]] = field(default_factory=list)


def load_past_queries(project: Project, actor: str) -> PastQueries:
    """Return recent queries of `actor`, a pseudonym, and popular ones. One query, one index."""
    entries = Entry.objects.filter(IS_OF_A_RARE_KIND, project=project.id, kind="access.searched")
    rows = entries.order_by("-position").values_list("actor", "received_us", "body__text")
    recent: dict[str, int] = {}
    people: defaultdict[str, set[str]] = defaultdict(set)
    for who, at_us, body in rows[:ENTRIES_READ]:
        text = parse_body(body or "").get("q")
        if not isinstance(text, str) or not text:
            continue  # erased
        if who == actor:
            recent.setdefault(text, at_us)
        if who.startswith("p_"):
            people[text].add(who)
    shared = [(text, len(who)) for text, who in people.items() if len(who) >= MIN_PEOPLE]
    popular = sorted(shared, key=lambda pair: -pair[1])
    return PastQueries(list(recent.items())[:MAX_QUERIES], popular[:MAX_QUERIES])
