"""Tests whose transactions really commit: several threads, several connections, no rows at the end."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import TransactionTestCase

from db import triggers

_OF_MIGRATIONS = {"django_migrations", "django_content_type", "auth_permission"}


@pytest.fixture
def committed(transactional_db: None) -> Iterator[None]:
    """Use a database with real commits, and remove their rows afterwards.

    Django's flush would need all triggers dropped, and make them again. That takes longer than most
    of these tests.
    """
    if connection.vendor == "sqlite":
        connection.ensure_connection()
        before = sqlite3.connect(":memory:")
        connection.connection.backup(before)
        yield
        _restore_file(before)
    else:
        yield
        with connection.cursor() as cursor:
            cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
            if cursor.fetchone() != (True,):
                triggers.drop_for_test_flush(connection)
                return
        _delete_rows()
    _skip_flush()


def _restore_file(before: sqlite3.Connection) -> None:
    """Restore SQLite's rows. Numbers are not given twice: restored rows of other tests have some."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT seq, name FROM sqlite_sequence")
        last_numbers = cursor.fetchall()
    with before:
        before.execute("DELETE FROM sqlite_sequence")
        before.executemany("INSERT INTO sqlite_sequence (seq, name) VALUES (?, ?)", last_numbers)
    before.backup(connection.connection)
    before.close()


def _delete_rows() -> None:
    """Delete PostgreSQL's rows without their triggers, as only a superuser may."""
    tables = {*connection.introspection.table_names()} - _OF_MIGRATIONS
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("; ".join(f'DELETE FROM "{table}"' for table in sorted(tables)))


def _skip_flush() -> None:
    """Let the flush after this one test do nothing."""
    flush = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]

    def skip(_case: TransactionTestCase) -> None:
        TransactionTestCase._fixture_teardown = flush  # type: ignore[attr-defined]

    TransactionTestCase._fixture_teardown = skip  # type: ignore[attr-defined]


def together(*work: Callable[[], Any]) -> list[Any]:
    """Run `work` in threads that start together; return each result or exception."""
    results: list[Any] = [None] * len(work)
    gate = threading.Barrier(len(work))

    def run(index: int) -> None:
        try:
            gate.wait(timeout=30)
            results[index] = work[index]()
        except Exception as error:
            results[index] = error
        finally:
            connection.close()

    threads = [
        threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(work))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads), "a thread is still waiting: a deadlock"
    return results
