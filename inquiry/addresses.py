"""Where the page of a row is, asked from the pages, from the agents' doors and from chores alike, for many rows."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.urls import reverse


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


PAGE: Final[dict[str, Callable[[Any], str]]] = {
    "effect": lambda row: f"{_page('effect')}{row.pk}/",
    "session": lambda row: f"{_page('session')}{row.pk}/",
    "gate": lambda row: f"{_page('gate')}{row.pk}/",
    "exemption": lambda row: f"{_page('exemption')}{row.pk}/",
    "event": _page_of_event,
}
