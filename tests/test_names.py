"""Names that a reader cannot guess are not used in Python."""

import ast
import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.sources import ROOT, find_public_functions, list_sources, read_code, read_source

PACKAGES: Final = (
    "config",
    "pages",
    "rebuild",
    "erasure",
    "retention",
    "importers",
    "hooks",
    "traces",
    "api",
    "investigation",
    "monitoring",
    "recovery",
    "proofs",
    "display",
    "notifications",
    "approvals",
    "ledger",
    "sessions",
    "accounts",
    "web",
    "shell",
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
    files = list_sources(folders)
    assert len(files) > 800
    words = re.compile(rf"\b(?:{'|'.join(BANNED)})\b")
    used = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in files
        if words.search(read_code(file))  # few modules; parsing is slow
        for name in find_banned_names(ast.parse(read_source(file)))
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


# A function is named as a noun or as verb and noun. Neither begins with one of these words.
PREPOSITIONS: Final = {
    *("about", "after", "at", "because", "before", "beside", "by", "for", "from", "how", "in"),
    *("into", "of", "on", "until", "when", "where", "with", "without"),
}
# Template filters that read like a word of the page.
FILTERS: Final = {"elapsed", "grouped", "untrusted"}
# Terms and verbs whose preposition belongs to them.
TERMS: Final = ("as_of", "on_behalf_of", "matches_any", "resolved_by", "attempt_by", "sign_in")


def has_guessable_name(name: str) -> bool:
    """Return True if a function's name is a noun, or a verb and a noun."""
    if name.endswith(TERMS):
        return True
    words = name.split("_")
    if words[0] in PREPOSITIONS or words[-1] in ("of", "with"):
        return False
    return len(words) > 1 or not name.endswith("ed") or name in FILTERS


@pytest.mark.once
def test_every_public_function_has_a_name_one_can_guess() -> None:
    folders = (*PACKAGES, "client/gatebook_client", "evaluation")
    names = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in list_sources(folders)
        for name in find_public_functions(read_code(file))
        if not has_guessable_name(name)
    }
    assert names == set(), "Name the function as a noun, or as a verb and a noun."


@pytest.mark.once
@pytest.mark.parametrize("name", ["answered", "in_words", "state_of", "because", "state_with"])
def test_an_unguessable_name_is_found(name: str) -> None:
    assert not has_guessable_name(name)
