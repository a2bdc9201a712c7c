"""Lists of the API: newest first by opening position, exact fields only, keyset paging."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog
from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest

from ingest.problems import Problem
from inquiry import patience

log = structlog.get_logger("gatebook.ingest")

MOST: Final = 200
USUAL: Final = 50
LONGEST: Final = 300  # characters of a parameter
_TOO_LONG: Final = Problem(
    503,
    "unavailable",
    "This list took too long to read and was stopped. Ask for less (one session, one tool), or again later.",
    headers={"Retry-After": "5"},
)


def parameters(request: HttpRequest, allowed: set[str], longest: Mapping[str, int] | None = None) -> dict[str, str]:
    """The query string as values. Problem 422 for a name that is not offered, or twice: nothing is ignored.

    `longest` names those that may hold more than LONGEST characters, and how many.
    """
    asked: dict[str, str] = {}
    for name, values in request.GET.lists():
        if name not in allowed:
            detail = f"There is no parameter {name[:50]!r} here; offered are {', '.join(sorted(allowed))}."
            raise Problem(422, "parameter_unknown", detail)
        if len(values) > 1:
            raise Problem(422, "invalid", f"Send {name} once.", pointer=f"/{name}")
        text = str(values[0])
        most = (longest or {}).get(name, LONGEST)
        if not text or len(text) > most or "\0" in text:
            raise Problem(422, "invalid", f"{name} is 1 to {most:,} characters without NUL.", pointer=f"/{name}")
        asked[name] = text
    return asked


def page(rows: QuerySet[Any], asked: dict[str, str], describe: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """One page: `{"items": […], "next": cursor or null}`; the cursor goes into `after`.

    Problem 503 when it would take longer to read than a person's search may.
    """
    limit = whole_number(asked, "limit", USUAL, MOST)
    after = whole_number(asked, "after", 0, 2**63 - 1)
    if after:
        rows = rows.filter(opened_position__lt=after)
    try:
        with patience.in_time():
            found = list(rows.order_by("-opened_position")[: limit + 1])
    except patience.Overran:
        log.warning("list_stopped", names=sorted(asked), limit_s=settings.GATEBOOK_SEARCH_TIMEOUT_S)
        raise _TOO_LONG from None
    more = len(found) > limit
    return {
        "items": [describe(row) for row in found[:limit]],
        "next": str(found[limit - 1].opened_position) if more else None,
    }


def whole_number(asked: dict[str, str], name: str, usual: int, most: int, *, least: int = 1) -> int:
    """The parameter `name`, or `usual`. Problem 422 unless it is a whole number from `least` to `most`."""
    text = asked.get(name)
    if text is None:
        return usual
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and least <= int(text) <= most):
        raise Problem(422, "invalid", f"{name} is a whole number from {least} to {most}.", pointer=f"/{name}")
    return int(text)
