"""Constants that docstrings and comments name exist in their module, under that name."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.architecture.walk import ROOT
from tests.sources import find_comments, read_source, strip_text

PACKAGES: Final = sorted(
    folder.name
    for folder in (*ROOT.iterdir(), ROOT / "client" / "gatebook_client")
    if (folder / "__init__.py").exists() and folder.name not in ("tests", "evaluation")
)
# Words of SQL and HTTP that follow these prepositions in plain sentences.
NOT_CONSTANTS: Final = {"HTTP", "JSON", "COMMIT", "POST", "JSONB", "TOAST", "NFKC", "UUID", "HTML"}
_CONSTANT: Final = re.compile(
    r"(?:at most|[Ff]irst|newest|up to|columns of|one of|order of|members of|[Kk]eys? of|within"
    r"|each of|for each|more than|longer than|exceed|shown as)\s+([A-Z][A-Z_]{3,})\b(?![:.][a-z/])"
)


def find_folder(package: str) -> Path:
    """Return the folder of a package."""
    return ROOT / ("client" if package == "gatebook_client" else "") / package


def read_sentences(source: str) -> Iterator[str]:
    """Yield the docstrings and comments of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield re.sub(r"\s+", " ", ast.get_docstring(node) or "")
    yield from find_comments(source)


def find_missing_constants(source: str) -> set[str]:
    """Return the constants that sentences of a module name and its code does not have."""
    if not _CONSTANT.search(re.sub(r"\s+(?:# )?", " ", source)):  # most modules; parsing is slow
        return set()
    named = {name for text in read_sentences(source) for name in _CONSTANT.findall(text)}
    return named - set(re.findall(r"\w+", strip_text(source))) - NOT_CONSTANTS


def test_the_check_finds_a_constant_of_another_name() -> None:
    source = 'MAX_ROWS = 5\n\n\ndef read():\n    """Read at most {} rows."""\n'
    assert find_missing_constants(source.format("MOST")) == {"MOST"}
    assert not find_missing_constants(source.format("MAX_ROWS"))


@pytest.mark.once
@pytest.mark.parametrize("package", PACKAGES)
def test_sentences_name_constants_that_exist(package: str) -> None:
    missing = {
        str(file.relative_to(ROOT)): names
        for file in sorted(find_folder(package).rglob("*.py"))
        if "migrations" not in file.parts and (names := find_missing_constants(read_source(file)))
    }
    assert not missing, f"Docstrings or comments name constants that do not exist: {missing}"
