"""Errors of the API as RFC 9457 problem documents (`application/problem+json`)."""

from http import HTTPStatus
from typing import Any, Final

import orjson
from django.http import HttpResponse

from journal import sent_meta

CONTENT_TYPE = "application/problem+json"


class Problem(Exception):
    """An API error: status, stable `code`, and a sentence that says what to do.

    `pointer` is the JSON pointer (RFC 6901) of the faulty field, if there is one. `more` holds
    additional members of the response, such as the offset of a syntax error. Raise it anywhere
    below an endpoint; the endpoint turns it into a response.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        pointer: str | None = None,
        headers: dict[str, str] | None = None,
        more: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail
        self.pointer = pointer
        self.headers = headers or {}
        self.more = more or {}

    def as_dict(self) -> dict[str, Any]:
        """Return the response body.

        `type` is about:blank, so `title` is the status phrase and `code` identifies the error.
        """
        body: dict[str, Any] = {
            "type": "about:blank",
            "title": _title(self.status),
            "status": self.status,
            "code": self.code,
            "detail": _encodable(self.detail),
        }
        if self.pointer is not None:
            body["pointer"] = _encodable(self.pointer)
        return body | self.more


# What names no object of the project, and what to do.
NOT_FOUND_TEXTS: Final = {
    "artifact": "The project has no such artifact. Record it first with POST /artifacts.",
    "decision": (
        "The project has no such decision. Record it first with POST /sessions/{id}/decisions."
    ),
    "effect": "The project has no such effect. Plan it first with POST /effects.",
    "gate": "The project has no such gate. The response to a plan names its gate.",
    "handoff": "The project has no such handoff. List handoffs with GET /sessions/{id}/handoffs.",
    "lease": "The project has no such lease. Acquire it first with POST /leases.",
    "session": "The project has no such session. Open it first with POST /sessions.",
    "task": "The project has no such task. Create it first.",
}
NO_TASK_IN_SESSION_TEXT: Final = "The session has no such task. Create it first, or omit `task`."
_NAME_HINTS: Final = {"session": ", or its key"}


def build_not_found(kind: str, pointer: str | None = None) -> Problem:
    """Build the error for an object that the project does not have; `kind` as in the texts."""
    return Problem(404, "not_found", NOT_FOUND_TEXTS[kind], pointer=pointer)


def build_name_not_found(kind: str, owner: str = "project") -> Problem:
    """Build the error for a handle, key or other name that names nothing of its owner."""
    hint = _NAME_HINTS.get(kind, "") if owner == "project" else ""
    detail = f"The {owner} has no such {kind}. Send its id or handle{hint}."
    return Problem(404, "not_found", detail)


def build_agent_unknown(pointer: str, or_else: str = "") -> Problem:
    """Build the error for an agent that the project does not have; `or_else`: what else fits."""
    detail = f"The project has no such agent. Send the name of one of its agents{or_else}."
    return Problem(422, "agent_unknown", detail, pointer=pointer)


def check_meta(meta: dict[str, Any]) -> None:
    """Raise problem 422 if the `meta` of one send is too large."""
    if sent_meta.is_meta_too_large(meta):
        detail = (
            f"`meta` has more than {sent_meta.META_BYTES} bytes of JSON. Send less, or record an"
            " artifact."
        )
        raise Problem(422, "meta_too_large", detail, pointer="/meta")


def build_problem_response(problem: Problem) -> HttpResponse:
    """Build the HTTP response of a problem. Never cached."""
    answer = HttpResponse(
        orjson.dumps(problem.as_dict()), status=problem.status, content_type=CONTENT_TYPE
    )
    answer["Cache-Control"] = "no-store"
    answer["Content-Length"] = str(len(answer.content))  # otherwise the server sends chunks
    for name, value in problem.headers.items():
        answer[name] = value
    return answer


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def _encodable(text: str) -> str:
    # A pointer can contain the key that was rejected for a lone surrogate.
    return text.encode("utf-8", "replace").decode("utf-8")
