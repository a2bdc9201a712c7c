"""Addresses of the search."""

from functools import cache
from urllib.parse import urlencode

from django.urls import reverse


def search(text: str, **more: str) -> str:
    """The address of the search for `text`, a query; of everything when it is empty."""
    pairs = {**({"q": text} if text else {}), **more}
    return _audit() + (f"?{urlencode(pairs)}" if pairs else "")


@cache
def _audit() -> str:
    return reverse("audit")
