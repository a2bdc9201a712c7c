"""The one writer of ObservedFact: named values as sources told them; the latest word of each source stands."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db import connection
from django.db.models import Count, QuerySet

from journal import entries, sql
from journal.entries import Status
from journal.gists import parsed
from journal.sql import vendor_id
from sessions.models import Session
from sessions.models_state import ObservedFact, text_at
from sessions.origin import Origin, Repeated

FRESH_S: Final = 3_600  # where the source does not say
MOST: Final = 200  # facts of one session that are read together


@dataclass(slots=True)
class Report:
    """A fact that is already in the journal. `digest` is that of its value (see `digest_of`)."""

    session: UUID
    name: str
    source: str
    digest: str
    fresh_s: int
    origin: Origin
    position: int

    @property
    def mark(self) -> str:
        """The order key by which the latest word stands."""
        return self.origin.latest_mark(self.position)

    @property
    def seen_us(self) -> int:
        """When it was seen: what a producer tells can make a fact older than it is here, and never younger."""
        return min(self.origin.occurred_us or self.origin.received_us, self.origin.received_us)


def bring(rows: Sequence[ObservedFact]) -> None:
    """Store facts of a bundle, as they stood in the book of origin. Expects the archive of their session."""
    ObservedFact.objects.bulk_create(rows, batch_size=500)


def digest_of(project: UUID, value: str) -> str:
    """A keyed digest of a value (canonical JSON): tells whether two sources say the same, and nothing else."""
    return entries.keyed_digest("fact", str(project), value)


def observe(origin: Origin, session: UUID, name: str, source: str, digest: str, fresh_s: int) -> ObservedFact:
    """Record by command what a source says. The session's row must be locked. Raises Repeated."""
    appended = entries.append([origin.draft("fact.observed", session=session)], origin.received_us)[0]
    if appended.status is not Status.CREATED:
        raise Repeated
    apply([Report(session, name, source, digest, fresh_s, origin, appended.position)])
    return ObservedFact.objects.get(session=session, name=name, source=source)


# Order keys are compared by code point, so the comparison is not left to a collation.
_UPSERT: Final = """INSERT INTO agent_sessions_observedfact
(project_id, session_id, name, source, digest, mark, position, opened_position, observed_at_us, fresh_until_us)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (session_id, name, source) DO UPDATE SET
  digest = excluded.digest, mark = excluded.mark, position = excluded.position,
  observed_at_us = excluded.observed_at_us, fresh_until_us = excluded.fresh_until_us
WHERE agent_sessions_observedfact.mark {c} < excluded.mark {c}"""


def apply(reports: Sequence[Report]) -> None:
    """Fold facts: of each source and name the latest by order key stands, whatever the order of arrival."""
    latest: dict[tuple[UUID, str, str], Report] = {}
    for fact in reports:
        before = latest.get((fact.session, fact.name, fact.source))
        if before is None or before.mark < fact.mark:
            latest[fact.session, fact.name, fact.source] = fact
    text = _UPSERT.format(c='COLLATE "C"' if connection.vendor == "postgresql" else "")
    for (session, name, source), fact in sorted(latest.items()):
        until = fact.seen_us + fact.fresh_s * 1_000_000
        ids = [vendor_id(fact.origin.project), vendor_id(session)]
        sql.write(
            text,
            [*ids, name, source, fact.digest, fact.mark, fact.position, fact.position, fact.seen_us, until],
        )


def of_session(session: UUID | Session) -> "QuerySet[Any]":
    """The facts of a session, each with the `text` of the entry that told it."""
    return ObservedFact.objects.filter(session=session).annotate(text=text_at("position"))


def fresh(session: UUID | Session, now_us: int) -> list[Any]:
    """The facts that still hold at `now_us`, by name and source, at most MOST, with their texts. One query."""
    return list(of_session(session).filter(fresh_until_us__gte=now_us).order_by("name", "source")[:MOST])


def fresh_of(session: UUID | Session, name: str, now_us: int) -> list[ObservedFact]:
    """What sources say of one name and still holds at `now_us`; one query by the index of (session, name)."""
    return list(ObservedFact.objects.filter(session=session, name=name, fresh_until_us__gte=now_us)[:MOST])


def drift(session: UUID | Session, now_us: int, known: Sequence[Any]) -> dict[str, list[Any]]:
    """As `drifting`, of all facts that are fresh; `known` are those that `fresh` read.

    One query where there are more than these, else none.
    """
    if len(known) < MOST:
        return drifting(known)
    standing = ObservedFact.objects.filter(session=session, fresh_until_us__gte=now_us)
    said = standing.values("name").annotate(told=Count("digest", distinct=True)).filter(told__gt=1)
    names = said.order_by("name").values("name")[:_MOST_DRIFTING]
    return drifting(of_session(session).filter(fresh_until_us__gte=now_us, name__in=names).order_by("name", "source"))


_MOST_DRIFTING: Final = 20


def drifting(rows: Iterable[Any]) -> dict[str, list[Any]]:
    """Of facts that are fresh, those names of which two sources say different things, with what each says."""
    by_name: dict[str, list[Any]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append(row)
    return {name: told for name, told in by_name.items() if len({row.digest for row in told}) > 1}


def told(row: Any, now_us: int) -> dict[str, Any]:
    """A fact in an answer. Needs its text; a value that was erased is null."""
    body = parsed(row.text) if row.text is not None else {}
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
