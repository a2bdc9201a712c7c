"""Write contention: eight importers at once while a person saves a form, without errors or delay."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from evaluation.bench import clients
from evaluation.bench.installation import ROOT, Server
from evaluation.bench.person import Person
from evaluation.bench.report import Report, percentile
from evaluation.bench.workload import TOOLS, make_text

IMPORTERS: Final = 8
P99_BAR: Final = 500.0  # ms
SETTLE_S: Final = 1.0  # before the person begins, because the importers read their files first
PAUSE_S: Final = 0.05  # between two saves
LONGEST_S: Final = 240
FEWEST: Final = 100  # saves, for a meaningful p99
SESSION: Final = "5d0b7d1e-0000-4000-8000-"
LARGE_EVERY: Final = 200  # one result in LARGE_EVERY is stored as an artifact


def measure(report: Report, server: Server, *, calls: int) -> None:
    """Let each importer import a recording of `calls` calls while a person saves settings."""
    vendor, folder = server.installation.vendor, server.installation.folder
    files = [
        _write_recording(folder / f"recorded-{number}.jsonl", number, calls)
        for number in range(IMPORTERS)
    ]
    sys.stderr.write(f"{vendor}: {IMPORTERS} importers and a person\n")
    tokens = [
        server.installation.issue_token(f"importer-{number}", "--scope", "import")
        for number in range(IMPORTERS)
    ]
    started = time.monotonic()
    importers = [
        _start_import(server, file, token) for file, token in zip(files, tokens, strict=True)
    ]
    try:
        spent = clients.run_together(
            [_make_saves(server, [importer.pid for importer in importers])]
        )
        errors = sum(importer.wait(LONGEST_S) != 0 for importer in importers)
    finally:
        for importer in importers:
            importer.kill()
    wall_s = time.monotonic() - started
    errors += _count_incomplete(server, calls)
    name = f"person's form next to {IMPORTERS} importers"
    saves = [1000 * value for value in spent.latencies["save"]]
    report.add(vendor, f"{name}: errors", "errors", [errors + spent.answers.get(500, 0)], bar=0)
    report.add(vendor, f"{name}: p50", "ms", [percentile(saves, 0.5)])
    report.add(
        vendor,
        f"{name}: p99",
        "ms",
        [percentile(saves, 0.99)],
        bar=P99_BAR,
        note=f"{len(saves)} saves",
    )
    report.add(
        vendor, f"{IMPORTERS} importers together", "facts/s", [3 * calls * IMPORTERS / wall_s]
    )


def _write_recording(path: Path, number: int, calls: int) -> Path:
    """Write a session as the pi coding agent records it, with `calls` calls and their results."""
    entries: list[dict[str, Any]] = [
        {
            "type": "session",
            "id": f"{SESSION}{number:012x}",
            "timestamp": "2026-02-02T10:00:00.000Z",
        }
    ]
    for call in range(calls):
        seed = number * calls + call
        name = TOOLS[seed % len(TOOLS)]
        arguments = {"command": make_text(seed, 300)}
        block = {
            "type": "toolCall",
            "id": f"toolu_{seed:08d}",
            "name": name,
            "arguments": arguments,
        }
        size = 300_000 if call % LARGE_EVERY == LARGE_EVERY - 1 else 200 + 400 * (seed % 7)
        result = {"type": "text", "text": make_text(seed + 1, size)}
        at = 1_770_026_401_000 + 1000 * call
        entries.append(_message(at, role="assistant", content=[block], stopReason="toolUse"))
        entries.append(
            _message(
                at + 500, role="toolResult", toolCallId=block["id"], toolName=name, content=[result]
            )
        )
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def _message(at_ms: int, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "message": {"timestamp": at_ms, **fields}}


def _start_import(server: Server, file: Path, token: str) -> "subprocess.Popen[bytes]":
    address = ["--url", f"http://127.0.0.1:{server.port}", "--token", token]
    return subprocess.Popen(
        [sys.executable, "manage.py", "import_trajectory", "pi", str(file), *address],
        cwd=ROOT,
        env=server.installation.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


def _make_saves(server: Server, importers: list[int]) -> clients.Work:
    """Return the work of a person who saves settings until the last importer ends."""

    def work() -> clients.Timings:
        person = Person(
            server.port, server.installation.administrator, server.installation.password
        )
        time.sleep(SETTLE_S)
        latencies: list[float] = []
        errors = 0
        started = time.monotonic()
        busy = True
        while busy and time.monotonic() - started < LONGEST_S:
            busy = any(_is_running(importer) for importer in importers)
            theme = ("light", "dark")[len(latencies) % 2]
            sent = time.perf_counter()
            try:
                person.fill_in("/settings/appearance/", {"theme": theme, "clock": "utc"})
            except RuntimeError as error:
                sys.stderr.write(f"{error}\n")
                errors += 1
            latencies.append(time.perf_counter() - sent)
            time.sleep(PAUSE_S)
        if len(latencies) < FEWEST:
            sys.stderr.write(
                f"only {len(latencies)} saves: the importers ended too soon for a p99\n"
            )
        return clients.Timings(
            time.monotonic() - started, {"save": latencies}, {500: errors} if errors else {}
        )

    return work


def _is_running(process: int) -> bool:
    """Return whether the process is running; a zombie is not."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return text[text.rindex(")") + 2] != "Z"


def _count_incomplete(server: Server, calls: int) -> int:
    """Return the number of imported sessions that lack effects."""
    api = clients.Api(server.port, server.installation.issue_token("counter"))
    sessions = json.loads(api.get("/api/v1/sessions?limit=100"))["items"]
    api.close()
    return IMPORTERS - sum(
        1
        for session in sessions
        if session["key"].startswith(SESSION) and session["effects"] == calls
    )
