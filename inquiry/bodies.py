"""Reading the bodies of entries: the gist of a call in one line, its arguments one by one, and how much is cut away.

Bodies hold whatever an agent sent. Nothing here marks anything up: templates show every piece as untrusted text.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Case, Func, IntegerField, OuterRef, Subquery, TextField, When
from django.db.models.functions import Length, Substr
from django.db.models.sql.compiler import SQLCompiler

from journal.models import Body

SHOWN_BYTES: Final = 4096  # of any one piece of agent text; the rest is in the download
GIST_CHARACTERS: Final = 120
_WHOLE: Final = 8192  # characters of a body that a list reads; of longer ones it reads the beginning
_BEGINNING: Final = 1024
_SHORT: Final = 100  # characters of an argument that tells more than a long one
# The argument that says by itself what a call does, in the words of the tools of many agents.
_FIRST: Final = ("command", "cmd", "code", "file_path", "path", "url", "query", "pattern", "prompt", "subject")
_LAST: Final = (
    "description",
    "why",
    "thought",
    "explanation",
)  # what an agent says about a call, after the call itself


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


def plan_heads() -> Subquery:
    """For a query of effects: the body of each one's plan, whole when short, else its beginning, for `gist_of`.

    NULL where the plan has not arrived or its body was erased.
    """
    head = Case(
        When(length__lte=_WHOLE, then="text"),
        default=Substr("text", 1, _BEGINNING),
        output_field=TextField(),
    )
    plan = Body.objects.filter(entry_id=OuterRef("plan_position")).annotate(length=Length("text"))
    return Subquery(plan.annotate(head=head).values("head"))


def gist_of(head: str | None) -> str | None:
    """The gist of the call whose plan begins with `head` (see `plan_heads`)."""
    return None if head is None else gist(arguments_in(head))


def parsed(text: str) -> dict[str, Any]:
    """The body as sent; empty when it is no JSON object (bodies are strictly read on arrival, so that is rare)."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def arguments_in(text: str) -> Any:
    """The `arguments` of a plan's body, which may be cut off anywhere; None when there are none."""
    body = parsed(text)
    if not body:
        body = parsed(closed(text))
    return body.get("arguments")


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


def gist(value: Any) -> str:
    """One line of at most GIST_CHARACTERS that tells this call from its neighbours: short arguments first."""
    if not isinstance(value, dict):
        return "" if value is None else _line(value)
    pieces = [(_line(name), _line(piece)) for name, piece in value.items() if piece not in (None, "", [], {})]
    if len(pieces) == 1:
        return pieces[0][1]
    pieces.sort(key=lambda piece: (piece[0] not in _FIRST, piece[0] in _LAST, len(piece[1]) > _SHORT))
    named = [f"{name}={line}" for name, line in pieces]
    if pieces and pieces[0][0] in _FIRST:
        named[0] = pieces[0][1]
    return _cut("  ".join(named))


def _line(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    lines = text[: 4 * GIST_CHARACTERS].strip().splitlines()
    return _cut(" ⏎ ".join(line.strip() for line in lines if line.strip()), len(text) > 4 * GIST_CHARACTERS)


def _cut(line: str, more: bool = False) -> str:
    if len(line) > GIST_CHARACTERS:
        return line[: GIST_CHARACTERS - 1] + "…"
    return line + "…" if more and not line.endswith("…") else line


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


def closed(text: str) -> str:
    """Close the brackets and strings that a cut left open, dropping a half-written last piece, so that it parses."""
    stack: list[str] = []
    in_string = escaped = False
    complete, closers = 0, ""  # the longest beginning that ends with a whole value, and what closes it
    for index, character in enumerate(text):
        if in_string:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                in_string = False
        elif character == '"':
            in_string = True
        elif character in "{[":
            stack.append("}" if character == "{" else "]")
            complete, closers = index + 1, "".join(reversed(stack))
        elif character in "}]" and stack:
            stack.pop()
            complete, closers = index + 1, "".join(reversed(stack))
        elif character == ",":
            complete, closers = index, "".join(reversed(stack))
    if in_string and _is_value(text):
        # Inside a string value: keep what there is of it, less an escape cut in two.
        tail = text[: text.rfind("\\")] if "\\" in text[-6:] else text
        return tail + '"' + "".join(reversed(stack))
    return text[:complete] + closers


def _is_value(text: str) -> bool:
    """True when the string left open at the end of `text` is a value and not a name."""
    start = len(text) - 1
    while start > 0 and not (text[start] == '"' and text[start - 1] in ":,[{ "):
        start -= 1
    return text[:start].rstrip().endswith((":", "["))
