"""The official exporter of OpenTelemetry against a live server."""

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import Status, StatusCode

from tests.config.server import Server
from tests.traces.conftest import count_spans
from tests.traces.otlp_requests import to_json, to_protobuf, tool_span

TOOL = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "deploy",
    "gen_ai.tool.call.result": "done",
}


class RecordingExporter(OTLPSpanExporter):
    """The official exporter, which also keeps the result of each export."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.results: list[SpanExportResult] = []

    def export(self, spans: Any) -> SpanExportResult:
        """Export, and keep the result."""
        result = super().export(spans)
        self.results.append(result)
        return result


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_the_official_exporter_delivers_tool_spans(
    live_server_process: Server, compression: Compression
) -> None:
    agent = f"otel-{compression.value}"
    token = live_server_process.token(agent)
    exporter = RecordingExporter(
        endpoint=f"{live_server_process.url}/v1/traces",
        headers={"Authorization": f"Bearer {token}"},
        compression=compression,
        timeout=30,
    )
    provider = TracerProvider(resource=Resource.create({"service.name": "deployer"}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("tests")
    with tracer.start_as_current_span("invoke_agent", attributes={"session.id": f"conv-{agent}"}):
        for number in range(40):
            name = f"execute_tool {number}"
            call = {
                "gen_ai.tool.call.id": f"call_{number}",
                "gen_ai.conversation.id": f"conv-{agent}",
            }
            with tracer.start_as_current_span(name, attributes=TOOL | call) as span:
                if number == 7:
                    span.record_exception(RuntimeError("boom"))
                    span.set_status(Status(StatusCode.ERROR, "boom"))
    provider.shutdown()
    assert set(exporter.results) == {SpanExportResult.SUCCESS}
    with httpx.Client(base_url=f"{live_server_process.url}/api/v1", timeout=60) as client:
        client.headers["Authorization"] = f"Bearer {token}"
        answer = client.get("/search", params={"q": f"effect session:conv-{agent}", "limit": 100})
        rows = answer.json()["rows"]
        assert len(rows) == 40
        assert sorted({row["state"] for row in rows}) == ["acknowledged", "unknown"]
        session = client.get(f"/sessions/conv-{agent}").json()
        assert session["labels"]["service.name"] == "deployer"


@pytest.mark.once
def test_the_official_exporter_sees_a_bad_token_as_a_failure(live_server_process: Server) -> None:
    exporter = RecordingExporter(
        endpoint=f"{live_server_process.url}/v1/traces", headers={"Authorization": "Bearer gbk_no"}
    )
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    with provider.get_tracer("tests").start_as_current_span("x", attributes=TOOL):
        pass
    provider.shutdown()
    assert exporter.results == [SpanExportResult.FAILURE]


def send_chunked(
    server: Server, token: str, media_type: str, parts: list[bytes]
) -> tuple[str, bytes]:
    host, port = server.url.removeprefix("http://").split(":")
    head = (
        f"POST /v1/traces HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: {media_type}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(head.encode())
        for part in [*parts, b""]:
            connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        answer = b""
        while received := connection.recv(65_536):
            answer += received
    header, _, content = answer.partition(b"\r\n\r\n")
    return header.decode(), content


@pytest.mark.once
def test_chunked_bodies_are_read_completely(live_server_process: Server) -> None:
    token = live_server_process.token("chunked")
    bodies = {
        "application/x-protobuf": (to_protobuf([tool_span(n) for n in range(1, 400)]), b""),
        "application/json": (to_json([tool_span(n) for n in range(400, 800)]), b"{}"),
    }
    for media_type, (body, expected) in bodies.items():
        parts = [body[at : at + 7_000] for at in range(0, len(body), 7_000)]
        header, content = send_chunked(live_server_process, token, media_type, parts)
        assert header.startswith("HTTP/1.1 200 ")
        assert content == expected
        assert f"recorded={399 if not expected else 400}, repeated=0" in header


def test_the_same_spans_from_two_exporters_at_once_are_recorded_once(
    live_server_process: Server,
) -> None:
    token = live_server_process.token("twins")
    body = to_protobuf([tool_span(n, trace="ab" * 16) for n in range(1, 301)])
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-protobuf"}
    url = f"{live_server_process.url}/v1/traces"

    def export(_number: int) -> dict[str, int]:
        answer = httpx.post(url, content=body, headers=headers, timeout=60)
        assert (answer.status_code, answer.content) == (200, b"")
        return count_spans(answer)

    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(export, range(4)))
    assert sum(count["recorded"] for count in counts) == 300
    assert sum(count["repeated"] for count in counts) == 900


@pytest.mark.once
def test_a_body_larger_than_the_limit_is_refused_while_it_is_sent(
    live_server_process: Server,
) -> None:
    headers = {
        "Authorization": f"Bearer {live_server_process.token('large')}",
        "Content-Type": "application/x-protobuf",
    }
    url = f"{live_server_process.url}/v1/traces"
    # More than other endpoints of agents take, and less than the limit of this one.
    padding = b"\x12\x80\x80\xc0\x02" + b"x" * (5 * 1024 * 1024)
    accepted = httpx.post(url, content=padding, headers=headers, timeout=60)
    assert accepted.status_code == 200, accepted.content
    refused = httpx.post(url, content=b"x" * (17 * 1024 * 1024), headers=headers, timeout=60)
    assert refused.status_code == 413
