"""The search page: what was asked, what answers it, and where to go on when nothing does."""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import F, QuerySet
from django.http import QueryDict
from django.urls import reverse

from inquiry import columns, exempted, first_search, found_words, handles, histogram, jump, links, liveness
from inquiry.asof.cut import Cut
from inquiry.column import Reader
from inquiry.handles import as_position
from inquiry.progress import Progress
from inquiry.query import asking, differing, editing, excluding, facets, reading, telling
from inquiry.query.asking import Answer, Asked
from inquiry.query.differing import Apart
from inquiry.query.entities import ENTITIES
from inquiry.query.excluding import Kept
from inquiry.query.facets import Overview
from inquiry.query.tree import Fault, Term
from inquiry.timeline import as_rows, day_of, with_gists
from inquiry.views.place import Place
from inquiry.words.snippets import Snippet
from journal.compiled import Compiled
from ledger.models import Effect
from sessions.access import OF_PROJECT
from sessions.models import Project

NAMES: Final = ("q", "before", "after", "facets", "part", "noted", "add", "apart", OF_PROJECT)
LONGEST_ID: Final = 300
AROUND: Final = 120  # characters of a query that are shown on either side of what is wrong with it
AGES: Final = (("1h", "last hour"), ("24h", "24 h"), ("7d", "7 d"), ("30d", "30 d"))
PARTS: Final = ("overview",)
BOUNDS: Final = ("since", "until")
_FIELDS: Final = frozenset(name for entity in ENTITIES.values() for name in entity.fields)
_ADDRESS: Final = re.compile(r"https?://[^\"\\]+$", re.IGNORECASE)
_MEANT: Final = re.compile(r"did you mean (?:is:)?“?([^”?]+)”?\?$")  # as the errors of the language end


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The page is another one."""

    url: str


@dataclass(slots=True)
class Searched:
    """What the page shows. With a `fault` or a `refusal` nothing was searched."""

    text: str = ""
    before: int | None = None
    after: int | None = None
    with_facets: bool = False
    part: str = ""
    brushed: int = 0  # the number of a condition: what sets those that meet it apart?
    refusal: str = ""
    fault: Fault | None = None
    asked: Asked | None = None
    answer: Answer | None = None
    rows: list[Any] = field(default_factory=list)
    count: int = 0
    more: bool = False
    took_ms: int = 0
    overview: Overview | None = None
    apart: Apart | None = None
    drawing: "histogram.Drawing | None" = None
    kept: list[Kept] = field(default_factory=list)
    told: str = ""
    groups: "list[Group]" = field(default_factory=list)
    reader: Reader | None = None
    snippets: dict[UUID, Snippet] = field(default_factory=dict)  # by effect: where the words that were asked for stand

    @property
    def status(self) -> int:
        """The code that the page is answered with."""
        return 400 if self.fault or self.refusal else 200

    @property
    def place(self) -> Place:
        """The query as it stands in links to other pages of the same answer."""
        kept = [("q", self.text)] if self.text else []
        return Place(filters=[*kept, *([("facets", "1")] if self.with_facets else [])])

    @property
    def entity(self) -> str:
        """What is asked for, "" for a query that could not be read."""
        return self.asked.entity.name if self.asked else ""

    @property
    def cut(self) -> Cut | None:
        """The moment that the query is as of; None for now."""
        return self.asked.past.cut if self.asked is not None and self.asked.past is not None else None

    @property
    def late(self) -> list[Progress]:
        """The indexes that the answer goes by and that have not read everything."""
        indexes = self.asked.context.indexes.values() if self.asked is not None else ()
        return [one for one in indexes if not one.complete]

    @property
    def asof(self) -> str:
        """What links to the pages of rows carry, so that they show the same moment."""
        return f"?{urlencode({'asof': self.cut.text})}" if self.cut is not None else ""

    @property
    def present(self) -> str:
        """The same query as of now."""
        return editing.present(self.asked.query) if self.asked is not None else ""

    @property
    def day(self) -> str:
        """The day on which all of these effects arrived (UTC), "" when they are of several."""
        return day_of(row.effect.received_us for row in self.rows) if self.entity == "effect" else ""

    @property
    def targets(self) -> bool:
        """True when any of these effects names a target, and no text of theirs takes the room."""
        effects = [row.effect for row in self.rows] if self.entity == "effect" and not self.snippets else []
        return any(one.repository_id or one.ref or one.environment for one in effects)

    @property
    def owners(self) -> bool:
        """True when any of these sessions has an owner."""
        return self.entity == "session" and any(row.owner_id for row in self.rows)

    @property
    def resumed(self) -> bool:
        """True when any of these sessions was taken over."""
        return self.entity == "session" and any(row.resumes for row in self.rows)

    @property
    def meant(self) -> str:
        """The query with the nearest name in place of the wrong one, "" where none is near."""
        nearest = _MEANT.search(self.fault.sentence) if self.fault else None
        if self.fault is None or nearest is None:
            return ""
        at, end = self.fault.at, self.fault.at + self.fault.length
        return self.text[:at] + editing.quoted(nearest[1]) + self.text[end:]

    @property
    def wrong(self) -> tuple[str, str, str]:
        """The query before what is wrong, what is wrong, and the query after it; long ends are left out."""
        assert self.fault is not None  # noqa: S101 - asked for only where there is one
        at, end = self.fault.at, self.fault.at + self.fault.length
        before, after = self.text[:at], self.text[end : end + AROUND]
        return ("…" if len(before) > AROUND else "") + before[-AROUND:], self.text[at:end], after


@dataclass(frozen=True, slots=True)
class Group:
    """One row of a grouped answer: (field, word) of keys, (figure, value, kind) of figures, and where its rows are."""

    keys: list[tuple[str, str]]
    figures: list[tuple[str, Any, str]]
    url: str


def read(query: QueryDict) -> "Searched | Elsewhere":
    """Read a query string. Names that the search does not know are refused, those of the first search translated."""
    given: Mapping[str, list[str]] = dict(query.lists())
    page = Searched(text=str(query.get("q", "")).strip(), with_facets=query.get("facets") == "1")
    page.part = str(query.get("part", "")) if query.get("part") in PARTS else ""
    number = str(query.get("apart", ""))
    page.brushed = int(number) if number.isascii() and number.isdigit() and len(number) < 4 else 0
    try:
        old = first_search.query_of(given, NAMES)
    except first_search.Unknown as unknown:
        page.refusal = str(unknown)
        return page
    places: dict[str, int] = {}
    for name in ("before", "after"):
        if query.get(name):
            position = as_position(str(query[name]))
            if position is None:
                page.refusal = f"“{name}” is the number of a journal position."
                return page
            places[name] = position
    page.before, page.after = places.get("before"), places.get("after")
    if old is not None or query.get("add"):
        text = " ".join(part for part in (page.text, old or "") if part)
        if query.get("add"):
            return Elsewhere(links.search(_with(text, str(query["add"]))))
        return Elsewhere(links.search(text, **{name: str(position) for name, position in places.items()}))
    return page


def _with(text: str, condition: str) -> str:
    """The text with a condition more: where all must meet it, when the text can be read, else at its end."""
    try:
        return editing.added(reading.read(text), condition)
    except Fault:
        return f"{text} {condition}"


def identity(project: Project, text: str) -> str | None:
    """Where to go when the whole query is an id of something here: a handle, a UUID, a digest, an address."""
    # `reference:https://…` asks; to look it up as everything that it may be takes longer than to answer it.
    is_address = "://" in text and text.partition(":")[0] not in _FIELDS
    shaped = handles.handle(text) or handles.as_uuid(text) or jump.is_digest(text) or is_address
    if not shaped or len(text) > LONGEST_ID or "\0" in text or len(text.split()) > 1:
        return None
    found = jump.jump(project, text)
    if len(found.hits) == 1:
        return found.hits[0].url
    if found.hits:
        return f"{reverse('go')}?{urlencode({'id': text})}"
    # The address of a pull request or a page that nobody gave as a reference: whatever speaks of it.
    return links.search(f'"{text}"') if _ADDRESS.match(text) else None


def search(page: Searched, project: Project, now_us: int) -> None:
    """Run what was read; a query that cannot be read becomes its fault."""
    begun, page.reader = time.perf_counter(), Reader(project, now_us)
    try:
        page.asked = asked = asking.understand(page.text, project, now_us)
    except Fault as fault:
        page.fault = fault
        return
    page.reader.follow(asked.context)
    if page.part:
        _overlook(page, asked)
        return
    by_id = _effects_by_id if page.entity == "effect" else None
    rows = _rows(asked.entity.name)
    try:
        page.answer = answer = asking.answer(asked, rows, before=page.before, after=page.after, by_id=by_id)
    except Fault as fault:  # more changed while it was read than can be made again
        page.fault = fault
        return
    if answer.groups is not None:
        page.groups = _groups(asked, answer.groups)
        page.count, page.more = len(page.groups), answer.groups.more
        page.took_ms = _since(begun)
        _blame(page, asked)
        return
    page.rows = list(as_rows(answer.rows)) if page.entity == "effect" else answer.rows
    if page.entity == "session" and page.cut is None:  # heartbeats are not in the journal
        liveness.attach(page.rows)
    if page.entity == "exemption":
        exempted.count_late(project, page.rows, page.reader.upto)
    page.snippets = found_words.snippets_of(asked, [row.pk for row in answer.rows])
    whole = page.before is None and page.after is None and answer.older is None and answer.looked_back_to is None
    page.count, page.more = (len(page.rows), False) if whole else asking.count(asked)
    page.took_ms = _since(begun)
    if page.rows and (whole or page.with_facets):  # of few matches it costs next to nothing
        _overlook(page, asked, [row.pk for row in answer.rows] if whole else None)
    if page.brushed and page.rows:
        page.apart = differing.apart(asked, page.brushed)
    if whole:
        _blame(page, asked)


def _blame(page: Searched, asked: Asked) -> None:
    if page.count or asked.query.condition is None:
        return
    page.told, page.kept = telling.told(asked.query), excluding.kept_away(asked)


def _overlook(page: Searched, asked: Asked, known: list[Any] | None = None) -> None:
    page.overview = facets.overview(asked, known)
    page.count, page.more = page.overview.count, page.overview.more
    page.drawing = histogram.draw(asked, page.overview, page.with_facets)


def _since(begun: float) -> int:
    return round((time.perf_counter() - begun) * 1000)


def ranges(asked: Asked) -> list[tuple[str, str, bool]]:
    """Times to narrow to: (word, query, whether it is the one asked for). Each only edits the text."""
    query, entity = asked.query, asked.entity
    always = editing.always(query, entity)
    standing = [node for node in reading.conjuncts(query) if isinstance(node, Term) and node.name in BOUNDS]
    said = standing[0].values[0].text if len(standing) == 1 else ""
    timeless = always == query.text.strip()
    return [
        ("any time", always, timeless),
        *((word, editing.lately(query, entity, age), said == age) for age, word in AGES),
    ]


def _groups(asked: Asked, groups: Any) -> list[Group]:
    plain, told = editing.ungrouped(asked.query), []
    for keys, figures in groups.rows:
        text, words = plain, []
        for named, key in zip(groups.names, keys, strict=True):
            value = "" if key is None else str(key)
            words.append((named.label, dict(named.choices).get(value, value)))
            condition = f"{named.name}:{editing.quoted(value)}" if value.strip() else f"-has:{named.name}"
            text = reading.read(editing.added(text, condition))
        kinds = [
            (str(one), "count" if of is None or one.function == "distinct" else of.kind) for one, of in groups.figures
        ]
        measured = [(name, value, kind) for (name, kind), value in zip(kinds, figures, strict=True)]
        told.append(Group(words, measured, links.search(text.text)))
    return told


def _effects(rows: "QuerySet[Any]") -> "QuerySet[Any]":
    return with_gists(
        rows,
        session_position=F("session__opened_position"),
        agent_name=F("agent__name"),
        repository_name=F("repository__name"),
    )


def _effects_by_id(project: UUID, ids: list[Any]) -> list[Any]:
    return _of_ids(len(ids)).rows(project=project, **{f"id_{number}": one for number, one in enumerate(ids)})


@lru_cache(maxsize=asking.SIZE)
def _of_ids(number: int) -> Compiled:
    """So many effects as the page shows them."""

    def build(project: UUID, **ids: UUID) -> "QuerySet[Any]":
        return _effects(Effect.objects.filter(project=project, pk__in=list(ids.values())))

    return Compiled(build, project=UUID, **{f"id_{one}": UUID for one in range(number)})


def _rows(entity: str) -> "Callable[[QuerySet[Any]], QuerySet[Any]]":
    """What the page's table of an entity needs beside the columns of its rows."""
    return _effects if entity == "effect" else columns.rows(entity)
