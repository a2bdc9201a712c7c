"""How long a page may search: past that its author gets a sentence, and the database is free again.

On PostgreSQL the server stops the statement (`statement_timeout`, taken back before anybody else gets the connection;
SET LOCAL would need a transaction around every page). On SQLite the statement stops itself: a handler that SQLite calls
as it works says when, and lets others work meanwhile (slices.py). Neither takes a place among the writers. And one
person searches a few times at once only, so that nobody takes all the connections there are.

Queries in the search's own language can ask for whatever takes longest: they take turns (turns.py). Nor does PostgreSQL
divide what is limited among helpers of its own: a search takes one processor at most, however much it reads.
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

from inquiry import turns
from inquiry.slices import Share
from sessions.access import MemberRequest

log = structlog.get_logger("gatebook.pages")
P = ParamSpec("P")
# SQLite's steps between two looks at the clock: some 20 ms of work. Each look needs Python's lock, so not more often.
STEPS: Final = 1_000_000
UNTROUBLED: Final = 5  # such looks that a read may take before it minds who writes: a tenth of a second
REST: Final = 2  # of what it has worked, that it rests then
LONGEST_REST_S: Final = 0.1
AT_ONCE: Final = 8  # searches of one person in this process; a browser asks for six pages at once
CANCELLED: Final = "57014"  # PostgreSQL's code for a statement that was stopped


_searching: Counter[int] = Counter()
_counting = threading.Lock()


class Overran(Exception):
    """The page searched for longer than settings.GATEBOOK_SEARCH_TIMEOUT_S and was stopped."""


class TooMany(Overran):
    """AT_ONCE pages of the same person are searching; this one did not begin."""


class NoPlace(TooMany):
    """Others searched for so long that this query did not get its turn."""


@contextmanager
def limit(person: int, *, in_turn: bool = False) -> Iterator[None]:
    """Stop what this connection reads meanwhile after settings.GATEBOOK_SEARCH_TIMEOUT_S in all. Raises Overran.

    `person` is the id of the user who asks; raises TooMany when AT_ONCE of theirs are under way. `in_turn` is for
    queries that take turns: waits as long for a place, and raises NoPlace when none comes free.
    """
    with _counting:
        if _searching[person] >= AT_ONCE:
            raise TooMany
        _searching[person] += 1
    try:
        with _turn(person) if in_turn else nullcontext(), in_time():
            yield
    finally:
        with _counting:
            _searching[person] -= 1
            if not _searching[person]:
                del _searching[person]


@contextmanager
def _turn(author: int) -> Iterator[None]:
    with turns.taken(author, settings.GATEBOOK_SEARCH_TIMEOUT_S) as taken:
        if not taken:
            raise NoPlace
        yield


@contextmanager
def in_time() -> Iterator[None]:
    """Stop what this connection reads meanwhile after settings.GATEBOOK_SEARCH_TIMEOUT_S in all. Raises Overran."""
    until = time.monotonic() + settings.GATEBOOK_SEARCH_TIMEOUT_S
    try:
        with (_limit_postgresql if connection.vendor == "postgresql" else _limit_sqlite)(until):
            yield
    except OperationalError as error:
        if not _was_stopped(error):
            raise
        raise Overran from error


@contextmanager
def _limit_postgresql(until: float) -> Iterator[None]:
    import psycopg  # here, so that no program on SQLite loads it

    told_s = 0.0

    def ask(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        """Before a statement, tell the server how long it may take, unless what was told last is about right still."""
        nonlocal told_s
        left_s = until - time.monotonic()
        if left_s <= 0:
            raise Overran
        if not 0.9 * told_s <= left_s <= told_s:
            told_s = left_s
            with connection.wrap_database_errors:  # of the last millisecond the limit may strike here already
                _tell(f"{max(int(left_s * 1000), 1)}", helpers="0")
        return execute(sql, params, many, context)

    try:
        with connection.execute_wrapper(ask):
            yield
    finally:
        try:
            _tell("DEFAULT", helpers="DEFAULT")
        except psycopg.Error:
            turns.hang_up()  # whoever were given it next would inherit the limit; in a block a rollback takes it back


def _tell(milliseconds: str, helpers: str) -> None:
    # Past Django's cursor: the statements are no part of what the page asks. Both go there and back at once.
    connection.ensure_connection()
    connection.connection.execute(
        f"SET statement_timeout TO {milliseconds}; SET max_parallel_workers_per_gather TO {helpers}"
    )


@contextmanager
def _limit_sqlite(until: float) -> Iterator[None]:
    share, longest = Share(), until + settings.GATEBOOK_SEARCH_TIMEOUT_S
    connection.ensure_connection()
    open_file = connection.connection
    began = time.monotonic()

    def look() -> bool:
        """Whether the statement is to stop. What it waits for others is not its own, up to as long again.

        Unless somebody wants a place: then nobody keeps theirs longer than ever.
        """
        nonlocal until, began
        asked = time.monotonic()
        if asked > until or not share.again(longest - asked):
            return True
        # While others write, what is long takes a third of the processor that all long reads share.
        if share.slices > UNTROUBLED and open_file.place.queue.holder not in (None, open_file.place):
            time.sleep(min(REST * (asked - began), LONGEST_REST_S))
        began = time.monotonic()
        until += 0.0 if turns.wanted() else began - asked
        return began > min(until, longest)

    open_file.set_progress_handler(look, STEPS)
    try:
        yield
    finally:
        share.leave()  # first: a connection that was closed meanwhile takes no handler
        open_file.set_progress_handler(None, STEPS)


def _was_stopped(error: OperationalError) -> bool:
    return getattr(error.__cause__, "sqlstate", "") == CANCELLED or str(error) == "interrupted"


def patient(
    view: Callable[Concatenate[MemberRequest, P], HttpResponseBase],
) -> Callable[Concatenate[MemberRequest, P], HttpResponseBase]:
    """Limit a view that searches; past the limit it answers 422 with what to do. Stands below `member`.

    422 and not 503: it is the question that must change, and Gatebook is well. A 503 would count as an error of the
    server in its own log and with a proxy before it, which may then turn others away.
    """

    @wraps(view)
    def limited(request: MemberRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        try:
            with limit(request.user.pk):
                return view(request, *args, **kwargs)
        except Overran as stop:
            return overran(request, stop, "inquiry/overran.html", {})

    return limited


def overran(request: MemberRequest, stop: Overran, template: str, context: dict[str, Any]) -> HttpResponse:
    """Answer 422, 429 for TooMany, with `template`, given `limit_s`, `at_once` or `no_place`; note it in the log."""
    limit_s = settings.GATEBOOK_SEARCH_TIMEOUT_S
    event = "search_refused" if isinstance(stop, TooMany) else "search_stopped"
    log.warning(event, path=request.path, limit_s=limit_s, person=request.person.pseudonym)
    if isinstance(stop, NoPlace):
        return render(request, template, {**context, "no_place": True}, status=429)
    if isinstance(stop, TooMany):
        return render(request, template, {**context, "at_once": AT_ONCE}, status=429)
    return render(request, template, {**context, "limit_s": f"{limit_s:g}"}, status=422)
