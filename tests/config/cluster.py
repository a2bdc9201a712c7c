"""A PostgreSQL of a test's own, which may be stopped, felled and started again under whoever uses
it."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from db import embedded_postgres

WITHIN_S = 30


@dataclass
class Cluster:
    """An embedded PostgreSQL; `url` is what DATABASE_URL takes, of an empty database."""

    folder: Path
    url: str

    def stop(self, mode: str) -> None:
        """End it: `fast` (sessions are ended) or `kill` (its first process by SIGKILL)."""
        if mode == "kill":
            os.kill(
                int((self.folder / "data" / "postmaster.pid").read_text().split()[0]),
                signal.SIGKILL,
            )
        else:
            embedded_postgres._run(
                self.folder, "pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "-w", "stop"
            )

    def start(self) -> None:
        """Start it again at the same address; returns when it answers."""
        until = time.monotonic() + WITHIN_S
        while True:
            # A killed one and those that it left behind take a moment to go.
            with suppress(embedded_postgres.EmbeddedError, psycopg.OperationalError):
                embedded_postgres._start_server(self.folder)
                return
            assert time.monotonic() < until, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.1)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """What the database holds, asked past the server."""
        with psycopg.connect(
            host=str(self.folder),
            user=embedded_postgres.SUPERUSER,
            dbname=embedded_postgres.DATABASE,
        ) as connection:
            return connection.execute(statement.encode(), values).fetchall()


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Run one until the block ends, and remove all of it."""
    folder = Path(tempfile.mkdtemp(prefix="gatebook-restart-", dir="/var/tmp"))
    try:
        yield Cluster(folder, embedded_postgres.start_embedded_server(folder))
    finally:
        embedded_postgres.stop_embedded_server(folder)
        shutil.rmtree(folder, ignore_errors=True)
