"""Pages of a session's decisions, handoffs, checkpoints and observed facts."""

from typing import Any, Final
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from inquiry import handed, keyset, liveness
from inquiry.views.place import place_of
from journal import exact
from journal.clock import now_us
from sessions import checkpoints, decisions, facts, handoffs
from sessions.access import MemberRequest, member
from sessions.models import Session

SIZE: Final = 50


@require_safe
@member
def session_decisions(request: MemberRequest, session: UUID) -> HttpResponse:
    """List the agent's decisions and how they ended, newest first.

    `open=1` lists unfinished ones.
    """
    session_row = _session(request, session)
    place = place_of(request.GET, ("open",))
    rows = decisions.of_session(session_row, open_only=request.GET.get("open") == "1")
    page = keyset.page(rows, SIZE, place.window)
    rows_shown = [decisions.told(row) | {"row": row} for row in page.rows]
    return render(
        request, "inquiry/decisions.html", _context(session_row, page, place, decisions=rows_shown)
    )


@require_safe
@member
def session_handoffs(request: MemberRequest, session: UUID) -> HttpResponse:
    """List the handoffs of a session, newest first."""
    row = _session(request, session)
    place = place_of(request.GET, ())
    page = keyset.page(handoffs.of_session(row), SIZE, place.window)
    return render(
        request,
        "inquiry/handoffs.html",
        _context(row, page, place, handoffs=handed.shown(page.rows)),
    )


@require_safe
@member
def session_state(request: MemberRequest, session: UUID) -> HttpResponse:
    """Show the stored checkpoints and the observed facts by source."""
    session_row = _session(request, session)
    place, now = place_of(request.GET, ()), now_us()
    page = keyset.page(facts.of_session(session_row), SIZE, place.window)
    drifting = facts.drift(session_row, now, facts.fresh(session_row, now))
    rows_shown = [
        facts.told(row, now) | {"value": _plainly(row, now), "drifts": row.name in drifting}
        for row in page.rows
    ]
    stored_checkpoints = [
        checkpoints.told(row, whole=False) for row in checkpoints.kept(session_row)
    ]
    return render(
        request,
        "inquiry/state.html",
        _context(session_row, page, place, facts=rows_shown, checkpoints=stored_checkpoints),
    )


def _session(request: MemberRequest, session: UUID) -> Session:
    row = request.membership.project.sessions.filter(id=session).first()
    if row is None:
        raise Http404
    liveness.attach([row])
    return row


def _context(session: Session, page: Any, place: Any, **rows: Any) -> dict[str, Any]:
    return {"agent_session": session, "page": page, "place": place, **rows}


def _plainly(row: Any, now: int) -> str | None:
    """Return a JSON value as one line of text; None if it was erased."""
    if row.text is None:
        return None
    value = facts.told(row, now)["value"]
    return value if isinstance(value, str) else exact.dumps(value).decode()
