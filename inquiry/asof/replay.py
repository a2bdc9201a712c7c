"""Effects as of a cut: stored rows where nothing was told since, else made again from the facts up to there."""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

from approvals.models import Exemption, Gate
from inquiry.asof import exemptions, told, words
from inquiry.asof.cut import Cut, UnfitError
from inquiry.asof.folding import Folded, Folding
from inquiry.asof.gates import gates as gates
from inquiry.asof.sessions import sessions as sessions
from inquiry.asof.words import Found
from inquiry.indexes import IS_OF_A_RARE_KIND
from journal import horizon
from journal.models import Entry
from ledger import declared, rows
from ledger.effects import REPLANNED
from ledger.models import Attempt, Effect
from ledger.rows import AttemptRow, EffectRow
from ledger.tools import name_digest
from sessions.models import Session

US: Final = 1_000_000
MOST_SINCE: Final = 2_000_000  # entries of everybody after a cut that a search walks, while it has time
MOST_CHANGED: Final = 5_000  # things of one kind that it makes again


class Then(NamedTuple):
    """An effect as of a cut (not saved), its attempts in order, and the columns whose words were erased since."""

    effect: Effect
    attempts: list[Attempt]
    lost: frozenset[str] = frozenset()


def effects(project: UUID, ids: Iterable[UUID], cut: Cut) -> dict[UUID, Effect]:
    """The effects of `ids` in the state as of `cut`, not saved; those that were not there yet are absent."""
    return {identity: then.effect for identity, then in whole(project, ids, cut).items()}


def whole(project: UUID, ids: Iterable[UUID], cut: Cut) -> dict[UUID, Then]:
    """The same with their attempts. A constant number of queries, and as much work as there are facts to fold."""
    wanted = set(ids)
    stored = {key: row for key, row in _rows(project, "id", wanted).items() if _is_there(row, cut)}
    undoing = _compensations(project, stored)  # also of later: what they compensate moved with them
    moved = told.since({*stored, *undoing}, cut.position)
    # What an effect compensates has no entry of its own when the compensation is acknowledged.
    replaced = told.replaced_plans(moved)
    moved |= {row.compensates_id for key, row in (stored | undoing).items() if key in moved and row.compensates_id}
    moved |= {UUID(one["compensates_id"]) for said in replaced.values() for one in said if one.get("compensates_id")}
    moved -= {key for key, row in stored.items() if row.imported}  # a bundle's word: told once, and never moves
    again = {identity: row for identity, row in stored.items() if identity in moved}
    with_undoing = again | {
        key: row for key, row in (stored | undoing).items() if _is_there(row, cut) and _may_undo(row, again, replaced)
    }
    tried = _attempts({*stored, *with_undoing})
    found = {
        identity: Then(row, list(tried.get(identity, {}).values()))
        for identity, row in stored.items()
        if identity not in moved
    }
    if again:
        folding = Folding(with_undoing, tried, replaced | told.replaced_plans(with_undoing.keys() - moved))
        folding.tell(told.of_effects(with_undoing, cut.position))
        folded = {identity: folding.folded[identity] for identity in again if identity in folding.folded}
        said = words.words(project, folded, again, tried)
        deadlines = _Deadlines(project, min(one.settled for one in folded.values())) if folded else None
        for identity, one in folded.items():
            one.row.tool = said[identity].effect["tool"]
            if deadlines is not None:
                one.row.deadline_us = deadlines.of(one)
            columns = folding.said_of_plan(identity, cut.position) if one.plan is not None else {}
            found[identity] = _then(again[identity], one, columns, tried.get(identity, {}), said[identity])
    return found


@dataclass(frozen=True, slots=True)
class Changed:
    """What the journal says more of after a cut: ids of effects, sessions and gates."""

    effects: frozenset[UUID]
    sessions: frozenset[UUID]
    gates: frozenset[UUID]


def changed_since(project: UUID, cut: Cut) -> Changed:
    """What is to be made again for a search as of `cut`; all else stands in its tables as it stood then.

    Raises UnfitError where that would be too much: a later moment can be looked at.
    """
    return Changed(changed_effects(project, cut), changed_sessions(project, cut), changed_gates(project, cut))


@dataclass(frozen=True, slots=True)
class News:
    """Where one looks for what changed since a cut: above the position `after`, and for `most` things."""

    after: int
    most: int = MOST_CHANGED

    @classmethod
    def of(cls, cut: Cut) -> "News":
        """Everything since the cut."""
        return cls(cut.position)


def changed_effects(project: UUID, cut: Cut, news: News | None = None) -> frozenset[UUID]:
    """The effects that were there and of which the journal says more since; also by what they compensate."""
    news = news or News.of(cut)
    since = _since(news).filter(effect__isnull=False).values("effect")
    told_of = Effect.objects.filter(id__in=since)
    moved = _there(project, told_of, cut, news)
    undone = Effect.objects.filter(id__in=told_of.filter(compensates__isnull=False).values("compensates"))
    moved |= _there(project, undone, cut, news)
    for said in told.replaced_plans(moved).values():
        moved |= {UUID(one["compensates_id"]) for one in said if one.get("compensates_id")}
    return frozenset(moved)


def changed_sessions(project: UUID, cut: Cut, news: News | None = None) -> frozenset[UUID]:
    """The sessions that were there and of which the journal says more since."""
    news = news or News.of(cut)
    since = _since(news).filter(session__isnull=False).values("session")
    return frozenset(_there(project, Session.objects.filter(id__in=since), cut, news))


def changed_gates(project: UUID, cut: Cut, news: News | None = None) -> frozenset[UUID]:
    """The gates that were there and of whose effects the journal says more since."""
    news = news or News.of(cut)
    since = _since(news).filter(effect__isnull=False).values("effect")
    return frozenset(_there(project, Gate.objects.filter(effect__in=since), cut, news))


def changed_exemptions(project: UUID, cut: Cut, news: News | None = None) -> frozenset[UUID]:
    """The exemptions that were there and of which the journal says more since."""
    news = news or News.of(cut)
    since = _since(news).filter(IS_OF_A_RARE_KIND, project=project, kind__in=exemptions.KINDS).values("subject")
    return frozenset(_there(project, Exemption.objects.filter(id__in=since), cut, news))


def _since(news: News) -> Any:
    if horizon.last_position() - news.after > MOST_SINCE:
        raise UnfitError(_TOO_LONG_AGO)
    return Entry.objects.filter(position__gt=news.after).exclude(kind__startswith="access.").order_by()


_TOO_LONG_AGO: Final = (
    "Too much has happened since then to search the book as it stood; choose a later moment. The pages of single"
    " effects, gates and sessions can be shown as of any moment."
)


def _there(project: UUID, rows: Any, cut: Cut, news: News) -> set[UUID]:
    """Those of `rows` that were there at the cut. Most of what there is news of came later, and is not made again."""
    found = set()
    # Of everybody, and then those of the project: asked for these alone, SQLite reads all of the project's.
    for identity, home, opened in rows.order_by().values_list("id", "project", "opened_position").iterator(2_000):
        if home == project and opened <= cut.position:
            found.add(identity)
            if len(found) > news.most:
                raise UnfitError(_TOO_LONG_AGO)
    return found


def _is_there(row: Effect, cut: Cut) -> bool:
    return row.opened_position <= cut.position


def _rows(project: UUID, column: str, ids: Iterable[UUID]) -> dict[UUID, Effect]:
    """The effects of the project, found by ids alone."""
    found: dict[UUID, Effect] = {}
    for part in told.parts(ids):
        for row in Effect.objects.filter(**{f"{column}__in": part}):
            if row.project_id == project:
                found[row.id] = row
    return found


def _compensations(project: UUID, stored: Mapping[UUID, Effect]) -> dict[UUID, Effect]:
    """The effects that undo any of `stored`, or did so by a plan that another took the place of since."""
    found = _rows(project, "compensates", stored)
    formerly: set[UUID] = set()
    for part in told.parts({row.session_id for row in stored.values()}):
        replaced = Entry.objects.filter(IS_OF_A_RARE_KIND, project=project, kind=REPLANNED, lane="system")
        undoing = replaced.filter(session__in=part, facts__contains="compensates_id")
        for effect, facts in undoing.values_list("effect", "facts"):
            if effect is not None and UUID(orjson.loads(facts)["compensates_id"]) in stored:
                formerly.add(effect)
    return found | _rows(project, "id", formerly - found.keys() - stored.keys())


def _may_undo(row: Effect, again: Mapping[UUID, Effect], replaced: Mapping[UUID, list[dict[str, Any]]]) -> bool:
    named = {row.compensates_id} if row.compensates_id is not None else set()
    named |= {UUID(one["compensates_id"]) for one in replaced.get(row.id, ()) if one.get("compensates_id")}
    return any(one in again for one in named)


def _attempts(ids: Iterable[UUID]) -> dict[UUID, dict[int, Attempt]]:
    found: dict[UUID, dict[int, Attempt]] = {}
    for part in told.parts(ids):
        for row in Attempt.objects.filter(effect__in=part).order_by("number"):
            found.setdefault(row.effect_id, {})[row.number] = row
    return found


class _Deadlines:
    """How long a dispatch of a tool might take by what was declared of it when an effect was last told of."""

    def __init__(self, project: UUID, since: int) -> None:
        self._project = project
        loaded = Entry.objects.filter(IS_OF_A_RARE_KIND, project=project, kind="admin.tools_loaded", position__gt=since)
        entries = loaded.order_by("position").values_list("position", "facts")
        self._before = [(position, orjson.loads(facts).get("before", {})) for position, facts in entries]

    def of(self, one: Folded) -> int | None:
        """The deadline of an effect that is under way, in microseconds."""
        last = one.attempts.get(one.row.attempt_count)
        if one.row.state != "dispatched" or last is None or last.received_us is None:
            return None
        return last.received_us + self._seconds(one.row.tool, one.settled) * US

    def _seconds(self, tool: str, position: int) -> int:
        name = name_digest(tool)
        was = next((said[name] for at, said in self._before if at > position and name in said), None)
        return int(was) if was is not None else declared.tool(self._project, tool).deadline_s


_OF_EFFECTS: Final = rows.columns(EffectRow)
_OF_ATTEMPTS: Final = rows.columns(AttemptRow)


def _then(stored: Effect, one: Folded, plan: dict[str, Any], tried: Mapping[int, Attempt], said: Found) -> Then:
    """The rows as they were. What counts how often a row was written (`version`) stays as it is now."""
    effect = copy.copy(stored)
    kept = {name: getattr(one.row, name) for name in _OF_EFFECTS if name != "version"}
    for name, value in (kept | plan | said.effect | {"violates": one.violates}).items():
        setattr(effect, name, value)
    attempts = []
    for number, row in sorted(one.attempts.items()):
        attempt = copy.copy(tried[number])
        fixed = {"remote_key": attempt.remote_key}
        then = {name: getattr(row, name) for name in _OF_ATTEMPTS} | fixed | said.attempts[number]
        for name, value in then.items():
            setattr(attempt, name, value)
        attempts.append(attempt)
    return Then(effect, attempts, frozenset(said.lost))
