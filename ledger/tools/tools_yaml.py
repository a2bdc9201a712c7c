"""Strict reader of tools.yaml: any error rejects the file with its line.

docs/examples/tools.yaml shows every key.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypedDict, TypeVar

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from ledger import states
from ledger.verdicts.table import PROBEABLE_CLASSES

MAX_BYTES: Final = 1024 * 1024
MAX_TOOLS: Final = 1000
MAX_DEADLINE_S: Final = 7 * 24 * 3600
MAX_REQUEST_LIFETIME_S: Final = 24 * 3600
MAX_BREAKER_FAILURES: Final = 1000
MAX_BREAKER_PAUSE_S: Final = 24 * 3600
MAX_KEY_WINDOW_S: Final = 365 * 24 * 3600
MAX_ATTEMPTS: Final = 100
MAX_PROBES: Final = 100
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
)

T = TypeVar("T")


class ToolsFileError(ValueError):
    """The file cannot be loaded; the message names the line and the tool."""


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


def parse_tools_yaml(text: str) -> list[ToolDeclaration]:
    """Return the declarations in `text`, sorted by name. Raises FaultyFileError."""
    if len(text.encode()) > MAX_BYTES:
        raise ToolsFileError("The file is larger than 1 MiB.")
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ToolsFileError(f"Line {line}: invalid YAML: {error.problem}.") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ToolsFileError("The file is not YAML that Gatebook can read.") from error
    if not isinstance(root, MappingNode):
        raise ToolsFileError("Line 1: the file must be a mapping with the one key `tools`.")
    top = _mapping(root, "the file", ("tools",))
    if "tools" not in top:
        raise ToolsFileError("Line 1: the key `tools` is missing.")
    tools = top["tools"]
    if not isinstance(tools, MappingNode):
        raise ToolsFileError(
            f"Line {_line(tools)}: `tools` must map each tool's name to its declaration."
        )
    named = _mapping(tools, "`tools`", None)
    if len(named) > MAX_TOOLS:
        raise ToolsFileError(f"The file declares {len(named)} tools; the maximum is {MAX_TOOLS}.")
    return sorted(
        (_declaration(name, node) for name, node in named.items()),
        key=lambda declaration: declaration.name,
    )


def _declaration(name: str, node: Node) -> ToolDeclaration:
    if not name or len(name) > 100 or not name.isprintable() or name != name.strip():
        raise ToolsFileError(
            f"Line {_line(node)}: the name of a tool is 1 to 100 printable characters."
        )
    about = f"tool {name!r}"
    if not isinstance(node, MappingNode):
        raise ToolsFileError(
            f"Line {_line(node)}: {about} must be a mapping with at least `class`."
        )
    values = _mapping(node, about, _KEYS)
    if "class" not in values:
        raise ToolsFileError(
            f"Line {_line(node)}: {about} has no `class`."
            f" Choose one of {', '.join(states.TOOL_CLASSES)}."
        )
    tool_class = _choice(values["class"], about, "class", states.TOOL_CLASSES)
    harmless = tool_class == "read_only"
    reversibility = "read" if harmless else "irreversible"
    if "reversibility" in values:
        reversibility = _choice(
            values["reversibility"], about, "reversibility", states.REVERSIBILITIES
        )
        if (reversibility == "read") != harmless:
            raise ToolsFileError(
                f"Line {_line(values['reversibility'])}: {about} is {tool_class} with"
                f" reversibility {reversibility}."
                " Use `read` with `read_only` and with no other class."
            )
    deadline_s, request_lifetime_s = states.DEFAULT_DEADLINE_S, states.DEFAULT_REQUEST_LIFETIME_S
    if "deadline_s" in values:
        deadline_s = _seconds(values["deadline_s"], about, "deadline_s", MAX_DEADLINE_S)
    if "request_lifetime_s" in values:
        request_lifetime_s = _seconds(
            values["request_lifetime_s"], about, "request_lifetime_s", MAX_REQUEST_LIFETIME_S
        )
    description = _description(values["description"], about) if "description" in values else ""
    failures, pause_s = _breaker(values["breaker"], about) if "breaker" in values else (None, None)
    return ToolDeclaration(
        name,
        tool_class,
        reversibility,
        deadline_s,
        request_lifetime_s,
        description,
        breaker_failures=failures,
        breaker_pause_s=pause_s,
        **_recovery(values, about, tool_class),
    )


class _Recovery(TypedDict, total=False):
    """The keys about recovery after a crash."""

    key_window_s: int
    probe: bool
    undo: str
    max_attempts: int
    max_probes: int


def _recovery(values: dict[str, Node], about: str, tool_class: str) -> _Recovery:
    """Return the recovery keys of a tool, with the defaults of its class."""
    recovery: _Recovery = {
        "probe": tool_class in PROBEABLE_CLASSES,
        "undo": "key" if tool_class == "compensable" else "",
    }
    if "key_window_s" in values:
        recovery["key_window_s"] = _seconds(
            values["key_window_s"], about, "key_window_s", MAX_KEY_WINDOW_S
        )
        if tool_class != "idempotency_key":
            raise ToolsFileError(
                f"Line {_line(values['key_window_s'])}: {about} has key_window_s but is not keyed."
            )
    if "probe" in values:
        recovery["probe"] = _scalar(
            values["probe"], about, "probe", "bool", lambda text: text.lower() in _YES
        )
        if not recovery["probe"] and tool_class in PROBEABLE_CLASSES:
            raise ToolsFileError(
                f"Line {_line(values['probe'])}: {about} is {tool_class}, which requires `probe`."
                " Remove the key or choose another class."
            )
    if "undo" in values:
        recovery["undo"] = _choice(values["undo"], about, "undo", states.UNDO_REFERENCES[1:])
    given = [key for key in ("probe", "undo") if key in values]
    if tool_class == "opaque" and given and recovery[given[0]]:
        raise ToolsFileError(
            f"Line {_line(values[given[0]])}: {about} is opaque but has {given[0]}."
            " Choose `probeable` or `compensable`."
        )
    if "max_attempts" in values:
        recovery["max_attempts"] = _count(
            values["max_attempts"], about, "max_attempts", MAX_ATTEMPTS
        )
    if "max_probes" in values:
        recovery["max_probes"] = _count(values["max_probes"], about, "max_probes", MAX_PROBES)
    return recovery


_YES: Final = ("true", "yes", "on")


def _count(node: Node, about: str, key: str, most: int) -> int:
    value = _scalar(node, about, key, "int", _integer)
    if not 1 <= value <= most:
        raise ToolsFileError(f"Line {_line(node)}: {about} has {key} {value}. Use 1 to {most}.")
    return value


def _breaker(node: Node, about: str) -> tuple[int, int]:
    """Return how many consecutive failures pause plans, and the seconds."""
    keys = ("failures", "pause_s")
    if not isinstance(node, MappingNode):
        raise ToolsFileError(
            f"Line {_line(node)}: the breaker of {about} must be a mapping with {', '.join(keys)}."
        )
    values = _mapping(node, f"the breaker of {about}", keys)
    for key in keys:
        if key not in values:
            raise ToolsFileError(f"Line {_line(node)}: the breaker of {about} has no `{key}`.")
    failures = _scalar(values["failures"], f"the breaker of {about}", "failures", "int", _integer)
    if not 1 <= failures <= MAX_BREAKER_FAILURES:
        raise ToolsFileError(
            f"Line {_line(values['failures'])}: the breaker of {about} has failures {failures}."
            f" Use 1 to {MAX_BREAKER_FAILURES}."
        )
    return failures, _seconds(
        values["pause_s"], f"the breaker of {about}", "pause_s", MAX_BREAKER_PAUSE_S
    )


def _mapping(node: MappingNode, about: str, allowed: tuple[str, ...] | None) -> dict[str, Node]:
    """Return a mapping's values; keys are allowed text without repetition."""
    values: dict[str, Node] = {}
    for key, value in node.value:
        if not isinstance(key, ScalarNode) or not key.tag.endswith(":str"):
            raise ToolsFileError(
                f"Line {_line(key)}: every key of {about} must be text. Put it in quotes."
            )
        if key.value in values:
            raise ToolsFileError(f"Line {_line(key)}: {about} has `{key.value}` twice.")
        if allowed is not None and key.value not in allowed:
            near = difflib.get_close_matches(key.value, allowed, 1, 0.5)
            hint = f"Did you mean `{near[0]}`?" if near else f"Use {', '.join(allowed)}."
            raise ToolsFileError(
                f"Line {_line(key)}: {about} has the unknown key {key.value!r}. {hint}"
            )
        values[key.value] = value
    return values


def _choice(node: Node, about: str, key: str, choices: tuple[str, ...]) -> str:
    value = _scalar(node, about, key, "str", lambda text: text)
    if value not in choices:
        raise ToolsFileError(
            f"Line {_line(node)}: {about} has {key} {value!r}. Choose one of {', '.join(choices)}."
        )
    return value


def _seconds(node: Node, about: str, key: str, most: int) -> int:
    value = _scalar(node, about, key, "int", _integer)
    if not 1 <= value <= most:
        raise ToolsFileError(
            f"Line {_line(node)}: {about} has {key} {value}. Use 1 to {most} seconds."
        )
    return value


def _description(node: Node, about: str) -> str:
    value = _scalar(node, about, "description", "str", lambda text: text.strip())
    if len(value) > 300 or not value.replace("\n", " ").isprintable():
        raise ToolsFileError(
            f"Line {_line(node)}: the description of {about} must be at most 300 printable"
            " characters."
        )
    return " ".join(value.split())


def _integer(text: str) -> int:
    """Parse decimal digits only; YAML's octal and sexagesimal numbers are rejected."""
    if (
        not (text.isascii() and text.isdigit())
        or len(text) > 12
        or (text[0] == "0" and text != "0")
    ):
        raise ValueError(text)
    return int(text)


def _scalar(node: Node, about: str, key: str, tag: str, read: Callable[[str], T]) -> T:
    number = "a whole number of seconds" if key.endswith("_s") else "a whole number"
    wanted = {"str": "text", "int": number, "bool": "true or false"}[tag]
    fault = f"Line {_line(node)}: {key} of {about} must be {wanted}."
    if not isinstance(node, ScalarNode) or not node.tag.endswith(f":{tag}"):
        raise ToolsFileError(fault)
    try:
        return read(node.value)
    except ValueError as error:
        raise ToolsFileError(fault) from error


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1
