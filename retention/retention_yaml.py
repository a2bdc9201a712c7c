"""The YAML of retention: classes with their time, and rules by kind and tool.

Grammar and examples: docs/reference/retention.md.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from yaml.nodes import Node, ScalarNode

from db.yaml_reader import (
    compose_yaml,
    expect_mapping,
    expect_sequence,
    expect_text,
    make_document_error,
    suggest_choice,
)

MAX_BYTES: Final = 64 * 1024
MAX_CLASSES: Final = 20
MAX_RULES: Final = 200
MIN_DAYS: Final = 30  # open work needs its texts
MAX_MONTHS: Final = 1_200
FOREVER: Final = "forever"  # the class of what no rule names
_KEEP: Final = re.compile(r"([1-9][0-9]{0,4}) (day|month|year)s?")
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,23}")
_PATTERN: Final = re.compile(r"[^\s*]+\*?|\*")
# Entries that prove what was erased, or say what is kept, always keep their texts.
KEPT_KINDS: Final = ("erasure.", "retention.")


def parse_retention(text: str) -> dict[str, Any]:
    """Return name, classes, rules and default of a document. Raises DocumentError."""
    root = compose_yaml(text)
    document = expect_mapping(root, "the document", ("name", "classes", "rules", "default"))
    for key in ("name", "classes", "rules"):
        if key not in document:
            raise make_document_error(root, f"`{key}` is missing.")
    classes: dict[str, str] = {FOREVER: FOREVER}
    for node in expect_sequence(document["classes"], "classes", MAX_CLASSES):
        fields = expect_mapping(node, "a class", ("name", "keep"))
        if len(fields) < 2:
            raise make_document_error(node, "a class has a `name` and a `keep`.")
        name = _expect_name(fields["name"], "the name of a class")
        if name in classes:
            raise make_document_error(node, f"the class {name} exists already; rename one.")
        classes[name] = _expect_keep(fields["keep"])
    rules = []
    for node in expect_sequence(document["rules"], "rules", MAX_RULES):
        fields = expect_mapping(node, "a rule", ("class", "kind", "tool"))
        if "class" not in fields or len(fields) < 2:
            raise make_document_error(node, "a rule has a `class`, and a `kind` or a `tool`.")
        rules.append(
            {
                "class": _expect_class(fields["class"], classes),
                "kind": _expect_pattern(fields["kind"], "kind") if "kind" in fields else "*",
                "tool": _expect_pattern(fields["tool"], "tool") if "tool" in fields else "",
            }
        )
    default = _expect_class(document["default"], classes) if "default" in document else FOREVER
    return {
        "name": _expect_name(document["name"], "the name"),
        "classes": [{"name": name, "keep": keep} for name, keep in classes.items()],
        "rules": rules,
        "default": default,
    }


def _expect_name(node: Node, label: str) -> str:
    name = expect_text(node, label, 24)
    if not _NAME.fullmatch(name):
        raise make_document_error(node, f"{label} has lower-case letters, digits, - and _.")
    return name


def _expect_class(node: Node, classes: dict[str, str]) -> str:
    name = expect_text(node, "a class", 24)
    if name not in classes:
        hint = suggest_choice(name, classes)
        raise make_document_error(node, f"there is no class {name!r}; {hint}")
    return name


def _expect_pattern(node: Node, label: str) -> str:
    pattern = expect_text(node, label, 100)
    if not _PATTERN.fullmatch(pattern):
        raise make_document_error(
            node, f"{label} is a name, or its beginning and one *, such as effect.*"
        )
    return pattern


def _expect_keep(node: Node) -> str:
    value = node.value if isinstance(node, ScalarNode) else ""
    match = _KEEP.fullmatch(value)
    if value == FOREVER:
        return FOREVER
    if match is None:
        raise make_document_error(
            node, "keep is a length such as 90 days, 13 months or 7 years, or forever."
        )
    number, unit = int(match[1]), match[2]
    if unit == "day" and number < MIN_DAYS:
        raise make_document_error(
            node, f"keep is at least {MIN_DAYS} days: who decides or resumes needs the texts."
        )
    months = number // 30 if unit == "day" else number * 12 if unit == "year" else number
    if months > MAX_MONTHS:
        raise make_document_error(node, f"keep is at most {MAX_MONTHS // 12} years; or forever.")
    return f"{number} {unit}{'s' if number != 1 else ''}"


def find_class(rules: dict[str, Any], kind: str, tool: str | None) -> str:
    """Return the class of an entry: of the first rule that fits, else the default. Pure."""
    if kind.startswith(KEPT_KINDS):
        return FOREVER
    for rule in rules["rules"]:
        if _fits(rule["kind"], kind) and (
            not rule["tool"] or (tool is not None and _fits(rule["tool"], tool))
        ):
            return str(rule["class"])
    return str(rules["default"])


def _fits(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def list_finite_classes(rules: dict[str, Any]) -> dict[str, str]:
    """Return the classes whose texts expire, with their `keep`."""
    return {row["name"]: row["keep"] for row in rules["classes"] if row["keep"] != FOREVER}


def compute_cutoff_us(keep: str, now_us: int) -> int:
    """Return up to which time of receipt texts have expired by now.

    Texts expire at the first moment of a month (UTC): the first that begins after `keep` is over.
    """
    start = datetime.fromtimestamp(now_us // 1_000_000, UTC).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    days, months = _read_keep(keep)
    if months > start.year * 12 - 1_970 * 12 + start.month - 1:
        return 0
    cutoff = _add_months(start, -months) - timedelta(days=days)
    return max(int(cutoff.timestamp()) * 1_000_000, 0)


def compute_expiry_month(keep: str, received_us: int) -> str:
    """Return the month at whose beginning a text expires, such as `2027-03`."""
    seconds = -(-received_us // 1_000_000)
    days, months = _read_keep(keep)
    end = datetime.fromtimestamp(seconds, UTC) + timedelta(days=days)
    start = end.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return _add_months(start, months + (end != start)).strftime("%Y-%m")


def _read_keep(keep: str) -> tuple[int, int]:
    """Return days and months of a length."""
    number, unit = keep.split(" ")
    size = int(number)
    if unit.startswith("day"):
        return size, 0
    return 0, size * 12 if unit.startswith("year") else size


def _add_months(start: datetime, months: int) -> datetime:
    total = start.year * 12 + start.month - 1 + months
    return start.replace(year=total // 12, month=total % 12 + 1)
