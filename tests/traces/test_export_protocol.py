"""The protocol of /v1/traces: encodings, answers and refusals."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ledger.models import Effect
from tests.traces.conftest import PROTOBUF, Exporter, count_spans, read_partial
from tests.traces.otlp_requests import to_json, to_protobuf, tool_span
from traces import span_records
from traces.spans import REQUEST_BYTES

JSON = "application/json"
BODIES = {PROTOBUF: to_protobuf([tool_span(1)]), JSON: to_json([tool_span(1)])}


def read_failure(answer: Any) -> tuple[int, str]:
    """Return code and message of a google.rpc.Status, decoded by hand."""
    if answer.headers["content-type"] == JSON:
        status = json.loads(answer.content)
        return status["code"], status["message"]
    content = answer.content
    assert content[:1] == b"\x08"
    assert content[2:3] == b"\x12"
    at, size = 3, 0
    for shift in range(0, 21, 7):
        size |= (content[at] & 127) << shift
        at += 1
        if content[at - 1] < 128:
            break
    assert len(content) == at + size
    return content[1], content[at:].decode()


@pytest.mark.parametrize("media_type", [PROTOBUF, JSON])
@pytest.mark.parametrize("packed", [False, True])
def test_the_answer_has_the_encoding_of_the_request(
    exporter: Exporter, media_type: str, packed: bool
) -> None:
    body = BODIES[media_type]
    answer = (
        exporter.send(gzip.compress(body), media_type, Content_Encoding="gzip")
        if packed
        else exporter.send(body, media_type)
    )
    assert (answer.status_code, answer.headers["content-type"]) == (200, media_type)
    if media_type == JSON:
        assert answer.json() == {}
    else:
        assert ExportTraceServiceResponse.FromString(answer.content) == ExportTraceServiceResponse()
    assert count_spans(answer)["recorded"] == 1


@pytest.mark.parametrize("media_type", [PROTOBUF, JSON])
def test_what_is_rejected_is_a_partial_success(exporter: Exporter, media_type: str) -> None:
    spans = [tool_span(1), tool_span(2, attributes={"gen_ai.tool.name": "a\nb"}), tool_span(3)]
    body = to_json(spans) if media_type == JSON else to_protobuf(spans)
    answer = exporter.send(body, media_type)
    rejected, message = read_partial(answer)
    assert rejected == 1
    assert message
    assert Effect.objects.count() == 2


def test_an_empty_request_is_a_success(exporter: Exporter) -> None:
    assert exporter.send(b"").status_code == 200
    assert exporter.send(b"{}", JSON).json() == {}
    assert exporter.send(b'{"resourceSpans": []}', f"{JSON}; charset=utf-8").status_code == 200


CUT = BODIES[PROTOBUF][:-3]


@pytest.mark.parametrize(
    ("media_type", "body", "headers", "status", "reason"),
    [
        ("text/plain", b"x", {}, 415, "Content-Type"),
        ("application/grpc", b"x", {}, 415, "Content-Type"),
        (PROTOBUF, b"no gzip", {"Content_Encoding": "gzip"}, 400, "gzip"),
        (PROTOBUF, gzip.compress(b"x" * 99)[:-9], {"Content_Encoding": "gzip"}, 400, "truncated"),
        (PROTOBUF, BODIES[PROTOBUF], {"Content_Encoding": "br"}, 415, "Content-Encoding"),
        (PROTOBUF, CUT, {}, 400, "truncated"),
        (PROTOBUF, b"<html>", {}, 400, "protobuf"),
        (JSON, b"", {}, 400, "JSON"),
        (JSON, b'{"resourceSpans": "x"}', {}, 400, "JSON"),
        (JSON, b'{"resourceSpans": [', {}, 400, "JSON"),
        (PROTOBUF, b"\x00" * (REQUEST_BYTES + 1), {}, 413, "larger"),
        (
            PROTOBUF,
            gzip.compress(b"\x00" * (REQUEST_BYTES + 1)),
            {"Content_Encoding": "gzip"},
            413,
            "larger",
        ),
        (JSON, b'{"resourceSpans":[' + b"{}," * 600_000 + b"{}]}", {}, 413, "spans"),
    ],
    ids=[
        "text",
        "grpc",
        "no_gzip",
        "cut_gzip",
        "brotli",
        "cut",
        "html",
        "empty_json",
        "wrong_json",
        "cut_json",
        "large",
        "bomb",
        "objects",
    ],
)
def test_bad_requests_are_refused_with_a_status_message(
    exporter: Exporter,
    media_type: str,
    body: bytes,
    headers: dict[str, str],
    status: int,
    reason: str,
) -> None:
    answer = exporter.send(body, media_type, **headers)
    assert answer.status_code == status, answer.content
    _code, message = read_failure(answer)
    assert reason in message
    expected = media_type if media_type in BODIES else JSON
    assert answer.headers["content-type"] == expected
    assert not Effect.objects.exists()


def test_only_a_token_that_may_write_exports_spans(
    exporter: Exporter, make_exporter: Callable[..., Exporter]
) -> None:
    for authorization in ("", "Bearer gbk_x", "Basic abc"):
        answer = exporter.send(BODIES[PROTOBUF], Authorization=authorization)
        assert (answer.status_code, read_failure(answer)[0]) == (401, 16)
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    answer = make_exporter("auditor", scope="audit").send(BODIES[JSON], JSON)
    assert (answer.status_code, read_failure(answer)[0]) == (403, 7)
    assert not Effect.objects.exists()


def test_only_post_is_answered(exporter: Exporter) -> None:
    headers = {"Authorization": f"Bearer {exporter.token}"}
    answer = exporter.client.get("/v1/traces", headers=headers)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    for path in ("/v1/logs", "/v1/metrics", "/v1/traces/"):
        assert exporter.client.post(path, headers=headers).status_code == 404


def test_an_outage_is_retryable_and_says_when(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any, **_kwargs: Any) -> Any:
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(span_records, "_record_calls", fail)
    answer = exporter.send(BODIES[PROTOBUF])
    code, message = read_failure(answer)
    assert (answer.status_code, code) == (503, 14)
    assert int(answer.headers["Retry-After"]) > 0
    assert "no span is recorded twice" in message
    monkeypatch.undo()
    assert count_spans(exporter.send(BODIES[PROTOBUF]))["recorded"] == 1


def test_projects_do_not_see_each_others_spans(make_exporter: Callable[..., Exporter]) -> None:
    ours, theirs = make_exporter(), make_exporter(project="elsewhere")
    assert ours.export(tool_span(1))["recorded"] == 1
    assert theirs.export(tool_span(1))["recorded"] == 1
    assert Effect.objects.values("project").distinct().count() == 2
