"""A database that is read-only or unavailable: 503 with Retry-After for agents, an error page for
people."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, InterfaceError, InternalError, OperationalError, connection
from django.test import Client, RequestFactory
from psycopg import errors as pg
from psycopg_pool import PoolTimeout

from accounts.views.errors import render_unavailable
from db import outages
from journal.models import Entry
from tests.api.api_client import Caller, code, new_key
from tests.api.conftest import application as application
from tests.api.conftest import call as call
from tests.api.conftest import issue as issue
from tests.journal.committed import committed
from tests.pages.people import Organization

__all__ = ["committed"]


def raised(error: type[Exception], cause: BaseException) -> BaseException:
    """Return a Django error with its cause, as a backend raises it."""
    made = error(str(cause))
    made.__cause__ = cause
    return made


def of_sqlite(code: int) -> sqlite3.OperationalError:
    made = sqlite3.OperationalError("an error of SQLite")
    made.sqlite_errorcode = code
    return made


@pytest.mark.parametrize(
    ("error", "outage"),
    [
        (raised(InternalError, pg.ReadOnlySqlTransaction("cannot execute INSERT")), "read_only"),
        (raised(OperationalError, pg.AdminShutdown("57P01")), "lost"),
        (raised(OperationalError, pg.CrashShutdown("57P02")), "lost"),
        (raised(OperationalError, pg.CannotConnectNow("57P03")), "lost"),
        (raised(OperationalError, pg.DatabaseDropped("57P04")), "lost"),
        (raised(OperationalError, pg.ConnectionFailure("08006")), "lost"),
        (raised(OperationalError, pg.SqlclientUnableToEstablishSqlconnection("08001")), "lost"),
        (raised(OperationalError, pg.DiskFull("53100")), "full"),
        (raised(OperationalError, pg.OutOfMemory("53200")), "busy"),
        (raised(OperationalError, pg.TooManyConnections("53300")), "busy"),
        (raised(OperationalError, pg.DeadlockDetected("40P01")), "busy"),
        (raised(OperationalError, pg.IoError("58030")), "lost"),
        (raised(OperationalError, psycopg.OperationalError("the connection is closed")), "lost"),
        (raised(InterfaceError, psycopg.InterfaceError("connection already closed")), "lost"),
        (raised(OperationalError, PoolTimeout("no connection after 5 s")), "busy"),
        (raised(OperationalError, of_sqlite(sqlite3.SQLITE_READONLY)), "read_only"),
        (raised(OperationalError, of_sqlite(sqlite3.SQLITE_READONLY_DBMOVED)), "read_only"),
        (raised(OperationalError, of_sqlite(sqlite3.SQLITE_FULL)), "full"),
        (raised(OperationalError, of_sqlite(sqlite3.SQLITE_IOERR_WRITE)), "lost"),
        (raised(OperationalError, of_sqlite(sqlite3.SQLITE_CANTOPEN)), "lost"),
        (raised(OperationalError, of_sqlite(sqlite3.SQLITE_BUSY)), "busy"),
        (OperationalError("database is locked: the turn did not come"), "busy"),
        (raised(DatabaseError, pg.UndefinedTable("42P01")), None),
        (raised(OperationalError, pg.QueryCanceled("57014")), None),
        (raised(InternalError, pg.RaiseException("P0001")), None),
        (raised(DatabaseError, of_sqlite(sqlite3.SQLITE_CORRUPT)), None),
        (raised(OperationalError, of_sqlite(sqlite3.SQLITE_ERROR)), None),
        (ValueError("database is locked"), None),
        (None, None),
    ],
)
@pytest.mark.once
def test_each_error_of_a_database_is_the_outage_that_it_is(
    error: BaseException | None, outage: outages.Outage | None
) -> None:
    assert outages.classify_outage(error) == outage
    page = render_unavailable(RequestFactory().get("/"), error)
    assert (page is None) == (outage is None)
    assert page is None or int(page["Retry-After"]) >= 2


@contextmanager
def read_only() -> Iterator[None]:
    """Make the database of the test refuse writes by its own means."""
    begin, end = {
        "sqlite": ("PRAGMA query_only = ON", "PRAGMA query_only = OFF"),
        "postgresql": (
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
        ),
    }[connection.vendor]
    with connection.cursor() as cursor:
        cursor.execute(begin)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(end)


@contextmanager
def full() -> Iterator[None]:
    """Limit SQLite's file to its present size."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA page_count")
        (pages,) = cursor.fetchone()
        cursor.execute(f"PRAGMA max_page_count = {pages}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA max_page_count = {2**30}")


def test_a_command_to_a_read_only_database_is_503_and_done_once_when_it_writes_again(
    committed: None, call: Callable[..., Caller]
) -> None:
    agent = call()
    key, body = new_key(), {"key": "s-1", "title": "work"}
    with read_only():
        answer = agent.post("/sessions", body, key=key)
        batch = agent.post("/events", {"events": []})
    assert code(answer) == (503, "unavailable")
    assert answer.headers["Retry-After"] == "5"
    assert "read-only" in answer.json()["detail"]
    assert batch.status_code != 500
    before = Entry.objects.count()
    assert agent.post("/sessions", body, key=key).status_code == 201
    assert agent.post("/sessions", body, key=key).status_code in (200, 201)
    assert Entry.objects.count() == before + 1


def test_people_get_a_page_that_reports_the_outage(
    committed: None, organization: Organization
) -> None:
    client, teams = organization.client("administrator"), {"name": "night"}
    with read_only():
        ready = Client().get("/readyz")
    # The product closes a read-only connection.
    with read_only():
        answer = client.post("/settings/teams/", teams)
    with read_only():
        signing_in = Client().post("/sign-in/", {"username": "viewer", "password": "wrong"})
    assert client.post("/settings/teams/", teams).status_code == 302
    for page in (answer, signing_in):
        assert page.status_code == 503
        assert page["Retry-After"] == "5"
        assert "The database is read-only at the moment" in page.content.decode()
    if connection.vendor == "postgresql":
        assert (ready.status_code, ready.content) == (
            503,
            b"not ready: the database is read-only\n",
        )


def test_a_full_disk_is_503_with_the_reason(committed: None, call: Callable[..., Caller]) -> None:
    if connection.vendor != "sqlite":
        # PostgreSQL's 53100 is in the table above; filling its disk would need a separate file
        # system
        return
    agent = call()
    agent.session("s-1")
    with full():
        # Until the free pages of the file are used up.
        for number in range(50):
            answer = _plan(agent, number)
            if answer.status_code != 201:
                break
    assert code(answer) == (503, "unavailable")
    assert "database's disk is full" in answer.json()["detail"]
    assert _plan(agent, 100).status_code == 201


def _plan(agent: Caller, number: int) -> Any:
    body = {
        "session": "s-1",
        "effect_key": f"e-{number}",
        "tool": "t",
        "arguments": {"text": "x" * 20_000},
    }
    return agent.post("/effects", body)
