"""Search page, query completion, search language, permalinks and jump to an id."""

from typing import Any, Final

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from accounts.access import MemberRequest, member_required
from accounts.people import ensure_pseudonym
from db.clock import now_us
from display import access_log, time_limit, urls_of_rows
from display.page_params import parse_number
from investigation.query import autocomplete, docs, permalink
from investigation.query.entity_registry import ENTITIES
from investigation.query.parser import values
from investigation.query.parser.ast import QueryError
from investigation.saved_queries import builtin_questions, past_queries
from pages.search import jump
from pages.search.page import SearchPage, build_search_page
from pages.search.results import SearchResults, find_correction, load_search_results
from pages.search.search_request import RedirectTo, parse_search_request
from proofs.stable_position import load_stable_position

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
    """Show results, newest first. The query string holds the complete search."""
    is_fragment = request.headers.get("HX-Request") == "true"
    search = parse_search_request(request.GET, accepts_fragment=is_fragment)
    if isinstance(search, RedirectTo):
        return redirect(search.url)
    project = request.membership.project
    results, error, timeout, correction = None, search.error, None, ""
    number_matches: jump.JumpResult | None = None
    try:
        with time_limit.limit_search(request.user.pk, waits_for_slot=True):
            identity_url = jump.find_identity_url(project, search.text)
            if identity_url is not None:
                return redirect(identity_url)
            if jump.is_bare_number(search.text) and not search.part:
                number_matches = jump.find_by_any_id(project, search.text)
            # The page names this position. Read first: the rows include every entry up to it.
            request.read_to = load_stable_position()
            try:
                if search.query is not None:
                    results = load_search_results(search, search.query, project, now_us())
            except QueryError as query_error:
                error = query_error
            if not search.refusal:
                correction = find_correction(search, error, project, now_us())
    except QueryError as query_error:
        error = query_error
    except time_limit.QueryTimeout as query_timeout:
        timeout = query_timeout
    page = build_search_page(search, results, error, correction)
    template = "pages/search/_overview.html" if search.part else "pages/search/search.html"
    if timeout is not None:
        answer = time_limit.render_query_timeout(request, timeout, template, _context(page))
        if search.part:
            answer.status_code = 422  # The search page shows this status in place of the fragment.
        return answer
    if results is not None and results.answer is not None and search.text:
        _record_search(request, page, results)
    context = _context(page) | {"number_matches": number_matches}
    if not search.text and not search.part:
        context["past"] = past_queries.load_past_queries(project, access_log.access_actor(request))
    return render(request, template, context, status=page.status)


@require_safe
@member_required
@time_limit.limit_view
def complete_query_page(request: MemberRequest) -> HttpResponse:
    """List completions of the query `q` at its character `at`."""
    text, place = request.GET.get("q", ""), parse_number(request.GET.get("at", ""), 5)
    completions = autocomplete.complete_query(
        text.replace("\0", ""), len(text) if place is None else place, request.membership.project
    )
    return render(request, "pages/search/_completions.html", {"completions": completions})


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
    """Redirect to the object that an id names, list the candidates, or search for the words."""
    text = request.GET.get("id", "").strip()
    if not text or len(text) > jump.LONGEST_ID or "\0" in text:
        return render(
            request,
            "pages/search/jump.html",
            {"text": text[: jump.LONGEST_ID], "unfit": bool(text)},
        )
    matches = jump.find_by_any_id(request.membership.project, text)
    # A plain word can be a key and a word of many other rows: the person chooses.
    is_word = text.isalpha() and not jump.is_id_shaped(text)
    if len(matches.hits) == 1 and not is_word:
        return redirect(matches.hits[0].url)
    number = "".join(text.split())  # digits may be grouped
    if not matches.hits and jump.is_bare_number(number):
        return redirect(urls_of_rows.build_search_url(number))
    if not matches.hits and not jump.is_id_shaped(text):
        return redirect(urls_of_rows.build_search_url(text))
    return render(request, "pages/search/jump.html", {"text": text, "jump": matches})


def _record_search(request: MemberRequest, page: SearchPage, results: SearchResults) -> None:
    actor = request.person.pseudonym or ensure_pseudonym(request.user)
    access_log.record_search(
        request.membership.project.id,
        actor,
        page.request.text,
        entity=page.entity,
        row_count=results.count,
        more=results.more,
    )


def _context(page: SearchPage) -> dict[str, Any]:
    return {
        # Set where a search was stopped. A name that is missing costs a template ten times as much.
        "limit_s": "",
        "no_place": False,
        "at_once": 0,
        "page": page,
        "results": page.results,
        "entities": [(entity.name, entity.plural) for entity in ENTITIES.values()],
        "questions": [
            (question.name, builtin_questions.fill_question(question, {}))
            for question in map(builtin_questions.QUESTIONS_BY_NUMBER.__getitem__, HEAD_QUESTIONS)
        ],
        "in_all": len(builtin_questions.ALL_QUESTIONS),
        "beginnings": builtin_questions.STARTING_POINTS,
    }


@require_safe
@member_required
def permalink_page(request: MemberRequest) -> HttpResponse:
    """Show a permalink with absolute times, as of the last settled position."""
    text, context = request.GET.get("q", "").strip(), dict[str, Any]()
    try:
        pinned_query = permalink.pin_query(text, now_us())
        path = urls_of_rows.search_url_for_project(pinned_query, request.membership.project)
        context = {
            "words": pinned_query,
            "address": f"{settings.GATEBOOK_URL}{path}",
            "position": permalink.find_position(pinned_query),
        }
    except QueryError as fault:
        context = {"error": fault.sentence}
    return render(
        request,
        "pages/search/permalink.html",
        {"text": text, **context},
        status=422 if "error" in context else 200,
    )
