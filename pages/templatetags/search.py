"""Template tags and filters of search results."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, Final
from uuid import UUID

from django import template
from django.template.defaultfilters import truncatechars
from django.template.loader import get_template
from django.utils.safestring import SafeString

from accounts.access import has_role
from accounts.models import Membership
from approvals.models import Gate
from display import urls_of_rows
from display.effect_table import EffectTableRow
from investigation.fulltext.snippets import Snippet
from investigation.query import docs, result_columns
from investigation.query.column_types import Column, Reader
from investigation.query.entity_registry import ENTITIES
from investigation.query.facets import Facet
from pages.search import query_builder
from pages.search.histogram import BAR_STYLES, HistogramDrawing
from pages.search.page import SearchPage
from pages.search.query_builder import BuilderRow
from pages.templatetags.pages import arguments_cell, name
from web.templatetags.gatebook import elapsed, grouped, mark, moment, untrusted_line
from web.untrusted_text import format_markup

register = template.Library()
_LONGEST: Final = 48
# Attributes of untrusted text that the body of a table of chosen columns has for all its cells.
_OF_TABLE: Final = ' hx-disable hx-ignore dir="ltr"'
_SNIPPET: Final = 240  # characters of a part


@register.simple_tag
def search_url(text: str, kept: Mapping[str, str] | None = None) -> str:
    """Return the URL of a search: `{% search_url "effect is:unknown" %}`.

    `kept` are further parameters of the page.
    """
    return urls_of_rows.build_search_url(text, **(kept or {}))


@register.simple_tag
def chosen_cells(page: SearchPage) -> SafeString:
    """Render the rows of a table of chosen columns.

    A page has more than a thousand of these cells, so they are written as short as HTML allows: no
    closing tags, no quotes around one word, no attributes of an empty cell, which is not shown
    where cells are no longer a table. The table's body keeps htmx from agents' text.
    """
    assert page.results is not None  # noqa: S101 - rendered only with results
    reader, asof = page.results.reader, page.asof
    link = urls_of_rows.URL_OF_ROW[page.entity]
    labels = [_label_attribute(column.label) for column in page.cell_columns]
    rows = []
    for row in page.rows:
        cells = [
            _chosen_cell(page.entity, column, label, column.value(row, reader))
            for column, label in zip(page.cell_columns, labels, strict=True)
        ]
        head = format_markup(
            '<th role=rowheader scope=row><a class=handle href="{}">{}</a>',
            f"{link(row)}{asof}",
            f"#{row.position}" if page.entity == "event" else str(row),
        )
        rows.append(format_markup("<tr role=row>{}{}", head, SafeString("".join(cells))))
    return SafeString("\n".join(rows))


@register.simple_tag
def bar_rows(chart: HistogramDrawing, kept: Mapping[str, str]) -> SafeString:
    """Render the rows of the table of bars, as short as HTML allows."""
    labels = [_label_attribute(word) for word, *_ in chart.heads]
    return SafeString(
        "".join(
            format_markup(
                '<tr role=row><th role=rowheader scope=row data-label=From><a href="{}">{}</a>'
                "<td role=cell class=num data-label=All>{}{}",
                search_url(row.text, kept),
                moment(row.from_us, chart.form),
                grouped(row.count),
                SafeString(
                    "".join(
                        format_markup("<td role=cell class=num{}>{}", label, grouped(count))
                        for label, (_, count) in zip(labels, row.counts, strict=True)
                    )
                ),
            )
            for row in chart.rows
        )
    )


@register.simple_tag
def select_options(pairs: Iterable[tuple[str, str]], chosen: str = "") -> SafeString:
    """Render the options of a select from (value, label) pairs, as short as HTML allows.

    Each row of the builder repeats all fields.
    """
    return _render_options(tuple(pairs), chosen)


@lru_cache(maxsize=256)
def _render_options(pairs: tuple[tuple[str, str], ...], chosen: str) -> SafeString:
    """Render the options once: pages repeat the same fields and operators."""
    return SafeString(
        "".join(
            format_markup(
                '<option value="{}" selected>{}' if value == chosen else '<option value="{}">{}',
                value,
                label,
            )
            for value, label in pairs
        )
    )


@register.simple_tag
def column_choices(page: SearchPage) -> SafeString:
    """Render the columns to choose from, as boxes to tick."""
    return _render_column_choices(tuple(page.choosable))


@lru_cache(maxsize=256)
def _render_column_choices(choices: tuple[tuple[str, str, bool], ...]) -> SafeString:
    """Render the columns once: most pages show the usual ones."""
    form = '<li><label class="pick"><input type="checkbox" name="col" value="{}"{}> {}</label></li>'
    return SafeString(
        "".join(
            format_markup(form, name, " checked" if is_shown else "", label)
            for name, label, is_shown in choices
        )
    )


@register.simple_tag
def builder_conditions(page: SearchPage) -> SafeString:
    """Render the rows of the builder. Without a template, which takes three times as long."""
    fields, rows = page.builder_fields, []
    for number, row in enumerate(page.builder_rows, 1):
        if row.text and not row.is_simple:
            shown = format_markup(_WRITTEN_CONDITION, row.text, untrusted_line(row.text, 200))
        else:
            shown = format_markup(
                _CHOSEN_CONDITION,
                str(number),
                select_options(fields, row.name),
                select_options(query_builder.OPERATORS.items(), row.operator),
                row.value,
                select_options(row.choices),
            )
        rows.append(f"<li>{shown}{_removal_link(row, page.request.kept)}</li>")
    return SafeString("".join(rows))


def _removal_link(row: BuilderRow, kept: Mapping[str, str]) -> SafeString:
    if not row.text:
        return SafeString("")
    return format_markup(
        '<a class="quiet" href="{}">Remove<span class="visually-hidden"> {}</span></a>',
        search_url(row.without, kept),
        truncatechars(row.text, 80),
    )


_WRITTEN_CONDITION: Final = '<input type="hidden" name="rest" value="{}"><code>{}</code>'
_CHOSEN_CONDITION: Final = (
    '<select name="f" aria-label="Field {0}"><option value="">add a condition…</option>{1}</select>'
    '<select name="o" aria-label="Operator {0}">{2}</select>'
    '<input name="v" value="{3}" maxlength="300" autocomplete="off" autocapitalize="off"'
    ' spellcheck="false" aria-label="Value {0}" list="b-values-{0}">'
    '<datalist id="b-values-{0}">{4}</datalist>'
)


@register.simple_tag
def range_links(ranges: Iterable[tuple[str, str, bool]], kept: Mapping[str, str]) -> SafeString:
    """Render links to (word, query, whether it is current)."""
    return SafeString(
        "\n".join(
            format_markup(
                '<a href="{}" aria-current="true">{}</a>' if is_current else '<a href="{}">{}</a>',
                search_url(text, kept),
                word,
            )
            for word, text, is_current in ranges
        )
    )


def _label_attribute(label: str) -> SafeString:
    """Return the attribute with the label of a column, without quotes if it is one word."""
    form = " data-label={}" if label.isalpha() else ' data-label="{}"'
    return format_markup(form, label)


def _chosen_cell(entity: str, column: Column, label: SafeString, value: Any) -> SafeString:
    if value in (None, "", []):
        return SafeString("<td>")
    form = "<td role=cell{}>{}"
    if column.kind == "time":
        us = int(datetime.fromisoformat(value).timestamp() * 1_000_000)
        shown, form = moment(us), "<td role=cell class=fit{}>{}"
    elif column.kind in ("number", "length"):
        text = elapsed(int(value * 1_000_000)) if column.kind == "length" else grouped(value)
        shown, form = format_markup("{}", text), "<td role=cell class=num{}>{}"
    elif column.kind in ("word", "handle"):
        text = str(value)
        is_split = column.name == ENTITIES[entity].split
        shown = style(entity, text, text) if is_split else format_markup("{}", text)
        form = "<td role=cell{}>{}"
    else:
        text = str(result_columns.flatten_value(value))
        shown = SafeString(name(text, 80).replace(_OF_TABLE, "", 1))
        form = "<td role=cell class=wraps{}>{}"
    return format_markup(form, label, shown)


@register.simple_tag
@cache
def field_list(name: str) -> SafeString:
    """Render the fields of an entity as buttons that add an example. Cached for the process."""
    entity = ENTITIES[name]
    fields = [(field, docs.example_condition(entity, field)) for field in entity.fields.values()]
    context = {"entity": entity, "fields": fields, "entities": ENTITIES.values()}
    return SafeString(get_template("pages/search/_filters_and_syntax.html").render(context))


@register.filter
def may_make_case(membership: Membership) -> bool:
    """Return True if the member can make case files."""
    return has_role(membership, "reviewer")


@register.filter
def figure(value: Any, kind: str) -> SafeString | str:
    """Format a figure of a group: a count, a time, a duration, or a number."""
    if value is None:
        return format_markup('<span class="quiet">{}</span>', "—")
    if kind == "time":
        return moment(int(value))
    if kind == "length":
        return elapsed(int(value))
    return grouped(int(value)) if int(value) == value else f"{value:,.1f}"


@register.filter
def render_code(words: str) -> SafeString:
    """Render Gatebook's own text with code between backticks, as in docs/reference/search.md."""
    parts = words.replace("\\|", "|").split("`")
    return SafeString(
        "".join(
            format_markup("<code>{}</code>" if n % 2 else "{}", part)
            for n, part in enumerate(parts)
        )
    )


@register.filter
def waiting_time(gate: Gate, reader: Reader) -> str:
    """Return how long a gate waited: to its decision, its end, or the moment shown."""
    end_us = gate.decided_at_us or gate.ended_at_us or reader.now_us
    return elapsed(max(end_us - gate.requested_at_us, 0))


def arguments_excerpt(row: EffectTableRow, snippets: dict[UUID, Snippet]) -> SafeString:
    """Render the arguments of an effect, or the snippet that matches the searched words."""
    snippet = snippets.get(row.effect.pk)
    if snippet is None:
        return arguments_cell(row)
    cell = (
        '<td role="cell" data-label="Text" class="gist is-snippet">'
        '<span class="quiet">{}</span> {}</td>'
    )
    return format_markup(cell, snippet.label, snippet_line(snippet))


def snippet_line(snippet: Snippet) -> SafeString:
    """Render a snippet on one line with matches marked. Without a template, for speed."""
    parts = ((untrusted_line(text, _SNIPPET), matched) for text, matched in snippet.parts)
    marked = SafeString(
        "".join(f"<mark>{text}</mark>" if matched else text for text, matched in parts)
    )
    return format_markup('<span class="snippet">{}</span>\n', marked)


@register.filter
def reviewer_cell(gate: Any, reader: Reader) -> SafeString:
    """Render a gate's reviewers: who was asked, and each vote with its time since shown."""
    parts = [format_markup('<span class="quiet">{}</span>', str(_ASKED.value(gate, reader)))]
    for vote in result_columns.votes_as_of(gate, reader):
        took = elapsed(vote.voted_at_us - vote.shown_at_us)
        parts.append(
            format_markup(
                '; {} {} <span class="quiet">in {}</span>',
                vote.username,
                _ANSWERED[vote.answer],
                took,
            )
        )
    return SafeString("".join(parts))


_ASKED: Final = next(column for column in result_columns.COLUMNS["gate"] if column.name == "asked")
_ANSWERED: Final = {
    "approve": "approved",
    "deny": "denied",
    "deny_session": "denied for the session",
    "request_changes": "asked for changes",
}


@register.simple_tag
def style(entity: str, value: str, word: str) -> SafeString:
    """Render a value of the field that splits the histogram, with its icon if it has one."""
    shape = BAR_STYLES.get(entity, {}).get(value)
    if shape is None:
        return untrusted_line(word, _LONGEST)
    return format_markup('<span class="state {}">{}{}</span>', shape[1], mark(shape[2]), shape[0])


@register.simple_tag
def facet_links(page: SearchPage, facet: Facet) -> SafeString:
    """Render the values of a facet as links. Without a template, which takes twice as long."""
    assert page.results is not None  # noqa: S101 - rendered only with results
    entity, kept = page.results.compiled.entity, page.request.kept
    is_split = facet.field.name == entity.split
    return SafeString(
        "".join(
            format_markup(
                _CHOSEN_FACET if value.chosen else _FACET,
                search_url(value.text, kept),
                style(entity.name, value.value, value.label)
                if is_split
                else name(value.label, _LONGEST),
                grouped(value.count),
                truncatechars(value.adds, 60),
            )
            for value in facet.values
        )
    )


_FACET: Final = (
    '<li><a href="{}"><span>{}</span><span class="push">{}</span>'
    '<code class="adds" aria-hidden="true">+ {}</code></a></li>'
)
_CHOSEN_FACET: Final = (
    '<li><a href="{}" aria-current="true"><span>{}'
    '<span class="visually-hidden">, selected; remove this filter</span></span>'
    '<span class="push">{} <span aria-hidden="true">×</span></span>'
    '<code class="adds" aria-hidden="true">− {}</code></a></li>'
)


@register.simple_tag
def actor(row: Any, reader: Reader) -> SafeString:
    """Render the actor of a journal entry: user name, agent name, or the raw actor."""
    return name(reader.called(row.actor), _LONGEST)
