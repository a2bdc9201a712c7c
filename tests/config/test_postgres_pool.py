"""The connection pool: idle connections that PostgreSQL ended are never handed out."""

from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import connection, connections

from db.postgres import base
from tests.journal.committed import committed

__all__ = ["committed"]

pytestmark = [
    pytest.mark.usefixtures("committed"),
    pytest.mark.skipif(
        settings.DATABASES["default"]["ENGINE"] != "db.postgres", reason="SQLite has no pool"
    ),
]


def end_all_others() -> None:
    """Terminate all other connections, as a restart does."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = "
            "'client backend'"
        )


def own_id() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def test_a_connection_that_was_ended_while_it_lay_idle_is_never_handed_out() -> None:
    default: Any = connections["default"]
    pool = default.pool
    idle = [pool.getconn() for _ in range(3)]
    ended = {idle_connection.info.backend_pid for idle_connection in idle}
    end_all_others()
    for idle_connection in idle:
        pool.putconn(idle_connection)
    connection.close()
    # They are asked for one after the other, each by what a request does first.
    for _ in range(len(idle) + 1):
        assert own_id() not in ended
        connection.close()


def test_a_connection_that_only_got_a_server_message_is_kept() -> None:
    with connection.cursor() as cursor:
        cursor.execute("LISTEN something")
    listening = connection.connection
    before = own_id()
    with psycopg.connect(**listening.info.get_parameters(), autocommit=True) as other:
        other.execute("NOTIFY something")
    assert not base.is_connection_dead(listening)
    assert own_id() == before


def test_a_closed_connection_is_detected_without_a_query() -> None:
    with psycopg.connect(**{**connection.get_connection_params(), "dbname": "postgres"}) as other:
        assert not base.is_connection_dead(other)
    assert base.is_connection_dead(other)


def test_the_most_recently_used_connection_is_reused_first() -> None:
    default: Any = connections["default"]
    pool = default.pool
    taken = [pool.getconn() for _ in range(3)]
    for borrowed in taken:
        pool.putconn(borrowed)
    again = [pool.getconn() for _ in range(3)]
    for borrowed in again:
        pool.putconn(borrowed)
    assert again == taken[::-1]
