"""Keyset pagination of API lists: newest first by opening position."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import structlog
from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest

from api.problems import Problem
from display import time_limit

log = structlog.get_logger("gatebook.api")

MAX_LIMIT: Final = 200
DEFAULT_LIMIT: Final = 50
MAX_PARAMETER_CHARACTERS: Final = 300  # characters of a parameter
_TOO_LONG: Final = Problem(
    503,
    "unavailable",
    "The list took too long to read and was stopped. Filter by session or tool, or retry later.",
    headers={"Retry-After": "5"},
)


def parse_parameters(
    request: HttpRequest, allowed: set[str], longest: Mapping[str, int] | None = None
) -> dict[str, str]:
    """Parse the query string. Problem 422 for unknown or repeated parameters.

    `longest` maps parameters that may exceed MAX_PARAMETER_CHARACTERS characters to their limit.
    """
    params: dict[str, str] = {}
    for name, values in request.GET.lists():
        if name not in allowed:
            detail = (
                f"Unknown parameter {name[:50]!r}. Supported:"
                f" {', '.join(sorted(allowed)) or 'none'}."
            )
            raise Problem(422, "parameter_unknown", detail)
        if len(values) > 1:
            raise Problem(
                422, "invalid", f"`{name}` is repeated. Send it once.", pointer=f"/{name}"
            )
        text = str(values[0])
        limit = (longest or {}).get(name, MAX_PARAMETER_CHARACTERS)
        if not text or len(text) > limit or "\0" in text:
            raise Problem(
                422,
                "invalid",
                f"`{name}` is invalid. Send 1 to {limit:,} characters without NUL.",
                pointer=f"/{name}",
            )
        params[name] = text
    return params


def build_page(
    rows: QuerySet[Any], params: dict[str, str], describe: Callable[[Any], dict[str, Any]]
) -> dict[str, Any]:
    """Return one page: `{"items": […], "next": cursor or null}`.

    The client sends the cursor as `after`. Problem 503 if reading exceeds the search time limit.
    """
    limit = parse_whole_number(params, "limit", DEFAULT_LIMIT, MAX_LIMIT)
    after = parse_whole_number(params, "after", 0, 2**63 - 1)
    if after:
        rows = rows.filter(opened_position__lt=after)
    try:
        with time_limit.limit_time():
            found_rows = list(rows.order_by("-opened_position")[: limit + 1])
    except time_limit.QueryTimeout:
        log.warning(
            "list_stopped", names=sorted(params), limit_s=settings.GATEBOOK_SEARCH_TIMEOUT_S
        )
        raise _TOO_LONG from None
    more = len(found_rows) > limit
    return {
        "items": [describe(row) for row in found_rows[:limit]],
        "next": str(found_rows[limit - 1].opened_position) if more else None,
    }


def check_choice(params: dict[str, str], name: str, choices: Collection[str]) -> None:
    """Raise Problem 422 if the parameter is set to a value other than `choices`."""
    if name in params and params[name] not in choices:
        detail = f"`{name}` is invalid. Send one of {', '.join(choices)}."
        raise Problem(422, "invalid", detail, pointer=f"/{name}")


def check_session_named(params: dict[str, str], keys: Collection[str]) -> None:
    """Raise Problem 422 for a key that is unique only within a session, without `session`."""
    for name in keys:
        if name in params and "session" not in params:
            detail = f"`{name}` is unique only within a session. Send `session` too."
            raise Problem(422, "session_missing", detail, pointer=f"/{name}")


def parse_switch(params: dict[str, str], name: str, chosen: str, *, default: str = "0") -> bool:
    """Return whether a filter is on. Problem 422 for a value other than 0 and 1."""
    if params.get(name, default) not in ("0", "1"):
        detail = f"`{name}` is invalid. Send 1 (only {chosen}) or 0 (all)."
        raise Problem(422, "invalid", detail, pointer=f"/{name}")
    return params.get(name, default) == "1"


def parse_whole_number(
    params: dict[str, str], name: str, default: int, maximum: int, *, least: int = 1
) -> int:
    """Return an integer parameter, or `default`. Problem 422 if out of range."""
    text = params.get(name)
    if text is None:
        return default
    if not (
        text.isascii() and text.isdigit() and len(text) <= 19 and least <= int(text) <= maximum
    ):
        raise Problem(
            422,
            "invalid",
            f"`{name}` is invalid. Send a whole number from {least} to {maximum}.",
            pointer=f"/{name}",
        )
    return int(text)
