"""Built-in questions as forms."""

from typing import Final
from urllib.parse import urlencode

from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, member_required
from accounts.models import Project
from display.time_limit import limit_view
from investigation.query import autocomplete
from investigation.saved_queries import builtin_questions
from investigation.saved_queries.builtin_questions import ParameterError

# Other parameters have too many values to list.
FIELDS_WITH_SUGGESTIONS: Final = (
    "effect.tool",
    "event.actor",
)


@require_safe
@member_required
@limit_view
def questions_page(request: MemberRequest) -> HttpResponse:
    """Show all built-in questions with a field for each parameter."""
    return _render_questions(request, {})


@require_safe
@member_required
@limit_view
def run_question(request: MemberRequest, number: int) -> HttpResponse:
    """Fill in a question and redirect to the search, or ask for a missing value."""
    chosen = builtin_questions.QUESTIONS_BY_NUMBER.get(number)
    if chosen is None:
        raise Http404
    values = {
        parameter.name: request.GET.get(parameter.name, "") for parameter in chosen.parameters
    }
    try:
        text = builtin_questions.fill_question(chosen, values)
    except ParameterError as missing:
        return _render_questions(request, values, number, missing)
    return redirect(f"{reverse('search')}?{urlencode({'q': text})}")


def _render_questions(
    request: MemberRequest,
    values: dict[str, str],
    number: int = 0,
    missing: ParameterError | None = None,
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
        for row in builtin_questions.ALL_QUESTIONS
    ]
    offered = {
        like: _suggested_values(like, request.membership.project)
        for like in FIELDS_WITH_SUGGESTIONS
    }
    context = {"rows": rows, "offered": offered, "beginnings": builtin_questions.STARTING_POINTS}
    return render(request, "pages/search/questions.html", context, status=422 if missing else 200)


def _suggested_values(like: str, project: Project) -> list[str]:
    """Return the values that the search box completes for a field."""
    text = like.replace(".", " ") + ":"
    options = autocomplete.complete_query(text, len(text), project).options
    return [option.text.strip() for option in options if not option.text.startswith('"')]
