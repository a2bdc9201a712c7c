"""Errors of the API in the shape of RFC 9457 (`application/problem+json`)."""

from http import HTTPStatus
from typing import Any

import orjson
from django.http import HttpResponse

CONTENT_TYPE = "application/problem+json"


class Problem(Exception):
    """A refusal with a status, a stable `code`, and a sentence that tells the caller what to do about it.

    `pointer` is the JSON pointer (RFC 6901) of the fault within the body, where one place can be named; `more` are
    members of the answer beside it, such as where in a text the fault stands.
    Raise it anywhere below a door; the door turns it into an answer with `response`.
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
        """The answer's body. `type` is about:blank, so `title` is the status phrase; `code` tells kinds apart."""
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


def response(problem: Problem) -> HttpResponse:
    """The HTTP answer of a problem. Never cached."""
    answer = HttpResponse(orjson.dumps(problem.as_dict()), status=problem.status, content_type=CONTENT_TYPE)
    answer["Cache-Control"] = "no-store"
    answer["Content-Length"] = str(len(answer.content))  # else the server answers in chunks
    for name, value in problem.headers.items():
        answer[name] = value
    return answer


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def _encodable(text: str) -> str:
    # A pointer may be made of the very keys that were refused for holding half a surrogate pair.
    return text.encode("utf-8", "replace").decode("utf-8")
