"""docs/reference/client.md is true and complete: its examples run in order against a real server."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.config.server import ROOT, Server

pytestmark = pytest.mark.once
TEXT = (ROOT / "docs" / "reference" / "client.md").read_text(encoding="utf-8")


def examples(language: str) -> str:
    blocks = re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert blocks
    return "\n".join(blocks)


def prepared(server: Server, folder: Path) -> str:
    """Run the operator's commands of the document in a folder with its file; return the token."""
    (folder / "tools.yaml").write_text(examples("yaml"))
    printed = ""
    for line in examples("console").splitlines():
        interpreter, script, *words = line.split()
        assert (interpreter, script) == (".venv/bin/python", "manage.py")
        printed = server.manage(
            *(str(folder / word) if word == "tools.yaml" else word for word in words)
        )
    return printed.strip()


def test_its_examples_run(live_server_process: Server, tmp_path: Path) -> None:
    server = live_server_process
    token = prepared(server, tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"GATEBOOK_URL": server.url, "GATEBOOK_TOKEN": token, "PATH": path}
    environment["PYTHONPATH"] = str(ROOT / "client")
    for program, text in (
        (sys.executable, examples("python")),
        ("/bin/sh", f"set -e\n{examples('sh')}"),
    ):
        done = subprocess.run(
            [program, "-c", text],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert "hello, world" in done.stdout
    assert "Can it resume safely? YES" in done.stdout
    assert re.search(r"acknowledged +ok +used +git\.push +first +3f2a91c", done.stdout)


def test_it_names_everything_that_is_exported() -> None:
    import gatebook_client

    words = set(re.findall(r"\b\w+\b", TEXT))
    told_of_elsewhere = {
        "SessionClosed",
        "Decision",
        "GatebookError",
        "AttemptInfo",
        "Message",
        "EffectResult",
        "Recovery",
        "Session",
    }
    told_of_elsewhere |= {"Step", "Task", "Undo", "Verdict"}
    assert set(gatebook_client.__all__) - told_of_elsewhere <= words
