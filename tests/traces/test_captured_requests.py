"""Requests that real instrumentation sent, replayed byte by byte where the samples are."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from journal.models import Entry
from ledger.models import Effect
from sessions.models import Session
from tests.api.api_client import Caller
from tests.traces.conftest import Exporter, count_spans
from tests.traces.otlp_requests import tool_span

SHARED = Path(__file__).resolve().parents[3] / "shared"
CAPTURED = SHARED / "samples" / "otlp_and_cloudevents_raw_requests.jsonl"
LANGFUSE = SHARED / "data" / "langfuse-traces" / "langfuse-traces.jsonl.gz"
EXAMPLES = SHARED / "data" / "otlp-examples" / "otlp-examples.jsonl.gz"


def read_requests(path: str) -> list[tuple[dict[str, str], bytes]]:
    """Return headers and body of each captured request to `path`."""
    rows = map(json.loads, CAPTURED.read_text().splitlines())
    return [
        (
            {name.lower(): value for name, value in row["headers"].items()},
            base64.b64decode(row["body_b64"]),
        )
        for row in rows
        if row["path"] == path
    ]


def replay(exporter: Exporter) -> dict[str, int]:
    totals: dict[str, int] = {}
    for headers, body in read_requests("/v1/traces"):
        encoding = headers.get("content-encoding")
        more = {"Content_Encoding": encoding} if encoding else {}
        answer = exporter.send(body, headers["content-type"], **more)
        assert answer.status_code == 200, answer.content
        for name, count in count_spans(answer).items():
            totals[name] = totals.get(name, 0) + count
    return totals


@pytest.mark.skipif(not CAPTURED.exists(), reason="the samples are not on this machine")
def test_captured_spans_of_four_frameworks_are_tool_calls(exporter: Exporter) -> None:
    totals = replay(exporter)
    assert (totals["rejected"], totals["repeated"]) == (0, 0)
    calls = Effect.objects.exclude(tool="").values_list("tool", "outcome")
    counts = {call: list(calls).count(call) for call in calls}
    assert counts == {
        ("Bash", "ok"): 2,
        ("Write", "ok"): 1,
        ("append_line", "ok"): 6,
        ("push_branch", "ok"): 1,
        ("push_branch", "unknown"): 1,  # openai-agents ended the span to wait for a person
    }
    assert totals["recorded"] == 14  # Claude Code tells each of its three calls in two spans
    assert set(Effect.objects.values_list("violates", flat=True)) == {False}
    langgraph = Session.objects.get(key="otl-8428")
    assert langgraph.labels["service.name"] == "langgraph"
    call_ids = Effect.objects.filter(session=langgraph).values_list("call_id", flat=True)
    assert set(call_ids) == {"call_a", "call_b"}
    state = list(Effect.objects.order_by("id").values_list("id", "version", "state"))
    again = replay(exporter)
    assert (again["recorded"], again["repeated"]) == (0, 14)
    assert list(Effect.objects.order_by("id").values_list("id", "version", "state")) == state


@pytest.mark.skipif(not CAPTURED.exists(), reason="the samples are not on this machine")
def test_captured_cloudevents_are_kept(agent: Caller) -> None:
    statuses = []
    for headers, body in read_requests("/cloudevents"):
        sent = {
            name: value
            for name, value in headers.items()
            if name.startswith("ce-") or name == "content-type"
        }
        answer = agent.client.post("/cloudevents", content=body, headers=sent)
        statuses.append(answer.status_code)
    # The same id was sent structured and then binary, 3 ms later: other content of one event.
    assert statuses == [200, 409]
    assert Entry.objects.filter(kind="cloudevent.received").count() == 1
    assert Entry.objects.filter(kind="integrity.conflict").count() == 1
    assert Session.objects.get().key == "ce-1"


@pytest.mark.skipif(not LANGFUSE.exists(), reason="the recorded data are not on this machine")
def test_tool_calls_of_langfuse_traces_are_recorded(exporter: Exporter) -> None:
    spans: list[dict[str, Any]] = []
    with gzip.open(LANGFUSE, "rt") as lines:
        for line in lines:
            for row in json.loads(line)["raw"]["observations"]:
                metadata = row["metadata"]
                metadata = json.loads(metadata) if isinstance(metadata, str) else metadata or {}
                attributes = {
                    "langfuse.observation.type": row["type"].lower(),
                    "langfuse.observation.input": json.dumps(row["input"]),
                    "langfuse.observation.output": json.dumps(row["output"]),
                }
                span = tool_span(name=row["name"], trace=row["traceId"].replace("-", "")[:32])
                plain = {name: str(value) for name, value in metadata.get("attributes", {}).items()}
                span["attributes"] = attributes | plain
                span["id"] = row["id"].replace("-", "")[-16:]
                spans.append(span)
    counts = exporter.export(*spans)
    assert counts["recorded"] == 4
    tools = set(Effect.objects.values_list("tool", flat=True))
    assert tools == {"ByeTool", "HelloTool", "get_weather"}


@pytest.mark.skipif(not EXAMPLES.exists(), reason="the recorded data are not on this machine")
def test_the_examples_of_the_specification_are_accepted(exporter: Exporter) -> None:
    with gzip.open(EXAMPLES, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    (trace,) = [row["raw"] for row in rows if row["_source"]["path"].endswith("trace.json")]
    answer = exporter.send(json.dumps(trace).encode(), "application/json")
    assert (answer.status_code, answer.json()) == (200, {})
    assert count_spans(answer)["ignored"] == 1
