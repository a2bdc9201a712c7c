"""The one writer of FirstOccurrence and RepeatedOccurrence: equal calls and targets.

It runs with the word index (investigation/fulltext/indexer.py), in its transactions. No agent waits
for it.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Exists, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from db import raw_sql
from investigation.fulltext import call_digest, extract
from investigation.models import RepeatedOccurrence
from journal.models import Entry
from ledger.models import Tool
from ledger.partial_indexes import IS_REPEATED
from monitoring.models import JobHeartbeat

RUN_KINDS: Final = frozenset({"effect.dispatched", "effect.acknowledged", "effect.failed"})
# Kinds of entries that can complete an effect's plan or run.
PLAN_AND_RUN_KINDS: Final = RUN_KINDS | {"effect.planned"}
# Plain SQL: Django's share was more than half of the total time.
_EARLIER: Final = (
    "SELECT CAST(entry.effect AS text), min(entry.position) FROM {} CROSS JOIN journal_entry entry"
    " WHERE entry.effect = wanted.key"
    " AND entry.kind IN ('effect.dispatched', 'effect.acknowledged', 'effect.failed')"
    " AND entry.lane <> 'claim'"
    " AND entry.position <= %s"
    " GROUP BY entry.effect"
)
_FIRSTS: Final = (
    "SELECT first.digest, CAST(first.session_id AS text), first.position, first.reported_position"
    " FROM {} CROSS JOIN investigation_firstoccurrence first WHERE first.digest = wanted.key"
)
_EXISTING: Final = (
    "SELECT again.position, again.sort = 'target'"
    " FROM {} CROSS JOIN investigation_repeatedoccurrence again WHERE again.position = wanted.key"
)
# One subquery per pair, using the index that ends in `nth`: all rows of these sessions may be as
# many as there are effects.
_COUNT: Final = (
    "(SELECT max(again.nth) FROM investigation_repeatedoccurrence again"
    " WHERE again.session_id = wanted.session AND again.digest = wanted.digest)"
)
_COUNT_POSTGRESQL: Final = (
    f"SELECT CAST(wanted.session AS text), wanted.digest, {_COUNT}"
    " FROM unnest(%s::uuid[], %s::bigint[]) AS wanted(session, digest)"
)
_COUNT_SQLITE: Final = (
    f"SELECT wanted.session, wanted.digest, {_COUNT} FROM"
    " (SELECT json_extract(value, '$[0]') AS session, json_extract(value, '$[1]') AS digest"
    " FROM json_each(%s)) AS wanted"
)
_FIRST_COLUMNS: Final = ("digest", "project_id", "session_id", "position", "reported_position")
_COLUMNS: Final = (*_FIRST_COLUMNS, "sort", "repeat_position", "nth")
# Column types on PostgreSQL.
_KINDS: Final = ("bigint", "uuid", "uuid", "bigint", "bigint", "text", "bigint", "integer")


class Occurrence(NamedTuple):
    """A digest that an effect may share with another.

    `place` is the effect's opened_position; `project` and `session` are ids as text.
    """

    digest: int
    sort: str
    project: str  # as plain SQL gives it as text
    session: str
    place: int
    reported_at: int

    @property
    def of_target(self) -> bool:
        return self.sort == "target"


def find_occurrences(
    first_runs: Mapping[str, int], since: int, words_by_id: Mapping[str, extract.EffectText]
) -> list[Occurrence]:
    """Return the digests of effects that were planned and ran, in journal order.

    `first_runs` has the ids, as text, of effects with a plan or run after the position `since`,
    each with the position of its first such run, or 0. `words_by_id` has what was already read of
    them. Queries: one for each project, one if an effect was planned after it had run, and two if
    some effects were not read yet.
    """
    unknown_ids = [effect_id for effect_id in first_runs if effect_id not in words_by_id]
    rows = [words_by_id[effect_id].row for effect_id in first_runs if effect_id in words_by_id]
    rows += [
        effect_id.row
        for effect_id in (extract.load_searchable(unknown_ids) if unknown_ids else {}).values()
    ]
    rows_run = [
        row
        for row in rows
        if row["ran"] and row["plan_position"] is not None and row["intent_digest"]
    ]
    plans_to_read = {
        row["plan_position"]: (row["project_id"], row["tool"])
        for row in rows_run
        if row["id"] not in words_by_id
    }
    calls = extract.call_digests(plans_to_read)
    earlier = _load_earlier_runs(
        [row["id"] for row in rows_run if row["opened_position"] <= since < row["plan_position"]],
        since,
    )
    occurrences = []
    read_only: dict[str, frozenset[str]] = {}
    for row in rows_run:
        first = earlier.get(row["id"]) or first_runs[row["id"]]
        if not first:
            continue  # It runs later in the journal; that entry brings the effect back.
        project, tool, resource, repository = (
            row["project_id"],
            row["tool"],
            row["resource"],
            row["repository_id"],
        )
        if project not in read_only:
            declared = Tool.objects.filter(project=project, tool_class="read_only").values_list(
                "name", flat=True
            )
            read_only[project] = frozenset(declared)
        stored_class = row["policy_tool_class"]  # its arguments may have raised the class
        is_read = tool in read_only[project] and stored_class.partition("/")[0] in ("", "read_only")
        sort = "read" if is_read else "call"
        call = (
            words_by_id[row["id"]].call
            if row["id"] in words_by_id
            else calls.get(row["plan_position"])
        )
        if call is None:  # The plan was erased: use the intent digest in the ledger.
            call = call_digest.hash_text(project, "intent", tool, row["intent_digest"])
        common = (
            project,
            row["session_id"],
            row["opened_position"],
            max(row["plan_position"], first),
        )
        occurrences.append(Occurrence(call, sort, *common))
        if resource and sort == "call":
            digest = call_digest.hash_text(
                project, "target", tool, str(UUID(repository)) if repository else "", resource
            )
            occurrences.append(Occurrence(digest, "target", *common))
    return sorted(
        occurrences, key=lambda effect_id: (effect_id.reported_at, effect_id.place, effect_id.sort)
    )


def store_occurrences(occurrences: Sequence[Occurrence]) -> int:
    """Store which effects repeat earlier ones; return the number of new repeated rows.

    Needs the lock of the word index in a transaction. Effects that were only planned do not count.
    An effect is identified by the plan with which it was first read; reading it again changes
    nothing. Three queries, and two writes.
    """
    if not occurrences:
        return 0
    first_by_digest: dict[int, tuple[str, int, int]] = {
        digest: (session, place, reported_position)
        for digest, session, place, reported_position in _select_by_keys(
            _FIRSTS, {occurrence.digest for occurrence in occurrences}
        )
    }
    positions = {occurrence.place for occurrence in occurrences} | {
        place for _, place, _ in first_by_digest.values()
    }
    existing = {
        (place, bool(of_target)) for place, of_target in _select_by_keys(_EXISTING, positions)
    }
    times = _load_counts(
        {
            (occurrence.session, occurrence.digest)
            for occurrence in occurrences
            if occurrence.digest in first_by_digest and not occurrence.of_target
        }
    )
    firsts, repeated = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for occurrence in occurrences:
        if occurrence.digest not in first_by_digest:
            first_by_digest[occurrence.digest] = (
                occurrence.session,
                occurrence.place,
                occurrence.reported_at,
            )
            firsts.append(
                (
                    occurrence.digest,
                    occurrence.project,
                    occurrence.session,
                    occurrence.place,
                    occurrence.reported_at,
                )
            )
        head_session, head_place, head_reported_at = first_by_digest[occurrence.digest]
        if head_place == occurrence.place or (occurrence.place, occurrence.of_target) in existing:
            continue
        repeat_position = max(occurrence.reported_at, head_reported_at)
        if (head_place, occurrence.of_target) not in existing:
            repeated.append(
                (
                    occurrence.digest,
                    occurrence.project,
                    head_session,
                    head_place,
                    head_reported_at,
                    occurrence.sort,
                    repeat_position,
                    1,
                )
            )
            times[head_session, occurrence.digest] = 1
            existing.add((head_place, occurrence.of_target))
        nth = (
            1 if occurrence.of_target else times.get((occurrence.session, occurrence.digest), 0) + 1
        )
        times[occurrence.session, occurrence.digest] = nth
        repeated.append(
            (
                occurrence.digest,
                occurrence.project,
                occurrence.session,
                occurrence.place,
                occurrence.reported_at,
                occurrence.sort,
                repeat_position,
                nth,
            )
        )
        existing.add((occurrence.place, occurrence.of_target))
    _insert("investigation_firstoccurrence", _FIRST_COLUMNS, firsts)
    _insert("investigation_repeatedoccurrence", _COLUMNS, repeated)
    return len(repeated)


def same_occurrences(positions: Collection[int], *sorts: str) -> "QuerySet[RepeatedOccurrence]":
    """Return the rows of all effects that share a digest with those at `positions` (few).

    The rows of these effects are included.
    """
    own_rows = RepeatedOccurrence.objects.filter(position__in=positions, sort__in=sorts)
    return RepeatedOccurrence.objects.filter(digest__in=own_rows.values("digest"), sort__in=sorts)


def is_duplicate_condition() -> Exists:
    """Return the condition that an effect ran and is a duplicate; read-only calls do not count."""
    return Exists(
        RepeatedOccurrence.objects.filter(
            position=OuterRef("opened_position"), sort__in=("call", "target")
        )
    )


def is_unindexed_condition(column: str) -> Exists:
    """Return the condition that a run of an effect or session is not indexed yet.

    `column` is the entries' column with the row's id.
    """
    job = JobHeartbeat.objects.filter(name="search_index")
    read_to = Coalesce(Subquery(job.values("position")), 0)
    runs = Entry.objects.filter(
        kind__in=PLAN_AND_RUN_KINDS, position__gt=read_to, effect__isnull=False
    )
    return Exists(runs.filter(**{column: OuterRef("id")}))


def annotate_repeats() -> dict[str, Subquery]:
    """Return annotations for sessions: the largest number of equal calls, and the last such effect.

    Counts from 2; read-only calls do not count.
    """
    repeated = RepeatedOccurrence.objects.filter(
        IS_REPEATED, session=OuterRef("id"), sort="call"
    ).order_by("-nth", "position")
    return {
        "repeats": Subquery(repeated.values("nth")[:1]),
        "repeated": Subquery(repeated.values("position")[:1]),
    }


def _select_by_keys(text: str, numbers: Iterable[int]) -> list[tuple[Any, ...]]:
    return raw_sql.fetch_rows(
        text.format(raw_sql.wanted_table("bigint")), [raw_sql.to_array_parameter(numbers)]
    )


def _load_earlier_runs(effects: Sequence[str], until: int) -> dict[str, int]:
    """Return the first run, up to a position, of effects that ran before they were planned."""
    return (
        dict(
            raw_sql.fetch_rows(
                _EARLIER.format(raw_sql.wanted_table("uuid")),
                [raw_sql.to_array_parameter(effects), until],
            )
        )
        if effects
        else {}
    )


def _load_counts(pairs: Collection[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return how often each session made each call so far; unknown pairs are absent."""
    if not pairs:
        return {}
    if connection.vendor == "postgresql":
        sessions, digests = zip(*pairs, strict=True)
        rows = raw_sql.fetch_rows(
            _COUNT_POSTGRESQL,
            [raw_sql.to_array_parameter(sessions), raw_sql.to_array_parameter(digests)],
        )
    else:
        rows = raw_sql.fetch_rows(_COUNT_SQLITE, [json.dumps(list(pairs))])
    return {(session, digest): nth for session, digest, nth in rows if nth is not None}


def _insert(table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    if not rows:
        return
    text = f"INSERT INTO {table} ({', '.join(columns)})"
    if connection.vendor == "postgresql":
        arrays = ", ".join(f"%s::{kind}[]" for kind in _KINDS[: len(columns)])
        raw_sql.execute_write(
            f"{text} SELECT * FROM unnest({arrays})",
            [
                raw_sql.to_array_parameter(column_values)
                for column_values in zip(*rows, strict=True)
            ],
        )
    else:
        raw_sql.execute_write_each(f"{text} VALUES ({', '.join(['%s'] * len(columns))})", rows)
