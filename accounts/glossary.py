"""The glossary: each term of pages, API and code with its meaning, from docs/glossary.md."""

import re
from functools import cache
from typing import Final, NamedTuple

from django.conf import settings

_ROW: Final = re.compile(r"^\| \*\*(?P<term>.+?)\*\* \| (?P<meaning>.+) \|$", re.MULTILINE)


class GlossaryTerm(NamedTuple):
    """A term with its meaning, one sentence in which `backticks` mark code."""

    term: str
    meaning: str


@cache
def load_glossary() -> tuple[GlossaryTerm, ...]:
    """Return all terms in alphabetical order. The file is read once per process."""
    text = (settings.BASE_DIR / "docs" / "glossary.md").read_text(encoding="utf-8")
    return tuple(GlossaryTerm(*row) for row in _ROW.findall(text))
