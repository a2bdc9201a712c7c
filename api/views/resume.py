"""Endpoint that says whether a session can resume safely, and from which state."""

from uuid import UUID

from django.http import HttpResponse

from api.endpoint import Call, get_endpoint
from api.pagination import parse_parameters
from api.problems import Problem, build_not_found
from db.clock import now_us
from investigation import repeated_calls
from recovery import resume, resume_json
from sessions.models import Session

MAX_PROCESS_CHARACTERS = 64


@get_endpoint
def get_resume(call: Call, session: UUID) -> HttpResponse:
    """Return whether the session can be resumed safely, and its state, at most 32 KiB.

    Changes nothing. `process` is the worker's name; while another worker's lease is active, the
    controls tell it to wait. `safe` and `because` describe the state after that lease has ended.
    """
    params = parse_parameters(call.request, {"process"})
    process = params.get("process")
    if process is not None and len(process) > MAX_PROCESS_CHARACTERS:
        detail = (
            "`process` is too long. Send the name used for the lease or dispatch, at most"
            f" {MAX_PROCESS_CHARACTERS} characters."
        )
        raise Problem(422, "invalid", detail, pointer="/process")
    row = Session.objects.select_related("agent").filter(project=call.project, id=session).first()
    if row is None:
        raise build_not_found("session")
    context = resume.load_resume_context(row, now_us(), process=process, agent=call.token.agent)
    repeats = repeated_calls.load_repeats_of_session(row)
    state = resume.decide_resume(context)
    body = resume_json.resume_to_json(state, [repeat.to_json() for repeat in repeats])
    response = HttpResponse(body, content_type="application/json")
    response["Content-Length"] = str(len(response.content))
    response["Cache-Control"] = "no-store"
    return response
