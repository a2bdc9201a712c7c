"""Where the page of a row is, asked from the pages, from the agents' doors and from chores alike, for many rows."""

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
    """Where the pages of a kind of thing stand: asked of people's doors, also from those of agents, and once."""
    nobody = UUID(int=0)
    return reverse(name, args=[nobody], urlconf=settings.ROOT_URLCONF).removesuffix(f"{nobody}/")


def _page_of_event(row: Any) -> str:
    """The effect's page at this fact, else the session's; of what is of neither, the search for it."""
    if row.effect_position is not None:
        return f"{_page('effect')}{row.effect}/?fact={row.position}"
    if row.session_position is not None:
        return f"{_page('session')}{row.session}/"
    return f"{_audit()}?q=event+position%3A{row.position}"


@cache
def _audit() -> str:
    return reverse("audit", urlconf=settings.ROOT_URLCONF)


def of_search(text: str, project: Project) -> str:
    """A search for whoever is sent there, who may be in another project: a text alone means something in each."""
    return f"{_audit()}?{urlencode({'q': text, OF_PROJECT: project.name})}"


def in_full(path: str, project: Project) -> str:
    """The address of a row's page for whoever reads it elsewhere; that of a search says which project it is of."""
    of = f"&{urlencode({OF_PROJECT: project.name})}" if path.startswith(f"{_audit()}?") else ""
    return f"{settings.GATEBOOK_URL}{path}{of}"


PAGE: Final[dict[str, Callable[[Any], str]]] = {
    "effect": lambda row: f"{_page('effect')}{row.pk}/",
    "session": lambda row: f"{_page('session')}{row.pk}/",
    "gate": lambda row: f"{_page('gate')}{row.pk}/",
    "exemption": lambda row: f"{_page('exemption')}{row.pk}/",
    "event": _page_of_event,
}
