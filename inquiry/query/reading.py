"""Compile the tree of a query into tests of its entity's rows.

Every term is looked up in the registry; no term is dropped.
"""

import difflib
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from inquiry.query import values
from inquiry.query.compared import compare
from inquiry.query.entities import DEFAULT, ENTITIES, NAMES, Entity
from inquiry.query.fields import Context, Field, Test, all_of, any_of, negated
from inquiry.query.syntax import parse
from inquiry.query.tree import And, Fault, Node, Not, Or, Query, Scope, Seq, Term, Words
from inquiry.words import matching
from journal import kinds
from journal.models import Entry
from ledger.models import Effect

PSEUDO: Final = {
    "since": "at this time or later",
    "until": "before this time",
    "has": "the field has a value",
    "is": "a condition",
    "asof": "state at an earlier moment",
}
_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_LOOKUP: Final = {"=": "", ">": "__gt", ">=": "__gte", "<": "__lt", "<=": "__lte"}


def read(text: str) -> Query:
    """Parse a query. Raises Fault."""
    return parse(text, NAMES, DEFAULT)


def conjuncts(query: Query) -> tuple[Node, ...]:
    """Return the conditions that must all hold."""
    if query.condition is None:
        return ()
    return query.condition.children if isinstance(query.condition, And) else (query.condition,)


def field_of(name: str, entity: Entity, at: int) -> Field:
    """Return the entity's field of that name. Raises Fault with the closest name."""
    known_field = entity.known(name)
    if known_field is not None:
        return known_field
    raise Fault(at, len(name), unknown(name, entity))


def unknown(name: str, entity: Entity) -> str:
    """Return the message for a name that is not a field of `entity`."""
    aliases = [alias for known_field in entity.fields.values() for alias in known_field.aliases]
    close = difflib.get_close_matches(
        name.lower(), [*entity.fields, *aliases, *PSEUDO], n=1, cutoff=0.5
    )
    article = "an" if entity.name[0] in "aeiou" else "a"
    entities_with_field = [
        entity_with_field.name
        for entity_with_field in ENTITIES.values()
        if entity_with_field.known(name) is not None
    ]
    hint = f"did you mean “{close[0]}”?" if close else ""
    if entities_with_field and not (close and close[0] != name and not entities_with_field):
        plurals = " and ".join(
            f"{entity_with_field}s" if not entity_with_field.endswith("s") else entity_with_field
            for entity_with_field in entities_with_field
        )
        hint = f"it is a field of {plurals}" + (f"; did you mean “{close[0]}”?" if close else ".")
    sentence = f"“{name[:60]}” is not a field of {article} {entity.name}"
    return f"{sentence}; {hint}" if hint else f"{sentence}."


def _test(node: Node, entity: Entity, context: Context) -> Test:
    if isinstance(node, And):
        return all_of(tests(node.children, entity, context))
    if isinstance(node, Or):
        return any_of(_test(child, entity, context) for child in node.children)
    if isinstance(node, Not):
        return negated(_test(node.child, entity, context))
    if isinstance(node, Scope):
        return _scope(node, entity, context)
    if isinstance(node, Seq):
        return _seq(node, entity, context)
    if isinstance(node, Words):
        return _words([node], entity, context)
    return _term(node, entity, context)


def tests(nodes: Sequence[Node], entity: Entity, context: Context) -> list[Test]:
    """Compile conditions that must all hold. Raises Fault.

    All words on an effect are searched together: two frequent words may have no effect in common.
    """
    words, other_nodes = apart(nodes, entity)
    test_list = [_test(node, entity, context) for node in other_nodes]
    return [*test_list, worded(words, context)] if words else test_list


def apart(nodes: Sequence[Node], entity: Entity) -> tuple[list[Words], list[Node]]:
    """Return the full-text words of an effect, and the other nodes."""
    words = [node for node in nodes if isinstance(node, Words)] if entity.name == "effect" else []
    return words, [node for node in nodes if not (isinstance(node, Words) and words)]


def worded(
    words: Sequence[Words], context: Context, between: tuple[int | None, int | None] = (None, None)
) -> Test:
    """Compile words that effects between two positions (exclusive) must contain. Raises Fault."""
    return _words(words, ENTITIES["effect"], context, between)


def _term(term: Term, entity: Entity, context: Context) -> Test:
    if term.name == "is":
        return any_of(
            _flag(value.text, value.at, entity, context) for value in _require_plain_values(term)
        )
    if term.name == "has":
        return any_of(_has(value.text, value.at, entity) for value in _require_plain_values(term))
    if term.name in ("since", "until"):
        return _bound(term, entity, context)
    field = field_of(term.name, entity, term.at)
    field_values = [value for value in term.values if value.form == "field"]
    if not field_values:
        return field.test(term, context)
    if len(term.values) > 1:
        raise Fault(
            field_values[0].at,
            len(field_values[0].text) + 1,
            "A field can be compared with one other field only.",
        )
    other_field = field_of(field_values[0].text, entity, field_values[0].at)
    return compare(
        field,
        other_field,
        term.operator,
        context,
        differs=field_values[0].differs,
        at=term.at,
        end=term.end,
    )


def _require_plain_values(term: Term) -> list[Any]:
    if (
        term.operator not in ("", "=")
        or term.is_range
        or any(value.form == "field" or value.prefix for value in term.values)
    ):
        raise Fault(
            term.at,
            term.end - term.at,
            f"{term.name}: takes a word. Write {term.name}:erased."
            if term.name == "is"
            else "has: takes the name of a field. Write has:repository.",
        )
    return list(term.values)


def _flag(name: str, at: int, entity: Entity, context: Context) -> Test:
    flag = entity.flags.get(name)
    if flag is None:
        close = difflib.get_close_matches(name.lower(), entity.flags, n=1, cutoff=0.5)
        hint = f"; did you mean is:{close[0]}?" if close else f". Use {', '.join(entity.flags)}."
        article = "An" if entity.name[0] in "aeiou" else "A"
        raise Fault(at, len(name), f"{article} {entity.name} cannot be “{name[:40]}”{hint}")
    return flag.test(context)


def _has(name: str, at: int, entity: Entity) -> Test:
    return field_of(name, entity, at).present()


def _bound(term: Term, entity: Entity, context: Context) -> Test:
    """Compile `since:` or `until:`, which test the entity's time field."""
    if (
        term.operator
        or term.is_range
        or len(term.values) != 1
        or term.values[0].form == "field"
        or term.values[0].prefix
    ):
        raise Fault(term.at, term.end - term.at, f"{term.name}: takes one value: {values.MOMENTS}.")
    us = values.moment(term.values[0], context.now_us).from_us
    time = entity.fields[entity.time]
    return time.between([(us, None) if term.name == "since" else (None, us)])  # type: ignore[attr-defined,no-any-return]


def bounds(query: Query, context: Context) -> tuple[int | None, int | None]:
    """Return the time range [since, until) in microseconds that all matches are in. None: open.

    Only top-level conditions on the entity's time field count.
    """
    since: int | None = None
    until: int | None = None
    entity = ENTITIES[query.entity]
    for node in conjuncts(query):
        if not isinstance(node, Term) or any(value.form == "field" for value in node.values):
            continue
        low: int | None = None
        high: int | None = None
        if node.name in ("since", "until"):
            us = values.moment(node.values[0], context.now_us).from_us
            low, high = (us, None) if node.name == "since" else (None, us)
        elif entity.known(node.name) is entity.fields[entity.time]:
            low, high = _parse_interval(node, context)
        since = low if since is None else since if low is None else max(since, low)
        until = high if until is None else until if high is None else min(until, high)
    return since, until


def _parse_interval(term: Term, context: Context) -> tuple[int | None, int | None]:
    def moment_of(value: Any) -> values.Moment:
        return values.moment(value, context.now_us)

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


def _words(
    nodes: Sequence[Words],
    entity: Entity,
    context: Context,
    between: tuple[int | None, int | None] = (None, None),
) -> Test:
    """Compile full-text words of an effect, or for other entities, of a related effect."""
    terms: dict[matching.Term, None] = {}
    for node in nodes:
        try:
            terms |= dict.fromkeys(matching.terms(f"{node.text}*" if node.prefix else node.text))
        except ValueError as error:
            raise Fault(node.at, node.end - node.at, str(error)) from None
        if entity.name == "exemption":
            sentence = "Exemptions have no searchable text. Name a field, such as tool:git.push."
            raise Fault(node.at, node.end - node.at, sentence)
        if len(terms) > matching.MOST_TERMS:
            sentence = f"A query can have at most {matching.MOST_TERMS} words."
            raise Fault(node.at, node.end - node.at, sentence)
    matches = matching.find(context.project.id, list(terms), between, context.upto)
    if matches.progress is not None:
        context.goes_by(matches.progress)
    if entity.name == "effect":
        words, falls = tuple(terms), matches.falls
        return Test(
            matches.q,
            None,
            indexed=True,
            words=words,
            falls=falls,
            named=matches.named,
            more=matches.more,
        )
    effects = Effect.objects.filter(matches.q, project=context.project).order_by()
    if entity.name == "session":
        return Test(Q(pk__in=effects.values("session")), indexed=True)
    return Test(Q(effect__in=effects.values("id")), indexed=True)


# Related rows.


def _scope(scope: Scope, entity: Entity, context: Context) -> Test:
    reach = entity.scopes.get(scope.entity)
    if reach is None:
        scope_names = ", ".join(entity.scopes) or "no rows"
        sentence = f"{entity.plural.capitalize()} have no {scope.entity} rows. Use {scope_names}."
        raise Fault(scope.at, scope.end - scope.at, sentence)
    inner = ENTITIES[scope.entity]
    # Time bounds apply to the entity's row, not to related rows.
    context = replace(context, lowest=None)
    test = _test(scope.condition, inner, context) if scope.condition is not None else Test(Q())
    if scope.quantifier == "all":
        test = negated(test)
    past_condition = context.as_of(inner.name, test) if context.as_of is not None else None
    lasts = past_condition is not None and test.is_told
    # Only the project's rows: an effect named in a report may belong to another project.
    scoped_rows = inner.of(context.project).filter(
        test.q if past_condition is None else past_condition
    )
    if context.upto is not None:
        scoped_rows = scoped_rows.filter(opened_position__lte=context.upto)
    rows, link, to = reach(scoped_rows)
    if scope.quantifier == "count":
        return _counted(scope, rows, link, to, lasts=lasts)
    condition = (
        Q(**{f"{to}__in": rows.order_by().values(link)})
        if test.indexed
        else _exists(rows, link, to)
    )
    return Test(condition if scope.quantifier == "any" else ~condition, lasts=lasts)


def _exists(rows: "QuerySet[Any]", link: str, to: str) -> Q:
    return Q(Exists(rows.filter(**{link: OuterRef(to)})))


def _counted(scope: Scope, rows: "QuerySet[Any]", link: str, to: str, *, lasts: bool) -> Test:
    """Compile a comparison of a count of related rows.

    Rows without related rows are in no group, so comparisons that 0 satisfies are negated.
    """
    met_by_none = _COMPARED[scope.operator](0, scope.number)
    numbers = rows.order_by().values(link).annotate(rows_of_it=Count("*"))
    count_q = Q(**{f"rows_of_it{_LOOKUP[scope.operator]}": scope.number})
    groups = numbers.filter(~count_q if met_by_none else count_q).values(link)
    condition = Q(**{f"{to}__in": groups})
    return Test(~condition if met_by_none else condition, lasts=lasts)


def _seq(seq: Seq, entity: Entity, context: Context) -> Test:
    """Compile a sequence of journal entries of one session or effect.

    Steps on effects must be of the same effect.
    """
    if not entity.events:
        sentence = "Sequences need sessions or effects. Start the query with one of these words."
        raise Fault(seq.at, seq.end - seq.at, sentence)
    inner: QuerySet[Any] | None = None
    for number in range(len(seq.steps) - 1, -1, -1):
        step, before = seq.steps[number], seq.steps[number - 1] if number else None
        rows = Entry.objects.filter(kind=step.kind)
        if kinds.is_own(step.kind):
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
                    received_us__lte=OuterRef("received_us") + values.length(step.within)
                )
        after = seq.steps[number + 1] if number + 1 < len(seq.steps) else None
        if after is not None and inner is not None:
            rows = rows.filter(~Exists(inner) if after.absent else Exists(inner))
            # Before the time has passed, the entry may still follow.
            if after.absent and after.within is not None:
                rows = rows.filter(received_us__lt=context.now_us - values.length(after.within))
        inner = rows
    assert inner is not None  # noqa: S101 - a sequence has two steps or more
    return Test(Q(Exists(inner.filter(project=context.project.id))), lasts=True)


__all__ = [
    "PSEUDO",
    "apart",
    "bounds",
    "conjuncts",
    "field_of",
    "read",
    "tests",
    "unknown",
    "worded",
]
