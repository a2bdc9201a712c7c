"""The journal around a position: what stood before and after, whatever it speaks of."""

from typing import Any

from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from inquiry import neighbours
from inquiry.handles import as_position
from inquiry.neighbours import BESIDE, FAR, Neighbours
from inquiry.patience import patient
from sessions.access import MemberRequest, member


@require_safe
@member
@patient
def journal(request: MemberRequest) -> HttpResponse:
    """The entries around `at`, or the newest; `view=json` for programs."""
    text = request.GET.get("at", "").strip().removeprefix("#")
    at = as_position(text)
    found = neighbours.around(request.membership.project, at)
    if request.GET.get("view") == "json":
        return JsonResponse(_as_json(found), json_dumps_params={"ensure_ascii": False})
    context = {
        "found": found,
        "error": bool(text) and at is None,
        "text": text[:40],
        "beside": BESIDE,
        "far": FAR,
        "is_administrator": request.membership.role == "administrator",
    }
    return render(request, "inquiry/journal.html", context)


def _as_json(found: Neighbours) -> dict[str, Any]:
    return {
        "at": found.at,
        "is_there": found.is_there,
        "earlier": found.earlier,
        "later": found.later,
        "entries": [
            {
                "position": one.position,
                "kind": one.kind,
                "lane": one.lane,
                "source": one.source,
                "session": f"s_{one.session_position}" if one.session_position else None,
                "effect": f"e_{one.effect_position}" if one.effect_position else None,
                "attempt": one.attempt,
                "received_us": one.received_us,
                "occurred_us": one.occurred_us,
                "erased": one.erased_at_us is not None,
            }
            for one in found.rows
        ],
    }
