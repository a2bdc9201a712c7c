"""The stuck board, and the confirm page of what a person may do about one thing on it. Looking changes nothing."""

from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe
from django.views.decorators.vary import vary_on_headers

from inquiry import session_page
from inquiry.stuck import actions, board, why
from inquiry.stuck.rules import RULES, VERSION
from journal import beating
from journal.clock import now_us
from sessions.access import MemberRequest, may, member, requires
from sessions.refused import RefusedError
from sessions.standing import standing_of

SNOOZES: Final = {"1h": "one hour", "8h": "eight hours", "1d": "one day", "7d": "seven days"}


@require_safe
@member
@vary_on_headers("HX-Request")
def stuck(request: MemberRequest) -> HttpResponse:
    """What is stuck, by cause. A poll (`since`) is answered with news, or with 204."""
    mine, cause = request.GET.get("mine") == "1", request.GET.get("cause", "")
    cause = cause if board.is_cause(cause) else ""
    start = _start(request.GET.get("from", ""))
    standing, now = standing_of(request), now_us()
    found = board.of(
        request.membership.project, now, has_stops=standing.has_stops, mine=request.user.pk if mine else None
    )
    kept = urlencode({name: value for name, value in (("mine", "1" if mine else ""), ("cause", cause)) if value})
    polled = request.headers.get("HX-Request") == "true" and "since" in request.GET
    if polled:
        if request.GET["since"] == found.since:
            return HttpResponse(status=204)
        context = {"changed": True, "count": len(found.rows), "since": request.GET["since"], "kept": kept}
        return render(request, "inquiry/stuck/_news.html", context)
    if not mine:  # the rail of this very page says what the page says
        request.standing = standing._replace(stuck=len(found.rows))  # type: ignore[attr-defined]  # kept by standing_of
    groups = found.groups(cause, start)
    context = {
        "board": found,
        "groups": groups,
        "cause": cause,
        "count": len(found.rows),
        "snoozed": found.snoozed,
        "mine": mine,
        "kept": kept,
        "since": found.since,
        "polls": request.GET.get("live") != "off",
        "clear": found.clear(),
        "further": start + board.PAGE if cause and groups and groups[0].count > start + board.PAGE else None,
        "held_until": _held(standing.pulses, now),
        "rules": VERSION,
        "now": now,
        "may_act": may(request.membership, "reviewer"),
        "may_resolve": may(request.membership, "operator"),
    }
    return render(request, "inquiry/stuck/board.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@requires("reviewer")
def stuck_care(request: MemberRequest, rule: str, subject: UUID) -> HttpResponse:
    """Ask why, then release a lease, assign, snooze or unfold one stuck thing; recorded with actor and reason."""
    found = board.one(request.membership.project, rule, subject, now_us()) if rule in RULES else None
    if found is None:
        if rule in RULES and actions.is_of(request.membership.project, subject):
            return render(request, "inquiry/stuck/clear.html", {"rule": rule}, status=409)
        raise Http404
    row, held = found
    asked = request.POST if request.method == "POST" else request.GET
    do = asked.get("do", "") if asked.get("do", "") in actions.VERBS else "assign"
    if do == "release" and not row.releasable:
        do = "assign"
    error = ""
    if request.method == "POST":
        try:
            said = actions.act(do, row, held, request.POST, request.membership)
        except RefusedError as refusal:
            error = str(refusal)
        else:
            messages.success(request, said)
            return redirect("stuck")
    context: dict[str, Any] = {
        "row": row,
        "do": do,
        "rule_title": RULES[rule],
        "error": error,
        "reason": request.POST.get("reason", ""),
        "people": actions.people(request.membership.project) if do == "assign" else [],
        "chosen": request.POST.get("person", row.owner),
        "ends": SNOOZES,
        "end": request.POST.get("end", "1h"),
    }
    return render(request, "inquiry/stuck/care.html", context, status=422 if error else 200)


@require_safe
@member
def session_why(request: MemberRequest, session: UUID) -> HttpResponse:
    """Why a session waits, or does not: each rule's terms with their present values."""
    found = session_page.session(request.membership.project, session)
    if found is None:
        raise Http404
    return render(request, "inquiry/stuck/why.html", {"agent_session": found, "why": why.of(found, now_us())})


def _start(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def _held(words: str | None, now: int) -> int | None:
    """Until when alarms are held, if they are."""
    until = beating.held_until(words or "")
    return until if until > now else None
