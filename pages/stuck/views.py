"""Views of the stuck board, its actions, and the explanation of one session."""

from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe
from django.views.decorators.vary import vary_on_headers

from accounts.access import MemberRequest, has_role, member_required, role_required
from accounts.header_counts import load_project_status
from db import jobs
from db.clock import now_us
from db.errors import ChangeRefused
from display.page_params import parse_number
from monitoring.stuck import actions, board, explain
from monitoring.stuck.rule_names import RULES
from monitoring.stuck.rules import RULES_VERSION
from pages.sessions import data
from pages.stuck import clock_strip

SNOOZES: Final = {"1h": "one hour", "8h": "eight hours", "1d": "one day", "7d": "seven days"}


@require_safe
@member_required
@vary_on_headers("HX-Request")
def stuck(request: MemberRequest) -> HttpResponse:
    """Show the board. A poll (`since`) gets the refresh link, or 204 without a change."""
    is_mine, cause = request.GET.get("mine") == "1", request.GET.get("cause", "")
    cause = cause if board.is_cause(cause) else ""
    start = parse_number(request.GET.get("from", ""), 5) or 0
    standing, now = load_project_status(request), now_us()
    board_now = board.load_board(
        request.membership.project,
        now,
        has_stops=standing.has_stops,
        owner_id=request.user.pk if is_mine else None,
    )
    filter_query = urlencode(
        {
            name: value
            for name, value in (("mine", "1" if is_mine else ""), ("cause", cause))
            if value
        }
    )
    polled = request.headers.get("HX-Request") == "true" and "since" in request.GET
    if polled:
        if request.GET["since"] == board_now.since:
            return HttpResponse(status=204)
        context = {
            "changed": True,
            "count": board_now.needing,
            "since": request.GET["since"],
            "filter_query": filter_query,
        }
        return render(request, "pages/stuck/_updates.html", context)
    if not is_mine:  # the rail shows the same count as the page
        request.standing = standing._replace(stuck=board_now.needing)  # type: ignore[attr-defined]  # kept by load_project_status
    groups = board_now.groups(cause, start)
    context = {
        "board": board_now,
        "groups": groups,
        "cause": cause,
        "count": board_now.needing,
        "apart": len(board_now.rows) - board_now.needing,
        "strip": clock_strip.draw_clock_strip(groups, now),
        "snoozed": board_now.snoozed,
        "is_mine": is_mine,
        "filter_query": filter_query,
        "since": board_now.since,
        "polls": request.GET.get("live") != "off",
        "clear": board_now.clear(),
        "further": start + board.PAGE
        if cause and groups and groups[0].count > start + board.PAGE
        else None,
        "paused_until": _pause_end(standing.job_texts, now),
        "rules": RULES_VERSION,
        "now": now,
        "may_act": has_role(request.membership, "reviewer"),
        "may_resolve": has_role(request.membership, "operator"),
    }
    return render(request, "pages/stuck/board.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("reviewer")
def stuck_care(request: MemberRequest, rule: str, subject: UUID) -> HttpResponse:
    """Confirm and carry out an action on one stuck item; records actor and reason."""
    loaded = (
        board.load_board_row(request.membership.project, rule, subject, now_us())
        if rule in RULES
        else None
    )
    if loaded is None:
        if rule in RULES and actions.is_subject_of_project(request.membership.project, subject):
            return render(request, "pages/stuck/no_longer_stuck.html", {"rule": rule}, status=409)
        raise Http404
    row, held = loaded
    params = request.POST if request.method == "POST" else request.GET
    do = params.get("do", "") if params.get("do", "") in actions.VERBS else "assign"
    if do == "release" and not row.releasable:
        do = "assign"
    error = ""
    if request.method == "POST":
        try:
            message = actions.run_action(do, row, held, request.POST, request.membership)
        except ChangeRefused as refusal:
            error = str(refusal)
        else:
            messages.success(request, message)
            return redirect("stuck")
    context: dict[str, Any] = {
        "row": row,
        "do": do,
        "rule_title": RULES[rule],
        "error": error,
        "reason": request.POST.get("reason", ""),
        "people": actions.list_assignable_people(request.membership.project)
        if do == "assign"
        else [],
        "chosen": request.POST.get("person", row.owner),
        "ends": SNOOZES,
        "end": request.POST.get("end", "1h"),
    }
    return render(request, "pages/stuck/action.html", context, status=422 if error else 200)


@require_safe
@member_required
def session_why(request: MemberRequest, session: UUID) -> HttpResponse:
    """Explain why a session waits or does not: the terms of each rule with current values."""
    agent_session = data.load_session_for_page(request.membership.project, session)
    if agent_session is None:
        raise Http404
    return render(
        request,
        "pages/stuck/explain.html",
        {"agent_session": agent_session, "why": explain.explain_session(agent_session, now_us())},
    )


def _pause_end(words: str | None, now: int) -> int | None:
    """Return until when alerts are paused, None if they are not."""
    until = jobs.alerts_paused_until(words or "")
    return until if until > now else None
