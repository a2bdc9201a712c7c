"""Pages of a session, effect, gate or exemption as of a past moment. Read only."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from approvals import exemptions
from approvals.models import Exemption, Gate
from inquiry import exempted, looks
from inquiry.asof import cut, pages
from inquiry.asof import exemptions as replayed
from inquiry.asof.cut import Cut, UnfitError
from inquiry.patience import patient
from inquiry.views import timeline as lanes_views
from inquiry.views.place import Place, place_of
from journal.clock import now_us
from ledger.models import Effect
from sessions.access import MemberRequest, member
from sessions.models import Session


def effect(request: MemberRequest, live: Effect) -> HttpResponse:
    """Show one effect as of a moment. `live` was loaded from the member's project."""
    return _answer(request, live, "effect", "first seen", pages.effect)


def session(request: MemberRequest, live: Session) -> HttpResponse:
    """Show one session with its effects as of a moment.

    `live` is from the member's project.
    """
    return _answer(request, live, "session", "opened", pages.session)


def timeline(request: MemberRequest, live: Session) -> HttpResponse:
    """Show the timeline as lanes, compact or JSON as of a moment.

    The table is on the session page.
    """
    view = lanes_views.view_of(request.GET)
    text = request.GET.get("asof", "")
    if view == "table" or not text.strip():
        moment = f"?{urlencode({'asof': text.strip()})}" if text.strip() else ""
        return redirect(f"{reverse('session', args=[live.id])}{moment}#timeline")
    show = partial(lanes_views.answer_as_of, request, live, view)
    return _as_of(request, live, "session", "opened", show)


@require_safe
@member
@patient
def gate(request: MemberRequest, gate: UUID) -> HttpResponse:
    """Show one gate as of a moment: the request and the votes until then."""
    gates = Gate.objects.filter(project=request.membership.project, id=gate).select_related(
        "effect"
    )
    row = gates.first()
    if row is None:
        raise Http404
    effect = row.effect
    of = (effect.session_id, effect.id, effect.id)
    # The effect that the gate would let run.
    looks.viewed(effect.project_id, looks.actor_of(request), "effect", effect.opened_position, of)
    return _answer(request, row, "gate", "requested", pages.gate)


@require_safe
@member
@patient
def exemption(request: MemberRequest, exemption: UUID) -> HttpResponse:
    """Show one exemption and its uses, now or as of a moment.

    Uses after its end are marked.
    """
    rows = exemptions.with_grantors(Exemption.objects.filter(project=request.membership.project))
    live = get_object_or_404(rows, id=exemption)

    def show(moment: Cut | None) -> HttpResponse | None:
        past = (
            {live.id: live}
            if moment is None
            else replayed.exemptions(live.project_id, [live.id], moment)
        )
        if live.id not in past:
            return None
        shown = past[live.id]
        uses = exempted.of(shown, None if moment is None else moment.position)
        context = {
            "one": shown,
            "live": live,
            "live_name": "exemption",
            "asof": moment,
            "uses": uses[: exempted.MOST],
        }
        context |= {
            "more": len(uses) > exempted.MOST,
            "reason": exemptions.reasons([live]).get(live.id),
        }
        context["grantors"] = exemptions.grantors(
            shown, None if moment is None else moment.position
        )
        exempted.count_late(
            request.membership.project, [shown], None if moment is None else moment.position
        )
        context |= {
            "over": exempted.over_us(shown),
            "place": None if moment is None else _place(request, moment),
        }
        return render(
            request,
            "inquiry/exemption.html",
            context | {"asked": request.GET.get("asof", "")[: cut.LONGEST]},
        )

    if not request.GET.get("asof", "").strip():
        now = show(None)
        assert now is not None  # noqa: S101 - it was just read
        return now
    return _as_of(request, live, "exemption", "granted", show)


def _answer(request: MemberRequest, live: Any, name: str, began: str, read: Any) -> HttpResponse:
    """The page as of what `asof` names; without a word in it, the live page."""
    text = request.GET.get("asof", "")
    if not text.strip():
        return redirect(name, live.id)

    def show(moment: Cut) -> HttpResponse | None:
        place = _place(request, moment)
        past = read(request.membership.project, live, moment, place.window)
        if past is None:
            return None
        context = {"live": live, "live_name": name, "asked": text[: cut.LONGEST], "asof": moment}
        context |= {
            "then": past,
            "place": place,
            "erased_since": getattr(past, "erased_since", set()),
        }
        return render(request, f"inquiry/asof/{name}.html", context)

    return _as_of(request, live, name, began, show)


def _as_of(
    request: MemberRequest,
    live: Any,
    name: str,
    began: str,
    show: Callable[[Cut], HttpResponse | None],
) -> HttpResponse:
    """Return the response of `show` for the moment in `asof`, or an error page."""
    text = request.GET["asof"]
    context: dict[str, Any] = {"live": live, "live_name": name, "asked": text[: cut.LONGEST]}
    if request.membership.project.archive:
        return render(
            request, "inquiry/asof/refused.html", context | {"sentence": _ARCHIVE}, status=400
        )
    try:
        context["asof"] = moment = cut.read(text, request.membership.project_id, now_us())
        answer = show(moment)
    except UnfitError as unfit:
        return render(
            request, "inquiry/asof/refused.html", context | {"sentence": str(unfit)}, status=400
        )
    if answer is not None:
        return answer
    sentence = f"{live} did not exist yet: it was {began} in entry #{live.opened_position}."
    return render(
        request, "inquiry/asof/refused.html", context | {"sentence": sentence}, status=404
    )


_ARCHIVE: Final = (
    "Earlier states of imported objects are not available in this project."
    " Open them in the Gatebook that exported the bundle."
)


def _place(request: MemberRequest, moment: Cut) -> Place:
    """Return the place in the list.

    Links keep the exact position, however the moment was given.
    """
    place = place_of(request.GET, (), ("asof", "fact"))
    place.filters = [("asof", moment.text)]
    return place
