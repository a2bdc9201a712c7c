"""The title of a request: its tool and what the call is about, by its arguments. Pure.

The ref of the target is the title of calls that move refs only; of an edit it would name a branch
and hide the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from accounts.repositories import shorten_ref
from approvals.diff.from_arguments import PATH_NAMES
from approvals.review.identities import describe_statement

MAX_OBJECT_CHARACTERS: Final = 60
_REF_WORDS: Final = ("git", "push", "branch", "merge", "rebase", "tag")
_STATEMENT_NAMES: Final = ("sql", "statement", "query")
# Arguments that name what a call is about, the most telling first.
_OBJECT_NAMES: Final = (
    "to",
    "recipient",
    "recipients",
    "table",
    "volume",
    "order",
    "account",
    "issue",
    "bucket",
    "user",
    "version",
    "name",
)


@dataclass(frozen=True, slots=True)
class CallTitle:
    """`verb label object of repository`; all are agent text, and all but the verb may be empty."""

    verb: str
    label: str = ""
    object: str = ""
    repository: str = ""

    def __str__(self) -> str:
        place = f"of {self.repository}" if self.repository else ""
        return " ".join(filter(None, (self.verb, self.label, self.object, place)))


def build_call_title(
    tool: str,
    arguments: Any,
    *,
    ref: str = "",
    repository: str = "",
    resource: str = "",
    forced: bool = False,
) -> CallTitle:
    """Build the title of a call. `forced` says that its arguments show a forced push."""
    named: Mapping[str, Any] = arguments if isinstance(arguments, dict) else {}
    short_ref = shorten_ref(ref)
    if moves_refs(tool) and short_ref:
        is_forced_push = forced and "push" in tool.casefold()
        return CallTitle("Force-push" if is_forced_push else tool, "", short_ref, repository)
    path = next((name for name in PATH_NAMES if _read_word(named.get(name))), "")
    if path:
        return CallTitle(tool, "", _shorten_middle(_read_word(named[path])), repository)
    for name in _STATEMENT_NAMES:
        statement = describe_statement(named.get(name))
        if statement:
            return CallTitle(tool, "", _shorten_middle(statement), repository)
    for name in _OBJECT_NAMES:
        value = _read_word(named.get(name))
        if value:
            label = "" if name in tool.casefold() else name
            return CallTitle(tool, label, _shorten_middle(value), repository)
    return CallTitle(tool, "", _shorten_middle(resource or short_ref), repository)


def moves_refs(tool: str) -> bool:
    """Return True if the name of a tool says that it moves refs of a repository."""
    return any(word in tool.casefold() for word in _REF_WORDS)


def _read_word(value: Any) -> str:
    """Return a value that names one thing in one line; empty for any other value."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    text = str(value).strip()
    return "" if "\n" in text else text


def _shorten_middle(text: str) -> str:
    """Cut a long text in its middle: its end tells files and hosts apart."""
    if len(text) <= MAX_OBJECT_CHARACTERS:
        return text
    return f"{text[:20]}…{text[-(MAX_OBJECT_CHARACTERS - 21) :]}"
