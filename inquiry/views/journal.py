"""Journal page: the entries around a position."""

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
    """Show the entries around `at`, or the newest; `view=json` for programs."""
    text = request.GET.get("at", "").strip().removeprefix("#")
    at = as_position(text)
    page = neighbours.around(request.membership.project, at)
    if request.GET.get("view") == "json":
        return JsonResponse(_as_json(page), json_dumps_params={"ensure_ascii": False})
    context = {
        "found": page,
        "error": bool(text) and at is None,
        "text": text[:40],
        "beside": BESIDE,
        "far": FAR,
        "is_administrator": request.membership.role == "administrator",
    }
    return render(request, "inquiry/journal.html", context)


def _as_json(page: Neighbours) -> dict[str, Any]:
    return {
        "at": page.at,
        "is_there": page.is_there,
        "earlier": page.earlier,
        "later": page.later,
        "entries": [
            {
                "position": entry.position,
                "kind": entry.kind,
                "lane": entry.lane,
                "source": entry.source,
                "session": f"s_{entry.session_position}" if entry.session_position else None,
                "effect": f"e_{entry.effect_position}" if entry.effect_position else None,
                "attempt": entry.attempt,
                "received_us": entry.received_us,
                "occurred_us": entry.occurred_us,
                "erased": entry.erased_at_us is not None,
            }
            for entry in page.rows
        ],
    }
