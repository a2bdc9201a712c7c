"""Order the changes of a call for a page: dangerous files first, harmless ones folded. Pure.

Nothing is left out: every file, row and commit of `Changes` is in the result once.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from approvals.diff import shown_rows
from approvals.diff.from_arguments import Changes, Commit
from approvals.diff.path_classes import CLASS_BY_NAME, PathClass, classify_path
from approvals.diff.shown_rows import ShownRow
from approvals.diff.unified import FileDiff
from approvals.diff.word_differences import WordBudget

MAX_FIRST_ROWS: Final = 200  # of files that are not dangerous, before the other facts
MAX_OPEN_MACHINE_ROWS: Final = 100  # of a file that a program wrote; longer ones are closed
MAX_LISTED_NAMES: Final = 40  # of harmless files, in their one line
_MODE: Final = re.compile(r"(?:(new|old|new file|deleted file) mode|index \S+) ([0-7]{6})")
_BINARY: Final = re.compile(r"GIT binary patch|Binary files .* differ")
_EXECUTABLE, _SYMLINK, _SUBMODULE = "100755", "120000", "160000"


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A changed file with its class; `words` say what it may endanger, `is_open` if it is open."""

    file: FileDiff
    path_class: PathClass
    words: tuple[str, ...]
    budget: WordBudget
    is_open: bool = True

    @property
    def numbering(self) -> str:
        """What its line numbers count: "file", "text" or ""."""
        return shown_rows.find_numbering(self.file)

    def build_rows(self) -> list[ShownRow]:
        """Build its rows with numbers and changed words."""
        return shown_rows.build_shown_rows(self.file, self.budget)


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files that are shown together: one file, or harmless ones folded into one line.

    `title` and `names` are for a folded group: 6 files in docs/, and their names below it.
    """

    files: tuple[ShownFile, ...]
    title: str = ""
    names: tuple[str, ...] = ()
    unnamed: int = 0

    @property
    def added(self) -> int:
        """Number of added lines."""
        return sum(shown.file.added for shown in self.files)

    @property
    def removed(self) -> int:
        """Number of removed lines."""
        return sum(shown.file.removed for shown in self.files)


@dataclass(frozen=True, slots=True)
class OrderedChanges:
    """The changes of a call in the order of danger.

    `first` stand beside the summary, `rest` after the other facts; no file of `rest` is dangerous.
    """

    changes: Changes
    first: tuple[FileGroup, ...] = ()
    rest: tuple[FileGroup, ...] = ()
    removed_commits: tuple[Commit, ...] = ()
    added_commits: tuple[Commit, ...] = ()
    is_ordered: bool = field(default=False)  # files of several classes

    @property
    def file_count(self) -> int:
        """Number of files; several edits of one file count once."""
        return len({file.path for file in self.changes.files})

    @property
    def dangerous_count(self) -> int:
        """Number of dangerous files."""
        return len(
            {
                shown.file.path
                for group in self.first
                for shown in group.files
                if shown.path_class.is_dangerous
            }
        )

    @property
    def numbering_note(self) -> str:
        """What the line numbers do not say; empty if all are those of the files."""
        groups = (*self.first, *self.rest)
        counted = {
            shown.numbering
            for group in groups
            for shown in group.files
            if any(row.sign != "@" for row in shown.file.rows)
        }
        if counted <= {shown_rows.IN_FILE}:
            return ""
        if shown_rows.IN_TEXT in counted:
            return "Line numbers count within the text sent; those of the file are unknown."
        return "Line numbers in the file are unknown."


def order_changes(changes: Changes) -> OrderedChanges:
    """Order files by danger and commits by sign; files of one class keep their order."""
    budget = WordBudget()
    files = sorted(
        (_build_shown_file(file, budget) for file in changes.files),
        key=lambda shown: shown.path_class.rank,
    )
    ordinary = [shown for shown in files if not shown.path_class.is_harmless]
    harmless = [shown for shown in files if shown.path_class.is_harmless]
    if ordinary:
        groups = [FileGroup((shown,)) for shown in ordinary]
        groups += [
            _fold_group(tuple(listed))
            for _name, listed in groupby(harmless, key=lambda shown: shown.path_class.name)
        ]
    else:
        groups = [FileGroup((shown,)) for shown in harmless]
    split = _count_first(groups)
    return OrderedChanges(
        changes,
        tuple(groups[:split]),
        tuple(groups[split:]),
        tuple(commit for commit in changes.commits if commit.sign == "-"),
        tuple(commit for commit in changes.commits if commit.sign != "-"),
        len({shown.path_class.name for shown in files}) > 1,
    )


def _build_shown_file(file: FileDiff, budget: WordBudget) -> ShownFile:
    by_path = classify_path(file.path)
    by_headings = list(_read_headings(file))
    classes = [by_path, *(listed for listed, _word in by_headings)]
    words = [by_path.word] if by_path.is_dangerous or by_path.name == "generated" else []
    words += [word for _listed, word in by_headings if word not in words]
    gravest = min(classes, key=lambda listed: listed.rank)
    is_written_by_program = gravest.name in ("lock", "generated", "binary")
    is_open = not is_written_by_program or len(file.rows) <= MAX_OPEN_MACHINE_ROWS
    return ShownFile(file, gravest, tuple(words), budget, is_open)


def _read_headings(file: FileDiff) -> Iterator[tuple[PathClass, str]]:
    """Yield what git's headings say of a file: mode, symbolic link, submodule, binary."""
    modes: dict[str, str] = {}
    for row in file.rows:
        if row.sign != "@" or row.text.startswith("@@"):
            break
        if match := _MODE.search(row.text):
            modes[match[1] or "index"] = match[2]
        elif _BINARY.match(row.text):
            yield CLASS_BY_NAME["binary"], CLASS_BY_NAME["binary"].word
    for mode, name in ((_SYMLINK, "symlink"), (_SUBMODULE, "submodule")):
        if mode in modes.values():
            yield CLASS_BY_NAME[name], CLASS_BY_NAME[name].word
    if "old" in modes and "new" in modes:
        yield CLASS_BY_NAME["mode"], f"file mode {modes['old']} → {modes['new']}"
    elif modes.get("new file") == _EXECUTABLE:
        yield CLASS_BY_NAME["mode"], "new executable"


def _fold_group(files: tuple[ShownFile, ...]) -> FileGroup:
    """Fold harmless files of one class into one line that lists them."""
    paths = list(dict.fromkeys(shown.file.path for shown in files))
    folder = _find_common_folder(paths)
    word = files[0].path_class.word
    count = f"{len(paths)} file{'' if len(paths) == 1 else 's'}"
    return FileGroup(
        files,
        f"{count} in {folder}" if folder else f"{count} of {word}",
        tuple(path[len(folder) :] for path in paths[:MAX_LISTED_NAMES]),
        max(0, len(paths) - MAX_LISTED_NAMES),
    )


def _find_common_folder(paths: Sequence[str]) -> str:
    """Return the folder of all paths with its "/"; "" for none."""
    folders = [path.split("/")[:-1] for path in paths]
    common: list[str] = []
    for names in zip(*folders, strict=False):
        if len(set(names)) != 1:
            break
        common.append(names[0])
    return "".join(f"{name}/" for name in common)


def _count_lines(shown: ShownFile) -> int:
    return sum(1 + row.text.count("\n") for row in shown.file.rows)


def _count_first(groups: Iterable[FileGroup]) -> int:
    """Count the groups that stand beside the summary: all dangerous ones, and short others."""
    count = rows = 0
    for group in groups:
        if not group.files[0].path_class.is_dangerous:
            rows += 0 if group.title else sum(map(_count_lines, group.files))
            if rows > MAX_FIRST_ROWS:
                break
        count += 1
    return count
