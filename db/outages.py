"""Temporary database errors, after which a request may be sent again."""

from typing import Final, Literal

from django.db import DatabaseError, InterfaceError, connection

Outage = Literal["busy", "lost", "read_only", "full"]

RETRY_AFTER_S: Final[dict[Outage, int]] = {"busy": 1, "lost": 1, "read_only": 5, "full": 5}

# PostgreSQL's SQLSTATE: the longest matching prefix counts. Nothing of the transaction was stored,
# unless the connection was lost during the commit.
_STATES: Final[dict[str, Outage]] = {
    "08": "lost",  # connection exceptions
    "57P": "lost",  # shutdown, crash, start-up, dropped database, idle session ended
    "25006": "read_only",  # a hot standby, default_transaction_read_only
    "40001": "busy",  # serialization failure
    "40P01": "busy",  # deadlock
    "53": "busy",  # no memory, no connection free, a configured limit
    "53100": "full",  # disk full
    "55P03": "busy",  # lock not available
    "58030": "lost",  # I/O error
}
# SQLite's primary result codes.
_CODES: Final[dict[int, Outage]] = {
    5: "busy",  # SQLITE_BUSY
    6: "busy",  # SQLITE_LOCKED
    8: "read_only",  # SQLITE_READONLY
    10: "lost",  # SQLITE_IOERR
    13: "full",  # SQLITE_FULL
    14: "lost",  # SQLITE_CANTOPEN
}


def classify_outage(error: BaseException | None) -> Outage | None:
    """Return the outage that `error` reports; None for any other error."""
    if not isinstance(error, DatabaseError | InterfaceError):
        return None
    cause = error.__cause__
    if type(cause).__name__ == "PoolTimeout" or "database is locked" in str(error):
        return "busy"
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        return _CODES.get(code & 0xFF)
    state = getattr(cause, "sqlstate", "")
    if state is None:  # the driver itself: the server closed the connection, or does not answer
        return "lost" if type(cause).__name__ in ("OperationalError", "InterfaceError") else None
    prefixes = [prefix for prefix in _STATES if state.startswith(prefix)]
    return _STATES[max(prefixes, key=len)] if prefixes else None


def drop_read_only_connection(outage: Outage | None) -> None:
    """Close a connection to a read-only server, so that the next one is new.

    After a failover a pool would keep it for another hour.
    """
    if (
        outage == "read_only"
        and connection.vendor == "postgresql"
        and not connection.in_atomic_block
    ):
        lent = connection.connection
        if lent is not None:
            lent.close()
        connection.close()
