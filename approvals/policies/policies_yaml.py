"""Strict reader of policies.yaml: any fault refuses the whole file, with its line.

The result is complete and canonical: defaults are written out, so that a loaded rule keeps its
meaning when defaults change. docs/reference/policies.md describes the language;
docs/examples/policies.yaml is an example.
"""

import re
import zoneinfo
from collections.abc import Callable
from typing import Any, Final

from yaml.nodes import Node, ScalarNode

from accounts.models import REF_CLASSES
from approvals.gates import statuses
from approvals.policies.engine import (
    DEFAULT_REQUIREMENT,
    NO_EVIDENCE,
    REQUEST_PARTIES,
    WARNED_PROOFS,
    RequiredEvidence,
    Requirement,
)
from approvals.policies.working_hours import WEEKDAYS, parse_clock_time
from db import yaml_reader
from db.yaml_reader import DocumentError, make_document_error
from ledger.states import REVERSIBILITIES
from ledger.tools import predicates_yaml

__all__ = ["DocumentError", "parse_policies"]

MAX_BYTES: Final = 256 * 1024
MAX_RULES: Final = 500
MAX_ITEMS: Final = 100  # of any list in a rule
LONGEST_GLOB: Final = 200
MAX_PEOPLE: Final = 20
MAX_RATE: Final = 10_000
LONGEST_WINDOW_S: Final = 30 * 24 * 3600
LONGEST_RATIONALE: Final = 500
OUTCOMES: Final = ("allow", "deny", "require")
WINDOWS: Final = ("tool", "agent", "session", "project")
NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,23}")
RULE_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
CLOCK: Final = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]|24:00")

TOP_KEYS: Final = ("name", "rules")
MORE_KEYS: Final = ("hours",)
HOURS_KEYS: Final = ("zone", "days", "from", "to")
RULE_KEYS: Final = ("id", "title", "match", "outcome", "same_call_unknown", "require", "exemptible")
EXEMPTIBLE: Final = ("never", "reversible", "irreversible")
SAME_CALL_UNKNOWN: Final = ("ask",)
GLOBS: Final = (
    "tools",
    "operations",
    "repositories",
    "refs",
    "environments",
    "resources",
    "agents",
)
CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "ref_classes": REF_CLASSES,
    "reversibility": REVERSIBILITIES,
}
RISK_KEYS: Final = ("risk_at_least", "risk_at_most")
MATCH_KEYS: Final = (
    *GLOBS,
    *CHOICES,
    *RISK_KEYS,
    "labels",
    "arguments",
    "rate",
    "session_effects_over",
)
RATE_KEYS: Final = ("over", "within_s", "per")
REQUIRE_KEYS: Final = (
    "teams",
    "people",
    "minimum",
    "distinct_from",
    "step_up",
    "deny_threshold",
    "rationale",
    "decide_within",
    "valid_for",
    "self_approval",
    "evidence",
    "proof_on_warning",
)
EVIDENCE_FLAGS: Final = ("removed_commits", "plan_hash", "row_count")
EVIDENCE_KEYS: Final = ("ticket", *EVIDENCE_FLAGS, "arguments")
RATIONALE_KEYS: Final = ("on", "minimum_characters", "ticket")


def parse_policies(text: str) -> dict[str, Any]:
    """Parse `text` into {"name", "hours", "rules": [...]}. Raises DocumentError.

    Each rule is {"id", "title", "match", "outcome", "require"}. `hours` is None or {"zone", "days",
    "from", "to"}. `match` holds the given conditions; `require` is None or every field of a
    Requirement. A rule has `same_call_unknown` only if it was given.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise DocumentError(1, f"the text is larger than {MAX_BYTES // 1024} KiB.")
    root = yaml_reader.compose_yaml(text)
    top = yaml_reader.expect_mapping(root, "the file", (*TOP_KEYS, *MORE_KEYS))
    for key in TOP_KEYS:
        if key not in top:
            raise make_document_error(root, f"the key `{key}` is missing.")
    name = _matching_text(top["name"], "`name`", NAME, "1 to 24 characters of a-z, 0-9 and -")
    hours = _hours(top["hours"]) if "hours" in top else None
    rules: list[dict[str, Any]] = []
    lines: dict[str, int] = {}
    for node in yaml_reader.expect_sequence(top["rules"], "`rules`", MAX_RULES, least=0):
        rule = _rule(node)
        if rule["id"] in lines:
            raise make_document_error(
                node, f"rule {rule['id']!r} is defined twice, first on line {lines[rule['id']]}."
            )
        lines[rule["id"]] = yaml_reader.get_node_line(node)
        rules.append(rule)
    return {"name": name, "hours": hours, "rules": rules}


def _hours(node: Node) -> dict[str, Any]:
    """Parse working hours; YAML reads 18:00 as a number in base 60."""
    fields = yaml_reader.expect_mapping(node, "`hours`", HOURS_KEYS)
    for key in HOURS_KEYS:
        if key not in fields:
            raise make_document_error(node, f"`hours` has no `{key}`.")
    zone = yaml_reader.expect_text(fields["zone"], "`zone` of `hours`", 64)
    if zone not in zoneinfo.available_timezones():
        raise make_document_error(
            fields["zone"], f"the zone {zone!r} is unknown; write it as Europe/Berlin or UTC."
        )
    days = [
        yaml_reader.expect_choice(item, "`days` of `hours`", WEEKDAYS)
        for item in yaml_reader.expect_sequence(fields["days"], "`days`", len(WEEKDAYS))
    ]
    begin, end = (
        _matching_text(fields[key], f"`{key}` of `hours`", CLOCK, "a time such as 08:00")
        for key in ("from", "to")
    )
    if parse_clock_time(begin) >= parse_clock_time(end):
        raise make_document_error(
            fields["to"],
            f"`hours` begin at {begin} and end at {end}; they must end later on the same day.",
        )
    return {
        "zone": zone,
        "days": [day for day in WEEKDAYS if day in days],
        "from": begin,
        "to": end,
    }


def _rule(node: Node) -> dict[str, Any]:
    fields = yaml_reader.expect_mapping(node, "a rule", RULE_KEYS)
    if "id" not in fields:
        raise make_document_error(node, "this rule has no `id`.")
    identity = _matching_text(
        fields["id"], "`id` of a rule", RULE_ID, "1 to 64 characters of a-z, 0-9 and -"
    )
    label = f"rule {identity!r}"
    for key in ("title", "match", "outcome"):
        if key not in fields:
            hint = "; write `match: {}` to match everything" if key == "match" else ""
            raise make_document_error(node, f"{label} has no `{key}`{hint}.")
    outcome = yaml_reader.expect_choice(fields["outcome"], f"outcome of {label}", OUTCOMES)
    match = _match(fields["match"], label)
    required: dict[str, Any] | None = None
    same_call: dict[str, str] = {}
    if "same_call_unknown" in fields:
        setting = yaml_reader.expect_choice(
            fields["same_call_unknown"], f"same_call_unknown of {label}", SAME_CALL_UNKNOWN
        )
        if outcome != "allow":
            only = "only `allow` can have `same_call_unknown`"
            raise make_document_error(
                fields["same_call_unknown"], f"{label} has the outcome {outcome}; {only}."
            )
        same_call["same_call_unknown"] = setting
    if outcome == "require" or same_call:
        required = (
            _require(fields["require"], label, match)
            if "require" in fields
            else DEFAULT_REQUIREMENT
        ).as_dict()
    elif "require" in fields:
        raise make_document_error(
            fields["require"],
            f"{label} has the outcome {outcome} and never asks, so it cannot have a `require`.",
        )
    exemptible = "reversible" if outcome == "require" else None
    if "exemptible" in fields:
        if outcome != "require":
            raise make_document_error(
                fields["exemptible"],
                f"{label} has the outcome {outcome}; only `require` can be `exemptible`.",
            )
        exemptible = yaml_reader.expect_choice(
            fields["exemptible"], f"exemptible of {label}", EXEMPTIBLE
        )
    return {
        "id": identity,
        "title": yaml_reader.expect_text(fields["title"], f"title of {label}", 200),
        "match": match,
        "outcome": outcome,
        **same_call,
        "require": required,
        "exemptible": exemptible,
    }


def _match(node: Node, label: str) -> dict[str, Any]:
    fields = yaml_reader.expect_mapping(node, f"match of {label}", MATCH_KEYS)
    conditions: dict[str, Any] = {}
    for key in MATCH_KEYS:  # canonical order
        if key not in fields:
            continue
        value, label_of_key = fields[key], f"{key} of {label}"
        if key in GLOBS:
            conditions[key] = _texts(value, label_of_key, LONGEST_GLOB)
        elif key in CHOICES:
            items = [
                yaml_reader.expect_choice(item, label_of_key, CHOICES[key])
                for item in yaml_reader.expect_sequence(value, label_of_key, MAX_ITEMS)
            ]
            conditions[key] = [name for name in CHOICES[key] if name in items]
        elif key in RISK_KEYS:
            conditions[key] = yaml_reader.expect_choice(value, label_of_key, statuses.RISKS)
        else:
            conditions[key] = _READERS[key](value, label_of_key)
    least, most = (
        conditions.get(key, end)
        for key, end in zip(RISK_KEYS, (statuses.RISKS[0], statuses.RISKS[-1]), strict=True)
    )
    if statuses.RISKS.index(least) > statuses.RISKS.index(most):
        raise make_document_error(
            node, f"{label} has a risk range from {least} to {most}, which is empty."
        )
    return conditions


def _labels(node: Node, label: str) -> dict[str, str]:
    fields = yaml_reader.expect_mapping(node, label, None)
    if not 1 <= len(fields) <= MAX_ITEMS:
        raise make_document_error(node, f"{label} must name 1 to {MAX_ITEMS} labels.")
    return {
        name: yaml_reader.expect_text(fields[name], f"{name!r} in {label}", LONGEST_GLOB)
        for name in sorted(fields)
    }


def _arguments(node: Node, label: str) -> list[dict[str, Any]]:
    return [
        predicates_yaml.read_predicate(item, label)[0]
        for item in yaml_reader.expect_sequence(node, label, MAX_ITEMS)
    ]


def _rate(node: Node, label: str) -> dict[str, Any]:
    fields = yaml_reader.expect_mapping(node, label, RATE_KEYS)
    for key in RATE_KEYS:
        if key not in fields:
            raise make_document_error(node, f"{label} has no `{key}`.")
    return {
        "over": yaml_reader.expect_integer(fields["over"], f"over in {label}", 1, MAX_RATE),
        "within_s": yaml_reader.expect_duration(
            fields["within_s"], f"within_s in {label}", LONGEST_WINDOW_S
        ),
        "per": yaml_reader.expect_choice(fields["per"], f"per in {label}", WINDOWS),
    }


def _session_effects(node: Node, label: str) -> int:
    return yaml_reader.expect_integer(node, label, 1, MAX_RATE)


_READERS: Final[dict[str, Callable[[Node, str], Any]]] = {
    "labels": _labels,
    "arguments": _arguments,
    "rate": _rate,
    "session_effects_over": _session_effects,
}


def _require(node: Node, label: str, match: dict[str, Any]) -> Requirement:
    label_of_require = f"require of {label}"
    fields = yaml_reader.expect_mapping(node, label_of_require, REQUIRE_KEYS)
    values: dict[str, Any] = {}
    for key, longest in (("teams", 64), ("people", 150)):
        if key in fields:
            values[key] = tuple(_texts(fields[key], f"{key} in {label_of_require}", longest))
    for key in ("minimum", "deny_threshold"):
        if key in fields:
            values[key] = yaml_reader.expect_integer(
                fields[key], f"{key} in {label_of_require}", 1, MAX_PEOPLE
            )
    people = values.get("people", ())
    if people and "teams" not in values and values.get("minimum", 1) > len(people):
        raise make_document_error(
            node,
            f"{label_of_require} needs {values['minimum']} people but names only {len(people)}.",
        )
    if "step_up" in fields:
        values["step_up"] = yaml_reader.expect_choice(
            fields["step_up"], f"step_up in {label_of_require}", statuses.STEP_UPS
        )
    if "decide_within" in fields:
        most = statuses.MAX_DECIDE_WITHIN_S
        values["decide_within_s"] = yaml_reader.expect_duration(
            fields["decide_within"], f"decide_within in {label_of_require}", most
        )
    if "valid_for" in fields:
        values["valid_for_s"] = yaml_reader.expect_duration(
            fields["valid_for"],
            f"valid_for in {label_of_require}",
            statuses.MAX_VALID_FOR_S,
        )
    if "rationale" in fields:
        values |= _rationale(fields["rationale"], label_of_require)
    if "evidence" in fields:
        values["evidence"] = _evidence(fields["evidence"], f"evidence in {label_of_require}")
    if "proof_on_warning" in fields:
        values["proof_on_warning"] = yaml_reader.expect_choice(
            fields["proof_on_warning"], f"proof_on_warning in {label_of_require}", WARNED_PROOFS
        )
    values |= _self_approval(fields, label_of_require, match)
    return Requirement(**values)


def _evidence(node: Node, label: str) -> RequiredEvidence:
    """Parse what a request must carry: at least one item, and no item that is false."""
    fields = yaml_reader.expect_mapping(node, label, EVIDENCE_KEYS)
    values: dict[str, Any] = {}
    if "ticket" in fields:
        glob = yaml_reader.expect_text(fields["ticket"], f"ticket of {label}", 100)
        if not glob.strip("*?"):
            raise make_document_error(
                fields["ticket"],
                f"ticket of {label} matches every word; write a glob such as OPS-*.",
            )
        if any(map(str.isspace, glob)):
            raise make_document_error(
                fields["ticket"], f"ticket of {label} must match one word; remove its blanks."
            )
        values["tickets"] = (glob,)
    for key in EVIDENCE_FLAGS:
        if key in fields:
            if not yaml_reader.expect_boolean(fields[key], f"{key} of {label}"):
                raise make_document_error(
                    fields[key], f"{key} of {label} can only be true; remove it to require nothing."
                )
            values[key] = True
    if "arguments" in fields:
        paths = _texts(fields["arguments"], f"arguments of {label}", predicates_yaml.LONGEST_PATH)
        for path in paths:
            if not all(path.split(".")):
                raise make_document_error(
                    fields["arguments"],
                    f"path {path!r} of {label} has an empty step between its dots.",
                )
        values["arguments"] = tuple(paths)
    evidence = RequiredEvidence(**values)
    if evidence == NO_EVIDENCE:
        raise make_document_error(
            node, f"{label} requires nothing; name one of {', '.join(EVIDENCE_KEYS)}."
        )
    return evidence


def _self_approval(fields: dict[str, Node], label: str, match: dict[str, Any]) -> dict[str, Any]:
    """Parse who is excluded. Self-approval is possible only for low-risk matches."""
    allowed = "self_approval" in fields and yaml_reader.expect_boolean(
        fields["self_approval"], f"self_approval in {label}"
    )
    if allowed and match.get("risk_at_most") != "low":
        raise make_document_error(
            fields["self_approval"],
            f"{label}: self_approval is for low risk only; add risk_at_most: low to its match.",
        )
    if "distinct_from" not in fields:
        return {"self_approval": allowed, "distinct_from": () if allowed else REQUEST_PARTIES}
    node, label_of_parties = fields["distinct_from"], f"distinct_from in {label}"
    items = [
        yaml_reader.expect_choice(item, label_of_parties, REQUEST_PARTIES)
        for item in yaml_reader.expect_sequence(
            node, label_of_parties, len(REQUEST_PARTIES), least=0
        )
    ]
    if not allowed and set(items) != set(REQUEST_PARTIES):
        raise make_document_error(
            node,
            f"{label_of_parties} must name {', '.join(REQUEST_PARTIES)}, unless self_approval is "
            "true.",
        )
    return {
        "self_approval": allowed,
        "distinct_from": tuple(party for party in REQUEST_PARTIES if party in items),
    }


def _rationale(node: Node, label: str) -> dict[str, Any]:
    fields = yaml_reader.expect_mapping(node, f"rationale in {label}", RATIONALE_KEYS)
    if "on" not in fields:
        raise make_document_error(node, f"rationale in {label} has no `on`.")
    when = yaml_reader.expect_choice(
        fields["on"], f"on of rationale in {label}", statuses.RATIONALES
    )
    if when == "none":
        if len(fields) > 1:
            raise make_document_error(
                node, f"rationale in {label} has `on: none`; remove its other keys."
            )
        return {"rationale": "none", "rationale_characters": 0, "ticket": ""}
    values: dict[str, Any] = {"rationale": when}
    if "minimum_characters" in fields:
        label_of_minimum = f"minimum_characters in {label}"
        values["rationale_characters"] = yaml_reader.expect_integer(
            fields["minimum_characters"], label_of_minimum, 1, LONGEST_RATIONALE
        )
    if "ticket" in fields:
        values["ticket"] = yaml_reader.expect_text(fields["ticket"], f"ticket in {label}", 100)
    return values


def _texts(node: Node, label: str, longest: int) -> list[str]:
    """Parse a list of texts without repeats."""
    items = [
        yaml_reader.expect_text(item, f"an item of {label}", longest)
        for item in yaml_reader.expect_sequence(node, label, MAX_ITEMS)
    ]
    return list(dict.fromkeys(items))


def _matching_text(node: Node, label: str, form: re.Pattern[str], expected: str) -> str:
    value = node.value if isinstance(node, ScalarNode) else None
    if value is None or not form.fullmatch(value):
        raise make_document_error(node, f"{label} must be {expected}.")
    return str(value)
