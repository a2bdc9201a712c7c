"""Strict reader of YAML nodes: every fault names its line.

YAML has surprises: `no` is false, `1:30` is ninety, a second key silently wins, an alias repeats
another value. Each is refused, because a rule or a declaration must mean what it looks like.
"""

import difflib
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import yaml
from django.core.management.base import CommandError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

Scalar = str | int | float | bool | None
MAX_JSON_INTEGER: Final = 2**53  # JSON readers disagree about larger integers
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,15})")
_DECIMAL: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,15})\.[0-9]{1,15}")
_DURATION: Final = re.compile(r"(0|[1-9][0-9]{0,8})([smhd]?)")
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


class DocumentError(ValueError):
    """The text cannot be read.

    `line` counts from 1; `sentence` says what is wrong and what would be right.
    """

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(f"Line {line}: {sentence}")
        self.line, self.sentence = line, sentence


class _Loader(yaml.SafeLoader):
    """A loader that refuses aliases: a document contains its values."""

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.get_event()  # type: ignore[no-untyped-call]  # missing in PyYAML's types
            raise yaml.composer.ComposerError(
                None, None, "aliases are not supported; write the value out", event.start_mark
            )
        return super().compose_node(parent, index)


def read_yaml_file(path: Path, most_bytes: int) -> str:
    """Return the text of a file for a `manage.py` command. Raises CommandError."""
    try:
        if path.stat().st_size > most_bytes:
            raise CommandError(f"{path} is larger than {most_bytes // 1024} KiB, the maximum.")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8 text.") from error


def compose_yaml(text: str) -> Node:
    """Return the root node of `text`. Raises DocumentError."""
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        raise DocumentError(
            at.line + 1 if at else 1, f"this is not YAML: {error.problem}."
        ) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1 if isinstance(error.position, int) else 1
        raise DocumentError(
            line, "the text contains a character that YAML does not allow."
        ) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise DocumentError(1, "this YAML cannot be parsed.") from error
    if root is None:
        raise DocumentError(1, "the text is empty.")
    return root


def get_node_line(node: Node) -> int:
    """Return the line on which a node begins, from 1."""
    return int(node.start_mark.line) + 1


def make_document_error(node: Node, sentence: str) -> DocumentError:
    """Return a DocumentError with `sentence` at the line of `node`."""
    return DocumentError(get_node_line(node), sentence)


def suggest_choice(name: str, choices: Iterable[str]) -> str:
    """Return half a sentence that suggests the closest of `choices`, or lists all."""
    names = list(choices)
    matches = difflib.get_close_matches(name, names, 1, 0.5)
    return f"did you mean `{matches[0]}`?" if matches else f"known are {', '.join(names)}."


def expect_mapping(node: Node, label: str, allowed_keys: Iterable[str] | None) -> dict[str, Node]:
    """Return the values of a mapping by key.

    Every key is text, unique and, unless `allowed_keys` is None, one of these.
    """
    if not isinstance(node, MappingNode) or not node.tag.endswith(":map"):
        raise make_document_error(node, f"{label} must be a mapping of keys to values.")
    values: dict[str, Node] = {}
    for key, value in node.value:
        # YAML reads some words, such as `on`, as true; an allowed key of that spelling is text.
        is_text = isinstance(key, ScalarNode) and (
            key.tag.endswith(":str") or (allowed_keys is not None and key.value in allowed_keys)
        )
        if not is_text:
            raise make_document_error(key, f"every key of {label} must be text; put it in quotes.")
        if key.value in values:
            raise make_document_error(key, f"{label} has `{key.value}` twice; remove one.")
        if allowed_keys is not None and key.value not in allowed_keys:
            raise make_document_error(
                key,
                f"{label} has the unknown key {key.value!r}; "
                f"{suggest_choice(key.value, allowed_keys)}",
            )
        values[key.value] = value
    return values


def expect_sequence(node: Node, label: str, most: int, *, least: int = 1) -> list[Node]:
    """Return the items of a list."""
    if not isinstance(node, SequenceNode) or not node.tag.endswith(":seq"):
        raise make_document_error(node, f"{label} must be a list; write [one, two], also for one.")
    if not least <= len(node.value) <= most:
        problem = (
            "is empty; remove it instead"
            if not node.value
            else f"has {len(node.value)} items; {most} is the most"
        )
        raise make_document_error(node, f"{label} {problem}.")
    return list(node.value)


def expect_text(node: Node, label: str, longest: int) -> str:
    """Return printable text of 1 to `longest` characters on one line."""
    if not isinstance(node, ScalarNode) or not node.tag.endswith(":str"):
        hint = "; put it in quotes" if isinstance(node, ScalarNode) and node.value else ""
        raise make_document_error(node, f"{label} must be text{hint}.")
    value = node.value
    if not value.strip() or value != value.strip():
        raise make_document_error(
            node, f"{label} must not be empty, nor begin or end with a space."
        )
    if len(value) > longest:
        raise make_document_error(node, f"{label} is longer than {longest} characters.")
    if not value.isprintable():
        raise make_document_error(
            node, f"{label} must not contain line breaks or invisible characters."
        )
    return str(value)


def expect_choice(node: Node, label: str, choices: tuple[str, ...]) -> str:
    """Return one of `choices`."""
    if not isinstance(node, ScalarNode) or node.value not in choices:
        value = f"{node.value!r}" if isinstance(node, ScalarNode) else "something else"
        raise make_document_error(node, f"{label} is {value}; choose one of {', '.join(choices)}.")
    return str(node.value)


def expect_boolean(node: Node, label: str) -> bool:
    """Return a boolean written as `true` or `false`."""
    if (
        not isinstance(node, ScalarNode)
        or not node.tag.endswith(":bool")
        or node.value not in ("true", "false")
    ):
        raise make_document_error(node, f"{label} must be true or false.")
    return bool(node.value == "true")


def expect_integer(node: Node, label: str, least: int, most: int) -> int:
    """Return a whole number in decimal digits."""
    plain = (
        isinstance(node, ScalarNode)
        and node.tag.endswith(":int")
        and _INTEGER.fullmatch(node.value)
    )
    if not plain or not least <= int(node.value) <= most:
        raise make_document_error(node, f"{label} must be a whole number from {least} to {most}.")
    return int(node.value)


def expect_duration(node: Node, label: str, most: int) -> int:
    """Return a length of time: whole seconds, or 30s, 10m, 1h, 2d."""
    match = (
        _DURATION.fullmatch(node.value)
        if isinstance(node, ScalarNode) and node.style is None
        else None
    )
    length = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 1 <= length <= most:
        raise make_document_error(
            node,
            f"{label} must be seconds or a length such as 10m, 1h or 2d, at most {most} seconds.",
        )
    return length


def expect_scalar(node: Node, label: str) -> Scalar:
    """Return text, a number, true, false or null, with JSON's meaning."""
    if isinstance(node, ScalarNode):
        kind, value = node.tag.rpartition(":")[2], node.value
        if kind == "str" and len(value) <= 500:
            return str(value)
        if kind == "bool" and value in ("true", "false"):
            return bool(value == "true")
        if kind == "null" and value == "null":
            return None
        if kind == "int" and _INTEGER.fullmatch(value) and abs(int(value)) <= MAX_JSON_INTEGER:
            return int(value)
        if kind == "float" and _DECIMAL.fullmatch(value) and math.isfinite(float(value)):
            return float(value)
    raise make_document_error(
        node,
        f"{label} must be text of at most 500 characters, a decimal number, true, false or"
        " null; quote text.",
    )


def expect_number(node: Node, label: str) -> int | float:
    """Return a number, whole or not."""
    value = expect_scalar(node, label)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise make_document_error(node, f"{label} must be a number.")
    return value
