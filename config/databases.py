"""Which database: what `DATABASE_URL` says, turned into Django's DATABASES entry.

unset → SQLite in `<var>/gatebook.sqlite3` · `sqlite:///PATH` · `embedded:DIR` → the PostgreSQL of the wheel
(trial and tests only) · `postgres://…` → any PostgreSQL from 14 on.
"""

import os
from pathlib import Path
from typing import Any

import dj_database_url

from config import embedded

# Threads are many and connections few, so a burst waits here for its turn.
POOL_WAIT_S = 5
# A connection that cannot be made is tried for so long, at ever longer intervals; then whoever asks next tries anew.
# With the pool's five minutes, a server that was away for one would not be found again for another.
RECONNECT_S = 4
# Repeated statements are prepared by the server from their third use on; Django's default is never.
PREPARE_THRESHOLD = 3


def entry(url: str, var: Path, project: Path, pool_size: int) -> dict[str, Any]:
    """Return the DATABASES entry for `url`. `embedded:` starts the server, so it may take a second the first time.

    `pool_size` is the most connections one process opens to a PostgreSQL. Raises ValueError for an address that is
    none of the four forms above.
    """
    if not url:
        return _sqlite(var / "gatebook.sqlite3")
    if url.startswith("sqlite:"):
        name = str(dj_database_url.parse(url)["NAME"])
        return _sqlite(Path(name))
    if url.startswith("embedded:"):
        folder = url.removeprefix("embedded:")
        return _postgres(embedded.start(Path(folder) if folder else embedded.default_folder(project)), pool_size)
    if url.startswith(("postgres:", "postgresql:")):
        return _postgres(url, pool_size)
    raise ValueError(
        "DATABASE_URL is not understood. Leave it unset for SQLite, or set it to sqlite:///PATH, embedded:DIR "
        "or postgres://user:password@host:port/name."
    )


def _sqlite(path: Path) -> dict[str, Any]:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return {
        "ENGINE": "config.sqlite",
        "NAME": str(path),
        # Opening one costs more than a whole command: a thread has its own for its life, a request of a web server
        # one that was opened before (config/sqlite/idle.py).
        "CONN_MAX_AGE": None,
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
        # A file, because tests with several threads must meet the same locks as life does; one for each process, so
        # that two runs side by side do not meet.
        "TEST": {"NAME": str(path.parent / "test" / f"{os.getpid()}.sqlite3")},
    }


def _postgres(url: str, pool_size: int) -> dict[str, Any]:
    parsed: dict[str, Any] = {**dj_database_url.parse(url)}
    options: dict[str, Any] = {**parsed.get("OPTIONS", {})}
    options.setdefault("prepare_threshold", PREPARE_THRESHOLD)
    # Parameters travel beside the statement: nothing is quoted here and lexed again there, and it can be prepared.
    options.setdefault("server_side_binding", True)
    pool = {"min_size": 1, "max_size": pool_size, "timeout": POOL_WAIT_S, "reconnect_timeout": RECONNECT_S}
    options.setdefault("pool", pool)
    parsed.update(ENGINE="config.postgres", CONN_MAX_AGE=0, OPTIONS=options)
    parsed["TEST"] = {"NAME": f"test_{parsed['NAME']}_{os.getpid()}"}
    return parsed
