"""Address of the search page."""

from functools import cache
from urllib.parse import urlencode

from django.urls import reverse


def search(text: str, **params: str) -> str:
    """Return the address of the search for the query `text`.

    Without a query if it is empty.
    """
    pairs = {**({"q": text} if text else {}), **params}
    return _audit() + (f"?{urlencode(pairs)}" if pairs else "")


@cache
def _audit() -> str:
    return reverse("audit")
