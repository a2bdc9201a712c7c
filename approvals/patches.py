"""Patches, read by their grammar: unified diffs, plain or of git or Subversion, and those of apply_patch.

Pure. A text is a patch when every one of its lines has a place in the grammar, and else it is none: what no program
would apply could be run as something else, and must then be read as what it is. A line of a hunk is told from a heading
by the counts over the hunk, never by how it begins.
"""

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from approvals.diffs import File, Row, count, lines_of

_BEGIN, _END, _END_OF_FILE = "*** Begin Patch", "*** End Patch", "*** End of File"
_UPDATE, _ADD, _DELETE, _MOVE = "*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: "
_SIGNS: Final = {_UPDATE: " +-", _ADD: "+", _DELETE: ""}
_GIT, _INDEX, _NONE = "diff --git ", "Index: ", "/dev/null"
_NO_END: Final = "\\ No newline at end of file"
# What of git's headings changes no more than the page says: neither modes nor links are among them.
_OF_GIT: Final = re.compile(
    r"index [0-9a-f]{4,64}\.\.[0-9a-f]{4,64}(?: [0-7]{6})?|(?:dis)?similarity index [0-9]{1,3}%"
    r"|new file mode 100644|deleted file mode [0-7]{6}|rename (?:from|to) .+"
)
_NAME: Final = re.compile(
    r"(?:---|\+\+\+) ([^\t]+)(?:\t(?:[-+:. 0-9]*|\((?:revision [0-9]+|working copy|nonexistent)\)))?"
)
_HUNK: Final = re.compile(r"@@ -[0-9]{1,9}(?:,([0-9]{1,9}))? \+[0-9]{1,9}(?:,([0-9]{1,9}))? @@(?: .*)?")


class _NoPatch(Exception):
    """A line stands where the grammar has no place for it."""


@dataclass(slots=True)
class _Draft:
    """A file that is being read."""

    path: str = ""
    rows: list[Row] = field(default_factory=list)
    deletes: bool = False


def read(text: str) -> list[File]:
    """The files of a patch, all of its lines among their rows; none when `text` is anything but one patch."""
    left = deque(lines_of(text))
    try:
        drafts = _marked(left) if left and left[0] == _BEGIN else _unified(left)
    except _NoPatch:
        return []
    return [
        File(one.path, count(one.rows, "+"), count(one.rows, "-"), tuple(one.rows), deletes=one.deletes)
        for one in drafts
    ]


def _heading(left: deque[str], draft: _Draft) -> str:
    if not left:
        raise _NoPatch
    draft.rows.append(Row("@", left[0]))
    return left.popleft()


def _line(left: deque[str], draft: _Draft, signs: str) -> str:
    """Take one line that has one of `signs`, and return its sign. Of an empty line the blank before it was cut off."""
    sign = left[0][:1] or " "
    if sign not in signs:
        raise _NoPatch
    draft.rows.append(Row(sign, left.popleft()[1:]))
    return sign


def _blanks(left: deque[str], draft: _Draft) -> None:
    while left and not left[0]:
        _line(left, draft, " ")


def _unified(left: deque[str]) -> list[_Draft]:
    drafts = []
    while left:
        drafts.append(_file(left))
    return drafts


def _file(left: deque[str]) -> _Draft:
    draft = _Draft()
    git = index = ""
    more: list[str] = []
    if left[0].startswith(_GIT):
        git = _heading(left, draft).removeprefix(_GIT)
        while left and _OF_GIT.fullmatch(left[0]):
            more.append(_heading(left, draft))
    elif left[0].startswith(_INDEX):
        index = _heading(left, draft).removeprefix(_INDEX)
        if set(_heading(left, draft)) != {"="}:
            raise _NoPatch
    renamed = _renamed(more)
    draft.deletes = any(line.startswith("deleted") for line in more)
    if left and left[0].startswith("--- "):
        old, new = _paths(_name(left, draft, "---"), _name(left, draft, "+++"))
        draft.deletes |= not new
        _hunk(left, draft)
        while left and left[0].startswith("@@"):
            _hunk(left, draft)
    elif renamed is not None:
        old, new = renamed
    elif draft.deletes or any(line.startswith("new") for line in more):
        old, new = _paths(git[: len(git) // 2], git[len(git) // 2 + 1 :])
        if old != new:
            raise _NoPatch
    else:
        raise _NoPatch
    one, other = old or new, new or old
    if (git and git not in (f"a/{one} b/{other}", f"{one} {other}")) or (renamed or (old, new)) != (old, new):
        raise _NoPatch
    if index and index not in (old, new):
        raise _NoPatch
    draft.path = one if one == other else f"{one} → {other}"
    _blanks(left, draft)
    return draft


def _renamed(more: list[str]) -> tuple[str, str] | None:
    """The old and the new path, if headings of git say that a file would be moved."""
    old = [line.removeprefix("rename from ") for line in more if line.startswith("rename from ")]
    new = [line.removeprefix("rename to ") for line in more if line.startswith("rename to ")]
    if not old and not new:
        return None
    if (len(old), len(new)) != (1, 1):
        raise _NoPatch
    return old[0], new[0]


def _name(left: deque[str], draft: _Draft, mark: str) -> str:
    found = _NAME.fullmatch(_heading(left, draft))
    if found is None or not found[0].startswith(mark):
        raise _NoPatch
    return found[1]


def _paths(before: str, after: str) -> tuple[str, str]:
    """The old and the new path as two headings name them, "" where there is no file."""
    both = ((before, "a/"), (after, "b/"))
    prefixed = all(name == _NONE or (name.startswith(mark) and name != mark) for name, mark in both)
    old, new = ("" if name == _NONE else name[2:] if prefixed else name for name, _ in both)
    if not (old or new):
        raise _NoPatch
    return old, new


def _hunk(left: deque[str], draft: _Draft) -> None:
    found = _HUNK.fullmatch(_heading(left, draft))
    if found is None:
        raise _NoPatch
    old, new = (1 if number is None else int(number) for number in found.groups())
    changes = False
    while old or new:
        if not left:
            raise _NoPatch
        sign = _line(left, draft, (" " if old and new else "") + ("-" if old else "") + ("+" if new else ""))
        old -= sign != "+"
        new -= sign != "-"
        changes |= sign != " "
        if left and left[0] == _NO_END:
            _heading(left, draft)
    if not changes:
        raise _NoPatch


def _marked(left: deque[str]) -> list[_Draft]:
    """A patch between its marks: what has no sign, and is no heading between files, has no place in it."""
    drafts: list[_Draft] = []
    draft = _Draft()
    _heading(left, draft)
    while left and left[0] != _END:
        line = _heading(left, draft)
        kind = next((one for one in _SIGNS if line.startswith(one)), None)
        if kind is None or line == kind:
            raise _NoPatch
        draft.path, draft.deletes = line.removeprefix(kind), kind == _DELETE
        moves = kind == _UPDATE and bool(left) and left[0].startswith(_MOVE)
        if moves:
            draft.path += f" → {_heading(left, draft).removeprefix(_MOVE)}"
        changes = _body(left, draft, kind)
        if kind == _UPDATE and not (changes or moves):
            raise _NoPatch
        drafts.append(draft)
        draft = _Draft()
    if not drafts:
        raise _NoPatch
    _heading(left, drafts[-1])
    _blanks(left, drafts[-1])
    if left:
        raise _NoPatch
    return drafts


def _body(left: deque[str], draft: _Draft, kind: str) -> bool:
    """Read what one file of a marked patch says; true when any line of it comes or goes."""
    changes = False
    while left and (left[0] == _END_OF_FILE or not left[0].startswith("*** ")):
        if kind == _UPDATE and (left[0] in ("@@", _END_OF_FILE) or left[0].startswith("@@ ")):
            _heading(left, draft)
        else:
            changes |= _line(left, draft, _SIGNS[kind]) != " "
    return changes
