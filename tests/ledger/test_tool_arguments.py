"""What a declaration says about arguments: the reader, raises by condition, and dot paths."""

import json
from typing import Any

import pytest
from django.db import transaction

from accounts import projects
from db.yaml_reader import DocumentError
from journal.models import Body, Entry
from ledger.models import Tool
from ledger.tools import cache, registry
from ledger.tools.argument_values import list_argument_values
from ledger.tools.raises import (
    NOTHING_RAISED,
    compile_raises,
    describe_predicate,
    evaluate_raises,
)
from ledger.tools.tools_yaml import ToolDeclaration, parse_tools_yaml

HEAD = "tools:\n  cluster.resize:\n    class: idempotent\n    reversibility: compensable\n"
DELETES = {"path": "delete_volumes", "eq": True, "reversibility": "irreversible"}
MANY = {"path": "nodes", "gt": 10, "risk": "critical"}


def read(lines: str, head: str = HEAD) -> ToolDeclaration:
    (declaration,) = parse_tools_yaml(f"{head}    {lines}\n")
    return declaration


def test_a_declaration_names_telling_arguments_fields_and_raises() -> None:
    tool = read(
        "telling: [cluster, spec.name]\n"
        "    fields: {ticket: ticket, account: destination.account}\n"
        "    raises:\n"
        "    - {path: delete_volumes, eq: true, reversibility: irreversible}\n"
        "    - {path: nodes, gt: 10, risk: critical}\n"
    )
    assert tool.telling == ["cluster", "spec.name"]
    assert tool.fields == {"account": "destination.account", "ticket": "ticket"}
    assert tool.raises == [DELETES, MANY]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("telling: []", "is empty"),
        ("telling: cluster", "must be a list"),
        ("telling: [a, a]", "names 'a' twice"),
        ("telling: [a..b]", "has an empty step"),
        ("telling: [a, b, c, d, e, f, g]", "7 items; 6 is the most"),
        ("fields: {}", "must name 1 to 16 fields"),
        ("fields: {Ticket: a}", "'Ticket' in fields of tool 'cluster.resize' must be"),
        ("fields: {ticket: 7}", "must be text"),
        ("raises: [{path: a, eq: 1}]", "raises nothing"),
        ("raises: [{eq: 1, risk: high}]", "has no `path`"),
        ("raises: [{path: a, risk: high}]", "it has none"),
        ("raises: [{path: a, eq: 1, ne: 2, risk: high}]", "it has eq and ne"),
        ("raises: [{path: a, eq: 1, risc: high}]", "did you mean `risk`?"),
        ("raises: [{path: a, eq: 1, risk: low}]", "low risk raises nothing"),
        ("raises: [{path: a, eq: 1, risk: awful}]", "choose one of low, medium, high"),
        (
            "raises: [{path: a, eq: 1, reversibility: reversible}]",
            "is compensable, and a condition can only raise; choose one of irreversible.",
        ),
        (
            "raises: [{path: a, eq: 1, reversibility: compensable}]",
            "is already compensable; choose one of irreversible.",
        ),
        ("raises: [{path: a, eq: 1, class: read_only}]", "a condition can only raise"),
    ],
)
def test_the_reader_refuses_with_a_sentence(line: str, problem: str) -> None:
    with pytest.raises(DocumentError, match="Line 5") as fault:
        read(line)
    assert problem in str(fault.value)


def test_a_read_only_tool_is_raised_in_class_and_reversibility_together() -> None:
    head = "tools:\n  http.request:\n    class: read_only\n"
    for words in ("class: opaque", "reversibility: irreversible"):
        with pytest.raises(DocumentError, match="must raise class and reversibility together"):
            read(f"raises: [{{path: method, ne: GET, {words}}}]", head)
    tool = read(
        "raises: [{path: method, ne: GET, class: opaque, reversibility: irreversible}]", head
    )
    assert tool.reversibility == "read"


@pytest.mark.parametrize(
    ("arguments", "reversibility", "risk", "reasons"),
    [
        ({}, "", "", ()),
        ({"delete_volumes": False, "nodes": 10}, "", "", ()),
        (
            {"delete_volumes": True},
            "irreversible",
            "",
            (("irreversible", "delete_volumes is true"),),
        ),
        ({"nodes": 11}, "", "critical", (("critical risk", "nodes is above 10"),)),
        (
            {"delete_volumes": "yes"},
            "irreversible",
            "",
            (
                (
                    "irreversible",
                    "delete_volumes cannot be compared: it is text where the rule has true or"
                    " false",
                ),
            ),
        ),
        (
            None,
            "irreversible",
            "critical",
            (
                ("irreversible", "the arguments are not known"),
                ("critical risk", "the arguments are not known"),
            ),
        ),
    ],
)
def test_conditions_raise_and_what_cannot_be_compared_raises(
    arguments: Any, reversibility: str, risk: str, reasons: Any
) -> None:
    raised = evaluate_raises(compile_raises([DELETES, MANY]), arguments)
    assert (raised.reversibility, raised.risk, raised.reasons) == (reversibility, risk, reasons)
    assert (raised is NOTHING_RAISED) == (not reasons)


def test_the_worst_of_several_conditions_counts_and_a_broken_one_is_the_worst() -> None:
    mild = {"path": "a", "eq": 1, "reversibility": "compensable", "class": "probeable"}
    grave = {"path": "b", "exists": True, "reversibility": "irreversible"}
    raised = evaluate_raises(compile_raises([mild, grave]), {"a": 1, "b": 2})
    assert (raised.tool_class, raised.reversibility) == ("probeable", "irreversible")
    assert raised.reasons == (("class probeable", "a is 1"), ("irreversible", "b is given"))
    for broken in ({}, {"path": "a"}, {"path": "a", "eq": 1, "class": "laxest"}):
        worst = evaluate_raises(compile_raises([broken]), {})
        assert (worst.tool_class, worst.risk) == ("opaque", "critical")


def test_a_raised_declaration_is_never_laxer() -> None:
    declared = cache.CachedDeclaration(
        "transactional", 300, "irreversible", probe=True, undo="key"
    )._replace(
        raises=compile_raises(
            [
                {"path": "a", "eq": 1, "class": "idempotent", "reversibility": "reversible"},
                {"path": "b", "eq": 1, "class": "opaque"},
            ]
        )
    )
    raised = declared.raise_by_arguments({"a": 1})
    assert (raised.tool_class, raised.reversibility) == ("transactional", "irreversible")
    opaque = declared.raise_by_arguments({"b": 1})
    assert opaque.policy_tool_class == "opaque/irreversible"
    assert (opaque.means.probe, opaque.means.cancel_by) == (False, "")
    assert declared.raise_by_arguments({}) == declared


@pytest.mark.parametrize(
    ("predicate", "sentence"),
    [
        ({"path": "a", "eq": True}, "a is true"),
        ({"path": "a.b", "in": ["x", "y"]}, "a.b is one of x, y"),
        ({"path": "a", "exists": False}, "a is missing"),
        ({"path": "a", "lte": 2.5}, "a is at most 2.5"),
        ({"path": "a", "eq": None}, "a is null"),
        ({"path": "a", "cidr": ["10.0.0.0/8"]}, "a is an address in 10.0.0.0/8"),
    ],
)
def test_predicates_are_described(predicate: dict[str, Any], sentence: str) -> None:
    assert describe_predicate(predicate) == sentence


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("ticket", ["OPS-1"]),
        ("orders.id", [1, 2]),
        ("orders.1.id", [2]),
        ("orders.9.id", []),
        ("tags", ["a", "b"]),
        ("nested", []),
        ("missing.path", []),
        ("flag", [False]),
        ("none", []),
    ],
)
def test_a_path_goes_through_lists(path: str, values: list[Any]) -> None:
    arguments = {
        "ticket": "OPS-1",
        "orders": [{"id": 1}, {"id": 2}],
        "tags": ["a", "", "b"],
        "nested": {"x": 1},
        "flag": False,
        "none": None,
    }
    assert list_argument_values(arguments, path) == values


def test_a_path_reads_a_bounded_number_of_values() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    assert list_argument_values({"a": deep}, "a") == []
    assert len(list_argument_values({"a": list(range(5000))}, "a")) == 20
    assert list_argument_values([1, 2], "a") == []


@pytest.mark.django_db
def test_declared_tools_keep_their_arguments_in_rows_and_journal() -> None:
    project = projects.ensure_default_project()
    declaration = read("telling: [cluster]")
    with transaction.atomic():
        registry.declare_tools(project, [declaration])
    row = Tool.objects.get(project=project)
    assert (row.telling, row.fields, row.raises) == (["cluster"], {}, [])
    changed = read("raises: [{path: delete_volumes, eq: true, reversibility: irreversible}]")
    with transaction.atomic():
        change = registry.declare_tools(project, [changed])
    assert change.changed == ["cluster.resize"]
    entry = Entry.objects.filter(kind="admin.tools_loaded").latest("position")
    (stated,) = json.loads(Body.objects.get(entry=entry).text)["tools"]
    assert (stated["raises"], stated["telling"], stated["fields"]) == ([DELETES], [], {})
    cache.clear_tool_cache()
    tool = cache.load_tool(project.id, "cluster.resize")
    assert tool.raise_by_arguments({"delete_volumes": True}).reversibility == "irreversible"
    with transaction.atomic():
        assert not registry.declare_tools(project, [changed])
