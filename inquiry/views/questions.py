"""Built-in questions as forms, and permalinks of searches."""

from typing import Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from inquiry import pinned, shipped
from inquiry.addresses import of_search
from inquiry.patience import patient
from inquiry.query import completing
from inquiry.query.tree import Fault
from inquiry.shipped import MissingError
from journal.clock import now_us
from sessions.access import MemberRequest, member
from sessions.models import Project

# Other parameters have too many values to list.
OFFERED: Final = (
    "effect.tool",
    "event.actor",
)


@require_safe
@member
@patient
def questions(request: MemberRequest) -> HttpResponse:
    """Show all built-in questions with a field for each parameter."""
    return _page(request, {})


@require_safe
@member
@patient
def question(request: MemberRequest, number: int) -> HttpResponse:
    """Fill in one question and redirect to the search.

    Show its form again if a value is missing.
    """
    chosen = shipped.BY_NUMBER.get(number)
    if chosen is None:
        raise Http404
    values = {
        parameter.name: request.GET.get(parameter.name, "") for parameter in chosen.parameters
    }
    try:
        text = shipped.fill(chosen, values)
    except MissingError as missing:
        return _page(request, values, number, missing)
    return redirect(f"{reverse('audit')}?{urlencode({'q': text})}")


@require_safe
@member
def audit_link(request: MemberRequest) -> HttpResponse:
    """Show a permalink with absolute times, as of the last settled position."""
    text, context = request.GET.get("q", "").strip(), dict[str, Any]()
    try:
        pinned_query = pinned.pinned(text, now_us())
        path = of_search(pinned_query, request.membership.project)
        context = {"words": pinned_query, "address": f"{settings.GATEBOOK_URL}{path}"}
    except Fault as fault:
        context = {"error": fault.sentence}
    return render(
        request,
        "inquiry/link.html",
        {"text": text, **context},
        status=422 if "error" in context else 200,
    )


def _page(
    request: MemberRequest,
    values: dict[str, str],
    number: int = 0,
    missing: MissingError | None = None,
) -> HttpResponse:
    rows = [
        {
            "question": row,
            "fields": [
                {
                    "parameter": field,
                    "value": values.get(field.name, "") if row.number == number else field.default,
                    "error": str(missing)
                    if missing is not None and row.number == number and missing.name == field.name
                    else "",
                }
                for field in row.parameters
            ],
        }
        for row in shipped.ALL
    ]
    offered = {like: _offered(like, request.membership.project) for like in OFFERED}
    context = {"rows": rows, "offered": offered, "beginnings": shipped.BEGINNINGS}
    return render(request, "inquiry/questions.html", context, status=422 if missing else 200)


def _offered(like: str, project: Project) -> list[str]:
    """Return the values that the search box completes for a field."""
    text = like.replace(".", " ") + ":"
    options = completing.complete(text, len(text), project).options
    return [option.text.strip() for option in options if not option.text.startswith('"')]
