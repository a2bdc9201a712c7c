"""JSON Schema of policies.yaml for editors, built from the reader's own tables.

The schema helps while writing. Only the reader checks what it cannot express, such as the maximum
of a deadline or who may approve their own effects.
"""

from typing import Any, Final

from approvals.gates import statuses
from approvals.policies import policies_yaml as rules
from approvals.policies.engine import REQUEST_PARTIES, WARNED_PROOFS
from approvals.policies.working_hours import WEEKDAYS
from ledger.tools.predicates import ARGUMENT_OPERATORS, ORDER_OPERATORS
from ledger.tools.predicates_yaml import LONGEST_PATH

_LENGTH: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": "integer", "minimum": 1},
        {"type": "string", "pattern": "^(0|[1-9][0-9]{0,8})[smhd]?$"},
    ],
    "description": "Seconds, or a length such as 30s, 10m, 1h, 2d.",
}
_SCALAR: Final[dict[str, Any]] = {"type": ["string", "number", "boolean", "null"]}


def build_policies_schema() -> dict[str, Any]:
    """Return the schema as a JSON object."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rules of a Gatebook policy",
        **_object(
            {
                "name": {"type": "string", "pattern": f"^{rules.NAME.pattern}$"},
                "hours": _hours(),
                "rules": {"type": "array", "maxItems": rules.MAX_RULES, "items": _rule()},
            },
            rules.TOP_KEYS,
        ),
    }


def _hours() -> dict[str, Any]:
    clock = {"type": "string", "pattern": f"^({rules.CLOCK.pattern})$"}
    zone = {
        "type": "string",
        "minLength": 1,
        "maxLength": 64,
        "description": "For example Europe/Berlin or UTC.",
    }
    days = {
        "type": "array",
        "minItems": 1,
        "maxItems": len(WEEKDAYS),
        "items": {"enum": list(WEEKDAYS)},
    }
    properties = {"zone": zone, "days": days, "from": clock, "to": clock}
    description = "Requests outside these hours are flagged; rules ignore them."
    return _object(properties, rules.HOURS_KEYS) | {"description": description}


def _rule() -> dict[str, Any]:
    rule = _object(
        {
            "id": {"type": "string", "pattern": f"^{rules.RULE_ID.pattern}$"},
            "title": {
                "type": "string",
                "minLength": 1,
                "maxLength": 200,
                "description": "Shown to reviewers.",
            },
            "match": _match(),
            "outcome": {"enum": list(rules.OUTCOMES)},
            "same_call_unknown": {
                "enum": list(rules.SAME_CALL_UNKNOWN),
                "description": "Asks while the outcome of the same call in another session is"
                " unknown.",
            },
            "require": _require(),
            "exemptible": {
                "enum": list(rules.EXEMPTIBLE),
                "description": "The worst reversibility that can be exempted; default: reversible.",
            },
        },
        ("id", "title", "match", "outcome"),
    )
    is_require = {"properties": {"outcome": {"const": "require"}}}
    is_allow_unknown = {
        "properties": {"outcome": {"const": "allow"}},
        "required": ["same_call_unknown"],
    }
    keys = ("require", "same_call_unknown", "exemptible")
    return rule | {
        "if": {"anyOf": [{"required": [key]} for key in keys]},
        "then": {
            "anyOf": [
                is_require | {"not": {"required": ["same_call_unknown"]}},
                is_allow_unknown | {"not": {"required": ["exemptible"]}},
            ]
        },
    }


def _match() -> dict[str, Any]:
    properties: dict[str, Any] = {
        name: _list({"type": "string", "minLength": 1, "maxLength": rules.LONGEST_GLOB})
        for name in rules.GLOBS
    }
    properties |= {name: _list({"enum": list(choices)}) for name, choices in rules.CHOICES.items()}
    properties |= {name: {"enum": list(statuses.RISKS)} for name in rules.RISK_KEYS}
    properties["labels"] = {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"type": "string", "minLength": 1},
    }
    properties["arguments"] = _list(_argument())
    properties["rate"] = _object(
        {
            "over": {"type": "integer", "minimum": 1, "maximum": rules.MAX_RATE},
            "within_s": _LENGTH,
            "per": {"enum": list(rules.WINDOWS)},
        },
        rules.RATE_KEYS,
    )
    properties["session_effects_over"] = {
        "type": "integer",
        "minimum": 1,
        "maximum": rules.MAX_RATE,
    }
    return _object({name: properties[name] for name in rules.MATCH_KEYS}, ())


def _argument() -> dict[str, Any]:
    operand: dict[str, Any] = dict.fromkeys(ARGUMENT_OPERATORS, _SCALAR)
    operand |= {name: {"type": "number"} for name in ORDER_OPERATORS}
    operand |= {
        "in": _list(_SCALAR),
        "exists": {"type": "boolean"},
        "prefix": {"type": "string", "minLength": 1},
    }
    network = {"type": "string"}
    operand["cidr"] = {"anyOf": [network, _list(network)]}
    path = {"type": "string", "minLength": 1, "maxLength": LONGEST_PATH}
    return _object({"path": path, **operand}, ("path",)) | {"minProperties": 2, "maxProperties": 2}


def _require() -> dict[str, Any]:
    people = {"type": "integer", "minimum": 1, "maximum": rules.MAX_PEOPLE}
    names = _list({"type": "string", "minLength": 1})
    rationale = _object(
        {
            "on": {"enum": list(statuses.RATIONALES)},
            "minimum_characters": {
                "type": "integer",
                "minimum": 1,
                "maximum": rules.LONGEST_RATIONALE,
            },
            "ticket": {"type": "string", "minLength": 1, "maxLength": 100},
        },
        ("on",),
    )
    properties: dict[str, Any] = {
        "teams": names,
        "people": names,
        "minimum": people,
        "distinct_from": {"type": "array", "items": {"enum": list(REQUEST_PARTIES)}},
        "step_up": {"enum": list(statuses.STEP_UPS)},
        "deny_threshold": people,
        "rationale": rationale,
        "decide_within": _LENGTH,
        "valid_for": _LENGTH,
        "self_approval": {"type": "boolean"},
        "evidence": _evidence(),
        "proof_on_warning": {
            "enum": list(WARNED_PROOFS),
            "description": "Least proof of an approval while a check of the request warns.",
        },
    }
    return _object({name: properties[name] for name in rules.REQUIRE_KEYS}, ())


def _evidence() -> dict[str, Any]:
    properties: dict[str, Any] = {
        "ticket": {
            "type": "string",
            "minLength": 1,
            "maxLength": 100,
            "pattern": r"^\S*[^\s*?]\S*$",
            "description": "Glob that a word of the request's own fields must match.",
        },
        **{name: {"const": True} for name in rules.EVIDENCE_FLAGS},
        "arguments": _list(
            {
                "type": "string",
                "minLength": 1,
                "maxLength": LONGEST_PATH,
                "pattern": r"^[^.]+(\.[^.]+)*$",
            }
        ),
    }
    description = "What the request itself must carry; what is missing is shown as a warning."
    return _object({name: properties[name] for name in rules.EVIDENCE_KEYS}, ()) | {
        "minProperties": 1,
        "description": description,
    }


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "maxItems": rules.MAX_ITEMS, "items": items}


def _object(properties: dict[str, Any], required: tuple[str, ...]) -> dict[str, Any]:
    schema_object: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }
    return schema_object | ({"required": list(required)} if required else {})
