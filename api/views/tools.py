"""Endpoint for the declaration of a tool."""

from django.http import HttpResponse

from api.endpoint import Call, build_json_response, get_endpoint
from api.pagination import parse_parameters
from api.problems import Problem
from ledger.tools import cache


@get_endpoint
def get_tool(call: Call) -> HttpResponse:
    """Return the declaration of a tool, or the defaults for an undeclared tool."""
    params = parse_parameters(call.request, {"name"})
    if "name" not in params:
        raise Problem(
            422,
            "invalid",
            "The parameter `name` is missing. Send GET /tools?name=git.push.",
            pointer="/name",
        )
    tool = cache.load_tool(call.project, params["name"])
    body = {
        "name": params["name"],
        "declared": tool is not cache.UNDECLARED,
        "class": tool.tool_class,
        "reversibility": tool.reversibility,
        "deadline_s": tool.deadline_s,
        "request_lifetime_s": tool.request_lifetime_s,
        "max_attempts": tool.max_attempts,
        "probe": tool.means.probe,
    }
    return build_json_response(200, body)
