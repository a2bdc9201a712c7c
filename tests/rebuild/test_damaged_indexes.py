"""An index that lacks rows, and has the text of the right one, is named before all else."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import orjson
import pytest
from django.db import connection, transaction

from db import schema_inventory
from ledger import stops
from ledger.models import Stop
from rebuild.damaged_indexes import DATABASE, find_damaged_indexes
from tests.approvals.inbox_scenario import InboxScenario
from tests.rebuild.test_forged_rows import furnish, run

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif("connection.vendor != 'sqlite'", reason="amcheck compares PostgreSQL's"),
]
_TEXT: Final = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = %s AND sql"
RESET: Final = "PRAGMA writable_schema = RESET"  # reads the schema again, as the next process does


@contextmanager
def make_partial_index(table: str, part: str) -> Iterator[str]:
    """Make an index of a table again over a part of its rows, and put its text back."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"{_TEXT} LIKE '%%project%%' ORDER BY name LIMIT 1", [table])
        name, text = cursor.fetchone()
        cursor.execute(f'DROP INDEX "{name}"')
        separator = " AND " if " WHERE " in text else " WHERE "
        cursor.execute(f"{text}{separator}{part}".replace("%", "%%"))
        cursor.execute("PRAGMA writable_schema = ON")
        cursor.execute("UPDATE sqlite_master SET sql = %s WHERE name = %s", [text, name])
        cursor.execute(RESET)
        yield name
        transaction.set_rollback(True)
    with connection.cursor() as cursor:
        cursor.execute(RESET)


def list_differences(*arguments: str) -> list[dict[str, Any]]:
    """Return what the check names, in its order."""
    code, text = run("--check", "--json", *arguments)
    *named, _summary = map(orjson.loads, text.splitlines())
    assert code == (1 if named else 0)
    return named


def test_an_index_that_lacks_a_stop_is_named(inbox: InboxScenario) -> None:
    furnish(inbox)
    stops.set_stop(inbox.project, "project", "", "it deletes", inbox.person("administrator").user)
    [stop] = Stop.objects.all()
    with make_partial_index("ledger_stop", f"id <> '{stop.pk.hex}'") as index:
        schema_inventory.clear_schema_cache()
        assert schema_inventory.find_schema_differences(connection) == []
        first, *_others = list_differences()
        assert (first["difference"], first["table"]) == ("damaged", "ledger_stop")
        assert first["key"] == {"index": index}
        assert f"row 1 missing from index {index}" in first["stored"]
        code, text = run()
        assert (code, "REINDEX" in text) == (2, True)
        assert list_differences("--table", "ledger_tool") == []
        code, text = run("--check", "--table", "ledger_stop")
        assert f"damaged: ledger_stop index={index}: SQLite reports: row 1 missing" in text
    assert list_differences() == []


def test_what_sqlite_reports_of_no_index_is_named_too(
    inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox.agent.session("s-1")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("PRAGMA ignore_check_constraints = ON")
        cursor.execute("UPDATE agent_sessions_session SET labels = '{'")
        cursor.execute("PRAGMA ignore_check_constraints = OFF")
        tables = {row.table for row in find_damaged_indexes()}
        assert tables == {"agent_sessions_session"}
        transaction.set_rollback(True)
    monkeypatch.setattr(
        "rebuild.damaged_indexes.raw_sql.fetch_rows",
        lambda text: [("Page 7: never used",)] if "PRAGMA" in text else [],
    )
    [row] = find_damaged_indexes()
    assert (row.table, row.key, row.stored) == (DATABASE, {}, "Page 7: never used")
