"""The questions that ship, each a form; and the link to a search that shows the same tomorrow."""

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

OFFERED: Final = ("effect.tool", "event.actor")  # of what else a form asks for there are too many to choose from


@require_safe
@member
@patient
def questions(request: MemberRequest) -> HttpResponse:
    """All of them, with a field for each value that they ask for."""
    return _page(request, {})


@require_safe
@member
@patient
def question(request: MemberRequest, number: int) -> HttpResponse:
    """Fill one in and go to the search; without what it asks for, its form with a sentence."""
    found = shipped.BY_NUMBER.get(number)
    if found is None:
        raise Http404
    given = {one.name: request.GET.get(one.name, "") for one in found.parameters}
    try:
        text = shipped.fill(found, given)
    except MissingError as missing:
        return _page(request, given, number, missing)
    return redirect(f"{reverse('audit')}?{urlencode({'q': text})}")


@require_safe
@member
def audit_link(request: MemberRequest) -> HttpResponse:
    """The address of a search whose ages are moments, as of the last settled position."""
    text, context = request.GET.get("q", "").strip(), dict[str, Any]()
    try:
        words = pinned.pinned(text, now_us())
        context = {"words": words, "address": f"{settings.GATEBOOK_URL}{of_search(words, request.membership.project)}"}
    except Fault as fault:
        context = {"error": fault.sentence}
    return render(request, "inquiry/link.html", {"text": text, **context}, status=422 if "error" in context else 200)


def _page(
    request: MemberRequest, given: dict[str, str], number: int = 0, missing: MissingError | None = None
) -> HttpResponse:
    rows = [
        {
            "question": one,
            "fields": [
                {
                    "parameter": field,
                    "value": given.get(field.name, "") if one.number == number else field.default,
                    "error": str(missing)
                    if missing is not None and one.number == number and missing.name == field.name
                    else "",
                }
                for field in one.parameters
            ],
        }
        for one in shipped.ALL
    ]
    offered = {like: _offered(like, request.membership.project) for like in OFFERED}
    context = {"rows": rows, "offered": offered, "beginnings": shipped.BEGINNINGS}
    return render(request, "inquiry/questions.html", context, status=422 if missing else 200)


def _offered(like: str, project: Project) -> list[str]:
    """Values that the box of the search would offer there."""
    text = like.replace(".", " ") + ":"
    found = completing.complete(text, len(text), project).options
    return [one.text.strip() for one in found if not one.text.startswith('"')]
