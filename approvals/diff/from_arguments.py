"""Extract the changes of a call from its arguments: edits and commits.

Pure. Supports the argument shapes of many agents' tools (Edit, MultiEdit, Write, apply_patch,
str_replace …). Complete: every line of both texts is a row, so that reading the rows is reading the
arguments. A text that only resembles a patch stays with the arguments.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from approvals.diff import patch_parser
from approvals.diff.unified import DiffBudget, FileDiff, diff_new_file, diff_texts
from journal.summaries import COMMAND_ARGUMENTS

PATH_NAMES: Final = ("file_path", "path", "notebook_path", "filename")
OLD_TEXT_NAMES: Final = ("old_string", "old_str", "old_text")
NEW_TEXT_NAMES: Final = ("new_string", "new_str", "new_text", "insert_text")
FULL_TEXT_NAMES: Final = ("content", "file_text", "new_source")
PATCH_NAMES: Final = ("patch", "diff", "input")
_SHA, _TITLE, _AUTHOR = (
    ("sha", "id", "commit", "hash"),
    ("title", "subject", "message"),
    ("author",),
)
COMMIT_LISTS: Final = (
    ("removed_commits", "-"),
    ("commits_removed", "-"),
    ("commits", "+"),
    ("added_commits", "+"),
)
# With one of these arguments, a text that looks like a patch is input of a program.
_PROGRAMS: Final = tuple(name for name in COMMAND_ARGUMENTS if name not in PATH_NAMES)


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that would be added ("+") or removed ("-"), as sent by the agent."""

    sign: str
    name: str
    title: str
    author: str


@dataclass(frozen=True, slots=True)
class _Pair:
    """The two texts of one edit. `names` are the only arguments that its rows show."""

    old: str
    new: str
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Changes:
    """All changes of a call.

    `shown_names` are the arguments whose full text the rows show; `commits` are the agent's
    claim.
    """

    files: tuple[FileDiff, ...] = ()
    commits: tuple[Commit, ...] = ()
    shown_names: tuple[str, ...] = ()

    @property
    def added(self) -> int:
        """Number of added lines."""
        return sum(file.added for file in self.files)

    @property
    def removed(self) -> int:
        """Number of removed lines."""
        return sum(file.removed for file in self.files)

    @property
    def deleted(self) -> int:
        """Number of deleted files."""
        return sum(file.deletes for file in self.files)


def extract_changes(arguments: Any, preconditions: Any = None) -> Changes:
    """Extract the changes that `arguments` and `preconditions` describe."""
    named = arguments if isinstance(arguments, dict) else {}
    commits = [
        commit
        for source in (named, preconditions)
        if isinstance(source, dict)
        for commit in _extract_commits(source)
    ]
    edits, covered = _extract_edits(named)
    covered |= {
        name for name, _ in COMMIT_LISTS if name in named and _has_only_commits(named[name])
    }
    return Changes(tuple(edits), tuple(commits), tuple(sorted(covered)))


def _extract_edits(named: Mapping[str, Any]) -> tuple[list[FileDiff], set[str]]:
    path, budget = _first_text(named, *PATH_NAMES), DiffBudget()
    listed = named.get("edits")
    if isinstance(listed, list) and listed and all(_find_pair(edit) is not None for edit in listed):
        pairs = [pair for pair in map(_find_pair, listed) if pair is not None]
        # Other keys of an edit (its own path, replace_all, a second new text) are shown with the
        # arguments, so the list counts as shown only if each edit holds nothing but its rows.
        bare = all(set(edit) == pair.names for edit, pair in zip(listed, pairs, strict=True))
        files = [
            diff_texts(_first_text(edit, *PATH_NAMES) or path, pair.old, pair.new, budget)
            for edit, pair in zip(listed, pairs, strict=True)
        ]
        return files, {"edits"} if bare else set()
    pair = _find_pair(named)
    if pair is not None:
        return [diff_texts(path, pair.old, pair.new, budget)], set(pair.names)
    for name in FULL_TEXT_NAMES:
        if path and isinstance(named.get(name), str):
            return [diff_new_file(path, named[name])], {name}
    for name in PATCH_NAMES if not any(edit in named for edit in _PROGRAMS) else ():
        files = patch_parser.parse_patch(named[name]) if isinstance(named.get(name), str) else []
        if files:
            return files, {name}
    return [], set()


def _find_pair(value: Any) -> _Pair | None:
    """Return the first old and the first new text of an edit; the old may be missing."""
    if not isinstance(value, dict):
        return None
    keys = [
        next((name for name in names if isinstance(value.get(name), str)), "")
        for names in (OLD_TEXT_NAMES, NEW_TEXT_NAMES)
    ]
    old, new = (value[name] if name else "" for name in keys)
    names = frozenset(name for name in keys if name)
    return _Pair(old, new, names) if names else None


def _has_only_commits(listed: Any) -> bool:
    """Return True if a list of commits holds nothing that a Commit does not show."""
    kinds = (_SHA, _TITLE, _AUTHOR)
    return isinstance(listed, list) and all(
        isinstance(commit, str)
        or (
            isinstance(commit, dict)
            and all(sum(name in commit for name in kind) <= 1 for kind in kinds)
            and all(
                isinstance(value, str) and name in (*_SHA, *_TITLE, *_AUTHOR)
                for name, value in commit.items()
            )
        )
        for commit in listed
    )


def _extract_commits(source: Mapping[str, Any]) -> list[Commit]:
    commits = []
    for name, sign in COMMIT_LISTS:
        listed = source.get(name)
        for commit in listed if isinstance(listed, list) else []:
            if isinstance(commit, str):
                head, _, rest = commit.partition(" ")
                commits.append(Commit(sign, head, rest, ""))
            elif isinstance(commit, dict):
                commits.append(
                    Commit(
                        sign,
                        _first_text(commit, *_SHA),
                        _first_text(commit, *_TITLE),
                        _first_text(commit, *_AUTHOR),
                    )
                )
    return commits


def _first_text(value: Mapping[str, Any], *names: str) -> str:
    return next((str(value[name]) for name in names if isinstance(value.get(name), str)), "")
