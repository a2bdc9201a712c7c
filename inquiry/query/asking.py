"""Runs a query: one page of rows, newest first, or groups. Nothing reads without bound."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final
from uuid import UUID

from django.db.models import Q, QuerySet, Subquery

from inquiry import keyset
from inquiry.asof.cut import Cut
from inquiry.query import grouping, past, reading, regrouping
from inquiry.query.entities import ENTITIES, Entity
from inquiry.query.fields import Context, Test, all_of
from inquiry.query.others import Others
from inquiry.query.past import Past
from inquiry.query.tree import Query, Term
from inquiry.words import indexing
from journal.compiled import Compiled
from journal.models import Entry
from sessions.models import Project

SIZE: Final = 50
COUNTED: Final = 10_000  # matches that are counted; of more it is said that there are more
# Positions that one query whose fields no index serves reads at most; it says how far back it looked.
SLOW_WINDOW: Final = 300_000
LOOKS: Final = 3  # so often what is read as of a moment is read again for what changed while it was read
_ARMS: Final = 3  # more disjoint conditions than this are asked as one
# Positions are handed out in the transaction that follows upon the arrival of a whole request. It may have to wait for
# others, and clocks are set; that it takes longer than this is out of the question.
_SLACK_US: Final = 3_600_000_000
LATEST_US: Final = 2**62
ById = Callable[[UUID, list[Any]], list[Any]]


@dataclass(slots=True)
class Asked:
    """A query that was read and understood. `test` says which rows of `entity` meet it."""

    query: Query
    entity: Entity
    context: Context
    test: Test
    parts: list[Test]  # of the conditions all of which must hold
    since_us: int | None
    until_us: int | None
    between: tuple[int | None, int | None] | None = None  # positions, once they were looked up
    past: Past | None = None  # where it is asked as of a moment
    others: Others | None = None  # … and what then was so of rows that belong to others

    @property
    def slow(self) -> bool:
        """True when rows are many, there are conditions, and no index serves any of them."""
        conditions = self.entity.many and self.query.condition is not None
        return conditions and not any(part.indexed or part.walled for part in self.parts)

    @property
    def text(self) -> str:
        return self.query.text


@dataclass(slots=True)
class Answer:
    """One page. `older` and `newer` are what to pass as `before` and `after`; `looked_back_to` is where a slow search
    stopped looking, None when it saw everything. Of a grouped query `groups` has all there is.
    """

    asked: Asked
    rows: list[Any] = field(default_factory=list)
    older: int | None = None
    newer: int | None = None
    looked_back_to: int | None = None
    groups: "grouping.Groups | None" = None


def understand(text: str, project: Project, now_us: int, upto: int | None = None) -> Asked:
    """Read a query and look everything up that it names. Raises Fault.

    As of a moment, what changed since is made again here. `upto` asks a query that names no moment as of that position
    and `now_us`: of its rows only those that are grouped are made again here, for others see streaming.py.
    """
    query = reading.read(text)
    entity, context = ENTITIES[query.entity], Context(project, now_us, grouped=query.grouping is not None)
    cut = past.cut_of(query.asof, project, now_us) if query.asof is not None else None
    if cut is not None:
        past.refuse_unkept(query)
    cut = Cut(upto, now_us) if cut is None and upto is not None else cut
    others_then = Others(context, cut, whole=query.asof is None) if cut is not None else None
    if cut is not None:
        context.now_us, context.upto, context.as_of = cut.at_us, cut.position, others_then
    words, others = reading.apart(reading.conjuncts(query), entity)
    since_us, until_us = reading.bounds(query, context)
    repeated = any(isinstance(one, Term) and one.name == "again" for one in others)
    # Of a time, words and what was done again are looked for in that time alone.
    between = _between(context.project, since_us, until_us) if words or repeated else None
    context.lowest = between[0] if between is not None else None
    parts = reading.tests(others, entity, context)
    if words and between is not None:
        ends = [one for one in (between[1], context.upto + 1 if context.upto is not None else None) if one is not None]
        parts.append(reading.worded(words, context, (between[0], min(ends, default=None))))
    if query.grouping is not None:
        grouping.check(query.grouping, entity)
    if any(known is not None and known.compared_late for known, _name, _at in past.named(query)):
        context.goes_by(indexing.compared(project.id, context.upto))
    context.notes += [one.note for one in context.indexes.values() if one.note]
    asked = Asked(query, entity, context, all_of(parts), parts, since_us, until_us, between, others=others_then)
    if cut is not None and (query.asof is not None or query.grouping is not None):
        asked.past = past.judge(query, query.asof, entity, context, parts, cut)
    elif cut is not None:
        asked.past = Past(cut, cut.position)
    return asked


def answer(
    asked: Asked,
    rows: "Callable[[QuerySet[Any]], QuerySet[Any]]",
    *,
    before: int | None = None,
    after: int | None = None,
    size: int = SIZE,
    by_id: ById | None = None,
) -> Answer:
    """One page of the matches of `asked`; `rows` adds what the caller shows of them to a query of whole rows.

    `by_id`, where it is given, reads the same rows of a project by their ids.
    """

    def read() -> Answer:
        if asked.query.grouping is not None:
            return Answer(asked, groups=_groups(asked))
        return _page(asked, rows, keyset.Window(before=before, after=after), size, by_id)

    found = read()
    for _ in range(LOOKS if asked.past is not None else 0):
        if not _made_again(asked):  # it was all read in the state that it was made again from
            break
        found = read()
    return found


def _made_again(asked: Asked) -> bool:
    """Make again what changed while it was read; False where nothing did."""
    assert asked.past is not None  # noqa: S101 - asked as of a moment
    news = past.changed_meanwhile(asked.past, asked.entity, asked.context.project.id)
    others = have_others_changed(asked)
    if news:
        past.extend(asked.past, news, asked.entity, asked.context, asked.parts)
    return bool(news) or others


def have_others_changed(asked: Asked) -> bool:
    """Whether rows that belong to others changed while it was read, after which it asks of them anew. Raises Fault."""
    if asked.others is None or not asked.others.look():
        return False
    context, notes = asked.context, list(asked.context.notes)
    _words, nodes = reading.apart(reading.conjuncts(asked.query), asked.entity)
    asked.parts[: len(nodes)] = reading.tests(nodes, asked.entity, context)  # the words of an effect stand last
    asked.test, context.notes[:] = all_of(asked.parts), notes
    return True


def _page(
    asked: Asked,
    rows: "Callable[[QuerySet[Any]], QuerySet[Any]]",
    window: keyset.Window,
    size: int,
    by_id: ById | None,
) -> Answer:
    before, after = window.before, window.after
    lowest = _lowest(asked, before) if after is None else 0
    whole = asked.entity.of(asked.context.project)
    whole = rows(whole) if by_id is None else whole  # a query that nobody asks takes time to be made, too
    project = asked.context.project.id
    read = (lambda ids: by_id(project, ids)) if by_id is not None else None
    page = keyset.fall(stages(asked, lowest), whole, size, window, read)
    found = Answer(asked, past.as_they_were(page.rows, asked.past), page.older, page.newer)
    if lowest and page.older is None:
        found.looked_back_to = lowest
    return found


def _groups(asked: Asked) -> "grouping.Groups":
    if asked.past is None or asked.entity.name == "event":  # entries never change
        return grouping.groups(asked, matches(asked))
    unchanged = asked.test.q & ~Q(pk__in=asked.past.again) if asked.past.again else asked.test.q
    return regrouping.groups(asked, _within(_walled(asked).filter(unchanged), asked), lambda: matches(asked))


def matches(asked: Asked) -> "QuerySet[Any]":
    """All rows that meet `asked`, in no order."""
    met = asked.test.q
    if asked.past is not None:
        met = (met & ~Q(pk__in=asked.past.again)) | Q(pk__in=asked.past.met) if asked.past.again else met
    return _within(_walled(asked).filter(met), asked)


def arms(asked: Asked) -> "list[QuerySet[Any]]":
    """The matches as disjoint query sets, each of which one index can serve."""
    return [arm for stage in stages(asked) for arm in stage]


def stages(asked: Asked, lowest: int = 0) -> "list[list[QuerySet[Any]]]":
    """The same, from position `lowest` on, by stages: all rows of one are older than all of those before it."""
    rows = _within(_walled(asked), asked)
    rows = rows.filter(opened_position__gte=lowest) if lowest else rows
    falling = next((part for part in asked.parts if part.falls), None)
    others = [part for part in asked.parts if part is not falling]
    alternatives = [part.arms or (part.q,) for part in others]
    count = 1
    for choices in alternatives:
        count *= len(choices)
    many = count > _ARMS
    found = [rows.filter(all_of(others).q)] if many else [rows.filter(*chosen) for chosen in product(*alternatives)]
    told = [[arm.filter(q) for arm in found] for q in falling.falls] if falling else [found]
    if asked.past is None or not asked.past.again:
        return told
    # What has changed since may stand anywhere.
    again = [arm.exclude(pk__in=list(asked.past.again)) for stage in told for arm in stage]
    met = _walled(asked).filter(pk__in=asked.past.met)
    met = met.filter(opened_position__gte=lowest) if lowest else met
    return [[*again, *([met] if asked.past.met else [])]]


def count(asked: Asked, most: int = COUNTED) -> tuple[int, bool]:
    """How many rows match, at most `most`, and whether there are or may be more: a slow search does not look further
    back than its first page.
    """
    only = asked.parts[0] if len(asked.parts) == 1 and asked.past is None else None
    if only is not None and only.named is not None and (only.named > most or not only.more):
        return min(only.named, most), only.named > most
    found, lowest = 0, _lowest(asked)
    for part in arms(asked):
        if lowest:  # said in this order, SQLite does not come to it from the oldest of the time that was asked for
            part = part.filter(opened_position__gte=lowest).order_by("-opened_position")
        # Of the columns that the index has: SQLite would fetch each row for its id, and take fifty times as long.
        found += part.values_list("opened_position")[: most + 1 - found].count() if found <= most else 0
    return min(found, most), found > most or lowest > 0


def newest_first(
    asked: Asked, columns: tuple[str, ...], most: int, known: "list[Any] | None" = None
) -> tuple[list[tuple[Any, ...]], bool]:
    """Values of the newest matches, at most `most`, and whether there are or may be more (as `count`).

    `known` are the ids of all of them, where they were found before.
    """
    found: list[tuple[Any, ...]] = []
    lowest = _lowest(asked) if known is None else 0
    told = stages(asked, lowest) if known is None else [[asked.entity.of(asked.context.project).filter(pk__in=known)]]
    for stage in told:
        here: list[tuple[Any, ...]] = []
        for part in stage:
            rows = part.order_by("-opened_position").values_list("opened_position", "pk", *columns)
            here += rows[: most + 1 - len(found)]
        found += here if len(stage) == 1 else sorted(here, key=lambda row: row[0], reverse=True)
        if len(found) > most:
            break
    again = asked.past.again if asked.past is not None else {}
    names = past.Names([again[pk] for pk in asked.past.met] if asked.past is not None else [])
    values = [past.values_then(row[2:], columns, again.get(row[1]), names) for row in found[:most]]
    return values, len(found) > most or lowest > 0


def _lowest(asked: Asked, before: int | None = None) -> int:
    """The position at which a slow search stops looking back, 0 for none."""
    if not asked.slow:
        return 0
    top = before if before is not None else newest(asked) + 1
    return max(top - SLOW_WINDOW, 0)


def newest(asked: Asked) -> int:
    """The position of the newest row of the project (as of a moment, that was there); 0 where there is none."""
    rows = asked.entity.of(asked.context.project).order_by("-opened_position")
    if asked.past is not None:
        rows = rows.filter(opened_position__lte=asked.past.cut.position)
    return rows.values_list("opened_position", flat=True).first() or 0


def _walled(asked: Asked) -> "QuerySet[Any]":
    # What stays within the project by itself is not asked for the project too: SQLite would then walk the project.
    walled = any(part.walled for part in asked.parts) and (asked.past is None or not asked.past.again)
    rows = asked.entity.rows() if walled else asked.entity.of(asked.context.project)
    return rows if asked.past is None else rows.filter(opened_position__lte=asked.past.cut.position)


def _within(rows: "QuerySet[Any]", asked: Asked) -> "QuerySet[Any]":
    """Beside the time that was asked for, a range of positions, so that an index leads there. One query more.

    Above the last entry that arrived too long before to stand among them, below the first that arrived too long after.
    """
    since, until = asked.since_us, asked.until_us
    if (since is None and until is None) or _is_narrow(asked):
        return rows
    if asked.between is None:
        asked.between = _between(asked.context.project, since, until)
    last_before, first_after = asked.between
    if last_before is not None:
        rows = rows.filter(opened_position__gt=last_before)
    if first_after is not None:
        rows = rows.filter(opened_position__lt=first_after)
    return rows


def _between(project: Project, since: int | None, until: int | None) -> tuple[int | None, int | None]:
    """Positions between which everything stands that arrived at such a time; None where there is no bound."""
    if since is None and until is None:
        return None, None
    (found,) = _BOUNDS.rows(
        project=project.id,
        since=since - _SLACK_US if since is not None else 0,
        until=until + _SLACK_US if until is not None else LATEST_US,
    )
    return found.last_before if since is not None else None, found.first_after if until is not None else None


def _bounds(project: UUID, since: int, until: int) -> "QuerySet[Any]":
    there = Project.objects.filter(id=project).only("id")
    return there.annotate(last_before=Subquery(_before(since)), first_after=Subquery(_from(until)))


def _is_narrow(asked: Asked) -> bool:
    return any(part.walled for part in asked.parts)


def _before(us: int) -> "QuerySet[Any, Any]":
    """The position of the last entry that arrived before `us`. One index probe."""
    return Entry.objects.filter(received_us__lt=us).order_by("-received_us", "-position").values("position")[:1]


def _from(us: int) -> "QuerySet[Any, Any]":
    """The position of the first entry that arrived at `us` or later. One index probe."""
    return Entry.objects.filter(received_us__gte=us).order_by("received_us", "position").values("position")[:1]


_BOUNDS: Final = Compiled(_bounds, project=UUID, since=int, until=int)

__all__ = ["Answer", "Asked", "answer", "arms", "count", "matches", "newest", "newest_first", "stages", "understand"]
