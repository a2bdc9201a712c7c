"""Importing the client, and starting a command of its own, loads almost nothing."""

import subprocess
import sys

import gatebook_client
import pytest
from gatebook_client import cli

from tests.config.server import ROOT

pytestmark = pytest.mark.once
HEAVY = {"httpx", "argparse", "dataclasses", "typing", "asyncio", "ssl", "gatebook_client.http"}


def loaded_by(program: str) -> set[str]:
    """Return the modules that a program has loaded, beyond those of an empty one."""
    printed = subprocess.run(
        [sys.executable, "-I", "-c", f"{program}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(printed.stdout.split())


def test_the_import_loads_no_library() -> None:
    start = f"import sys; sys.path.insert(0, {str(ROOT / 'client')!r})"
    before = loaded_by(start)
    more = loaded_by(f"{start}\nimport gatebook_client, gatebook_client.cli") - before
    assert more & HEAVY == set()
    assert "gatebook_client.cli" in more
    assert "httpx" in loaded_by(f"{start}\nimport gatebook_client; gatebook_client.Client")


def test_every_public_name_is_there_and_no_other() -> None:
    for name in gatebook_client.__all__:
        assert getattr(gatebook_client, name).__name__ == name
        assert name in dir(gatebook_client)
    with pytest.raises(AttributeError, match="no attribute 'perfrom'"):
        _ = gatebook_client.perfrom  # type: ignore[attr-defined]


def test_a_separate_command_is_run_by_its_module_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken: list[list[str]] = []

    def main(arguments: list[str]) -> int:
        taken.append(arguments)
        return 7

    module = type(sys)("a_separate_command")
    module.main = main  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_separate_command", module)
    monkeypatch.setitem(cli.SEPARATE_COMMANDS, "separate", ("a_separate_command", "does something"))
    assert cli.main(["separate", "--any", "thing"]) == 7
    assert taken == [["--any", "thing"]]
    assert cli.main(["--url", "http://127.0.0.1:1", "--token", "t", "separate", "--any"]) == 64
    assert "Put the name first" in capsys.readouterr().err
    assert len(taken) == 1
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "does something" in capsys.readouterr().out
