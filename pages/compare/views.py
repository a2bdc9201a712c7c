"""Compare two sessions side by side, and choose the second session."""

from typing import Any, Final
from uuid import UUID

from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, member_required
from db.clock import now_us
from db.errors import ChangeRefused
from display import references
from display.page_params import parse_number
from display.time_limit import limit_view
from pages.compare import data, diff
from pages.compare.data import ComparedSession, Comparison
from pages.compare.diff import ASPECTS, Call, ComparisonLine
from recovery import liveness
from sessions.models import Session

ROWS_PER_PAGE: Final = 200  # rows on one page
MAX_REFERENCE_CHARS: Final = 300


@require_safe
@member_required
@limit_view
def session_compare(request: MemberRequest, session: UUID) -> HttpResponse:
    """Ask for the second session (`with`: handle, id, key, address) and redirect."""
    row = _load_session(request, session)
    text = request.GET.get("with", "").replace("\0", "").strip()[:MAX_REFERENCE_CHARS]
    error = ""
    if text:
        try:
            other = references.find_session_reference(request.membership.project, text)
        except ChangeRefused as refusal:
            error = str(refusal)
        else:
            return redirect("session_diff", session=row.id, other=other.id)
    context = {"agent_session": row, "text": text, "error": error}
    return render(request, "pages/compare/choose.html", context, status=422 if error else 200)


@require_safe
@member_required
@limit_view
def session_diff(request: MemberRequest, session: UUID, other: UUID) -> HttpResponse:
    """Compare two sessions call by call; `view=json` for programs."""
    left, right = _load_session(request, session), _load_session(request, other)
    liveness.attach_liveness([left, right])
    comparison = data.compare_sessions(left, right, now_us())
    if request.GET.get("view") == "json":
        return JsonResponse(
            _comparison_to_json(comparison), json_dumps_params={"ensure_ascii": False}
        )
    all_rows = request.GET.get("all") == "1"
    only = request.GET.get("only") == "differences"
    lines = [line for line in comparison.lines if line.sign != "="] if only else comparison.lines
    rows = diff.collapse_equal_lines(lines, show_all=all_rows)
    start = parse_number(request.GET.get("from", ""), 5) or 0
    page_rows = rows[start : start + ROWS_PER_PAGE]
    data.add_call_summaries(row.first for row in page_rows if len(row.lines) == 1)
    counts = diff.count_lines(comparison.lines)
    context = {
        "sides": (comparison.left, comparison.right),
        "left": comparison.left,
        "right": comparison.right,
        "most": diff.MAX_EFFECTS,
        "cut": [side for side in (comparison.left, comparison.right) if side.cut],
        "gates_cut": comparison.gates_cut,
        "rows": page_rows,
        "earlier": max(start - ROWS_PER_PAGE, 0) if start else None,
        "later": start + ROWS_PER_PAGE if len(rows) > start + ROWS_PER_PAGE else None,
        "whole": all_rows,
        "only": only,
        "filter_query": "all=1&" if all_rows else "only=differences&" if only else "",
        "both": counts["="] + counts["≠"],
        "counts": {
            "alike": counts["="],
            "unlike": counts["≠"],
            "left": counts["-"],
            "right": counts["+"],
        },
        "differences": [(aspect, counts[aspect]) for aspect in ASPECTS if counts[aspect]],
    }
    return render(request, "pages/compare/compare.html", context)


def _load_session(request: MemberRequest, identity: UUID) -> Session:
    row = request.membership.project.sessions.select_related("agent").filter(id=identity).first()
    if row is None:
        raise Http404
    return row


def _comparison_to_json(comparison: Comparison) -> dict[str, Any]:
    counts = diff.count_lines(comparison.lines)
    return {
        "left": _side_to_json(comparison.left),
        "right": _side_to_json(comparison.right),
        "most": diff.MAX_EFFECTS,
        "gates_cut": comparison.gates_cut,
        "equal": counts["="],
        "differing": counts["≠"],
        "only_left": counts["-"],
        "only_right": counts["+"],
        "differences": {aspect: counts[aspect] for aspect in ASPECTS},
        "lines": [_line_to_json(line) for line in comparison.lines],
    }


def _side_to_json(side: ComparedSession) -> dict[str, Any]:
    return {
        "session": str(side.session),
        "id": str(side.session.id),
        "effects": len(side.calls),
        "cut": side.cut,
        "attempts": side.attempts,
        "waited_us": side.waited_us,
        "took_us": side.took_us,
        "reviewers": side.reviewers,
        "problems": side.problems,
    }


def _line_to_json(line: ComparisonLine) -> dict[str, Any]:
    return {
        "sign": line.sign,
        "tool": line.call.effect.tool,
        "intent_digest": line.call.effect.intent_digest or None,
        "left": _call_to_json(line.left),
        "right": _call_to_json(line.right),
        "differs": list(line.differs),
    }


def _call_to_json(call: Call | None) -> dict[str, Any] | None:
    if call is None:
        return None
    return {
        "effect": str(call.effect),
        "id": str(call.effect.id),
        "state": call.state,
        "outcome": call.effect.outcome or None,
        "attempts": call.effect.attempt_count,
        "waited_us": call.waited_us,
        "reviewers": list(call.reviewers),
        "took_us": call.took_us,
    }
