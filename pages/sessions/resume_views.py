"""Resume page: can the session resume, and what the next worker receives."""

from typing import Any
from uuid import UUID

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from accounts.access import MemberRequest, has_role, member_required
from db import long_numbers
from db.clock import now_us
from display.time_limit import limit_view
from investigation import repeated_calls
from pages.sessions import data, handoff_facts
from recovery import resume
from sessions import checkpoints, decisions, facts, lease_queries


@require_safe
@member_required
@limit_view
def session_resume(request: MemberRequest, session: UUID) -> HttpResponse:
    """Show the recovery details in the order of GET resume."""
    session_row = data.load_session_for_page(request.membership.project, session)
    if session_row is None:
        raise Http404
    now = now_us()
    answer = resume.decide_resume(resume.load_resume_context(session_row, now))
    context = {
        "agent_session": session_row,
        "resume": answer,
        "repeats": repeated_calls.load_repeats_of_session(session_row),
        "may_resolve": has_role(request.membership, "operator")
        and not request.membership.project.archive,
        "decisions": [decisions.decision_to_json(row) for row in answer.decisions],
        "handoff": handoff_facts.handoffs_for_page([answer.handoff])[0]
        if answer.handoff is not None
        else None,
        "checkpoint": checkpoints.checkpoint_to_json(answer.checkpoint, with_state=False)
        if answer.checkpoint is not None
        else None,
        "facts": [
            page_context | {"value": _value_as_text(page_context["value"])}
            for page_context in (facts.fact_to_json(row, now) for row in answer.facts)
        ],
        "lease_is_live": answer.lease is not None
        and lease_queries.is_lease_live(answer.lease, now),
    }
    return render(request, "pages/sessions/resume.html", context)


def _value_as_text(value: Any) -> str:
    """Return a JSON value as one line of text."""
    return value if isinstance(value, str) else long_numbers.to_json_bytes(value).decode()
