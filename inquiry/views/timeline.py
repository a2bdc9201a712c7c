"""A timeline in four views of the same rows: lanes, compact, table and JSON; of a session, and of a gathered set."""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from django.http import HttpResponse, JsonResponse, QueryDict
from django.shortcuts import render
from django.urls import reverse

from inquiry import clocks, drawing, folding, lanes, shown, timeline
from inquiry.asof import lanes as asof_lanes
from inquiry.asof.cut import Cut
from inquiry.bars import Bar, Lanes
from inquiry.templatetags.inquiry import page_of
from inquiry.views.place import Place, place_of
from journal.clock import now_us
from sessions.access import MemberRequest
from sessions.models import ENDED, Session

VIEWS: Final = ("lanes", "compact", "table", "json")
FILTERS: Final = ("state", "outcome", "tool", "task", "problems")
KEPT: Final = (*FILTERS, "view", "size", "clock", "fold")
KNOWN: Final = ("unfold",)


@dataclass(slots=True)
class Asked:
    """What a query string asks of a timeline; `place` has what was wrong with it."""

    place: Place
    filters: timeline.Filters
    view: str
    size: int


def asked_of(query: QueryDict, view: str, known: tuple[str, ...] = ()) -> Asked:
    """Read the window, the filters and the size from a query string; `known` are other names the page understands."""
    place = place_of(query, KEPT, (*KNOWN, *known))
    wanted, wrong = timeline.filters_of({name: query.get(name, "") for name in FILTERS})
    place.errors += wrong
    return Asked(place, wanted, view, lanes.size_of(query))


def answer(request: MemberRequest, session: Session, view: str) -> HttpResponse:
    """The timeline of `session` (fetched through the wall) as lanes, compact or JSON."""
    asked = asked_of(request.GET, view)
    clock = lanes.clock_of(request.GET, session)
    found = lanes.read(session, asked.filters, asked.place.window, now_us(), size=asked.size, clock=clock)
    if view == "json":
        found.skews = found.skews or clocks.skews([session])
        return JsonResponse(_as_json(session, found), json_dumps_params={"ensure_ascii": False})
    context = {"agent_session": session, **context_of(request.GET, asked, found, running=runs(session))}
    return render(request, "inquiry/lanes.html", context)


def answer_as_of(request: MemberRequest, live: Session, view: str, moment: Cut) -> HttpResponse | None:
    """The same as of a moment; None when the session was not there yet. Raises UnfitError."""
    asked = asked_of(request.GET, view, ("asof",))
    asked.place.filters.append(("asof", moment.text))  # links keep the very cut, whatever named it
    query = request.GET.copy()
    query["asof"] = moment.text
    clock = query.get("clock", "")
    told = asof_lanes.read(
        request.membership.project, live, moment, asked.filters, asked.place.window,
        size=asked.size, clock=clock if clock in clocks.CLOCKS else "",
    )  # fmt: skip
    if told is None:
        return None
    session, found = told
    if view == "json":
        found.skews = found.skews or clocks.skews([session], upto=moment.position)
        body = {**_as_json(session, found), "as_of": moment.text}
        return JsonResponse(body, json_dumps_params={"ensure_ascii": False})
    same = f"?{urlencode({'asof': moment.text})}"
    context = context_of(query, asked, found, running=runs(session), same=same)
    more = {"agent_session": session, "live": live, "live_name": "session", "asof": moment, "same": same}
    return render(request, "inquiry/lanes.html", {**context, **more})


def runs(session: Session) -> bool:
    """True while time goes on for it."""
    return session.mode != "reported" and session.status not in ENDED


def context_of(
    query: QueryDict, asked: Asked, found: Lanes, *, running: bool, fold: str = "tool", same: str = ""
) -> dict[str, Any]:
    """What the templates of the views need; `running`: time goes on; `fold`: what is folded unasked.

    `same` is the query string with which the pages of effects show the same moment, "" for now.
    """
    fold = folding.fold_of(query.get("fold", ""), fold)
    return {
        "lanes": found,
        "drawing": drawing.draw(found, lambda effect: page_of(effect.id, "effect") + same, running)
        if asked.view == "lanes"
        else None,
        "groups": folding.groups(found, fold, query.get("unfold", "")),
        "folds": [(words, _with(query, fold=key), key == fold) for key, words in folding.FOLDS.items()],
        "unfold": f"{_without(query, 'unfold')}&unfold=",
        "legend": shown.STATES.values(),
        "view": asked.view,
        "views": links(query),
        "place": asked.place,
        "filters": asked.filters,
        "zoom": _zoom(asked.place, found),
        "clocks": [(words, _with(query, clock=clock), clock == found.clock) for clock, words in clocks.NAMES.items()],
        "skews": [(found.tasks[one][0] if found.across else "", skew) for one, skew in found.skews.items()],
    }


def view_of(query: QueryDict, otherwise: str = "table") -> str:
    """Which view the query string asks for; the table, which everybody can read, when it says nothing known."""
    asked = query.get("view")
    return asked if isinstance(asked, str) and asked in VIEWS else otherwise


def _with(query: QueryDict, **changed: str) -> str:
    kept = query.copy()
    kept.pop("unfold", None)
    for name, value in changed.items():
        kept[name] = value
    return f"?{kept.urlencode()}"


def _without(query: QueryDict, name: str) -> str:
    kept = query.copy()
    kept.pop(name, None)
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


def as_json(found: Lanes) -> dict[str, Any]:
    """The rows for programs. Times are microseconds; `at_us` by the clock that was asked for, beside all three."""
    beside = [{"position": one.position, "kind": one.kind, "at_us": one.at_us} for one in found.beside]
    corrections = [
        {"session": str(one), "shift_us": skew.shift_us, "facts": skew.facts, "why_not": skew.why or None}
        for one, skew in found.skews.items()
    ]
    return {
        "clock": found.clock,
        "corrections": corrections,
        "older": found.older,
        "newer": found.newer,
        "effects": [_bar_as_json(bar, found) for bar in found.bars],
        "beside": beside,
    }


def _bar_as_json(bar: Bar, found: Lanes) -> dict[str, Any]:
    skew = found.skews.get(bar.effect.session_id)
    return {
        "effect": str(bar.effect),
        "id": str(bar.effect.id),
        "page": reverse("effect", args=[bar.effect.id]),
        "session": str(bar.effect.session_id),
        "tool": bar.effect.tool,
        "intent_digest": bar.effect.intent_digest or None,
        "task": f"t_{bar.effect.task_position}" if bar.effect.task_id is not None else None,
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
                "agent_us": step.agent_us,
                "corrected_us": clocks.corrected(step.agent_us, skew),
                "lane": step.lane,
            }
            for step in bar.steps
        ],
    }


def _as_json(session: Session, found: Lanes) -> dict[str, Any]:
    gaps = [{"source": gap.source, "first": gap.first, "last": gap.last} for gap in found.gaps]
    return {"session": str(session), **as_json(found), "missing_numbers": gaps}
