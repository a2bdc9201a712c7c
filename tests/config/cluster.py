"""A PostgreSQL server for one test, which may be stopped, killed and restarted while in use."""

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
    """An embedded PostgreSQL; `url` is the DATABASE_URL of an empty database."""

    folder: Path
    url: str

    def stop(self, mode: str) -> None:
        """Stop the server: `fast` (ends sessions) or `kill` (SIGKILL to its first process)."""
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
        """Start the server at the same address; return when it answers."""
        until = time.monotonic() + WITHIN_S
        while True:
            # A killed server and its children take a moment to end.
            with suppress(embedded_postgres.EmbeddedError, psycopg.OperationalError):
                embedded_postgres._start_server(self.folder)
                return
            assert time.monotonic() < until, (self.folder / "log").read_text()[-2000:]
            time.sleep(0.1)

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return rows of the database without the server of Gatebook."""
        with psycopg.connect(
            host=str(self.folder),
            user=embedded_postgres.SUPERUSER,
            dbname=embedded_postgres.DATABASE,
        ) as connection:
            return connection.execute(statement.encode(), values).fetchall()


@contextmanager
def cluster() -> Iterator[Cluster]:
    """Run a cluster until the block ends, and remove its files."""
    folder = Path(tempfile.mkdtemp(prefix="gatebook-restart-", dir="/var/tmp"))
    try:
        yield Cluster(folder, embedded_postgres.start_embedded_server(folder))
    finally:
        embedded_postgres.stop_embedded_server(folder)
        shutil.rmtree(folder, ignore_errors=True)
