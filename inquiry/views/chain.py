"""The chain of an effect in the four views of a timeline, with its gates and who ruled on them."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from inquiry import chain, effect_page, gathered, lanes, timeline
from inquiry.chain import Chain
from inquiry.keyset import Window
from inquiry.patience import patient
from inquiry.views import timeline as views
from inquiry.views.effects import effect_of
from journal.clock import now_us
from ledger.models import Effect
from sessions.access import MemberRequest, member


@require_safe
@member
@patient
def effect_chain(request: MemberRequest, effect: UUID) -> HttpResponse:
    """Parents, children, causes, attempts, gates and compensations of one effect, in the order in which they came."""
    found, now = effect_of(request, effect), now_us()
    view = views.view_of(request.GET)
    asked = views.asked_of(request.GET, view)
    linked = chain.of(found, now)
    shown = gathered.read(
        [],
        list(linked.hows),
        timeline.Filters(),
        Window(),
        now,
        size=lanes.MOST,
        clock=lanes.clock_of(request.GET),
        three=view in ("json", "table"),
    )
    tried, times = effect_page.attempts(found) if found.attempt_count else ([], 0)
    if view == "json":
        return JsonResponse(_as_json(found, linked) | views.as_json(shown), json_dumps_params={"ensure_ascii": False})
    context = {
        "effect": found,
        "chain": linked,
        "hows": linked.hows,
        "attempts": tried,
        "attempts_in_all": times,
        **views.context_of(request.GET, asked, shown, running=False, fold="none"),
    }
    return render(request, "inquiry/chain.html", context)


def _as_json(effect: Effect, found: Chain) -> dict[str, Any]:
    return {
        "effect": str(effect),
        "links": {str(identity): hows for identity, hows in found.hows.items()},
        "cut": found.cut,
        "gates": [
            {
                "gate": str(one.gate),
                "effect": str(one.gate.effect_id),
                "status": one.gate.status,
                "requested_at_us": one.gate.requested_at_us,
                "waited_us": one.waited_us,
                "votes": [
                    {"who": vote.who, "answer": vote.answer, "at_us": vote.at_us, "reason": vote.reason}
                    for vote in one.votes
                ],
            }
            for one in found.gates
        ],
        "decisions": found.decided,
    }
