"""The first search of effects: by fields, newest first. Nothing is dropped silently; nothing reads without bound."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final

from django.db.models import F, QuerySet, Subquery

from inquiry import handles, keyset, shown
from inquiry.fields import FIELDS, NAMES, PAGING, TIMES, Context, Invalid, moment, nearest
from inquiry.handles import as_position
from inquiry.timeline import Row, as_rows, day_of, with_gists
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Project

SIZE: Final = 50
# Positions that one search by slow fields reads at most; the page says how far back it looked and goes on from there.
SLOW_WINDOW: Final = 300_000
_ARMS: Final = 3  # more disjoint conditions than this are asked as one
# Positions are handed out in the transaction that follows upon the arrival of a whole request. It may have to wait for
# others, and clocks are set; that it takes longer than this is out of the question.
_SLACK_US: Final = 3_600_000_000
LATEST_US: Final = 2**62


@dataclass(slots=True)
class Search:
    """What was asked for. `errors` are by field name ("" for the whole); with any of them nothing is searched."""

    context: Context
    values: dict[str, list[str]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    since_us: int | None = None
    until_us: int | None = None
    before: int | None = None
    after: int | None = None

    @property
    def general_error(self) -> str:
        """What was wrong with the question as a whole, "" for nothing."""
        return self.errors.get("", "")

    @property
    def slow(self) -> bool:
        """True when fields were named and no index serves any of them."""
        named = [name for name in self.values if name in FIELDS]
        return bool(named) and not any(_indexed(name, self.values[name]) for name in named)

    def query(self) -> list[tuple[str, str]]:
        """What was asked for as it stands in a URL, without the place in the pages."""
        return [(name, value) for name in NAMES for value in self.values.get(name, [])]


@dataclass(slots=True)
class Found:
    """One page of results. `looked_back_to` is where a slow search stopped looking, None when it saw everything."""

    rows: list[Row] = field(default_factory=list)
    older: int | None = None
    newer: int | None = None
    looked_back_to: int | None = None

    @property
    def day(self) -> str:
        """The day on which all of these rows arrived (UTC), "" when they are of several."""
        return day_of(row.effect.received_us for row in self.rows)

    @property
    def targets(self) -> bool:
        """True when any of these rows names a target."""
        effects = [row.effect for row in self.rows]
        return any(one.repository_id or one.ref or one.environment for one in effects)


def read(query: Mapping[str, Any], project: Project, now_us: int) -> Search:
    """Read a query string (values by name). Unknown names and impossible values become errors, never defaults."""
    search = Search(Context(project, now_us))
    for name, values in query.items():
        given = [value for value in values if value.strip()]
        if name in FIELDS or name in TIMES:
            if given:
                _read_field(search, name, given, now_us)
        elif name in PAGING:
            _read_place(search, name, given)
        else:
            guess = nearest(name)
            search.errors[""] = f"There is no field “{name[:60]}”" + (f"; did you mean “{guess}”?" if guess else ".")
    if search.since_us is not None and search.until_us is not None and search.since_us > search.until_us:
        search.errors["until"] = "Until is earlier than since: nothing can lie between them."
    if "session" in search.values and "session" not in search.errors:
        session = handles.session(project, search.values["session"][0])
        if session is None:
            search.errors["session"] = "No session of this project has that handle, id or key."
        else:
            search.context = replace(search.context, session=session)
    return search


def _read_field(search: Search, name: str, given: Sequence[str], now_us: int) -> None:
    search.values[name] = list(dict.fromkeys(value.strip() for value in given))
    try:
        if name in TIMES:
            us = moment(search.values[name][-1], now_us)
            search.values[name] = search.values[name][-1:]
            search.since_us, search.until_us = (us, search.until_us) if name == "since" else (search.since_us, us)
            return
        known = FIELDS[name]
        if len(search.values[name]) > 1 and not known.many:
            raise Invalid(f"{known.label} takes one value.")
        for value in search.values[name]:
            known.check(value)
    except Invalid as invalid:
        search.errors[name] = str(invalid)


def _read_place(search: Search, name: str, given: Sequence[str]) -> None:
    if not given:
        return
    position = as_position(given[-1])
    if position is None:
        search.errors[""] = f"“{name}” is the number of a journal position."
    elif name == "before":
        search.before = position
    else:
        search.after = position


def find(search: Search) -> Found:
    """Run a search that has no errors."""
    context = search.context
    parts = arms(search)
    lowest = None
    if search.slow and search.after is None:
        top = search.before if search.before is not None else _newest(context.project)
        lowest = max(top - SLOW_WINDOW, 0)
        parts = [part.filter(opened_position__gte=lowest) for part in parts]
    rows = with_gists(
        context.project.effects.all(),
        session_position=F("session__opened_position"),
        agent_name=F("agent__name"),
        repository_name=F("repository__name"),
    )
    page = keyset.merge(parts, rows, SIZE, keyset.Window(before=search.before, after=search.after))
    found = Found(as_rows(page.rows), page.older, page.newer)
    if lowest and page.older is None:
        found.looked_back_to = lowest
    return found


def arms(search: Search) -> "list[QuerySet[Effect]]":
    """The search as disjoint query sets, each of which one index can serve."""
    context = search.context
    effects = Effect.objects.all()
    # What stays within the project by itself is not asked for the project too: SQLite would then walk the project.
    if not any(FIELDS[name].walled for name in search.values if name in FIELDS):
        effects = effects.filter(project=context.project)
    effects = _within(effects, search)
    alternatives = []
    for name, values in search.values.items():
        if name in FIELDS:
            alternatives.append([arm for value in values for arm in FIELDS[name].arms(value, context)])
    count = 1
    for choices in alternatives:
        count *= len(choices)
    if count > _ARMS:
        alternatives = [[shown.any_of(choices)] for choices in alternatives]
    return [effects.filter(*combination) for combination in product(*alternatives)]


def _within(effects: "QuerySet[Effect]", search: Search) -> "QuerySet[Effect]":
    """Only effects whose first fact arrived in the time asked for. One query more.

    The time they arrived decides. Beside it stands a range of positions, so that an index leads there: above the last
    entry that arrived too long before to stand among them, below the first that arrived too long after.
    """
    since, until = search.since_us, search.until_us
    if since is None and until is None:
        return effects
    bounds = Project.objects.filter(id=search.context.project.id).values_list(
        Subquery(_before(since - _SLACK_US if since is not None else 0)),
        Subquery(_from(until + _SLACK_US if until is not None else LATEST_US)),
    )
    last_before, first_after = bounds[0]
    if since is not None:
        effects = effects.filter(received_us__gte=since)
    if last_before is not None:
        effects = effects.filter(opened_position__gt=last_before)
    if until is not None:
        effects = effects.filter(received_us__lt=until)
    if first_after is not None:
        effects = effects.filter(opened_position__lt=first_after)
    return effects


def _before(us: int) -> "QuerySet[Any, Any]":
    """The position of the last entry that arrived before `us`. One index probe."""
    return Entry.objects.filter(received_us__lt=us).order_by("-received_us", "-position").values("position")[:1]


def _from(us: int) -> "QuerySet[Any, Any]":
    """The position of the first entry that arrived at `us` or later. One index probe."""
    return Entry.objects.filter(received_us__gte=us).order_by("received_us", "position").values("position")[:1]


def _newest(project: Project) -> int:
    newest = project.effects.order_by("-opened_position").values_list("opened_position", flat=True).first()
    return (newest or 0) + 1


def is_slow(name: str) -> bool:
    """True for a field that no index serves."""
    return not FIELDS[name].index


def _indexed(name: str, values: list[str]) -> bool:
    """True when the named values are few enough in the book for their index to help."""
    if name == "state":
        return "acknowledged" not in values
    if name == "outcome":
        return "ok" not in values
    if name == "ref_class":
        return "other" not in values
    return not is_slow(name)
