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

    @property
    def initial(self) -> str:
        return self.term[0].upper()

    @property
    def meaning_parts(self) -> list[tuple[str, bool]]:
        """Return the meaning in pieces: their text, and whether they are code."""
        pieces = self.meaning.split("`")
        return [(text, index % 2 == 1) for index, text in enumerate(pieces)]


@cache
def load_glossary() -> tuple[GlossaryTerm, ...]:
    """Return all terms in alphabetical order. The file is read once per process."""
    text = (settings.BASE_DIR / "docs" / "glossary.md").read_text(encoding="utf-8")
    return tuple(GlossaryTerm(*row) for row in _ROW.findall(text))
