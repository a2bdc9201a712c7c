"""Edits of a settings file of another program: every byte that need not change stays.

Settings files are JSON; some programs allow comments and trailing commas. So the text is not
written again from its parsed form: members and items are inserted and removed in place.
"""

import json
from dataclasses import dataclass, field
from typing import Any


class NotEditable(ValueError):
    """The file is not JSON, or not of the expected form; the text says where."""


@dataclass
class Node:
    """A value in the text, from `start` to `end`. Objects have members, arrays have items."""

    kind: str  # object, array or scalar
    start: int
    end: int = 0
    value: Any = None
    members: "list[tuple[str, int, Node]]" = field(default_factory=list)  # key, its start, value
    items: "list[Node]" = field(default_factory=list)

    def get_member(self, key: str) -> "Node | None":
        """Return the value of a member, or None. Of a repeated key the last counts."""
        nodes = [node for name, _, node in self.members if name == key]
        return nodes[-1] if nodes else None

    def to_json(self) -> Any:
        """Return the value as plain JSON."""
        if self.kind == "object":
            return {name: node.to_json() for name, _, node in self.members}
        if self.kind == "array":
            return [node.to_json() for node in self.items]
        return self.value


class _Reader:
    """Reads JSON with comments and trailing commas, and where each value stands."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.decoder = json.JSONDecoder()

    def fail(self, expected: str) -> NotEditable:
        line = self.text.count("\n", 0, self.at) + 1
        return NotEditable(f"line {line}: expected {expected}")

    def skip(self) -> None:
        """Skip spaces and comments."""
        text = self.text
        while self.at < len(text):
            if text[self.at] in " \t\r\n\ufeff":
                self.at += 1
            elif text.startswith("//", self.at):
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            elif text.startswith("/*", self.at):
                end = text.find("*/", self.at)
                if end < 0:
                    raise self.fail("the end of a comment")
                self.at = end + 2
            else:
                return

    def read_value(self, depth: int = 0) -> Node:
        self.skip()
        if depth > 100:
            raise self.fail("less than 100 levels")
        start = self.at
        opening = self.text[start : start + 1]
        if opening == "{":
            node = Node("object", start)
            self.read_list(node, "}", depth)
        elif opening == "[":
            node = Node("array", start)
            self.read_list(node, "]", depth)
        else:
            try:
                value, self.at = self.decoder.raw_decode(self.text, start)
            except ValueError:
                raise self.fail("a JSON value") from None
            node = Node("scalar", start, value=value)
        node.end = self.at
        return node

    def read_list(self, node: Node, closing: str, depth: int) -> None:
        self.at += 1
        while True:
            self.skip()
            if self.text[self.at : self.at + 1] == closing:
                self.at += 1
                return
            if node.kind == "object":
                key_start = self.at
                key = self.read_value(depth + 1)
                self.skip()
                if not isinstance(key.value, str) or self.text[self.at : self.at + 1] != ":":
                    raise self.fail("a name and a colon")
                self.at += 1
                node.members.append((key.value, key_start, self.read_value(depth + 1)))
            else:
                node.items.append(self.read_value(depth + 1))
            self.skip()
            following = self.text[self.at : self.at + 1]
            if following == ",":
                self.at += 1
            elif following != closing:
                raise self.fail(f"a comma or {closing}")


def parse_settings(text: str) -> Node:
    """Return the root object of a settings file. Raises NotEditable."""
    reader = _Reader(text)
    reader.skip()
    if reader.at == len(text):
        raise NotEditable("the file is empty")
    root = reader.read_value()
    reader.skip()
    if reader.at != len(text):
        raise reader.fail("nothing after the object")
    if root.kind != "object":
        raise NotEditable("the file is not a JSON object")
    return root


def set_member(text: str, path: list[str], value: Any) -> str:
    """Return the text with the member at `path` set, and missing objects on the way added.

    Raises NotEditable.
    """
    node = parse_settings(text)
    for depth, key in enumerate(path[:-1]):
        child = node.get_member(key)
        if child is None:
            for name in reversed(path[depth + 1 :]):
                value = {name: value}
            return _insert(text, node, key, value)
        if child.kind != "object":
            raise NotEditable(f"{'.'.join(path[: depth + 1])} is not an object")
        node = child
    existing = node.get_member(path[-1])
    if existing is None:
        return _insert(text, node, path[-1], value)
    if existing.to_json() == value:
        return text
    line = _indent_of_line(text, existing.start)
    return text[: existing.start] + _dump(value, text, line) + text[existing.end :]


def append_item(text: str, path: list[str], value: Any) -> str:
    """Return the text with an item at the end of the array at `path`, which is added if missing.

    Raises NotEditable.
    """
    node = parse_settings(text)
    for depth, key in enumerate(path):
        child = node.get_member(key)
        if child is None:
            return set_member(text, path, [value])
        expected = "array" if depth == len(path) - 1 else "object"
        if child.kind != expected:
            raise NotEditable(f"{'.'.join(path[: depth + 1])} is not an {expected}")
        node = child
    return _insert(text, node, None, value)


def remove_item(text: str, path: list[str], index: int) -> str:
    """Return the text without one item of the array at `path`. Raises NotEditable."""
    node = _find_node(text, path)
    spans = [(item.start, item.end) for item in node.items]
    return _cut(text, node, spans, index)


def remove_member(text: str, path: list[str]) -> str:
    """Return the text without the member at `path`; unchanged if there is none."""
    parent = _find_node(text, path[:-1])
    names = [name for name, _, _ in parent.members]
    if path[-1] not in names:
        return text
    spans = [(start, node.end) for _, start, node in parent.members]
    return _cut(text, parent, spans, names.index(path[-1]))


def _find_node(text: str, path: list[str]) -> Node:
    node = parse_settings(text)
    for key in path:
        child = node.get_member(key)
        if child is None:
            raise NotEditable(f"{key} is missing")
        node = child
    return node


def _cut(text: str, node: Node, spans: list[tuple[int, int]], index: int) -> str:
    """Remove the span with one comma beside it and the space before it; comments stay."""
    start, end = spans[index]
    before = spans[index - 1][1] if index else node.start + 1
    lead = before + len(text[before:start].rstrip())
    comma = _find_comma(text, end, node.end - 1)
    if comma >= 0:
        return text[:lead] + text[comma + 1 :]
    if index:
        comma = _find_comma(text, before, start)
        return text[:comma] + text[comma + 1 : lead] + text[end:]
    if not text[node.start + 1 : lead].strip() and not text[end : node.end - 1].strip():
        return text[: node.start + 1] + text[node.end - 1 :]
    return text[:lead] + text[end:]


def _find_comma(text: str, start: int, end: int) -> int:
    """Return where the comma between two values stands, outside comments, or -1."""
    reader = _Reader(text)
    reader.at = start
    reader.skip()
    return reader.at if reader.at < end and text[reader.at] == "," else -1


def _insert(text: str, node: Node, key: str | None, value: Any) -> str:
    """Insert a member (with a key) or an item at the end of an object or an array."""
    last_end = (
        node.members[-1][2].end
        if node.members
        else node.items[-1].end
        if node.items
        else node.start + 1
    )
    is_empty = not (node.members or node.items)
    unit = _indent_unit(text)
    base = _indent_of_line(text, node.start)
    first = node.members[0][1] if node.members else node.items[0].start if node.items else -1
    on_own_line = first >= 0 and not text[text.rfind("\n", 0, first) + 1 : first].strip()
    indent = _indent_of_line(text, first) if on_own_line else base + unit
    label = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
    added = f"\n{indent}{label}{_dump(value, text, indent)}"
    if is_empty:
        inner = text[last_end : node.end - 1]
        return f"{text[:last_end]}{inner.rstrip()}{added}\n{base}{text[node.end - 1 :]}"
    comma = _find_comma(text, last_end, node.end)
    position = comma + 1 if comma >= 0 else last_end
    separator = "" if comma >= 0 else ","
    rest = text[position:]
    closing = "" if "\n" in rest[: node.end - 1 - position] else f"\n{base}"
    comment_end = _end_of_comment(text, position, node.end - 1)
    between = text[position:comment_end]
    return f"{text[:position]}{separator}{between}{added}{closing}{text[comment_end:]}"


def _end_of_comment(text: str, start: int, end: int) -> int:
    """Return where a comment on the same line ends, or `start`."""
    line_end = text.find("\n", start, end)
    stop = end if line_end < 0 else line_end
    between = text[start:stop].strip()
    return stop if between.startswith("//") or between.endswith("*/") else start


def _dump(value: Any, text: str, indent: str) -> str:
    dumped = json.dumps(value, indent=_indent_unit(text), ensure_ascii=False)
    return dumped.replace("\n", f"\n{indent}")


def _indent_of_line(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _indent_unit(text: str) -> str:
    for line in text.split("\n"):
        stripped = line.lstrip(" \t")
        if stripped.startswith('"') and line != stripped:
            return line[: len(line) - len(stripped)]
    return "  "
