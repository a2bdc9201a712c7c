"""Compare the numbers of a page with the searches that they link to."""

import re
from html import unescape
from typing import Final
from urllib.parse import parse_qs, urlsplit

from accounts.models import Project
from db.clock import now_us
from investigation.query import execute

_LINK: Final = re.compile(r'<a\b[^>]*?href="(/search/\?[^"]+)"[^>]*>(.*?)</a>', re.DOTALL)
_MARKUP: Final = re.compile(r"<svg.*?</svg>|<title>.*?</title>|<[^>]+>", re.DOTALL)


def list_linked_numbers(page: str) -> dict[str, int]:
    """Return by query the number that links to it. A query with two numbers is an error."""
    numbers: dict[str, int] = {}
    for href, inner in _LINK.findall(page):
        text = _MARKUP.sub("", inner).replace("\u202f", "").strip()
        if text.isdigit():
            query = parse_qs(urlsplit(unescape(href)).query)["q"][0]
            assert numbers.setdefault(query, int(text)) == int(text), query
    return numbers


def check_linked_numbers(page: str, project: Project) -> dict[str, int]:
    """Require that each number equals the rows or groups of its search; return them."""
    numbers = list_linked_numbers(page)
    counted = {}
    for query in numbers:
        compiled = execute.compile_query(query, project, now_us())
        if compiled.query.grouping is not None:
            groups = execute.load_results(compiled, lambda rows: rows).groups
            counted[query] = len(groups.rows) if groups is not None else 0
        else:
            counted[query] = execute.count_matches(compiled)[0]
    wrong = {
        query: (number, counted[query])
        for query, number in numbers.items()
        if counted[query] != number
    }
    assert not wrong, f"(shown, counted): {wrong}"
    return numbers
