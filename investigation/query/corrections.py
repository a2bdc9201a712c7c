"""Correct a wrong query: what its author most likely meant, as a query that can be run.

Only texts that compile are returned. Each rule is certain or uses a table of usual words; the
nearest spelling comes last, and only if it is close. A wrong correction is worse than none.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from investigation.query import edit, written_times
from investigation.query.compiler import OPERATOR_HELP, find_nearest_field, parse_query
from investigation.query.entity_registry import DEFAULT, ENTITIES, NAMES, Entity
from investigation.query.fields.types import Field, list_field_choices
from investigation.query.parser.ast import (
    And,
    Node,
    Not,
    Or,
    Query,
    QueryError,
    QueryValue,
    Scope,
    Term,
)
from investigation.query.parser.query_parser import DECLARED_PREFIX, MAX_CHARACTERS, NAME
from investigation.query.spelling import find_nearest_word
from investigation.query.usual_words import USUAL_FLAGS, USUAL_VALUES, list_usual_fields

MAX_ERRORS: Final = 4  # Most errors of one query that are corrected.
MAX_TRIED: Final = 24  # Most texts that are compiled.
# Fields whose values follow `is:` in other products, such as is:failed.
_FIELDS_OF_STATES: Final = ("state", "status", "outcome", "permission", "ruling")

_NAME: Final = f"(?:{NAME.pattern})"
# What makes a plural before it the name of an entity: nothing, a stage or a condition.
_HAS_CONDITIONS: Final = re.compile(rf"^\s*$|^\s*\||{_NAME}[:=]")
_QUOTED: Final = re.compile(r'"(?:\\.|[^"\\])*"')
_VALUE: Final = r'("(?:\\.|[^"\\])*"|[^\s()|",]+)'
_ASSIGNED: Final = re.compile(
    rf"(?<![^\s(-])({_NAME})\s*(==|!=|<>|>=|<=|=|>|<)\s*{_VALUE}(?=[\s()|]|$)"
)
_LISTED: Final = re.compile(rf"(?<![^\s(-])({_NAME}):([^\s()\[\]|\",]+(?:,[^\s()\[\]|\",]+)+)\]?")
_DATED: Final = re.compile(
    rf"(?<![^\s(-])({_NAME}:(?:>=|<=|>|<)?)(\d{{4}}-\d\d-\d\d) (\d\d?:\d\d\S*)"
)
_OPERATOR: Final = re.compile(rf"(?<![^\s)])(or|and|not)(?=\s+-?\(?{_NAME}:)")
_SIGNS: Final = (("&&", "AND"), ("||", "OR"))
_TRAILING: Final = re.compile(r"[\s,]*(?:(?<![^\s)])(?:OR|AND|NOT|or|and|not)|(?<!\S)-|\|)\s*$")
_UNFINISHED: Final = re.compile(rf"\s+-?{_NAME}:(?:>=|<=|=|>|<)?\s*$")
_LEADING: Final = re.compile(r"(?<![^\s(])(?:OR|AND)\s+$")
_NEXT_TERM: Final = re.compile(rf"\s+-?(?:(?:OR|AND|NOT)\s+)?\(?(?:{_NAME}:|\|)")
_BLANK_AFTER_COLON: Final = re.compile(rf"({_NAME}:(?:>=|<=|=|>|<)?)\s+(?=\S)")
_STAGES: Final = (
    (re.compile(r"\|\s*(?:stats\s+)?count\s+by\s+"), "| group "),
    (re.compile(r"\|\s*(?:group|summarize|facet)\s+by\s+"), "| group "),
    (re.compile(r"\|\s*by\s+"), "| group "),
    (re.compile(r"\|\s*(?:limit|head|take)\s+(?=\d)"), "| top "),
)
# Values of `target:` that name a ref rather than a resource.
_REF: Final = re.compile(r"(main|master|develop|HEAD|refs/.*|release/.*|v\d.*)\*?")
_PLURALS: Final = {
    **{entity.plural: entity.name for entity in ENTITIES.values()},
    "requests": "gate",
    "approvals": "gate",
}

Check = Callable[[str], None]  # Compiles a query; raises QueryError.


@dataclass
class _Attempts:
    """Texts that were compiled, so that each is compiled once and few are."""

    check: Check
    now_us: int
    tried: set[str] = field(default_factory=set)

    def find_error(self, text: str) -> QueryError | None:
        self.tried.add(text)
        try:
            self.check(text)
        except QueryError as error:
            return error
        return None

    def correct(self, text: str, error: QueryError, errors_left: int) -> str:
        """Return the first candidate that compiles, after further corrections if necessary."""
        failed: list[tuple[str, QueryError]] = []
        for text_with_blanks in _list_candidates(text, error, self.now_us):
            candidate = text_with_blanks.strip()
            if candidate in self.tried or len(self.tried) >= MAX_TRIED:
                continue
            next_error = self.find_error(candidate)
            if next_error is None:
                return candidate
            failed.append((candidate, next_error))
        for candidate, next_error in failed if errors_left > 1 else ():
            corrected = self.correct(candidate, next_error, errors_left - 1)
            if corrected:
                return corrected
        return ""


def correct_query(text: str, error: QueryError, check: Check, now_us: int) -> str:
    """Return the query that was most likely meant by `text`, or "" if none is likely.

    `check` compiles a text; every returned query passes it.
    """
    if len(text) > MAX_CHARACTERS or "\0" in text:
        return ""
    return _Attempts(check, now_us, {text}).correct(text, error, MAX_ERRORS)


def find_meant_conditions(query: Query, check: Check) -> str:
    """Return the query with conditions that `query` searches as words, such as `state=failed`.

    Returns "" if there are none.
    """
    text = _rewrite_conditions(query.text, query.entity)
    if text == query.text:
        return ""
    try:
        check(text)
    except QueryError:
        return ""
    return text


def _list_candidates(text: str, error: QueryError, now_us: int) -> Iterator[str]:
    """Yield corrected texts, the likeliest first. They may have errors."""
    rewritten = _rewrite_conditions(text, _read_entity(text))
    if rewritten != text:
        yield rewritten
    try:
        query = parse_query(text)
    except QueryError as syntax_error:
        yield from _correct_syntax(text, syntax_error)
        return
    yield from _correct_names(query, error, now_us)
    yield from _correct_syntax(text, error)


# Conditions in the notation of other products.


def _rewrite_conditions(text: str, entity_name: str) -> str:
    """Return `text` with conditions as this language writes them. Quoted values do not change."""
    text = _replace_quotes(text)
    entity = ENTITIES[entity_name]
    plural = re.match(r"\s*(\w+)(?=[\s|]|$)", text)
    if plural and plural[1].lower() in _PLURALS and _HAS_CONDITIONS.search(text[plural.end() :]):
        entity = ENTITIES[_PLURALS[plural[1].lower()]]
        text = entity.name + text[plural.end() :]
    head, bar, tail = _split_stages(text)

    def assign(match: re.Match[str]) -> str:
        name = _name_field(match[1], entity)
        sign = "" if match[2] in ("==", "=", "!=", "<>") else match[2]
        if name is None or (match[3].startswith('"') and sign):
            return match[0]
        return f"{'-' if match[2] in ('!=', '<>') else ''}{name}:{sign}{match[3]}"

    def list_values(match: re.Match[str]) -> str:
        name = _name_field(match[1], entity)
        return match[0] if name is None else f"{match[1]}:[{match[2]}]"

    head = _replace_outside_quotes(_ASSIGNED, assign, head)
    head = _replace_outside_quotes(_LISTED, list_values, head)
    head = _replace_outside_quotes(_DATED, _join_date, head)
    head = _replace_outside_quotes(_OPERATOR, lambda match: match[1].upper(), head)
    return head + bar + tail


def _join_date(match: re.Match[str]) -> str:
    return f"{match[1]}{match[2]}T{match[3]:0>5}"


def _split_stages(text: str) -> tuple[str, str, str]:
    """Return the conditions, the first “|” outside of quotes, and the stages."""
    masked = _mask_quoted(text)
    at = re.search(r"(?<!\|)\|(?!\|)", masked)
    return (text, "", "") if at is None else (text[: at.start()], "|", text[at.end() :])


def _name_field(name: str, entity: Entity) -> str | None:
    """Return the field that `name` means before a sign, or None: then it is text.

    A usual word for a field counts only if few values are possible.
    """
    if entity.find_field(name) is not None or name in OPERATOR_HELP:
        return name
    usual = (entity.find_field(meant) for meant in list_usual_fields(entity.name, name))
    return next((meant.name for meant in usual if meant and list_field_choices(meant)), None)


def _replace_quotes(text: str) -> str:
    """Return `text` with typographic quotes, and single quotes of a value, as double quotes."""
    text = re.sub("[“”„]", '"', text)
    return _replace_outside_quotes(re.compile(r"(?<=:)'([^'\"]*)'(?=[\s)|]|$)"), r'"\1"', text)


def _mask_quoted(text: str) -> str:
    return _QUOTED.sub(lambda match: "_" * len(match[0]), text)


def _replace_outside_quotes(
    pattern: re.Pattern[str], by: "str | Callable[[re.Match[str]], str]", text: str
) -> str:
    """Replace matches that do not begin inside of quotes."""
    quoted = [match.span() for match in _QUOTED.finditer(text)]

    def replace(match: re.Match[str]) -> str:
        if any(start < match.start() < end for start, end in quoted):
            return match[0]
        return by(match) if callable(by) else match.expand(by)

    return pattern.sub(replace, text)


def _read_entity(text: str) -> str:
    first = re.match(r"\s*(\w+)(?=[\s|]|$)", text)
    return first[1] if first and first[1] in NAMES else DEFAULT


# Syntax: brackets, quotes, operators and stages.


def _correct_syntax(text: str, error: QueryError) -> Iterator[str]:
    at = error.at
    for pattern, by in _STAGES:
        yield _replace_outside_quotes(pattern, by, text)
    for sign, word in _SIGNS:
        yield _replace_outside_quotes(re.compile(rf"\s*{re.escape(sign)}\s*"), f" {word} ", text)
    if text[at : at + 1] in (")", "]", "}", '"', "“", "”"):
        yield _remove_characters(text, at, at + 1)
    yield _replace_outside_quotes(_BLANK_AFTER_COLON, r"\1", text)
    yield from _close_quote(text)
    yield from _close_brackets(text)
    yield _TRAILING.sub("", text)
    yield re.sub(r"(?<=\S)" + _UNFINISHED.pattern, "", text)
    leading = _LEADING.search(text[: error.at + error.length + 1])
    if leading:
        yield _remove_characters(text, leading.start(), leading.end())
    yield re.sub(r"\b(OR|AND)\s+(?:(?:OR|AND)\s+)+", r"\1 ", text)
    yield re.sub(r"\(\s*\)", "", text).strip()
    yield re.sub(rf"\b(any|all|none|count)\(\s*({'|'.join(NAMES)})\s+(?=\S)", r"\1(\2: ", text)
    for plural, name in _PLURALS.items():
        yield re.sub(rf"\b(any|all|none|count)\(\s*{plural}\b", rf"\1({name}", text)
    yield re.sub(rf"({_NAME}):\*(?=[\s()|]|$)", r"has:\1", text)


def _remove_characters(text: str, start: int, end: int) -> str:
    return f"{text[:start].rstrip()} {text[end:].lstrip()}".strip()


def _close_quote(text: str) -> Iterator[str]:
    """Close a quote before the next condition, or at the end."""
    opened = _find_open_quote(text)
    if opened < 0:
        return
    if opened == len(text) - 1 or (opened and text[opened - 1] not in " :[,(=>-"):
        yield text[:opened] + text[opened + 1 :]
    following = _NEXT_TERM.search(text, opened)
    if following:
        yield f'{text[: following.start()]}"{text[following.start() :]}'
    else:
        inner = text[opened:]
        end = len(text) - (len(inner) - len(inner.rstrip(")] ")))
        yield f'{text[:end]}"{text[end:]}'
        yield f'{text}"'


def _find_open_quote(text: str) -> int:
    return _mask_quoted(text).find('"')


def _close_brackets(text: str) -> Iterator[str]:
    """Close a list before the next condition, and parentheses before the stages or at the end."""
    masked = _mask_quoted(text)
    stack: list[tuple[str, int]] = []
    for number, character in enumerate(masked):
        if character in "([":
            stack.append((character, number))
        elif character in ")]" and stack and stack[-1][0] == {")": "(", "]": "["}[character]:
            stack.pop()
    lists = [number for character, number in stack if character == "["]
    if lists:
        following = _NEXT_TERM.search(masked, lists[-1])
        end = following.start() if following else len(text)
        closing = re.compile(r"\s*[)|]").search(masked, lists[-1], end)
        end = closing.start() if closing else end
        yield f"{text[:end].rstrip(' ,')}]{text[end:]}"
    if stack and not lists:
        head, bar, tail = _split_stages(text)
        missing = ")" * len(stack)
        yield f"{head.rstrip()}{missing} {bar}{tail}".rstrip()


# Names and values.


def _correct_names(query: Query, error: QueryError, now_us: int) -> Iterator[str]:
    """Yield texts with another field, value or flag at the error."""
    text = query.text
    if query.asof is not None and query.asof.at == error.at:
        yield from _rewrite_value(text, query.asof, _read_time(now_us))
    place = _find_term(query.condition, error.at, ENTITIES[query.entity])
    if place is None:
        yield from _replace_name(text, error.at, error.length, ENTITIES[query.entity])
        return
    term, entity = place
    if term.name == "is":
        yield from _correct_flag(text, term, entity)
        return
    if term.name == "has":
        yield from _replace_name(text, error.at, error.length, entity)
        return
    known_field = entity.find_field(term.name)
    if known_field is None and term.name not in OPERATOR_HELP:
        yield from _correct_field(text, term, entity, error)
        return
    if term.name in OPERATOR_HELP and term.operator:
        start = term.at + len(term.name) + 1
        yield text[:start] + text[start + len(term.operator) :]
    kind = "time" if known_field is None else known_field.kind
    written_values = [value for value in (*term.values, term.low, term.high) if value is not None]
    value = next((value for value in written_values if value.at == error.at), None)
    if value is None:
        return
    if kind == "time":
        yield from _rewrite_value(text, value, _read_time(now_us), is_range=term.is_range)
    elif kind == "length":
        rewrite = written_times.rewrite_duration
        yield from _rewrite_value(text, value, rewrite, is_range=term.is_range)
    elif known_field is not None:
        yield from _correct_choice(text, term, value, entity, known_field)


def _find_term(node: Node | None, at: int, entity: Entity) -> tuple[Term, Entity] | None:
    """Return the term that holds character `at`, with the entity of its rows, or None."""
    if isinstance(node, Term):
        return (node, entity) if node.at <= at < node.end else None
    if isinstance(node, Scope):
        return _find_term(node.condition, at, ENTITIES[node.entity])
    children: tuple[Node, ...] = ()
    if isinstance(node, And | Or):
        children = node.children
    elif isinstance(node, Not):
        children = (node.child,)
    places = (_find_term(child, at, entity) for child in children)
    return next((place for place in places if place is not None), None)


def _correct_field(text: str, term: Term, entity: Entity, error: QueryError) -> Iterator[str]:
    if "is a declared field" in error.sentence:
        yield f"{text[: term.at]}{DECLARED_PREFIX}{text[term.at :]}"
    value = term.values[0].text if term.values else ""
    if term.name.lower() == "target" and entity.name == "effect" and _REF.fullmatch(value):
        yield _replace_span(text, term.at, len(term.name), "ref")
    yield from _replace_name(text, term.at, len(term.name), entity)
    owners = [other.name for other in ENTITIES.values() if other.find_field(term.name) is not None]
    if len(owners) == 1 and entity.name == DEFAULT == _read_entity(text):
        yield f"{owners[0]} {text.strip()}"


def _replace_name(text: str, at: int, length: int, entity: Entity) -> Iterator[str]:
    """Yield texts with another field's name: a usual word for it, else the nearest spelling."""
    name = text[at : at + length]
    if not NAME.fullmatch(name) or entity.find_field(name) is not None:
        return
    if entity.find_field(name.lower()) is not None or name.lower() in OPERATOR_HELP:
        yield _replace_span(text, at, length, name.lower())
    for meant in list_usual_fields(entity.name, name):
        if entity.find_field(meant) is not None or meant in OPERATOR_HELP:
            yield _replace_span(text, at, length, meant)
    nearest = find_nearest_field(name, entity)
    if nearest:
        yield _replace_span(text, at, length, nearest)


def _correct_flag(text: str, term: Term, entity: Entity) -> Iterator[str]:
    if len(term.values) != 1:
        return
    word = _normalize_word(term.values[0].text)
    flags = [word, *USUAL_FLAGS[entity.name].get(word, ())]
    conditions = [f"is:{flag}" for flag in flags if flag in entity.flags]
    for name in _FIELDS_OF_STATES:
        if name in entity.fields:
            conditions += _list_meant_conditions(word, entity, entity.fields[name])
    near_flag = find_nearest_word(word, entity.flags)
    conditions += [f"is:{near_flag}"] if near_flag else []
    for condition in conditions:
        yield _replace_span(text, term.at, term.end - term.at, condition)


def _correct_choice(
    text: str, term: Term, value: QueryValue, entity: Entity, known_field: Field
) -> Iterator[str]:
    choices = list_field_choices(known_field)
    if not choices:
        return
    word = _normalize_word(value.text)
    is_single = len(term.values) == 1
    if is_single and word.startswith("!") and word[1:] in choices:
        yield _replace_span(text, term.at, term.end - term.at, f"-{term.name}:{word[1:]}")
    for condition in _list_meant_conditions(word, entity, known_field):
        name, _, meant = condition.partition(":")
        if name == known_field.name:
            yield _replace_value(text, value, meant)
        elif is_single:
            yield _replace_span(text, term.at, term.end - term.at, condition)
    for name in _FIELDS_OF_STATES:
        if is_single and name in entity.fields and word in list_field_choices(entity.fields[name]):
            yield _replace_span(text, term.at, term.end - term.at, f"{name}:{word}")
    nearest = find_nearest_word(word, choices)
    if nearest:
        yield _replace_value(text, value, nearest)


def _list_meant_conditions(word: str, entity: Entity, known_field: Field) -> list[str]:
    """Return the conditions that `word` as a value of the field can mean."""
    usual = USUAL_VALUES.get(f"{entity.name}.{known_field.name}", {}).get(word, ())
    meant = [word] if word in list_field_choices(known_field) else list(usual)
    return [each if ":" in each else f"{known_field.name}:{each}" for each in meant]


def _normalize_word(text: str) -> str:
    return re.sub(r"[\s-]+", "_", text.strip().lower())


def _read_time(now_us: int) -> "Callable[[str], written_times.Written | None]":
    return lambda text: written_times.rewrite_time(text, now_us)


def _rewrite_value(
    text: str,
    value: QueryValue,
    rewrite: "Callable[[str], written_times.Written | None]",
    *,
    is_range: bool = False,
) -> Iterator[str]:
    """Yield the text with a value as the language writes it; it may have several words."""
    if value.form == "quoted" or is_range:
        written = rewrite(value.text)
        if written and written[0] == len(value.text):
            yield _replace_value(text, value, written[1])
        return
    written = rewrite(text[value.at :])
    if written:
        yield _replace_span(text, value.at, written[0], written[1])


def _replace_value(text: str, value: QueryValue, by: str) -> str:
    quoted = _QUOTED.match(text, value.at) if value.form == "quoted" else None
    length = quoted.end() - value.at if quoted else len(value.text) + value.prefix
    return _replace_span(text, value.at, length, edit.quote_if_needed(by))


def _replace_span(text: str, at: int, length: int, by: str) -> str:
    return text[:at] + by + text[at + length :]


__all__ = ["correct_query", "find_meant_conditions"]
