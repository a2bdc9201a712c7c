"""Pages of a session, effect, gate or exemption as of a past moment. Read only."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlencode
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, member_required
from approvals import exemptions
from approvals.models import Exemption, Gate
from db.clock import now_us
from display import access_log
from display.page_params import PagePlace, parse_page_place
from display.time_limit import limit_view
from investigation.history import moment as history_moment
from investigation.history import past_exemptions as replayed
from investigation.history.moment import CutError, JournalCut
from investigation.query import exemption_uses
from journal import sent_meta
from ledger.models import Effect
from pages.history import data
from pages.timeline import timeline_page
from sessions.models import Session


def effect_as_of(request: MemberRequest, live: Effect) -> HttpResponse:
    """Show one effect as of a moment. `live` was loaded from the member's project."""
    return _render_as_of(request, live, "effect", "first seen", data.load_past_effect_page)


def session_as_of(request: MemberRequest, live: Session) -> HttpResponse:
    """Show a session with its effects as of a moment; `live` is of the project."""
    return _render_as_of(request, live, "session", "opened", data.load_past_session_page)


def timeline_as_of(request: MemberRequest, live: Session) -> HttpResponse:
    """Show the timeline as lanes, compact or JSON as of a moment, not as a table."""
    view = timeline_page.parse_view(request.GET)
    text = request.GET.get("asof", "")
    if view == "table" or not text.strip():
        moment = f"?{urlencode({'asof': text.strip()})}" if text.strip() else ""
        return redirect(f"{reverse('session', args=[live.id])}{moment}#timeline")
    show = partial(timeline_page.render_timeline_as_of, request, live, view)
    return _respond_as_of(request, live, "session", "opened", show)


@require_safe
@member_required
@limit_view
def gate_as_of(request: MemberRequest, gate: UUID) -> HttpResponse:
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
    access_log.record_view(
        effect.project_id, access_log.access_actor(request), "effect", effect.opened_position, of
    )
    return _render_as_of(request, row, "gate", "requested", data.load_past_gate_page)


@require_safe
@member_required
@limit_view
def exemption_page(request: MemberRequest, exemption: UUID) -> HttpResponse:
    """Show an exemption and its uses, now or as of a moment; marks uses after its end."""
    rows = exemptions.annotate_valid_grantors(
        Exemption.objects.filter(project=request.membership.project)
    )
    live = get_object_or_404(rows, id=exemption)

    def show(moment: JournalCut | None) -> HttpResponse | None:
        past = (
            {live.id: live}
            if moment is None
            else replayed.rebuild_exemptions(live.project_id, [live.id], moment)
        )
        if live.id not in past:
            return None
        shown = past[live.id]
        uses = exemption_uses.load_exemption_uses(
            shown, None if moment is None else moment.position
        )
        context = {
            "exemption": shown,
            "live": live,
            "live_name": "exemption",
            "asof": moment,
            "asof_query": "" if moment is None else f"?asof={quote(moment.text)}",
            "uses": uses[: exemption_uses.MAX_EXEMPTION_USES],
        }
        context |= {
            "more": len(uses) > exemption_uses.MAX_EXEMPTION_USES,
            "reason": exemptions.load_exemption_reasons([live]).get(live.id),
        }
        context["grantors"] = exemptions.load_grantors(
            shown, None if moment is None else moment.position
        )
        exemption_uses.set_late_counts(
            request.membership.project, [shown], None if moment is None else moment.position
        )
        context |= {
            "over": exemption_uses.exemption_end_us(shown),
            "place": None if moment is None else _place_as_of(request, moment),
        }
        return render(
            request,
            "pages/history/exemption.html",
            context
            | {"asof_text": request.GET.get("asof", "")[: history_moment.MAX_CUT_CHARACTERS]},
        )

    if not request.GET.get("asof", "").strip():
        now = show(None)
        assert now is not None  # noqa: S101 - it was just read
        return now
    return _respond_as_of(request, live, "exemption", "granted", show)


def _render_as_of(
    request: MemberRequest, live: Any, name: str, began: str, read: Any
) -> HttpResponse:
    """The page as of what `asof` names; without a word in it, the live page."""
    text = request.GET.get("asof", "")
    if not text.strip():
        return redirect(name, live.id)

    def show(moment: JournalCut) -> HttpResponse | None:
        place = _place_as_of(request, moment)
        past = read(request.membership.project, live, moment, place.window)
        if past is None:
            return None
        context = {
            "live": live,
            "live_name": name,
            "asof_text": text[: history_moment.MAX_CUT_CHARACTERS],
            "asof": moment,
        }
        context |= {
            "then": past,
            "place": place,
            "erased_since": getattr(past, "erased_since", set()),
            "meta": _load_past_meta(live, moment),
        }
        return render(request, f"pages/history/{name}.html", context)

    return _respond_as_of(request, live, name, began, show)


def _load_past_meta(live: Any, moment: JournalCut) -> str:
    """Return what the agent had sent along with a session or an effect by then."""
    if isinstance(live, Session):
        meta = sent_meta.load_session_meta(live.id, until=moment.position)
    else:
        effect = live.effect_id if isinstance(live, Gate) else live.id
        meta = sent_meta.load_effect_meta(effect, until=moment.position)
    return sent_meta.format_meta(meta)


def _respond_as_of(
    request: MemberRequest,
    live: Any,
    name: str,
    began: str,
    show: Callable[[JournalCut], HttpResponse | None],
) -> HttpResponse:
    """Return the response of `show` for the moment in `asof`, or an error page."""
    text = request.GET["asof"]
    context: dict[str, Any] = {
        "live": live,
        "live_name": name,
        "asof_text": text[: history_moment.MAX_CUT_CHARACTERS],
    }
    if request.membership.project.archive:
        return render(
            request, "pages/history/refused.html", context | {"sentence": _ARCHIVE}, status=400
        )
    try:
        context["asof"] = moment = history_moment.parse_cut(
            text, request.membership.project_id, now_us()
        )
        answer = show(moment)
    except CutError as unfit:
        return render(
            request, "pages/history/refused.html", context | {"sentence": str(unfit)}, status=400
        )
    if answer is not None:
        return answer
    sentence = f"{live} did not exist yet: it was {began} in entry #{live.opened_position}."
    return render(
        request, "pages/history/refused.html", context | {"sentence": sentence}, status=404
    )


_ARCHIVE: Final = (
    "Earlier states of imported objects are not available in this project."
    " Open them in the Gatebook that exported the bundle."
)


def _place_as_of(request: MemberRequest, moment: JournalCut) -> PagePlace:
    """Return the place in the list, with links to the exact position of the moment."""
    place = parse_page_place(request.GET, (), ("asof", "fact"))
    place.filters = [("asof", moment.text)]
    return place
