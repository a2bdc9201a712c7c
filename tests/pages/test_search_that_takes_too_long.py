"""A search over the time limit gets an error page and does not affect other people."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from django.db import OperationalError, connection
from psycopg.errors import QueryCanceled
from pytest_django import Settings

from display import query_slots, time_limit
from investigation.query import execute
from pages.search import jump
from pages.sessions import filters
from pages.timeline import filtered_effects
from tests.journal.committed import committed
from tests.matrices import keep_core
from tests.pages.counting import COUNTED, ENDLESS, LONG, ask
from tests.pages.people import Organization
from tests.pages.sample_data import SampleIds

__all__ = ["committed"]


def endless(*_: Any, **__: Any) -> Any:
    return ask(ENDLESS)


PAGES: dict[str, tuple[str, Any, str]] = {  # page -> URL, and the function that is made endless
    "audit": ("/search/?q=tool:mail.send", execute, "page_stages"),
    "sessions": ("/sessions/?status=running", filters.SessionFilter, "is_valid"),
    "session": ("/sessions/{session}/?tool=mail.send", filtered_effects, "load_timeline_page"),
    "timeline": ("/sessions/{session}/timeline/", filtered_effects, "load_timeline_page"),
    "search_jump": (
        "/search/jump/?id=5a3b1e00-0000-8948-98f8-fc62f5dc8d9d",
        jump,
        "find_by_any_id",
    ),
}


@pytest.mark.parametrize(
    "page", keep_core(PAGES, ["audit", "session"], mark=pytest.mark.matrix_on_postgresql)
)
def test_a_long_search_is_stopped_with_a_sentence_and_the_next_page_works(
    committed: None,
    organization: Organization,
    sample: SampleIds,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    page: str,
) -> None:
    address, holder, name = PAGES[page]
    address = address.format(session=sample.session)
    client = organization.client("viewer")
    settings.GATEBOOK_SEARCH_TIMEOUT_S = 0.1
    with monkeypatch.context() as patched:
        patched.setattr(holder, name, endless)
        answer = client.get(address)
    assert answer.status_code == 422
    assert "0.1 s" in answer.text
    assert "Add a filter" in answer.text
    (event,) = [record.msg for record in caplog.records if "search_stopped" in record.getMessage()]
    assert isinstance(event, dict)  # by structlog
    assert (event["event"], event["path"], event["limit_s"]) == (
        "search_stopped",
        address.partition("?")[0],
        0.1,
    )
    assert event["person"] == organization.members["viewer"].user.person.pseudonym
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    settings.GATEBOOK_SEARCH_TIMEOUT_S = 60.0
    assert client.get(address).status_code == 200


def test_the_query_stays_in_the_form(
    committed: None,
    organization: Organization,
    sample: SampleIds,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.GATEBOOK_SEARCH_TIMEOUT_S = 0.1
    monkeypatch.setattr(execute, "disjoint_querysets", endless)
    answer = organization.client("viewer").get("/search/?q=tool:mail.send state:failed since:7d")
    assert 'value="tool:mail.send state:failed since:7d"' in answer.text
    assert "No results" not in answer.text
    assert (
        'href="/search/?q=tool%3Amail.send+state%3Afailed+since%3A1h"' in answer.text
    )  # a link narrows the query


def test_the_limit_does_not_stay_on_the_connection(committed: None, settings: Settings) -> None:
    """Run later statements without a limit, after a timeout and after an answer."""
    settings.GATEBOOK_SEARCH_TIMEOUT_S = 0.05
    with pytest.raises(time_limit.QueryTimeout), time_limit.limit_search(7):
        ask(ENDLESS)
    assert ask(LONG) == COUNTED
    answered = 0
    while not answered:  # a short statement may take this long on a busy machine
        with suppress(time_limit.QueryTimeout), time_limit.limit_search(7):
            answered = ask("SELECT 1")
    assert ask(LONG) == COUNTED


def test_the_limit_is_one_for_all_statements_of_a_page(committed: None, settings: Settings) -> None:
    settings.GATEBOOK_SEARCH_TIMEOUT_S = 0.1
    short = LONG.replace("3000000", "30000")
    with pytest.raises(time_limit.QueryTimeout), time_limit.limit_search(7):
        any(ask(short) < 30_000 for _ in range(1_000_000))


def test_the_limit_may_expire_while_it_is_being_set(
    committed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite is told nothing")
    set_limits = time_limit._set_server_limits

    def late(milliseconds: str, helpers: str) -> None:
        if milliseconds != "DEFAULT":
            raise QueryCanceled("canceling statement due to statement timeout")
        set_limits(milliseconds, helpers)

    monkeypatch.setattr(time_limit, "_set_server_limits", late)
    with pytest.raises(time_limit.QueryTimeout), time_limit.limit_search(7):
        ask("SELECT 1")
    monkeypatch.undo()
    assert ask("SELECT 1") == 1


def test_other_database_errors_are_unchanged(db: None, settings: Settings) -> None:
    with pytest.raises(OperationalError, match="database is locked"), time_limit.limit_search(7):
        raise OperationalError("database is locked")


def test_one_person_cannot_take_all_the_connections(
    organization: Organization, sample: SampleIds
) -> None:
    """Refuse a person at the limit of concurrent searches; others, and later searches, run."""
    client, other = organization.client("viewer"), organization.client("operator")
    person = organization.members["viewer"].user.pk
    with ExitStack() as stack:
        for _ in range(time_limit.MAX_SEARCHES_PER_USER):
            stack.enter_context(time_limit.limit_search(person))
        for page in ("/search/?q=tool:mail.send", "/sessions/"):
            answer = client.get(page)
            assert answer.status_code == 429
            assert "8 searches running" in answer.text
            assert other.get(page).status_code == 200
    assert client.get("/sessions/").status_code == 200
    assert time_limit._searching == {}


def test_two_searches_run_at_once_and_no_author_takes_both_places(
    committed: None,
    organization: Organization,
    sample: SampleIds,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.GATEBOOK_SEARCH_PLACES = 2
    client, author = organization.client("viewer"), 10**9
    monkeypatch.setattr(query_slots, "_running", {author})  # a search of another author runs
    assert client.get("/search/?q=tool:mail.send").status_code == 200
    settings.GATEBOOK_SEARCH_TIMEOUT_S = 0.2
    with pytest.raises(time_limit.NoSlot), time_limit.limit_search(author, waits_for_slot=True):
        raise AssertionError("an author has one place")
    query_slots._running.add(author + 1)
    answer = client.get("/search/?q=tool:mail.send")
    assert answer.status_code == 429
    assert "The server is busy with other searches" in answer.text
    assert 'value="tool:mail.send"' in answer.text
    bars = client.get("/search/?q=tool:mail.send&part=overview", headers={"HX-Request": "true"})
    assert (bars.status_code, "Load histogram and facets" in bars.text) == (
        422,
        True,
    )  # shown in place of the histogram
    assert "No results" not in answer.text
    settings.GATEBOOK_SEARCH_TIMEOUT_S = 60.0
    assert (
        client.get(f"/sessions/{sample.session}/").status_code == 200
    )  # pages do not wait for queries
    query_slots._running.discard(author)
    assert client.get("/search/?q=tool:mail.send").status_code == 200
    assert query_slots._running == {author + 1}


def test_a_free_place_goes_to_the_author_with_the_least_use(
    committed: None, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.GATEBOOK_SEARCH_TIMEOUT_S, settings.GATEBOOK_SEARCH_PLACES = 60.0, 2
    order: list[int] = []

    def searches(author: int) -> None:
        try:
            with time_limit.limit_search(author, waits_for_slot=True):
                order.append(author)
        finally:
            connection.close()

    often, seldom = 10**9, 10**9 + 1
    searches(often)
    monkeypatch.setattr(query_slots, "_running", {1, 2})
    with ThreadPoolExecutor(2) as askers:
        futures = []
        for author in (often, seldom):
            futures.append(askers.submit(searches, author))
            until = time.monotonic() + 60
            while author not in query_slots._waiting:
                assert time.monotonic() < until
        with query_slots._changed:
            query_slots._running.discard(1)
            query_slots._changed.notify_all()
        for future in futures:
            future.result()
    assert order == [often, seldom, often]


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite is served by one process")
def test_processes_share_the_places(
    committed: None, organization: Organization, sample: SampleIds, settings: Settings
) -> None:
    settings.GATEBOOK_SEARCH_PLACES = 2
    client, author = organization.client("viewer"), organization.members["viewer"].user.pk
    page = "/search/?q=tool:mail.send"
    with ThreadPoolExecutor(1) as other:  # has its own connection, like another process

        def run_elsewhere(statement: str, *parameters: int) -> list[Any]:
            return other.submit(_fetch_rows, statement, *parameters).result()

        def search_status(patience_s: float) -> int:
            settings.GATEBOOK_SEARCH_TIMEOUT_S = patience_s
            return client.get(page).status_code

        run_elsewhere("SELECT pg_advisory_lock(%s, 0)", query_slots._PLACE)
        assert search_status(60.0) == 200
        run_elsewhere("SELECT pg_advisory_lock(%s, 1)", query_slots._PLACE)
        assert search_status(0.2) == 429
        run_elsewhere("SELECT pg_advisory_unlock(%s, 0)", query_slots._PLACE)
        run_elsewhere("SELECT pg_advisory_lock(%s, %s)", query_slots._AUTHOR, author)
        assert search_status(0.2) == 429
        run_elsewhere("SELECT pg_advisory_unlock(%s, %s)", query_slots._AUTHOR, author)
        assert search_status(60.0) == 200
        # Other databases have locks of their own.
        condition = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        assert run_elsewhere(
            f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND {condition}"
        ) == [(1,)]
        other.submit(_close_connection).result()


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="SQLite has no connections that are handed out again"
)
def test_a_connection_that_keeps_a_place_or_a_limit_is_not_reused(
    committed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_slots, "_RELEASE", "SELECT 1 / 0, %s, %s, %s, %s")
    with time_limit.limit_search(7, waits_for_slot=True):
        count_locks = (
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        )
        assert _fetch_rows(count_locks) == [(2,)]
        (kept,) = _fetch_rows("SELECT pg_backend_pid()")[0]
    set_limits = time_limit._set_server_limits

    def fail_on_reset(milliseconds: str, helpers: str) -> None:
        if milliseconds == "DEFAULT":
            connection.connection.execute("SELECT 1 / 0")
        set_limits(milliseconds, helpers)

    monkeypatch.setattr(time_limit, "_set_server_limits", fail_on_reset)
    with time_limit.limit_search(7):
        (limited,) = _fetch_rows("SELECT pg_backend_pid()")[0]
    alive = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s) AND pid <> pg_backend_pid()"
    own_pid = _fetch_rows("SELECT pg_backend_pid()")[0][0]
    assert own_pid not in (kept, limited)
    until = time.monotonic() + 60  # the server detects a closed connection a moment later
    while _fetch_rows(alive, [kept, limited]) != [(0,)]:
        assert time.monotonic() < until


def _close_connection() -> None:
    connection.close()  # the thread's own


def _fetch_rows(statement: str, *parameters: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())
