"""Session list, session page with timeline, and the longer lists and stored state of a session."""

from typing import Any, Final
from uuid import UUID

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, has_role, member_required
from accounts.header_counts import load_project_status
from db import long_numbers
from db.clock import now_us
from display import access_log, keyset_pagination
from display.page_params import PagePlace, parse_page_place
from display.time_limit import limit_view
from investigation import repeated_calls
from investigation.bundles import imported_gates
from journal import sent_meta
from ledger import stops as ledger_stops
from monitoring.stuck import board
from pages.history import views
from pages.incidents import data
from pages.sessions import data as sessions_data
from pages.sessions import filters, handoff_facts, summary, triage
from pages.sessions.data import load_session_or_404
from pages.timeline.views import build_drawing_context, build_table_context
from recovery import detectors, liveness, resume
from sessions import checkpoints, decisions, facts, handoffs
from sessions.models import Session

SIZE: Final = 50
SUGGESTIONS: Final = 50  # names offered for completion


@require_safe
@member_required
@limit_view
def sessions_page(request: MemberRequest) -> HttpResponse:
    """List the project's sessions, newest first; the database filters and pages."""
    project, now = request.membership.project, now_us()
    names = (*filters.SessionFilter.base_filters, "show", "sort")
    place = parse_page_place(request.GET, names, ("further",))
    show, sort = request.GET.get("show", ""), request.GET.get("sort", "")
    for name, value, choices in (("show", show, triage.KINDS), ("sort", sort, triage.SORTS)):
        if value and value not in choices:
            place.errors.append(f"Unknown {name} “{value[:20]}”. All sessions are shown.")
    joined = project.sessions.select_related("agent", "repository", "parent").annotate(
        **liveness.liveness_columns()
    )
    joined = joined.filter(triage.kind_condition(project, show, now))
    session_filter = filters.SessionFilter(request.GET, queryset=joined, request=request)
    is_valid = session_filter.is_valid() and not any(
        "\0" in value for value in request.GET.values()
    )
    page: Any = keyset_pagination.Page()
    if is_valid and sort in triage.SORTS and sort:
        further = triage.parse_sorted_place(request.GET.get("further", ""))
        page = triage.load_sorted_page(session_filter.qs, project, sort, SIZE, further, now)
    elif is_valid:
        page = keyset_pagination.load_keyset_page(session_filter.qs, SIZE, place.window)
    problems = triage.count_problems(project, now, [row.id for row in page.rows])
    for row in page.rows:
        row.problems = problems[row.id]
    counts = triage.count_kinds(project, now)
    context = {
        "filter": session_filter,
        "page": page,
        "place": place,
        "narrowed": bool(place.filters) and {name for name, _ in place.filters} != {"sort"},
        "tabs": [
            (words, _list_link(place, "show", kind, ("sort",)), counts[kind], kind == show)
            for kind, words in triage.KINDS.items()
        ],
        "all_link": _list_link(place, "show", "", ("sort",)),
        "show": show if show in triage.KINDS else "",
        "sort": sort if sort in triage.SORTS else "",
        "sorts": [
            (words, _list_link(place, "sort", key), key == sort)
            for key, (words, _) in triage.SORTS.items()
        ],
        "agents": project.agents.order_by("name").values_list("name", flat=True)[:SUGGESTIONS],
        "repositories": project.repositories.order_by("name").values_list("name", flat=True)[
            :SUGGESTIONS
        ],
    }
    return render(request, "pages/sessions/sessions.html", context)


def _list_link(
    place: PagePlace, name: str, value: str, kept_names: tuple[str, ...] | None = None
) -> str:
    """Return the link to the list with another kind or order, and the filters of `kept_names`.

    All filters are kept by default.
    """
    kept = [
        (key, each)
        for key, each in place.filters
        if key != name and (kept_names is None or key in kept_names)
    ]
    return PagePlace(filters=[*kept, *([(name, value)] if value else [])]).kept


@require_safe
@member_required
@limit_view
def session_page_view(request: MemberRequest, session: UUID) -> HttpResponse:
    """Show one session, its summary and its newest effects."""
    load_project_status(request)  # its position is that from before all rows
    row = load_session_or_404(request, session)
    if "asof" in request.GET:
        return views.session_as_of(request, row)
    now = now_us()
    shown_timeline = build_table_context(request, row, now)
    stops = (
        ledger_stops.load_stops(row.project_id) if load_project_status(request).has_stops else []
    )
    stop = ledger_stops.find_covering_stop(stops, row.id, row.agent_id, "", None)
    answer = resume.decide_resume(resume.load_open_effects(row, now, stops=stops))
    is_active_project = not request.membership.project.archive
    handoff = handoffs.load_unaccepted_handoff(row) if row.handoff_waits else None
    context = {
        **shown_timeline,
        **build_drawing_context(request, row, shown_timeline, now),
        "resume": answer,
        "stuck_rows": board.load_session_rows(row) if row.is_stuck and not answer.ended else [],
        "controls": detectors.active_findings(row, now, handoff)
        if row.controls_fired or handoff
        else [],
        "handoff": handoff_facts.handoffs_for_page([handoff])[0] if handoff is not None else None,
        "questions": summary.answer_summary_questions(row, shown_timeline["counts"], answer),
        "may_resolve": is_active_project and has_role(request.membership, "operator"),
        "may_export": is_active_project and has_role(request.membership, "operator"),
        "bundle": None if is_active_project else imported_gates.bundle_of_session(row),
        **({} if shown_timeline["paged"] else _load_below_timeline(row)),
        "elsewhere": sessions_data.load_same_calls_of_session(row),
        "repeats": repeated_calls.load_repeats_of_session(row),
        "meta": sent_meta.format_meta(sent_meta.load_session_meta(row.id)),
        "stop": stop,
        "lease_is_over": _is_expired(row.lease_expires_at_us, now),
        "may_rule": is_active_project and has_role(request.membership, "reviewer"),
        "may_gather": has_role(request.membership, "reviewer"),
        "incidents": data.list_row_incidents(row, "session"),
    }
    page = render(request, "pages/sessions/session.html", context)
    of = (row.id, None, row.id)
    access_log.record_view(
        row.project_id, access_log.access_actor(request), "session", row.opened_position, of
    )
    return page


@require_safe
@member_required
def session_decisions(request: MemberRequest, session: UUID) -> HttpResponse:
    """List decisions and how they ended, newest first; `open=1` only unfinished."""
    session_row = load_session_or_404(request, session)
    place = parse_page_place(request.GET, ("open",))
    rows = decisions.query_decisions(session_row, open_only=request.GET.get("open") == "1")
    page = keyset_pagination.load_keyset_page(rows, SIZE, place.window)
    rows_shown = [decisions.decision_to_json(row) | {"row": row} for row in page.rows]
    return render(
        request,
        "pages/sessions/decisions.html",
        _list_context(session_row, page, place, decisions=rows_shown),
    )


@require_safe
@member_required
def session_handoffs(request: MemberRequest, session: UUID) -> HttpResponse:
    """List the handoffs of a session, newest first."""
    row = load_session_or_404(request, session)
    place = parse_page_place(request.GET, ())
    page = keyset_pagination.load_keyset_page(handoffs.query_handoffs(row), SIZE, place.window)
    return render(
        request,
        "pages/sessions/handoffs.html",
        _list_context(row, page, place, handoffs=handoff_facts.handoffs_for_page(page.rows)),
    )


@require_safe
@member_required
def session_state(request: MemberRequest, session: UUID) -> HttpResponse:
    """Show the stored checkpoints and the observed facts by source."""
    session_row = load_session_or_404(request, session)
    place, now = parse_page_place(request.GET, ()), now_us()
    page = keyset_pagination.load_keyset_page(
        facts.query_observed_facts(session_row), SIZE, place.window
    )
    drifting = facts.load_conflicting_facts(
        session_row, now, facts.load_fresh_facts(session_row, now)
    )
    rows_shown = [
        facts.fact_to_json(row, now)
        | {"value": _value_as_text(row, now), "drifts": row.name in drifting}
        for row in page.rows
    ]
    stored_checkpoints = [
        checkpoints.checkpoint_to_json(row, with_state=False)
        for row in checkpoints.load_checkpoints(session_row)
    ]
    return render(
        request,
        "pages/sessions/state.html",
        _list_context(session_row, page, place, facts=rows_shown, checkpoints=stored_checkpoints),
    )


def _list_context(session: Session, page: Any, place: Any, **rows: Any) -> dict[str, Any]:
    return {"agent_session": session, "page": page, "place": place, **rows}


def _value_as_text(row: Any, now: int) -> str | None:
    """Return a JSON value as one line of text; None if it was erased."""
    if row.text is None:
        return None
    value = facts.fact_to_json(row, now)["value"]
    return value if isinstance(value, str) else long_numbers.to_json_bytes(value).decode()


def _load_below_timeline(row: Session) -> dict[str, Any]:
    """Load what is below the timeline. Pages of older effects only link to it."""
    children, more_children = sessions_data.load_sub_sessions(row)
    artifacts, more_artifacts = sessions_data.load_session_artifacts(row)
    tasks, more_tasks = sessions_data.load_task_tree(row)
    return {
        "children": children,
        "more_children": more_children,
        "artifacts": artifacts,
        "more_artifacts": more_artifacts,
        "tasks": tasks,
        "more_tasks": more_tasks,
    }


def _is_expired(expires_at_us: int | None, now: int) -> bool:
    return expires_at_us is not None and expires_at_us < now
