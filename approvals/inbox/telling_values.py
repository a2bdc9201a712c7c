"""The arguments that tell a request apart from others. Pure.

The tool's declaration names them (`telling:` in tools.yaml). Without it, arguments by the names
that tools of many agents use. Every value is agent text.
"""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from journal.summaries import COMMAND_ARGUMENTS
from ledger.tools.argument_values import MAX_VALUES, format_plain_value, list_argument_values

MAX_DECLARED_PAIRS: Final = 4  # a row has no space for more
MAX_DEFAULT_PAIRS: Final = 2
MAX_VALUE_CHARACTERS: Final = 400
_MAX_LISTED: Final = 6  # values of one path that are written out
# Lists of these are the words of one command; their order and repetition matter.
_WORDS_OF_A_COMMAND: Final = ("command", "cmd", "argv", "args")
# By kind, the most telling kind first; of each kind the first argument that is given counts.
_DEFAULT_KINDS: Final = (
    ("to", "recipient", "recipients", "channel", "bcc", "cc"),
    tuple(name for name in COMMAND_ARGUMENTS if name not in ("url", "file_path", "path")),
    ("url", "endpoint"),
    ("file_path", "path", "paths", "file", "files", "attachment", "attachments"),
    ("cluster", "context", "database", "db", "host", "server", "account", "bucket"),
    ("namespace", "table", "volume", "volumes", "pod", "instance", "service", "key", "name"),
    ("order", "order_id", "invoice", "ticket", "issue", "customer", "user", "number"),
    ("amount", "total", "quantity", "count", "limit", "rows"),
    ("refspec", "ref", "branch", "tag"),
    ("subject", "title"),
)


class TellingValue(NamedTuple):
    """One telling argument of a request: its label and its value as text."""

    label: str
    value: str


def list_telling_values(
    declared: Sequence[str], arguments: Any, shown: str = ""
) -> tuple[TellingValue, ...]:
    """Return the telling arguments of a request for its row, in the order of the declaration.

    `shown` is a value that the title shows already. Empty if no telling argument was sent.
    """
    if not isinstance(arguments, dict):
        return ()
    most = MAX_DECLARED_PAIRS if declared else MAX_DEFAULT_PAIRS
    pairs: list[TellingValue] = []
    for path in declared or _default_paths(arguments):
        values = list_argument_values(arguments, path)
        is_command = _last_name(path) in _WORDS_OF_A_COMMAND
        value = _join_words(values) if is_command else _join_values(values)
        if value and (declared or value != shown):
            pairs.append(TellingValue(_label(path, declared), value))
        if len(pairs) == most:
            break
    return tuple(pairs)


def _default_paths(arguments: dict[str, Any]) -> Iterator[str]:
    for names in _DEFAULT_KINDS:
        for name in names:
            if arguments.get(name) not in (None, "", [], {}):
                yield name
                break


def _label(path: str, declared: Sequence[str]) -> str:
    """Return the last step of a path, or all of it where two would be alike."""
    name = _last_name(path)
    return path if sum(_last_name(other) == name for other in declared) > 1 else name


def _last_name(path: str) -> str:
    steps = [step for step in path.split(".") if not step.isdigit()]
    return steps[-1] if steps else path


def _join_words(values: Sequence[Any]) -> str:
    """Return the words of a command as a shell takes them; a single text is the command."""
    texts = [format_plain_value(value) for value in values]
    more = " …" if len(texts) == MAX_VALUES else ""
    return _cut_middle(texts[0] if len(texts) == 1 else shlex.join(texts)) + more


def _join_values(values: Sequence[Any]) -> str:
    texts = list(dict.fromkeys(map(format_plain_value, values)))
    more = f", {len(texts) - _MAX_LISTED} more" if len(texts) > _MAX_LISTED else ""
    return _cut_middle(", ".join(texts[:_MAX_LISTED])) + more


def _cut_middle(text: str) -> str:
    if len(text) <= MAX_VALUE_CHARACTERS:
        return text
    half = MAX_VALUE_CHARACTERS // 2
    return f"{text[:half]}…{text[-half:]}"
