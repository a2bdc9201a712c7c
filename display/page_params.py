"""Parse the paging parameters of a query string."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from django.http import QueryDict

from display.handles import parse_position
from display.keyset_pagination import Window

PAGING_PARAMETERS: Final = frozenset({"before", "after", "at"})


@dataclass(slots=True)
class PagePlace:
    """A page window, the filters kept in links, and errors of the query string."""

    window: Window = field(default_factory=Window)
    filters: list[tuple[str, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def url(self, **place: object) -> str:
        """Return the query string with the same filters and another window."""
        pairs = [
            *self.filters,
            *((name, str(value)) for name, value in place.items() if value is not None),
        ]
        return f"?{urlencode(pairs)}"

    @property
    def kept(self) -> str:
        """Return the query string with only the filters."""
        return f"?{urlencode(self.filters)}" if self.filters else "?"


def parse_page_place(
    query: QueryDict, filters: Iterable[str], other_names: Iterable[str] = ()
) -> PagePlace:
    """Parse the place from `query`.

    `filters` are kept in links; `other_names` are further parameters that the page accepts.
    """
    names = list(filters)
    place = PagePlace(filters=[(name, str(query[name])) for name in names if query.get(name)])
    places: dict[str, int] = {}
    for name in PAGING_PARAMETERS:
        if query.get(name):
            position = parse_position(str(query[name]))
            if position is None:
                place.errors.append(
                    f"“{name}” must be a journal position. The newest rows are shown."
                )
            else:
                places[name] = position
    for name in query:
        if name not in names and name not in PAGING_PARAMETERS and name not in other_names:
            place.errors.append(
                f"Unknown filter “{name[:60]}” was ignored. Use one of: {', '.join(names)}."
            )
    for name in ("at", "after", "before"):
        if name in places:
            place.window = Window(**{name: places[name]})
            break
    return place


def parse_number(text: str, digits: int) -> int | None:
    """Return a number of at most `digits` ASCII digits; None for other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None
