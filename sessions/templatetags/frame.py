"""The frame around every page: the rail of rooms, and how fresh the page is."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django import template
from django.urls import reverse

from journal import beating
from journal.clock import now_us
from journal.horizon import last_position
from sessions.access import may
from sessions.standing import standing_of

register = template.Library()


@dataclass(frozen=True)
class Room:
    """An entry of the rail: the name people read, the name of its URL, who may enter, the letter after `g`."""

    name: str
    url_name: str
    role: str = "viewer"
    key: str = ""
    also: tuple[str, ...] = ()  # other paths that belong to the room


ROOMS = (
    Room("Approvals", "inbox", key="a"),
    Room("Stuck", "stuck", key="b", also=("/stuck/",)),
    Room("Sessions", "sessions", key="s", also=("/sessions/", "/tasks/")),
    Room("Audit", "audit", key="u", also=("/audit/", "/effects/")),
    Room("Incidents", "incidents", also=("/incidents/", "/journal/")),
    Room("Policies", "policies", key="l", also=("/approvals/policies/",)),
    Room("Tools", "tools", key="t"),
)
_COUNTED = {"a": "waiting", "b": "stuck"}
ADMINISTRATION = (
    Room("People", "people", "administrator", key="p"),
    Room("Teams", "teams", "administrator", also=("/settings/teams/",)),
    Room("Tokens", "tokens", "administrator", key="k"),
    Room("Repositories", "repositories", "administrator", key="r"),
    Room("Notices", "notices", "administrator", key="n"),
)


@register.inclusion_tag("_rail.html", takes_context=True)
def rail(context: dict[str, Any]) -> dict[str, object]:
    """The rooms this member may enter, the present one marked."""
    request = context["request"]
    groups = []
    for rooms in (ROOMS, ADMINISTRATION):
        groups.append([_shown(room, request.path) for room in rooms if may(request.membership, room.role)])
    _only_the_innermost([room for group in groups for room in group])
    for room in groups[0]:
        if room["key"] in _COUNTED:
            room["waiting"] = getattr(standing_of(request), _COUNTED[room["key"]])
    return {"groups": [group for group in groups if group]}


@register.inclusion_tag("_mode.html", takes_context=True)
def mode_of_project(context: dict[str, Any]) -> dict[str, bool]:
    """What the whole project is under: a stop, or a mode in which nothing is held."""
    standing = standing_of(context["request"])
    archive = context["request"].membership.project.archive
    observes = standing.mode != "enforce" and not archive
    return {"observes": observes, "stopped": standing.is_stopped, "archive": archive}


@register.inclusion_tag("_foot.html", takes_context=True)
def as_of(context: dict[str, Any]) -> dict[str, object]:
    """When this page was made and how far the journal had come: when its rows were read, where the view has asked."""
    position = getattr(context["request"], "read_to", None)
    return {
        "now": datetime.now(UTC),
        "position": last_position() if position is None else position,
        "chores": beating.lateness(standing_of(context["request"]).pulses or "", now_us()),
    }


def _only_the_innermost(rooms: list[dict[str, Any]]) -> None:
    """Of rooms whose doors stand within each other's paths, mark only the one whose own path is the longest."""
    current = [room for room in rooms if room["current"]]
    for room in current:
        room["current"] = room is max(current, key=lambda one: len(one["url"]))


def _shown(room: Room, path: str) -> dict[str, Any]:
    """A room as the rail shows it."""
    url = reverse(room.url_name)
    current = path.startswith((url, *room.also))
    return {"name": room.name, "url": url, "key": room.key, "current": current, "exact": path == url}
