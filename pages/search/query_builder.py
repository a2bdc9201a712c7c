"""The builder of queries: rows of field, operator and value that only edit the query's text."""

from dataclasses import dataclass
from typing import Final

from django.http import QueryDict

from investigation.query import edit
from investigation.query.entity_registry import ENTITIES, NAMES, Entity
from investigation.query.parser.ast import Node, Not, Query, QueryValue, Term, TextWords

PARAMETERS: Final = ("f", "o", "v", "rest", "entity", "tail")
MAX_ROWS: Final = 20
WORDS: Final = "words"  # the name of the row of full-text words
IS: Final = "is"
OPERATORS: Final = {
    "is": "is",
    "not": "is not",
    "any": "is any of (a, b)",
    "starts": "starts with",
    ">=": "at least",
    ">": "above",
    "<=": "at most",
    "<": "below",
    "has": "has a value",
    "lacks": "has no value",
}


@dataclass(frozen=True, slots=True)
class BuilderRow:
    """A condition as field, operator and value, or as its text where it has another form.

    `without` is the query without it.
    """

    text: str = ""
    without: str = ""
    name: str = ""
    operator: str = "is"
    value: str = ""
    choices: tuple[tuple[str, str], ...] = ()

    @property
    def is_simple(self) -> bool:
        """Return True if the row can be edited."""
        return bool(self.name)


def list_builder_rows(query: Query) -> list[BuilderRow]:
    """Return the conditions of a query that must all hold."""
    entity = ENTITIES[query.entity]
    rows = []
    for piece in edit.split_conditions(query):
        node = piece.node
        if node is None:
            rows.append(BuilderRow(piece.text, edit.remove_asof(query)))
            continue
        without = edit.remove_conditions(query, lambda other, node=node: other is node)  # type: ignore[misc]
        name, operator, value = _describe_row(node) or ("", "", "")
        rows.append(
            BuilderRow(piece.text, without, name, operator, value, list_choices(entity, name))
        )
    return rows


def list_builder_fields(entity: Entity) -> list[tuple[str, str]]:
    """Return the names that a row offers, with their labels."""
    times = [("since", "Since"), ("until", "Until")]
    fields = [(name, field.label) for name, field in entity.fields.items()]
    flags = [(IS, "Is (a named condition)")] if entity.flags else []
    words = [(WORDS, "Words in its text")] if entity.name != "exemption" else []
    return [*words, *flags, *times, *fields]


def list_choices(entity: Entity, name: str) -> tuple[tuple[str, str], ...]:
    """Return the known values of a field."""
    if name == IS:
        return tuple((flag.name, flag.help) for flag in entity.flags.values())
    field = entity.find_field(name) if name else None
    return field.choices if field is not None else ()


def compose_query(parameters: QueryDict) -> str:
    """Return the query of the builder's form. Rows without field or value are left out."""
    entity, tail = parameters.get("entity", ""), parameters.get("tail", "").strip()
    rows = zip(
        parameters.getlist("f")[:MAX_ROWS],
        parameters.getlist("o"),
        parameters.getlist("v"),
        strict=False,
    )
    rest = [text.strip() for text in parameters.getlist("rest")[:MAX_ROWS]]
    parts = [
        *rest,
        *(_compose_row(name, operator, value.strip()) for name, operator, value in rows),
    ]
    start = entity if entity in NAMES and (entity != "effect" or not any(parts)) else ""
    return " ".join(part for part in (start, *parts, tail) if part)


def _compose_row(name: str, operator: str, value: str) -> str:
    """Return the text of one condition, or an empty text."""
    if not name or (not value and operator not in ("has", "lacks")):
        return ""
    if name == WORDS:
        return f"{'-' if operator == 'not' else ''}{edit.quote_value(value)}"
    quoted = edit.quote_if_needed(value)
    match operator:
        case "not":
            return f"-{name}:{quoted}"
        case "any":
            parts = [part.strip() for part in value.split(",")]
            return f"{name}:[{','.join(edit.quote_if_needed(part) for part in parts if part)}]"
        case "starts":
            return f"{name}:{quoted}*"
        case "has":
            return f"has:{name}"
        case "lacks":
            return f"-has:{name}"
        case ">=" | ">" | "<=" | "<":
            return f"{name}:{operator}{quoted}"
    return f"{name}:{quoted}"


def _describe_row(node: Node) -> tuple[str, str, str] | None:
    """Return field, operator and value of a simple condition; None for another form."""
    negated = isinstance(node, Not)
    inner = node.child if isinstance(node, Not) else node
    if isinstance(inner, TextWords):
        simple = not inner.prefix and '"' not in inner.text
        return (WORDS, "not" if negated else "is", inner.text) if simple else None
    if not isinstance(inner, Term) or inner.is_range or not all(map(_is_plain, inner.values)):
        return None
    texts = [value.text for value in inner.values]
    if inner.name == "has":
        simple = len(texts) == 1
        return (texts[0], "lacks" if negated else "has", "") if simple else None
    if len(texts) > 1:
        return None if negated or inner.operator else (inner.name, "any", ", ".join(texts))
    if inner.values[0].prefix:
        return None if negated or inner.operator else (inner.name, "starts", texts[0])
    if inner.operator in ("", "="):
        if inner.operator and texts[0].endswith("*"):
            return None
        return (inner.name, "not" if negated else "is", texts[0])
    return None if negated else (inner.name, inner.operator, texts[0])


def _is_plain(value: QueryValue) -> bool:
    return value.form != "field" and "," not in value.text
