"""Error texts for database faults at a terminal."""

import logging
import sys
from collections.abc import Callable
from typing import Final

from django.db import DatabaseError, InterfaceError, NotSupportedError, connection

from db import outages

_START: Final = "Start the database, or correct DATABASE_URL."
_SETUP: Final = "Run `manage.py setup`; after an upgrade also."
# By SQLSTATE. Refused connections carry none, so the text of the error decides.
_BY_STATE: Final = {
    "28P01": "The database refuses the password. Correct the password in DATABASE_URL.",
    "28000": (
        "The database refuses this role."
        " Correct the role in DATABASE_URL, or allow it in pg_hba.conf."
    ),
    "3D000": "The database of DATABASE_URL does not exist. Create it, or correct the name.",
    "42P01": f"The database lacks tables of this version. {_SETUP}",
    "42703": f"The database lacks columns of this version. {_SETUP}",
    "42883": f"The database lacks functions of this version. {_SETUP}",
    "42501": (
        "The role of DATABASE_URL lacks a privilege."
        " Run `manage.py setup` with DATABASE_OWNER_URL set."
    ),
    "53300": "The database has no connection free. Raise max_connections, or stop what holds them.",
}
_BY_WORDS: Final = (
    ("password authentication failed", "28P01"),
    ("no password supplied", "28P01"),
    ("no pg_hba.conf entry", "28000"),
    ("is not permitted to log in", "28000"),
    ("too many clients already", "53300"),
    ("remaining connection slots", "53300"),
)
_BY_OUTAGE: Final[dict[outages.Outage, str]] = {
    "busy": "The database is busy and had no turn or connection in time. Run the command again.",
    "lost": f"The database does not answer. {_START}",
    "read_only": "The database is read-only. Run the command when it takes writes again.",
    "full": "The disk of the database is full. Free space, and run the command again.",
}
_SQLITE_NOT_A_DATABASE, _SQLITE_CANNOT_OPEN = 26, 14


def describe_database_fault(error: BaseException) -> str | None:
    """Return a database error and what to do about it, in one line; else None."""
    if isinstance(error, NotSupportedError):
        return f"{_first_line(error)} Move the data to a newer server and point DATABASE_URL there."
    if not isinstance(error, DatabaseError | InterfaceError):
        return None
    cause = error.__cause__
    if type(cause).__name__ == "PoolTimeout":
        # The pool reports only that it waited.
        reason = _why_no_connection()
        return _BY_OUTAGE["busy"] if reason is None else _of_postgresql(reason)
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        return _of_sqlite(error, code & 0xFF)
    return _of_postgresql(cause if cause is not None else error)


def run_with_sentences(work: Callable[[], None]) -> None:
    """Run `work`; on a database fault exit with a sentence and code 1.

    `--traceback` shows the traceback instead.
    """
    # The pool logs each failed attempt; one sentence at the end is enough.
    logging.getLogger("psycopg.pool").addFilter(lambda _record: False)
    try:
        work()
    except (DatabaseError, InterfaceError) as error:
        sentence = None if "--traceback" in sys.argv else describe_database_fault(error)
        if sentence is None:
            raise
        sys.stderr.write(f"gatebook: {sentence}\n")
        raise SystemExit(1) from None


def _of_postgresql(error: BaseException) -> str | None:
    state, words = getattr(error, "sqlstate", None), str(error)
    if state is None:
        state = next((state for part, state in _BY_WORDS if part in words), None)
    if state is None and 'role "' in words and "does not exist" in words:
        state = "28000"
    if state is None and 'database "' in words and "does not exist" in words:
        state = "3D000"
    if state in _BY_STATE:
        return f"{_BY_STATE[state]} The database says: {_first_line(error)}"
    if state is None and type(error).__name__ in ("OperationalError", "InterfaceError"):
        return f"{_BY_OUTAGE['lost']} The database driver says: {_first_line(error)}"
    outage = outages.classify_outage(_wrapped(error))
    return None if outage is None else _BY_OUTAGE[outage]


def _of_sqlite(error: BaseException, code: int) -> str | None:
    words, path = str(error), connection.settings_dict["NAME"]
    if words.startswith("no such table"):
        return f"{_BY_STATE['42P01']} SQLite says: {words}."
    if words.startswith("no such column") or "has no column named" in words:
        return f"{_BY_STATE['42703']} SQLite says: {words}."
    if code == _SQLITE_NOT_A_DATABASE:
        return (
            f"{path} is not an SQLite database."
            " Correct DATABASE_URL, or restore the file from a backup."
        )
    if code == _SQLITE_CANNOT_OPEN:
        return (
            f"{path} cannot be opened. Check that its folder exists and that you may write there."
        )
    outage = outages.classify_outage(error)
    return None if outage is None else _BY_OUTAGE[outage]


def _why_no_connection() -> BaseException | None:
    """Connect once without the pool; return the error, or None when it succeeds."""
    import psycopg

    parameters = {
        name: value for name, value in connection.get_connection_params().items() if name != "pool"
    }
    for ours in ("cursor_factory", "context", "prepare_threshold", "server_side_binding"):
        parameters.pop(ours, None)
    try:
        psycopg.connect(**parameters, connect_timeout=3).close()
    except psycopg.Error as error:
        return error
    return None


def _wrapped(error: BaseException) -> BaseException:
    wrapper = DatabaseError(str(error))
    wrapper.__cause__ = error
    return wrapper


def _first_line(error: BaseException) -> str:
    """Return an error's first line: host, role and database, never a password."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return f"{line.removesuffix('.')}."
