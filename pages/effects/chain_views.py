"""Page of an effect's chain in four timeline views, with its gates and votes."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, member_required
from db.clock import now_us
from display.keyset_pagination import Window
from display.time_limit import limit_view
from ledger.models import Effect
from pages.effects import chain, data
from pages.effects.chain import Chain
from pages.effects.views import load_effect_or_404
from pages.timeline import lanes, multi_session, timeline_page
from pages.timeline.filtered_effects import EffectFilters


@require_safe
@member_required
@limit_view
def effect_chain(request: MemberRequest, effect: UUID) -> HttpResponse:
    """Show the parents, children, attempts, gates and compensations of an effect."""
    row, now = load_effect_or_404(request, effect), now_us()
    view = timeline_page.parse_view(request.GET)
    params = timeline_page.parse_timeline_params(request.GET, view)
    chain_shown = chain.load_effect_chain(row, now)
    window = multi_session.load_multi_session_window(
        [],
        list(chain_shown.hows),
        EffectFilters(),
        Window(),
        now,
        size=lanes.MAX_BARS,
        clock=request.GET.get("clock", ""),
        three=view in ("json", "table"),
    )
    attempts, attempt_total = data.load_attempts_for_page(row) if row.attempt_count else ([], 0)
    if view == "json":
        return JsonResponse(
            _chain_to_json(row, chain_shown) | timeline_page.timeline_to_json(window),
            json_dumps_params={"ensure_ascii": False},
        )
    context = {
        "effect": row,
        "chain": chain_shown,
        "hows": chain_shown.hows,
        "attempts": attempts,
        "attempts_in_all": attempt_total,
        **timeline_page.timeline_context(request.GET, params, window, running=False, fold="none"),
    }
    return render(request, "pages/effects/chain.html", context)


def _chain_to_json(effect: Effect, chain: Chain) -> dict[str, Any]:
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
