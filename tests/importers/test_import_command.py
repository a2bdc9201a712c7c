"""The import command without a server: refusals, output and progress bar."""

import gzip
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.management import CommandError, call_command

from importers.management.commands import import_trajectory
from importers.progress_bar import Progress
from tests.importers.samples import FILES

NOWHERE = {"url": "http://127.0.0.1:9", "token": "gbk_x"}


class _Gatebook:
    """A fake server that answers like the API and records the requests."""

    def __init__(self) -> None:
        self.items: dict[str, dict[str, Any]] = {}
        self.stored: dict[str, bytes] = {}
        self.requests = 0
        self.refuses = ""

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        path = request.url.path
        if path == "/api/v1/events":
            return self._events(json.loads(request.content))
        if path == "/api/v1/effects":
            key = request.url.params["effect_key"]
            return httpx.Response(200, json={"items": [{"id": f"id-of-{key}", "effect_key": key}]})
        if request.method == "PUT":
            self.stored[path.split("/")[4]] = request.content
            return httpx.Response(200, json={"stored": True})
        if request.method == "GET":
            return httpx.Response(200, json={"stored": path.split("/")[4] in self.stored})
        return httpx.Response(
            201, json={"id": json.loads(request.content)["sha256"], "stored": False}
        )

    def _events(self, items: list[dict[str, Any]]) -> httpx.Response:
        results = []
        for index, item in enumerate(items):
            result = {"index": index, "id": item["id"], "status": "created"}
            if item["id"] in self.items:
                result["status"] = "duplicate" if self.items[item["id"]] == item else "conflict"
            if item["kind"] == self.refuses:
                result |= {
                    "status": "invalid",
                    "detail": "This kind is not taken today.",
                    "retryable": False,
                }
            self.items.setdefault(item["id"], item)
            results.append(result)
        return httpx.Response(207, json={"accepted": len(items), "results": results})


@pytest.fixture
def gatebook(monkeypatch: pytest.MonkeyPatch) -> _Gatebook:
    stand_in = _Gatebook()

    @contextmanager
    def connection(*_: object) -> Iterator[httpx.Client]:
        with httpx.Client(
            transport=httpx.MockTransport(stand_in), base_url="http://gatebook.example"
        ) as http:
            yield http

    monkeypatch.setattr(import_trajectory, "_connect", connection)
    return stand_in


def _run(format_name: str, *files: Path, **options: Any) -> str:
    out = io.StringIO()
    call_command("import_trajectory", format_name, *map(str, files), stdout=out, **options)
    return out.getvalue()


def test_each_file_gets_a_line_of_counts(gatebook: _Gatebook) -> None:
    main, child = FILES / "claude-code.jsonl", FILES / "claude-code-subagent.jsonl"
    assert _run("claude-code", main, child) == (
        f"{main}: 1 session, 6 calls (1 without a result); 18 facts added, 0 already recorded; "
        "0 artifacts, 0 stored now\n"
        f"{child}: 1 session, 2 calls (0 without a result); 7 facts added, 0 already recorded; "
        "0 artifacts, 0 stored now\n"
    )
    assert "0 facts added, 18 already recorded" in _run("claude-code", main)


def test_a_file_without_calls_sends_nothing(gatebook: _Gatebook) -> None:
    path = FILES / "claude-code-compaction.jsonl"
    assert _run("claude-code", path).startswith(f"{path}: 0 sessions, 0 calls")
    assert gatebook.requests == 0


def test_a_payload_too_large_for_an_item_is_stored_once(
    gatebook: _Gatebook, tmp_path: Path
) -> None:
    text = "\x00bead " * 200_000
    path = tmp_path / "large.jsonl"
    raw = {
        "turn_history": {"actions": ["cat beads"], "observations": [text], "valid_action": [True]}
    }
    path.write_text(json.dumps(raw))
    assert "1 artifact, 1 stored now" in _run("intercode", path)
    assert [content.decode() for content in gatebook.stored.values()] == [text]
    assert "0 facts added, 4 already recorded; 1 artifact, 0 stored now" in _run("intercode", path)


def test_one_bad_file_among_several_blocks_all_of_them(gatebook: _Gatebook, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text((FILES / "pi.jsonl").read_text() + '{"type": "mess\n')
    with pytest.raises(
        CommandError, match=re.escape(f"{bad}, line 16: not JSON: Invalid control character")
    ):
        _run("pi", FILES / "pi.jsonl", bad)
    assert gatebook.requests == 0


@pytest.mark.parametrize(
    "torn",
    [b'{"type": "mess', b"{", b'{"type": "message", "note": "\xc3', b"\0" * 4096],
    ids=["a text", "a bracket", "a letter", "never written"],
)
def test_a_truncated_end_is_left_out_and_reported_with_file_line_and_bytes(
    gatebook: _Gatebook, tmp_path: Path, torn: bytes
) -> None:
    """Also for a compressed file; the other files are imported completely."""
    cut, packed = tmp_path / "cut.jsonl", tmp_path / "packed.jsonl.gz"
    cut.write_bytes((FILES / "pi.jsonl").read_bytes() + torn)
    packed.write_bytes(gzip.compress((FILES / "pi-refused.jsonl").read_bytes() + torn))
    out = io.StringIO()
    files = [cut, packed, FILES / "pi.jsonl"]
    with pytest.raises(CommandError) as left:
        call_command("import_trajectory", "pi", *map(str, files), stdout=out, json=True)
    assert left.value.returncode == 3
    left_out = f"truncated; its {len(torn):,} byte{'s' if len(torn) > 1 else ''} were skipped"
    assert f"{cut}: line 16 is {left_out}\n{packed}: line 15 is {left_out}\n" in str(left.value)
    reports = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [report["left_out"] for report in reports] == [
        {"line": 16, "size": len(torn)},
        {"line": 15, "size": len(torn)},
        None,
    ]
    assert [report["calls"] for report in reports] == [7, 7, 7]
    assert (reports[2]["facts_added"], reports[2]["facts_known"]) == (0, reports[0]["facts_added"])


def test_a_complete_last_line_without_a_newline_is_imported(
    gatebook: _Gatebook, tmp_path: Path
) -> None:
    file = tmp_path / "pi.jsonl"
    file.write_text((FILES / "pi.jsonl").read_text().rstrip("\n"))
    assert "7 calls" in _run("pi", file)


def test_counts_are_printed_for_programs_too(gatebook: _Gatebook) -> None:
    (report,) = map(json.loads, _run("pi", FILES / "pi.jsonl", json=True).splitlines())
    assert report == {
        "file": str(FILES / "pi.jsonl"),
        "sessions": 1,
        "calls": 7,
        "without_result": 1,
        "refused": 2,
        "facts_added": 19,
        "facts_known": 0,
        "artifacts": 0,
        "artifacts_stored": 0,
        "left_out": None,
    }


@pytest.mark.parametrize(
    ("format_name", "content", "sentence"),
    [
        ("pi", b"", "line 1: the file is empty."),
        ("pi", b"\x1f\x8b\x08\x00", "line 1: the gzip stream is truncated or damaged"),
        ("tau-bench", b"\x00\xffgarbage", "line 1: not text in UTF-8 (byte 0xff at column 2)."),
        (
            "claude-code",
            b'{"type": "session", "id": "x"}',
            "line 1: not a Claude Code record: type 'session'",
        ),
        (
            "swe-agent",
            b'{"traj": []}',
            "line 1: not a document of this format (an object with traj).",
        ),
    ],
)
def test_a_refusal_names_file_line_and_reason(
    tmp_path: Path, format_name: str, content: bytes, sentence: str
) -> None:
    path = tmp_path / "input"
    path.write_bytes(content)
    with pytest.raises(CommandError) as refused:
        _run(format_name, path, **NOWHERE)
    assert str(refused.value).startswith(f"{path}, {sentence}")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        CommandError, match=r"missing\.jsonl: cannot be read: No such file or directory\."
    ):
        _run("pi", tmp_path / "missing.jsonl", **NOWHERE)
    with pytest.raises(CommandError, match="cannot be read: Is a directory"):
        _run("pi", tmp_path, **NOWHERE)


def test_a_refused_fact_stops_the_import_with_file_id_and_sentence(gatebook: _Gatebook) -> None:
    gatebook.refuses = "effect.dispatched"
    path = FILES / "pi.jsonl"
    expected = rf"^{re.escape(str(path))}: event [0-9a-f]{{64}}: This kind is not taken today\.$"
    with pytest.raises(CommandError, match=expected):
        _run("pi", path)


def test_another_gatebook_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GATEBOOK_TOKEN", raising=False)
    with pytest.raises(
        CommandError,
        match="--url requires a token of that Gatebook. Give --token or set",  # noqa: RUF043
    ):
        _run("pi", FILES / "pi.jsonl", url="http://gatebook.example")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"url": "http://gatebook.example:door", "token": "gbk_x"},
            "--url or the token is invalid",
        ),
        ({"url": "http://gatebook.example", "token": "gbk_ß"}, "--url or the token is invalid"),
        ({"url": "gatebook.example", "token": "gbk_x"}, "The server cannot be reached"),
        (NOWHERE, "The server cannot be reached"),
    ],
)
def test_an_unreachable_address_is_reported_at_once(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        _run("pi", FILES / "pi.jsonl", **options)


def test_an_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(CommandError, match=r"invalid choice: 'cobol'.*claude-code.*tau-bench"):
        call_command("import_trajectory", "cobol", "file")


def test_progress_is_drawn_on_terminals_only() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, drawn in ((io.StringIO(), False), (Terminal(), True)):
        progress = Progress(stream, "a-long-file-name.jsonl", 4)
        for _ in range(4):
            progress.advance()
        progress.close()
        assert ("4/4" in stream.getvalue()) is drawn
        assert stream.getvalue().endswith("\r\x1b[K" if drawn else "")


def test_the_readers_need_no_django() -> None:
    code = "import sys, importers, importers.api_client; sys.exit('django' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
