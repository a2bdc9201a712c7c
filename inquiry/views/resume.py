"""Resume page: can the session resume, and what the next worker receives."""

from typing import Any
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from inquiry import handed, resume, session_page
from inquiry.patience import patient
from journal import exact
from journal.clock import now_us
from sessions import checkpoints, decisions, facts, holders
from sessions.access import MemberRequest, may, member


@require_safe
@member
@patient
def session_resume(request: MemberRequest, session: UUID) -> HttpResponse:
    """Show the recovery details in the order of GET resume."""
    session_row = session_page.session(request.membership.project, session)
    if session_row is None:
        raise Http404
    now = now_us()
    answer = resume.read(session_row, now)
    context = {
        "agent_session": session_row,
        "resume": answer,
        "may_resolve": may(request.membership, "operator")
        and not request.membership.project.archive,
        "decisions": [decisions.told(row) for row in answer.decisions],
        "handoff": handed.shown([answer.handoff])[0] if answer.handoff is not None else None,
        "checkpoint": checkpoints.told(answer.checkpoint, whole=False)
        if answer.checkpoint is not None
        else None,
        "facts": [
            page_context | {"value": _plainly(page_context["value"])}
            for page_context in (facts.told(row, now) for row in answer.facts)
        ],
        "lease_is_live": answer.lease is not None and holders.is_live(answer.lease, now),
    }
    return render(request, "inquiry/resume.html", context)


def _plainly(value: Any) -> str:
    """Return a JSON value as one line of text."""
    return value if isinstance(value, str) else exact.dumps(value).decode()
