"""Parse patches: unified diffs (plain, git, Subversion) and apply_patch patches.

Pure. A text is a patch only if the grammar accepts every line: a text that no program would apply
could be run as something else, so it must be shown as it is. The counts in the hunk header tell a
line of the hunk from a heading, never its first characters.
"""

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from approvals.diff.unified import DiffRow, FileDiff, count_diff_rows, split_lines

_BEGIN, _END, _END_OF_FILE = "*** Begin Patch", "*** End Patch", "*** End of File"
_UPDATE, _ADD, _DELETE, _MOVE = (
    "*** Update File: ",
    "*** Add File: ",
    "*** Delete File: ",
    "*** Move to: ",
)
_SIGNS: Final = {_UPDATE: " +-", _ADD: "+", _DELETE: ""}
_GIT, _INDEX, _NONE = "diff --git ", "Index: ", "/dev/null"
_NO_END: Final = "\\ No newline at end of file"
# Headings of git. approvals/diff/file_order.py says in words what modes and links change.
_GIT_HEADING: Final = re.compile(
    r"index [0-9a-f]{4,64}\.\.[0-9a-f]{4,64}(?: [0-7]{6})?|(?:dis)?similarity index [0-9]{1,3}%"
    r"|(?:old|new|new file|deleted file) mode [0-7]{6}|rename (?:from|to) .+"
)
_BINARY_FILES: Final = re.compile(r"Binary files (.+) and (.+) differ")
_BINARY_PATCH: Final = "GIT binary patch"
_BINARY_BLOCK: Final = re.compile(r"(?:literal|delta) [0-9]{1,12}")
_BASE_85: Final = re.compile(r"[A-Za-z](?:[0-9A-Za-z!#$%&()*+;<=>?@^_`{|}~-]{5}){1,13}")
_NAME: Final = re.compile(
    r"(?:---|\+\+\+) ([^\t]+)"
    r"(?:\t(?:[-+:. 0-9]*|\((?:revision [0-9]+|working copy|nonexistent)\)))?"
)
_HUNK: Final = re.compile(
    r"@@ -[0-9]{1,9}(?:,([0-9]{1,9}))? \+[0-9]{1,9}(?:,([0-9]{1,9}))? @@(?: .*)?"
)


class _NotAPatch(Exception):
    """The grammar does not accept a line."""


@dataclass(slots=True)
class _Draft:
    """A file while its lines are parsed."""

    path: str = ""
    rows: list[DiffRow] = field(default_factory=list)
    deletes: bool = False


def parse_patch(text: str) -> list[FileDiff]:
    """Parse one patch into files with all lines as rows; empty if it is none."""
    pending = deque(split_lines(text))
    try:
        drafts = (
            _parse_marked(pending) if pending and pending[0] == _BEGIN else _parse_unified(pending)
        )
    except _NotAPatch:
        return []
    return [
        FileDiff(
            draft.path,
            count_diff_rows(draft.rows, "+"),
            count_diff_rows(draft.rows, "-"),
            tuple(draft.rows),
            deletes=draft.deletes,
        )
        for draft in drafts
    ]


def _take_heading(pending: deque[str], draft: _Draft) -> str:
    if not pending:
        raise _NotAPatch
    draft.rows.append(DiffRow("@", pending[0]))
    return pending.popleft()


def _take_line(pending: deque[str], draft: _Draft, signs: str) -> str:
    """Take a line with one of `signs`, return its sign; an empty line has " "."""
    sign = pending[0][:1] or " "
    if sign not in signs:
        raise _NotAPatch
    draft.rows.append(DiffRow(sign, pending.popleft()[1:]))
    return sign


def _take_blanks(pending: deque[str], draft: _Draft) -> None:
    while pending and not pending[0]:
        _take_line(pending, draft, " ")


def _parse_unified(pending: deque[str]) -> list[_Draft]:
    drafts = []
    while pending:
        drafts.append(_parse_file(pending))
    return drafts


def _parse_file(pending: deque[str]) -> _Draft:
    draft = _Draft()
    git = index = ""
    more: list[str] = []
    if pending[0].startswith(_GIT):
        git = _take_heading(pending, draft).removeprefix(_GIT)
        while pending and _GIT_HEADING.fullmatch(pending[0]):
            more.append(_take_heading(pending, draft))
    elif pending[0].startswith(_INDEX):
        index = _take_heading(pending, draft).removeprefix(_INDEX)
        if set(_take_heading(pending, draft)) != {"="}:
            raise _NotAPatch
    renamed = _renamed_paths(more)
    draft.deletes = any(line.startswith("deleted") for line in more)
    if pending and pending[0].startswith("--- "):
        old, new = _resolve_paths(
            _take_name(pending, draft, "---"), _take_name(pending, draft, "+++")
        )
        draft.deletes |= not new
        _parse_hunk(pending, draft)
        while pending and pending[0].startswith("@@"):
            _parse_hunk(pending, draft)
    elif pending and git and (match := _BINARY_FILES.fullmatch(pending[0])):
        _take_heading(pending, draft)
        old, new = _resolve_paths(match[1], match[2])
    elif pending and git and pending[0] == _BINARY_PATCH:
        _take_binary_patch(pending, draft)
        old, new = renamed or _split_git_paths(git)
    elif renamed is not None:
        old, new = renamed
    elif draft.deletes or any(line.startswith("new") for line in more):
        old, new = _split_git_paths(git)
    else:
        raise _NotAPatch
    if sum(line.startswith(("old mode ", "new mode ")) for line in more) not in (0, 2):
        raise _NotAPatch
    old_path, new_path = old or new, new or old
    if (git and git not in (f"a/{old_path} b/{new_path}", f"{old_path} {new_path}")) or (
        renamed or (old, new)
    ) != (
        old,
        new,
    ):
        raise _NotAPatch
    if index and index not in (old, new):
        raise _NotAPatch
    draft.path = old_path if old_path == new_path else f"{old_path} → {new_path}"
    _take_blanks(pending, draft)
    return draft


def _split_git_paths(git: str) -> tuple[str, str]:
    """Return the paths of a git heading whose two names must be the same."""
    old, new = _resolve_paths(git[: len(git) // 2], git[len(git) // 2 + 1 :])
    if old != new:
        raise _NotAPatch
    return old, new


def _take_binary_patch(pending: deque[str], draft: _Draft) -> None:
    """Take a binary patch of git: one or two blocks of text, each ended by an empty line."""
    _take_heading(pending, draft)
    blocks = 0
    while pending and blocks < 2 and _BINARY_BLOCK.fullmatch(pending[0]):
        _take_heading(pending, draft)
        while pending and _BASE_85.fullmatch(pending[0]):
            _take_heading(pending, draft)
        _take_blanks(pending, draft)
        blocks += 1
    if not blocks:
        raise _NotAPatch


def _renamed_paths(more: list[str]) -> tuple[str, str] | None:
    """Return the old and the new path if git headings move a file."""
    old = [line.removeprefix("rename from ") for line in more if line.startswith("rename from ")]
    new = [line.removeprefix("rename to ") for line in more if line.startswith("rename to ")]
    if not old and not new:
        return None
    if (len(old), len(new)) != (1, 1):
        raise _NotAPatch
    return old[0], new[0]


def _take_name(pending: deque[str], draft: _Draft, mark: str) -> str:
    match = _NAME.fullmatch(_take_heading(pending, draft))
    if match is None or not match[0].startswith(mark):
        raise _NotAPatch
    return match[1]


def _resolve_paths(before: str, after: str) -> tuple[str, str]:
    """Return the old and the new path of two headings; "" where there is no file."""
    both = ((before, "a/"), (after, "b/"))
    prefixed = all(name == _NONE or (name.startswith(mark) and name != mark) for name, mark in both)
    old, new = ("" if name == _NONE else name[2:] if prefixed else name for name, _ in both)
    if not (old or new):
        raise _NotAPatch
    return old, new


def _parse_hunk(pending: deque[str], draft: _Draft) -> None:
    match = _HUNK.fullmatch(_take_heading(pending, draft))
    if match is None:
        raise _NotAPatch
    old, new = (1 if number is None else int(number) for number in match.groups())
    changes = False
    while old or new:
        if not pending:
            raise _NotAPatch
        sign = _take_line(
            pending,
            draft,
            (" " if old and new else "") + ("-" if old else "") + ("+" if new else ""),
        )
        old -= sign != "+"
        new -= sign != "-"
        changes |= sign != " "
        if pending and pending[0] == _NO_END:
            _take_heading(pending, draft)
    if not changes:
        raise _NotAPatch


def _parse_marked(pending: deque[str]) -> list[_Draft]:
    """Parse an apply_patch patch: only headings and lines with a sign are accepted."""
    drafts: list[_Draft] = []
    draft = _Draft()
    _take_heading(pending, draft)
    while pending and pending[0] != _END:
        line = _take_heading(pending, draft)
        kind = next((prefix for prefix in _SIGNS if line.startswith(prefix)), None)
        if kind is None or line == kind:
            raise _NotAPatch
        draft.path, draft.deletes = line.removeprefix(kind), kind == _DELETE
        moves = kind == _UPDATE and bool(pending) and pending[0].startswith(_MOVE)
        if moves:
            draft.path += f" → {_take_heading(pending, draft).removeprefix(_MOVE)}"
        changes = _parse_body(pending, draft, kind)
        if kind == _UPDATE and not (changes or moves):
            raise _NotAPatch
        drafts.append(draft)
        draft = _Draft()
    if not drafts:
        raise _NotAPatch
    _take_heading(pending, drafts[-1])
    _take_blanks(pending, drafts[-1])
    if pending:
        raise _NotAPatch
    return drafts


def _parse_body(pending: deque[str], draft: _Draft, kind: str) -> bool:
    """Parse one file of an apply_patch patch; return True if it adds or removes lines."""
    changes = False
    while pending and (pending[0] == _END_OF_FILE or not pending[0].startswith("*** ")):
        if kind == _UPDATE and (pending[0] in ("@@", _END_OF_FILE) or pending[0].startswith("@@ ")):
            _take_heading(pending, draft)
        else:
            changes |= _take_line(pending, draft, _SIGNS[kind]) != " "
    return changes
