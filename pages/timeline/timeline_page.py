"""Timeline of a session or a set of effects in four views.

Lanes, compact, table and JSON.
"""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpResponse, JsonResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse

from accounts.access import MemberRequest
from db.clock import now_us
from display import display_state
from display.page_params import PagePlace, parse_page_place
from investigation.history.moment import JournalCut
from journal.models import Entry
from journal.summaries import parse_body
from monitoring.stuck.episodes import STUCK_KINDS
from pages.templatetags.pages import page_url
from pages.timeline import bars, clock_skew, lanes, svg
from pages.timeline import history as asof_lanes
from pages.timeline.bars import Bar, TimelineWindow
from pages.timeline.filtered_effects import EffectFilters, parse_effect_filters
from sessions.models import ENDED, Session

VIEWS: Final = ("lanes", "compact", "table", "json")
FILTERS: Final = ("state", "outcome", "tool", "task", "problems")
PICTURE: Final = ("lanes", "range", "zoom")  # parameters of the drawing
MOST_ROWS: Final = 50  # of the table below a drawing; the table view pages through all
KEPT_PARAMETERS: Final = (*FILTERS, "view", "size", "clock", "fold", *PICTURE)
OTHER_PARAMETERS: Final = ("unfold",)


@dataclass(slots=True)
class TimelineParams:
    """Parsed parameters of a timeline; `place` has their errors."""

    place: PagePlace
    filters: EffectFilters
    view: str
    size: int


def parse_timeline_params(
    query: QueryDict, view: str, other_names: tuple[str, ...] = ()
) -> TimelineParams:
    """Parse window, filters and size; the page also accepts `other_names`."""
    place = parse_page_place(query, KEPT_PARAMETERS, (*OTHER_PARAMETERS, *other_names))
    filters = parse_timeline_filters(query, place)
    return TimelineParams(place, filters, view, lanes.parse_size(query))


def parse_timeline_filters(query: QueryDict, place: PagePlace) -> EffectFilters:
    """Parse the filters; an invalid value adds an error and does not narrow the rows."""
    filters, errors = parse_effect_filters({name: query.get(name, "") for name in FILTERS})
    place.errors += errors
    return filters


def render_timeline(request: MemberRequest, session: Session, view: str) -> HttpResponse:
    """Show the timeline of the member's `session` as lanes, compact or JSON."""
    params = parse_timeline_params(request.GET, view)
    window = lanes.load_session_window(
        session,
        params.filters,
        params.place.window,
        now_us(),
        size=params.size,
        clock=request.GET.get("clock", ""),
    )
    if view == "json":
        window.skews = window.skews or clock_skew.load_skews([session])
        return JsonResponse(
            _session_timeline_to_json(session, window), json_dumps_params={"ensure_ascii": False}
        )
    context = {
        "agent_session": session,
        **timeline_context(request.GET, params, window, running=is_running(session)),
    }
    return render(request, "pages/timeline/lanes.html", context)


def render_timeline_as_of(
    request: MemberRequest, live: Session, view: str, moment: JournalCut
) -> HttpResponse | None:
    """Show a past timeline; None if the session is newer. Raises CutError."""
    params = parse_timeline_params(request.GET, view, ("asof",))
    # links keep the exact position, however the moment was given
    params.place.filters.append(("asof", moment.text))
    query = request.GET.copy()
    query["asof"] = moment.text
    past = asof_lanes.load_past_lanes(
        request.membership.project,
        live,
        moment,
        params.filters,
        params.place.window,
        size=params.size,
        clock=query.get("clock", ""),
    )
    if past is None:
        return None
    session, window = past
    if view == "json":
        window.skews = window.skews or clock_skew.load_skews([session], upto=moment.position)
        body = {**_session_timeline_to_json(session, window), "as_of": moment.text}
        return JsonResponse(body, json_dumps_params={"ensure_ascii": False})
    asof_query = f"?{urlencode({'asof': moment.text})}"
    context = timeline_context(query, params, window, running=is_running(session), same=asof_query)
    extra = {
        "agent_session": session,
        "live": live,
        "live_name": "session",
        "asof": moment,
        "same": asof_query,
    }
    return render(request, "pages/timeline/lanes.html", {**context, **extra})


def has_news(session: Session, since: int) -> bool:
    """Return True if something was recorded after the stable position `since`.

    That a person looked changes nothing on the page.
    """
    later = Entry.objects.filter(session=session.id, position__gt=since)
    return later.exclude(kind="access.viewed").exists()


def is_running(session: Session) -> bool:
    """Return True if the session still runs, so that time passes in its timeline."""
    return session.mode != "reported" and session.status not in ENDED


def timeline_context(
    query: QueryDict,
    params: TimelineParams,
    window: TimelineWindow,
    *,
    running: bool,
    fold: str = "tool",
    same: str = "",
) -> dict[str, Any]:
    """Return the context of the timeline templates.

    `running`: the session still runs. `fold`: the default folding. `same`: the query string with
    which effect pages show the same moment, empty for now.
    """
    fold = bars.parse_fold(query.get("fold", ""), fold)
    groups = bars.group_bars(window, fold, query.get("unfold", ""))
    drawn = picture_context(query, params.place, window, running=running, same=same)
    return {
        "lanes": window,
        **(drawn if params.view == "lanes" else {}),
        "groups": groups[:MOST_ROWS] if params.view == "lanes" else groups,
        "more_groups": max(len(groups) - MOST_ROWS, 0) if params.view == "lanes" else 0,
        "folds": [
            (words, _query_with(query, fold=key), key == fold)
            for key, words in bars.FOLD_LABELS.items()
        ],
        "unfold": f"{_query_without(query, 'unfold')}&unfold=",
        "legend": display_state.STATES.values(),
        "view": params.view,
        "views": view_links(query),
        "place": params.place,
        "filters": params.filters,
        "clocks": [
            (words, _query_with(query, clock=clock), clock == window.clock)
            for clock, words in clock_skew.CLOCK_LABELS.items()
        ],
        "skews": [
            (window.tasks[session_id][0] if window.across else "", skew)
            for session_id, skew in window.skews.items()
        ],
    }


def picture_context(
    query: QueryDict,
    place: PagePlace,
    window: TimelineWindow,
    *,
    running: bool,
    same: str = "",
    links: str = "",
    is_sized: bool = True,
) -> dict[str, Any]:
    """Return the drawing of a window and the links that change it. No queries.

    `links`: the address of the page that the links show, empty for this one; `is_sized`: whether
    that page takes a number of effects.
    """
    window.by = _parse_lanes(query, window)
    zoom = next((zoom for zoom in svg.ZOOMS if str(zoom) == query.get("zoom")), 1)
    only = query.get("range", "")
    drawing = svg.draw_timeline(
        window, lambda effect: page_url(effect.id, "effect") + same, running, zoom, only
    )
    ranges = [
        (words, links + _query_with(query, range=key), key == only)
        for key, words in svg.RANGES.items()
        if key != "crash" or (drawing is not None and drawing.has_crash)
    ]
    return {
        "lanes": window,
        "drawing": drawing,
        "lane_kinds": []
        if window.across
        else [
            (words, links + _query_with(query, lanes=key), key == window.by)
            for key, words in bars.LANE_KINDS.items()
        ],
        "ranges": ranges,
        "zoom": {
            name: links + address
            for name, address in _zoom_links(query, place, window, zoom, is_sized=is_sized).items()
        },
        "is_whole": window.older is None
        and window.newer is None
        and not any(query.get(name) for name in FILTERS),
    }


def _parse_lanes(query: QueryDict, window: TimelineWindow) -> str:
    """Return what a lane is: as requested, else a task, else a tool if no effect has a task."""
    kind = query.get("lanes")
    if isinstance(kind, str) and kind in bars.LANE_KINDS:
        return kind
    return "task" if any(bar.lane is not None for bar in window.bars) else "tool"


def parse_view(query: QueryDict, otherwise: str = "table") -> str:
    """Return the view that the query string asks for; `otherwise` if it is unknown."""
    view = query.get("view")
    return view if isinstance(view, str) and view in VIEWS else otherwise


def _query_with(query: QueryDict, **changed: str) -> str:
    params = query.copy()
    for name in ("unfold", "since", "chart"):
        params.pop(name, None)
    for name, value in changed.items():
        params[name] = value
    kept = [(name, value) for name, value in params.items() if value]
    return f"?{urlencode(kept)}"


def _query_without(query: QueryDict, name: str) -> str:
    params = query.copy()
    params.pop(name, None)
    return f"?{params.urlencode()}"


def view_links(query: QueryDict, address: str = "") -> list[tuple[str, str]]:
    """Return the four views with their addresses, which keep the other parameters."""
    return [(view, address + _query_with(query, view=view)) for view in VIEWS]


def _zoom_links(
    query: QueryDict, place: PagePlace, window: TimelineWindow, zoom: int, *, is_sized: bool
) -> dict[str, str]:
    """Return links to a wider drawing or fewer effects, and to the opposite.

    Fewer and more effects are those around the middle.
    """
    links: dict[str, str] = {}
    if not window.bars:
        return links
    middle = window.bars[len(window.bars) // 2].effect.opened_position
    smaller_sizes = [size for size in lanes.SIZES if bars.DEFAULT_SIZE <= size < window.size]
    larger_sizes = [
        size
        for size in lanes.SIZES
        if size > window.size and not (window.older is window.newer is None)
    ]
    place_without_size = [(key, value) for key, value in place.filters if key != "size"]

    def resize(size: int) -> str:
        resized = PagePlace(filters=[*place_without_size, ("size", str(size))])
        return resized.url(at=None if window.is_newest else middle)

    if is_sized and smaller_sizes and len(window.bars) > smaller_sizes[-1]:
        links["in"] = resize(smaller_sizes[-1])
    elif zoom < svg.ZOOMS[-1]:
        links["in"] = _query_with(query, zoom=str(zoom * 2))
    if zoom > 1:
        links["out"] = _query_with(query, zoom=str(zoom // 2))
    elif is_sized and larger_sizes:
        links["out"] = resize(larger_sizes[0])
    return links


def timeline_to_json(window: TimelineWindow) -> dict[str, Any]:
    """Return the rows as JSON; times in microseconds, `at_us` by the given clock."""
    events = [
        {"position": event.position, "kind": event.kind, "at_us": event.at_us}
        | ({"rule": parse_body(event.facts).get("rule", "")} if event.kind in STUCK_KINDS else {})
        for event in window.session_events
    ]
    corrections = [
        {
            "session": str(event),
            "shift_us": skew.shift_us,
            "facts": skew.facts,
            "why_not": skew.why or None,
        }
        for event, skew in window.skews.items()
    ]
    return {
        "clock": window.clock,
        "corrections": corrections,
        "older": window.older,
        "newer": window.newer,
        "effects": [_bar_to_json(bar, window) for bar in window.bars],
        "session_events": events,
    }


def _bar_to_json(bar: Bar, window: TimelineWindow) -> dict[str, Any]:
    skew = window.skews.get(bar.effect.session_id)
    return {
        "effect": str(bar.effect),
        "id": str(bar.effect.id),
        "page": reverse("effect", args=[bar.effect.id]),
        "session": str(bar.effect.session_id),
        "tool": bar.effect.tool,
        "intent_digest": bar.effect.intent_digest or None,
        "task": f"t_{bar.effect.task_position}" if bar.effect.task_id is not None else None,
        "state": bar.state,
        "outcome": bar.effect.outcome or None,
        "attempts": bar.effect.attempt_count,
        "facts": [
            {
                "position": step.position,
                "what": step.what,
                "attempt": step.attempt,
                "at_us": step.at_us,
                "server_us": step.server_us,
                "agent_us": step.agent_us,
                "corrected_us": clock_skew.corrected_us(step.agent_us, skew),
                "lane": step.lane,
            }
            for step in bar.steps
        ],
    }


def _session_timeline_to_json(session: Session, window: TimelineWindow) -> dict[str, Any]:
    gaps = [{"source": gap.source, "first": gap.first, "last": gap.last} for gap in window.gaps]
    return {"session": str(session), **timeline_to_json(window), "missing_numbers": gaps}
