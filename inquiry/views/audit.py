"""Search page, query completion, search language and jump to an id."""

from typing import Any, Final

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from inquiry import audit_page, jump, looks, patience, shipped
from inquiry.audit_page import LONGEST_ID, Elsewhere, Searched
from inquiry.query import completing, differing, reference, values
from inquiry.query.entities import DEFAULT, ENTITIES
from journal.clock import now_us
from journal.horizon import last_position
from sessions.access import MemberRequest, member
from sessions.people import pseudonym_of

# Numbers of built-in questions that the page head links to.
AT_HAND: Final = (
    2,
    5,
    6,
    7,
)


@require_safe
@member
@vary_on_headers("HX-Request")
def audit(request: MemberRequest) -> HttpResponse:
    """Show the results of a query, newest first.

    The query string holds the complete search.
    """
    page = audit_page.read(request.GET)
    if isinstance(page, Elsewhere):
        return redirect(page.url)
    if request.headers.get("HX-Request") != "true":
        page.part = ""
    project, stopped = request.membership.project, None
    try:
        with patience.limit(request.user.pk, in_turn=True):
            elsewhere = audit_page.identity(project, page.text)
            if elsewhere is not None:
                return redirect(elsewhere)
            request.read_to = last_position()
            if not page.refusal:
                audit_page.search(page, project, now_us())
    except patience.Overran as stop:
        stopped = stop
    template = "inquiry/found/_part.html" if page.part else "inquiry/audit.html"
    if page.answer is not None and page.text and stopped is None:
        actor = request.person.pseudonym or pseudonym_of(request.user)
        looks.searched(
            project.id, actor, page.text, entity=page.entity, found=page.count, more=page.more
        )
    if stopped is None:
        return render(request, template, _context(page), status=page.status)
    page.answer, page.overview, page.drawing = None, None, None
    answer = patience.overran(request, stopped, template, _context(page))
    if page.part:
        answer.status_code = 422  # the search page shows this status in place of the fragment
    return answer


@require_safe
@member
@patience.patient
def complete(request: MemberRequest) -> HttpResponse:
    """List completions of a query.

    `q` is the query, `at` the number of characters before the cursor.
    """
    text, at = request.GET.get("q", ""), request.GET.get("at", "")
    place = int(at) if at.isascii() and at.isdigit() and len(at) < 6 else len(text)
    completions = completing.complete(text.replace("\0", ""), place, request.membership.project)
    return render(request, "inquiry/found/_completions.html", {"found": completions})


@require_safe
@member
def language(request: MemberRequest) -> HttpResponse:
    """Show the complete search language from the field registry."""
    entities = [
        {
            "entity": entity,
            "fields": [
                (searchable, reference.example(entity, searchable))
                for searchable in entity.fields.values()
            ],
        }
        for entity in ENTITIES.values()
    ]
    context = {"grammar": reference.GRAMMAR, "entities": entities, "moments": values.MOMENTS}
    return render(request, "inquiry/language.html", context)


@require_safe
@member
@patience.patient
def go(request: MemberRequest) -> HttpResponse:
    """Redirect to the object that an id names, or list the candidates."""
    text = request.GET.get("id", "").strip()
    if not text or len(text) > LONGEST_ID or "\0" in text:
        return render(request, "inquiry/go.html", {"text": text[:LONGEST_ID], "unfit": bool(text)})
    matches = jump.jump(request.membership.project, text)
    if len(matches.hits) == 1:
        return redirect(matches.hits[0].url)
    return render(request, "inquiry/go.html", {"text": text, "jump": matches})


def _context(page: Searched) -> dict[str, Any]:
    return {
        "page": page,
        "questions": [
            (question.name, shipped.fill(question, {}))
            for question in map(shipped.BY_NUMBER.__getitem__, AT_HAND)
        ],
        "in_all": len(shipped.ALL),
        "registry": page.entity or DEFAULT,
        "ranges": audit_page.ranges(page.asked) if page.asked else [],
        "brushes": differing.brushes(page.asked) if page.asked and page.rows else [],
        "with_facets": page.place.url(facets=1),
        # The page already names indexes that lag; the fragment does not repeat the note.
        "overview_part": page.place.url(part="overview")
        + ("&noted=1" if page.asked and page.late else ""),
    }
