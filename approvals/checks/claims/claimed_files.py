"""Classes of files, and the paths that the arguments of a call change. Pure."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from approvals.checks.claims.named_values import build_word_set
from approvals.checks.claims.shell_commands import read_commands
from approvals.diff.from_arguments import extract_changes
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
_LOCKS: Final = re.compile(
    r"package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|bun\.lockb?|deno\.lock"
    r"|poetry\.lock|uv\.lock|pdm\.lock|pipfile\.lock|requirements.*\.lock|cargo\.lock|go\.sum"
    r"|gemfile\.lock|composer\.lock|mix\.lock|pubspec\.lock|flake\.lock|podfile\.lock"
    r"|gradle\.lockfile|packages\.lock\.json|\.terraform\.lock\.hcl",
    re.IGNORECASE,
)
_MANIFESTS: Final = re.compile(
    r"package\.json|pyproject\.toml|requirements.*\.(?:txt|in)|pipfile|setup\.(?:py|cfg)|cargo\.toml"
    r"|go\.mod|gemfile|composer\.json|pom\.xml|build\.gradle(?:\.kts)?|mix\.exs|.*\.csproj",
    re.IGNORECASE,
)
_CI: Final = re.compile(
    r"(?:^|/)(?:\.github/(?:workflows|actions)/.+|\.gitlab-ci\.ya?ml|\.gitlab/ci/.+|jenkinsfile[^/]*"
    r"|\.circleci/.+|azure-pipelines[^/]*\.ya?ml|\.buildkite/.+|\.travis\.ya?ml|\.drone\.ya?ml"
    r"|bitbucket-pipelines\.ya?ml|cloudbuild\.ya?ml|\.woodpecker/.+|\.tekton/.+)$",
    re.IGNORECASE,
)
_SECRETS: Final = re.compile(
    r"\.env(?:\.(?!example|sample|template|dist)[\w.-]+)?|.*\.(?:pem|key|p12|pfx|jks|keystore)"
    r"|id_(?:rsa|ed25519|ecdsa)|credentials(?:\.\w+)?|secrets?\.\w+|\.npmrc|\.pypirc|\.netrc",
    re.IGNORECASE,
)
_PERMISSIONS: Final = re.compile(r"codeowners|rbac.*\.ya?ml|iam.*\.(?:json|ya?ml|tf)", re.I)
_MIGRATIONS: Final = re.compile(r"(?:^|/)(?:migrations?|migrate|alembic/versions)/", re.IGNORECASE)
_CONTAINERS: Final = re.compile(r"(?:.*\.)?dockerfile(?:\..*)?|(?:docker-)?compose.*\.ya?ml", re.I)
_CODE: Final = build_word_set(
    "py pyi js jsx mjs cjs ts tsx go rs java kt kts scala rb php c h cc cpp hpp cs swift m mm ex"
    " exs erl hs ml clj dart lua pl pm r jl sh bash zsh ps1 bat sql vue svelte css scss less"
    " html htm erb jinja j2 tmpl proto graphql sol zig nim groovy gradle cmake mk asm s"
)
_INFRASTRUCTURE: Final = build_word_set("tf tfvars hcl bicep")
_CONFIGURATION: Final = build_word_set(
    "yaml yml json json5 toml ini cfg conf properties xml env plist service"
)
_BINARIES: Final = build_word_set(
    "exe dll so dylib bin jar war whl gz tgz zip tar 7z class o a wasm db sqlite pyc apk"
)
_STYLES: Final = build_word_set("css scss sass less styl pcss html htm vue svelte")
_LOCALES: Final = build_word_set("locale locales i18n l10n lang langs translations messages")
_TRANSLATED: Final = build_word_set("po pot mo xliff xlf arb strings ftl")
_DANGEROUS: Final = build_word_set(
    "production secret ci permissions migration infrastructure lock manifest container binary"
)
_PRODUCTION: Final = frozenset(("production", "prod"))

# Class of a file -> how a sentence counts it: one of it, several of it.
CLASS_WORDS: Final[dict[str, tuple[str, str]]] = {
    "production": ("production values", "production values"),
    "secret": ("a secrets file", "secrets files"),
    "ci": ("a CI workflow", "CI workflows"),
    "permissions": ("a permissions file", "permissions files"),
    "migration": ("a database migration", "database migrations"),
    "infrastructure": ("infrastructure code", "infrastructure code"),
    "lock": ("a lock file", "lock files"),
    "manifest": ("a dependency list", "dependency lists"),
    "container": ("a container file", "container files"),
    "binary": ("a binary", "binaries"),
    "code": ("a source file", "source files"),
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
    """Return the class of a path, a key of CLASS_WORDS: the most dangerous that fits."""
    path = normalize_path(path)
    name = path.rpartition("/")[2]
    folders = [folder.casefold() for folder in path.split("/")[:-1]]
    ending = name.rpartition(".")[2].casefold() if "." in name else ""
    if _CI.search(path) and ending not in _DOCS_ENDINGS:
        return "ci"
    if _LOCKS.fullmatch(name):
        return "lock"
    if _is_docs(name, folders, ending):
        return "docs"
    if _SECRETS.fullmatch(name) and not _TEST_FOLDERS.intersection(folders):
        return "secret"
    if _is_test(name, folders):
        return "test"
    if _is_production(folders, name, ending):
        return "production"
    if _PERMISSIONS.fullmatch(name):
        return "permissions"
    if _MIGRATIONS.search(path):
        return "migration"
    if _MANIFESTS.fullmatch(name):
        return "manifest"
    if _CONTAINERS.fullmatch(name):
        return "container"
    for file_class, endings in (
        ("infrastructure", _INFRASTRUCTURE),
        ("code", _CODE),
        ("configuration", _CONFIGURATION),
        ("binary", _BINARIES),
    ):
        if ending in endings:
            return file_class
    return "code" if name.casefold() in ("makefile", "rakefile", "justfile") else "other"


def is_dangerous_path(path: str) -> bool:
    """Return True for production values, CI, secrets, migrations and the like."""
    return classify_file(path) in _DANGEROUS


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
    return ending == "txt" and not _MANIFESTS.fullmatch(name) and name not in _PLAIN_TEXT


_PLAIN_TEXT: Final = frozenset(("CMakeLists.txt", "robots.txt", "constraints.txt", "runtime.txt"))


def _is_test(name: str, folders: list[str]) -> bool:
    return bool(_TEST_FOLDERS.intersection(folders)) or _TEST_NAMES.fullmatch(name) is not None


def _is_production(folders: list[str], name: str, ending: str) -> bool:
    if ending in _CODE:  # code of production only
        return name.rpartition(".")[0].casefold() in _PRODUCTION
    words = re.findall(r"[a-z]+", name.casefold())
    return any(_PRODUCTION.intersection(re.findall(r"[a-z]+", folder)) for folder in folders) or (
        bool(_PRODUCTION.intersection(words)) and ending in _CONFIGURATION | _INFRASTRUCTURE
    )


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
