"""PostgreSQL backend: Django's, never using connections the server closed.

After a restart of PostgreSQL every idle connection of the pool is dead, and each would cost a
request. A dead connection is recognised without asking the server: an idle one has nothing to read
except its end.

The idle connection used last is taken first. What a connection has learned (prepared statements
with plans, the server's caches) costs more to rebuild than most statements cost. In rotation, two
dozen connections would each have to learn it.
"""

import select
from collections import deque
from typing import Any

import psycopg
from django.db.backends.postgresql import base as django_postgresql
from psycopg_pool import ConnectionPool


class LastUsedFirst(deque[Any]):
    """Idle connections of a pool, which takes from the left: returned ones go there."""

    def append(self, connection: Any, /) -> None:
        """Insert a connection where it is taken first."""
        self.appendleft(connection)


class DatabaseWrapper(django_postgresql.DatabaseWrapper):
    """Checks the pool's connections before use."""

    @property
    def pool(self) -> Any:
        """Return this process's pool, or None; its idle connections are LastUsedFirst."""
        pool = super().pool
        # psycopg_pool only rotates. A pool is empty until it is opened, which happens later.
        if pool is not None and not isinstance(pool._pool, LastUsedFirst):
            with pool._lock:
                if not isinstance(pool._pool, LastUsedFirst):
                    pool._pool = LastUsedFirst(pool._pool)
        return pool

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Return a connection that is not known to be dead; check all idle ones if one is."""
        while True:
            connection = super().get_new_connection(conn_params)
            if self.pool is None or not is_connection_dead(connection):
                return connection
            self.pool.putconn(connection)
            self.pool.check()


def is_connection_dead(connection: "psycopg.Connection[Any]") -> bool:
    """Return whether an idle connection is dead; asks only if it sent something."""
    try:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        if poll.poll(0):
            ConnectionPool.check_connection(connection)
    except psycopg.Error:
        return True
    return False
