"""The one writer of FirstDoing and RepeatedDoing: which effects have tool and arguments, or tool and target, in common.

It goes along with the index of words (inquiry/words/indexing.py), in its transactions: no agent waits for it.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Exists, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce

from inquiry import alike
from inquiry.indexes import IS_REPEATED
from inquiry.models import Pulse
from inquiry.models_repeats import RepeatedDoing
from inquiry.words import reading
from journal import sql
from journal.models import Entry
from ledger.models_tools import Tool

RUNS: Final = frozenset({"effect.dispatched", "effect.acknowledged", "effect.failed"})
TELLING: Final = RUNS | {"effect.planned"}  # kinds of entries by which an effect becomes one that was planned and ran
# Plain SQL: what Django adds was more than half of what comparing took.
_EARLIER: Final = (
    "SELECT CAST(entry.effect AS text), min(entry.position) FROM {} CROSS JOIN journal_entry entry"
    " WHERE entry.effect = wanted.key"
    " AND entry.kind IN ('effect.dispatched', 'effect.acknowledged', 'effect.failed') AND entry.lane <> 'claim'"
    " AND entry.position <= %s"
    " GROUP BY entry.effect"
)
_FIRSTS: Final = (
    "SELECT first.digest, CAST(first.session_id AS text), first.position, first.told_position"
    " FROM {} CROSS JOIN inquiry_firstdoing first WHERE first.digest = wanted.key"
)
_KNOWN: Final = (
    "SELECT again.position, again.sort = 'target'"
    " FROM {} CROSS JOIN inquiry_repeateddoing again WHERE again.position = wanted.key"
)
# Each pair for itself, by the index that ends in `nth`: what all sessions do can be as many rows as there are effects.
_TIMES: Final = (
    "(SELECT max(again.nth) FROM inquiry_repeateddoing again"
    " WHERE again.session_id = wanted.session AND again.digest = wanted.digest)"
)
_TIMES_POSTGRESQL: Final = (
    f"SELECT CAST(wanted.session AS text), wanted.digest, {_TIMES}"
    " FROM unnest(%s::uuid[], %s::bigint[]) AS wanted(session, digest)"
)
_TIMES_SQLITE: Final = (
    f"SELECT wanted.session, wanted.digest, {_TIMES} FROM"
    " (SELECT json_extract(value, '$[0]') AS session, json_extract(value, '$[1]') AS digest FROM json_each(%s))"
    " AS wanted"
)
_FIRST_COLUMNS: Final = ("digest", "project_id", "session_id", "position", "told_position")
_COLUMNS: Final = (*_FIRST_COLUMNS, "sort", "again_position", "nth")
_KINDS: Final = ("bigint", "uuid", "uuid", "bigint", "bigint", "text", "bigint", "integer")  # … on PostgreSQL


class Doing(NamedTuple):
    """One thing that an effect may have in common with another. `place` is its effect's opened_position."""

    digest: int
    sort: str
    project: str  # as plain SQL gives it as text
    session: str
    place: int
    told: int

    @property
    def of_target(self) -> bool:
        return self.sort == "target"


def doings(begun: Mapping[str, int], since: int, known: Mapping[str, reading.Words]) -> list[Doing]:
    """What there is to compare of effects that were planned and ran, in the order in which that was told.

    `begun` has the effects, by ids as plain SQL gives them as text, of which a plan or a run was told after the
    position `since`, each with the position of the first such run, or 0; `known` what was read of them already. A query
    for each project, one where an effect was planned after it had run, and two where some are not known yet.
    """
    unknown = [one for one in begun if one not in known]
    rows = [known[one].row for one in begun if one in known]
    rows += [one.row for one in (reading.read(unknown) if unknown else {}).values()]
    ran = [row for row in rows if row["ran"] and row["plan_position"] is not None and row["intent_digest"]]
    unread = {row["plan_position"]: (row["project_id"], row["tool"]) for row in ran if row["id"] not in known}
    calls = reading.calls(unread)
    earlier = _earlier([row["id"] for row in ran if row["opened_position"] <= since < row["plan_position"]], since)
    found = []
    read_only: dict[str, frozenset[str]] = {}
    for row in ran:
        first = earlier.get(row["id"]) or begun[row["id"]]
        if not first:
            continue  # it runs further on in the journal, and is brought again by the entry that says so
        project, tool, resource, repository = row["project_id"], row["tool"], row["resource"], row["repository_id"]
        if project not in read_only:
            declared = Tool.objects.filter(project=project, tool_class="read_only").values_list("name", flat=True)
            read_only[project] = frozenset(declared)
        sort = "read" if tool in read_only[project] else "call"
        call = known[row["id"]].call if row["id"] in known else calls.get(row["plan_position"])
        if call is None:  # its plan was erased: it is known by what the ledger has
            call = alike.of_text(project, "intent", tool, row["intent_digest"])
        whose = project, row["session_id"], row["opened_position"], max(row["plan_position"], first)
        found.append(Doing(call, sort, *whose))
        if resource and sort == "call":
            digest = alike.of_text(project, "target", tool, str(UUID(repository)) if repository else "", resource)
            found.append(Doing(digest, "target", *whose))
    return sorted(found, key=lambda one: (one.told, one.place, one.sort))


def note(doings: Sequence[Doing]) -> int:
    """Note of each effect what others did before it; returns how many are one of several that were not before.

    Inside a transaction that is alone. What was only planned did nothing. An effect is known by the plan with which it
    was read first; reading it again changes nothing. Three queries, and two that write.
    """
    if not doings:
        return 0
    heads: dict[int, tuple[str, int, int]] = {
        digest: (session, place, told) for digest, session, place, told in _of(_FIRSTS, {one.digest for one in doings})
    }
    places = {one.place for one in doings} | {place for _, place, _ in heads.values()}
    known = {(place, bool(of_target)) for place, of_target in _of(_KNOWN, places)}
    times = _times({(one.session, one.digest) for one in doings if one.digest in heads and not one.of_target})
    firsts, repeated = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for one in doings:
        if one.digest not in heads:
            heads[one.digest] = (one.session, one.place, one.told)
            firsts.append((one.digest, one.project, one.session, one.place, one.told))
        head_session, head_place, head_told = heads[one.digest]
        if head_place == one.place or (one.place, one.of_target) in known:
            continue
        again = max(one.told, head_told)
        if (head_place, one.of_target) not in known:
            repeated.append((one.digest, one.project, head_session, head_place, head_told, one.sort, again, 1))
            times[head_session, one.digest] = 1
            known.add((head_place, one.of_target))
        nth = 1 if one.of_target else times.get((one.session, one.digest), 0) + 1
        times[one.session, one.digest] = nth
        repeated.append((one.digest, one.project, one.session, one.place, one.told, one.sort, again, nth))
        known.add((one.place, one.of_target))
    _keep("inquiry_firstdoing", _FIRST_COLUMNS, firsts)
    _keep("inquiry_repeateddoing", _COLUMNS, repeated)
    return len(repeated)


def like(positions: Collection[int], *sorts: str) -> "QuerySet[RepeatedDoing]":
    """The rows of all effects that have this in common with those opened at `positions` (few), their own among them."""
    own = RepeatedDoing.objects.filter(position__in=positions, sort__in=sorts)
    return RepeatedDoing.objects.filter(digest__in=own.values("digest"), sort__in=sorts)


def is_again() -> Exists:
    """For a query of effects: whether it ran, and another like it did; nothing that only reads counts."""
    return Exists(RepeatedDoing.objects.filter(position=OuterRef("opened_position"), sort__in=("call", "target")))


def not_compared(column: str) -> Exists:
    """For a query of effects or sessions, by which `column` entries name them: whether the index has not read a run."""
    read_to = Coalesce(Subquery(Pulse.objects.filter(name="words").values("position")), 0)
    runs = Entry.objects.filter(kind__in=TELLING, position__gt=read_to, effect__isnull=False)
    return Exists(runs.filter(**{column: OuterRef("id")}))


def most() -> dict[str, Subquery]:
    """For a query of sessions: how often each made one and the same call, from 2 on, and the last such effect.

    Nothing that only reads counts.
    """
    often = RepeatedDoing.objects.filter(IS_REPEATED, session=OuterRef("id"), sort="call").order_by("-nth", "position")
    return {"repeats": Subquery(often.values("nth")[:1]), "repeated": Subquery(often.values("position")[:1])}


def _of(text: str, numbers: Iterable[int]) -> list[tuple[Any, ...]]:
    return sql.rows(text.format(sql.wanted("bigint")), [sql.keys(numbers)])


def _earlier(effects: Sequence[str], until: int) -> dict[str, int]:
    """The first that was told of each run, up to a position, of effects that stood in the journal before their plan."""
    return dict(sql.rows(_EARLIER.format(sql.wanted("uuid")), [sql.keys(effects), until])) if effects else {}


def _times(asked: Collection[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """How often each session made each call so far, as far as that is noted; what is not is absent."""
    if not asked:
        return {}
    if connection.vendor == "postgresql":
        sessions, digests = zip(*asked, strict=True)
        rows = sql.rows(_TIMES_POSTGRESQL, [sql.keys(sessions), sql.keys(digests)])
    else:
        rows = sql.rows(_TIMES_SQLITE, [json.dumps(list(asked))])
    return {(session, digest): nth for session, digest, nth in rows if nth is not None}


def _keep(table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    if not rows:
        return
    text = f"INSERT INTO {table} ({', '.join(columns)})"
    if connection.vendor == "postgresql":
        arrays = ", ".join(f"%s::{kind}[]" for kind in _KINDS[: len(columns)])
        sql.write(f"{text} SELECT * FROM unnest({arrays})", [sql.keys(one) for one in zip(*rows, strict=True)])
    else:
        sql.write_each(f"{text} VALUES ({', '.join(['%s'] * len(columns))})", rows)
