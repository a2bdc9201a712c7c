"""The pages of what a session's workers left for those after them: decisions, handoffs, checkpoints and facts."""

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
    """What the agent chose, newest first, and how it ended; with open=1 what was never concluded."""
    found = _session(request, session)
    place = place_of(request.GET, ("open",))
    rows = decisions.of_session(found, open_only=request.GET.get("open") == "1")
    page = keyset.page(rows, SIZE, place.window)
    told = [decisions.told(row) | {"row": row} for row in page.rows]
    return render(request, "inquiry/decisions.html", _context(found, page, place, decisions=told))


@require_safe
@member
def session_handoffs(request: MemberRequest, session: UUID) -> HttpResponse:
    """What each worker told the next, newest first."""
    found = _session(request, session)
    place = place_of(request.GET, ())
    page = keyset.page(handoffs.of_session(found), SIZE, place.window)
    return render(request, "inquiry/handoffs.html", _context(found, page, place, handoffs=handed.shown(page.rows)))


@require_safe
@member
def session_state(request: MemberRequest, session: UUID) -> HttpResponse:
    """The checkpoints that are kept, and what sources say of named values."""
    found = _session(request, session)
    place, now = place_of(request.GET, ()), now_us()
    page = keyset.page(facts.of_session(found), SIZE, place.window)
    drifting = facts.drift(found, now, facts.fresh(found, now))
    told = [facts.told(row, now) | {"value": _plainly(row, now), "drifts": row.name in drifting} for row in page.rows]
    kept = [checkpoints.told(row, whole=False) for row in checkpoints.kept(found)]
    return render(request, "inquiry/state.html", _context(found, page, place, facts=told, checkpoints=kept))


def _session(request: MemberRequest, session: UUID) -> Session:
    found = request.membership.project.sessions.filter(id=session).first()
    if found is None:
        raise Http404
    liveness.attach([found])
    return found


def _context(session: Session, page: Any, place: Any, **rows: Any) -> dict[str, Any]:
    return {"agent_session": session, "page": page, "place": place, **rows}


def _plainly(row: Any, now: int) -> str | None:
    """A value of any shape as one line of text; None where it was erased."""
    if row.text is None:
        return None
    value = facts.told(row, now)["value"]
    return value if isinstance(value, str) else exact.dumps(value).decode()
