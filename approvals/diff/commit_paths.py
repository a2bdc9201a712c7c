"""Compare the paths that an agent names for its commits with the paths of its diff. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from approvals.diff.from_arguments import COMMIT_LISTS
from approvals.diff.path_classes import classify_path
from approvals.diff.unified import FileDiff

MAX_PATHS: Final = 2_000  # of one list; longer ones are not compared
_LISTS: Final = ("files", "paths", "changed_files", "changed_paths")
_NAMES: Final = ("path", "filename", "file_path", "name")


class PathDifference(NamedTuple):
    """Paths that only the commits name, and paths that only the diff shows."""

    only_in_commits: tuple[str, ...] = ()
    only_in_diff: tuple[str, ...] = ()


def compare_commit_paths(
    arguments: Any, preconditions: Any, files: Iterable[FileDiff]
) -> PathDifference:
    """Compare both lists, most dangerous first; nothing differs unless both name paths."""
    shown = {path for file in files for path in file.path.split(" → ") if path}
    named = {
        path
        for source in (arguments, preconditions)
        if isinstance(source, Mapping)
        for path in _list_commit_paths(source)
    }
    if not shown or not named or max(len(shown), len(named)) > MAX_PATHS:
        return PathDifference()
    return PathDifference(
        *(tuple(sorted(only, key=_order_path)) for only in (named - shown, shown - named))
    )


def _order_path(path: str) -> tuple[int, str]:
    return classify_path(path).rank, path


def _list_commit_paths(source: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of the commits that are added, and of the list beside them."""
    commits = [source.get(name) for name, sign in COMMIT_LISTS if sign == "+"]
    for listed in commits:
        for commit in listed if isinstance(listed, list) else []:
            if isinstance(commit, Mapping):
                yield from _list_paths(commit)
    if any(isinstance(listed, list) for listed in commits):
        yield from _list_paths(source)


def _list_paths(holder: Mapping[str, Any]) -> Iterator[str]:
    for name in _LISTS:
        listed = holder.get(name)
        for item in listed if isinstance(listed, list) else []:
            if isinstance(item, Mapping):
                item = next((item[key] for key in _NAMES if isinstance(item.get(key), str)), None)
            if isinstance(item, str) and item:
                yield item.removeprefix("./")
