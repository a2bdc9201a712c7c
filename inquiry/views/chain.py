"""Page of an effect's chain in four timeline views, with its gates and votes."""

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
    """Show the parents, children, attempts, gates and compensations of an effect."""
    row, now = effect_of(request, effect), now_us()
    view = views.view_of(request.GET)
    params = views.asked_of(request.GET, view)
    chain_shown = chain.of(row, now)
    window = gathered.read(
        [],
        list(chain_shown.hows),
        timeline.Filters(),
        Window(),
        now,
        size=lanes.MOST,
        clock=lanes.clock_of(request.GET),
        three=view in ("json", "table"),
    )
    attempts, attempt_total = effect_page.attempts(row) if row.attempt_count else ([], 0)
    if view == "json":
        return JsonResponse(
            _as_json(row, chain_shown) | views.as_json(window),
            json_dumps_params={"ensure_ascii": False},
        )
    context = {
        "effect": row,
        "chain": chain_shown,
        "hows": chain_shown.hows,
        "attempts": attempts,
        "attempts_in_all": attempt_total,
        **views.context_of(request.GET, params, window, running=False, fold="none"),
    }
    return render(request, "inquiry/chain.html", context)


def _as_json(effect: Effect, chain: Chain) -> dict[str, Any]:
    return {
        "effect": str(effect),
        "links": {str(identity): hows for identity, hows in chain.hows.items()},
        "cut": chain.cut,
        "gates": [
            {
                "gate": str(gate.gate),
                "effect": str(gate.gate.effect_id),
                "status": gate.gate.status,
                "requested_at_us": gate.gate.requested_at_us,
                "waited_us": gate.waited_us,
                "votes": [
                    {
                        "who": vote.who,
                        "answer": vote.answer,
                        "at_us": vote.at_us,
                        "reason": vote.reason,
                    }
                    for vote in gate.votes
                ],
            }
            for gate in chain.gates
        ],
        "decisions": chain.decided,
    }
