"""Turns the tree of a query into tests of its entity's rows: every term looked up in the registry, nothing dropped."""

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
    "since": "that moment or later",
    "until": "before that moment",
    "has": "whether there is a value",
    "is": "what it is",
    "asof": "as it stood at that moment",
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
    """The tree of a query. Raises Fault."""
    return parse(text, NAMES, DEFAULT)


def conjuncts(query: Query) -> tuple[Node, ...]:
    """The conditions all of which must hold."""
    if query.condition is None:
        return ()
    return query.condition.children if isinstance(query.condition, And) else (query.condition,)


def field_of(name: str, entity: Entity, at: int) -> Field:
    """The entity's field of that name. Raises Fault with the nearest name."""
    found = entity.known(name)
    if found is not None:
        return found
    raise Fault(at, len(name), unknown(name, entity))


def unknown(name: str, entity: Entity) -> str:
    """The sentence about a name that is no field of `entity`."""
    aliases = [alias for one in entity.fields.values() for alias in one.aliases]
    close = difflib.get_close_matches(name.lower(), [*entity.fields, *aliases, *PSEUDO], n=1, cutoff=0.5)
    article = "an" if entity.name[0] in "aeiou" else "a"
    elsewhere = [other.name for other in ENTITIES.values() if other.known(name) is not None]
    meant = f"did you mean “{close[0]}”?" if close else ""
    if elsewhere and not (close and close[0] != name and not elsewhere):
        others = " and ".join(f"{other}s" if not other.endswith("s") else other for other in elsewhere)
        meant = f"it is one of {others}" + (f"; did you mean “{close[0]}”?" if close else ".")
    return f"“{name[:60]}” is no field of {article} {entity.name}" + (f"; {meant}" if meant else ".")


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
    """The tests of parts all of which must hold. Raises Fault.

    All words of an effect are asked for at once: two that everybody says may stand in no effect together.
    """
    words, others = apart(nodes, entity)
    found = [_test(node, entity, context) for node in others]
    return [*found, worded(words, context)] if words else found


def apart(nodes: Sequence[Node], entity: Entity) -> tuple[list[Words], list[Node]]:
    """The words of an effect, and the other nodes."""
    words = [node for node in nodes if isinstance(node, Words)] if entity.name == "effect" else []
    return words, [node for node in nodes if not (isinstance(node, Words) and words)]


def worded(words: Sequence[Words], context: Context, between: tuple[int | None, int | None] = (None, None)) -> Test:
    """Effects with all of the words, where only those between two positions (exclusive) are asked for. Raises Fault."""
    return _words(words, ENTITIES["effect"], context, between)


def _term(term: Term, entity: Entity, context: Context) -> Test:
    if term.name == "is":
        return any_of(_flag(one.text, one.at, entity, context) for one in _plain_values(term))
    if term.name == "has":
        return any_of(_has(one.text, one.at, entity) for one in _plain_values(term))
    if term.name in ("since", "until"):
        return _bound(term, entity, context)
    field = field_of(term.name, entity, term.at)
    others = [one for one in term.values if one.form == "field"]
    if not others:
        return field.test(term, context)
    if len(term.values) > 1:
        raise Fault(others[0].at, len(others[0].text) + 1, "A field is compared with one other field.")
    other = field_of(others[0].text, entity, others[0].at)
    return compare(field, other, term.operator, context, differs=others[0].differs, at=term.at, end=term.end)


def _plain_values(term: Term) -> list[Any]:
    if term.operator not in ("", "=") or term.is_range or any(one.form == "field" or one.prefix for one in term.values):
        raise Fault(
            term.at,
            term.end - term.at,
            f"{term.name}: is followed by a word, as {term.name}:erased."
            if term.name == "is"
            else "has: is followed by the name of a field, as has:repository.",
        )
    return list(term.values)


def _flag(name: str, at: int, entity: Entity, context: Context) -> Test:
    flag = entity.flags.get(name)
    if flag is None:
        close = difflib.get_close_matches(name.lower(), entity.flags, n=1, cutoff=0.5)
        meant = f"; did you mean is:{close[0]}?" if close else f"; it is {', '.join(entity.flags)}."
        article = "An" if entity.name[0] in "aeiou" else "A"
        raise Fault(at, len(name), f"{article} {entity.name} cannot be “{name[:40]}”{meant}")
    return flag.test(context)


def _has(name: str, at: int, entity: Entity) -> Test:
    return field_of(name, entity, at).present()


def _bound(term: Term, entity: Entity, context: Context) -> Test:
    """`since:` and `until:` speak of the entity's own time."""
    if (
        term.operator
        or term.is_range
        or len(term.values) != 1
        or term.values[0].form == "field"
        or term.values[0].prefix
    ):
        raise Fault(term.at, term.end - term.at, f"{term.name}: takes one moment: {values.MOMENTS}.")
    us = values.moment(term.values[0], context.now_us).from_us
    time = entity.fields[entity.time]
    return time.between([(us, None) if term.name == "since" else (None, us)])  # type: ignore[attr-defined,no-any-return]


def bounds(query: Query, context: Context) -> tuple[int | None, int | None]:
    """[since, until) in microseconds, as far as all of the query says so of its entity's own time. None: open."""
    since: int | None = None
    until: int | None = None
    entity = ENTITIES[query.entity]
    for node in conjuncts(query):
        if not isinstance(node, Term) or any(one.form == "field" for one in node.values):
            continue
        low: int | None = None
        high: int | None = None
        if node.name in ("since", "until"):
            us = values.moment(node.values[0], context.now_us).from_us
            low, high = (us, None) if node.name == "since" else (None, us)
        elif entity.known(node.name) is entity.fields[entity.time]:
            low, high = _interval(node, context)
        since = low if since is None else since if low is None else max(since, low)
        until = high if until is None else until if high is None else min(until, high)
    return since, until


def _interval(term: Term, context: Context) -> tuple[int | None, int | None]:
    def read(one: Any) -> values.Moment:
        return values.moment(one, context.now_us)

    if term.is_range:
        return read(term.low).from_us if term.low else None, read(term.high).to_us if term.high else None
    if len(term.values) != 1:
        return None, None
    moment = read(term.values[0])
    if moment.is_age:
        return moment.from_us, None
    return {
        ">": (moment.to_us, None),
        ">=": (moment.from_us, None),
        "<": (None, moment.from_us),
        "<=": (None, moment.to_us),
    }.get(term.operator, (moment.from_us, moment.to_us))


# Words in texts. ----------------------------------------------------------------------------------------------------


def _words(
    nodes: Sequence[Words], entity: Entity, context: Context, between: tuple[int | None, int | None] = (None, None)
) -> Test:
    """Words in the text of an effect; of other entities, of an effect that belongs to one."""
    asked: dict[matching.Term, None] = {}
    for node in nodes:
        try:
            asked |= dict.fromkeys(matching.terms(f"{node.text}*" if node.prefix else node.text))
        except ValueError as error:
            raise Fault(node.at, node.end - node.at, str(error)) from None
        if entity.name == "exemption":
            sentence = "Exemptions have no text to look in; name a field, as tool:git.push."
            raise Fault(node.at, node.end - node.at, sentence)
        if len(asked) > matching.MOST_TERMS:
            sentence = f"At most {matching.MOST_TERMS} words are looked for at once."
            raise Fault(node.at, node.end - node.at, sentence)
    found = matching.find(context.project.id, list(asked), between, context.upto)
    if found.progress is not None:
        context.goes_by(found.progress)
    if entity.name == "effect":
        words, falls = tuple(asked), found.falls
        return Test(found.q, None, indexed=True, words=words, falls=falls, named=found.named, more=found.more)
    effects = Effect.objects.filter(found.q, project=context.project).order_by()
    if entity.name == "session":
        return Test(Q(pk__in=effects.values("session")), indexed=True)
    return Test(Q(effect__in=effects.values("id")), indexed=True)


# Other rows. --------------------------------------------------------------------------------------------------------


def _scope(scope: Scope, entity: Entity, context: Context) -> Test:
    reach = entity.scopes.get(scope.entity)
    if reach is None:
        known = ", ".join(entity.scopes) or "nothing"
        sentence = f"{entity.plural.capitalize()} are asked about {known}; no {scope.entity} belongs to one."
        raise Fault(scope.at, scope.end - scope.at, sentence)
    inner = ENTITIES[scope.entity]
    context = replace(context, lowest=None)  # the time that is asked for is that of the row, not of these
    test = _test(scope.condition, inner, context) if scope.condition is not None else Test(Q())
    if scope.quantifier == "all":
        test = negated(test)
    met_then = context.as_of(inner.name, test) if context.as_of is not None else None
    lasts = met_then is not None and test.is_told
    # Within the project: what a report names from elsewhere belongs to nothing here.
    there = inner.of(context.project).filter(test.q if met_then is None else met_then)
    if context.upto is not None:
        there = there.filter(opened_position__lte=context.upto)
    rows, link, to = reach(there)
    if scope.quantifier == "count":
        return _counted(scope, rows, link, to, lasts=lasts)
    met = Q(**{f"{to}__in": rows.order_by().values(link)}) if test.indexed else _exists(rows, link, to)
    return Test(met if scope.quantifier == "any" else ~met, lasts=lasts)


def _exists(rows: "QuerySet[Any]", link: str, to: str) -> Q:
    return Q(Exists(rows.filter(**{link: OuterRef(to)})))


def _counted(scope: Scope, rows: "QuerySet[Any]", link: str, to: str, *, lasts: bool) -> Test:
    """How many rows there are, compared. Who has none stands in no group, so the question is turned round for them."""
    met_by_none = _COMPARED[scope.operator](0, scope.number)
    numbers = rows.order_by().values(link).annotate(rows_of_it=Count("*"))
    wanted = Q(**{f"rows_of_it{_LOOKUP[scope.operator]}": scope.number})
    groups = numbers.filter(~wanted if met_by_none else wanted).values(link)
    met = Q(**{f"{to}__in": groups})
    return Test(~met if met_by_none else met, lasts=lasts)


def _seq(seq: Seq, entity: Entity, context: Context) -> Test:
    """Entries of the journal one after another, of one session or effect; steps of effects are of the same effect."""
    if not entity.events:
        sentence = "A sequence is of a session or an effect; open the query with one of them."
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
                rows = rows.filter(received_us__lte=OuterRef("received_us") + values.length(step.within))
        after = seq.steps[number + 1] if number + 1 < len(seq.steps) else None
        if after is not None and inner is not None:
            rows = rows.filter(~Exists(inner) if after.absent else Exists(inner))
            if after.absent and after.within is not None:  # while there is time, nobody can say that it is absent
                rows = rows.filter(received_us__lt=context.now_us - values.length(after.within))
        inner = rows
    assert inner is not None  # noqa: S101 - a sequence has two steps or more
    return Test(Q(Exists(inner.filter(project=context.project.id))), lasts=True)


__all__ = ["PSEUDO", "apart", "bounds", "conjuncts", "field_of", "read", "tests", "unknown", "worded"]
