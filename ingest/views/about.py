"""Doors that tell about the API: its limits, its description, and what is not here."""

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
    """The one table of limits."""
    return as_json(200, limits())


@reading
def get_tool(call: Call) -> HttpResponse:
    """What the operator declared of one tool; of one that is not declared, what holds for it."""
    asked = parameters(call.request, {"name"})
    if "name" not in asked:
        raise Problem(422, "invalid", "Name the tool: GET /tools?name=git.push.", pointer="/name")
    found = declared.tool(call.project, asked["name"])
    body = {
        "name": asked["name"],
        "declared": found is not declared.UNDECLARED,
        "class": found.tool_class,
        "reversibility": found.reversibility,
        "deadline_s": found.deadline_s,
        "request_lifetime_s": found.request_lifetime_s,
        "max_attempts": found.max_attempts,
        "probe": found.means.probe,
    }
    return as_json(200, body)


@guarded("GET", "HEAD")
def openapi(_request: HttpRequest) -> HttpResponseBase:
    """The OpenAPI document; it holds nothing secret, so it needs no token."""
    return as_json(200, description())


@require_safe
@member
def read_description(request: MemberRequest) -> HttpResponse:
    """The same description as a page for people."""
    schemas = description()["components"]["schemas"]
    groups: dict[str, list[dict[str, Any]]] = {}
    for endpoint in ENDPOINTS:
        fields = _fields(endpoint.shape.__name__, schemas) if endpoint.shape is not None else []
        about = {"endpoint": endpoint, "fields": fields, "answers": sorted(endpoint.answers)}
        groups.setdefault(endpoint.tag, []).append(about)
    facts = {kind: _fields(shape.__name__, schemas) for kind, shape in SHAPES.items()}
    context = {"groups": groups, "envelope": _fields("Envelope", schemas), "facts": facts}
    return render(request, "ingest/description.html", context | {"limits": limits(), "refusals": REFUSALS})


def _fields(shape: str, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields of a shape, those it needs first."""
    schema = schemas[shape]
    needed = schema.get("required", [])
    return [
        {"name": name, "required": name in needed, "type": _type(about, schemas)}
        for name, about in sorted(schema["properties"].items(), key=lambda field: field[0] not in needed)
    ]


_WORDS: Final = {
    "string": "text",
    "integer": "whole number",
    "boolean": "true or false",
    "array": "list",
    "object": "object",
}


def _type(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    """What a field takes, in a few words."""
    if "anyOf" in schema:
        return " or ".join(_type(part, schemas) for part in schema["anyOf"] if part.get("type") != "null")
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    if "$ref" in schema:
        fields = schemas[schema["$ref"].rpartition("/")[2]]["properties"]
        return f"object of {', '.join(fields)}"
    words = _WORDS.get(schema.get("type", ""), "any JSON value")
    if schema.get("format") == "uuid":
        words = "id"
    if "maxLength" in schema:
        words += f", at most {schema['maxLength']} characters"
    if words == "list" and schema.get("items"):
        words += f" of: {_type(schema['items'], schemas)}"
    if "maximum" in schema:
        words += f", {schema.get('minimum', '…')} to {schema['maximum']}"
    return words


def not_found(_request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """No door at that address."""
    detail = "There is nothing at this address; /api/v1/openapi.json describes what there is."
    return problems.response(Problem(404, "not_found", detail))


def server_error(_request: HttpRequest) -> HttpResponse:
    """A fault of ours."""
    detail = "Gatebook failed to answer; nothing was recorded unless you were told so. Ask by receipt, then send again."
    return problems.response(Problem(500, "server_error", detail))


def bad_request(_request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """A request that cannot be read at all."""
    return problems.response(Problem(400, "bad_request", "The request cannot be read; send plain HTTP and JSON."))
