"""The systemd and nginx files in docs/how-to/operating.md fit the settings that Gatebook accepts."""

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.urls import resolve

from api import endpoint
from api.views import gates
from config import supervisor
from tests.config.server import ROOT

pytestmark = pytest.mark.once
EXAMPLES = ROOT / "docs" / "examples"
UNIT, NGINX = EXAMPLES / "gatebook.service", EXAMPLES / "nginx.conf"
Block = list[tuple[list[str], Any]]
UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "s": 1}


def unit_at(folder: Path) -> str:
    """Return the unit for this clone and this user."""
    text = UNIT.read_text().replace("/srv/gatebook", str(folder))
    return text.replace("User=gatebook", f"User={os.environ.get('USER') or 'root'}")


def test_the_unit_starts_at_boot_restarts_and_runs_an_existing_program() -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's names have capitals
    parser.read_string(unit_at(ROOT))
    assert parser["Install"]["WantedBy"] == "multi-user.target"
    service = parser["Service"]
    program, *arguments = service["ExecStart"].split()
    assert Path(program).exists()
    assert arguments == ["-m", supervisor.__name__, "--docs"]
    assert service["ExecStartPre"].split()[1:] == ["manage.py", "setup"]
    assert (ROOT / "manage.py").exists()
    assert service["Restart"] == "on-failure"
    assert float(service["TimeoutStopSec"]) > supervisor.KILL_AFTER_S
    if shutil.which("systemd-analyze"):
        assert verified(unit_at(ROOT)) == ""


def verified(unit: str) -> str:
    """Return the errors that systemd reports for a unit."""
    folder = ROOT / "var" / "check"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"gatebook-{os.getpid()}.service"
    file.write_text(unit)
    try:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(file)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        file.unlink()
    # The output also names other units of this machine.
    return "\n".join(line for line in done.stderr.splitlines() if file.name in line)


def parsed(text: str) -> Block:
    """Return the directives of an nginx file: words, and their block or None."""
    words = re.findall(
        r"\"[^\"]*\"|'[^']*'|[{};]|(?:\{\d|[^\s{};\"'])+", re.sub(r"(?m)^\s*#.*$", "", text)
    )
    stack: list[Block] = [[]]
    line: list[str] = []
    for word in words:
        if word == "{":
            stack[-1].append((line, []))
            stack.append(stack[-1][-1][1])
            line = []
        elif word == "}":
            assert not line, "a directive without a semicolon"
            stack.pop()
        elif word == ";":
            stack[-1].append((line, None))
            line = []
        else:
            line.append(word.strip("\"'"))
    assert len(stack) == 1, "a block that is not closed"
    return stack[0]


def values(block: Block, name: str) -> list[list[str]]:
    return [words[1:] for words, inner in block if words[0] == name and inner is None]


def served() -> Block:
    """Return the server block with TLS."""
    (block,) = [
        inner
        for words, inner in parsed(NGINX.read_text())
        if words[0] == "server" and values(inner, "ssl_certificate")
    ]
    return list(block)


def location_of(path: str) -> Block:
    """Return the location that nginx selects for a path: exact, regular expression, or longest
    prefix."""
    prefixes: dict[str, Block] = {}
    patterns: list[tuple[str, Block]] = []
    for words, inner in served():
        if words[0] != "location":
            continue
        if words[1] == "=":
            if words[2] == path:
                return list(inner)
        elif words[1] == "~":
            patterns.append((words[2], inner))
        else:
            prefixes[words[1]] = inner
    for pattern, inner in patterns:
        if re.search(pattern, path):
            return inner
    return prefixes[max((prefix for prefix in prefixes if path.startswith(prefix)), key=len)]


def setting(path: str, name: str) -> str:
    """Return the directive in effect for a path: that of the location, or of the server."""
    own = values(location_of(path), name) or values(served(), name)
    return own[-1][0]


def amount(text: str) -> int:
    match = re.fullmatch(r"(\d+)([kmgs]?)", text)
    assert match, text
    return int(match[1]) * UNITS.get(match[2], 1)


BYTES = "/api/v1/artifacts/0192f3a4-7d1e-7c3a-9b1e-2f6a5d0c8e11/bytes"


@pytest.mark.parametrize(
    ("path", "largest"),
    [
        ("/api/v1/events", endpoint.BATCH_BYTES),
        ("/api/v1/effects", endpoint.ITEM_BYTES),
        ("/api/v1/artifacts", endpoint.ITEM_BYTES),
        (BYTES, settings.GATEBOOK_ARTIFACT_BYTES),
        ("/sign-in/", settings.DATA_UPLOAD_MAX_MEMORY_SIZE),
    ],
)
def test_nginx_settings_fit_the_limits_of_gatebook(path: str, largest: int) -> None:
    resolve(path, "config.api_urls" if path.startswith("/api/") else "config.urls")
    assert amount(setting(path, "client_max_body_size")) >= largest
    assert values(location_of(path), "proxy_pass") == [["http://gatebook"]]
    headers = dict(values(served(), "proxy_set_header"))
    # A location with its own header would lose all of these.
    assert not values(location_of(path), "proxy_set_header")
    assert headers["Host"] == "$http_host"
    assert headers["X-Forwarded-Proto"] == "$scheme"
    assert amount(setting(path, "proxy_read_timeout")) > gates.MAX_LONG_POLL_S


def test_nginx_redirects_no_command() -> None:
    # nginx answers 301 to /a where a location is called /a/ and passes on.
    for words, _inner in served():
        assert words[0] != "location" or words[-1] in ("/",) or words[1] in ("=", "~")
    for words, inner in parsed(NGINX.read_text()):
        if words[0] == "server" and not values(inner, "ssl_certificate"):
            assert values(inner, "return")[0][0] == "308"


def test_the_document_names_both_files() -> None:
    text = (ROOT / "docs" / "how-to" / "operating.md").read_text()
    assert "(../examples/gatebook.service)" in text
    assert "(../examples/nginx.conf)" in text
