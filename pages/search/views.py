"""Search page, query completion, search language and jump to an id."""

from typing import Any, Final

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from accounts.access import MemberRequest, member_required
from accounts.people import ensure_pseudonym
from db.clock import now_us
from display import access_log, time_limit
from investigation.query import analysis, autocomplete, docs
from investigation.query.entities import DEFAULT, ENTITIES
from investigation.query.parser import values
from investigation.search import builtin_questions
from journal.settled_position import load_settled_position
from pages.search import data, jump
from pages.search.data import LONGEST_ID, RedirectTo, SearchPage

# Numbers of built-in questions that the page head links to.
HEAD_QUESTIONS: Final = (
    2,
    5,
    6,
    7,
)


@require_safe
@member_required
@vary_on_headers("HX-Request")
def search_page(request: MemberRequest) -> HttpResponse:
    """Show the results of a query, newest first.

    The query string holds the complete search.
    """
    page = data.parse_search_request(request.GET)
    if isinstance(page, RedirectTo):
        return redirect(page.url)
    if request.headers.get("HX-Request") != "true":
        page.part = ""
    project, stopped = request.membership.project, None
    try:
        with time_limit.limit_search(request.user.pk, in_turn=True):
            elsewhere = data.find_identity_url(project, page.text)
            if elsewhere is not None:
                return redirect(elsewhere)
            request.read_to = load_settled_position()
            if not page.refusal:
                data.run_search(page, project, now_us())
    except time_limit.QueryTimeout as stop:
        stopped = stop
    template = "pages/search/_group.html" if page.part else "pages/search/search.html"
    if page.answer is not None and page.text and stopped is None:
        actor = request.person.pseudonym or ensure_pseudonym(request.user)
        access_log.record_search(
            project.id, actor, page.text, entity=page.entity, found=page.count, more=page.more
        )
    if stopped is None:
        return render(request, template, _search_context(page), status=page.status)
    page.answer, page.overview, page.drawing = None, None, None
    answer = time_limit.render_query_timeout(request, stopped, template, _search_context(page))
    if page.part:
        answer.status_code = 422  # the search page shows this status in place of the fragment
    return answer


@require_safe
@member_required
@time_limit.limit_view
def complete_query(request: MemberRequest) -> HttpResponse:
    """List completions of a query.

    `q` is the query, `at` the number of characters before the cursor.
    """
    text, at = request.GET.get("q", ""), request.GET.get("at", "")
    place = int(at) if at.isascii() and at.isdigit() and len(at) < 6 else len(text)
    completions = autocomplete.complete_query(
        text.replace("\0", ""), place, request.membership.project
    )
    return render(request, "pages/search/_completions.html", {"found": completions})


@require_safe
@member_required
def search_language(request: MemberRequest) -> HttpResponse:
    """Show the complete search language from the field registry."""
    entities = [
        {
            "entity": entity,
            "fields": [
                (searchable, docs.example_condition(entity, searchable))
                for searchable in entity.fields.values()
            ],
        }
        for entity in ENTITIES.values()
    ]
    context = {"grammar": docs.GRAMMAR_EXAMPLES, "entities": entities, "moments": values.MOMENTS}
    return render(request, "pages/search/language.html", context)


@require_safe
@member_required
@time_limit.limit_view
def jump_to_id(request: MemberRequest) -> HttpResponse:
    """Redirect to the object that an id names, or list the candidates."""
    text = request.GET.get("id", "").strip()
    if not text or len(text) > LONGEST_ID or "\0" in text:
        return render(
            request, "pages/search/jump.html", {"text": text[:LONGEST_ID], "unfit": bool(text)}
        )
    matches = jump.find_by_any_id(request.membership.project, text)
    if len(matches.hits) == 1:
        return redirect(matches.hits[0].url)
    return render(request, "pages/search/jump.html", {"text": text, "jump": matches})


def _search_context(page: SearchPage) -> dict[str, Any]:
    return {
        "page": page,
        "questions": [
            (question.name, builtin_questions.fill_question(question, {}))
            for question in map(builtin_questions.QUESTIONS_BY_NUMBER.__getitem__, HEAD_QUESTIONS)
        ],
        "in_all": len(builtin_questions.ALL_QUESTIONS),
        "registry": page.entity or DEFAULT,
        "ranges": data.time_ranges(page.asked) if page.asked else [],
        "brushes": analysis.analysable_conditions(page.asked) if page.asked and page.rows else [],
        "with_facets": page.place.url(facets=1),
        # The page already names indexes that lag; the fragment does not repeat the note.
        "overview_part": page.place.url(part="overview")
        + ("&noted=1" if page.asked and page.late else ""),
    }
