"""The timeline of a session in four views of the same rows: lanes, compact, table and JSON."""

from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from django.http import HttpResponse, JsonResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse

from inquiry import drawing, lanes, shown, timeline
from inquiry.lanes import Bar, Lanes
from inquiry.templatetags.inquiry import page_of
from inquiry.views.place import Place, place_of
from journal.clock import now_us
from sessions.access import MemberRequest
from sessions.models import ENDED, Session

VIEWS: Final = ("lanes", "compact", "table", "json")
FILTERS: Final = ("state", "outcome", "tool", "task", "problems")
_KEPT: Final = (*FILTERS, "view", "size", "clock")


@dataclass(slots=True)
class Group:
    """Effects of one task in a row that used one tool and stand alike."""

    bars: list[Bar]

    @property
    def first(self) -> Bar:
        return self.bars[0]

    @property
    def last(self) -> Bar:
        return self.bars[-1]


def answer(request: MemberRequest, session: Session, view: str) -> HttpResponse:
    """The timeline of `session` (fetched through the wall) as lanes, compact or JSON."""
    place = place_of(request.GET, _KEPT)
    wanted, wrong = timeline.filters_of({name: request.GET.get(name, "") for name in FILTERS})
    place.errors += wrong
    found = lanes.read(
        session,
        wanted,
        place.window,
        now_us(),
        size=lanes.size_of(request.GET),
        clock=lanes.clock_of(request.GET, session),
    )
    if view == "json":
        return JsonResponse(_as_json(session, found), json_dumps_params={"ensure_ascii": False})
    running = session.mode != "reported" and session.status not in ENDED
    context = {
        "agent_session": session,
        "lanes": found,
        "drawing": drawing.draw(found, _address, running) if view == "lanes" else None,
        "groups": _groups(found.bars),
        "legend": shown.STATES.values(),
        "view": view,
        "views": links(request.GET),
        "place": place,
        "filters": wanted,
        "zoom": _zoom(place, found),
        "clocks": [(clock, _with(request.GET, clock=clock)) for clock in ("server", "agent")],
    }
    return render(request, "inquiry/lanes.html", context)


def view_of(query: QueryDict) -> str:
    """Which view the query string asks for; the table, which everybody can read, when it says nothing known."""
    asked = query.get("view")
    return asked if isinstance(asked, str) and asked in VIEWS else "table"


def _address(effect: Any) -> str:
    return page_of(effect.id, "effect")


def _with(query: QueryDict, **changed: str) -> str:
    kept = query.copy()
    for name, value in changed.items():
        kept[name] = value
    return f"?{kept.urlencode()}"


def links(query: QueryDict, address: str = "") -> list[tuple[str, str]]:
    """The four views with their addresses, which keep what else the query string says."""
    return [(view, address + _with(query, view=view)) for view in VIEWS]


def _zoom(place: Place, found: Lanes) -> dict[str, str]:
    """Links to fewer and to more effects, around the middle of what is shown, where that shows anything else."""
    links: dict[str, str] = {}
    if not found.bars:
        return links
    middle = found.bars[len(found.bars) // 2].effect.opened_position
    fewer = [size for size in lanes.SIZES if size < min(found.size, len(found.bars))]
    more = [size for size in lanes.SIZES if size > found.size and not (found.older is found.newer is None)]
    for name, sizes in (("in", fewer[-1:]), ("out", more[:1])):
        for size in sizes:
            filters = [(key, value) for key, value in place.filters if key != "size"]
            links[name] = Place(filters=[*filters, ("size", str(size))]).url(at=None if found.is_newest else middle)
    return links


def _groups(bars: list[Bar]) -> list[Group]:
    """Newest first; repeats of one tool in one task that stand alike are one row."""

    def alike(bar: Bar) -> tuple[Any, ...]:
        return bar.lane, bar.effect.tool, bar.state, bar.effect.outcome, bar.effect.violates

    return [Group(list(reversed(list(same)))) for _, same in groupby(reversed(bars), key=alike)]


def _as_json(session: Session, found: Lanes) -> dict[str, Any]:
    """The same rows for programs. Times are microseconds; `at_us` by the clock that was asked for."""
    effects = [
        {
            "effect": str(bar.effect),
            "id": str(bar.effect.id),
            "page": reverse("effect", args=[bar.effect.id]),
            "tool": bar.effect.tool,
            "task": found.tasks[bar.lane][0] if bar.lane in found.tasks else None,
            "state": bar.state,
            "outcome": bar.effect.outcome or None,
            "attempts": bar.effect.attempt_count,
            "facts": [
                {
                    "position": step.position,
                    "what": step.what,
                    "attempt": step.attempt,
                    "at_us": step.at_us,
                    "server_us": step.server_us,
                    "lane": step.lane,
                }
                for step in bar.steps
            ],
        }
        for bar in found.bars
    ]
    beside = [{"position": one.position, "kind": one.kind, "at_us": one.at_us} for one in found.beside]
    gaps = [{"source": gap.source, "first": gap.first, "last": gap.last} for gap in found.gaps]
    return {
        "session": str(session),
        "clock": found.clock,
        "older": found.older,
        "newer": found.newer,
        "effects": effects,
        "beside": beside,
        "missing_numbers": gaps,
    }
