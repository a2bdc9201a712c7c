"""Detect destructive git pushes from the arguments of a call.

Pure. A warning is only a hint for the reviewer: no warning does not mean that a push is harmless.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from approvals.diff.from_arguments import COMMIT_LISTS
from approvals.diff.hidden_characters import iterate_strings

_COMMANDS: Final = ("command", "cmd", "commands", "code", "script")
_FORCING: Final = ("force", "forced", "force_push", "force_with_lease", "mirror")
_DELETING: Final = ("delete", "prune")
_REFS: Final = ("ref", "refs", "refspec", "refspecs", "branch", "to")
_FALSE_VALUES: Final = (None, False, 0, "", "0", "no", "off", "false", "False")
_COMMAND_ENDS: Final = re.compile(r"[;&|\n]+")
_QUOTES: Final = "'\"()`"


def describe_destructive_push(
    tool: str, arguments: Any, preconditions: Any = None
) -> tuple[str, ...]:
    """Describe a destructive push: forced push, deletes a ref, removes 2 commits.

    Empty if the arguments do not show any of it.
    """
    named = arguments if isinstance(arguments, Mapping) else {}
    destructive = set(_scan_options(named)) if "push" in tool.casefold() else set()
    for name in _COMMANDS:
        destructive.update(_scan_command(named.get(name)))
    if not named:
        destructive.update(_scan_command(arguments))
    removed = sum(
        _count_removed(source) for source in (named, preconditions) if isinstance(source, Mapping)
    )
    words = [word for word in ("forced push", "deletes a ref") if word in destructive]
    return (
        (*words, f"removes {removed} commit{'' if removed == 1 else 's'}")
        if removed
        else tuple(words)
    )


def _count_removed(named: Mapping[str, Any]) -> int:
    listed = [named.get(name) for name, sign in COMMIT_LISTS if sign == "-"]
    return sum(len(commits) for commits in listed if isinstance(commits, list))


def _scan_options(named: Mapping[str, Any]) -> Iterator[str]:
    if any(named.get(name) not in _FALSE_VALUES for name in _FORCING):
        yield "forced push"
    if any(named.get(name) not in _FALSE_VALUES for name in _DELETING):
        yield "deletes a ref"
    for name in _REFS:
        yield from _scan_words(iterate_strings(named.get(name)))


def _scan_command(value: Any) -> Iterator[str]:
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        yield from _scan_command(" ".join(value))
        for word in value:
            yield from _scan_command(word)
    elif isinstance(value, str) and "push" in value:
        for line in _COMMAND_ENDS.split(value.replace("\\\n", " ")):
            yield from _scan_words(_push_arguments(line.split()))


def _push_arguments(words: list[str]) -> list[str]:
    """Return the words after the first `push` that follows a `git`, in one pass."""
    at = next((at for at, word in enumerate(words) if _program_name(word) == "git"), len(words))
    push = next(
        (at for at in range(at + 1, len(words)) if words[at].strip(_QUOTES) == "push"), len(words)
    )
    return words[push + 1 :]


def _program_name(word: str) -> str:
    """Return the program name of a word, without folder, quotes and brackets."""
    name = word.rstrip(_QUOTES)
    for before in ("/", *_QUOTES):
        name = name.rpartition(before)[2]
    return name


def _scan_words(listed: Iterable[str]) -> Iterator[str]:
    for quoted in listed:
        word = quoted.strip(_QUOTES)
        short = re.fullmatch(r"-[A-Za-z]+", word) is not None
        if word.startswith(("--force", "--mirror", "+")) or (short and "f" in word):
            yield "forced push"
        if word.startswith(("--delete", "--prune", ":")) or (short and "d" in word):
            yield "deletes a ref"
