"""The one writer of ObservedFact: named values as sources reported them.

The latest report of each source counts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db import connection
from django.db.models import Count, QuerySet

from db import raw_sql
from db.raw_sql import vendor_id
from db.row_changes import RowChange, write_row_changes
from journal import entries
from journal.entries import AppendStatus, Origin, RepeatedKey
from journal.summaries import parse_body
from sessions.models import ObservedFact, Session, select_body_text

DEFAULT_FACT_FRESH_S: Final = 3_600  # the default lifetime of a fact
MAX_FACTS_READ: Final = 200  # facts of one session in one read


@dataclass(slots=True)
class FactObservation:
    """An observation, already in the journal. `digest` comes from `digest_fact_value`."""

    session: UUID
    name: str
    source: str
    digest: str
    fresh_s: int
    origin: Origin
    position: int

    @property
    def mark(self) -> str:
        """Return the order key that decides which observation is the latest."""
        return self.origin.latest_mark(self.position)

    @property
    def seen_us(self) -> int:
        """Return the time of the observation.

        A producer's clock can make an observation older than its arrival, never younger.
        """
        return min(self.origin.occurred_us or self.origin.received_us, self.origin.received_us)


def import_observed_facts(rows: Sequence[ObservedFact]) -> None:
    """Store observed facts of a bundle as their source had them, in their archive."""
    ObservedFact.objects.bulk_create(rows, batch_size=500)


def restore_observed_facts(changes: Sequence[RowChange]) -> None:
    """Restore observed facts to what the journal gives (manage.py rebuild)."""
    write_row_changes(ObservedFact, changes)


def digest_fact_value(project: UUID, value: str) -> str:
    """Return a keyed digest of a value (canonical JSON), to compare values."""
    return entries.keyed_digest("fact", str(project), value)


def record_observed_fact(
    origin: Origin, session: UUID, name: str, source: str, digest: str, fresh_s: int
) -> ObservedFact:
    """Record a source's report; the session row must be locked. Raises RepeatedKey."""
    appended = entries.append_entries(
        [origin.draft("fact.observed", session=session)], origin.received_us
    )[0]
    if appended.status is not AppendStatus.CREATED:
        raise RepeatedKey
    apply_observed_facts(
        [FactObservation(session, name, source, digest, fresh_s, origin, appended.position)]
    )
    return ObservedFact.objects.get(session=session, name=name, source=source)


# Order keys compare by code point, so the comparison names its collation.
_UPSERT: Final = """INSERT INTO agent_sessions_observedfact
(project_id, session_id, name, source, digest, mark, position, opened_position, observed_at_us,
  fresh_until_us)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (session_id, name, source) DO UPDATE SET
  digest = excluded.digest, mark = excluded.mark, position = excluded.position,
  observed_at_us = excluded.observed_at_us, fresh_until_us = excluded.fresh_until_us
WHERE agent_sessions_observedfact.mark {c} < excluded.mark {c}"""


def apply_observed_facts(reports: Sequence[FactObservation]) -> None:
    """Fold facts: per source and name the latest by order key counts."""
    latest: dict[tuple[UUID, str, str], FactObservation] = {}
    for fact in reports:
        before = latest.get((fact.session, fact.name, fact.source))
        if before is None or before.mark < fact.mark:
            latest[fact.session, fact.name, fact.source] = fact
    text = _UPSERT.format(c='COLLATE "C"' if connection.vendor == "postgresql" else "")
    for (session, name, source), fact in sorted(latest.items()):
        until = fact.seen_us + fact.fresh_s * 1_000_000
        ids = [vendor_id(fact.origin.project), vendor_id(session)]
        raw_sql.execute_write(
            text,
            [
                *ids,
                name,
                source,
                fact.digest,
                fact.mark,
                fact.position,
                fact.position,
                fact.seen_us,
                until,
            ],
        )


def query_observed_facts(session: UUID | Session) -> "QuerySet[Any]":
    """Return a session's observed facts, each with the `text` of its entry."""
    return ObservedFact.objects.filter(session=session).annotate(text=select_body_text("position"))


def load_fresh_facts(session: UUID | Session, now_us: int) -> list[Any]:
    """Return the facts still fresh at `now_us` with their texts. One query.

    Ordered by name and source, at most MAX_FACTS_READ.
    """
    return list(
        query_observed_facts(session)
        .filter(fresh_until_us__gte=now_us)
        .order_by("name", "source")[:MAX_FACTS_READ]
    )


def load_fresh_facts_by_name(session: UUID | Session, name: str, now_us: int) -> list[ObservedFact]:
    """Return the facts of one name still fresh at `now_us`, at most MAX_FACTS_READ.

    One query by the index of (session, name).
    """
    return list(
        ObservedFact.objects.filter(session=session, name=name, fresh_until_us__gte=now_us)[
            :MAX_FACTS_READ
        ]
    )


def load_conflicting_facts(
    session: UUID | Session, now_us: int, fresh_facts: Sequence[Any]
) -> dict[str, list[Any]]:
    """Return the conflicts, as `find_conflicting_facts`, among all fresh facts of a session.

    `fresh_facts` are those that `load_fresh_facts` returned. One query where there are more than
    these, else none.
    """
    if len(fresh_facts) < MAX_FACTS_READ:
        return find_conflicting_facts(fresh_facts)
    fresh_rows = ObservedFact.objects.filter(session=session, fresh_until_us__gte=now_us)
    name_counts = (
        fresh_rows.values("name")
        .annotate(digests=Count("digest", distinct=True))
        .filter(digests__gt=1)
    )
    drifting_names = name_counts.order_by("name").values("name")[:_MOST_DRIFTING]
    return find_conflicting_facts(
        query_observed_facts(session)
        .filter(fresh_until_us__gte=now_us, name__in=drifting_names)
        .order_by("name", "source")
    )


_MOST_DRIFTING: Final = 20


def find_conflicting_facts(rows: Iterable[Any]) -> dict[str, list[Any]]:
    """Return the names for which fresh facts of two sources differ, with those facts."""
    by_name: dict[str, list[Any]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append(row)
    return {
        name: observations
        for name, observations in by_name.items()
        if len({row.digest for row in observations}) > 1
    }


def fact_to_json(row: Any, now_us: int) -> dict[str, Any]:
    """Convert an observed fact to JSON. Needs its text; an erased value is null."""
    body = parse_body(row.text) if row.text is not None else {}
    return {
        "name": row.name,
        "source": row.source,
        "value": body.get("value"),
        "erased": row.text is None,
        "fresh": row.fresh_until_us >= now_us,
        "observed_at_us": row.observed_at_us,
        "fresh_until_us": row.fresh_until_us,
        "position": row.position,
    }
