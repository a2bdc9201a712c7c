"""The one writer of FirstDoing and RepeatedDoing: which effects have tool and arguments, or tool and target, in common.

It goes along with the index of words (inquiry/words/indexing.py), in its transactions: no agent waits for it.
"""

import hashlib
from array import array
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models import Max, Min, OuterRef, Subquery

from inquiry.indexes import IS_REPEATED
from inquiry.models_repeats import FirstDoing, RepeatedDoing
from journal.models import Entry
from ledger.models import Effect, Tool

_RAN: Final = ("effect.dispatched", "effect.acknowledged", "effect.failed")
TELLING: Final = ("effect.planned", *_RAN)  # kinds of entries by which an effect becomes one that was planned and ran
_AT_ONCE: Final = 500  # rows of one statement


@dataclass(frozen=True, slots=True)
class _Doing:
    """One thing that an effect may have in common with another. `place` is its effect's opened_position."""

    digest: int
    sort: str
    project: UUID
    session: UUID
    place: int
    told: int

    @property
    def of_target(self) -> bool:
        return self.sort == "target"


def note(effects: Collection[UUID]) -> int:
    """Note of each of `effects` what others did before it; returns how many are one of several that were not before.

    Inside a transaction that is alone. What was only planned did nothing. An effect is known by the plan with which it
    was read first; reading it again changes nothing. Six queries, and two that write.
    """
    doings = _doings(effects)
    if not doings:
        return 0
    digests = array("q", {one.digest for one in doings})
    heads = {one.digest: one for one in FirstDoing.objects.filter(digest__listed=digests)}
    places = array("q", {one.place for one in doings} | {one.position for one in heads.values()})
    rows = RepeatedDoing.objects.filter(position__listed=places).values_list("position", "sort")
    known = {(place, sort == "target") for place, sort in rows}
    counted = RepeatedDoing.objects.filter(
        digest__listed=array("q", heads), session__in={one.session for one in doings}
    )
    times = {
        (session, digest): most
        for session, digest, most in counted.order_by().values_list("session", "digest").annotate(Max("nth"))
    }
    firsts, repeated = list[FirstDoing](), list[RepeatedDoing]()
    for one in doings:
        head = heads.get(one.digest)
        if head is None:
            heads[one.digest] = head = FirstDoing(
                digest=one.digest,
                project_id=one.project,
                session_id=one.session,
                position=one.place,
                told_position=one.told,
            )
            firsts.append(head)
        if head.position == one.place or (one.place, one.of_target) in known:
            continue
        again = max(one.told, head.told_position)
        if (head.position, one.of_target) not in known:
            repeated.append(_row(one, head.session_id, head.position, head.told_position, again, 1))
            times[head.session_id, one.digest] = 1
            known.add((head.position, one.of_target))
        nth = 1 if one.of_target else times.get((one.session, one.digest), 0) + 1
        times[one.session, one.digest] = nth
        repeated.append(_row(one, one.session, one.place, one.told, again, nth))
        known.add((one.place, one.of_target))
    FirstDoing.objects.bulk_create(firsts, batch_size=_AT_ONCE)
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


def _row(one: _Doing, session: UUID, place: int, told: int, again: int, nth: int) -> RepeatedDoing:
    return RepeatedDoing(
        project_id=one.project,
        session_id=session,
        position=place,
        sort=one.sort,
        digest=one.digest,
        told_position=told,
        again_position=again,
        nth=nth,
    )


def _doings(effects: Collection[UUID]) -> list[_Doing]:
    """What there is to compare of effects that were planned and ran, in the order in which that was told."""
    ran = Effect.objects.filter(id__listed=list(effects), attempt_count__gt=0, plan_position__isnull=False)
    rows = list(
        ran.exclude(intent_digest="").values_list(
            *("id", "project_id", "session_id", "opened_position", "plan_position"),
            *("tool", "intent_digest", "repository_id", "resource"),
        )
    )
    said = Entry.objects.filter(effect__listed=[row[0] for row in rows], kind__in=_RAN).order_by()
    begun = dict(said.values_list("effect").annotate(Min("position")))
    declared = Tool.objects.filter(project__in={row[1] for row in rows}, tool_class="read_only")
    reading = set(declared.values_list("project", "name")) if rows else set()
    found = []
    for effect, project, session, place, planned, tool, intent, repository, resource in rows:
        told = max(planned, begun.get(effect, planned))
        sort = "read" if (project, tool) in reading else "call"
        found.append(_Doing(_digest(project, "call", tool, intent), sort, project, session, place, told))
        if resource and sort == "call":
            digest = _digest(project, "target", tool, str(repository or ""), resource)
            found.append(_Doing(digest, "target", project, session, place, told))
    return sorted(found, key=lambda one: (one.told, one.place, one.sort))


def _digest(project: UUID, *parts: Any) -> int:
    """64 bits with a sign: what a column of either database holds."""
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    whole = hashlib.blake2b(project.bytes + text, digest_size=8).digest()
    return int.from_bytes(whole, "big", signed=True)
