"""Positions that leave the process: nothing appears below them, and nobody waits for long."""

from uuid import UUID

import pytest
from django.db import connection, transaction
from pytest_django import Settings

from accounts import tokens
from accounts.models import Project
from db.clock import now_us
from investigation.history.moment import CutError, parse_cut
from investigation.query.parser.ast import QueryError
from investigation.query.permalink import find_position, pin_query
from journal import entries
from journal.running_writers import load_last_position
from proofs import sealer, stable_position
from tests.api.api_client import Caller
from tests.journal.committed import committed
from tests.journal.drafts import draft
from tests.pages.people import build
from tests.proofs.test_sealer import open_transaction

__all__ = ["committed"]
pytestmark = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="SQLite has one writer: positions follow the commits"
)


def append(name: str, project: UUID) -> int:
    """Write an entry with the time of now, as a request does."""
    (written,) = entries.append_entries([draft(name, project=project)], now_us())
    return written.position


def test_links_and_moments_name_no_position_below_which_an_entry_appears(
    committed: None, settings: Settings
) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    project = build().project
    first = append("first", project.id)
    sealer.seal_journal()
    with open_transaction("slow", project.id) as commit_slow:
        above = append("above", project.id)
        # The last visible position is what a link named before; an entry appears below it.
        assert load_last_position() == above
        assert stable_position.load_stable_position() == first
        assert find_position(pin_query("event", now_us())) == first
        with pytest.raises(CutError, match="still being written"):
            parse_cut(f"#{above}", project.id, now_us())
        assert parse_cut(f"#{first}", project.id, now_us()).position == first
        column = stable_position.stable_position_column(project.id, now_us())
        assert Project.objects.values_list(column, flat=True).get(pk=project.pk) == first
        commit_slow()
    last = load_last_position()
    assert stable_position.load_stable_position() == last == above
    assert parse_cut(f"#{above}", project.id, now_us()).position == above
    assert find_position(pin_query("event", now_us())) == above


def test_a_link_is_refused_where_nothing_seals_and_a_slow_transaction_writes(
    committed: None, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    project = build().project
    with open_transaction("slow", project.id):
        above = append("above", project.id)
        monkeypatch.setattr(stable_position, "RECENT_US", 0)
        with pytest.raises(QueryError, match="still being written"):
            pin_query("event", now_us())
        # A short transaction is waited for.
        monkeypatch.setattr(stable_position, "load_running_writers", frozenset)
        assert stable_position.load_recent_position() == above


def test_a_client_that_polls_reads_each_entry_once_while_slow_transactions_write(
    committed: None, settings: Settings
) -> None:
    from config.wsgi import application

    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    organization = build()
    project = organization.project.id
    with transaction.atomic():
        token = tokens.issue_token(
            organization.agent, expires_in=None, actor="tests", scope="audit"
        )
    caller = Caller(token, app=application)
    text = f"event kind:{draft('x', project=project).kind}"
    written = [append("first", project)]
    sealer.seal_journal()
    first = caller.get("/search", q=text).json()
    read, after = [row["position"] for row in first["rows"]], first["as_of"]

    def poll() -> None:
        nonlocal after
        while True:
            page = caller.get("/search", q=text, after=after, limit=2).json()
            read.extend(row["position"] for row in reversed(page["rows"]))
            after = page["as_of"] if page["newer"] is None else page["newer"]
            if page["newer"] is None:
                return

    for number in range(3):
        with open_transaction(f"slow {number}", project) as commit_slow:
            written += [append(f"{number}-{name}", project) for name in "abc"]
            poll()
            assert written[-1] not in read
            commit_slow()
        poll()
    assert set(written) < set(read)
    assert len(read) == len(set(read)) == len(written) + 3
