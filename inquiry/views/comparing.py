"""Compare two sessions side by side, and choose the second session."""

from typing import Any, Final
from uuid import UUID

from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from inquiry import comparing, comparison_page, liveness, things
from inquiry.comparing import ASPECTS, Call, Line
from inquiry.comparison_page import Comparison, Side
from inquiry.patience import patient
from journal.clock import now_us
from sessions.access import MemberRequest, member
from sessions.models import Session
from sessions.refused import RefusedError

ROWS: Final = 200  # rows on one page
LONGEST: Final = 300


@require_safe
@member
@patient
def session_compare(request: MemberRequest, session: UUID) -> HttpResponse:
    """Ask for the second session (`with`.

    Handle, id, key or address) and redirect to the comparison.
    """
    row = _session(request, session)
    text = request.GET.get("with", "").replace("\0", "").strip()[:LONGEST]
    error = ""
    if text:
        try:
            other = things.session(request.membership.project, text)
        except RefusedError as refusal:
            error = str(refusal)
        else:
            return redirect("session_diff", session=row.id, other=other.id)
    context = {"agent_session": row, "text": text, "error": error}
    return render(request, "inquiry/compare.html", context, status=422 if error else 200)


@require_safe
@member
@patient
def session_diff(request: MemberRequest, session: UUID, other: UUID) -> HttpResponse:
    """Compare two sessions call by call; `view=json` for programs."""
    left, right = _session(request, session), _session(request, other)
    liveness.attach([left, right])
    comparison = comparison_page.compare(left, right, now_us())
    if request.GET.get("view") == "json":
        return JsonResponse(_as_json(comparison), json_dumps_params={"ensure_ascii": False})
    all_rows = request.GET.get("whole") == "1"
    only = request.GET.get("only") == "differences"
    lines = [line for line in comparison.lines if line.sign != "="] if only else comparison.lines
    rows = comparing.folded(lines, whole=all_rows)
    start = _start(request.GET.get("from", ""))
    page_rows = rows[start : start + ROWS]
    comparison_page.add_gists(row.first for row in page_rows if len(row.lines) == 1)
    counts = comparing.counted(comparison.lines)
    context = {
        "sides": (comparison.left, comparison.right),
        "left": comparison.left,
        "right": comparison.right,
        "most": comparing.MOST,
        "cut": [side for side in (comparison.left, comparison.right) if side.cut],
        "gates_cut": comparison.gates_cut,
        "rows": page_rows,
        "earlier": max(start - ROWS, 0) if start else None,
        "later": start + ROWS if len(rows) > start + ROWS else None,
        "whole": all_rows,
        "only": only,
        "kept": "whole=1&" if all_rows else "only=differences&" if only else "",
        "both": counts["="] + counts["≠"],
        "counts": {
            "alike": counts["="],
            "unlike": counts["≠"],
            "left": counts["-"],
            "right": counts["+"],
        },
        "differences": [(aspect, counts[aspect]) for aspect in ASPECTS if counts[aspect]],
    }
    return render(request, "inquiry/diff.html", context)


def _session(request: MemberRequest, identity: UUID) -> Session:
    row = request.membership.project.sessions.select_related("agent").filter(id=identity).first()
    if row is None:
        raise Http404
    return row


def _start(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def _as_json(comparison: Comparison) -> dict[str, Any]:
    counts = comparing.counted(comparison.lines)
    return {
        "left": _side(comparison.left),
        "right": _side(comparison.right),
        "most": comparing.MOST,
        "gates_cut": comparison.gates_cut,
        "equal": counts["="],
        "differing": counts["≠"],
        "only_left": counts["-"],
        "only_right": counts["+"],
        "differences": {aspect: counts[aspect] for aspect in ASPECTS},
        "lines": [_line(line) for line in comparison.lines],
    }


def _side(side: Side) -> dict[str, Any]:
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


def _line(line: Line) -> dict[str, Any]:
    return {
        "sign": line.sign,
        "tool": line.one.effect.tool,
        "intent_digest": line.one.effect.intent_digest or None,
        "left": _call(line.left),
        "right": _call(line.right),
        "differs": list(line.differs),
    }


def _call(call: Call | None) -> dict[str, Any] | None:
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
