"""The search page, what completes its box, and the box that takes any identity."""

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

AT_HAND: Final = (2, 5, 6, 7)  # of the questions that ship: those that the head of the page links to


@require_safe
@member
@vary_on_headers("HX-Request")
def audit(request: MemberRequest) -> HttpResponse:
    """What a query finds, newest first. The query string is the whole question."""
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
        looks.searched(project.id, actor, page.text, entity=page.entity, found=page.count, more=page.more)
    if stopped is None:
        return render(request, template, _context(page), status=page.status)
    page.answer, page.overview, page.drawing = None, None, None
    answer = patience.overran(request, stopped, template, _context(page))
    if page.part:
        answer.status_code = 422  # which the page that asked for it shows in its place
    return answer


@require_safe
@member
@patience.patient
def complete(request: MemberRequest) -> HttpResponse:
    """What may stand at a place of a query, as a list: `q` the query, `at` the characters before the cursor."""
    text, at = request.GET.get("q", ""), request.GET.get("at", "")
    place = int(at) if at.isascii() and at.isdigit() and len(at) < 6 else len(text)
    found = completing.complete(text.replace("\0", ""), place, request.membership.project)
    return render(request, "inquiry/found/_completions.html", {"found": found})


@require_safe
@member
def language(request: MemberRequest) -> HttpResponse:
    """The whole language of the search, as the registry has it."""
    entities = [
        {"entity": entity, "fields": [(one, reference.example(entity, one)) for one in entity.fields.values()]}
        for entity in ENTITIES.values()
    ]
    told = {"grammar": reference.GRAMMAR, "entities": entities, "moments": values.MOMENTS}
    return render(request, "inquiry/language.html", told)


@require_safe
@member
@patience.patient
def go(request: MemberRequest) -> HttpResponse:
    """Go to what an identity names: straight there when it is one thing, else a page of what it may be."""
    text = request.GET.get("id", "").strip()
    if not text or len(text) > LONGEST_ID or "\0" in text:
        return render(request, "inquiry/go.html", {"text": text[:LONGEST_ID], "unfit": bool(text)})
    found = jump.jump(request.membership.project, text)
    if len(found.hits) == 1:
        return redirect(found.hits[0].url)
    return render(request, "inquiry/go.html", {"text": text, "jump": found})


def _context(page: Searched) -> dict[str, Any]:
    return {
        "page": page,
        "questions": [(one.name, shipped.fill(one, {})) for one in map(shipped.BY_NUMBER.__getitem__, AT_HAND)],
        "in_all": len(shipped.ALL),
        "registry": page.entity or DEFAULT,
        "ranges": audit_page.ranges(page.asked) if page.asked else [],
        "brushes": differing.brushes(page.asked) if page.asked and page.rows else [],
        "with_facets": page.place.url(facets=1),
        # What the page has said of an index that lags, its part does not say once more.
        "overview_part": page.place.url(part="overview") + ("&noted=1" if page.asked and page.late else ""),
    }
