"""docs/reference/api.md is true: every example is sent in order and answered as shown."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.openapi import document, foreign_formats
from ledger import refusals
from tests.api.api_client import new_key
from tests.config.server import ROOT, Server

TEXT = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"^```http\n(.*?)^```", re.MULTILINE | re.DOTALL)
# The policy that the section on gates requires.
RULES = """
name: basic
rules:
  - {id: deploys, title: A deployment, match: {tools: [deploy]}, outcome: require}
  - {id: the-rest, title: Everything else, match: {tools: ["*"]}, outcome: allow}
"""
# The tools that the section on crashes requires.
TOOLS = "tools: {bill.pay: {class: idempotency_key, key_window_s: 86400}, repo.push: {class: probeable}}"
NAME = re.compile(r"<([a-z]+)>")


def parts(example: str) -> tuple[str, dict[str, str], str, int, dict[str, str], Any]:
    """Split an example into request line, headers, body; status, headers and body of the answer."""
    request, _, answered = re.split(r"^(?=(\d{3})$)", example, maxsplit=1, flags=re.MULTILINE)
    head, _, body = request.partition("\n\n")
    first, *lines = head.splitlines()
    status, *answer_lines = answered.strip().splitlines()
    header_lines = [line for line in answer_lines if not line.startswith("{")]
    return (
        first,
        dict(line.split(": ", 1) for line in lines),
        body.strip(),
        int(status),
        dict(line.split(": ", 1) for line in header_lines),
        json.loads("\n".join(line for line in answer_lines if line.startswith("{"))),
    )


def fill(text: str, values: dict[str, str]) -> str:
    return NAME.sub(lambda match: values[match[1]], text)


def compare(shown: Any, answered: Any, values: dict[str, str], where: str) -> None:
    """Fail where the answer differs from the document.

    `…` matches any text. A name in angle brackets stores its first value and must match it later."""
    if isinstance(shown, dict):
        for name, value in shown.items():
            assert name in answered, f"{where}: there is no {name} in {answered}"
            compare(value, answered[name], values, f"{where}/{name}")
    elif isinstance(shown, list):
        assert len(shown) == len(answered), f"{where}: {answered}"
        for number, (expected, other) in enumerate(zip(shown, answered, strict=True)):
            compare(expected, other, values, f"{where}/{number}")
    elif isinstance(shown, str) and (name := NAME.fullmatch(shown)) and name[1] not in values:
        values[name[1]] = answered
    elif shown != "…":
        pattern = re.escape(fill(str(shown), values)).replace("…", ".+")
        assert re.fullmatch(pattern, str(answered)), f"{where}: shown {shown}, got {answered}"


def test_every_example_is_answered_as_shown(live_server_process: Server, tmp_path: Path) -> None:
    agent = f"examples-{new_key()[:8]}"
    live_server_process.run(
        "from django.db import transaction; from accounts import projects\n"
        f"with transaction.atomic(): projects.create_project('{agent}')"
    )
    token = live_server_process.token(agent, "--project", agent)
    values: dict[str, str] = {
        "stranger": live_server_process.token(f"{agent}-2", "--project", agent)
    }
    examples = EXAMPLE.findall(TEXT)
    assert len(examples) > 35
    before_gates = len(EXAMPLE.findall(TEXT.partition("\n## Gates\n")[0]))
    tools = tmp_path / "tools.yaml"
    tools.write_text(TOOLS)
    live_server_process.manage("load_tools", str(tools), "--project", agent)
    rules = tmp_path / "policies.yaml"
    rules.write_text(RULES)
    with httpx.Client(base_url=f"{live_server_process.url}/api/v1", timeout=60) as client:
        for number, example in enumerate(examples):
            if number == before_gates:
                live_server_process.manage(
                    "load_policies", str(rules), "--activate", "enforce", "--project", agent
                )
            line, headers, body, status, shown_headers, shown = parts(example)
            method, _, path = fill(line, values).partition(" ")
            sent = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
            sent |= {name: fill(value, values) for name, value in headers.items()}
            if method == "POST" and not path.startswith("/events"):
                sent.setdefault("Idempotency-Key", new_key())
            content = fill(body, values) + ("\n" if method == "PUT" else "")
            # Paths of other standards are not below the base address.
            url = f"{live_server_process.url}{path}" if path.startswith("/v1/") else path
            answer = client.request(
                method, url, content=content.encode() if body else None, headers=sent
            )
            assert answer.status_code == status, f"{line}: {answer.text}"
            for name, value in shown_headers.items():
                assert answer.headers[name] == value, line
            compare(shown, answer.json(), values, line)
            if status >= 400:
                assert f"`{answer.json()['code']}`" in TEXT
        got = client.get(
            f"/artifacts/{values['artifact']}/bytes", headers={"Authorization": f"Bearer {token}"}
        )
        assert got.content == b"hello world\n"


@pytest.mark.once
def test_every_call_and_every_code_is_documented() -> None:
    lines = {re.sub(r"<\w+>|\?.*", "", parts(example)[0]) for example in EXAMPLE.findall(TEXT)}
    for endpoint in (*document.ENDPOINTS, *foreign_formats.FOREIGN_ENDPOINTS):
        method, path = endpoint.method.upper(), endpoint.path
        named = f"`{method} {path.replace('{', '<').replace('}', '>')}`"
        assert f"{method} {re.sub('{.*?}', '', path)}" in lines or named in TEXT, named
    documented = set(re.findall(r"`([a-z_A-Z0-9]+)`", TEXT.partition("## Refusals")[2]))
    raised: set[str] = set()
    for file in [
        *(ROOT / "api").rglob("*.py"),
        *(ROOT / "ledger").rglob("*.py"),
        *(ROOT / "approvals").rglob("*.py"),
    ]:
        if (
            file.parent.name == "verdicts" and file.name == "labels.py"
        ):  # reasons of verdicts, which are no refusals
            continue
        text = file.read_text(encoding="utf-8")
        raised |= set(
            re.findall(r'(?:Problem|FaultError|BadNumber)\(\s*(?:\d{3},\s*)?"([a-z_]+)"', text)
        )
        raised |= set(
            re.findall(
                r'(?:\(|return |\d, )\s*"([A-Z]+_[A-Z]+)",\s*(?:f?"[A-Z]|detail|sentence)', text
            )
        )
    # Faults that get another code before the answer.
    assert raised - documented == {"number_out_of_range", "not_json"}
    assert {code for code in documented if code.isupper()} <= raised | {
        refusals.STOPPED_REFUSAL.code,
        "PACED",
        "LEASE_LOST",
    }
