"""Reading rules: complete and canonical if valid, refused with their line if not."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from approvals.gates import statuses
from approvals.policies import policies_yaml
from approvals.policies.editor_schema import build_policies_schema
from approvals.policies.engine import DEFAULT_REQUIREMENT, Requirement, compile_rules
from approvals.policies.policies_yaml import DocumentError

EXAMPLE = (Path(settings.BASE_DIR) / "docs" / "examples" / "policies.yaml").read_text()


class Editor(yaml.SafeLoader):
    """YAML as editors read it, with `on` as a string."""

    yaml_implicit_resolvers = {
        sign: [(tag, form) for tag, form in resolvers if not tag.endswith(":bool") or sign in "tf"]
        for sign, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


RULE = """name: basic
rules:
  - id: push
    title: A push
    match: {{tools: [git.push]{match}}}
    outcome: {outcome}
{more}"""


def rule(match: str = "", outcome: str = "require", more: str = "") -> str:
    return RULE.format(match=match and f", {match}", outcome=outcome, more=more and f"    {more}\n")


def hours(fields: str) -> str:
    return f"name: basic\nhours: {{{fields}}}\nrules: []\n"


def only(text: str) -> dict[str, Any]:
    parsed: dict[str, Any] = policies_yaml.parse_policies(text)["rules"][0]
    return parsed


def test_the_example_is_read() -> None:
    read = policies_yaml.parse_policies(EXAMPLE)
    assert read["name"] == "acme"
    assert [entry["outcome"] for entry in read["rules"]] == [
        "deny",
        "deny",
        "require",
        "require",
        "allow",
        "allow",
        "allow",
    ]


def test_a_rule_that_requires_people_gets_default_fields() -> None:
    assert only(rule())["require"] == DEFAULT_REQUIREMENT.as_dict()
    assert only(rule(outcome="allow"))["require"] is None


def test_every_field_of_a_requirement_is_read() -> None:
    more = (
        "require: {teams: [leads, ops], people: [ada], minimum: 2,"
        " distinct_from: [agent_owner, requester, session_owner],"
        " step_up: typed_digest, deny_threshold: 3, decide_within: 2h, valid_for: 90,"
        " rationale: {on: always, minimum_characters: 25, ticket: 'INC-*'}}"
    )
    required = Requirement.of(only(rule(more=more))["require"])
    assert required == Requirement(
        teams=("leads", "ops"),
        people=("ada",),
        minimum=2,
        step_up="typed_digest",
        deny_threshold=3,
        rationale="always",
        rationale_characters=25,
        ticket="INC-*",
        decide_within_s=7200,
        valid_for_s=90,
    )
    assert required.hash == Requirement.of(required.as_dict()).hash != DEFAULT_REQUIREMENT.hash


def test_every_condition_is_read_and_put_in_order() -> None:
    match = (
        "session_effects_over: 200, rate: {per: agent, over: 5, within_s: 1h},"
        " risk_at_least: medium, risk_at_most: high,"
        " arguments: [{path: a.0.b, lt: 1.5}, {path: to, cidr: 10.0.0.0/8}], labels: {z: '1', "
        "team: web},"
        " reversibility: [irreversible, read], ref_classes: [protected, production], refs: [main, "
        "main, 'v*'],"
        " operations: [push], repositories: [web], environments: [prod*], resources: ['db/*'], "
        "agents: ['deploy-?']"
    )
    conditions = only(rule(match))["match"]
    assert list(conditions) == [
        *("tools", "operations", "repositories", "refs", "environments", "resources", "agents"),
        *("ref_classes", "reversibility", "risk_at_least", "risk_at_most"),
        *("labels", "arguments", "rate", "session_effects_over"),
    ]
    assert conditions["refs"] == ["main", "v*"]
    assert conditions["ref_classes"] == ["production", "protected"]
    assert conditions["rate"] == {"over": 5, "within_s": 3600, "per": "agent"}
    assert conditions["arguments"] == [
        {"path": "a.0.b", "lt": 1.5},
        {"path": "to", "cidr": ["10.0.0.0/8"]},
    ]
    assert list(conditions["labels"]) == ["team", "z"]


def test_the_same_rules_written_otherwise_are_the_same() -> None:
    text = rule("refs: [main], ref_classes: [protected, production]")
    other = (
        text.replace("[protected, production]", "[production, protected]").replace(
            "A push", '"A push"'
        )
        + "# same\n"
    )
    assert policies_yaml.parse_policies(text) == policies_yaml.parse_policies(other)


def test_hours_are_read_as_they_are_written() -> None:
    parsed = policies_yaml.parse_policies(
        hours("zone: Europe/Berlin, to: 18:00, from: '08:00', days: [fri, mon, fri]")
    )["hours"]
    assert parsed == {
        "zone": "Europe/Berlin",
        "days": ["mon", "fri"],
        "from": "08:00",
        "to": "18:00",
    }
    assert (
        policies_yaml.parse_policies(hours("zone: UTC, days: [sun], from: 00:00, to: 24:00"))[
            "hours"
        ]["to"]
        == "24:00"
    )
    assert policies_yaml.parse_policies("name: basic\nrules: []\n")["hours"] is None


def test_self_approval_is_valid_only_in_rules_of_low_risk() -> None:
    own = only(rule("risk_at_most: low", more="require: {self_approval: true}"))["require"]
    assert (own["self_approval"], own["distinct_from"]) == (True, [])
    partly = only(
        rule(
            "risk_at_most: low", more="require: {self_approval: true, distinct_from: [agent_owner]}"
        )
    )
    assert partly["require"]["distinct_from"] == ["agent_owner"]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "empty"),
        ("- a\n", 1, "the file must be a mapping"),
        ("name: basic\n", 1, "`rules` is missing"),
        ("rules: []\n", 1, "`name` is missing"),
        ("name: Basic\nrules: []\n", 1, "a-z, 0-9 and -"),
        (f"name: {'x' * 25}\nrules: []\n", 1, "24 characters"),
        ("name: basic\nrules: []\nrulez: []\n", 3, "did you mean `rules`?"),
        ("name: basic\nname: basic\nrules: []\n", 2, "`name` twice"),
        ("name: [a\n", 2, "not YAML"),
        ("name: basic\nrules: []\n---\nname: other\n", 3, "not YAML"),
        ("name: basic\nrules: &all []\nmore: *all\n", 3, "aliases are not supported"),
        ("name: basic\nrules: !!python/object:os.system []\n", 2, "rules"),
        ("name: basic\x07\n", 1, "character"),
        ("name: basic\nrules: {}\n", 2, "`rules` must be a list"),
        (hours("zone: UTC, days: [mon], from: 08:00"), 2, "`hours` has no `to`"),
        (hours("zone: Berlin, days: [mon], from: 08:00, to: 18:00"), 2, "'Berlin' is unknown"),
        (hours("zone: ../UTC, days: [mon], from: 08:00, to: 18:00"), 2, "is unknown"),
        (hours("zone: UTC, days: [], from: 08:00, to: 18:00"), 2, "is empty"),
        (hours("zone: UTC, days: [monday], from: 08:00, to: 18:00"), 2, "choose one of mon"),
        (hours("zone: UTC, days: [mon], from: 8:00, to: 18:00"), 2, "a time such as 08:00"),
        (hours("zone: UTC, days: [mon], from: 08:00, to: 24:01"), 2, "a time such as 08:00"),
        (
            hours("zone: UTC, days: [mon], from: 22:00, to: 06:00"),
            2,
            "must end later on the same day",
        ),
        (hours("zone: UTC, days: [mon], from: 08:00, until: 18:00"), 2, "unknown key 'until'"),
        ("name: basic\nrules:\n  - title: x\n", 3, "no `id`"),
        ("name: basic\nrules:\n  - {id: a, match: {}, outcome: allow}\n", 3, "no `title`"),
        ("name: basic\nrules:\n  - {id: a, title: A, outcome: allow}\n", 3, "write `match: {}`"),
        (
            rule() + "  - {id: push, title: B, match: {}, outcome: deny}\n",
            7,
            "defined twice, first on line 3",
        ),
        (rule(outcome="forbid"), 6, "'forbid'; choose one of allow, deny, require"),
        (rule(outcome="deny", more="require: {minimum: 2}"), 7, "never asks, so it cannot have"),
        (rule(outcome="allow", more="require: {minimum: 2}"), 7, "never asks, so it cannot have"),
        (
            rule(outcome="deny", more="same_call_unknown: ask"),
            7,
            "only `allow` can have `same_call_unknown`",
        ),
        (
            rule(outcome="require", more="same_call_unknown: ask"),
            7,
            "only `allow` can have `same_call_unknown`",
        ),
        (rule(outcome="allow", more="same_call_unknown: deny"), 7, "same_call_unknown of rule"),
        (rule("tool: [x]"), 5, "did you mean `tools`?"),
        (rule("refs: main"), 5, "must be a list"),
        (rule("refs: []"), 5, "is empty; remove it instead"),
        (rule("refs: [1]"), 5, "must be text; put it in quotes"),
        (rule("refs: [no]"), 5, "must be text; put it in quotes"),
        (
            rule("refs: ['a\\u202eb']").replace("'a\\u202eb'", '"a\\u202Eb"'),
            5,
            "invisible character",
        ),
        (rule("ref_classes: [live]"), 5, "'live'; choose one of production"),
        (rule("reversibility: [final]"), 5, "choose one of read"),
        (rule("risk_at_least: extreme"), 5, "choose one of low"),
        (rule("risk_at_least: high, risk_at_most: low"), 5, "which is empty"),
        (rule("labels: {}"), 5, "1 to 100 labels"),
        (rule("labels: {1: x}"), 5, "must be text"),
        (rule("arguments: [{eq: true}]"), 5, "no `path`"),
        (rule("arguments: [{path: a}]"), 5, "exactly one of eq"),
        (rule("arguments: [{path: a, eq: 1, lt: 2}]"), 5, "it has eq and lt"),
        (rule("arguments: [{path: a..b, eq: 1}]"), 5, "empty step"),
        (rule("arguments: [{path: a, equals: 1}]"), 5, "unknown key 'equals'"),
        (rule("arguments: [{path: a, eq: yes}]"), 5, "quote text"),
        (rule("arguments: [{path: a, eq: 1:30}]"), 5, "quote text"),
        (rule("arguments: [{path: a, eq: 2026-11-20}]"), 5, "quote text"),
        (rule("arguments: [{path: a, eq: .inf}]"), 5, "quote text"),
        (rule("arguments: [{path: a, eq: 9007199254740993}]"), 5, "decimal number"),
        (rule("arguments: [{path: a, eq: [1]}]"), 5, "must be text"),
        (rule("arguments: [{path: a, lt: '5'}]"), 5, "must be a number"),
        (rule("arguments: [{path: a, lt: true}]"), 5, "must be a number"),
        (rule("arguments: [{path: a, exists: 1}]"), 5, "true or false"),
        (rule("arguments: [{path: a, prefix: ''}]"), 5, "must be text"),
        (rule("arguments: [{path: a, cidr: 10.0.0.1/8}]"), 5, "host bits set"),
        (rule("rate: {over: 5, within_s: 60}"), 5, "no `per`"),
        (rule("rate: {over: 0, within_s: 60, per: tool}"), 5, "from 1"),
        (rule("rate: {over: 0x10, within_s: 60, per: tool}"), 5, "whole number"),
        (rule("rate: {over: 5, within_s: 60d, per: tool}"), 5, "at most 2592000 seconds"),
        (rule("rate: {over: 5, within_s: 60, per: people}"), 5, "choose one of tool"),
        (rule("session_effects_over: 1.5"), 5, "whole number"),
        (rule(more="require: {minimum: 0}"), 7, "from 1 to 20"),
        (rule(more="require: {teams: leads}"), 7, "must be a list"),
        (rule(more="require: {people: [ada], minimum: 2}"), 7, "names only 1"),
        (rule(more="require: {step_up: password}"), 7, "choose one of none"),
        (rule(more="require: {decide_within: 31d}"), 7, "at most 2592000"),
        (rule(more="require: {decide_within: 1:30}"), 7, "such as 10m"),
        (rule(more="require: {valid_for: 2d}"), 7, "at most 86400"),
        (rule(more="require: {valid_for: 0}"), 7, "such as 10m"),
        (rule(more="require: {rationale: {minimum_characters: 5}}"), 7, "no `on`"),
        (rule(more="require: {rationale: {on: none, ticket: X-*}}"), 7, "remove its other keys"),
        (
            rule(more="require: {rationale: {on: always, minimum_characters: 501}}"),
            7,
            "from 1 to 500",
        ),
        (rule(more="require: {distinct_from: [requester]}"), 7, "unless self_approval is true"),
        (rule(more="require: {self_approval: true}"), 7, "risk_at_most: low"),
        (
            rule("risk_at_most: medium", more="require: {self_approval: true}"),
            7,
            "risk_at_most: low",
        ),
        (rule(more="require: {approvers: [ada]}"), 7, "unknown key 'approvers'"),
        (rule(more="require: {evidence: {}}"), 7, "requires nothing; name one of ticket, removed"),
        (rule(more="require: {evidence: {tickets: A}}"), 7, "unknown key 'tickets'"),
        (rule(more="require: {evidence: {ticket: '*'}}"), 7, "matches every word"),
        (rule(more="require: {evidence: {ticket: 'OPS *'}}"), 7, "must match one word"),
        (rule(more="require: {evidence: {plan_hash: false}}"), 7, "can only be true"),
        (rule(more="require: {evidence: {row_count: 3}}"), 7, "row_count"),
        (rule(more="require: {evidence: {arguments: []}}"), 7, "arguments"),
        (rule(more="require: {evidence: {arguments: [a..b]}}"), 7, "empty step between its dots"),
        (rule(more="require: {proof_on_warning: none}"), 7, "proof_on_warning"),
        (rule(more="require: {proof_on_warning: password}"), 7, "typed_name"),
        ("name: basic\nrules: [" + "[" * 3000, 1, "YAML"),
        ("#" * (policies_yaml.MAX_BYTES + 1), 1, "larger than"),
    ],
)
def test_a_document_that_is_not_understood_is_refused_with_its_line(
    text: str, line: int, words: str
) -> None:
    with pytest.raises(DocumentError) as refused:
        policies_yaml.parse_policies(text)
    assert words in refused.value.sentence
    assert refused.value.line == line or "YAML" in words
    assert str(refused.value).startswith(f"Line {refused.value.line}: ")


def test_more_rules_than_anybody_reads_are_refused() -> None:
    many = "\n".join(
        f"  - {{id: r{n}, title: R, match: {{}}, outcome: deny}}"
        for n in range(policies_yaml.MAX_RULES + 1)
    )
    with pytest.raises(DocumentError, match="500 is the most"):
        policies_yaml.parse_policies(f"name: basic\nrules:\n{many}\n")


def test_no_rule_gives_a_gate_more_time_than_the_schema_allows() -> None:
    longest = only(rule(more="require: {decide_within: 30d, valid_for: 24h}"))["require"]
    assert longest["decide_within_s"] == statuses.MAX_DECIDE_WITHIN_S
    assert longest["valid_for_s"] == statuses.MAX_VALID_FOR_S


def test_evidence_and_proof_are_read_and_kept_only_where_they_are_given() -> None:
    more = "require: {evidence: {ticket: 'OPS-*', row_count: true, arguments: [a.b, a.b]}, "
    read = only(rule(more=more + "proof_on_warning: typed_name}"))["require"]
    assert read["evidence"] == {"tickets": ["OPS-*"], "row_count": True, "arguments": ["a.b"]}
    assert read["proof_on_warning"] == "typed_name"
    assert Requirement.of(read).as_dict() == read
    assert only(rule(more="require: {minimum: 1}"))["require"] == DEFAULT_REQUIREMENT.as_dict()


def test_the_schema_for_editors_is_the_readers() -> None:
    stored = json.loads((Path(settings.BASE_DIR) / "docs" / "policies.schema.json").read_text())
    assert stored == build_policies_schema()
    editor = jsonschema_rs.Draft202012Validator(stored)
    assert editor.is_valid(yaml.load(EXAMPLE, Editor))  # noqa: S506 - fewer spellings of true
    assert editor.is_valid(
        yaml.load(hours("zone: UTC, days: [mon], from: '08:00', to: '24:00'"), Editor)  # noqa: S506
    )
    for text in (
        hours("zone: UTC, days: [mon], from: '8:00', to: '18:00'"),
        hours("zone: UTC, days: [], from: '08:00', to: '18:00'"),
        rule("tool: [x]"),
        rule("refs: []"),
        rule(more="require: {evidence: {}}"),
        rule(more="require: {evidence: {ticket: '*'}}"),
        rule(more="require: {evidence: {plan_hash: false}}"),
        rule(more="require: {evidence: {arguments: [a..b]}}"),
        rule(more="require: {proof_on_warning: none}"),
        rule(outcome="deny", more="require: {}"),
        "name: Basic\nrules: []",
    ):
        assert not editor.is_valid(yaml.load(text, Editor)), text  # noqa: S506 - as above


@given(st.integers(0, len(EXAMPLE)), st.integers(0, 40), st.text(max_size=8))
def test_a_text_is_read_or_refused_and_never_anything_else(at: int, cut: int, put: str) -> None:
    refused: DocumentError | None = None
    try:
        read = policies_yaml.parse_policies(EXAMPLE[:at] + put + EXAMPLE[at + cut :])
    except DocumentError as error:
        refused = error
    if refused is None:
        assert len(compile_rules(read).rules) == len(read["rules"])
    else:
        assert refused.line >= 1
        assert refused.sentence.endswith((".", "?"))
