"""Declared fields: arguments that tools name are found by the search, and only there."""

import re
from html import unescape
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import transaction
from django.urls import reverse

from db.clock import now_us
from investigation.fulltext import field_index, indexer
from investigation.models import FieldCoverage, FieldValue
from investigation.query import execute, facets, result_columns
from investigation.query.autocomplete import complete_query
from investigation.query.column_types import Reader
from investigation.query.parser.ast import QueryError
from journal import running_writers
from ledger.models import Effect
from ledger.tools import cache, registry, tools_yaml
from ledger.tools.argument_values import list_field_values
from tests.api.api_client import Caller
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import url_of
from tests.pages.people import Organization
from tests.pages.sample_data import erase_plan

pytestmark = pytest.mark.django_db
TOOLS = """
tools:
  pay: {class: opaque, fields: {ticket: ticket, account: to.account, order: orders.id}}
  mail: {class: opaque, fields: {ticket: subject_ticket}}
"""


@pytest.fixture
def inbox(
    organization: Organization, agent: Caller, monkeypatch: pytest.MonkeyPatch
) -> InboxScenario:
    scenario = InboxScenario(organization, agent)
    declare(scenario, TOOLS)
    return scenario


def declare(inbox: InboxScenario, text: str) -> None:
    with transaction.atomic():
        registry.declare_tools(inbox.project, tools_yaml.parse_tools_yaml(text))
    cache.clear_tool_cache()


def pay(inbox: InboxScenario, key: str, tool: str = "pay", **arguments: Any) -> Effect:
    effect = inbox.plan(key, tool=tool, arguments=arguments)
    return Effect.objects.get(id=UUID(effect["id"]))


def find(inbox: InboxScenario, query: str, **options: Any) -> list[str]:
    compiled = execute.compile_query(query, inbox.project, now_us(), **options)
    page = execute.load_results(compiled, lambda rows: rows)
    return sorted(getattr(row, "effect_key", str(row)) for row in page.rows)


def notes(inbox: InboxScenario, query: str) -> list[str]:
    return list(execute.compile_query(query, inbox.project, now_us()).notes)


def test_effects_gates_and_sessions_are_found_by_a_declared_field(inbox: InboxScenario) -> None:
    inbox.rules("name: all\nrules:\n- {id: all, title: All, match: {}, outcome: require}\n")
    pay(inbox, "e-1", ticket="OPS-204", to={"account": "DE1"}, orders=[{"id": 7}, {"id": 8}])
    pay(inbox, "e-2", ticket="OPS-205", to={"account": "DE1"})
    pay(inbox, "e-3", "mail", subject_ticket="OPS-204", ticket="OPS-999")
    pay(inbox, "e-4", "undeclared", ticket="OPS-204")
    indexer.update_index()
    assert find(inbox, "field.ticket:OPS-204") == ["e-1", "e-3"]
    assert find(inbox, "field.ticket:OPS-204 tool:pay") == ["e-1"]
    assert find(inbox, "field.ticket:[OPS-204,OPS-205] -tool:mail") == ["e-1", "e-2"]
    assert find(inbox, "field.ticket:OPS-*") == ["e-1", "e-2", "e-3"]
    assert find(inbox, "field.ticket:ops-204") == []
    assert find(inbox, "field.ticket:OPS-999") == []
    assert find(inbox, "field.account:DE1") == ["e-1", "e-2"]
    assert find(inbox, "field.order:8") == ["e-1"]
    assert find(inbox, "has:field.order") == ["e-1"]
    assert find(inbox, "-has:field.ticket") == ["e-4"]
    assert len(find(inbox, "gate field.ticket:OPS-204")) == 2
    assert len(find(inbox, "gate has:field.order")) == 1
    assert len(find(inbox, "session any(effect: field.ticket:OPS-204)")) == 1
    assert find(inbox, 'field.ticket:"OPS-204" since:1h') == ["e-1", "e-3"]
    assert not notes(inbox, "field.ticket:OPS-204")


def test_groups_facets_columns_and_completion_know_declared_fields(inbox: InboxScenario) -> None:
    pay(inbox, "e-1", ticket="OPS-204", orders=[{"id": 7}, {"id": 8}])
    pay(inbox, "e-2", ticket="OPS-204")
    pay(inbox, "e-3", ticket="OPS-205")
    indexer.update_index()
    grouped = execute.compile_query(
        "has:field.ticket | group field.ticket | count", inbox.project, now_us()
    )
    groups = execute.load_results(grouped, lambda rows: rows).groups
    assert groups is not None
    assert list(groups.rows) == [(("OPS-204",), (2,)), (("OPS-205",), (1,))]
    compiled = execute.compile_query("tool:pay", inbox.project, now_us())
    overview = facets.build_overview(compiled, facets.load_overview_sample(compiled))
    shown = {
        facet.field.name: [(value.value, value.count, value.text) for value in facet.values]
        for facet in overview.facets
        if facet.field.name.startswith("field.")
    }
    assert shown["field.ticket"] == [
        ("OPS-204", 2, "tool:pay field.ticket:OPS-204"),
        ("OPS-205", 1, "tool:pay field.ticket:OPS-205"),
    ]
    assert sorted(value for value, _, _ in shown["field.order"]) == ["7", "8"]
    chosen = execute.compile_query("tool:pay field.ticket:OPS-204", inbox.project, now_us())
    overview = facets.build_overview(chosen, facets.load_overview_sample(chosen))
    (facet,) = (facet for facet in overview.facets if facet.field.name == "field.ticket")
    assert [(value.chosen, value.text) for value in facet.values] == [(True, "tool:pay")]
    row = execute.load_results(
        execute.compile_query("field.order:7", inbox.project, now_us()),
        result_columns.prepare_rows("effect"),
    ).rows[0]
    assert result_columns.row_to_json("effect", row, Reader(inbox.project, now_us()))["fields"] == [
        {"field": "order", "value": "7"},
        {"field": "order", "value": "8"},
        {"field": "ticket", "value": "OPS-204"},
    ]
    offered = [option.text for option in complete_query("field.", 6, inbox.project).options]
    assert offered == ["field.account:", "field.order:", "field.ticket:"]
    offered = [option.text for option in complete_query("field.ticket:", 13, inbox.project).options]
    assert offered == ["OPS-205 ", "OPS-204 "]


def test_pages_link_a_declared_field_to_its_search(inbox: InboxScenario) -> None:
    inbox.rules("name: all\nrules:\n- {id: all, title: All, match: {}, outcome: require}\n")
    effect = pay(inbox, "e-1", ticket='O"PS <b>')
    gate = inbox.gate({"id": str(effect.id)})
    indexer.update_index()
    client = inbox.organization.client("reviewer")
    for url in (url_of(gate), reverse("effect", args=[effect.id])):
        html = client.get(url).content.decode()
        link = re.search(
            r'<a href="([^"]*field.ticket[^"]*)"[^>]*>ticket (.*?)</a>', html, re.DOTALL
        )
        assert link, url
        assert "<b>" not in link[2]
        answer = client.get(unescape(link[1]))
        assert str(effect) in answer.content.decode(), link[1]
    tools = client.get(reverse("tools")).content.decode()
    assert "to.account" in tools
    html = client.get(reverse("search"), {"q": "tool:pay"}).content.decode()
    assert "<h2>Ticket</h2>" in html


def test_the_api_returns_and_finds_declared_fields(inbox: InboxScenario) -> None:
    pay(inbox, "e-1", ticket="OPS-204")
    indexer.update_index()
    answer = inbox.agent.get("/search", q="field.ticket:OPS-204").json()
    (row,) = answer["rows"]
    assert row["fields"] == [{"field": "ticket", "value": "OPS-204"}]


def test_an_unknown_or_misspelled_field_is_named(inbox: InboxScenario) -> None:
    (note,) = notes(inbox, "field.tikcet:OPS-204")
    assert "declares the field “tikcet”. Declared are account, order, ticket." in note
    with pytest.raises(QueryError, match=r"Write field\.ticket:value"):
        find(inbox, "ticket:OPS-204")
    with pytest.raises(QueryError, match="cannot be compared"):
        find(inbox, "field.ticket:@tool")
    declare(inbox, "tools: {}")
    (note,) = notes(inbox, "field.ticket:OPS-204")
    assert note.endswith("None is declared.")


def test_entries_that_are_not_indexed_are_counted_in_a_note(inbox: InboxScenario) -> None:
    indexer.update_index()
    pay(inbox, "e-1", ticket="OPS-204")
    compiled = execute.compile_query("field.ticket:OPS-204", inbox.project, now_us())
    assert [index.index for index in compiled.indexes] == ["fields"]
    (note,) = compiled.notes
    assert "1 newer entry is missing" in note


def test_another_declaration_indexes_older_effects_in_batches(
    inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(field_index, "BATCH_EFFECTS", 2)
    for number in range(5):
        pay(inbox, f"e-{number}", ticket=f"OPS-{number}", customer="c-1")
    indexer.update_index()
    assert set(FieldCoverage.objects.values_list("tool", "complete_from")) == {
        ("pay", 0),
        ("mail", 0),
    }
    declare(inbox, "tools: {pay: {class: opaque, fields: {customer: customer}}}")
    with transaction.atomic():  # as at the begin of a run that ends before its first batch
        field_index.begin_changed_tools(running_writers.load_last_position())
    row = FieldCoverage.objects.get(tool="pay")
    with transaction.atomic():
        assert field_index._index_batch(row) == 2
    assert find(inbox, "field.customer:c-1") == ["e-3", "e-4"]
    (note,) = notes(inbox, "field.customer:c-1")
    assert note.startswith("Older effects are still being indexed by customer.")
    assert f"pay (from entry {row.complete_from:,})" in note
    indexer.update_index()
    assert find(inbox, "field.customer:c-1") == [f"e-{n}" for n in range(5)]
    assert not notes(inbox, "field.customer:c-1")
    assert set(FieldValue.objects.values_list("field", flat=True)) == {"customer"}
    declare(inbox, "tools: {}")
    indexer.update_index()
    assert not FieldValue.objects.exists()
    assert not FieldCoverage.objects.exists()


def test_a_field_declared_after_its_plans_finds_them(inbox: InboxScenario) -> None:
    declare(inbox, "tools: {pay: {class: opaque}}")
    pay(inbox, "e-1", ticket="OPS-204")
    indexer.update_index()
    declare(inbox, TOOLS)
    call_command("update_search_index", verbosity=0)
    assert find(inbox, "field.ticket:OPS-204") == ["e-1"]
    FieldValue.objects.all().delete()
    indexer.reset_index()
    indexer.update_index()
    assert find(inbox, "field.ticket:OPS-204") == ["e-1"]


def test_erasing_a_plan_deletes_its_values_at_once_and_for_good(inbox: InboxScenario) -> None:
    first, second = (pay(inbox, key, ticket="OPS-204", n=key) for key in ("e-1", "e-2"))
    indexer.update_index()
    erase_plan(first.id)
    assert list(FieldValue.objects.values_list("position", flat=True)) == [second.opened_position]
    indexer.reset_index()
    indexer.update_index()
    assert find(inbox, "field.ticket:OPS-204") == ["e-2"]
    inbox.agent.dispatch({"id": str(second.id), "intent_digest": second.intent_digest})
    inbox.agent.acknowledge({"id": str(second.id)}, result={"ticket": "OPS-300"})
    indexer.update_index()
    assert find(inbox, "field.ticket:OPS-204") == ["e-2"]
    assert find(inbox, "field.ticket:OPS-300") == []


def test_as_of_an_earlier_moment_later_plans_do_not_count(inbox: InboxScenario) -> None:
    first = pay(inbox, "e-1", ticket="OPS-204")
    pay(inbox, "e-2", ticket="OPS-204")
    indexer.update_index()
    assert find(inbox, f"field.ticket:OPS-204 asof:#{first.plan_position}") == ["e-1"]
    assert find(inbox, f"gate field.ticket:OPS-204 asof:#{first.plan_position}") == []


def test_other_projects_are_not_found(inbox: InboxScenario) -> None:
    pay(inbox, "e-1", ticket="OPS-204")
    indexer.update_index()
    other = inbox.organization.other
    compiled = execute.compile_query("field.ticket:OPS-204", other, now_us())
    assert execute.load_results(compiled, lambda rows: rows).rows == []
    assert "None is declared" in compiled.notes[0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"ticket": " OPS-1\n OPS-2 "}, [("ticket", "OPS-1 OPS-2")]),
        ({"ticket": "[redacted:token:0123456789ab]"}, []),
        ({"ticket": ["a", "a", 7, True, None, ""]}, [("ticket", x) for x in ("a", "7", "true")]),
        ({"ticket": "x" * 300}, [("ticket", "x" * 200)]),
        ({"ticket": "a\0b"}, [("ticket", "ab")]),
        ({"ticket": {"id": 1}}, []),
        ("text", []),
        (None, []),
    ],
)
def test_values_are_short_single_lines_without_secrets(arguments: Any, expected: Any) -> None:
    assert list(list_field_values({"ticket": "ticket"}, arguments)) == expected


def test_indexing_costs_no_query_for_effects_where_no_tool_has_fields(
    inbox: InboxScenario, django_assert_num_queries: Any
) -> None:
    declare(inbox, "tools: {}")
    indexer.update_index()
    rows = [field_index.EffectFields("a", "b", "pay", 1, 1, ())]
    with django_assert_num_queries(0):
        field_index.store_field_values(rows, {})
