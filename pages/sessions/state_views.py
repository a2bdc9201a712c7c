"""Pages of a session's decisions, handoffs, checkpoints and observed facts."""

from typing import Any, Final
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, member_required
from db import long_numbers
from db.clock import now_us
from display import keyset_pagination
from display.page_params import parse_page_place
from pages.sessions import handoff_facts as sessions_handoffs
from recovery import liveness
from sessions import checkpoints, decisions, facts, handoffs
from sessions.models import Session

SIZE: Final = 50


@require_safe
@member_required
def session_decisions(request: MemberRequest, session: UUID) -> HttpResponse:
    """List decisions and how they ended, newest first; `open=1` only unfinished."""
    session_row = _load_session_or_404(request, session)
    place = parse_page_place(request.GET, ("open",))
    rows = decisions.query_decisions(session_row, open_only=request.GET.get("open") == "1")
    page = keyset_pagination.load_keyset_page(rows, SIZE, place.window)
    rows_shown = [decisions.decision_to_json(row) | {"row": row} for row in page.rows]
    return render(
        request,
        "pages/sessions/decisions.html",
        _page_context(session_row, page, place, decisions=rows_shown),
    )


@require_safe
@member_required
def session_handoffs(request: MemberRequest, session: UUID) -> HttpResponse:
    """List the handoffs of a session, newest first."""
    row = _load_session_or_404(request, session)
    place = parse_page_place(request.GET, ())
    page = keyset_pagination.load_keyset_page(handoffs.query_handoffs(row), SIZE, place.window)
    return render(
        request,
        "pages/sessions/handoffs.html",
        _page_context(row, page, place, handoffs=sessions_handoffs.handoffs_for_page(page.rows)),
    )


@require_safe
@member_required
def session_state(request: MemberRequest, session: UUID) -> HttpResponse:
    """Show the stored checkpoints and the observed facts by source."""
    session_row = _load_session_or_404(request, session)
    place, now = parse_page_place(request.GET, ()), now_us()
    page = keyset_pagination.load_keyset_page(
        facts.query_observed_facts(session_row), SIZE, place.window
    )
    drifting = facts.load_conflicting_facts(
        session_row, now, facts.load_fresh_facts(session_row, now)
    )
    rows_shown = [
        facts.fact_to_json(row, now)
        | {"value": _value_as_text(row, now), "drifts": row.name in drifting}
        for row in page.rows
    ]
    stored_checkpoints = [
        checkpoints.checkpoint_to_json(row, with_state=False)
        for row in checkpoints.load_checkpoints(session_row)
    ]
    return render(
        request,
        "pages/sessions/state.html",
        _page_context(session_row, page, place, facts=rows_shown, checkpoints=stored_checkpoints),
    )


def _load_session_or_404(request: MemberRequest, session: UUID) -> Session:
    row = request.membership.project.sessions.filter(id=session).first()
    if row is None:
        raise Http404
    liveness.attach_liveness([row])
    return row


def _page_context(session: Session, page: Any, place: Any, **rows: Any) -> dict[str, Any]:
    return {"agent_session": session, "page": page, "place": place, **rows}


def _value_as_text(row: Any, now: int) -> str | None:
    """Return a JSON value as one line of text; None if it was erased."""
    if row.text is None:
        return None
    value = facts.fact_to_json(row, now)["value"]
    return value if isinstance(value, str) else long_numbers.to_json_bytes(value).decode()
