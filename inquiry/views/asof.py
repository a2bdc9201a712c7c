"""The pages of a session, an effect and a gate as of a moment. Nothing on them acts, and nothing on them is live."""

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
    """One effect as it stood. `live` was fetched through the wall."""
    return _answer(request, live, "effect", "first heard of", pages.effect)


def session(request: MemberRequest, live: Session) -> HttpResponse:
    """One session as it stood, with its effects. `live` was fetched through the wall."""
    return _answer(request, live, "session", "opened", pages.session)


def timeline(request: MemberRequest, live: Session) -> HttpResponse:
    """The timeline of a session as lanes, compact or JSON, as it stood; as a table it stands on the session's page."""
    view = lanes_views.view_of(request.GET)
    asked = request.GET.get("asof", "")
    if view == "table" or not asked.strip():
        kept = {name: value for name, value in {"asof": asked.strip()}.items() if value}
        return redirect(f"{reverse('session', args=[live.id])}{'?' if kept else ''}{urlencode(kept)}#timeline")
    show = partial(lanes_views.answer_as_of, request, live, view)
    return _as_of(request, live, "session", "opened", show)


@require_safe
@member
@patient
def gate(request: MemberRequest, gate: UUID) -> HttpResponse:
    """One request to people as it stood: what was asked, who had answered by then."""
    gates = Gate.objects.filter(project=request.membership.project, id=gate).select_related("effect")
    found = gates.first()
    if found is None:
        raise Http404
    effect = found.effect
    of = (effect.session_id, effect.id, effect.id)
    looks.viewed(effect.project_id, looks.actor_of(request), "effect", effect.opened_position, of)  # what it would run
    return _answer(request, found, "gate", "asked", pages.gate)


@require_safe
@member
@patient
def exemption(request: MemberRequest, exemption: UUID) -> HttpResponse:
    """One exemption with all that it let pass, now or as it stood; what ran after its end is marked."""
    rows = exemptions.with_grantors(Exemption.objects.filter(project=request.membership.project))
    live = get_object_or_404(rows, id=exemption)

    def show(moment: Cut | None) -> HttpResponse | None:
        known = {live.id: live} if moment is None else replayed.exemptions(live.project_id, [live.id], moment)
        if live.id not in known:
            return None
        one = known[live.id]
        uses = exempted.of(one, None if moment is None else moment.position)
        context = {"one": one, "live": live, "live_name": "exemption", "asof": moment, "uses": uses[: exempted.MOST]}
        context |= {"more": len(uses) > exempted.MOST, "reason": exemptions.reasons([live]).get(live.id)}
        context["grantors"] = exemptions.grantors(one, None if moment is None else moment.position)
        exempted.count_late(request.membership.project, [one], None if moment is None else moment.position)
        context |= {"over": exempted.over_us(one), "place": None if moment is None else _place(request, moment)}
        return render(
            request, "inquiry/exemption.html", context | {"asked": request.GET.get("asof", "")[: cut.LONGEST]}
        )

    if not request.GET.get("asof", "").strip():
        now = show(None)
        assert now is not None  # noqa: S101 - it was just read
        return now
    return _as_of(request, live, "exemption", "granted", show)


def _answer(request: MemberRequest, live: Any, name: str, began: str, read: Any) -> HttpResponse:
    """The page as of what `asof` names; without a word in it, the live page."""
    asked = request.GET.get("asof", "")
    if not asked.strip():
        return redirect(name, live.id)

    def show(moment: Cut) -> HttpResponse | None:
        place = _place(request, moment)
        then = read(request.membership.project, live, moment, place.window)
        if then is None:
            return None
        context = {"live": live, "live_name": name, "asked": asked[: cut.LONGEST], "asof": moment}
        context |= {"then": then, "place": place, "erased_since": getattr(then, "erased_since", set())}
        return render(request, f"inquiry/asof/{name}.html", context)

    return _as_of(request, live, name, began, show)


def _as_of(
    request: MemberRequest, live: Any, name: str, began: str, show: Callable[[Cut], HttpResponse | None]
) -> HttpResponse:
    """What `show` answers for the moment that `asof` names, or a sentence why it cannot be shown."""
    asked = request.GET["asof"]
    context: dict[str, Any] = {"live": live, "live_name": name, "asked": asked[: cut.LONGEST]}
    if request.membership.project.archive:
        return render(request, "inquiry/asof/refused.html", context | {"sentence": _ARCHIVE}, status=400)
    try:
        context["asof"] = moment = cut.read(asked, request.membership.project_id, now_us())
        answer = show(moment)
    except UnfitError as unfit:
        return render(request, "inquiry/asof/refused.html", context | {"sentence": str(unfit)}, status=400)
    if answer is not None:
        return answer
    sentence = f"{live} was not there yet: it was {began} at position {live.opened_position}."
    return render(request, "inquiry/asof/refused.html", context | {"sentence": sentence}, status=404)


_ARCHIVE: Final = (
    "What a bundle brought is shown as the bundle tells it: how it stood before then only the Gatebook it comes from"
    " can show."
)


def _place(request: MemberRequest, moment: Cut) -> Place:
    """Where in the list the reader stands; links keep the very cut, whatever named it."""
    place = place_of(request.GET, (), ("asof", "fact"))
    place.filters = [("asof", moment.text)]
    return place
