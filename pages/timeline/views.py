"""The timeline of a session: the table, its polled fragment, and the other views of it."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from accounts.access import MemberRequest, member_required
from accounts.header_counts import load_project_status
from db.clock import now_us
from display import display_state, keyset_pagination
from display.page_params import parse_number, parse_page_place
from display.time_limit import limit_view
from pages.history.views import timeline_as_of
from pages.sessions import data as sessions_data
from pages.sessions.data import load_session_or_404
from pages.timeline import clock_skew, filtered_effects, lanes, timeline_page


@require_safe
@member_required
@vary_on_headers("HX-Request")
@limit_view
def session_timeline(request: MemberRequest, session: UUID) -> HttpResponse:
    """Show the timeline; for a poll its fragment, or 204 if nothing is new."""
    since = parse_number(request.GET.get("since", ""), 18)
    if since is None:
        load_project_status(request)  # its position is that from before all rows
    row = load_session_or_404(request, session)
    if "asof" in request.GET:
        return timeline_as_of(request, row)
    if request.headers.get("HX-Request") != "true":
        view = timeline_page.parse_view(request.GET)
        if view != "table":
            return timeline_page.render_timeline(request, row, view)
        return render(
            request, "pages/timeline/timeline.html", build_table_context(request, row, now_us())
        )
    if since is not None:
        if not timeline_page.has_news(row, since):
            return HttpResponse(status=204)
        load_project_status(request)
        row = load_session_or_404(request, session)
    now = now_us()
    context = build_table_context(request, row, now)
    if request.GET.get("chart") == "1":  # of the session page, which has the drawing above
        context |= build_drawing_context(request, row, context, now) | {"is_fragment": True}
    return render(request, "pages/timeline/_timeline.html", context)


def build_table_context(request: MemberRequest, session: Any, now: int) -> dict[str, Any]:
    """Return the context of the timeline fragment."""
    place = parse_page_place(
        request.GET,
        (*timeline_page.FILTERS, "clocks", "times", *timeline_page.PICTURE),
        ("since", "live", "view", "chart"),
    )
    effect_filters = timeline_page.parse_timeline_filters(request.GET, place)
    paged = place.window != keyset_pagination.Window()
    # Read before the rows: an entry committed in between is shown twice, not missed.
    # An archive never changes.
    standing = load_project_status(request)
    since = None if paged or request.membership.project.archive else standing.position
    rows = filtered_effects.load_timeline_page(session, effect_filters, place.window, now)
    three = request.GET.get("clocks") == "three"
    answered = request.GET.get("times") == "answered"
    skews = clock_skew.load_skews([session], wanted=three)
    if three:
        agent_times = clock_skew.load_agent_times(
            [row.effect.plan_position for row in rows.rows if row.effect.plan_position]
        )
        for row in rows.rows:
            row.corrected_us = clock_skew.corrected_us(
                agent_times.get(row.effect.plan_position), skews[session.id]
            )
    return {
        "three": three,
        "skews": [("", skew) for skew in skews.values()],
        "clocks_link": _switch_link(request.GET, "clocks", "" if three else "three"),
        "answered": answered,
        "answered_link": _switch_link(request.GET, "times", "" if answered else "answered"),
        "agent_session": session,
        "counts": sessions_data.count_effects(session, now),
        "timeline": rows,
        "filters": effect_filters,
        "place": place,
        "states": display_state.STATES.items(),
        "outcomes": filtered_effects.OUTCOMES,
        "since": since,
        "polls": since is not None and request.GET.get("live") != "off",
        "paged": paged,
        "view": "table",
        "views": timeline_page.view_links(
            _filters_only(request.GET), reverse("session_timeline", args=[session.id])
        ),
    }


def build_drawing_context(
    request: MemberRequest, session: Any, shown: dict[str, Any], now: int
) -> dict[str, Any]:
    """Return the drawing of the effects that the table shows. At most three queries."""
    window = lanes.build_page_window(session, shown["timeline"], now)
    drawn = timeline_page.picture_context(
        request.GET,
        shown["place"],
        window,
        running=timeline_page.is_running(session),
        links=reverse("session", args=[session.id]),
        is_sized=False,
    )
    return {**drawn, "legend": display_state.STATES.values()}


def _switch_link(query: QueryDict, name: str, value: str) -> str:
    """Return the link that shows or hides more columns; an empty `value` hides them."""
    params = query.copy()
    for each in (name, "since", "chart"):
        params.pop(each, None)
    if value:
        params[name] = value
    return f"?{params.urlencode()}#timeline"


def _filters_only(query: QueryDict) -> QueryDict:
    """Return the filters of the query string without the page window."""
    params = QueryDict(mutable=True)
    params.update({name: str(query[name]) for name in timeline_page.FILTERS if query.get(name)})
    return params
