"""Compile the tree of a query into tests of its entity's rows.

Every term is looked up in the registry; no term is dropped.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from investigation.fulltext import field_index, word_search
from investigation.fulltext.tokenizer import tokenize
from investigation.query.entity_registry import DEFAULT, ENTITIES, NAMES, Entity
from investigation.query.fields.comparison import compile_field_comparison, find_compared_field
from investigation.query.fields.row_tests import (
    CompileContext,
    RowTest,
    intersect_tests,
    negate,
    union_tests,
)
from investigation.query.fields.types import Field
from investigation.query.parser import values
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
    TextWords,
)
from investigation.query.parser.ast import Sequence as Seq
from investigation.query.parser.query_parser import DECLARED_PREFIX, parse_syntax
from investigation.query.registry.common import project_agents, project_people
from investigation.query.spelling import find_nearest_word
from investigation.query.usual_words import list_usual_fields
from journal import reserved_kinds
from journal.models import Entry
from ledger.models import Effect

OPERATOR_HELP: Final = {
    "since": "at this time or later",
    "until": "before this time",
    "has": "the field has a value",
    "is": "a condition",
    "asof": "state at an earlier moment",
}
MAX_NAME_CHARACTERS: Final = 200
# Entity -> kind of name -> the field that a bare word with this name also searches.
_NAMED_FIELDS: Final = {
    "effect": {"agent": "agent", "person": "reviewer"},
    "session": {"agent": "agent", "person": "owner"},
    "gate": {"agent": "agent", "person": "reviewer"},
    "exemption": {"agent": "agent", "person": "granter"},
    "event": {"agent": "actor", "person": "actor"},
}
_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_LOOKUP: Final = {"=": "", ">": "__gt", ">=": "__gte", "<": "__lt", "<=": "__lte"}


@lru_cache(maxsize=256)
def parse_query(text: str) -> Query:
    """Parse a query. Raises QueryError.

    Cached, since links of a page edit one query in many ways; a Query never changes.
    """
    return parse_syntax(text, NAMES, DEFAULT)


def top_level_conditions(query: Query) -> tuple[Node, ...]:
    """Return the conditions that must all hold."""
    if query.condition is None:
        return ()
    return query.condition.children if isinstance(query.condition, And) else (query.condition,)


def named_fields(query: Query) -> list[tuple[Field | None, str, int]]:
    """Return every field of a condition or group, with its name and place in the text."""
    entity = ENTITIES[query.entity]
    fields = list(_condition_fields(query.condition, entity))
    if query.grouping is not None:
        figures = [
            (aggregate.field, aggregate.at + len(aggregate.function) + 1)
            for aggregate in query.grouping.aggregates
        ]
        fields += [
            (entity.find_field(name), name, at) for name, at in [*query.grouping.names, *figures]
        ]
    return fields


def walk_terms(node: Node | None, entity: Entity) -> Iterator[tuple[Term, Entity]]:
    """Yield every term of a condition, with the entity that its field belongs to."""
    if isinstance(node, And | Or):
        for child in node.children:
            yield from walk_terms(child, entity)
    elif isinstance(node, Not):
        yield from walk_terms(node.child, entity)
    elif isinstance(node, Scope):
        yield from walk_terms(node.condition, ENTITIES[node.entity])
    elif isinstance(node, Term):
        yield node, entity


def _condition_fields(node: Node | None, entity: Entity) -> Iterator[tuple[Field | None, str, int]]:
    """Return every field of a condition, with its name and place in the text."""
    for term, owner in walk_terms(node, entity):
        yield owner.find_field(term.name), term.name, term.at
        for value in term.values:
            if value.form == "field" or term.name == "has":
                yield owner.find_field(value.text), value.text, value.at


def get_field(name: str, entity: Entity, at: int) -> Field:
    """Return the entity's field of that name. Raises QueryError with the closest name."""
    known_field = entity.find_field(name)
    if known_field is not None:
        return known_field
    raise QueryError(at, len(name), describe_unknown_field(name, entity))


def describe_unknown_field(name: str, entity: Entity) -> str:
    """Return the message for a name that is not a field of `entity`."""
    meant = find_meant_field(name, entity)
    article = "an" if entity.name[0] in "aeiou" else "a"
    entities_with_field = [
        entity_with_field.name
        for entity_with_field in ENTITIES.values()
        if entity_with_field.find_field(name) is not None
    ]
    hint = f"did you mean “{meant}”?" if meant else ""
    if entities_with_field:
        plurals = " and ".join(ENTITIES[owner].plural for owner in entities_with_field)
        hint = f"it is a field of {plurals}" + (f"; {hint}" if hint else ".")
    sentence = f"“{name[:60]}” is not a field of {article} {entity.name}"
    return f"{sentence}; {hint}" if hint else f"{sentence}."


def find_meant_field(name: str, entity: Entity) -> str:
    """Return the field that a wrong name most likely means, or "" if none is likely."""
    usual = (
        meant
        for meant in list_usual_fields(entity.name, name)
        if entity.find_field(meant) is not None or meant in OPERATOR_HELP
    )
    return next(usual, "") or find_nearest_field(name, entity)


def find_nearest_field(name: str, entity: Entity) -> str:
    """Return the field or operator whose spelling is nearest, or "" if none is close."""
    aliases = [alias for known_field in entity.fields.values() for alias in known_field.aliases]
    return find_nearest_word(name, [*entity.fields, *aliases, *OPERATOR_HELP])


def _compile_node(node: Node, entity: Entity, context: CompileContext) -> RowTest:
    if isinstance(node, And):
        return intersect_tests(compile_conditions(node.children, entity, context))
    if isinstance(node, Or):
        return union_tests(_compile_node(child, entity, context) for child in node.children)
    if isinstance(node, Not):
        return negate(_compile_node(node.child, entity, context))
    if isinstance(node, Scope):
        return _compile_scope(node, entity, context)
    if isinstance(node, Seq):
        return _compile_sequence(node, entity, context)
    if isinstance(node, TextWords):
        return _compile_named_words(node, entity, context)
    return _compile_term(node, entity, context)


def compile_conditions(
    nodes: Sequence[Node], entity: Entity, context: CompileContext
) -> list[RowTest]:
    """Compile conditions that must all hold. Raises QueryError.

    All words on an effect are searched together: two frequent words may have no effect in common.
    """
    words, other_nodes = split_words(nodes, entity, context)
    test_list = [_compile_node(node, entity, context) for node in other_nodes]
    return [*test_list, compile_words(words, context)] if words else test_list


def split_words(
    nodes: Sequence[Node], entity: Entity, context: CompileContext
) -> tuple[list[TextWords], list[Node]]:
    """Return the full-text words of an effect, and the other nodes.

    A word that is the name of an agent or a person is among the others: it means more than text.
    """
    if entity.name != "effect":
        return [], list(nodes)
    words = [
        node
        for node in nodes
        if isinstance(node, TextWords) and not _find_named_fields(node, entity, context)
    ]
    return words, [node for node in nodes if not any(node is word for word in words)]


def _find_named_fields(node: TextWords, entity: Entity, context: CompileContext) -> list[str]:
    """Return the fields in which a word that names an agent or a person is searched."""
    if node.prefix or not node.text.strip() or len(node.text) > MAX_NAME_CHARACTERS:
        return []
    key = ("a name", node.text, False)
    if key not in context.names:
        kinds = []
        if project_agents(context.project).filter(name=node.text).exists():
            kinds.append("agent")
        members = project_people(context.project)
        if context.people and members.filter(username=node.text).exists():
            kinds.append("person")
        context.names[key] = kinds
    by_kind = _NAMED_FIELDS.get(entity.name, {})
    return [by_kind[kind] for kind in context.names[key] if kind in by_kind]


def _compile_named_words(node: TextWords, entity: Entity, context: CompileContext) -> RowTest:
    """Compile words; the name of an agent or a person also finds what it did or decided."""
    names = _find_named_fields(node, entity, context)
    if not names:
        return _compile_text_words([node], entity, context)
    value = QueryValue(node.text, node.at, "quoted")
    tests = [
        _compile_term(Term(name, node.at, node.end, "=", (value,)), entity, context)
        for name in names
    ]
    if entity.name == "exemption" or not tokenize(node.text):
        return union_tests(tests)
    return union_tests([_compile_text_words([node], entity, context), *tests])


def compile_words(
    words: Sequence[TextWords],
    context: CompileContext,
    between: tuple[int | None, int | None] = (None, None),
) -> RowTest:
    """Compile words that effects between two positions, exclusive, contain. Raises QueryError."""
    return _compile_text_words(words, ENTITIES["effect"], context, between)


def _compile_term(term: Term, entity: Entity, context: CompileContext) -> RowTest:
    if term.name == "is":
        return union_tests(
            _compile_flag(value.text, value.at, entity, context)
            for value in _require_plain_values(term)
        )
    if term.name == "has":
        return union_tests(
            get_field(value.text, entity, value.at).present()
            for value in _require_plain_values(term)
        )
    if term.name in ("since", "until"):
        return _compile_time_bound(term, entity, context)
    field = _get_term_field(term, entity, context)
    compared = find_compared_field(term)
    if compared is None:
        return field.test(term, context)
    other_field = get_field(compared.text, entity, compared.at)
    return compile_field_comparison(
        field,
        other_field,
        term.operator,
        context,
        differs=compared.differs,
        at=term.at,
        end=term.end,
    )


def _get_term_field(term: Term, entity: Entity, context: CompileContext) -> Field:
    """Return the field of a term. Raises QueryError, which names a declared field of that name."""
    known_field = entity.find_field(term.name)
    if known_field is not None:
        return known_field
    if entity.find_declared is not None and term.name in field_index.list_declared_names(
        context.project.id
    ):
        raise QueryError(
            term.at,
            len(term.name),
            f"“{term.name}” is a declared field. Write {DECLARED_PREFIX}{term.name}:value.",
        )
    return get_field(term.name, entity, term.at)


def _require_plain_values(term: Term) -> list[Any]:
    if (
        term.operator not in ("", "=")
        or term.is_range
        or any(value.form == "field" or value.prefix for value in term.values)
    ):
        raise QueryError(
            term.at,
            term.end - term.at,
            f"{term.name}: takes a word. Write {term.name}:erased."
            if term.name == "is"
            else "has: takes the name of a field. Write has:repository.",
        )
    return list(term.values)


def _compile_flag(name: str, at: int, entity: Entity, context: CompileContext) -> RowTest:
    flag = entity.flags.get(name)
    if flag is None:
        nearest = find_nearest_word(name, entity.flags)
        hint = f"; did you mean is:{nearest}?" if nearest else f". Use {', '.join(entity.flags)}."
        article = "An" if entity.name[0] in "aeiou" else "A"
        raise QueryError(at, len(name), f"{article} {entity.name} cannot be “{name[:40]}”{hint}")
    return flag.test(context)


def _compile_time_bound(term: Term, entity: Entity, context: CompileContext) -> RowTest:
    """Compile `since:` or `until:`, which test the entity's time field."""
    if (
        term.operator
        or term.is_range
        or len(term.values) != 1
        or term.values[0].form == "field"
        or term.values[0].prefix
    ):
        raise QueryError(
            term.at, term.end - term.at, f"{term.name}: takes one value: {values.MOMENTS}."
        )
    us = values.parse_time(term.values[0], context.now_us).from_us
    time = entity.fields[entity.time]
    return time.between([(us, None) if term.name == "since" else (None, us)])  # type: ignore[attr-defined,no-any-return]


def time_bounds(query: Query, context: CompileContext) -> tuple[int | None, int | None]:
    """Return the time range [since, until) in microseconds that all matches are in. None: open.

    Only top-level conditions on the entity's time field count.
    """
    since: int | None = None
    until: int | None = None
    entity = ENTITIES[query.entity]
    for node in top_level_conditions(query):
        if not isinstance(node, Term) or any(value.form == "field" for value in node.values):
            continue
        low: int | None = None
        high: int | None = None
        if node.name in ("since", "until"):
            us = values.parse_time(node.values[0], context.now_us).from_us
            low, high = (us, None) if node.name == "since" else (None, us)
        elif entity.find_field(node.name) is entity.fields[entity.time]:
            low, high = _parse_interval(node, context)
        since = low if since is None else since if low is None else max(since, low)
        until = high if until is None else until if high is None else min(until, high)
    return since, until


def _parse_interval(term: Term, context: CompileContext) -> tuple[int | None, int | None]:
    def moment_of(value: Any) -> values.TimeRange:
        return values.parse_time(value, context.now_us)

    if term.is_range:
        low = moment_of(term.low).from_us if term.low else None
        return low, moment_of(term.high).to_us if term.high else None
    if len(term.values) != 1:
        return None, None
    moment = moment_of(term.values[0])
    if moment.is_age:
        return moment.from_us, None
    return {
        ">": (moment.to_us, None),
        ">=": (moment.from_us, None),
        "<": (None, moment.from_us),
        "<=": (None, moment.to_us),
    }.get(term.operator, (moment.from_us, moment.to_us))


# Words in texts.


def _compile_text_words(
    nodes: Sequence[TextWords],
    entity: Entity,
    context: CompileContext,
    between: tuple[int | None, int | None] = (None, None),
) -> RowTest:
    """Compile full-text words of an effect, or for other entities, of a related effect."""
    terms: dict[word_search.SearchTerm, None] = {}
    for node in nodes:
        try:
            terms |= dict.fromkeys(
                word_search.parse_terms(f"{node.text}*" if node.prefix else node.text)
            )
        except ValueError as error:
            raise QueryError(node.at, node.end - node.at, str(error)) from None
        if entity.name == "exemption":
            sentence = "Exemptions have no searchable text. Name a field, such as tool:git.push."
            raise QueryError(node.at, node.end - node.at, sentence)
        if len(terms) > word_search.MAX_TERMS:
            sentence = f"A query can have at most {word_search.MAX_TERMS} words."
            raise QueryError(node.at, node.end - node.at, sentence)
    matches = word_search.find_words(context.project.id, list(terms), between, context.upto)
    if matches.progress is not None:
        context.goes_by(matches.progress)
    if entity.name == "effect":
        words, by_age = tuple(terms), matches.by_age
        return RowTest(
            matches.q,
            None,
            indexed=True,
            words=words,
            by_age=by_age,
            named=matches.named,
            more=matches.more,
        )
    effects = Effect.objects.filter(matches.q, project=context.project).order_by()
    if entity.name == "session":
        return RowTest(Q(pk__in=effects.values("session")), indexed=True)
    return RowTest(Q(effect__in=effects.values("id")), indexed=True)


# Related rows.


def _compile_scope(scope: Scope, entity: Entity, context: CompileContext) -> RowTest:
    reach = entity.scopes.get(scope.entity)
    if reach is None:
        scope_names = ", ".join(entity.scopes) or "no rows"
        sentence = f"{entity.plural.capitalize()} have no {scope.entity} rows. Use {scope_names}."
        raise QueryError(scope.at, scope.end - scope.at, sentence)
    inner = ENTITIES[scope.entity]
    # Time bounds apply to the entity's row, not to related rows.
    context = replace(context, lowest=None)
    test = (
        _compile_node(scope.condition, inner, context)
        if scope.condition is not None
        else RowTest(Q())
    )
    if scope.quantifier == "all":
        test = negate(test)
    past_condition = context.as_of(inner.name, test) if context.as_of is not None else None
    lasts = past_condition is not None and test.works_as_of
    # Only the project's rows: an effect named in a report may belong to another project.
    scoped_rows = inner.select_project_rows(context.project).filter(
        test.q if past_condition is None else past_condition
    )
    if context.upto is not None:
        scoped_rows = scoped_rows.filter(opened_position__lte=context.upto)
    rows, link, to = reach(scoped_rows)
    if scope.quantifier == "count":
        return _compile_count(scope, rows, link, to, lasts=lasts)
    condition = (
        Q(**{f"{to}__in": rows.order_by().values(link)})
        if test.indexed
        else Q(Exists(rows.filter(**{link: OuterRef(to)})))
    )
    return RowTest(condition if scope.quantifier == "any" else ~condition, lasts=lasts)


def _compile_count(
    scope: Scope, rows: "QuerySet[Any]", link: str, to: str, *, lasts: bool
) -> RowTest:
    """Compile a comparison of a count of related rows.

    Rows without related rows are in no group, so comparisons that 0 satisfies are negated.
    """
    met_by_none = _COMPARED[scope.operator](0, scope.number)
    numbers = rows.order_by().values(link).annotate(rows_of_it=Count("*"))
    count_q = Q(**{f"rows_of_it{_LOOKUP[scope.operator]}": scope.number})
    groups = numbers.filter(~count_q if met_by_none else count_q).values(link)
    condition = Q(**{f"{to}__in": groups})
    return RowTest(~condition if met_by_none else condition, lasts=lasts)


def _compile_sequence(seq: Seq, entity: Entity, context: CompileContext) -> RowTest:
    """Compile a sequence of journal entries of one session or effect.

    Steps on effects must be of the same effect.
    """
    if not entity.events:
        sentence = "Sequences need sessions or effects. Start the query with one of these words."
        raise QueryError(seq.at, seq.end - seq.at, sentence)
    inner: QuerySet[Any] | None = None
    for number in range(len(seq.steps) - 1, -1, -1):
        step, before = seq.steps[number], seq.steps[number - 1] if number else None
        rows = Entry.objects.filter(kind=step.kind)
        if reserved_kinds.is_system_kind(step.kind):
            rows = rows.exclude(lane="evidence")
        if context.upto is not None:
            rows = rows.filter(position__lte=context.upto)
        if before is None:
            rows = rows.filter(**{entity.events: OuterRef("pk")})
        else:
            of_effects = step.kind.startswith("effect.") and before.kind.startswith("effect.")
            same = "effect" if of_effects or entity.events == "effect" else "session"
            rows = rows.filter(**{same: OuterRef(same)}, position__gt=OuterRef("position"))
            if step.within is not None:
                rows = rows.filter(
                    received_us__lte=OuterRef("received_us") + values.parse_duration(step.within)
                )
        after = seq.steps[number + 1] if number + 1 < len(seq.steps) else None
        if after is not None and inner is not None:
            rows = rows.filter(~Exists(inner) if after.absent else Exists(inner))
            # Before the time has passed, the entry may still follow.
            if after.absent and after.within is not None:
                rows = rows.filter(
                    received_us__lt=context.now_us - values.parse_duration(after.within)
                )
        inner = rows
    assert inner is not None  # noqa: S101 - a sequence has two steps or more
    return RowTest(Q(Exists(inner.filter(project=context.project.id))), lasts=True)


__all__ = [
    "OPERATOR_HELP",
    "compile_conditions",
    "compile_words",
    "describe_unknown_field",
    "get_field",
    "named_fields",
    "parse_query",
    "split_words",
    "time_bounds",
    "top_level_conditions",
]
