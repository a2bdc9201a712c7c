"""Classes of files, and the paths that the arguments of a call change. Pure."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from approvals.checks.claims.named_values import build_word_set
from approvals.checks.claims.shell_commands import read_commands
from approvals.diff.from_arguments import extract_changes
from approvals.diff.path_classes import CLASS_BY_NAME, classify_path
from approvals.diff.unified import FileDiff

MAX_PATHS: Final = 2_000  # of one request
_DOCS_ENDINGS: Final = build_word_set("md mdx markdown rst adoc asciidoc textile tex pdf docx odt")
_PICTURES: Final = build_word_set("png jpg jpeg gif svg webp avif ico mp4")
_DOCS_NAMES: Final = re.compile(
    r"(?:readme|changelog|changes|history|news|licen[cs]e|copying|notice|authors|contributors"
    r"|contributing|code_of_conduct|security|support|maintainers)(?:\.\w+)?"
    r"|mkdocs\.ya?ml|\.readthedocs\.ya?ml|book\.toml|docusaurus\.config\.[jt]s|sidebars\.[jt]s"
    r"|typedoc\.json|_config\.yml|\.markdownlint.*|\.vale\.ini|\.codespell\w*|cspell\.json"
    r"|llms(?:-full)?\.txt",
    re.IGNORECASE,
)
_DOCS_FOLDERS: Final = frozenset(("docs", "doc", "documentation", "wiki", "man", "changelog.d"))
_TEST_FOLDERS: Final = build_word_set(
    "test tests testing spec specs __tests__ __mocks__ __snapshots__ e2e cypress testdata fixtures"
    " test-data test_data snapshots it"
)
_TEST_NAMES: Final = re.compile(
    r"test_.*|.*_tests?\.\w+|.*[.-](?:test|spec|cy)\.\w+|.*tests?\.(?:java|kt|cs|swift|php|scala)"
    r"|.*_spec\.rb|conftest\.py|pytest\.ini|tox\.ini|jest\.config\.\w+|vitest\.config\.\w+"
    r"|.*\.snap|tests?\.\w+|codecov\.yml|\.coveragerc",
    re.IGNORECASE,
)
_CODE: Final = build_word_set(
    "py pyi js jsx mjs cjs ts tsx go rs java kt kts scala rb php c h cc cpp hpp cs swift m mm ex"
    " exs erl hs ml clj dart lua pl pm r jl sh bash zsh ps1 bat sql vue svelte css scss less"
    " html htm erb jinja j2 tmpl proto graphql sol zig nim groovy gradle cmake mk asm s"
)
_INFRASTRUCTURE: Final = build_word_set("tf tfvars hcl bicep")
_STYLES: Final = build_word_set("css scss sass less styl pcss html htm vue svelte")
_LOCALES: Final = build_word_set("locale locales i18n l10n lang langs translations messages")
_TRANSLATED: Final = build_word_set("po pot mo xliff xlf arb strings ftl")

# Class of a file -> how a sentence counts it: one of it, several of it.
CLASS_WORDS: Final[dict[str, tuple[str, str]]] = {
    "production": ("production values", "production values"),
    "secret": ("a secrets file", "secrets files"),
    "ci": ("a CI workflow", "CI workflows"),
    "release": ("a build file", "build files"),
    "permission": ("a permissions file", "permissions files"),
    "deployment": ("deployment files", "deployment files"),
    "hook": ("a hook", "hooks"),
    "migration": ("a database migration", "database migrations"),
    "lock": ("a lock file", "lock files"),
    "manifest": ("a dependency list", "dependency lists"),
    "binary": ("a binary", "binaries"),
    "source": ("a source file", "source files"),
    "test": ("a test", "tests"),
    "configuration": ("a configuration file", "configuration files"),
    "docs": ("a document", "documents"),
    "other": ("another file", "other files"),
}


@dataclass(frozen=True, slots=True)
class ChangedPaths:
    """The paths that a call changes.

    `source` is the dot path of the argument that lists them. `whole`: the arguments name every
    path, so that their number is known. `files` are the changes line by line, if the call contains
    them.
    """

    paths: tuple[str, ...] = ()
    source: str = "changes"
    whole: bool = True
    files: tuple[FileDiff, ...] = ()


def classify_file(path: str) -> str:
    """Return the class of a path, a key of CLASS_WORDS.

    It is that of the diff (approvals/diff/path_classes.py), except that claims count more files as
    documents and tests, and that a file of which nothing is known is no source.
    """
    path = normalize_path(path)
    name, folders, ending = _split_path(path)
    listed = classify_path(path)
    if listed.name in ("ci", "lock"):
        return listed.name
    if _is_docs(name, folders, ending):
        return "docs"
    if _is_test(name, folders):
        return "test"
    if listed.is_dangerous:
        return listed.name
    if listed.name == "configuration" and ending not in _CODE:
        return listed.name
    return "source" if ending in _CODE else "other"


def is_dangerous_path(path: str) -> bool:
    """Return True for production values, CI, secrets, migrations and the like."""
    listed = CLASS_BY_NAME.get(classify_file(path))
    return listed is not None and listed.is_dangerous


def is_code_path(path: str) -> bool:
    """Return True for sources, and for what runs: build files, CI, migrations, infrastructure."""
    ending = _split_path(normalize_path(path))[2]
    return (
        classify_file(path) in ("source", "migration", "release", "ci") or ending in _INFRASTRUCTURE
    )


def is_docs_path(path: str) -> bool:
    """Return True for documents, pictures included."""
    return (
        classify_file(path) == "docs"
        or normalize_path(path).rpartition(".")[2].casefold() in _PICTURES
    )


def is_test_path(path: str) -> bool:
    """Return True for tests and what only they use."""
    return classify_file(path) == "test" or _is_test(
        path.rpartition("/")[2], [folder.casefold() for folder in path.split("/")[:-1]]
    )


def is_style_path(path: str) -> bool:
    """Return True for style sheets, pages with styles, pictures and documents."""
    ending = path.rpartition(".")[2].casefold()
    return ending in _STYLES or is_docs_path(path)


def is_translation_path(path: str) -> bool:
    """Return True for translated texts."""
    folders = {folder.casefold() for folder in normalize_path(path).split("/")[:-1]}
    ending = path.rpartition(".")[2].casefold()
    return bool(folders & _LOCALES) or ending in _TRANSLATED or is_docs_path(path)


def is_picture(path: str) -> bool:
    """Return True for a picture or film."""
    return path.rpartition(".")[2].casefold() in _PICTURES


def normalize_path(path: str) -> str:
    """Return a path without `./`, `a/../` and backslashes."""
    return posixpath.normpath(path.strip().replace("\\", "/")) if path.strip() else ""


def describe_classes(paths: Iterable[str]) -> str:
    """Return a sentence that counts files: Production values and 2 lock files."""
    counts: dict[str, int] = {}
    for path in paths:
        file_class = classify_file(path)
        counts[file_class] = counts.get(file_class, 0) + 1
    order = list(CLASS_WORDS)
    pieces = [
        CLASS_WORDS[name][0]
        if counts[name] == 1 or CLASS_WORDS[name][0] == CLASS_WORDS[name][1]
        else f"{counts[name]} {CLASS_WORDS[name][1]}"
        for name in sorted(counts, key=order.index)
    ]
    listed = " and ".join([", ".join(pieces[:-1]), pieces[-1]] if len(pieces) > 1 else pieces)
    return f"{listed[:1].upper()}{listed[1:]}." if listed else ""


def _is_docs(name: str, folders: list[str], ending: str) -> bool:
    if ending in _DOCS_ENDINGS or _DOCS_NAMES.fullmatch(name):
        return True
    if folders[:1] and folders[0] in _DOCS_FOLDERS:
        return True
    in_docs = bool(_DOCS_FOLDERS.intersection(folders))
    if in_docs:
        return ending not in _CODE
    return ending == "txt" and classify_path(name).name != "manifest" and name not in _PLAIN_TEXT


_PLAIN_TEXT: Final = frozenset(("CMakeLists.txt", "robots.txt", "constraints.txt", "runtime.txt"))


def _is_test(name: str, folders: list[str]) -> bool:
    return bool(_TEST_FOLDERS.intersection(folders)) or _TEST_NAMES.fullmatch(name) is not None


def _split_path(path: str) -> tuple[str, list[str], str]:
    """Return name, folders and ending of a path; folders and ending in lower case."""
    *folders, name = path.split("/")
    ending = name.rpartition(".")[2].casefold() if "." in name else ""
    return name, [folder.casefold() for folder in folders], ending


_PATH_LISTS: Final = build_word_set(
    "files paths changed_files changed_paths file_paths filenames file_names modified"
    " modified_files added added_files removed_files deleted deleted_files deleted_paths"
    " pathspec pathspecs file_list touched_files touched edited_files updated_files new_files"
)
_PATH_KEYS: Final = (
    "path", "filename", "file", "file_path", "filePath", "new_path", "name", "old_path"
)  # fmt: skip
_STATS: Final = frozenset(("stat", "diffstat", "diff_stat", "numstat", "shortstat"))
_MAX_STAT: Final = 4_000  # characters of a list of changed files; the pattern is quadratic
_STAT_LINE: Final = re.compile(
    r"^\s?(\S.*?)\s+\|\s+(?:\d+|Bin)\b|^(?:\d+|-)\t(?:\d+|-)\t(\S.*)$", re.M
)
_WRITING: Final = build_word_set(
    "write create edit update delete remove move rename upload save put replace insert patch"
)


def collect_changed_paths(tool: str, arguments: Any, preconditions: Any = None) -> ChangedPaths:
    """Return what a call changes by its diff, lists of files, or commands."""
    listed = _collect_listed(arguments, preconditions)
    changes = extract_changes(arguments, preconditions)
    paths = [path for file in changes.files for path in file.path.split(" \u2192 ") if path]
    if paths:
        if listed is not None and set(listed.paths) - set(paths):
            return ChangedPaths((*paths, *listed.paths), listed.source, files=changes.files)
        return ChangedPaths(_unique(paths), files=changes.files)
    if listed is not None:
        return listed
    for source, commands in read_commands(arguments):
        added = [path for command in commands for path in _list_command_paths(command.words)]
        if added:
            whole = not any(path in (".", "-A", "--all", "-u", "*") for path in added)
            paths = [path for path in added if path not in (".", "*") and path[0] != "-"]
            return ChangedPaths(_unique(paths), source, whole)
    named = arguments if isinstance(arguments, Mapping) else {}
    if _WRITING.intersection(
        re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", tool).casefold())
    ):
        for key in _PATH_KEYS[:4]:
            if isinstance(named.get(key), str) and named[key]:
                return ChangedPaths((named[key],), f"arguments.{key}")
    return ChangedPaths((), whole=False)


def _collect_listed(arguments: Any, preconditions: Any) -> ChangedPaths | None:
    paths: list[str] = []
    source = ""
    for root, value in (("arguments", arguments), ("preconditions", preconditions)):
        for where, listed in _iterate_path_lists(root, value, 0):
            source = source or where
            paths += listed
    return ChangedPaths(_unique(paths[:MAX_PATHS]), source) if paths else None


def _iterate_path_lists(where: str, value: Any, depth: int) -> Iterator[tuple[str, list[str]]]:
    if depth > 4:
        return
    if isinstance(value, list):
        for at, item in enumerate(value[:200]):
            if isinstance(item, dict):
                yield from _iterate_path_lists(f"{where}.{at}", item, depth + 1)
        return
    for key, item in value.items() if isinstance(value, dict) else ():
        name = str(key).casefold().replace("-", "_")
        if name in _PATH_LISTS:
            paths = _read_path_list(item)
            if paths:
                yield f"{where}.{key}", paths
                continue
        if isinstance(item, list) and item and all(map(_names_file, item)):
            yield f"{where}.{key}", _read_path_list(item)
            continue
        if name in _STATS and isinstance(item, str):
            paths = [left or right for left, right in _STAT_LINE.findall(item[:_MAX_STAT])]
            if paths:
                yield f"{where}.{key}", paths
                continue
        if isinstance(item, dict | list):
            yield from _iterate_path_lists(f"{where}.{key}", item, depth + 1)


def _read_path_list(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [str(name) for name in value if _looks_like_path(str(name))]
    if isinstance(value, str):
        parts = re.split(r"[\n,]|\s{1,}", value[:20_000])
        return parts if parts and all(map(_looks_like_path, parts)) else []
    paths = []
    for item in value[:MAX_PATHS] if isinstance(value, list) else ():
        path = item
        if isinstance(item, dict):
            path = next((item[key] for key in _PATH_KEYS if isinstance(item.get(key), str)), None)
        if not isinstance(path, str) or not path.strip():
            return []
        paths.append(path)
    return paths


def _names_file(item: Any) -> bool:
    """Return True for an object about one file, as hosts of repositories take them."""
    return isinstance(item, dict) and any(
        isinstance(item.get(key), str) for key in ("path", "file_path", "filename", "filePath")
    )


def _looks_like_path(text: str) -> bool:
    return bool(re.fullmatch(r"[^\s:]+", text)) and ("/" in text or "." in text or text.istitle())


def _list_command_paths(words: tuple[str, ...]) -> list[str]:
    """Return the paths that `git add`, `git rm`, `git mv` and `git commit --` name."""
    if words[:1] != ("git",):
        return []
    verbs = [word for word in words[1:] if word in ("add", "rm", "mv", "commit", "restore")]
    if not verbs:
        return []
    rest = list(words[words.index(verbs[0]) + 1 :])
    if verbs[0] == "commit":
        rest = rest[rest.index("--") + 1 :] if "--" in rest else []
    if verbs[0] == "restore":
        return []
    return [
        word
        for word in rest
        if word and (not word.startswith("-") or word in ("-A", "--all", "-u"))
    ]


def _unique(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))
