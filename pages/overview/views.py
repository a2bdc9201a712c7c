"""The overview of a project."""

from typing import Any, Final

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from accounts import invitations
from accounts.access import MemberRequest, has_role, member_required
from accounts.header_counts import ProjectStatus, load_project_status
from db import jobs
from db.clock import now_us
from display.time_limit import limit_view
from pages.first_steps.views import HIDDEN_COOKIE
from pages.overview import data

MINUTE_US: Final = 60_000_000


@require_safe
@vary_on_headers("HX-Request")
def home_page(request: HttpRequest) -> HttpResponseBase:
    """Show the overview; people with an invitation see that first."""
    if (
        request.user.is_authenticated
        and request.headers.get("HX-Request") != "true"
        and invitations.query_invitations(request.user).exists()
    ):
        return redirect("invitations")
    return overview_page(request)


@member_required
@limit_view
def overview_page(request: MemberRequest) -> HttpResponse:
    """Show what waits, what is wrong and what was done; a poll (`since`) gets 204 or the board."""
    now, status = now_us(), load_project_status(request)
    mark = _build_mark(status, now)
    is_poll = request.headers.get("HX-Request") == "true" and "since" in request.GET
    if is_poll and request.GET["since"] == mark:
        return HttpResponse(status=204)
    context: dict[str, Any] = {
        "overview": data.load_overview(request.membership, status, now),
        "since": mark,
        "is_polling": request.GET.get("live") != "off",
        "is_table": request.GET.get("view") == "table",
        "may_review": has_role(request.membership, "reviewer"),
    }
    context["is_empty"] = context["overview"].is_empty
    context["hides_steps"] = bool(request.COOKIES.get(HIDDEN_COOKIE))
    template = "pages/overview/_board.html" if is_poll else "pages/overview/overview.html"
    return render(request, template, context)


def _build_mark(status: ProjectStatus, now: int) -> str:
    """Return a mark that changes with every entry of the journal, late job, and minute."""
    late = "".join(
        "x" if job.in_trouble else "-" for job in jobs.evaluate_jobs(status.job_texts or "", now)
    )
    return f"{status.position}-{status.waits}-{status.stuck}-{late}-{now // MINUTE_US}"
