"""Strict reader of tools.yaml: any error rejects the file with its line.

docs/examples/tools.yaml shows every key.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

from yaml.nodes import Node, ScalarNode

from db.yaml_reader import (
    DocumentError,
    compose_yaml,
    expect_boolean,
    expect_choice,
    expect_integer,
    expect_mapping,
    expect_sequence,
    expect_text,
    make_document_error,
)
from ledger import states
from ledger.tools import predicates_yaml
from ledger.tools.raises import RAISED_KEYS
from ledger.verdicts.table import PROBEABLE_CLASSES
from shell.usage_lines import UsageError, parse_usage

MAX_BYTES: Final = 1024 * 1024
MAX_TOOLS: Final = 1000
MAX_DEADLINE_S: Final = 7 * 24 * 3600
MAX_REQUEST_LIFETIME_S: Final = 24 * 3600
MAX_BREAKER_FAILURES: Final = 1000
MAX_BREAKER_PAUSE_S: Final = 24 * 3600
MAX_KEY_WINDOW_S: Final = 365 * 24 * 3600
MAX_ATTEMPTS: Final = 100
MAX_PROBES: Final = 100
MAX_TELLING: Final = 6
MAX_FIELDS: Final = 16  # of one tool
MAX_RAISES: Final = 50
MAX_SHELL_LINES: Final = 50  # of one tool
MAX_SHELL_CHARACTERS: Final = 500
FIELD_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_KEYS: Final = (
    "class",
    "reversibility",
    "deadline_s",
    "request_lifetime_s",
    "key_window_s",
    "probe",
    "undo",
    "max_attempts",
    "max_probes",
    "breaker",
    "description",
    "telling",
    "fields",
    "raises",
    "shell",
)


@dataclass(frozen=True, slots=True)
class ToolDeclaration:
    """An operator's declaration of one tool. Times are whole seconds."""

    name: str
    tool_class: str
    reversibility: str
    deadline_s: int = states.DEFAULT_DEADLINE_S
    request_lifetime_s: int = states.DEFAULT_REQUEST_LIFETIME_S
    description: str = ""
    breaker_failures: int | None = None  # consecutive failures that pause its plans
    breaker_pause_s: int | None = None
    key_window_s: int = 0  # 0: not declared
    probe: bool = False
    undo: str = ""  # by our "key", by the remote's "reference", or "" for none possible
    max_attempts: int = states.DEFAULT_MAX_ATTEMPTS
    max_probes: int = states.DEFAULT_MAX_PROBES
    telling: Sequence[str] = ()  # paths of the arguments that tell requests apart
    fields: Mapping[str, str] = field(default_factory=dict)  # search field -> path
    raises: Sequence[Mapping[str, Any]] = ()  # conditions that raise the severity
    shell: Sequence[str] = ()  # usage lines of the shell commands that are its calls


def parse_tools_yaml(text: str) -> list[ToolDeclaration]:
    """Return the declarations in `text`, sorted by name. Raises DocumentError."""
    if len(text.encode()) > MAX_BYTES:
        raise DocumentError(1, "the file is larger than 1 MiB.")
    root = compose_yaml(text)
    top = expect_mapping(root, "the file", ("tools",))
    if "tools" not in top:
        raise make_document_error(root, "the key `tools` is missing.")
    named = expect_mapping(top["tools"], "`tools`", None)
    if len(named) > MAX_TOOLS:
        raise make_document_error(
            top["tools"], f"the file declares {len(named)} tools; the maximum is {MAX_TOOLS}."
        )
    return sorted(
        (_declaration(name, node) for name, node in named.items()),
        key=lambda declaration: declaration.name,
    )


def _declaration(name: str, node: Node) -> ToolDeclaration:
    if not name or len(name) > 100 or not name.isprintable() or name != name.strip():
        raise make_document_error(node, "the name of a tool is 1 to 100 printable characters.")
    label = f"tool {name!r}"
    values = expect_mapping(node, label, _KEYS)
    if "class" not in values:
        raise make_document_error(
            node, f"{label} has no `class`; choose one of {', '.join(states.TOOL_CLASSES)}."
        )
    tool_class = expect_choice(values["class"], f"class of {label}", states.TOOL_CLASSES)
    harmless = tool_class == "read_only"
    reversibility = "read" if harmless else "irreversible"
    if "reversibility" in values:
        reversibility = expect_choice(
            values["reversibility"], f"reversibility of {label}", states.REVERSIBILITIES
        )
        if (reversibility == "read") != harmless:
            raise make_document_error(
                values["reversibility"],
                f"{label} is {tool_class} with reversibility {reversibility}."
                " Use `read` with `read_only` and with no other class.",
            )
    failures, pause_s = _breaker(values["breaker"], label) if "breaker" in values else (None, None)
    return ToolDeclaration(
        name,
        tool_class,
        reversibility,
        description=_description(values["description"], label) if "description" in values else "",
        breaker_failures=failures,
        breaker_pause_s=pause_s,
        telling=_telling(values["telling"], label) if "telling" in values else [],
        fields=_fields(values["fields"], label) if "fields" in values else {},
        raises=_raises(values["raises"], label, tool_class, reversibility)
        if "raises" in values
        else [],
        shell=_shell(values["shell"], label) if "shell" in values else [],
        **_limits(values, label),
        **_recovery(values, label, tool_class),
    )


def _telling(node: Node, label: str) -> list[str]:
    label = f"telling of {label}"
    paths = [
        predicates_yaml.read_path(item, label) for item in expect_sequence(node, label, MAX_TELLING)
    ]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise make_document_error(node, f"{label} names {path!r} twice; remove one.")
    return paths


def _fields(node: Node, label: str) -> dict[str, str]:
    """Return the path of each search field, sorted by field."""
    label = f"fields of {label}"
    named = expect_mapping(node, label, None)
    if not 1 <= len(named) <= MAX_FIELDS:
        raise make_document_error(node, f"{label} must name 1 to {MAX_FIELDS} fields.")
    for name in named:
        if not FIELD_NAME.fullmatch(name):
            raise make_document_error(
                named[name],
                f"the field {name!r} in {label} must be 1 to 40 characters of a-z, 0-9 and _,"
                " beginning with a letter.",
            )
    return {name: predicates_yaml.read_path(named[name], label) for name in sorted(named)}


def _shell(node: Node, label: str) -> list[str]:
    """Return the usage lines of the commands that are calls of a tool."""
    label = f"shell of {label}"
    lines: list[str] = []
    for item in expect_sequence(node, label, MAX_SHELL_LINES):
        line = " ".join(expect_text(item, label, MAX_SHELL_CHARACTERS).split())
        try:
            usage = parse_usage(line)
        except UsageError as error:
            raise make_document_error(item, f"a line in {label} {error}") from error
        if line in lines:
            raise make_document_error(item, f"{label} has {line!r} twice; remove one.")
        if not usage.literals and not usage.positions and usage.rest is None and not usage.options:
            raise make_document_error(
                item,
                f"{label} has {line!r}, which takes no words; write `{line} WORDS...` for every"
                " call of this program.",
            )
        lines.append(line)
    return lines


def _raises(node: Node, label: str, tool_class: str, reversibility: str) -> list[dict[str, Any]]:
    return [
        _raise_condition(item, label, {"class": tool_class, "reversibility": reversibility})
        for item in expect_sequence(node, f"raises of {label}", MAX_RAISES)
    ]


def _raise_condition(node: Node, tool: str, declared: Mapping[str, str]) -> dict[str, Any]:
    """Return a condition: {path, an operator, and the words that it raises to}.

    A word that is not worse than the declared one is an error: conditions never lower.
    """
    label = f"raises of {tool}"
    condition, nodes = predicates_yaml.read_predicate(node, label, RAISED_KEYS)
    if not nodes:
        raise make_document_error(
            node,
            f"the condition on {condition['path']!r} in {label} raises nothing;"
            " give it class, reversibility or risk.",
        )
    for key, value in nodes.items():
        order = RAISED_KEYS[key]
        word = expect_choice(value, f"{key} in {label}", order)
        least = declared.get(key, order[0])  # the lowest risk raises nothing
        if order.index(word) <= order.index(least):
            problem = (
                f"{tool} is already {least}"
                if word == least and key in declared
                else f"{tool} is {least}, and a condition can only raise"
                if key in declared
                else f"{word} risk raises nothing"
            )
            worse = ", ".join(order[order.index(least) + 1 :])
            hint = f"choose one of {worse}" if worse else "remove it"
            raise make_document_error(value, f"{key} in {label} is {word}, but {problem}; {hint}.")
        condition[key] = word
    if declared["class"] == "read_only" and ("class" in nodes) != ("reversibility" in nodes):
        raise make_document_error(
            node,
            f"{tool} is read_only; a condition in {label} must raise class and reversibility"
            " together, because only read_only has the reversibility read.",
        )
    return condition


_MOST: Final = {
    "deadline_s": MAX_DEADLINE_S,
    "request_lifetime_s": MAX_REQUEST_LIFETIME_S,
    "key_window_s": MAX_KEY_WINDOW_S,
    "max_attempts": MAX_ATTEMPTS,
    "max_probes": MAX_PROBES,
}


def _limits(values: dict[str, Node], label: str) -> dict[str, int]:
    """Return the whole numbers that were given; the others have a default."""
    return {
        key: expect_integer(values[key], f"{key} of {label}", 1, most)
        for key, most in _MOST.items()
        if key in values
    }


class _Recovery(TypedDict):
    """The keys about recovery after a crash."""

    probe: bool
    undo: str


def _recovery(values: dict[str, Node], label: str, tool_class: str) -> _Recovery:
    """Return the recovery keys of a tool, with the defaults of its class."""
    recovery: _Recovery = {
        "probe": tool_class in PROBEABLE_CLASSES,
        "undo": "key" if tool_class == "compensable" else "",
    }
    if "key_window_s" in values and tool_class != "idempotency_key":
        raise make_document_error(
            values["key_window_s"],
            f"{label} has key_window_s, but its class is not idempotency_key.",
        )
    if "probe" in values:
        recovery["probe"] = expect_boolean(values["probe"], f"probe of {label}")
        if not recovery["probe"] and tool_class in PROBEABLE_CLASSES:
            raise make_document_error(
                values["probe"],
                f"{label} is {tool_class}, which requires `probe`."
                " Remove the key or choose another class.",
            )
    if "undo" in values:
        recovery["undo"] = expect_choice(
            values["undo"], f"undo of {label}", states.UNDO_REFERENCES[1:]
        )
    given = [key for key in ("probe", "undo") if key in values]
    if tool_class == "opaque" and given and recovery[given[0]]:
        raise make_document_error(
            values[given[0]],
            f"{label} is opaque but has {given[0]}. Choose `probeable` or `compensable`.",
        )
    return recovery


def _breaker(node: Node, label: str) -> tuple[int, int]:
    """Return how many consecutive failures pause plans, and the seconds."""
    label = f"the breaker of {label}"
    most = {"failures": MAX_BREAKER_FAILURES, "pause_s": MAX_BREAKER_PAUSE_S}
    values = expect_mapping(node, label, most)
    for key in most:
        if key not in values:
            raise make_document_error(node, f"{label} has no `{key}`.")
    failures, pause_s = (
        expect_integer(values[key], f"{key} of {label}", 1, limit) for key, limit in most.items()
    )
    return failures, pause_s


def _description(node: Node, label: str) -> str:
    """Return a text of several lines as one line."""
    is_text = isinstance(node, ScalarNode) and node.tag.endswith(":str")
    value = node.value.strip() if is_text else ""
    if not is_text or len(value) > 300 or not value.replace("\n", " ").isprintable():
        raise make_document_error(
            node, f"description of {label} must be text of at most 300 printable characters."
        )
    return " ".join(value.split())
