"""The PostgreSQL backend: Django's own, which hands out no connection that the server has ended meanwhile.

After a restart of PostgreSQL every connection that lay idle in the pool is dead, and each would cost somebody a
request. A dead one can be told without asking the server: while nothing is under way there is nothing to read but its
end.
"""

import select
from typing import Any

import psycopg
from django.db.backends.postgresql import base as django_postgresql
from psycopg_pool import ConnectionPool


class DatabaseWrapper(django_postgresql.DatabaseWrapper):
    """Looks at what the pool gives before it is used."""

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
