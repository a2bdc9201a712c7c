"""Every file, module, function, command, column and variable that a document or a docstring names
exists.

Names are read from `code` spans. A span is compared if it has the form of a path, a module, a call,
a test, a table's column or a name of two words (`opened_position`); anything else is prose.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from django.apps import apps
from django.core.management import get_commands
from django.urls import Resolver404, resolve

from shell.command_effects import RUN_TOOL, UNPARSED_TOOL
from shell.mapping import load_default_mapping
from tests.sources import (
    ROOT,
    find_comments,
    find_definitions,
    list_sources,
    read_code,
    remove_comments,
)
from tests.sources import read_source as read
from tests.test_names import PACKAGES

pytestmark = pytest.mark.once
DOCUMENTS: Final = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SOURCES: Final = list_sources((*PACKAGES, "client", "evaluation"))
FOLDERS: Final = {
    path.name
    for path in ROOT.iterdir()
    if path.is_dir() and path.name != "var" and not path.name.startswith(".")
}

FENCE: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE: Final = re.compile(r"`([^`]+)`")
# `ledger/commands.py`, `tests/api/`, `sessions/*.py`, `data.py`
PATH: Final = re.compile(r"[\w.-]+(?:/[\w.*-]+)*/?")
# In a docstring or comment, also without a code span: see ledger/commands.py.
PYTHON_FILE: Final = re.compile(r"(?<![\w./<-])[\w.-]+(?:/[\w.*-]+)*\.py\b")
# `ledger.commands`, `ledger.commands.lock_effect()`, `ledger_effect.tool`
DOTTED: Final = re.compile(r"([a-z_]+(?:\.\w+)+)(?:\([^()]*\))?")
CALL: Final = re.compile(r"(\w+)\([^()]*\)")
# `load_attempts`, `opened_position`, `BREAKER_OPEN`; handles such as `e_41` have no second word.
NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:_[a-z][a-z0-9]*)+|[A-Z]+(?:_[A-Z]+)+")
# `ActiveRule.key`, `time_limit.SQLITE_STEPS`
MEMBER: Final = re.compile(r"([A-Z]\w*|[a-z_]+(?=\.[A-Z]))\.(\w+)(?:\([^()]*\))?")
# `/approvals/<gate>/vote/`, `GET /sessions/<id>`
URL: Final = re.compile(r"(?:(GET|POST|PUT) )?(/[\w<>{}/.-]*)(?:\?.*)?")
MAKE: Final = re.compile(r"^(?:[A-Z]+=\S+ )*make ([a-z][\w-]*)", re.MULTILINE)
MANAGE: Final = re.compile(r"\bmanage\.py ([a-z]\w*)")

EXCEPTIONS: Final = {
    "/api/v1": "the base address of the API",
    "/etc/gatebook.env": "a file of an example",
    "/srv/gatebook": "a folder of an example",
    "SECURE_DELETE": "an option of SQLite's build",
    "agent_sessions_": "the beginning of table names",
    "create_agent": "a function of LangChain",
    "deferred_tool_use": "a field of the Claude Agent SDK",
    "default_transaction_read_only": "a setting of PostgreSQL",
    "deferred_tool_results": "a parameter of Pydantic AI",
    "failure_error_function": "a parameter of the OpenAI Agents SDK",
    "int_range": "an error code that decision 0027 removed",
    "malloc_trim": "a function of the C library",
    "pg_dump": "a program of PostgreSQL",
    "pg_restore": "a program of PostgreSQL",
    "session_cancelled": "built from the status of a session",
    "session_completed": "built from the status of a session",
    "session_failed": "built from the status of a session",
    "shared_buffers": "a setting of PostgreSQL",
    "sqlite3_memory_used": "a function of SQLite",
    "toast_tuple_target": "a storage parameter of PostgreSQL",
}


@cache
def list_definitions() -> frozenset[str]:
    """Return the names of all functions, methods and classes, those of tests included."""
    files = (*SOURCES, *list_sources(["tests"]))
    return frozenset(name for file in files for name in find_definitions(read_code(file)))


@cache
def list_words() -> frozenset[str]:
    """Return every word of the product's code, without its docstrings and comments."""
    words = set(list_definitions())
    agents = ROOT / "tests" / "hooks" / "real" / "installed_agents.py"
    for file in (*SOURCES, ROOT / "tests" / "run_suite.py", agents):
        lines = read(file).splitlines()
        for docstring in find_docstrings(file):
            for number in range(docstring.lineno - 1, docstring.end_lineno or docstring.lineno):
                lines[number] = ""
        words |= set(re.findall(r"\w+", remove_comments("\n".join(lines))))
    for file in (
        ROOT / "Makefile",
        ROOT / "pyproject.toml",
        *(ROOT / "templates").rglob("*.html"),
        *(ROOT / "static").glob("*.js"),
        *(ROOT / "db" / "expected").iterdir(),
        *(ROOT / "docs" / "examples").iterdir(),
        *(ROOT / "evaluation").glob("*.yaml"),
    ):
        words |= set(re.findall(r"\w+", read(file)))
    return frozenset(words)


@cache
def list_make_targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z][\w-]*):", read(ROOT / "Makefile"), re.MULTILINE))


@cache
def list_file_names() -> frozenset[str]:
    return frozenset(
        file.name for folder in FOLDERS for file in (ROOT / folder).rglob("*") if file.is_file()
    )


@cache
def list_columns() -> dict[str, set[str]]:
    """Return the columns of each table."""
    return {
        model._meta.db_table: {str(field.column) for field in model._meta.local_fields}
        for model in apps.get_models()
    }


def walk_statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield a module and all statements in it; expressions are most of a tree."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for part in ("body", "orelse", "handlers", "finalbody", "cases"):
            waiting += getattr(node, part, ())


@cache
def find_docstrings(file: Path) -> list[ast.Constant]:
    """Return the docstrings of a module, its classes and its functions."""
    bodies = [
        node.body
        for node in walk_statements(ast.parse(read(file)))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    first = [body[0].value for body in bodies if body and isinstance(body[0], ast.Expr)]
    return [value for value in first if isinstance(value, ast.Constant)]


def is_path(name: str, folder: Path) -> bool:
    """True if `name` exists from the root or from `folder`; a file name alone, if it exists at all."""
    if "/" not in name and name in list_file_names():
        return True
    return any(any(base.glob(name.rstrip("/"))) for base in (ROOT, folder))


def is_dotted_name(name: str) -> bool:
    """True if `package.module`, `package.module.name` or `table.column` exists."""
    first, *rest = name.split(".")
    if first in list_columns():
        return rest[0] in list_columns()[first]
    parts = [first, *rest]
    for length in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:length])
        if path.is_dir():
            return length == len(parts)
        if (module := path.with_suffix(".py")).is_file():
            return set(parts[length:]) <= set(re.findall(r"\w+", read(module)))
    return False


@cache
def list_shell_tools() -> frozenset[str]:
    """Return the tools of shell commands, of which some begin like the package."""
    return frozenset({*load_default_mapping().list_tools(), RUN_TOOL, UNPARSED_TOOL})


@cache
def list_entry_kinds() -> frozenset[str]:
    """Return the kinds of entries that the product writes, of which some begin like a package."""
    text = "\n".join(read(file) for file in SOURCES)
    return frozenset(re.findall(r'"([a-z]+\.[a-z_]+)"', text))


@cache
def list_modules() -> frozenset[str]:
    return frozenset(file.stem for file in SOURCES)


def is_url(path: str) -> bool:
    """True if a page or an endpoint has this URL, where `<id>` and `{id}` stand for any value.

    Endpoints are also named without `/api/v1`, and commands on an effect by their end: `/fail`.
    """
    for value in ("01900000-0000-7000-8000-000000000000", "1"):
        filled = re.sub(r"<\w+>|\{\w+\}", value, path)
        subjects = (f"/api/v1/{subject}/{value}" for subject in ("effects", "sessions"))
        for prefix in ("", "/api/v1", *subjects):
            for urls in ("config.urls", "config.api_urls"):
                try:
                    resolve(prefix + filled, urls)
                except Resolver404:
                    continue
                return True
    return False


def find_missing_commands(text: str) -> Iterator[str]:
    """Yield the make targets and the commands of manage.py that do not exist."""
    for target in MAKE.findall(text):
        if target not in list_make_targets():
            yield f"make {target}"
    for command in MANAGE.findall(text):
        if command not in get_commands():
            yield f"manage.py {command}"


def find_missing_names(text: str, folder: Path) -> Iterator[str]:
    """Yield the names in code spans that the tree does not have."""
    for span in CODE.findall(text):
        code = " ".join(span.split())
        first = re.split(r"[/.]", code)[0]
        yield from find_missing_commands(code)
        if PATH.fullmatch(code) and (("/" in code and first in FOLDERS) or code.endswith(".py")):
            exists = is_path(code, folder)
        elif code in list_shell_tools():
            exists = True
        elif (dotted := DOTTED.fullmatch(code)) and first in {*PACKAGES, *list_columns()}:
            # `accounts.sign_in` may also be the kind of an entry, or a tool.
            exists = is_dotted_name(dotted[1]) or dotted[1] in list_entry_kinds()
        elif member := MEMBER.fullmatch(code):
            exists = {*member.groups()} <= list_words() | list_modules()
        elif call := CALL.fullmatch(code):
            exists = call[1] in list_words()
        elif url := URL.fullmatch(code):
            exists = is_url(url[2])
        elif NAME.fullmatch(code):
            exists = code in list_words() or f"{code}.py" in list_file_names()
        else:
            exists = True
        if not exists and code not in EXCEPTIONS:
            yield code


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_name_in_a_document_exists(document: Path) -> None:
    text = read(document)
    fences = "\n".join(FENCE.findall(text))
    missing = {
        *find_missing_commands(fences),
        *find_missing_names(FENCE.sub("", text), document.parent),
    }
    assert missing == set()


def test_every_name_in_a_docstring_or_comment_exists() -> None:
    missing = set()
    for file in SOURCES:
        texts = [str(docstring.value) for docstring in find_docstrings(file)]
        texts += find_comments(read(file))
        for text in texts:
            names = {*find_missing_names(text, file.parent)}
            names |= {name for name in PYTHON_FILE.findall(text) if not is_path(name, file.parent)}
            missing |= {f"{file.relative_to(ROOT)}: {name}" for name in names}
    assert missing == set()


def test_every_exception_is_still_needed() -> None:
    texts = "\n".join(read(file) for file in (*DOCUMENTS, *SOURCES))
    assert [name for name in EXCEPTIONS if f"`{name}" not in texts] == []
    assert EXCEPTIONS.keys() & list_words() == set()


@pytest.mark.parametrize(
    "text",
    [
        "`ledger/no_such_module.py`",
        "`no_such_module.py`",
        "`ledger.no_such_module`",
        "`ledger.commands.no_such_function()`",
        "`no_such_function()`",
        "`no_such_function`",
        "`test_no_such_test`",
        "`ledger_effect.no_such_column`",
        "`make no-such-target`",
        "`manage.py no_such_command`",
        "`GATEBOOK_NO_SUCH_SETTING`",
        "`NoSuchClass.key`",
        "`time_limit.NO_SUCH_CONSTANT`",
        "`/no/such/page/`",
        "`POST /no-such-endpoint`",
    ],
)
def test_a_name_that_does_not_exist_is_found(text: str) -> None:
    assert [*find_missing_names(text, ROOT)] == [text.strip("`")]
