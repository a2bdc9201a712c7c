"""Endpoint for the limits of the API."""

from django.http import HttpResponse

from api.endpoint import Call, build_json_response, get_endpoint
from api.openapi.document import (
    get_api_limits,
)


@get_endpoint
def get_limits(_call: Call) -> HttpResponse:
    """Return the limits of the API."""
    return build_json_response(200, get_api_limits())
