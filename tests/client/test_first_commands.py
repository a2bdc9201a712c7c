"""The commands of the first steps, run as they are shown, also under a rule that holds them."""

import html
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from django.template.loader import render_to_string

from tests.config.server import Server
from tests.evaluation.test_demo_agent import a_project, rule

RULES = """\
name: demo
rules:
  - {id: mail, title: Mail waits for a person, match: {tools: [mail.send]}, outcome: require}
"""


def show_commands(kind: str, url: str, token: str) -> str:
    """Return the commands for a kind of agent as a person copies them from the page."""
    context = {"url": url, "token": token, "wheel": "gatebook_client-0-py3-none-any.whl"}
    page = render_to_string("pages/first_steps/_how_your_agent_runs.html", context)
    match = re.search(rf'aria-label="Commands for {kind}"\s*>(.*?)</pre>', page, re.DOTALL)
    assert match is not None
    return html.unescape(match[1])


# An interactive zsh takes no comments.
@pytest.mark.parametrize("shell_command", [["bash", "-c"], ["zsh", "-f", "-i", "-c"]], ids=" ".join)
def test_the_curl_commands_wait_for_approval_and_then_act(
    live_server_process: Server, tmp_path: Path, shell_command: list[str]
) -> None:
    if shutil.which(shell_command[0]) is None:
        pytest.skip(f"{shell_command[0]} is not installed")
    server, project = live_server_process, f"first-curl-{shell_command[0]}"
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    token = a_project(server, project, rules)
    shell = subprocess.Popen(
        [*shell_command, show_commands("curl", server.url, token)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert shell.stdout is not None
        printed = ""
        until = time.monotonic() + 60
        while "waiting for approval" not in printed and time.monotonic() < until:
            line = shell.stdout.readline()
            assert line, f"The commands ended: {printed}"
            printed += line
        assert "waiting for approval" in printed
        gate = server.run(
            "from approvals.models import Gate\n"
            f"print(Gate.objects.get(status='pending', project__name='{project}').id)"
        ).strip()
        assert f"waiting for approval: {server.url}/approvals/{gate}/\n" in printed
        rule(server, gate, f"{project}-pilot", "approve", "the address is right")
        rest, _ = shell.communicate(timeout=60)
    finally:
        shell.kill()
        shell.wait()
    assert rest.splitlines() == [
        "approved; acting now",
        "dispatched: the permission is used",
        "Good morning, Ada",
        "acknowledged: ok",
    ]


def test_the_curl_commands_stop_at_a_denial(live_server_process: Server, tmp_path: Path) -> None:
    server, project = live_server_process, "first-curl-denied"
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES.replace("outcome: require", "outcome: deny"))
    token = a_project(server, project, rules)
    done = subprocess.run(
        ["bash", "-c", show_commands("curl", server.url, token)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert 'refused: {"id":' in done.stdout
    assert "Good morning" not in done.stdout


def test_the_python_commands_act_once_and_print_no_key(
    live_server_process: Server, tmp_path: Path
) -> None:
    server, project = live_server_process, "first-python"
    server.manage("create_project", project, "--administrator", server.administrator)
    commands = show_commands("Python", server.url, server.token("my-agent", "--project", project))
    program = commands.partition("<<'END'\n")[2].partition("END\n")[0]
    (token,) = set(re.findall(r"gbk_\S+", commands))
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"GATEBOOK_URL": server.url, "GATEBOOK_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("Good morning, Ada\n", 0), done.stderr
