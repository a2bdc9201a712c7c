"""What a call would change, read out of its arguments: edits as a unified diff, and the commits of a push.

Pure. The shapes are those of the tools of many agents (Edit, MultiEdit, Write, apply_patch, str_replace …). Nothing is
left out: every line of both texts is a row, so that a person who read the rows has read the arguments. What only
resembles a patch stays with the arguments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from approvals import patches
from approvals.diffs import Budget, File, diff, new_file
from journal.gists import RUNS

PATHS: Final = ("file_path", "path", "notebook_path", "filename")
OLD: Final = ("old_string", "old_str", "old_text")
NEW: Final = ("new_string", "new_str", "new_text", "insert_text")
WHOLE: Final = ("content", "file_text", "new_source")
PATCH: Final = ("patch", "diff", "input")
_SHA, _TITLE, _AUTHOR = ("sha", "id", "commit", "hash"), ("title", "subject", "message"), ("author",)
COMMITS: Final = (("removed_commits", "-"), ("commits_removed", "-"), ("commits", "+"), ("added_commits", "+"))
# Beside one of these, what looks like a patch is what a program is fed.
_PROGRAMS: Final = tuple(name for name in RUNS if name not in PATHS)


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

    @property
    def deleted(self) -> int:
        """Files that would go."""
        return sum(one.deletes for one in self.files)


def changes(arguments: Any, preconditions: Any = None) -> Changes:
    """Read what `arguments`, and the named facts sent beside them, say would change."""
    named = arguments if isinstance(arguments, dict) else {}
    commits = [one for source in (named, preconditions) if isinstance(source, dict) for one in _commits(source)]
    edits, told = _edits(named)
    told |= {name for name, _ in COMMITS if name in named and _is_plain(named[name])}
    return Changes(tuple(edits), tuple(commits), tuple(sorted(told)))


def _edits(named: Mapping[str, Any]) -> tuple[list[File], set[str]]:
    path, budget = _text(named, *PATHS), Budget()
    listed = named.get("edits")
    if isinstance(listed, list) and listed and all(_pair(one) is not None for one in listed):
        pairs = [pair for pair in map(_pair, listed) if pair is not None]
        # What else an edit says (a path of its own, replace_all, a second new text) is shown with the arguments, so the
        # list counts as told only when each edit is no more than what its rows show.
        bare = all(set(one) == pair.names for one, pair in zip(listed, pairs, strict=True))
        files = [
            diff(_text(one, *PATHS) or path, pair.old, pair.new, budget)
            for one, pair in zip(listed, pairs, strict=True)
        ]
        return files, {"edits"} if bare else set()
    pair = _pair(named)
    if pair is not None:
        return [diff(path, pair.old, pair.new, budget)], set(pair.names)
    for name in WHOLE:
        if path and isinstance(named.get(name), str):
            return [new_file(path, named[name])], {name}
    for name in PATCH if not any(one in named for one in _PROGRAMS) else ():
        files = patches.read(named[name]) if isinstance(named.get(name), str) else []
        if files:
            return files, {name}
    return [], set()


def _pair(value: Any) -> _Pair | None:
    """The old and the new text of one edit, the first of each that is a text; an edit may have only a new one."""
    if not isinstance(value, dict):
        return None
    found = [next((name for name in names if isinstance(value.get(name), str)), "") for names in (OLD, NEW)]
    old, new = (value[name] if name else "" for name in found)
    names = frozenset(name for name in found if name)
    return _Pair(old, new, names) if names else None


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
