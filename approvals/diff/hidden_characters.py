"""Count hidden characters and long runs of blanks in the texts of a plan."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from web import untrusted_text


class HiddenContent(NamedTuple):
    """Number of hidden characters; length of the longest counted blank run."""

    hidden: int
    blanks: int


def iterate_strings(value: Any) -> Iterable[str]:
    """Yield every string of a JSON value, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from iterate_strings(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from iterate_strings(item)


def count_hidden_content(arguments: Any) -> HiddenContent:
    """Count hidden characters and the longest blank run in all texts of the arguments.

    The spaces of typography count only where they are no prose.
    """
    hidden = blanks = 0
    for text, prose in _iterate_texts(arguments, "", {}):
        for piece in untrusted_text.split_untrusted(text, prose=prose):
            if piece.hidden:
                hidden += len(piece.raw)
            elif piece.shown:
                blanks = max(blanks, len(piece.raw))
    return HiddenContent(hidden, blanks)


def is_prose_argument(name: str, value: Any, beside: Mapping[str, Any]) -> bool:
    """Return True if every typographic space in the value of an argument stands in prose.

    `beside` are the arguments, whose path may say that a content is code.
    """
    return all(
        prose
        for text, prose in _iterate_texts(value, name, beside)
        if not untrusted_text.TYPOGRAPHIC_SPACES.isdisjoint(text)
    )


def _iterate_texts(value: Any, name: str, beside: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield every string of a JSON value, and whether people read it as prose."""
    if isinstance(value, str):
        # Only the spaces of typography count differently in prose.
        yield value, not value.isascii() and _reads_as_prose(name, value, beside)
    elif isinstance(value, list):
        for item in value:
            yield from _iterate_texts(item, name, beside)
    elif isinstance(value, dict):
        for inner_name, item in value.items():
            yield inner_name, False
            yield from _iterate_texts(item, inner_name, value)


def _reads_as_prose(name: str, text: str, beside: Mapping[str, Any]) -> bool:
    plain = _SEPARATORS.sub("", name.lower())
    if plain in _PROSE_ARGUMENTS:
        return True
    if plain in _CONTENT_ARGUMENTS:
        paths = [beside[path] for path in _PATH_ARGUMENTS if isinstance(beside.get(path), str)]
        return all(path.lower().endswith(_PROSE_FILES) for path in paths)
    return not plain.endswith(_CODE_ENDINGS) and untrusted_text.is_prose(text)


_SEPARATORS: Final = re.compile(r"[^a-z0-9]")
_PROSE_ARGUMENTS: Final = frozenset(
    {"subject", "body", "message", "description", "title", "comment", "comments", "note", "notes"}
    | {"reason", "why", "summary", "caption", "greeting", "question", "answer", "reply", "thought"}
    | {"explanation", "headline", "footer", "signature", "name", "fullname", "firstname"}
    | {"lastname", "displayname", "customer", "customername", "company", "street", "city", "label"}
    | {"amount", "price", "total", "commitmessage", "html", "prompt"}
)
# Texts that may be a file's: code, unless the file is one that people read.
_CONTENT_ARGUMENTS: Final = frozenset(
    {"content", "contents", "text", "filetext", "newstring", "oldstring", "newstr", "oldstr"}
    | {"markdown"}
)
_PATH_ARGUMENTS: Final = ("path", "file_path", "filepath", "file", "filename", "command", "cmd")
_PROSE_FILES: Final = (".md", ".txt", ".rst", ".html", ".tex", ".adoc", ".eml")
# Ends of the names of arguments that programs read.
_CODE_ENDINGS: Final = (
    *("command", "commands", "cmd", "code", "script", "sql", "query", "url", "uri", "path"),
    *("paths", "file", "files", "filename", "host", "hostname", "server", "domain", "ref", "refs"),
    *("branch", "tag", "args", "argv", "shell", "exec", "run", "pattern", "regex", "repo"),
    *("repository", "remote", "email", "address", "to", "cc", "bcc", "recipient", "recipients"),
    *("id", "key", "token", "cluster", "context", "bucket", "database", "account", "iban"),
    *("environment", "env", "namespace", "resource", "flags", "options", "patch", "diff"),
)
