"""Names that a reader cannot guess are not used in Python."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
PACKAGES: Final = (
    "config",
    "pages",
    "importers",
    "api",
    "investigation",
    "monitoring",
    "recovery",
    "display",
    "notifications",
    "approvals",
    "ledger",
    "sessions",
    "accounts",
    "web",
    "journal",
    "db",
)
BANNED: Final = {"found", "told", "said", "one", "asked", "known", "mine", "here"}


def find_banned_names(tree: ast.AST) -> Iterator[str]:
    """Yield every banned name that `tree` binds: variables, parameters, fields, functions, imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names = [node.id]
        elif isinstance(node, ast.arg):
            names = [node.arg]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            names = [node.name or ""]
        elif isinstance(node, ast.alias):
            names = [node.asname or node.name]
        else:
            continue
        yield from (name for name in names if name in BANNED)


@pytest.mark.once
def test_no_name_is_banned() -> None:
    folders = (*PACKAGES, "client/gatebook_client", "evaluation", "tests")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    assert len(files) > 800
    used = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in files
        if "migrations" not in file.parts
        for name in find_banned_names(ast.parse(file.read_text()))
    }
    assert used == set(), "Name the variable after what it holds."


@pytest.mark.once
@pytest.mark.parametrize(
    "code",
    [
        "found = 1",
        "def f(told): ...",
        "for one in rows: ...",
        "import x as here",
        "class A:\n    known: int",
        "def mine(): ...",
        "try: ...\nexcept E as said: ...",
        "[asked for asked in rows]",
    ],
)
def test_a_banned_name_is_found(code: str) -> None:
    assert list(find_banned_names(ast.parse(code)))
