"""The one writer of FirstDoing and RepeatedDoing: which effects have tool and arguments, or tool and target, in common.

It goes along with the index of words (inquiry/words/indexing.py), in its transactions: no agent waits for it.
"""

import hashlib
import json
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db import connection
from django.db.models import Max, Min, OuterRef, Subquery

from inquiry.indexes import IS_REPEATED
from inquiry.models_repeats import FirstDoing, RepeatedDoing
from journal import sql
from journal.models import Entry
from ledger.models import Effect, Tool

RUNS: Final = frozenset({"effect.dispatched", "effect.acknowledged", "effect.failed"})
TELLING: Final = RUNS | {"effect.planned"}  # kinds of entries by which an effect becomes one that was planned and ran
_AT_ONCE: Final = 500  # rows of one statement
_RAN_ROWS: Final = (
    "SELECT id, project_id, session_id, opened_position, plan_position, tool, intent_digest, repository_id, resource"
    " FROM ledger_effect WHERE attempt_count > 0 AND plan_position IS NOT NULL AND intent_digest <> '' AND id"
)


@dataclass(frozen=True, slots=True)
class Doing:
    """One thing that an effect may have in common with another. `place` is its effect's opened_position."""

    digest: int
    sort: str
    project: UUID | str  # as plain SQL gives it
    session: UUID | str
    place: int
    told: int

    @property
    def of_target(self) -> bool:
        return self.sort == "target"


def doings(begun: Mapping[UUID, int], since: int) -> list[Doing]:
    """What there is to compare of effects that were planned and ran, in the order in which that was told.

    `begun` has the effects of which a plan or a run was told after the position `since`, each with the position of the
    first such run, or 0. Two queries, three where an effect was planned after it had run.
    """
    rows = sql.rows(*_ran(begun)) if begun else []
    earlier = _earlier([_uuid(row[0]) for row in rows if row[3] <= since < row[4]])
    found = []
    reading: dict[UUID, frozenset[str]] = {}
    for effect, project, session, place, planned, tool, intent, repository, resource in rows:
        identity = _uuid(effect)
        told = max(planned, earlier.get(identity, begun[identity]))
        home = _uuid(project)
        if home not in reading:
            declared = Tool.objects.filter(project=home, tool_class="read_only").values_list("name", flat=True)
            reading[home] = frozenset(declared)
        sort = "read" if tool in reading[home] else "call"
        found.append(Doing(_digest(home, "call", tool, intent), sort, project, session, place, told))
        if resource and sort == "call":
            digest = _digest(home, "target", tool, str(_uuid(repository) if repository else ""), resource)
            found.append(Doing(digest, "target", project, session, place, told))
    return sorted(found, key=lambda one: (one.told, one.place, one.sort))


def note(doings: Sequence[Doing]) -> int:
    """Note of each effect what others did before it; returns how many are one of several that were not before.

    Inside a transaction that is alone. What was only planned did nothing. An effect is known by the plan with which it
    was read first; reading it again changes nothing. Three queries, and two that write.
    """
    if not doings:
        return 0
    digests = array("q", {one.digest for one in doings})
    of_first = FirstDoing.objects.filter(digest__listed=digests)
    heads: dict[int, tuple[UUID, int, int]] = {
        digest: (session, place, told)
        for digest, session, place, told in of_first.values_list("digest", "session", "position", "told_position")
    }
    places = array("q", {one.place for one in doings} | {place for _, place, _ in heads.values()})
    rows = RepeatedDoing.objects.filter(position__listed=places).values_list("position", "sort")
    known = {(place, sort == "target") for place, sort in rows}
    times: dict[tuple[UUID, int], int] = {}
    if heads:
        sessions = {_uuid(one.session) for one in doings if one.digest in heads}
        counted = RepeatedDoing.objects.filter(digest__listed=array("q", heads), session__in=sessions).order_by()
        for session, digest, most_of_it in counted.values_list("session", "digest").annotate(Max("nth")):
            times[session, digest] = most_of_it
    firsts, repeated = list[Doing](), list[RepeatedDoing]()
    for one in doings:
        if one.digest not in heads:
            heads[one.digest] = (_uuid(one.session), one.place, one.told)
            firsts.append(one)
        head_session, head_place, head_told = heads[one.digest]
        if head_place == one.place or (one.place, one.of_target) in known:
            continue
        session, again = _uuid(one.session), max(one.told, head_told)
        if (head_place, one.of_target) not in known:
            repeated.append(_row(one, head_session, head_place, head_told, again, 1))
            times[head_session, one.digest] = 1
            known.add((head_place, one.of_target))
        nth = 1 if one.of_target else times.get((session, one.digest), 0) + 1
        times[session, one.digest] = nth
        repeated.append(_row(one, session, one.place, one.told, again, nth))
        known.add((one.place, one.of_target))
    _keep(firsts)
    RepeatedDoing.objects.bulk_create(repeated, batch_size=_AT_ONCE)
    return len(repeated)


def digest_of(effect: Effect, sort: str) -> int:
    """What rows of `sort` know the effect by: `call` or `target`."""
    if sort == "target":
        return _digest(effect.project_id, "target", effect.tool, str(effect.repository_id or ""), effect.resource)
    return _digest(effect.project_id, "call", effect.tool, effect.intent_digest)


def most() -> Subquery:
    """For a query of sessions: how often each made one and the same call, from 2 on."""
    of_session = RepeatedDoing.objects.filter(IS_REPEATED, session=OuterRef("id")).order_by().values("session")
    return Subquery(of_session.annotate(most=Max("nth")).values("most"))


def _row(one: Doing, session: UUID, place: int, told: int, again: int, nth: int) -> RepeatedDoing:
    return RepeatedDoing(
        project_id=_uuid(one.project),
        session_id=session,
        position=place,
        sort=one.sort,
        digest=one.digest,
        told_position=told,
        again_position=again,
        nth=nth,
    )


def _ran(effects: Iterable[UUID]) -> tuple[str, list[Any]]:
    """The statement for those of the effects that ran, and its parameters. Half of a step's time was Django's here."""
    listed = [sql.vendor_id(one) for one in effects]
    if connection.vendor == "postgresql":
        return f"{_RAN_ROWS} = ANY(%s::uuid[])", [listed]
    return f"{_RAN_ROWS} IN (SELECT value FROM json_each(%s))", [json.dumps(listed)]


def _earlier(effects: Collection[UUID]) -> dict[UUID, int]:
    """The first that was told of each run of effects that stood in the journal before they were planned."""
    if not effects:
        return {}
    said = Entry.objects.filter(effect__listed=list(effects), kind__in=RUNS).order_by()
    return {one: first for one, first in said.values_list("effect").annotate(Min("position")) if one is not None}


def _keep(firsts: Sequence[Doing]) -> None:
    if not firsts:
        return
    values = [(one.digest, one.project, one.session, one.place, one.told) for one in firsts]
    columns = "(digest, project_id, session_id, position, told_position)"
    if connection.vendor == "postgresql":
        text = f"INSERT INTO inquiry_firstdoing {columns} SELECT * FROM unnest(%s::bigint[], %s::uuid[], %s::uuid[],"
        with connection.cursor() as cursor:
            given = [list(column) for column in zip(*values, strict=True)]
            cursor.execute(f"{text} %s::bigint[], %s::bigint[])", given)
    else:
        sql.write_each(f"INSERT INTO inquiry_firstdoing {columns} VALUES (%s, %s, %s, %s, %s)", values)


def _uuid(given: UUID | str) -> UUID:
    """An id as plain SQL gives it on either vendor."""
    return given if isinstance(given, UUID) else UUID(given)


def _digest(project: UUID, *parts: Any) -> int:
    """64 bits with a sign: what a column of either database holds."""
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    whole = hashlib.blake2b(project.bytes + text, digest_size=8).digest()
    return int.from_bytes(whole, "big", signed=True)
