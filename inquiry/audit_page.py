"""Data of the search page.

Parse the request, run the query, explain empty results.
"""

import difflib
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import F, QuerySet
from django.http import QueryDict
from django.urls import reverse

from inquiry import (
    columns,
    exempted,
    found_words,
    handles,
    histogram,
    jump,
    links,
    liveness,
)
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
AROUND: Final = 120  # characters of a query shown on either side of its error
AGES: Final = (("1h", "last hour"), ("24h", "24 h"), ("7d", "7 d"), ("30d", "30 d"))
PARTS: Final = ("overview",)
BOUNDS: Final = ("since", "until")
_FIELDS: Final = frozenset(name for entity in ENTITIES.values() for name in entity.fields)
_ADDRESS: Final = re.compile(r"https?://[^\"\\]+$", re.IGNORECASE)
# How errors of the query language end.
_MEANT: Final = re.compile(r"did you mean (?:is:)?“?([^”?]+)”?\?$")


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A redirect to another page."""

    url: str


@dataclass(slots=True)
class Searched:
    """Data of the search page. With a `fault` or a `refusal` nothing was searched."""

    text: str = ""
    before: int | None = None
    after: int | None = None
    with_facets: bool = False
    part: str = ""
    brushed: int = 0  # the number of the condition whose rows are compared with the others
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
    # By effect: where the searched words occur.
    snippets: dict[UUID, Snippet] = field(default_factory=dict)

    @property
    def status(self) -> int:
        """Return the HTTP status of the page."""
        return 400 if self.fault or self.refusal else 200

    @property
    def place(self) -> Place:
        """Return the query as links to other pages of the same results keep it."""
        filters = [("q", self.text)] if self.text else []
        return Place(filters=[*filters, *([("facets", "1")] if self.with_facets else [])])

    @property
    def entity(self) -> str:
        """Return the entity that is searched, empty for a query that cannot be parsed."""
        return self.asked.entity.name if self.asked else ""

    @property
    def cut(self) -> Cut | None:
        """Return the moment that the query is as of; None for now."""
        return (
            self.asked.past.cut if self.asked is not None and self.asked.past is not None else None
        )

    @property
    def late(self) -> list[Progress]:
        """Return the indexes that the results depend on and that have not read everything."""
        indexes = self.asked.context.indexes.values() if self.asked is not None else ()
        return [index for index in indexes if not index.complete]

    @property
    def asof(self) -> str:
        """Return the query string that shows the same moment on the pages of rows."""
        return f"?{urlencode({'asof': self.cut.text})}" if self.cut is not None else ""

    @property
    def present(self) -> str:
        """Return the same query as of now."""
        return editing.present(self.asked.query) if self.asked is not None else ""

    @property
    def day(self) -> str:
        """Return the day (UTC) on which all effects arrived, empty for several days."""
        return (
            day_of(row.effect.received_us for row in self.rows) if self.entity == "effect" else ""
        )

    @property
    def targets(self) -> bool:
        """Return True if an effect names a target and no snippets need the space."""
        effects = (
            [row.effect for row in self.rows]
            if self.entity == "effect" and not self.snippets
            else []
        )
        return any(effect.repository_id or effect.ref or effect.environment for effect in effects)

    @property
    def owners(self) -> bool:
        """Return True if any of these sessions has an owner."""
        return self.entity == "session" and any(row.owner_id for row in self.rows)

    @property
    def resumed(self) -> bool:
        """Return True if any of these sessions was resumed."""
        return self.entity == "session" and any(row.resumes for row in self.rows)

    @property
    def meant(self) -> str:
        """Return the query with the suggested name, empty without a suggestion."""
        nearest = _MEANT.search(self.fault.sentence) if self.fault else None
        if self.fault is None or nearest is None:
            return ""
        at, end = self.fault.at, self.fault.at + self.fault.length
        return self.text[:at] + editing.quoted(nearest[1]) + self.text[end:]

    @property
    def wrong(self) -> tuple[str, str, str]:
        """Return the query before the error, the error, and the query after it.

        Long ends are cut.
        """
        assert self.fault is not None  # noqa: S101 - asked for only where there is one
        at, end = self.fault.at, self.fault.at + self.fault.length
        before, after = self.text[:at], self.text[end : end + AROUND]
        return ("…" if len(before) > AROUND else "") + before[-AROUND:], self.text[at:end], after


@dataclass(frozen=True, slots=True)
class Group:
    """One row of a grouped result.

    (field, word) of keys, (figure, value, kind) of figures, and its link.
    """

    keys: list[tuple[str, str]]
    figures: list[tuple[str, Any, str]]
    url: str


def read(query: QueryDict) -> "Searched | Elsewhere":
    """Parse a query string. Unknown parameter names are refused."""
    page = Searched(text=str(query.get("q", "")).strip(), with_facets=query.get("facets") == "1")
    page.part = str(query.get("part", "")) if query.get("part") in PARTS else ""
    number = str(query.get("apart", ""))
    page.brushed = int(number) if number.isascii() and number.isdigit() and len(number) < 4 else 0
    refusal = _unknown_name(query)
    if refusal:
        page.refusal = refusal
        return page
    places: dict[str, int] = {}
    for name in ("before", "after"):
        if query.get(name):
            position = as_position(str(query[name]))
            if position is None:
                page.refusal = f"“{name}” must be a journal position. Enter a number."
                return page
            places[name] = position
    page.before, page.after = places.get("before"), places.get("after")
    if query.get("add"):
        return Elsewhere(links.search(_with(page.text, str(query["add"]))))
    return page


def _unknown_name(names: Iterable[str]) -> str:
    """Return an error about the first unknown name in `names`, or an empty string."""
    for name in names:
        if name not in NAMES:
            close = difflib.get_close_matches(name.lower(), NAMES, n=1, cutoff=0.5)
            hint = f"; did you mean “{close[0]}”?" if close else "."
            return f"There is no field “{name[:60]}”{hint}"
    return ""


def _with(text: str, condition: str) -> str:
    """Return the text with one more condition.

    For all results if the text parses, else at its end.
    """
    try:
        return editing.added(reading.read(text), condition)
    except Fault:
        return f"{text} {condition}"


def identity(project: Project, text: str) -> str | None:
    """Return the address of an object if the query is only its id.

    Handle, UUID, digest or address.
    """
    # `reference:https://…` is a query; looking it up as every kind of id would take longer.
    is_address = "://" in text and text.partition(":")[0] not in _FIELDS
    shaped = handles.handle(text) or handles.as_uuid(text) or jump.is_digest(text) or is_address
    if not shaped or len(text) > LONGEST_ID or "\0" in text or len(text.split()) > 1:
        return None
    matches = jump.jump(project, text)
    if len(matches.hits) == 1:
        return matches.hits[0].url
    if matches.hits:
        return f"{reverse('go')}?{urlencode({'id': text})}"
    # An address that no effect has as a reference: search for text that contains it.
    return links.search(f'"{text}"') if _ADDRESS.match(text) else None


def search(page: Searched, project: Project, now_us: int) -> None:
    """Run the parsed query; a query that cannot be parsed becomes the page's fault."""
    started, page.reader = time.perf_counter(), Reader(project, now_us)
    try:
        page.asked = compiled = asking.understand(page.text, project, now_us)
    except Fault as fault:
        page.fault = fault
        return
    page.reader.follow(compiled.context)
    if page.part:
        _overlook(page, compiled)
        return
    by_id = _effects_by_id if page.entity == "effect" else None
    rows = _rows(compiled.entity.name)
    try:
        page.answer = answer = asking.answer(
            compiled, rows, before=page.before, after=page.after, by_id=by_id
        )
    except Fault as fault:  # too many changes during the search to rebuild the moment
        page.fault = fault
        return
    if answer.groups is not None:
        page.groups = _groups(compiled, answer.groups)
        page.count, page.more = len(page.groups), answer.groups.more
        page.took_ms = _since(started)
        _blame(page, compiled)
        return
    page.rows = list(as_rows(answer.rows)) if page.entity == "effect" else answer.rows
    if page.entity == "session" and page.cut is None:  # heartbeats are not in the journal
        liveness.attach(page.rows)
    if page.entity == "exemption":
        exempted.count_late(project, page.rows, page.reader.upto)
    page.snippets = found_words.snippets_of(compiled, [row.pk for row in answer.rows])
    is_complete = (
        page.before is None
        and page.after is None
        and answer.older is None
        and answer.looked_back_to is None
    )
    page.count, page.more = (len(page.rows), False) if is_complete else asking.count(compiled)
    page.took_ms = _since(started)
    if page.rows and (is_complete or page.with_facets):  # with few matches the cost is negligible
        _overlook(page, compiled, [row.pk for row in answer.rows] if is_complete else None)
    if page.brushed and page.rows:
        page.apart = differing.apart(compiled, page.brushed)
    if is_complete:
        _blame(page, compiled)


def _blame(page: Searched, compiled: Asked) -> None:
    if page.count or compiled.query.condition is None:
        return
    page.told, page.kept = telling.told(compiled.query), excluding.kept_away(compiled)


def _overlook(page: Searched, compiled: Asked, ids: list[Any] | None = None) -> None:
    page.overview = facets.overview(compiled, ids)
    page.count, page.more = page.overview.count, page.overview.more
    page.drawing = histogram.draw(compiled, page.overview, page.with_facets)


def _since(started: float) -> int:
    return round((time.perf_counter() - started) * 1000)


def ranges(compiled: Asked) -> list[tuple[str, str, bool]]:
    """Return times to narrow to: (word, query, whether it is current).

    Each only edits the text.
    """
    query, entity = compiled.query, compiled.entity
    always = editing.always(query, entity)
    time_terms = [
        node for node in reading.conjuncts(query) if isinstance(node, Term) and node.name in BOUNDS
    ]
    since = time_terms[0].values[0].text if len(time_terms) == 1 else ""
    timeless = always == query.text.strip()
    return [
        ("any time", always, timeless),
        *((word, editing.lately(query, entity, age), since == age) for age, word in AGES),
    ]


def _groups(compiled: Asked, groups: Any) -> list[Group]:
    plain, rows = editing.ungrouped(compiled.query), []
    for keys, figures in groups.rows:
        text, words = plain, []
        for key_field, key in zip(groups.names, keys, strict=True):
            value = "" if key is None else str(key)
            words.append((key_field.label, dict(key_field.choices).get(value, value)))
            condition = (
                f"{key_field.name}:{editing.quoted(value)}"
                if value.strip()
                else f"-has:{key_field.name}"
            )
            text = reading.read(editing.added(text, condition))
        kinds = [
            (str(figure), "count" if of is None or figure.function == "distinct" else of.kind)
            for figure, of in groups.figures
        ]
        measured = [(name, value, kind) for (name, kind), value in zip(kinds, figures, strict=True)]
        rows.append(Group(words, measured, links.search(text.text)))
    return rows


def _effects(rows: "QuerySet[Any]") -> "QuerySet[Any]":
    return with_gists(
        rows,
        session_position=F("session__opened_position"),
        agent_name=F("agent__name"),
        repository_name=F("repository__name"),
    )


def _effects_by_id(project: UUID, ids: list[Any]) -> list[Any]:
    return _of_ids(len(ids)).rows(
        project=project, **{f"id_{number}": effect_id for number, effect_id in enumerate(ids)}
    )


@lru_cache(maxsize=asking.SIZE)
def _of_ids(number: int) -> Compiled:
    """Return the compiled query of `number` effects as the page shows them."""

    def build(project: UUID, **ids: UUID) -> "QuerySet[Any]":
        return _effects(Effect.objects.filter(project=project, pk__in=list(ids.values())))

    return Compiled(build, project=UUID, **{f"id_{index}": UUID for index in range(number)})


def _rows(entity: str) -> "Callable[[QuerySet[Any]], QuerySet[Any]]":
    """Return a function that adds the columns that the entity's table needs."""
    return _effects if entity == "effect" else columns.rows(entity)
