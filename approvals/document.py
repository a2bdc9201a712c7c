"""Strict reader of policies.yaml: any fault refuses the whole file, with its line.

The result is complete and canonical: defaults are written out, so that a loaded rule keeps its
meaning when defaults change. docs/policies.md describes the language; docs/examples/policies.yaml
is an example.
"""

import ipaddress
import re
import zoneinfo
from collections.abc import Callable
from typing import Any, Final

from yaml.nodes import Node, ScalarNode

from approvals import nodes, states
from approvals.hours import DAYS, minutes
from approvals.nodes import DocumentError, fault
from approvals.predicates import OPERATORS, ORDERED
from approvals.requirement import DEFAULT, PARTIES, Requirement
from ledger.states import REVERSIBILITIES
from sessions.models import REF_CLASSES

__all__ = ["DocumentError", "read"]

MAX_BYTES: Final = 256 * 1024
MAX_RULES: Final = 500
MAX_ITEMS: Final = 100  # of any list in a rule
LONGEST_GLOB: Final = 200
LONGEST_PATH: Final = 200
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
    "leave_for",
    "self_approval",
)
RATIONALE_KEYS: Final = ("on", "minimum_characters", "ticket")


def read(text: str) -> dict[str, Any]:
    """Parse `text` into {"name", "hours", "rules": [...]}. Raises DocumentError.

    Each rule is {"id", "title", "match", "outcome", "require"}. `hours` is None or {"zone", "days",
    "from", "to"}. `match` holds the given conditions; `require` is None or every field of a
    Requirement. A rule has `same_call_unknown` only if it was given.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise DocumentError(1, f"the text is larger than {MAX_BYTES // 1024} KiB.")
    root = nodes.compose(text)
    top = nodes.mapping(root, "the file", (*TOP_KEYS, *MORE_KEYS))
    for key in TOP_KEYS:
        if key not in top:
            raise fault(root, f"the key `{key}` is missing.")
    name = _matching_text(top["name"], "`name`", NAME, "1 to 24 characters of a-z, 0-9 and -")
    hours = _hours(top["hours"]) if "hours" in top else None
    rules: list[dict[str, Any]] = []
    lines: dict[str, int] = {}
    for node in nodes.sequence(top["rules"], "`rules`", MAX_RULES, least=0):
        rule = _rule(node)
        if rule["id"] in lines:
            raise fault(
                node, f"rule {rule['id']!r} is defined twice, first on line {lines[rule['id']]}."
            )
        lines[rule["id"]] = nodes.line_of(node)
        rules.append(rule)
    return {"name": name, "hours": hours, "rules": rules}


def _hours(node: Node) -> dict[str, Any]:
    """Parse working hours.

    A clock is read as written, since YAML reads 18:00 as a number in base 60.
    """
    fields = nodes.mapping(node, "`hours`", HOURS_KEYS)
    for key in HOURS_KEYS:
        if key not in fields:
            raise fault(node, f"`hours` has no `{key}`.")
    zone = nodes.text(fields["zone"], "`zone` of `hours`", 64)
    if zone not in zoneinfo.available_timezones():
        raise fault(
            fields["zone"], f"the zone {zone!r} is unknown; write it as Europe/Berlin or UTC."
        )
    days = [
        nodes.choice(item, "`days` of `hours`", DAYS)
        for item in nodes.sequence(fields["days"], "`days`", len(DAYS))
    ]
    begin, end = (
        _matching_text(fields[key], f"`{key}` of `hours`", CLOCK, "a time such as 08:00")
        for key in ("from", "to")
    )
    if minutes(begin) >= minutes(end):
        raise fault(
            fields["to"],
            f"`hours` begin at {begin} and end at {end}; they must end later on the same day.",
        )
    return {"zone": zone, "days": [day for day in DAYS if day in days], "from": begin, "to": end}


def _rule(node: Node) -> dict[str, Any]:
    fields = nodes.mapping(node, "a rule", RULE_KEYS)
    if "id" not in fields:
        raise fault(node, "this rule has no `id`.")
    identity = _matching_text(
        fields["id"], "`id` of a rule", RULE_ID, "1 to 64 characters of a-z, 0-9 and -"
    )
    label = f"rule {identity!r}"
    for key in ("title", "match", "outcome"):
        if key not in fields:
            hint = "; write `match: {}` to match everything" if key == "match" else ""
            raise fault(node, f"{label} has no `{key}`{hint}.")
    outcome = nodes.choice(fields["outcome"], f"outcome of {label}", OUTCOMES)
    match = _match(fields["match"], label)
    required: dict[str, Any] | None = None
    same_call: dict[str, str] = {}
    if "same_call_unknown" in fields:
        setting = nodes.choice(
            fields["same_call_unknown"], f"same_call_unknown of {label}", SAME_CALL_UNKNOWN
        )
        if outcome != "allow":
            only = "only `allow` can have `same_call_unknown`"
            raise fault(fields["same_call_unknown"], f"{label} has the outcome {outcome}; {only}.")
        same_call["same_call_unknown"] = setting
    if outcome == "require" or same_call:
        required = (
            _require(fields["require"], label, match) if "require" in fields else DEFAULT
        ).as_dict()
    elif "require" in fields:
        raise fault(
            fields["require"],
            f"{label} has the outcome {outcome} and never asks, so it cannot have a `require`.",
        )
    exemptible = "reversible" if outcome == "require" else None
    if "exemptible" in fields:
        if outcome != "require":
            raise fault(
                fields["exemptible"],
                f"{label} has the outcome {outcome}; only `require` can be `exemptible`.",
            )
        exemptible = nodes.choice(fields["exemptible"], f"exemptible of {label}", EXEMPTIBLE)
    return {
        "id": identity,
        "title": nodes.text(fields["title"], f"title of {label}", 200),
        "match": match,
        "outcome": outcome,
        **same_call,
        "require": required,
        "exemptible": exemptible,
    }


def _match(node: Node, label: str) -> dict[str, Any]:
    fields = nodes.mapping(node, f"match of {label}", MATCH_KEYS)
    conditions: dict[str, Any] = {}
    for key in MATCH_KEYS:  # canonical order
        if key not in fields:
            continue
        value, label_of_key = fields[key], f"{key} of {label}"
        if key in GLOBS:
            conditions[key] = _texts(value, label_of_key, LONGEST_GLOB)
        elif key in CHOICES:
            items = [
                nodes.choice(item, label_of_key, CHOICES[key])
                for item in nodes.sequence(value, label_of_key, MAX_ITEMS)
            ]
            conditions[key] = [name for name in CHOICES[key] if name in items]
        elif key in RISK_KEYS:
            conditions[key] = nodes.choice(value, label_of_key, states.RISKS)
        else:
            conditions[key] = _READERS[key](value, label_of_key)
    least, most = (
        conditions.get(key, end)
        for key, end in zip(RISK_KEYS, (states.RISKS[0], states.RISKS[-1]), strict=True)
    )
    if states.RISKS.index(least) > states.RISKS.index(most):
        raise fault(node, f"{label} has a risk range from {least} to {most}, which is empty.")
    return conditions


def _labels(node: Node, label: str) -> dict[str, str]:
    fields = nodes.mapping(node, label, None)
    if not 1 <= len(fields) <= MAX_ITEMS:
        raise fault(node, f"{label} must name 1 to {MAX_ITEMS} labels.")
    return {
        name: nodes.text(fields[name], f"{name!r} in {label}", LONGEST_GLOB)
        for name in sorted(fields)
    }


def _arguments(node: Node, label: str) -> list[dict[str, Any]]:
    return [_argument(item, label) for item in nodes.sequence(node, label, MAX_ITEMS)]


def _argument(node: Node, label: str) -> dict[str, Any]:
    fields = nodes.mapping(node, f"an item of {label}", ("path", *OPERATORS))
    if "path" not in fields:
        raise fault(node, f"an item of {label} has no `path`.")
    path = nodes.text(fields["path"], f"path in {label}", LONGEST_PATH)
    if not all(path.split(".")):
        raise fault(fields["path"], f"path {path!r} in {label} has an empty step between its dots.")
    operators = [key for key in fields if key != "path"]
    if len(operators) != 1:
        given_operators = " and ".join(operators) if operators else "none"
        raise fault(
            node,
            f"argument {path!r} in {label} needs exactly one of {', '.join(OPERATORS)}; it has"
            f" {given_operators}.",
        )
    name = operators[0]
    return {
        "path": path,
        name: _operand(name, fields[name], f"{name} of argument {path!r} in {label}"),
    }


def _operand(name: str, node: Node, label: str) -> Any:
    if name == "exists":
        return nodes.truth(node, label)
    if name in ORDERED:
        return nodes.number(node, label)
    if name == "prefix":
        value = nodes.scalar(node, label)
        if not isinstance(value, str) or not value:
            raise fault(node, f"{label} must be text.")
        return value
    if name == "in":
        return [nodes.scalar(item, label) for item in nodes.sequence(node, label, MAX_ITEMS)]
    if name == "cidr":
        items = [node] if isinstance(node, ScalarNode) else nodes.sequence(node, label, MAX_ITEMS)
        return [_network(item, label) for item in items]
    return nodes.scalar(node, label)


def _network(node: Node, label: str) -> str:
    value = nodes.text(node, label, 50)
    try:
        return str(ipaddress.ip_network(value))
    except ValueError as error:
        raise fault(node, f"{label} must be a network such as 10.0.0.0/8: {error}.") from error


def _rate(node: Node, label: str) -> dict[str, Any]:
    fields = nodes.mapping(node, label, RATE_KEYS)
    for key in RATE_KEYS:
        if key not in fields:
            raise fault(node, f"{label} has no `{key}`.")
    return {
        "over": nodes.whole(fields["over"], f"over in {label}", 1, MAX_RATE),
        "within_s": nodes.seconds(fields["within_s"], f"within_s in {label}", LONGEST_WINDOW_S),
        "per": nodes.choice(fields["per"], f"per in {label}", WINDOWS),
    }


def _session_effects(node: Node, label: str) -> int:
    return nodes.whole(node, label, 1, MAX_RATE)


_READERS: Final[dict[str, Callable[[Node, str], Any]]] = {
    "labels": _labels,
    "arguments": _arguments,
    "rate": _rate,
    "session_effects_over": _session_effects,
}


def _require(node: Node, label: str, match: dict[str, Any]) -> Requirement:
    label_of_require = f"require of {label}"
    fields = nodes.mapping(node, label_of_require, REQUIRE_KEYS)
    values: dict[str, Any] = {}
    for key, longest in (("teams", 64), ("people", 150)):
        if key in fields:
            values[key] = tuple(_texts(fields[key], f"{key} in {label_of_require}", longest))
    for key in ("minimum", "deny_threshold"):
        if key in fields:
            values[key] = nodes.whole(fields[key], f"{key} in {label_of_require}", 1, MAX_PEOPLE)
    people = values.get("people", ())
    if people and "teams" not in values and values.get("minimum", 1) > len(people):
        raise fault(
            node,
            f"{label_of_require} needs {values['minimum']} people but names only {len(people)}.",
        )
    if "step_up" in fields:
        values["step_up"] = nodes.choice(
            fields["step_up"], f"step_up in {label_of_require}", states.STEP_UPS
        )
    if "decide_within" in fields:
        most = states.LONGEST_DECIDE_WITHIN_S
        values["decide_within_s"] = nodes.seconds(
            fields["decide_within"], f"decide_within in {label_of_require}", most
        )
    if "leave_for" in fields:
        values["leave_for_s"] = nodes.seconds(
            fields["leave_for"],
            f"leave_for in {label_of_require}",
            states.LONGEST_LEAVE_FOR_S,
        )
    if "rationale" in fields:
        values |= _rationale(fields["rationale"], label_of_require)
    values |= _self_approval(fields, label_of_require, match)
    return Requirement(**values)


def _self_approval(fields: dict[str, Node], label: str, match: dict[str, Any]) -> dict[str, Any]:
    """Parse who is excluded. Self-approval is possible only for low-risk matches."""
    allowed = "self_approval" in fields and nodes.truth(
        fields["self_approval"], f"self_approval in {label}"
    )
    if allowed and match.get("risk_at_most") != "low":
        raise fault(
            fields["self_approval"],
            f"{label}: self_approval is for low risk only; add risk_at_most: low to its match.",
        )
    if "distinct_from" not in fields:
        return {"self_approval": allowed, "distinct_from": () if allowed else PARTIES}
    node, label_of_parties = fields["distinct_from"], f"distinct_from in {label}"
    items = [
        nodes.choice(item, label_of_parties, PARTIES)
        for item in nodes.sequence(node, label_of_parties, len(PARTIES), least=0)
    ]
    if not allowed and set(items) != set(PARTIES):
        raise fault(
            node,
            f"{label_of_parties} must name {', '.join(PARTIES)}, unless self_approval is true.",
        )
    return {
        "self_approval": allowed,
        "distinct_from": tuple(party for party in PARTIES if party in items),
    }


def _rationale(node: Node, label: str) -> dict[str, Any]:
    fields = nodes.mapping(node, f"rationale in {label}", RATIONALE_KEYS)
    if "on" not in fields:
        raise fault(node, f"rationale in {label} has no `on`.")
    when = nodes.choice(fields["on"], f"on of rationale in {label}", states.RATIONALES)
    if when == "none":
        if len(fields) > 1:
            raise fault(node, f"rationale in {label} has `on: none`; remove its other keys.")
        return {"rationale": "none", "rationale_characters": 0, "ticket": ""}
    values: dict[str, Any] = {"rationale": when}
    if "minimum_characters" in fields:
        label_of_minimum = f"minimum_characters in {label}"
        values["rationale_characters"] = nodes.whole(
            fields["minimum_characters"], label_of_minimum, 1, LONGEST_RATIONALE
        )
    if "ticket" in fields:
        values["ticket"] = nodes.text(fields["ticket"], f"ticket in {label}", 100)
    return values


def _texts(node: Node, label: str, longest: int) -> list[str]:
    """Parse a list of texts without repeats."""
    items = [
        nodes.text(item, f"an item of {label}", longest)
        for item in nodes.sequence(node, label, MAX_ITEMS)
    ]
    return list(dict.fromkeys(items))


def _matching_text(node: Node, label: str, form: re.Pattern[str], expected: str) -> str:
    value = node.value if isinstance(node, ScalarNode) else None
    if value is None or not form.fullmatch(value):
        raise fault(node, f"{label} must be {expected}.")
    return str(value)
