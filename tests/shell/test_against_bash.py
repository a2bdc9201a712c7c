"""What bash really runs, with a recording git in the place of the real one, is never called harmless.

Only commands whose result is harmless are run: in an empty folder, with a PATH of a few filters.
"""

import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from shell.map_command import map_command
from shell.mapping import load_default_mapping
from tests.shell.hostile_commands import HARMLESS, PUSHES, WORST

pytestmark = pytest.mark.once
COMMANDS: Final = [
    command
    for command in (*PUSHES, *WORST, *HARMLESS)
    if "/dev/tcp" not in command and "\ud800" not in command
]
SIGNS: Final = [
    *" \t\n;&|'\"\\`$(){}<#!*?[]=~,%+-:/",
    *("&&", "||", "$(", "<<EOF\n", "<<'EOF'\n", "\nEOF\n", " #", "\\\n", "$'", '"$(', ')"', "2>&1"),
    *("<<-", "if ", "; then ", "; fi", "for i in a; do ", "; done", "f() { ", "; }; f", "p=push;"),
    *("$p", "eval ", "bash -c ", "git push", "git status", "echo ", "cat ", "{git,push}", "\r"),
]
FILTERS: Final = (
    "cat",
    "env",
    "xargs",
    "find",
    "sh",
    "bash",
    "timeout",
    "nice",
    "ls",
    "head",
    "sed",
)
TRIES: Final = 6_000


def mutate(command: str, chance: random.Random) -> str:
    """Return a command with a few signs put in, taken out or repeated."""
    if chance.random() < 0.4:
        command += chance.choice([" ", "\n", ";", " && ", " | ", "$("]) + chance.choice(COMMANDS)
    for _ in range(chance.choice([0, 1, 1, 2, 3])):
        at = chance.randrange(len(command) + 1)
        kind = chance.random()
        if kind < 0.55:
            command = command[:at] + chance.choice(SIGNS) + command[at:]
        elif kind < 0.8:
            command = command[:at] + command[at + chance.choice([1, 1, 2, 5]) :]
        else:
            until = at + chance.randrange(40)
            command = command[:until] + command[at:until] + command[until:]
    return command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    programs = tmp_path / "bin"
    programs.mkdir()
    log = tmp_path / "pushed"
    (programs / "git").write_text(
        "#!/bin/bash\n"
        "while [[ $1 == -* ]]; do case $1 in -C|-c|--git-dir|--work-tree|--namespace) shift;; esac;"
        " shift; done\n"
        f'[[ $1 == push && " $* " != *" -n "* && " $* " != *" --dry-run "* ]] && echo x >> {log}\n'
    )
    (programs / "git").chmod(0o755)
    for name in FILTERS:
        path = shutil.which(name)
        assert path, name
        (programs / name).symlink_to(path)
    work = tmp_path / "work"
    work.mkdir()
    return tmp_path


def run_in_bash(command: str, folder: Path, within_s: float = 2) -> bool:
    """Run a command and return whether it pushed. It may write only below its own folder."""
    work = folder / "work"
    (folder / "pushed").unlink(missing_ok=True)
    process = subprocess.Popen(
        ["/bin/bash", "-c", f"ulimit -f 64 -u 200 2>/dev/null; cd {work} || exit; {command}"],
        env={"PATH": str(folder / "bin"), "HOME": str(work)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
    return (folder / "pushed").exists()


def test_the_recording_git_sees_pushes(folder: Path) -> None:
    assert run_in_bash("p=push; git -C . $p origin", folder, 60)
    assert run_in_bash("bash <<'EOF'\ngit push\nEOF", folder, 60)
    assert not run_in_bash("echo git push", folder)


def test_no_command_that_changes_nothing_pushes(folder: Path) -> None:
    chance = random.Random(7)
    mapping = load_default_mapping()
    tried, pushed = 0, []
    for _ in range(TRIES):
        command = mutate(chance.choice(COMMANDS), chance)
        mapped = map_command(command, mapping=mapping)
        # Files outside the folder are not written: only commands that read are run.
        if mapped.changes_outside or mapped.effect != "reads" or "\0" in command:
            continue
        tried += 1
        if run_in_bash(command, folder):
            pushed.append(command)
    assert tried > 200
    assert pushed == []
