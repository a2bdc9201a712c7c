"""Each table has one writing module, which its docstring names; no other module writes it, by ORM
or by SQL."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from django.apps import apps
from django.conf import settings

pytestmark = pytest.mark.once
APPS: Final = (
    "journal",
    "accounts",
    "sessions",
    "ledger",
    "approvals",
    "notifications",
    "monitoring",
    "investigation",
    "api",
    "db",
    "web",
    "display",
    "proofs",
    "recovery",
    "importers",
    "rebuild",
    "hooks",
    "traces",
    "pages",
    "erasure",
    "retention",
    "config",
)
OURS: Final = {
    model.__name__: model._meta.db_table
    for model in apps.get_models()
    if model.__module__.split(".")[0] in APPS
}
MODEL_OF_TABLE: Final = {table: name for name, table in OURS.items()}

_MAKES: Final = {"create", "get_or_create", "update_or_create", "bulk_create", "bulk_update"}
_CHANGES: Final = {"save", "delete", "update"}
_WRITES: Final = _MAKES | _CHANGES | {f"a{name}" for name in _MAKES | _CHANGES}
_QUERIES: Final = {
    "objects",
    "_default_manager",
    "_base_manager",
    "filter",
    "exclude",
    "all",
    "select_for_update",
}
_VERB: Final = r"(?:INSERT\s+(?:OR\s+\w+\s+)?INTO|REPLACE\s+INTO|UPDATE(?:\s+ONLY|\s+OR\s+\w+)?|DELETE\s+FROM|MERGE\s+INTO"
_SQL: Final = re.compile(_VERB + r'|TRUNCATE(?:\s+TABLE)?)\s+"?([a-z_]+)"?')
_MAY_WRITE: Final = re.compile(
    rf"\.\s*(?:{'|'.join(_WRITES)})\b|INSERT|REPLACE|UPDATE|DELETE|MERGE|TRUNCATE|write_row_changes"
)
_OPEN_SQL: Final = re.compile(_VERB + r"|TRUNCATE)\s*$")

# Overwrites the text of an erased subject in any table, and writes nothing else.
ERASES_TEXT: Final = "erasure/row_erasure.py"
SOMETHING: Final = "some row"  # the call alone does not name the model
# Writes the rows of the model that a writing module names: the call counts as that module's.
RESTORING: Final = "db/row_changes.py"
_RESTORES: Final = "write_row_changes"


def modules() -> Iterator[Path]:
    """Yield every module of the apps except migrations."""
    for app in APPS:
        for path in sorted((Path(settings.BASE_DIR) / app).rglob("*.py")):
            if "migrations" not in path.parts:
                yield path


@cache
def claimed(source: str) -> set[str]:
    """Return the models that a module's docstring claims to write."""
    docstring = ast.get_docstring(ast.parse(source)) or "" if "The one writer of" in source else ""
    match = re.match(r"The one writer of ([^:.]*)", docstring)
    return set(re.findall(r"\w+", match[1])) & OURS.keys() if match else set()


@cache
def written(source: str) -> set[str]:
    """Return the models that a module's text writes; `SOMETHING` for a row that it saves, changes
    or deletes."""
    if not _MAY_WRITE.search(source):  # parsing is slow
        return set()
    nodes = list(ast.walk(ast.parse(source)))
    imported = {
        (alias.asname or alias.name).split(".")[0]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    of_django = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("django.contrib.")
        for alias in node.names
    }
    models: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            models |= {
                MODEL_OF_TABLE[table]
                for table in _SQL.findall(node.value)
                if table in MODEL_OF_TABLE
            }
        elif isinstance(node, ast.JoinedStr):
            models |= {
                SOMETHING
                for part in node.values
                if isinstance(part, ast.Constant) and _ends_open(part)
            }
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _WRITES
        ):
            models |= _written_by_call(node.func, imported, of_django)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == _RESTORES:
            model = node.args[0]
            if not isinstance(model, ast.Name):
                models.add(SOMETHING)
            elif model.id not in of_django:
                models.add(model.id)
    return models


def _ends_open(part: ast.Constant) -> bool:
    """True for text after which the name of a table is put in."""
    return isinstance(part.value, str) and _OPEN_SQL.search(part.value) is not None


def _written_by_call(function: ast.Attribute, imported: set[str], of_django: set[str]) -> set[str]:
    """Return what a call like `….create(…)` or `….save()` writes: a model, something, or (for a verb,
    a dict or a table of Django) nothing."""
    names, node = [], function.value
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return {SOMETHING} if function.attr in {"save", "delete"} else set()
    queries = bool(_QUERIES & set(names))
    if node.id in of_django:
        return set()
    if node.id in OURS and queries:
        return {node.id}
    if node.id in imported and not queries:
        return set()  # the verb of a module
    if (
        queries
        or function.attr in {"save", "delete", "asave", "adelete"}
        or (names and function.attr in _MAKES)
    ):
        return {SOMETHING}
    return set()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Effect.objects.create(id=1)", {"Effect"}),
        ("Effect.objects.filter(id=1).exclude(state='x').update(state='y')", {"Effect"}),
        ("cursor.execute('UPDATE ledger_effect SET state = 1')", {"Effect"}),
        ("cursor.execute(f'INSERT INTO ledger_attempt ({names}) VALUES (1)')", {"Attempt"}),
        ("x = 'WITH a AS (DELETE FROM journal_body RETURNING 1) SELECT 1'", {"Body"}),
        ("x = 'INSERT OR REPLACE INTO journal_entry VALUES (1)'", {"Entry"}),
        ("cursor.execute(f'DELETE FROM {table}')", {SOMETHING}),
        ("row.save()", {SOMETHING}),
        ("find(1).delete()", {SOMETHING}),
        ("session.tasks.create(key='x')", {SOMETHING}),
        ("rows.filter(a=1).update(b=2)", {SOMETHING}),
        ("import tasks\ntasks.create(origin)", set()),
        ("digest.update(b'x'); values.update(a=1)", set()),
        ("x = 'SELECT 1 FROM ledger_effect FOR UPDATE'; Effect.objects.filter(id=1)", set()),
        ("x = 'BEFORE UPDATE ON journal_entry'", set()),
        ("write_row_changes(Effect, changes)", {"Effect"}),
        ("write_row_changes(check.model, changes)", {SOMETHING}),
        (
            "from django.contrib.sessions.models import Session as Row\nRow.objects.create(a=1)",
            set(),
        ),
    ],
)
def test_the_scanner_finds_every_kind_of_write(source: str, expected: set[str]) -> None:
    assert written(source) == expected


def test_every_table_has_one_writing_module() -> None:
    claims = [name for path in modules() for name in claimed(path.read_text())]
    assert sorted(claims) == sorted(OURS)


def test_no_other_module_writes_a_table() -> None:
    violations = []
    for path in modules():
        source = path.read_text()
        if str(path.relative_to(settings.BASE_DIR)) == ERASES_TEXT:
            continue
        own = claimed(source)
        if path.relative_to(settings.BASE_DIR).as_posix() == RESTORING:
            continue
        for name in sorted(written(source) - own):
            if not (own and name == SOMETHING):
                violations.append(f"{path.relative_to(settings.BASE_DIR)} writes {name}")
    assert violations == []


def test_every_writing_module_writes_what_it_claims() -> None:
    for path in modules():
        source = path.read_text()
        if SOMETHING not in written(source):
            assert claimed(source) <= written(source), path
