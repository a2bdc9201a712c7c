"""The OpenAPI document of the API, and its page."""

from typing import Any, Final

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, member_required
from api.endpoint import build_json_response, handle_errors
from api.events.parse import EVENT_SCHEMAS
from api.openapi.document import (
    ENDPOINTS,
    ERROR_DESCRIPTIONS,
    build_openapi_document,
    get_api_limits,
)
from api.openapi.foreign_formats import FOREIGN_ENDPOINTS


@handle_errors("GET", "HEAD")
def get_openapi(_request: HttpRequest) -> HttpResponseBase:
    """Return the OpenAPI document. It contains no secrets, so no token is required."""
    return build_json_response(200, build_openapi_document())


@require_safe
@member_required
def show_api_page(request: MemberRequest) -> HttpResponse:
    """Show the API as an HTML page."""
    schemas = build_openapi_document()["components"]["schemas"]
    groups: dict[str, list[dict[str, Any]]] = {}
    for endpoint in (*ENDPOINTS, *FOREIGN_ENDPOINTS):
        fields = (
            _list_fields(endpoint.shape.__name__, schemas) if endpoint.shape is not None else []
        )
        entry = {"endpoint": endpoint, "fields": fields, "answers": sorted(endpoint.answers)}
        groups.setdefault(endpoint.tag, []).append(entry)
    facts = {kind: _list_fields(shape.__name__, schemas) for kind, shape in EVENT_SCHEMAS.items()}
    context = {"groups": groups, "envelope": _list_fields("Envelope", schemas), "facts": facts}
    return render(
        request,
        "api/reference.html",
        context | {"limits": get_api_limits(), "refusals": ERROR_DESCRIPTIONS},
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
