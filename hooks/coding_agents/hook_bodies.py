"""Bodies of hooks: read what can be read, because every hook gets an answer.

The strict parser of the API decides what can be stored exactly. What it rejects is read leniently,
so that a result is recorded all the same. A call is planned only from an exact body: people approve
exactly what they see.
"""

import json
import re
from math import isfinite
from typing import Any, Final, NamedTuple

from django.http import HttpRequest

from api.problems import Problem
from api.strictjson import parser

HOOK_BYTES: Final = 32 * 1024 * 1024  # of a body
MAX_READ_DEPTH: Final = 24  # levels that a lenient reading keeps
_EVENT_NAME: Final = re.compile(rb'"hook_event_name"\s*:\s*"([A-Za-z]{1,64})"')
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class HookBody(NamedTuple):
    """The fields of a hook. `fault` says why they are not exactly what was sent; empty if exact."""

    fields: dict[str, Any]
    fault: str = ""
    event: str = ""  # the event's name where the body is not an object

    @property
    def event_name(self) -> str:
        """The event's name as far as it could be read."""
        name = self.fields.get("hook_event_name")
        return name if isinstance(name, str) else self.event


def read_hook_body(request: HttpRequest) -> HookBody:
    """Read the body of a hook; never raises a Problem."""
    try:
        raw = parser.read_body(request, limit=HOOK_BYTES)
    except Problem as problem:
        return HookBody({}, problem.detail)
    return parse_hook_body(raw)


def parse_hook_body(raw: bytes) -> HookBody:
    """Parse a hook, leniently where the strict parser rejects it."""
    try:
        return HookBody(parser.parse_object(raw).value)
    except Problem as problem:
        fault = problem.detail
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return HookBody(clean_value(value), fault)
    match = _EVENT_NAME.search(raw)
    return HookBody({}, fault, match[1].decode() if match else "")


def clean_value(value: Any, levels: int = MAX_READ_DEPTH) -> Any:
    """Return a JSON value that can be stored: without lone surrogates, NaN and deep nesting."""
    if isinstance(value, str):
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, dict):
        if not levels:
            return "…"
        return {clean_value(name): clean_value(item, levels - 1) for name, item in value.items()}
    if isinstance(value, list):
        return [clean_value(item, levels - 1) for item in value] if levels else "…"
    return value
