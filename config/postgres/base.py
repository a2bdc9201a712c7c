"""The PostgreSQL backend: Django's own, which hands out no connection that the server has ended meanwhile.

After a restart of PostgreSQL every connection that lay idle in the pool is dead, and each would cost somebody a
request. A dead one can be told without asking the server: while nothing is under way there is nothing to read but its
end.

Of those that lie idle the one used last goes out first. What a connection knows (prepared statements with their plans,
the server's own memory of tables) costs more to learn than most statements cost; handed out in turn, two dozen of them
would have to learn it two dozen times, and forget none.
"""

import select
from collections import deque
from typing import Any

import psycopg
from django.db.backends.postgresql import base as django_postgresql
from psycopg_pool import ConnectionPool


class LastUsedFirst(deque[Any]):
    """The idle connections of a pool, which takes from the left: whoever comes back stands there."""

    def append(self, one: Any, /) -> None:
        """Put `one` where it is taken first."""
        self.appendleft(one)


class DatabaseWrapper(django_postgresql.DatabaseWrapper):
    """Looks at what the pool gives before it is used."""

    @property
    def pool(self) -> Any:
        """The pool of this process, None where there is none; what lies idle in it is taken as LastUsedFirst says."""
        found = super().pool
        # psycopg_pool knows no other order than by turns. A pool is empty until it is opened, which comes after this.
        if found is not None and not isinstance(found._pool, LastUsedFirst):
            with found._lock:
                if not isinstance(found._pool, LastUsedFirst):
                    found._pool = LastUsedFirst(found._pool)
        return found

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """A connection that is not known to be dead; when one is, all that lie idle are looked through."""
        while True:
            connection = super().get_new_connection(conn_params)
            if self.pool is None or not has_ended(connection):
                return connection
            self.pool.putconn(connection)
            self.pool.check()


def has_ended(connection: "psycopg.Connection[Any]") -> bool:
    """Whether an idle connection is of no use any more. The server is asked only when it has said something unasked."""
    try:
        said = select.poll()
        said.register(connection.fileno(), select.POLLIN)
        if said.poll(0):
            ConnectionPool.check_connection(connection)
    except psycopg.Error:
        return True
    return False
