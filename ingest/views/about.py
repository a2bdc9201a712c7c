"""Endpoints about the API itself: limits, tools, OpenAPI document, error handlers."""

from typing import Any, Final

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ingest import problems
from ingest.doors import Call, as_json, guarded, reading
from ingest.openapi import ENDPOINTS, REFUSALS, description, limits
from ingest.paging import parameters
from ingest.problems import Problem
from ingest.reported import SHAPES
from ledger import declared
from sessions.access import MemberRequest, member


@reading
def get_limits(_call: Call) -> HttpResponse:
    """Return the limits of the API."""
    return as_json(200, limits())


@reading
def get_tool(call: Call) -> HttpResponse:
    """Return the declaration of a tool, or the defaults for an undeclared tool."""
    params = parameters(call.request, {"name"})
    if "name" not in params:
        raise Problem(
            422,
            "invalid",
            "The parameter `name` is missing. Send GET /tools?name=git.push.",
            pointer="/name",
        )
    tool = declared.tool(call.project, params["name"])
    body = {
        "name": params["name"],
        "declared": tool is not declared.UNDECLARED,
        "class": tool.tool_class,
        "reversibility": tool.reversibility,
        "deadline_s": tool.deadline_s,
        "request_lifetime_s": tool.request_lifetime_s,
        "max_attempts": tool.max_attempts,
        "probe": tool.means.probe,
    }
    return as_json(200, body)


@guarded("GET", "HEAD")
def openapi(_request: HttpRequest) -> HttpResponseBase:
    """Return the OpenAPI document. It contains no secrets, so no token is required."""
    return as_json(200, description())


@require_safe
@member
def read_description(request: MemberRequest) -> HttpResponse:
    """Show the API as an HTML page."""
    schemas = description()["components"]["schemas"]
    groups: dict[str, list[dict[str, Any]]] = {}
    for endpoint in ENDPOINTS:
        fields = (
            _list_fields(endpoint.shape.__name__, schemas) if endpoint.shape is not None else []
        )
        entry = {"endpoint": endpoint, "fields": fields, "answers": sorted(endpoint.answers)}
        groups.setdefault(endpoint.tag, []).append(entry)
    facts = {kind: _list_fields(shape.__name__, schemas) for kind, shape in SHAPES.items()}
    context = {"groups": groups, "envelope": _list_fields("Envelope", schemas), "facts": facts}
    return render(
        request, "ingest/description.html", context | {"limits": limits(), "refusals": REFUSALS}
    )


def _list_fields(shape: str, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    """List the fields of a schema, required fields first."""
    schema = schemas[shape]
    needed = schema.get("required", [])
    return [
        {"name": name, "required": name in needed, "type": _describe_type(field_schema, schemas)}
        for name, field_schema in sorted(
            schema["properties"].items(), key=lambda field: field[0] not in needed
        )
    ]


_TYPE_LABELS: Final = {
    "string": "text",
    "integer": "whole number",
    "boolean": "true or false",
    "array": "list",
    "object": "object",
}


def _describe_type(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    """Describe the type of a field in a few words."""
    if "anyOf" in schema:
        return " or ".join(
            _describe_type(part, schemas) for part in schema["anyOf"] if part.get("type") != "null"
        )
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    if "$ref" in schema:
        fields = schemas[schema["$ref"].rpartition("/")[2]]["properties"]
        return f"object of {', '.join(fields)}"
    label = _TYPE_LABELS.get(schema.get("type", ""), "any JSON value")
    if schema.get("format") == "uuid":
        label = "id"
    if "maxLength" in schema:
        label += f", at most {schema['maxLength']} characters"
    if label == "list" and schema.get("items"):
        label += f" of: {_describe_type(schema['items'], schemas)}"
    if "maximum" in schema:
        label += f", {schema.get('minimum', '…')} to {schema['maximum']}"
    return label


def not_found(_request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Answer 404 for an unknown URL."""
    detail = "This URL does not exist. See /api/v1/openapi.json for all endpoints."
    return problems.response(Problem(404, "not_found", detail))


def server_error(_request: HttpRequest) -> HttpResponse:
    """Answer 500 for an unhandled exception."""
    detail = "Internal error. Check GET /events/receipt, then retry with the same Idempotency-Key."
    return problems.response(Problem(500, "server_error", detail))


def bad_request(_request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Answer 400 for a malformed request."""
    return problems.response(
        Problem(400, "bad_request", "The request is malformed. Send valid HTTP and JSON.")
    )
