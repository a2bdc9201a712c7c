"""Journal page: the entries around a position."""

from typing import Any

from django.http import HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, member_required
from display.handles import parse_position
from display.time_limit import limit_view
from pages.journal import data
from pages.journal.data import ENTRIES_PER_SIDE, MAX_DISTANCE, JournalPage


@require_safe
@member_required
@limit_view
def journal_page(request: MemberRequest) -> HttpResponse:
    """Show the entries around `at`, or the newest; `view=json` for programs."""
    text = request.GET.get("at", "").strip().removeprefix("#")
    at = parse_position(text)
    page = data.load_entries_around(request.membership.project, at)
    if request.GET.get("view") == "json":
        return JsonResponse(_entries_to_json(page), json_dumps_params={"ensure_ascii": False})
    data.describe_stuck_entries(page.rows)
    context = {
        "page": page,
        "error": bool(text) and at is None,
        "text": text[:40],
        "session_events": ENTRIES_PER_SIDE,
        "far": MAX_DISTANCE,
        "is_administrator": request.membership.role == "administrator",
    }
    return render(request, "pages/journal/journal.html", context)


def _entries_to_json(page: JournalPage) -> dict[str, Any]:
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
