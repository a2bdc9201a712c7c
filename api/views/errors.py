"""Answers outside the endpoints: an unknown URL, a malformed request, an unhandled error."""

from django.http import HttpRequest, HttpResponse

from api import problems
from api.problems import Problem


def handle_not_found(_request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Answer 404 for an unknown URL."""
    detail = "This URL does not exist. See /api/v1/openapi.json for all endpoints."
    return problems.build_problem_response(Problem(404, "not_found", detail))


def handle_server_error(_request: HttpRequest) -> HttpResponse:
    """Answer 500 for an unhandled exception."""
    detail = "Internal error. Check GET /events/receipt, then retry with the same Idempotency-Key."
    return problems.build_problem_response(Problem(500, "server_error", detail))


def handle_bad_request(_request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Answer 400 for a malformed request."""
    return problems.build_problem_response(
        Problem(400, "bad_request", "The request is malformed. Send valid HTTP and JSON.")
    )
