"""Session list, session page with timeline, and the longer lists of a session."""

from typing import Any, Final
from uuid import UUID

from django.http import Http404, HttpResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from inquiry import (
    clocks,
    controls,
    filters,
    handed,
    incident_page,
    keyset,
    liveness,
    questions,
    resume,
    session_page,
    shown,
    timeline,
)
from inquiry.bundles import history
from inquiry.patience import patient
from inquiry.views import asof
from inquiry.views import timeline as lanes_views
from inquiry.views.place import Place, place_of
from journal.clock import now_us
from ledger import holds
from sessions import handoffs
from sessions.access import MemberRequest, may, member
from sessions.models import ITEM_STATES, Session
from sessions.standing import standing_of

SIZE: Final = 50
SUGGESTIONS: Final = 50  # names offered for completion
TIMELINE_FILTERS: Final = ("state", "outcome", "tool", "task", "problems")


@require_safe
@member
@patient
def sessions(request: MemberRequest) -> HttpResponse:
    """List the sessions of the project, newest first.

    The database filters and pages them.
    """
    project = request.membership.project
    place = place_of(request.GET, filters.SessionFilter.base_filters)
    joined = project.sessions.select_related("agent", "repository", "parent").annotate(
        **liveness.columns()
    )
    session_filter = filters.SessionFilter(request.GET, queryset=joined, request=request)
    is_valid = session_filter.is_valid() and not any(
        "\0" in value for value in request.GET.values()
    )
    page = keyset.page(session_filter.qs, SIZE, place.window) if is_valid else keyset.Page()
    context = {
        "filter": session_filter,
        "page": page,
        "place": place,
        "narrowed": bool(place.filters),
        "agents": project.agents.order_by("name").values_list("name", flat=True)[:SUGGESTIONS],
        "repositories": project.repositories.order_by("name").values_list("name", flat=True)[
            :SUGGESTIONS
        ],
    }
    return render(request, "inquiry/sessions.html", context)


@require_safe
@member
@patient
def session(request: MemberRequest, session: UUID) -> HttpResponse:
    """Show one session, its summary and its newest effects."""
    row = _session(request, session)
    if "asof" in request.GET:
        return asof.session(request, row)
    now = now_us()
    shown_timeline = _timeline(request, row, now)
    stops = holds.live(row.project_id) if standing_of(request).has_stops else []
    stop = holds.covering(stops, row.id, row.agent_id, "", None)
    answer = resume.judge(row, now, stops=stops)
    is_active_project = not request.membership.project.archive
    handoff = handoffs.unaccepted(row) if row.handoff_waits else None
    context = {
        **shown_timeline,
        "resume": answer,
        "controls": controls.standing(row, now, handoff) if row.controls_fired or handoff else [],
        "handoff": handed.shown([handoff])[0] if handoff is not None else None,
        "questions": questions.answers(row, shown_timeline["counts"], answer),
        "may_resolve": is_active_project and may(request.membership, "operator"),
        "may_export": is_active_project and may(request.membership, "operator"),
        "bundle": None if is_active_project else history.of_session(row),
        **({} if shown_timeline["paged"] else _around(row)),
        "elsewhere": session_page.elsewhere(row),
        "stop": stop,
        "lease_is_over": _is_over(row.lease_expires_at_us, now),
        "may_rule": is_active_project and may(request.membership, "reviewer"),
        "may_gather": may(request.membership, "reviewer"),
        "incidents": incident_page.of(row, "session"),
    }
    return render(request, "inquiry/session.html", context)


@require_safe
@member
@vary_on_headers("HX-Request")
@patient
def session_timeline(request: MemberRequest, session: UUID) -> HttpResponse:
    """Show the timeline page.

    For a poll of an open page, its fragment, or 204 if nothing is new.
    """
    row = _session(request, session)
    if "asof" in request.GET:
        return asof.timeline(request, row)
    if request.headers.get("HX-Request") != "true":
        view = lanes_views.view_of(request.GET)
        if view != "table":
            return lanes_views.answer(request, row, view)
        return render(request, "inquiry/timeline.html", _timeline(request, row, now_us()))
    since = request.GET.get("since", "")
    if (
        since.isascii()
        and since.isdigit()
        and len(since) < 19
        and not timeline.has_news(row, int(since))
    ):
        return HttpResponse(status=204)
    return render(request, "inquiry/_timeline.html", _timeline(request, row, now_us()))


@require_safe
@member
def session_tasks(request: MemberRequest, session: UUID) -> HttpResponse:
    """List every task of a session, newest first."""
    row = _session(request, session)
    place = place_of(request.GET, ())
    page = keyset.page(session_page.all_tasks(row), SIZE, place.window)
    return render(
        request, "inquiry/tasks.html", {"agent_session": row, "page": page, "place": place}
    )


@require_safe
@member
def session_artifacts(request: MemberRequest, session: UUID) -> HttpResponse:
    """List every artifact of a session, newest first."""
    row = _session(request, session)
    place = place_of(request.GET, ())
    page = keyset.page(row.artifacts.all(), SIZE, place.window)
    return render(
        request, "inquiry/artifacts.html", {"agent_session": row, "page": page, "place": place}
    )


@require_safe
@member
def task(request: MemberRequest, task: UUID) -> HttpResponse:
    """Show one task: its place in the tree and its items by state."""
    row = (
        request.membership.project.tasks.select_related("session", "parent").filter(id=task).first()
    )
    if row is None:
        raise Http404
    state = request.GET.get("state", "")
    place = place_of(request.GET, ("state",))
    if state and state not in ITEM_STATES:
        place.errors.append(
            f"Unknown item state “{state[:20]}”. Use one of {', '.join(ITEM_STATES)}."
        )
        state = ""
    context = {
        "task": row,
        "agent_session": row.session,
        "counts": session_page.item_counts(row),
        "items": session_page.items(row, state, place.window),
        "children": session_page.subtasks(row),
        "place": place,
        "state": state,
    }
    return render(request, "inquiry/task.html", context)


def _around(row: Session) -> dict[str, Any]:
    """Load what is below the timeline. Pages of older effects only link to it."""
    children, more_children = session_page.children(row)
    artifacts, more_artifacts = session_page.artifacts(row)
    tasks, more_tasks = session_page.tasks(row)
    return {
        "children": children,
        "more_children": more_children,
        "artifacts": artifacts,
        "more_artifacts": more_artifacts,
        "tasks": tasks,
        "more_tasks": more_tasks,
    }


def _is_over(expires_at_us: int | None, now: int) -> bool:
    return expires_at_us is not None and expires_at_us < now


def _session(request: MemberRequest, session_id: UUID) -> Any:
    row = session_page.session(request.membership.project, session_id)
    if row is None:
        raise Http404
    return row


def _timeline(request: MemberRequest, session: Any, now: int) -> dict[str, Any]:
    """Return the context of the timeline fragment."""
    place = place_of(request.GET, (*TIMELINE_FILTERS, "clocks"), ("since", "live", "view"))
    effect_filters = _filters(request.GET, place)
    paged = place.window != keyset.Window()
    # Read before the rows: an entry committed in between is shown twice, not missed.
    # An archive never changes.
    since = None if paged or request.membership.project.archive else session.settled_to
    if since is not None:
        request.read_to = since
    rows = timeline.timeline(session, effect_filters, place.window, now)
    three = request.GET.get("clocks") == "three"
    skews = clocks.skews([session], wanted=three)
    if three:
        agent_times = clocks.told(
            [row.effect.plan_position for row in rows.rows if row.effect.plan_position]
        )
        for row in rows.rows:
            row.corrected_us = clocks.corrected(
                agent_times.get(row.effect.plan_position), skews[session.id]
            )
    return {
        "three": three,
        "skews": [("", skew) for skew in skews.values()],
        "clocks_link": _clocks_link(request.GET, three=three),
        "agent_session": session,
        "counts": session_page.counts(session, now),
        "timeline": rows,
        "filters": effect_filters,
        "place": place,
        "states": shown.STATES.items(),
        "outcomes": timeline.OUTCOMES,
        "since": since,
        "polls": since is not None and request.GET.get("live") != "off",
        "paged": paged,
        "view": "table",
        "views": lanes_views.links(
            _kept(request.GET), reverse("session_timeline", args=[session.id])
        ),
    }


def _clocks_link(query: QueryDict, *, three: bool) -> str:
    """Return the link that shows all three clocks, or hides the extra ones."""
    params = query.copy()
    for name in ("clocks", "since"):
        params.pop(name, None)
    if not three:
        params["clocks"] = "three"
    return f"?{params.urlencode()}#timeline"


def _kept(query: QueryDict) -> QueryDict:
    """Return the filters of the query string without the page window."""
    params = QueryDict(mutable=True)
    params.update({name: str(query[name]) for name in TIMELINE_FILTERS if query.get(name)})
    return params


def _filters(query: QueryDict, place: Place) -> timeline.Filters:
    """Parse the filters; an invalid value adds an error and does not narrow the rows."""
    effect_filters, errors = timeline.filters_of(
        {name: query.get(name, "") for name in TIMELINE_FILTERS}
    )
    place.errors += errors
    return effect_filters
