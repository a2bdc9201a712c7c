"""Completions count the values of the newest rows, with few queries that an index serves."""

from itertools import pairwise

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from db.clock import now_us
from investigation.query import execute
from investigation.query.autocomplete import complete_query
from investigation.query.entity_registry import ENTITIES
from ledger.models import Effect
from tests.pages.plans import explained
from tests.query.incident import Scenario

pytestmark = pytest.mark.django_db
MOST_QUERIES = 4
COUNTED = (
    *("effect state:", "effect outcome:", "effect permission:", "effect tool:", "effect rule:"),
    *("effect agent:", "effect repository:", "effect session:", "effect environment:"),
    *("session status:", "session mode:", "session agent:", "session repository:"),
    *("gate status:", "gate risk:", "gate agent:", "gate session:", "event lane:"),
)


def read_counts(text: str, scenario: Scenario) -> list[tuple[str, int]]:
    """Return the options of a field's values with their counts, 0 without one."""
    options = complete_query(text, len(text), scenario.inbox.project).options
    counts = [
        int(option.help.partition(" of the newest ")[0]) if "of the newest" in option.help else 0
        for option in options
    ]
    return list(zip((option.text.strip() for option in options), counts, strict=True))


def test_values_are_counted_as_the_search_counts_them(scenario: Scenario) -> None:
    for field in COUNTED:
        counts = read_counts(field, scenario)
        if field != "effect environment:":  # No effect of the scenario has one.
            assert any(count for _, count in counts), field
        assert all(more >= less for (_, more), (_, less) in pairwise(counts)), field
        for value, count in counts:
            compiled = execute.compile_query(f"{field}{value}", scenario.inbox.project, now_us())
            assert execute.count_matches(compiled) == (count, False), (field, value)


def test_a_typed_value_and_a_computed_one_keep_their_descriptions(scenario: Scenario) -> None:
    (option,) = complete_query("state:await", 11, scenario.inbox.project).options
    assert option.help.endswith(" of the newest 1,000 effects, awaiting approval")
    # A value that is no column of the row, and a name in related rows, have no count.
    for text in ("gate ruling:", "reviewer:", "event actor:", "duplicate:"):
        assert all(count == 0 for _, count in read_counts(text, scenario)), text


def test_completions_read_few_rows_by_an_index(scenario: Scenario) -> None:
    project = scenario.inbox.project
    for entity in ENTITIES.values():
        for name in entity.fields:
            text = f"{entity.name} {name}:"
            with CaptureQueriesContext(connection) as queries:
                complete_query(text, len(text), project)
            assert len(queries) <= MOST_QUERIES, text
            assert all("LIMIT" in query["sql"] or " IN (" in query["sql"] for query in queries)
    if connection.vendor != "sqlite":
        return  # PostgreSQL sorts tables of so few rows.
    for field in COUNTED:
        with explained() as plans:
            complete_query(field, len(field), project)
        newest = [plan for sql, plan in plans.items() if "LIMIT 1000" in sql]
        assert newest, field
        assert not any("TEMP B-TREE" in plan for plan in newest), (field, newest)


def test_only_the_newest_rows_are_counted(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("investigation.query.recent_values.RECENT_ROWS", 2)
    newest = Effect.objects.order_by("-opened_position").values_list("tool", flat=True)[:2]
    assert sum(count for _, count in read_counts("tool:", scenario)) == len(newest)
