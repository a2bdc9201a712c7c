"""Page addresses of rows, for pages, the agents' API and background jobs."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.conf import settings
from django.urls import reverse

from sessions.access import OF_PROJECT
from sessions.models import Project


@cache
def _page(name: str) -> str:
    """Return the address of an object's page without its id.

    The URLs of the pages are used also from the agents' API.
    """
    nobody = UUID(int=0)
    return reverse(name, args=[nobody], urlconf=settings.ROOT_URLCONF).removesuffix(f"{nobody}/")


def _page_of_event(row: Any) -> str:
    """Return the effect's page at this entry, else the session's page, else a search."""
    if row.effect_position is not None:
        return f"{_page('effect')}{row.effect}/?fact={row.position}"
    if row.session_position is not None:
        return f"{_page('session')}{row.session}/"
    return f"{_audit()}?q=event+position%3A{row.position}"


@cache
def _audit() -> str:
    return reverse("audit", urlconf=settings.ROOT_URLCONF)


def of_search(text: str, project: Project) -> str:
    """Return a search address that names the project.

    The reader may be in another project.
    """
    return f"{_audit()}?{urlencode({'q': text, OF_PROJECT: project.name})}"


def in_full(path: str, project: Project) -> str:
    """Return the full address of a row's page; that of a search names its project."""
    of = f"&{urlencode({OF_PROJECT: project.name})}" if path.startswith(f"{_audit()}?") else ""
    return f"{settings.GATEBOOK_URL}{path}{of}"


PAGE: Final[dict[str, Callable[[Any], str]]] = {
    "effect": lambda row: f"{_page('effect')}{row.pk}/",
    "session": lambda row: f"{_page('session')}{row.pk}/",
    "gate": lambda row: f"{_page('gate')}{row.pk}/",
    "exemption": lambda row: f"{_page('exemption')}{row.pk}/",
    "event": _page_of_event,
}
