"""One-line summaries of calls and answers.

Bodies hold anything that an agent sent, and lists read only their beginnings. Nothing is marked up:
templates show every line as untrusted text.
"""

import json
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

from django.db.models import Case, OuterRef, Subquery, TextField, When
from django.db.models.functions import Length, Substr

from db.compiled_query import CompiledQuerySet
from journal.models import Body

MAX_SUMMARY_CHARACTERS: Final = 120  # of a summary
# Arguments that say what would run, most significant first, as tools of many agents name them.
COMMAND_ARGUMENTS: Final = (
    "command",
    "cmd",
    "commands",
    "code",
    "script",
    "sql",
    "query",
    "url",
    "file_path",
    "path",
)
SIGNIFICANT_ARGUMENTS: Final = (*COMMAND_ARGUMENTS, "pattern", "prompt", "subject")
# What an agent says about a call; it comes last.
COMMENT_ARGUMENTS: Final = ("description", "why", "thought", "explanation")
_SIGNIFICANT: Final = frozenset(SIGNIFICANT_ARGUMENTS)
_COMMENTS: Final = frozenset(COMMENT_ARGUMENTS)
_EXITS: Final = ("exit", "exit_code", "exitcode", "returncode", "return_code")
_OUTPUTS: Final = ("error", "stderr", "output", "stdout", "content", "text", "message")
# Characters of a body that lists read; of longer ones they read the beginning.
_WHOLE: Final = 8192
_BEGINNING: Final = 1024
_SHORT: Final = 100  # characters up to which an argument is short
_dump_json: Final = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps makes one each time
_HEAD: Final = Case(
    When(length__lte=_WHOLE, then="text"),
    default=Substr("text", 1, _BEGINNING),
    output_field=TextField(),
)


def select_plan_heads() -> Subquery:
    """Return a subquery of plan bodies, or the beginnings of long ones.

    NULL if the plan has not arrived or its body was erased.
    """
    plan = Body.objects.filter(entry_id=OuterRef("plan_position")).annotate(length=Length("text"))
    return Subquery(plan.annotate(head=_HEAD).values("head"))


def load_plan_heads(positions: Sequence[int]) -> dict[int, str]:
    """Return the same for plans by position, without erased ones. One query."""
    if not positions:
        return {}
    return dict(_PLAN_HEADS.rows(positions=positions))


def _select_plan_heads(positions: Sequence[int]) -> Any:
    plans = Body.objects.filter(entry_id__in=positions).annotate(length=Length("text"), head=_HEAD)
    return plans.values_list("entry_id", "head")


_PLAN_HEADS: Final = CompiledQuerySet(_select_plan_heads, positions=[int])


def summarize_plan_head(head: str | None) -> str | None:
    """Return the summary of the call whose plan begins with `head` (see `select_plan_heads`)."""
    return None if head is None else summarize_arguments(extract_arguments(head))


def summarize_plan(text: str) -> str:
    """Return the summary of a call from its plan, using as much of it as lists read."""
    return summarize_arguments(extract_arguments(text[:_BEGINNING]))


def parse_body(text: str) -> dict[str, Any]:
    """Parse a body; empty if it is not a JSON object, which is rare."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def extract_arguments(text: str) -> Any:
    """Return the `arguments` of a plan body that may be cut; None if absent."""
    body = parse_body(text)
    if not body:
        body = parse_body(close_truncated_json(text))
    return body.get("arguments")


def summarize_arguments(value: Any) -> str:
    """Return one line that distinguishes this call: short and simple arguments first."""
    if not isinstance(value, dict):
        return "" if value is None else _line(value)
    pieces = []
    for argument, piece in value.items():
        if piece or piece == 0:  # a number or false, not an empty text, list or object
            name, line = _line(argument), _line(piece)
            rank = (name not in _SIGNIFICANT, name in _COMMENTS, len(line) > _SHORT)
            pieces.append(((*rank, _is_nested(piece)), name, line))
    if len(pieces) == 1:
        return pieces[0][2]
    pieces.sort(key=itemgetter(0))
    named = [f"{name}={line}" for _, name, line in pieces]
    if pieces and pieces[0][1] in _SIGNIFICANT:
        named[0] = pieces[0][2]
    return _cut("  ".join(named))


def _is_nested(value: Any) -> bool:
    """True for an object or a list with nested values, which come last."""
    return isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(item, dict | list) for item in value)
    )


def summarize_answer(text: str) -> str:
    """Return the summary of an answer: exit codes, then its result or why it failed."""
    body = parse_body(text) or parse_body(close_truncated_json(text))
    value = body.get("result")
    if value is None:
        return _line(
            next(
                (body[name] for name in ("detail", "reason") if isinstance(body.get(name), str)), ""
            )
        )
    if not isinstance(value, dict):
        return _line(value)
    codes = [f"exit {_line(value[name])}" for name in _EXITS if name in value]
    texts = [_line(value[name]) for name in _OUTPUTS if value.get(name)]
    rest = [
        f"{name}={_line(piece)}"
        for name, piece in value.items()
        if name not in (*_EXITS, *_OUTPUTS)
    ]
    return _cut("  ".join([*codes, *texts, *rest]))


def _line(value: Any) -> str:
    if isinstance(value, str) and len(value) <= MAX_SUMMARY_CHARACTERS and value.isprintable():
        return value.strip()  # most are one short line
    if type(value) is int:
        return str(value)
    text = value if isinstance(value, str) else _dump_json(value)
    lines = text[: 4 * MAX_SUMMARY_CHARACTERS].strip().splitlines()
    return _cut(
        " ⏎ ".join(line.strip() for line in lines if line.strip()),
        len(text) > 4 * MAX_SUMMARY_CHARACTERS,
    )


def _cut(line: str, more: bool = False) -> str:
    if len(line) > MAX_SUMMARY_CHARACTERS:
        return line[: MAX_SUMMARY_CHARACTERS - 1] + "…"
    return line + "…" if more and not line.endswith("…") else line


def close_truncated_json(text: str) -> str:
    """Close the brackets and strings of cut JSON, without an incomplete last item."""
    stack: list[str] = []
    in_string = escaped = False
    # The longest beginning that ends with a complete value, and what closes it.
    complete, closers = (0, "")
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
        # Inside a string value: keep it, except a cut escape sequence.
        tail = text[: text.rfind("\\")] if "\\" in text[-6:] else text
        return tail + '"' + "".join(reversed(stack))
    return text[:complete] + closers


def _is_value(text: str) -> bool:
    """True if the string left open at the end of `text` is a value, not a name."""
    start = len(text) - 1
    while start > 0 and not (text[start] == '"' and text[start - 1] in ":,[{ "):
        start -= 1
    return text[:start].rstrip().endswith((":", "["))
