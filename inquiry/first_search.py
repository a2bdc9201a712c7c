"""Links of the first search, which had a form with a field for each thing, as queries that say the same."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Final

from inquiry.query import editing

# In the order in which the first search knew them. Each is a field of effects under the same name, but for the flag.
NAMES: Final = (
    *("state", "outcome", "tool", "agent", "on_behalf_of", "session", "repository", "ref", "ref_class", "environment"),
    *("leave", "reference", "key", "intent", "judged", "violating", "since", "until"),
)


class Unknown(ValueError):
    """A name that neither search knows; the message is a sentence about it."""


def query_of(asked: Mapping[str, Sequence[str]], known: Sequence[str]) -> str | None:
    """The query for a query string of the first search; None when it has none of its names.

    `known` are the names that the search of today takes. Raises Unknown.
    """
    for name in asked:
        if name not in NAMES and name not in known:
            close = difflib.get_close_matches(name.lower(), NAMES, n=1, cutoff=0.5)
            meant = f"; did you mean “{close[0]}”?" if close else "."
            raise Unknown(f"There is no field “{name[:60]}”{meant}")
    if not any(name in NAMES for name in asked):
        return None
    told = []
    for name in NAMES:
        values = list(dict.fromkeys(value.strip() for value in asked.get(name, ()) if value.strip()))
        if name == "violating":
            told += ["is:violating"] if values else []
        elif len(values) == 1:
            told.append(f"{name}:{editing.quoted(values[0])}")
        elif values:
            told.append(f"{name}:[{','.join(map(editing.quoted, values))}]")
    return " ".join(told)
