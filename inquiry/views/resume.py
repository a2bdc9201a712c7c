"""The page of whoever asks whether a session can be resumed: the answer, and all that the next worker is told."""

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
    """Everything that the next worker of the session is told, in the same order, from the same function."""
    found = session_page.session(request.membership.project, session)
    if found is None:
        raise Http404
    now = now_us()
    answer = resume.read(found, now)
    context = {
        "agent_session": found,
        "resume": answer,
        "may_resolve": may(request.membership, "operator") and not request.membership.project.archive,
        "decisions": [decisions.told(row) for row in answer.decisions],
        "handoff": handed.shown([answer.handoff])[0] if answer.handoff is not None else None,
        "checkpoint": checkpoints.told(answer.checkpoint, whole=False) if answer.checkpoint is not None else None,
        "facts": [told | {"value": _plainly(told["value"])} for told in (facts.told(row, now) for row in answer.facts)],
        "lease_is_live": answer.lease is not None and holders.is_live(answer.lease, now),
    }
    return render(request, "inquiry/resume.html", context)


def _plainly(value: Any) -> str:
    """A value of any shape as one line of text."""
    return value if isinstance(value, str) else exact.dumps(value).decode()
