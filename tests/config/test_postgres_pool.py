"""The pool of connections: what PostgreSQL ended while it lay idle is nobody's trouble."""

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
    """What a restart does to connections, as far as they can tell."""
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
    here: Any = connections["default"]
    pool = here.pool
    idle = [pool.getconn() for _ in range(3)]
    ended = {one.info.backend_pid for one in idle}
    end_all_others()
    for one in idle:
        pool.putconn(one)
    connection.close()
    # They are asked for one after the other, each by what a request does first.
    for _ in range(len(idle) + 1):
        assert own_id() not in ended
        connection.close()


def test_a_connection_that_only_said_something_is_kept() -> None:
    with connection.cursor() as cursor:
        cursor.execute("LISTEN something")
    listening = connection.connection
    before = own_id()
    with psycopg.connect(**listening.info.get_parameters(), autocommit=True) as other:
        other.execute("NOTIFY something")
    assert not base.is_connection_dead(listening)
    assert own_id() == before


def test_one_that_is_closed_is_told_without_asking() -> None:
    with psycopg.connect(**{**connection.get_connection_params(), "dbname": "postgres"}) as other:
        assert not base.is_connection_dead(other)
    assert base.is_connection_dead(other)


def test_the_connection_that_was_used_last_goes_out_first() -> None:
    here: Any = connections["default"]
    pool = here.pool
    taken = [pool.getconn() for _ in range(3)]
    for one in taken:
        pool.putconn(one)
    again = [pool.getconn() for _ in range(3)]
    for one in again:
        pool.putconn(one)
    assert again == taken[::-1]
