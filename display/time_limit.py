"""Limit the time and number of searches.

A page that exceeds the limit is stopped, and its user sees a message. On PostgreSQL, the server
stops the statement (`statement_timeout`, reset before the connection is reused; SET LOCAL would
need a transaction around every page). On SQLite, a progress handler stops it, and shares the
processor with other reads (db/sqlite/cpu_share.py). Neither blocks writers. One person can run only
a few searches at a time, so nobody can use up all connections.
Queries in the search language may be arbitrarily slow, so they queue for slots (query_slots.py).
PostgreSQL uses no parallel workers for limited reads: a search uses at most one processor.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec

import structlog
from django.conf import settings
from django.db import OperationalError, connection
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render

from accounts.access import MemberRequest
from db.sqlite.cpu_share import CpuShare
from display import query_slots

log = structlog.get_logger("gatebook.pages")
P = ParamSpec("P")
# SQLite steps between two checks of the clock, about 20 ms of work. Each check needs Python's lock.
SQLITE_STEPS: Final = 1_000_000
GRACE_TICKS: Final = 5  # Checks (0.1 s) before a read yields to writers.
BACKOFF_FACTOR: Final = 2  # Pause, as a multiple of the time worked.
MAX_BACKOFF_S: Final = 0.1
# Searches per person in this process. A browser requests up to six pages at a time.
MAX_SEARCHES_PER_USER: Final = 8
PG_QUERY_CANCELED: Final = "57014"  # PostgreSQL's code for a cancelled statement.


_searching: Counter[int] = Counter()
_counting = threading.Lock()


class QueryTimeout(Exception):
    """The page searched for longer than settings.GATEBOOK_SEARCH_TIMEOUT_S and was stopped."""


class TooManyQueries(QueryTimeout):
    """The person already runs MAX_SEARCHES_PER_USER searches; this one did not start."""


class NoSlot(TooManyQueries):
    """No slot became free in time; the query did not start."""


@contextmanager
def limit_search(person: int, *, waits_for_slot: bool = False) -> Iterator[None]:
    """Limit the reads of this connection to settings.GATEBOOK_SEARCH_TIMEOUT_S in total.

    Raises QueryTimeout. `person` is the user's id; raises TooManyQueries if MAX_SEARCHES_PER_USER
    of their searches are running. With `waits_for_slot`, waits for a query slot for up to the same
    time, and raises NoSlot if none is free.
    """
    with _counting:
        if _searching[person] >= MAX_SEARCHES_PER_USER:
            raise TooManyQueries
        _searching[person] += 1
    try:
        with _hold_slot(person) if waits_for_slot else nullcontext(), limit_time():
            yield
    finally:
        with _counting:
            _searching[person] -= 1
            if not _searching[person]:
                del _searching[person]


@contextmanager
def _hold_slot(author: int) -> Iterator[None]:
    with query_slots.hold_slot(author, settings.GATEBOOK_SEARCH_TIMEOUT_S) as taken:
        if not taken:
            raise NoSlot
        yield


@contextmanager
def limit_time() -> Iterator[None]:
    """Limit all reads to GATEBOOK_SEARCH_TIMEOUT_S in total. Raises QueryTimeout."""
    until = time.monotonic() + settings.GATEBOOK_SEARCH_TIMEOUT_S
    try:
        with (_limit_postgresql if connection.vendor == "postgresql" else _limit_sqlite)(until):
            yield
    except OperationalError as error:
        if not _was_stopped(error):
            raise
        raise QueryTimeout from error


@contextmanager
def _limit_postgresql(until: float) -> Iterator[None]:
    import psycopg  # Not at module level: programs on SQLite do not need it.

    server_limit_s = 0.0

    def ask(
        execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        """Set the server's time limit before a statement, unless it is about right already."""
        nonlocal server_limit_s
        remaining_s = until - time.monotonic()
        if remaining_s <= 0:
            raise QueryTimeout
        if not 0.9 * server_limit_s <= remaining_s <= server_limit_s:
            server_limit_s = remaining_s
            # In the last millisecond, the limit may already hit this statement.
            with connection.wrap_database_errors:
                _set_server_limits(f"{max(int(remaining_s * 1000), 1)}", helpers="0")
        return execute(sql, params, many, context)

    try:
        with connection.execute_wrapper(ask):
            yield
    finally:
        try:
            _set_server_limits("DEFAULT", helpers="DEFAULT")
        except psycopg.Error:
            # The next user of the connection would inherit the limit. A rollback resets it.
            query_slots.close_connection()


def _set_server_limits(milliseconds: str, helpers: str) -> None:
    # Bypass Django's cursor: these statements do not belong to the page. Both take one round trip.
    connection.ensure_connection()
    connection.connection.execute(
        f"SET statement_timeout TO {milliseconds}; SET max_parallel_workers_per_gather TO {helpers}"
    )


@contextmanager
def _limit_sqlite(until: float) -> Iterator[None]:
    share, longest = CpuShare(), until + settings.GATEBOOK_SEARCH_TIMEOUT_S
    connection.ensure_connection()
    open_file = connection.connection
    began = time.monotonic()

    def check_time() -> bool:
        """Return True if the statement must stop.

        Waiting for others extends the limit, up to twice the limit, unless a query waits for a
        slot.
        """
        nonlocal until, began
        checked_at = time.monotonic()
        if checked_at > until or not share.again(longest - checked_at):
            return True
        # While others write, a long read uses one third of the processor that all long reads share.
        if share.slices > GRACE_TICKS and open_file.place.queue.holder not in (
            None,
            open_file.place,
        ):
            time.sleep(min(BACKOFF_FACTOR * (checked_at - began), MAX_BACKOFF_S))
        began = time.monotonic()
        until += 0.0 if query_slots.has_waiting_queries() else began - checked_at
        return began > min(until, longest)

    open_file.set_progress_handler(check_time, SQLITE_STEPS)
    try:
        yield
    finally:
        share.leave()  # First: if the connection was closed, the next call fails.
        open_file.set_progress_handler(None, SQLITE_STEPS)


def _was_stopped(error: OperationalError) -> bool:
    return (
        getattr(error.__cause__, "sqlstate", "") == PG_QUERY_CANCELED or str(error) == "interrupted"
    )


def limit_view(
    view: Callable[Concatenate[MemberRequest, P], HttpResponseBase],
) -> Callable[Concatenate[MemberRequest, P], HttpResponseBase]:
    """Limit a view that searches; past the limit, respond with 422. Use below `member_required`.

    Not 503: the query must change, while the server is healthy. A 503 would count as a server error
    in logs and proxies, which may then stop sending requests.
    """

    @wraps(view)
    def limited(request: MemberRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        try:
            with limit_search(request.user.pk):
                return view(request, *args, **kwargs)
        except QueryTimeout as stop:
            return render_query_timeout(request, stop, "pages/search/timeout.html", {})

    return limited


def render_query_timeout(
    request: MemberRequest, stop: QueryTimeout, template: str, context: dict[str, Any]
) -> HttpResponse:
    """Respond with 422, or 429 for TooMany, and log it.

    The template gets `limit_s`, `at_once` or `no_place`.
    """
    limit_s = settings.GATEBOOK_SEARCH_TIMEOUT_S
    event = "search_refused" if isinstance(stop, TooManyQueries) else "search_stopped"
    log.warning(event, path=request.path, limit_s=limit_s, person=request.person.pseudonym)
    if isinstance(stop, NoSlot):
        return render(request, template, {**context, "no_place": True}, status=429)
    if isinstance(stop, TooManyQueries):
        return render(request, template, {**context, "at_once": MAX_SEARCHES_PER_USER}, status=429)
    return render(request, template, {**context, "limit_s": f"{limit_s:g}"}, status=422)
