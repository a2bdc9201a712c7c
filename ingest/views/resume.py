"""The door of whoever takes a session up: what must not be done again, what may, and what is known."""

from uuid import UUID

from django.http import HttpResponse

from ingest.doors import Call, reading
from ingest.paging import parameters
from ingest.problems import Problem
from inquiry import resume, resume_answer
from journal.clock import now_us
from sessions.models import Session

LONGEST_PROCESS = 64


@reading
def get_resume(call: Call, session: UUID) -> HttpResponse:
    """Whether the session can be resumed safely, and everything its next worker needs, at most 32 KiB. Changes nothing.

    `process` is how the asker calls itself: while another's lease lives, it is told to wait. `safe` and `because` say
    what will be so when that lease has ended.
    """
    asked = parameters(call.request, {"process"})
    process = asked.get("process")
    if process is not None and len(process) > LONGEST_PROCESS:
        detail = f"process is the name you gave with the lease or the dispatch, at most {LONGEST_PROCESS} characters."
        raise Problem(422, "invalid", detail, pointer="/process")
    found = Session.objects.select_related("agent").filter(project=call.project, id=session).first()
    if found is None:
        raise Problem(404, "not_found", "This project has no such session; open it first with POST /sessions.")
    answer = resume.read(found, now_us(), process=process, agent=call.token.agent)
    response = HttpResponse(resume_answer.as_json(answer), content_type="application/json")
    response["Content-Length"] = str(len(response.content))
    response["Cache-Control"] = "no-store"
    return response
