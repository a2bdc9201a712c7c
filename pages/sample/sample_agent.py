"""An agent of the sample project: sends commands to the API's own endpoints, in this process."""

import io
import json
from typing import Any, Final

from django.core.handlers.wsgi import WSGIRequest
from django.urls import resolve

_PREFIX: Final = "/api/v1"


class SampleRequestFailed(Exception):
    """The API refused a command that the sample expects to succeed."""


class SampleAgent:
    """Sends commands with a token, each with a key of its own."""

    def __init__(self, name: str, token: str) -> None:
        self.name = name
        self._token = token
        self._sent = 0

    def post(self, path: str, body: Any) -> dict[str, Any]:
        """Send a command and return the answer. Raises SampleRequestFailed."""
        self._sent += 1
        content = json.dumps(body).encode()
        request = WSGIRequest(
            {
                "REQUEST_METHOD": "POST",
                "PATH_INFO": f"{_PREFIX}{path}",
                "SERVER_NAME": "sample",
                "SERVER_PORT": "0",
                "CONTENT_TYPE": "application/json",
                "CONTENT_LENGTH": str(len(content)),
                "HTTP_AUTHORIZATION": f"Bearer {self._token}",
                "HTTP_IDEMPOTENCY_KEY": f"sample-{self._sent}",
                "wsgi.input": io.BytesIO(content),
            }
        )
        match = resolve(path, urlconf="api.urls")
        response = match.func(request, *match.args, **match.kwargs)
        answer: dict[str, Any] = json.loads(response.content)
        if response.status_code >= 400:
            raise SampleRequestFailed(f"{self.name} {path}: {response.status_code} {answer}")
        return answer
