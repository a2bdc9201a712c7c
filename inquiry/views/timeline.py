"""Timeline of a session or a set of effects in four views.

Lanes, compact, table and JSON.
"""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpResponse, JsonResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse

from inquiry import clocks, drawing, folding, lanes, shown, timeline
from inquiry.asof import lanes as asof_lanes
from inquiry.asof.cut import Cut
from inquiry.bars import Bar, Lanes
from inquiry.templatetags.inquiry import page_of
from inquiry.views.place import Place, place_of
from journal.clock import now_us
from sessions.access import MemberRequest
from sessions.models import ENDED, Session

VIEWS: Final = ("lanes", "compact", "table", "json")
FILTERS: Final = ("state", "outcome", "tool", "task", "problems")
KEPT: Final = (*FILTERS, "view", "size", "clock", "fold")
KNOWN: Final = ("unfold",)


@dataclass(slots=True)
class Asked:
    """Parsed parameters of a timeline; `place` has their errors."""

    place: Place
    filters: timeline.Filters
    view: str
    size: int


def asked_of(query: QueryDict, view: str, other_names: tuple[str, ...] = ()) -> Asked:
    """Parse the window, filters and size.

    `other_names` are further parameters of the page.
    """
    place = place_of(query, KEPT, (*KNOWN, *other_names))
    effect_filters, errors = timeline.filters_of({name: query.get(name, "") for name in FILTERS})
    place.errors += errors
    return Asked(place, effect_filters, view, lanes.size_of(query))


def answer(request: MemberRequest, session: Session, view: str) -> HttpResponse:
    """Show the timeline of `session` as lanes, compact or JSON.

    The session is of the member's project.
    """
    params = asked_of(request.GET, view)
    clock = lanes.clock_of(request.GET, session)
    window = lanes.read(
        session, params.filters, params.place.window, now_us(), size=params.size, clock=clock
    )
    if view == "json":
        window.skews = window.skews or clocks.skews([session])
        return JsonResponse(_as_json(session, window), json_dumps_params={"ensure_ascii": False})
    context = {
        "agent_session": session,
        **context_of(request.GET, params, window, running=runs(session)),
    }
    return render(request, "inquiry/lanes.html", context)


def answer_as_of(
    request: MemberRequest, live: Session, view: str, moment: Cut
) -> HttpResponse | None:
    """Show the timeline as of a moment; None if the session did not exist yet.

    Raises UnfitError.
    """
    params = asked_of(request.GET, view, ("asof",))
    # links keep the exact position, however the moment was given
    params.place.filters.append(("asof", moment.text))
    query = request.GET.copy()
    query["asof"] = moment.text
    clock = query.get("clock", "")
    past = asof_lanes.read(
        request.membership.project,
        live,
        moment,
        params.filters,
        params.place.window,
        size=params.size,
        clock=clock if clock in clocks.CLOCKS else "",
    )
    if past is None:
        return None
    session, window = past
    if view == "json":
        window.skews = window.skews or clocks.skews([session], upto=moment.position)
        body = {**_as_json(session, window), "as_of": moment.text}
        return JsonResponse(body, json_dumps_params={"ensure_ascii": False})
    asof_query = f"?{urlencode({'asof': moment.text})}"
    context = context_of(query, params, window, running=runs(session), same=asof_query)
    extra = {
        "agent_session": session,
        "live": live,
        "live_name": "session",
        "asof": moment,
        "same": asof_query,
    }
    return render(request, "inquiry/lanes.html", {**context, **extra})


def runs(session: Session) -> bool:
    """Return True if the session still runs, so that time passes in its timeline."""
    return session.mode != "reported" and session.status not in ENDED


def context_of(
    query: QueryDict,
    params: Asked,
    window: Lanes,
    *,
    running: bool,
    fold: str = "tool",
    same: str = "",
) -> dict[str, Any]:
    """Return the context of the timeline templates.

    `running`: the session still runs. `fold`: the default folding. `same`: the query string with
    which effect pages show the same moment, empty for now.
    """
    fold = folding.fold_of(query.get("fold", ""), fold)
    return {
        "lanes": window,
        "drawing": drawing.draw(window, lambda effect: page_of(effect.id, "effect") + same, running)
        if params.view == "lanes"
        else None,
        "groups": folding.groups(window, fold, query.get("unfold", "")),
        "folds": [
            (words, _with(query, fold=key), key == fold) for key, words in folding.FOLDS.items()
        ],
        "unfold": f"{_without(query, 'unfold')}&unfold=",
        "legend": shown.STATES.values(),
        "view": params.view,
        "views": links(query),
        "place": params.place,
        "filters": params.filters,
        "zoom": _zoom(params.place, window),
        "clocks": [
            (words, _with(query, clock=clock), clock == window.clock)
            for clock, words in clocks.NAMES.items()
        ],
        "skews": [
            (window.tasks[session_id][0] if window.across else "", skew)
            for session_id, skew in window.skews.items()
        ],
    }


def view_of(query: QueryDict, otherwise: str = "table") -> str:
    """Return the view that the query string asks for; `otherwise` if it is unknown."""
    view = query.get("view")
    return view if isinstance(view, str) and view in VIEWS else otherwise


def _with(query: QueryDict, **changed: str) -> str:
    params = query.copy()
    params.pop("unfold", None)
    for name, value in changed.items():
        params[name] = value
    return f"?{params.urlencode()}"


def _without(query: QueryDict, name: str) -> str:
    params = query.copy()
    params.pop(name, None)
    return f"?{params.urlencode()}"


def links(query: QueryDict, address: str = "") -> list[tuple[str, str]]:
    """Return the four views with their addresses, which keep the other parameters."""
    return [(view, address + _with(query, view=view)) for view in VIEWS]


def _zoom(place: Place, window: Lanes) -> dict[str, str]:
    """Return links to fewer and to more effects around the middle.

    Links that would show the same rows are left out.
    """
    links: dict[str, str] = {}
    if not window.bars:
        return links
    middle = window.bars[len(window.bars) // 2].effect.opened_position
    smaller_sizes = [size for size in lanes.SIZES if size < min(window.size, len(window.bars))]
    larger_sizes = [
        size
        for size in lanes.SIZES
        if size > window.size and not (window.older is window.newer is None)
    ]
    for name, sizes in (("in", smaller_sizes[-1:]), ("out", larger_sizes[:1])):
        for size in sizes:
            filters = [(key, value) for key, value in place.filters if key != "size"]
            links[name] = Place(filters=[*filters, ("size", str(size))]).url(
                at=None if window.is_newest else middle
            )
    return links


def as_json(window: Lanes) -> dict[str, Any]:
    """Return the rows as JSON.

    Times are microseconds; `at_us` is by the requested clock.
    """
    events = [
        {"position": event.position, "kind": event.kind, "at_us": event.at_us}
        for event in window.beside
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
        "effects": [_bar_as_json(bar, window) for bar in window.bars],
        "beside": events,
    }


def _bar_as_json(bar: Bar, window: Lanes) -> dict[str, Any]:
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
                "corrected_us": clocks.corrected(step.agent_us, skew),
                "lane": step.lane,
            }
            for step in bar.steps
        ],
    }


def _as_json(session: Session, window: Lanes) -> dict[str, Any]:
    gaps = [{"source": gap.source, "first": gap.first, "last": gap.last} for gap in window.gaps]
    return {"session": str(session), **as_json(window), "missing_numbers": gaps}
