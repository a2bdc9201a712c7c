"""What a call would change, read out of its arguments: edits as a unified diff, and the commits of a push.

Pure. The shapes are those of the tools of many agents (Edit, MultiEdit, Write, apply_patch, str_replace …). Nothing is
left out: every line of both texts is a row, so that a person who read the rows has read the arguments.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Final

PATHS: Final = ("file_path", "path", "notebook_path", "filename")
OLD: Final = ("old_string", "old_str", "old_text")
NEW: Final = ("new_string", "new_str", "new_text", "insert_text")
WHOLE: Final = ("content", "file_text", "new_source")
PATCH: Final = ("patch", "diff", "input")
_SHA, _TITLE, _AUTHOR = ("sha", "id", "commit", "hash"), ("title", "subject", "message"), ("author",)
COMMITS: Final = (("removed_commits", "-"), ("commits_removed", "-"), ("commits", "+"), ("added_commits", "+"))
_MOST_ROWS: Final = 3000  # of one file; beyond it the two texts stand under each other, whole
_MOST_COMPARISONS: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a diff: `sign` is "+", "-", "@" for a heading, or " " for what stays."""

    sign: str
    text: str


@dataclass(frozen=True, slots=True)
class File:
    """What would change in one file. `whole` says that the text replaces whatever is there, which is not known."""

    path: str
    added: int
    removed: int
    rows: tuple[Row, ...]
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that would come ("+") or go ("-"), as the agent tells it."""

    sign: str
    name: str
    title: str
    author: str


@dataclass(frozen=True, slots=True)
class _Pair:
    """The two texts of one edit. `names` are the arguments that they are, and no other argument is in the rows."""

    old: str
    new: str
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Changes:
    """All of it. `told` names the arguments whose whole text the rows show; `commits` are the agent's word."""

    files: tuple[File, ...] = ()
    commits: tuple[Commit, ...] = ()
    told: tuple[str, ...] = ()

    @property
    def added(self) -> int:
        """Lines that would come."""
        return sum(one.added for one in self.files)

    @property
    def removed(self) -> int:
        """Lines that would go."""
        return sum(one.removed for one in self.files)


def changes(arguments: Any, preconditions: Any = None) -> Changes:
    """Read what `arguments`, and the named facts sent beside them, say would change."""
    named = arguments if isinstance(arguments, dict) else {}
    commits = [one for source in (named, preconditions) if isinstance(source, dict) for one in _commits(source)]
    edits, told = _edits(named)
    told |= {name for name, _ in COMMITS if name in named and _is_plain(named[name])}
    return Changes(tuple(edits), tuple(commits), tuple(sorted(told)))


def _edits(named: Mapping[str, Any]) -> tuple[list[File], set[str]]:
    path = next((named[name] for name in PATHS if isinstance(named.get(name), str)), "")
    listed = named.get("edits")
    if isinstance(listed, list) and listed and all(_pair(one) is not None for one in listed):
        pairs = [pair for pair in map(_pair, listed) if pair is not None]
        # What else an edit says (replace_all, a second new text) is shown with the arguments, so the list counts as
        # told only when each edit is no more than what its rows show.
        bare = all(set(one) == pair.names for one, pair in zip(listed, pairs, strict=True))
        return [_diff(path, pair.old, pair.new) for pair in pairs], {"edits"} if bare else set()
    pair = _pair(named)
    if pair is not None:
        return [_diff(path, pair.old, pair.new)], set(pair.names)
    for name in WHOLE:
        if path and isinstance(named.get(name), str):
            lines = _lines(named[name])
            return [File(path, len(lines), 0, _rows("+", lines, named[name]), whole=True)], {name}
    for name in PATCH:
        text = named.get(name)
        if isinstance(text, str) and _is_patch(text):
            return _patch(text), {name}
    return [], set()


def _pair(value: Any) -> _Pair | None:
    """The old and the new text of one edit, the first of each that is a text; an edit may have only a new one."""
    if not isinstance(value, dict):
        return None
    found = [next((name for name in names if isinstance(value.get(name), str)), "") for names in (OLD, NEW)]
    old, new = (value[name] if name else "" for name in found)
    names = frozenset(name for name in found if name)
    return _Pair(old, new, names) if names else None


def _diff(path: str, old: str, new: str) -> File:
    before, after = _lines(old), _lines(new)
    if len(before) + len(after) > _MOST_ROWS or len(before) * len(after) > _MOST_COMPARISONS:
        rows = [Row(sign, text) for sign, text in (("-", old), ("+", new)) if text]
        return File(path, len(after), len(before), tuple(rows))
    found: list[Row] = []
    for tag, start, end, first, last in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            found += [Row(" ", line) for line in before[start:end]]
        else:
            found += [Row("-", line) for line in before[start:end]] + [Row("+", line) for line in after[first:last]]
    if (old == "" or old.endswith("\n")) != (new == "" or new.endswith("\n")) and old and new:
        found.append(Row("@", f"only the {'old' if old.endswith(chr(10)) else 'new'} text ends with a line break"))
    return File(path, _count(found, "+"), _count(found, "-"), tuple(found))


def _lines(text: str) -> list[str]:
    """The lines of a text; other characters that some programs break lines at stay within them, as visible tokens."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _rows(sign: str, lines: list[str], text: str) -> tuple[Row, ...]:
    return (Row(sign, text),) if len(lines) > _MOST_ROWS else tuple(Row(sign, line) for line in lines)


def _is_patch(text: str) -> bool:
    return text.startswith(("*** Begin Patch", "diff --git ", "--- ", "Index: ")) or "\n@@ " in text


def _patch(text: str) -> list[File]:
    """A patch by its files, each line as it stands."""
    files: list[File] = []
    path, rows = "", list[Row]()

    def close() -> None:
        if rows:
            files.append(File(path, _count(rows, "+"), _count(rows, "-"), tuple(rows)))

    for line in _lines(text):
        begins = line.startswith(("diff --git ", "*** Update File: ", "*** Add File: ", "*** Delete File: ", "Index: "))
        if begins or (line.startswith("--- ") and any(row.sign in "+-" for row in rows)):
            close()
            path, rows = "", []
        head = begins or line.startswith(("--- ", "+++ ", "@@", "***"))
        path = _path_in(line) or path
        rows.append(Row("@", line) if head else Row(line[0], line[1:]) if line[:1] in ("+", "-") else Row(" ", line))
    close()
    return files


def _path_in(line: str) -> str:
    """The file that a line of a patch names, if it names one."""
    if line.startswith("*** ") and " File: " in line:
        return line.partition(" File: ")[2]
    if line.startswith(("+++ ", "--- ")) and not line.endswith("/dev/null"):
        return line[4:].removeprefix("b/").removeprefix("a/")
    return ""


def _count(rows: Iterable[Row], sign: str) -> int:
    return sum(row.sign == sign for row in rows)


def _is_plain(listed: Any) -> bool:
    """True when a list of commits says nothing but what a Commit holds, so that showing those shows all of it."""
    kinds = (_SHA, _TITLE, _AUTHOR)
    return isinstance(listed, list) and all(
        isinstance(one, str)
        or (
            isinstance(one, dict)
            and all(sum(name in one for name in kind) <= 1 for kind in kinds)
            and all(isinstance(value, str) and name in (*_SHA, *_TITLE, *_AUTHOR) for name, value in one.items())
        )
        for one in listed
    )


def _commits(source: Mapping[str, Any]) -> list[Commit]:
    found = []
    for name, sign in COMMITS:
        listed = source.get(name)
        for one in listed if isinstance(listed, list) else []:
            if isinstance(one, str):
                head, _, rest = one.partition(" ")
                found.append(Commit(sign, head, rest, ""))
            elif isinstance(one, dict):
                found.append(Commit(sign, _text(one, *_SHA), _text(one, *_TITLE), _text(one, *_AUTHOR)))
    return found


def _text(value: Mapping[str, Any], *names: str) -> str:
    return next((str(value[name]) for name in names if isinstance(value.get(name), str)), "")
