"""A git sandbox: a repository, its bare remote, and a colleague who pushes in between."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

COMMAND_WITHIN_S = 30

TARIFF = '''"""Fares of the ferry, in whole cents."""

BASE_CENTS = 250
CENTS_PER_KM = 35


def fare(kilometres: float, reduced: bool = False) -> int:
    """Return the fare for a distance; children and pensioners pay half, rounded up to 5 cents."""
    cents = BASE_CENTS + kilometres * CENTS_PER_KM
    if reduced:
        cents = cents / 2
    return int(cents)
'''
FIXED_TARIFF = TARIFF.replace(
    "    return int(cents)\n", "        return -int(-cents // 5) * 5\n    return round(cents)\n"
)
TEST = '''"""Run with: python test_tariff.py"""

from tariff import fare

CASES = {(0, False): 250, (10, False): 600, (12, True): 335, (7.5, True): 260}

faults = []
for (kilometres, reduced), wanted in CASES.items():
    got = fare(kilometres, reduced)
    print(f"{'ok  ' if got == wanted else 'FAIL'} fare({kilometres}, reduced={reduced}) = {got}, wanted {wanted}")
    if got != wanted:
        faults.append((kilometres, reduced))
print(f"{len(CASES) - len(faults)} passed, {len(faults)} failed")
raise SystemExit(1 if faults else 0)
'''
CHANGELOG = "# Changes\n\n- Reduced fares are rounded up to 5 cents, as the price list says.\n"
# The remote lists all updates, and rejects tags, which the agent does not know.
UPDATE_HOOK = """#!/bin/sh
echo "$1" >> ../arrived
case "$1" in refs/tags/*) echo "only the release team makes tags" >&2; exit 1;; esac
"""


@dataclass
class Ran:
    """The result of a program."""

    code: int
    output: str


@dataclass
class Workshop:
    """The agent's clone of a repository, and the bare remote that it pushes to."""

    folder: Path

    @property
    def remote(self) -> Path:
        """The bare repository."""
        return self.folder / "remote.git"

    @property
    def clone(self) -> Path:
        """The agent's working copy."""
        return self.folder / "agent"

    def open(self) -> None:
        """Make the remote with one commit on main, and the agent's clone. Raises OSError without git."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._run_checked(
            "git",
            "init",
            "--quiet",
            "--bare",
            "--initial-branch=main",
            str(self.remote),
            cwd=self.folder,
        )
        hook = self.remote / "hooks" / "update"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(UPDATE_HOOK, encoding="utf-8")
        hook.chmod(0o755)
        colleague = self._make_clone("colleague")
        (colleague / "tariff.py").write_text(TARIFF, encoding="utf-8")
        self._commit_as_colleague("The tariff as it is printed")
        self._make_clone("agent")

    def push_as_colleague(self, branch: str) -> None:
        """Let a colleague move `branch`, so that the agent's next push there is rejected."""
        (self.folder / "colleague" / "CHANGELOG.md").write_text(CHANGELOG, encoding="utf-8")
        self._commit_as_colleague("Keep a list of changes", branch)

    def run(self, *command: str) -> Ran:
        """Run a program in the agent's clone; return its merged standard output and error.

        Raises subprocess.TimeoutExpired after COMMAND_WITHIN_S.
        """
        return self._run(command, self.clone)

    def git(self, *arguments: str) -> Ran:
        """Run git in the agent's clone."""
        return self.run("git", *arguments)

    def python(self, *arguments: str) -> Ran:
        """Run this Python in the agent's clone."""
        return self.run(sys.executable, *arguments)

    def read(self, name: str) -> str:
        """Return the text of a file of the clone."""
        return (self.clone / name).read_text(encoding="utf-8")

    def write(self, name: str, text: str) -> str:
        """Write a file of the clone and return git's id of its content."""
        (self.clone / name).write_text(text, encoding="utf-8")
        return self.git("hash-object", name).output.strip()

    def head(self) -> str:
        """Return the id of the clone's checked-out commit."""
        return self.git("rev-parse", "HEAD").output.strip()

    def _make_clone(self, name: str) -> Path:
        self._run_checked("git", "clone", "--quiet", str(self.remote), name, cwd=self.folder)
        return self.folder / name

    def _commit_as_colleague(self, message: str, branch: str = "main") -> None:
        clone = self.folder / "colleague"
        self._run_checked("git", "checkout", "--quiet", "-B", branch, cwd=clone)
        self._run_checked("git", "add", "--all", cwd=clone)
        self._run_checked(
            "git", "-c", "user.name=Colleague", "commit", "--quiet", "--message", message, cwd=clone
        )
        self._run_checked("git", "push", "--quiet", "origin", branch, cwd=clone)

    def _run_checked(self, *command: str, cwd: Path) -> None:
        ran = self._run(command, cwd)
        if ran.code != 0:
            raise OSError(f"{' '.join(command)} failed: {ran.output.strip()}")

    def _run(self, command: tuple[str, ...], cwd: Path) -> Ran:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=_environment(self.folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=COMMAND_WITHIN_S,
            check=False,
        )
        return Ran(done.returncode, done.stdout)


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment of the programs: no configuration, credentials or hooks of the user."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": "Demo agent",
        "GIT_AUTHOR_EMAIL": "demo@localhost",
        "GIT_COMMITTER_NAME": "Demo agent",
        "GIT_COMMITTER_EMAIL": "demo@localhost",
    }
