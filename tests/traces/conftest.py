"""Exporters of spans on the application, as the tests of the API have agents."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tests.api.api_client import ADDRESS, NO_TLS, Caller
from tests.api.conftest import agent as agent
from tests.api.conftest import application as application
from tests.api.conftest import call as call
from tests.api.conftest import issue as issue
from tests.api.conftest import stranger as stranger
from tests.traces.otlp_requests import to_json, to_protobuf

PROTOBUF = "application/x-protobuf"


class Exporter:
    """Exports spans with one token to the WSGI application."""

    def __init__(self, token: str, app: Any) -> None:
        self.client = httpx.Client(
            base_url=ADDRESS, transport=httpx.WSGITransport(app=app), verify=NO_TLS
        )
        self.token = token

    def send(self, body: bytes, media_type: str = PROTOBUF, **headers: str) -> httpx.Response:
        """POST a body as it is."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"Authorization": f"Bearer {self.token}", "Content-Type": media_type} | named
        return self.client.post("/v1/traces", content=body, headers=sent)

    def export(self, *spans: dict[str, Any], resource: Any = None) -> dict[str, int]:
        """Export spans as protobuf; return the counts of a request that is wholly accepted."""
        answer = self.send(to_protobuf(list(spans), resource))
        assert (answer.status_code, answer.content) == (200, b""), answer.content
        return count_spans(answer)

    def export_json(self, *spans: dict[str, Any], resource: Any = None) -> dict[str, int]:
        """Export spans as JSON; return the counts of a request that is wholly accepted."""
        answer = self.send(to_json(list(spans), resource), "application/json")
        assert (answer.status_code, answer.json()) == (200, {}), answer.content
        return count_spans(answer)


def count_spans(answer: httpx.Response) -> dict[str, int]:
    """Return what became of the spans of a request."""
    pairs = (pair.split("=") for pair in answer.headers["Gatebook-Spans"].split(", "))
    return {name: int(count) for name, count in pairs}


def read_partial(answer: httpx.Response) -> tuple[int, str]:
    """Return the number of rejected spans and the message of a partial success."""
    assert answer.status_code == 200, answer.content
    if answer.headers["content-type"] == "application/json":
        partial = json.loads(answer.content)["partialSuccess"]
        return int(partial["rejectedSpans"]), partial["errorMessage"]
    response = ExportTraceServiceResponse.FromString(answer.content)
    return response.partial_success.rejected_spans, response.partial_success.error_message


@pytest.fixture
def exporter(agent: Caller, application: Any) -> Exporter:
    """An exporter with the token of `agent`."""
    return Exporter(agent.token, application)


@pytest.fixture
def make_exporter(issue: Callable[..., str], application: Any) -> Callable[..., Exporter]:
    """Make an exporter; arguments as for `issue`."""
    return lambda *args, **kwargs: Exporter(issue(*args, **kwargs), application)
