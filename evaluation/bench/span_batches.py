"""Batches of 500 spans of tool calls, compared with own batches of the same facts.

A span becomes a plan, a start and an end. The own batches report these 1,500 facts in three
requests of 500. Both alternate within a round, on new effects of eight sessions. The encoder writes
what the official exporter writes for a framework like pydantic-ai, 16 attributes with its resource.
"""

import http.client
import json
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

from evaluation.bench import clients
from evaluation.bench.clients import Timings, Work
from evaluation.bench.installation import Server
from evaluation.bench.report import Report, percentile
from evaluation.bench.workload import START_US, TOOLS, Batch, make_text

SPANS: Final = 500  # of a request
FACTS: Final = 3  # of a span
SESSIONS: Final = 8
BAR: Final = 2.0  # × the CPU of own batches
AGENT: Final = "exporter"
_TURNS: Final = 3  # alternations in a round


def measure(report: Report, server: Server, *, rounds: int, batches: int) -> None:
    """Measure both, alternating; `batches` is the number of span batches in a round."""
    vendor = server.installation.vendor
    token = server.installation.issue_token(AGENT)
    seen: dict[str, list[float]] = {}
    each = max(1, batches // _TURNS)
    for number in range(-1, rounds):  # the first round warms up
        sys.stderr.write(f"{vendor}: spans, round {number + 1} of {rounds}\n")
        used = {"own": 0.0, "spans": 0.0}
        latencies: list[float] = []
        for turn in range(_TURNS):
            name = f"{number}-{turn}"
            calls = range(each * SPANS)
            own = clients.post_batches(server.port, token, list(write_facts(f"o{name}", calls)))
            sent = [
                write_spans(f"s{name}", calls[start : start + SPANS])
                for start in range(0, len(calls), SPANS)
            ]
            for kind, work in (("own", own), ("spans", post_spans(server.port, token, sent))):
                before = server.cpu_s()
                spent = clients.run_together([work])
                used[kind] += server.cpu_s() - before
                latencies += spent.all if kind == "spans" else []
        if number < 0:
            continue
        spans = each * SPANS * _TURNS
        seen.setdefault("own", []).append(1000 * used["own"] / spans)
        seen.setdefault("spans", []).append(1000 * used["spans"] / spans)
        seen.setdefault("ratio", []).append(used["spans"] / used["own"])
        seen.setdefault("p50", []).append(1000 * percentile(latencies, 0.5))
        seen.setdefault("p99", []).append(1000 * percentile(latencies, 0.99))
    unit = "CPU-s per 1,000 calls"
    report.add(vendor, "spans: own batches of the same facts, CPU", unit, seen["own"])
    report.add(vendor, "spans: batches of 500, CPU", unit, seen["spans"])
    report.add(vendor, "spans: × own batches", "×", seen["ratio"], bar=BAR)
    report.add(vendor, "spans: p50", "ms per batch", seen["p50"])
    report.add(vendor, "spans: p99", "ms per batch", seen["p99"])


def write_facts(name: str, calls: range) -> Iterator[Batch]:
    """Yield own batches with the facts of these calls, 500 facts each."""
    items = []
    for call in calls:
        tool, arguments, result = _describe_call(call)
        base: dict[str, object] = {
            "session": f"{name}-{call % SESSIONS}",
            "effect_key": f"call-{call}",
        }
        planned: dict[str, object] = {
            "tool": tool,
            "arguments": arguments,
            "call_id": _name_call(name, call),
        }
        facts: list[tuple[str, dict[str, object]]] = [
            ("effect.planned", planned | {"turn": f"{call // 4:016x}"}),
            ("effect.dispatched", {"attempt": 1, "occurred_us": START_US + call}),
            ("effect.acknowledged", {"attempt": 1, "outcome": "ok", "result": result}),
        ]
        for part, (kind, fields) in enumerate(facts):
            item: dict[str, object] = {"id": f"{name}-{call}-{part}", "kind": kind}
            item |= {"producer_seq": part, **base, **fields}
            items.append(json.dumps(item, ensure_ascii=False).encode())
    for start in range(0, len(items), SPANS):
        part_items = items[start : start + SPANS]
        yield Batch(b"[" + b",".join(part_items) + b"]", len(part_items))


def write_spans(name: str, calls: range) -> bytes:
    """Return an ExportTraceServiceRequest in protobuf with a span for each call."""
    resource = {
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.version": "1.45.2",
        "service.instance.id": "16458",
        "service.name": "bench",
    }
    scope = _pack(1, _pack(1, b"pydantic-ai") + _pack(2, b"2.62.0"))
    spans = b"".join(_pack(2, _write_span(name, call)) for call in calls)
    return _pack(1, _pack(1, _write_attributes(1, resource)) + _pack(2, scope + spans))


def post_spans(port: int, token: str, bodies: Sequence[bytes]) -> Work:
    """Return the work of an exporter; every span must be recorded."""

    def work() -> Timings:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-protobuf"}
        latencies = []
        started = time.monotonic()
        for body in bodies:
            sent = time.perf_counter()
            connection.request("POST", "/v1/traces", body=body, headers=headers)
            answer = connection.getresponse()
            text = answer.read()
            latencies.append(time.perf_counter() - sent)
            counts = answer.headers.get("Gatebook-Spans", "")
            if answer.status != 200 or not counts.startswith(f"recorded={SPANS}, repeated=0"):
                raise RuntimeError(f"spans were answered {answer.status} {counts}: {text[:300]!r}")
        wall_s = time.monotonic() - started
        connection.close()
        return Timings(wall_s, {"spans": latencies}, {200: len(bodies)})

    return work


def _describe_call(call: int) -> tuple[str, dict[str, object], str]:
    arguments = {"path": f"src/part_{call % 97}.py", "number": call, "why": make_text(call, 120)}
    return TOOLS[call % len(TOOLS)], arguments, make_text(call + 1, 300)


def _name_call(name: str, call: int) -> str:
    return f"toolu_{name}_{call:08d}"


def _write_span(name: str, call: int) -> bytes:
    tool, arguments, result = _describe_call(call)
    digest = f"{abs(hash((name, call // 20))):032x}"[-32:]
    start = struct.pack("<Q", (START_US + call) * 1_000)
    end = struct.pack("<Q", (START_US + call + 500) * 1_000)
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.call.id": _name_call(name, call),
        "gen_ai.tool.call.arguments": json.dumps(arguments, ensure_ascii=False),
        "gen_ai.agent.name": "agent",
        "gen_ai.agent.call.id": "01a1f857-019f-722f-a051-ad5b5d5743c5",
        "gen_ai.conversation.id": f"{name}-{call % SESSIONS}",
        "logfire.msg": f"running tool: {tool}",
        "logfire.json_schema": '{"type":"object","properties":{"gen_ai.tool.call.arguments":{}}}',
        "gen_ai.tool.call.result": result,
        "span.number": str(call),
    }
    return b"".join(
        (
            _pack(1, bytes.fromhex(digest)),
            _pack(2, (call + 1).to_bytes(8, "big")),
            _pack(4, (call // 4 + 1).to_bytes(8, "big")),
            _pack(5, f"execute_tool {tool}".encode()),
            b"\x30\x01",  # kind: internal
            b"\x39" + start + b"\x41" + end,
            _write_attributes(9, attributes),
            _pack(15, b""),
        )
    )


def _write_attributes(number: int, attributes: dict[str, str]) -> bytes:
    return b"".join(
        _pack(number, _pack(1, name.encode()) + _pack(2, _pack(1, value.encode())))
        for name, value in attributes.items()
    )


def _pack(number: int, content: bytes) -> bytes:
    """Return a length-delimited field."""
    packed = bytearray([number << 3 | 2])
    size = len(content)
    while size > 127:
        packed.append(size & 127 | 128)
        size >>= 7
    packed.append(size)
    return bytes(packed) + content
