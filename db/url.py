"""Turn `DATABASE_URL` into Django's DATABASES entry.

unset → SQLite in `<var>/gatebook.sqlite3` · `sqlite:///PATH` · `embedded:DIR` → the PostgreSQL of
the wheel (trial and tests only) · `postgres://…` → any PostgreSQL from 14 on.
"""

import os
from pathlib import Path
from typing import Any

import dj_database_url

from db import embedded_postgres

# Seconds that a thread waits for a connection, since threads are many and connections few.
POOL_WAIT_S = 5
# Seconds of attempts to connect, at growing intervals; the next caller tries again. With the pool's
# default of five minutes, a server that was away for one would not be found again for another.
RECONNECT_S = 4
# The server prepares statements from their third use on; Django's default is never.
PREPARE_THRESHOLD = 3


def build_database_settings(url: str, var: Path, project: Path, pool_size: int) -> dict[str, Any]:
    """Return the DATABASES entry for `url`.

    `embedded:` starts the server, which may take a second the first time. `pool_size` is the most
    connections that one process opens to a PostgreSQL. Raises ValueError for an address in none of
    the four forms.
    """
    if not url:
        return _sqlite(var / "gatebook.sqlite3")
    if url.startswith("sqlite:"):
        name = str(dj_database_url.parse(url)["NAME"])
        return _sqlite(Path(name))
    if url.startswith("embedded:"):
        folder = url.removeprefix("embedded:")
        return _postgres(
            embedded_postgres.start_embedded_server(
                Path(folder) if folder else embedded_postgres.default_embedded_folder(project)
            ),
            pool_size,
        )
    if url.startswith(("postgres:", "postgresql:")):
        return _postgres(url, pool_size)
    raise ValueError(
        "DATABASE_URL is not understood. Leave it unset for SQLite, or set it to sqlite:///PATH, "
        "embedded:DIR or postgres://user:password@host:port/name."
    )


def _sqlite(path: Path) -> dict[str, Any]:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return {
        "ENGINE": "db.sqlite",
        "NAME": str(path),
        # Opening a connection costs more than a whole command. A thread keeps its own for its life;
        # a request of a web server takes one from the pool (db/sqlite/connection_pool.py).
        "CONN_MAX_AGE": None,
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
        # A file, because tests with several threads must meet the same locks as production; one per
        # process, so that parallel runs do not collide.
        "TEST": {"NAME": str(path.parent / "test" / f"{os.getpid()}.sqlite3")},
    }


def _postgres(url: str, pool_size: int) -> dict[str, Any]:
    parsed: dict[str, Any] = {**dj_database_url.parse(url)}
    options: dict[str, Any] = {**parsed.get("OPTIONS", {})}
    options.setdefault("prepare_threshold", PREPARE_THRESHOLD)
    # The server binds parameters, so that nothing is quoted and parsed again, and statements can be
    # prepared.
    options.setdefault("server_side_binding", True)
    pool = {
        "min_size": 1,
        "max_size": pool_size,
        "timeout": POOL_WAIT_S,
        "reconnect_timeout": RECONNECT_S,
    }
    options.setdefault("pool", pool)
    parsed.update(ENGINE="db.postgres", CONN_MAX_AGE=0, OPTIONS=options)
    parsed["TEST"] = {"NAME": f"test_{parsed['NAME']}_{os.getpid()}"}
    return parsed
