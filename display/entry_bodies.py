"""Read bodies of entries: arguments of a call one by one, cut to a size.

Bodies contain whatever an agent sent. Nothing is marked up here: templates show every piece as
untrusted text.
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

SHOWN_BYTES: Final = 4096  # bytes shown of any piece of agent text; the download has the rest


class Octets(Func):
    """The length of a text column in bytes of UTF-8."""

    function = "OCTET_LENGTH"
    output_field = IntegerField()

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> tuple[str, Any]:
        """Count the bytes of a blob; only newer versions have octet_length."""
        return self.as_sql(
            compiler, connection, template="LENGTH(CAST(%(expressions)s AS BLOB))", **context
        )


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The first SHOWN_BYTES of a text; `octets` is its full length in bytes."""

    text: str
    octets: int

    @property
    def cut(self) -> bool:
        """Return True if the text is longer than the excerpt."""
        return len(self.text.encode()) < self.octets


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a call: `name`, `value` are agent text; `kind` is a JSON type."""

    name: str
    value: Excerpt
    kind: str


def cut_excerpt(text: str, limit: int = SHOWN_BYTES) -> Excerpt:
    """Cut `text` to `limit` bytes at a character boundary."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= limit:
        return Excerpt(text, len(raw))
    return Excerpt(raw[:limit].decode("utf-8", "ignore"), len(raw))


def excerpt_from_head(head: str | None, octets: int | None) -> Excerpt | None:
    """Return a body's excerpt from its head and length in bytes; None for no body."""
    return None if head is None or octets is None else Excerpt(cut_excerpt(head).text, octets)


def load_body_texts(project: UUID, positions: Iterable[int]) -> dict[int, str]:
    """Return the full bodies at `positions` (few) by position, without erased ones."""
    rows = Body.objects.filter(entry_id__in=list(positions), entry__project=project)
    return dict(rows.values_list("entry_id", "text"))


def split_arguments(value: Any) -> list[Argument]:
    """Return the arguments, one-line values first; a non-object gets an empty name."""
    if value is None:
        return []
    pairs = value.items() if isinstance(value, dict) else [("", value)]
    pieces = [
        Argument(name, cut_excerpt(json_as_text(piece)), _json_type(piece)) for name, piece in pairs
    ]
    return sorted(pieces, key=lambda argument: "\n" in argument.value.text)


def json_as_text(value: Any) -> str:
    """Return a JSON value as text: a string unchanged, other values as indented JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if value is None:
        return "null"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "text"
    return "list" if isinstance(value, list) else "object"
