"""Page addresses of rows, for pages, the agents' API and background jobs."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.urls import reverse

from accounts.access import PROJECT_PARAMETER
from accounts.models import Project


@cache
def _split_address(name: str) -> tuple[str, str]:
    """Return what is before and after the id in the address of an object's page.

    The URLs of the pages are used also from the agents' API.
    """
    no_row = UUID(int=0)
    address = reverse(name, args=[no_row], urlconf=settings.ROOT_URLCONF)
    before, _, after = address.partition(str(no_row))
    return before, after


def build_row_url(name: str, identity: Any) -> str:
    """Return the address of an object's page, without resolving it again for each id."""
    before, after = _split_address(name)
    return f"{before}{identity}{after}"


def _event_url(row: Any) -> str:
    """Return the effect's page at this entry, else the session's page, else a search."""
    if row.effect_position is not None:
        return f"{build_row_url('effect', row.effect)}?fact={row.position}"
    if row.session_position is not None:
        return build_row_url("session", row.session)
    return f"{_search_url_prefix()}?q=event+position%3A{row.position}"


@cache
def _search_url_prefix() -> str:
    return reverse("search", urlconf=settings.ROOT_URLCONF)


def search_url_for_project(text: str, project: Project) -> str:
    """Return a search address that names the project; readers may be in another."""
    return f"{_search_url_prefix()}?{urlencode({'q': text, PROJECT_PARAMETER: project.name})}"


def absolute_url(path: str, project: Project) -> str:
    """Return the full address of a row's page; that of a search names its project."""
    of = (
        f"&{urlencode({PROJECT_PARAMETER: project.name})}"
        if path.startswith(f"{_search_url_prefix()}?")
        else ""
    )
    return f"{settings.GATEBOOK_URL}{path}{of}"


URL_OF_ROW: Final[dict[str, Callable[[Any], str]]] = {
    "effect": lambda row: build_row_url("effect", row.pk),
    "session": lambda row: build_row_url("session", row.pk),
    "gate": lambda row: build_row_url("gate", row.pk),
    "exemption": lambda row: build_row_url("exemption", row.pk),
    "event": _event_url,
}


def build_search_url(text: str, **params: str) -> str:
    """Return the address of the search for `text`, without a query if empty."""
    # A page has a hundred of these links: commas of lists of columns stay as they are.
    parts = (urlencode({"q": text} if text else {}), urlencode(params, safe=","))
    pairs = "&".join(part for part in parts if part)
    return _search_page_url() + (f"?{pairs}" if pairs else "")


@cache
def _search_page_url() -> str:
    return reverse("search")
