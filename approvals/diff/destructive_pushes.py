"""Detect destructive git pushes from the arguments of a call.

Pure. A warning is only a hint for the reviewer: no warning does not mean that a push is harmless.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from approvals.diff.from_arguments import COMMIT_LISTS
from approvals.diff.hidden_characters import iterate_strings

_COMMANDS: Final = (
    "command",
    "cmd",
    "commands",
    "code",
    "script",
    "run",
    "argv",
    "command_line",
    "cmdline",
)
_PROGRAMS: Final = ("program", "executable", "binary", "command", "cmd")
_SUBCOMMANDS: Final = ("subcommand", "action", "operation", "command", "cmd")
_WORD_LISTS: Final = ("args", "argv", "arguments", "parameters", "options", "flags", "switches")
_NESTED: Final = ("options", "flags", "push")  # objects that hold options of a push
_FORCING: Final = (
    *("force", "forced", "force_push", "forcePush", "force_with_lease", "forceWithLease", "mirror"),
    *("is_force", "isForce", "allow_force", "non_fast_forward", "allow_non_fast_forward"),
)
_MODES: Final = ("mode", "push_mode", "strategy")  # whose value may be force
# Tools that move a ref of a forge without a push.
_MOVES_REF: Final = re.compile(r"update[_-]?(?:git[_-]?)?ref(?:erence)?s?(?![a-z])", re.IGNORECASE)
# The same call in a command: gh api -X PATCH repos/acme/web/git/refs/heads/main -F force=true
_FORCED_REF: Final = re.compile(r"/git/refs/.*\bforce[\"']?\s*[=:]\s*[\"']?true\b", re.DOTALL)
_DELETING: Final = ("delete", "prune")
_REFS: Final = ("ref", "refs", "refspec", "refspecs", "branch", "to")
_FALSE_VALUES: Final = (None, False, 0, "", "0", "no", "off", "false", "False")
_COMMAND_ENDS: Final = re.compile(r"[;&|\n]+")
_QUOTES: Final = "'\"()`"
_TOOL_WORDS: Final = re.compile(r"[a-z0-9]+")
FORCED: Final = "forced push"
DELETED: Final = "deletes a ref"


class PushFlags(NamedTuple):
    """What a call shows of a destructive push.

    `forced_by` and `deleted_by` are the words that say so: `+`, `--force`, `force`; empty without
    one. `removed` counts the commits that the agent listed as removed, and `is_reported` is true if
    it sent such a list, also an empty one. `pushes` is true for any push that was recognized.
    """

    forced_by: str = ""
    deleted_by: str = ""
    removed: int = 0
    is_reported: bool = False
    pushes: bool = False


def describe_destructive_push(
    tool: str, arguments: Any, preconditions: Any = None, ref: str = ""
) -> tuple[str, ...]:
    """Describe a destructive push: forced push, deletes a ref, removes 2 commits.

    Empty if the arguments and the target's `ref` do not show any of it.
    """
    flags = read_push_flags(tool, arguments, preconditions, ref)
    words = [word for word, by in ((FORCED, flags.forced_by), (DELETED, flags.deleted_by)) if by]
    if flags.removed:
        words.append(f"removes {flags.removed} commit{'' if flags.removed == 1 else 's'}")
    return tuple(words)


def read_push_flags(
    tool: str, arguments: Any, preconditions: Any = None, ref: str = ""
) -> PushFlags:
    """Read what a call shows of a destructive push: options, refspecs, command lines, lists."""
    named = arguments if isinstance(arguments, Mapping) else {}
    is_push_tool = "push" in tool.casefold() or _MOVES_REF.search(tool) is not None
    listed = list(_scan_call(tool, named, is_push_tool=is_push_tool))
    if not named:
        listed += _scan_command(arguments)
    if is_push_tool:
        listed += _scan_words(ref.split())
    by_kind: dict[str, str] = {}
    for kind, word in listed:
        by_kind.setdefault(kind, word)
    removed = [
        commits
        for source in (named, preconditions)
        if isinstance(source, Mapping)
        for commits in _list_removed(source)
    ]
    return PushFlags(
        by_kind.get(FORCED, ""),
        by_kind.get(DELETED, ""),
        sum(map(len, removed)),
        bool(removed),
        is_push_tool or _PUSHES in by_kind,
    )


_PUSHES: Final = "push"  # kind of a command line that pushes
_Flags = Iterator[tuple[str, str]]  # kind, word that says so


def _list_removed(named: Mapping[str, Any]) -> Iterator[list[Any]]:
    for name, sign in COMMIT_LISTS:
        commits = named.get(name)
        if sign == "-" and isinstance(commits, list):
            yield commits


def _scan_call(tool: str, named: Mapping[str, Any], *, is_push_tool: bool) -> _Flags:
    listed = [name for name in _WORD_LISTS if name in named]
    subcommands = [name for name in _SUBCOMMANDS if named.get(name) in _PUSH_COMMANDS]
    is_git = bool(listed or subcommands) and _runs_git(tool, named)
    is_push = is_push_tool or (is_git and bool(subcommands))
    if is_push:
        yield _PUSHES, "push"
        yield from _scan_options(named)
    for name in _COMMANDS:
        if name in named:
            yield from _scan_command(named[name])
    for name in listed:
        words = _split_words(named[name])
        if is_push:
            yield from _scan_words(words)
        elif is_git:
            yield from _scan_pushed(["git", *words])


_PUSH_COMMANDS: Final = ("push", "git push")


def _runs_git(tool: str, named: Mapping[str, Any]) -> bool:
    return "git" in _TOOL_WORDS.findall(tool.casefold()) or any(
        isinstance(named.get(name), str) and _program_name(named[name]) in _GIT
        for name in _PROGRAMS
    )


def _split_words(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.split()
    if isinstance(value, list):
        return [word for word in value if isinstance(word, str)]
    return []


def _scan_options(named: Mapping[str, Any]) -> _Flags:
    for kind, names in ((FORCED, _FORCING), (DELETED, _DELETING)):
        yield from ((kind, name) for name in names if named.get(name) not in _FALSE_VALUES)
    for name in _MODES:
        if isinstance(named.get(name), str) and named[name].casefold().startswith("force"):
            yield FORCED, named[name]
    for name in _REFS:
        yield from _scan_words(iterate_strings(named.get(name)))
    for name in _NESTED:
        if isinstance(named.get(name), Mapping):
            yield from _scan_options(named[name])


def _scan_command(value: Any) -> _Flags:
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        yield from _scan_command(" ".join(value))
        for word in value:
            yield from _scan_command(word)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, Mapping):
                for name in _COMMANDS:
                    yield from _scan_command(item.get(name))
            elif isinstance(item, list) and all(isinstance(word, str) for word in item):
                yield from _scan_command(" ".join(item))
            elif isinstance(item, str):
                yield from _scan_command(item)
    elif isinstance(value, str) and _FORCED_REF.search(value):
        yield _PUSHES, "push"
        yield FORCED, "force=true"
    elif isinstance(value, str) and "push" in value:
        for line in _COMMAND_ENDS.split(value.replace("\\\n", " ")):
            yield from _scan_pushed(line.split())


def _scan_pushed(words: list[str]) -> _Flags:
    pushed = _push_arguments(words)
    if pushed is not None:
        yield _PUSHES, "push"
        yield from _scan_words(pushed)


_GIT: Final = ("git", "git.exe")


def _push_arguments(words: list[str]) -> list[str] | None:
    """Return the words after the first `push` that follows a `git`, in one pass; else None."""
    at = next((at for at, word in enumerate(words) if _program_name(word) in _GIT), len(words))
    push = next(
        (at for at in range(at + 1, len(words)) if words[at].strip(_QUOTES) == "push"), len(words)
    )
    return words[push + 1 :] if push < len(words) else None


def _program_name(word: str) -> str:
    """Return the program name of a word, without folder, quotes and brackets."""
    name = word.rstrip(_QUOTES)
    for before in ("/", "\\", *_QUOTES):
        name = name.rpartition(before)[2]
    return name


def _scan_words(listed: Iterable[str]) -> _Flags:
    for quoted in listed:
        word = quoted.strip(_QUOTES)
        short = re.fullmatch(r"-[A-Za-z]+", word) is not None
        if word.startswith("+"):
            yield FORCED, "+"
        elif word.startswith(("--force", "--mirror", "--allow-backwards")):
            yield FORCED, word.partition("=")[0]
        elif short and "f" in word:
            yield FORCED, "-f"
        if word.startswith(("--delete", "--prune")) or (word.startswith(":") and word != ":"):
            yield DELETED, ":" if word.startswith(":") else word.partition("=")[0]
        elif short and "d" in word:
            yield DELETED, "-d"
