"""Reading the part of a query string that says where in a list the reader stands."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from django.http import QueryDict

from inquiry.handles import as_position
from inquiry.keyset import Window

PAGING: Final = frozenset({"before", "after", "at"})


@dataclass(slots=True)
class Place:
    """The window asked for, the filters beside it as they stand in a URL, and what was wrong with the query string."""

    window: Window = field(default_factory=Window)
    filters: list[tuple[str, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def url(self, **place: object) -> str:
        """The query string with the same filters and another place."""
        pairs = [*self.filters, *((name, str(value)) for name, value in place.items() if value is not None)]
        return f"?{urlencode(pairs)}"

    @property
    def kept(self) -> str:
        """The query string of the filters alone."""
        return f"?{urlencode(self.filters)}" if self.filters else "?"


def place_of(query: QueryDict, filters: Iterable[str], known: Iterable[str] = ()) -> Place:
    """Read the place from `query`. `filters` are kept in links; `known` are other names the page understands."""
    names = list(filters)
    place = Place(filters=[(name, str(query[name])) for name in names if query.get(name)])
    places: dict[str, int] = {}
    for name in PAGING:
        if query.get(name):
            position = as_position(str(query[name]))
            if position is None:
                place.errors.append(f"“{name}” is the number of a journal position; the newest rows are shown.")
            else:
                places[name] = position
    for name in query:
        if name not in names and name not in PAGING and name not in known:
            place.errors.append(
                f"There is no filter “{name[:60]}” here; it was left out. Known are: {', '.join(names)}."
            )
    for name in ("at", "after", "before"):
        if name in places:
            place.window = Window(**{name: places[name]})
            break
    return place
