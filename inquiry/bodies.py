"""Reading the bodies of entries: the arguments of a call one by one, and how much is cut away.

Bodies hold whatever an agent sent. Nothing here marks anything up: templates show every piece as untrusted text.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Func, IntegerField
from django.db.models.sql.compiler import SQLCompiler

from journal.models import Body

SHOWN_BYTES: Final = 4096  # of any one piece of agent text; the rest is in the download


class Octets(Func):
    """The length of a text column in bytes of UTF-8."""

    function = "OCTET_LENGTH"
    output_field = IntegerField()

    def as_sqlite(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any) -> tuple[str, Any]:
        """Every SQLite counts the bytes of a blob; only newer ones have octet_length."""
        return self.as_sql(compiler, connection, template="LENGTH(CAST(%(expressions)s AS BLOB))", **context)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The beginning of a text, at most SHOWN_BYTES of it. `octets` is the length of the whole in bytes."""

    text: str
    octets: int

    @property
    def cut(self) -> bool:
        """True when there is more than is shown."""
        return len(self.text.encode()) < self.octets


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a call. `name` and `value` are agent text; `kind` is the JSON type."""

    name: str
    value: Excerpt
    kind: str


def excerpt(text: str, limit: int = SHOWN_BYTES) -> Excerpt:
    """Cut `text` to `limit` bytes at a character."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= limit:
        return Excerpt(text, len(raw))
    return Excerpt(raw[:limit].decode("utf-8", "ignore"), len(raw))


def excerpt_of_head(head: str | None, octets: int | None) -> Excerpt | None:
    """The excerpt of a body from its first SHOWN_BYTES characters and its length in bytes; None for no body."""
    return None if head is None or octets is None else Excerpt(excerpt(head).text, octets)


def texts(project: UUID, positions: Iterable[int]) -> dict[int, str]:
    """Return the whole bodies at `positions` (few), by position; erased ones are absent."""
    rows = Body.objects.filter(entry_id__in=list(positions), entry__project=project)
    return dict(rows.values_list("entry_id", "text"))


def arguments(value: Any) -> list[Argument]:
    """The arguments one by one, those of one line first; arguments that are no object are one without a name."""
    if value is None:
        return []
    pairs = value.items() if isinstance(value, dict) else [("", value)]
    found = [Argument(name, excerpt(shown(piece)), _kind(piece)) for name, piece in pairs]
    return sorted(found, key=lambda argument: "\n" in argument.value.text)


def shown(value: Any) -> str:
    """A JSON value as people read it: a string is itself, the rest is indented JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    if value is None:
        return "null"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "text"
    return "list" if isinstance(value, list) else "object"
