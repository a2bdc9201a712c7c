"""What the search page says of the rows that it found."""

from functools import cache
from typing import Any, Final
from uuid import UUID

from django import template
from django.template.loader import get_template
from django.utils.safestring import SafeString

from approvals.models import Gate
from inquiry import columns, links
from inquiry.column import Reader
from inquiry.histogram import LOOKS
from inquiry.query import reference
from inquiry.query.entities import ENTITIES
from inquiry.query.facets import Facet, Value
from inquiry.templatetags.inquiry import arguments_cell, name
from inquiry.timeline import Row
from inquiry.words.snippets import Snippet
from journal.templatetags.gatebook import elapsed, grouped, mark, moment, untrusted_line
from journal.untrusted import markup

register = template.Library()
_LONGEST: Final = 48
_SNIPPET: Final = 240  # characters of a part


@register.simple_tag
def search_url(text: str, facets: bool = False) -> str:
    """`{% search_url "effect is:unknown" %}`: the address of the search for a query."""
    return links.search(text, **({"facets": "1"} if facets else {}))


@register.simple_tag
@cache
def fields_of(name: str) -> SafeString:
    """What can be asked of an entity, each field as a button that adds an example: the same on every page."""
    entity = ENTITIES[name]
    fields = [(one, reference.example(entity, one)) for one in entity.fields.values()]
    told = {"entity": entity, "fields": fields, "entities": ENTITIES.values()}
    return SafeString(get_template("inquiry/found/_fields.html").render(told))


@register.filter
def figure(value: Any, kind: str) -> SafeString | str:
    """A figure of a group: a count, a moment, a length of time, or a number."""
    if value is None:
        return markup('<span class="quiet">{}</span>', "—")
    if kind == "time":
        return moment(int(value))
    if kind == "length":
        return elapsed(int(value))
    return grouped(int(value)) if int(value) == value else f"{value:,.1f}"


@register.filter
def in_code(words: str) -> SafeString:
    """Words of ours in which code stands between backticks, as docs/search.md has them."""
    parts = words.replace("\\|", "|").split("`")
    return SafeString(
        "".join(markup("<code>{}</code>" if n % 2 else "{}", part) for n, part in enumerate(parts))
    )


@register.filter
def waited(gate: Gate, reader: Reader) -> str:
    """How long people were waited for: to the ruling, to the end without one, or until the moment that is shown."""
    end_us = gate.decided_at_us or gate.ended_at_us or reader.now_us
    return elapsed(max(end_us - gate.requested_at_us, 0))


@register.simple_tag
def arguments_of(row: Row, snippets: dict[UUID, Snippet]) -> SafeString:
    """What an effect's call says in a row, or where the words that were asked for stand in its text."""
    found = snippets.get(row.effect.pk)
    if found is None:
        return arguments_cell(row)
    cell = '<td role="cell" data-label="Text" class="gist is-snippet"><span class="quiet">{}</span> {}</td>'
    return markup(cell, found.label, snippet_line(found))


def snippet_line(snippet: Snippet) -> SafeString:
    """Agents' text on one line, inert, with what was asked for marked. A page has fifty, so no template says it."""
    parts = ((untrusted_line(text, _SNIPPET), matched) for text, matched in snippet.parts)
    told = SafeString(
        "".join(f"<mark>{text}</mark>" if matched else text for text, matched in parts)
    )
    return markup('<span class="snippet">{}</span>\n', told)


@register.filter
def people_of(gate: Any, reader: Reader) -> SafeString:
    """Whom a gate asked, and who answered what how long after the page was shown to them."""
    parts = [markup('<span class="quiet">{}</span>', str(_ASKED.value(gate, reader)))]
    for vote in columns.cast(gate, reader):
        took = elapsed(vote.voted_at_us - vote.shown_at_us)
        parts.append(
            markup(
                '; {} {} <span class="quiet">in {}</span>',
                vote.username,
                _ANSWERED[vote.answer],
                took,
            )
        )
    return SafeString("".join(parts))


_ASKED: Final = next(one for one in columns.COLUMNS["gate"] if one.name == "asked")
_ANSWERED: Final = {
    "approve": "approved",
    "deny": "denied",
    "deny_final": "denied for good",
    "return": "returned",
}


@register.simple_tag
def look(entity: str, value: str, word: str) -> SafeString:
    """A value of the field that an entity's bars are split by, as shape and word; other values are agents' text."""
    found = LOOKS.get(entity, {}).get(value)
    if found is None:
        return untrusted_line(word, _LONGEST)
    return markup('<span class="state {}">{}{}</span>', found[1], mark(found[2]), found[0])


@register.simple_tag
def facet_word(entity: str, facet: Facet, value: Value, split: str) -> SafeString:
    """The word for one value of a facet."""
    return (
        look(entity, value.value, value.label)
        if facet.field.name == split
        else name(value.label, _LONGEST)
    )


@register.simple_tag
def actor(row: Any, reader: Reader) -> SafeString:
    """Who an entry of the journal is by: a person by user name, an agent by its name, else as the journal says."""
    return name(reader.called(row.actor), _LONGEST)
