"""Strict reader of argument predicates in policies.yaml and tools.yaml."""

import ipaddress
from collections.abc import Iterable
from typing import Any, Final

from yaml.nodes import Node, ScalarNode

from db import yaml_reader
from db.yaml_reader import make_document_error
from ledger.tools.predicates import ARGUMENT_OPERATORS, ORDER_OPERATORS

LONGEST_PATH: Final = 200
MAX_ITEMS: Final = 100  # of any list in a predicate


def read_predicate(
    node: Node, label: str, other_keys: Iterable[str] = ()
) -> tuple[dict[str, Any], dict[str, Node]]:
    """Return a predicate, {path, and exactly one operator}, and the nodes of `other_keys`.

    Raises DocumentError.
    """
    others = tuple(other_keys)
    fields = yaml_reader.expect_mapping(
        node, f"an item of {label}", ("path", *ARGUMENT_OPERATORS, *others)
    )
    if "path" not in fields:
        raise make_document_error(node, f"an item of {label} has no `path`.")
    path = read_path(fields["path"], label)
    operators = [key for key in fields if key != "path" and key not in others]
    if len(operators) != 1:
        given_operators = " and ".join(operators) if operators else "none"
        raise make_document_error(
            node,
            f"argument {path!r} in {label} needs exactly one of {', '.join(ARGUMENT_OPERATORS)}; "
            "it has"
            f" {given_operators}.",
        )
    name = operators[0]
    operand = _operand(name, fields[name], f"{name} of argument {path!r} in {label}")
    return {"path": path, name: operand}, {key: fields[key] for key in others if key in fields}


def read_path(node: Node, label: str) -> str:
    """Return a dot path of an argument. Raises DocumentError."""
    path = yaml_reader.expect_text(node, f"path in {label}", LONGEST_PATH)
    if not all(path.split(".")):
        raise make_document_error(
            node, f"path {path!r} in {label} has an empty step between its dots."
        )
    return path


def _operand(name: str, node: Node, label: str) -> Any:
    if name == "exists":
        return yaml_reader.expect_boolean(node, label)
    if name in ORDER_OPERATORS:
        return yaml_reader.expect_number(node, label)
    if name == "prefix":
        value = yaml_reader.expect_scalar(node, label)
        if not isinstance(value, str) or not value:
            raise make_document_error(node, f"{label} must be text.")
        return value
    if name == "in":
        return [
            yaml_reader.expect_scalar(item, label)
            for item in yaml_reader.expect_sequence(node, label, MAX_ITEMS)
        ]
    if name == "cidr":
        items = (
            [node]
            if isinstance(node, ScalarNode)
            else yaml_reader.expect_sequence(node, label, MAX_ITEMS)
        )
        return [_network(item, label) for item in items]
    return yaml_reader.expect_scalar(node, label)


def _network(node: Node, label: str) -> str:
    value = yaml_reader.expect_text(node, label, 50)
    try:
        return str(ipaddress.ip_network(value))
    except ValueError as error:
        raise make_document_error(
            node, f"{label} must be a network such as 10.0.0.0/8: {error}."
        ) from error
