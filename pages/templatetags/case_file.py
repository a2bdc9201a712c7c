"""Template tags of the document of a case file."""

from typing import Any, Final

from django import template
from django.utils.safestring import SafeString

from investigation.case_files.case_contents import CaseTable
from web.templatetags.gatebook import grouped
from web.untrusted_text import format_markup, render_untrusted

register = template.Library()
_LIMIT: Final = 8_000  # characters of a cell; case.json and the tables have more


@register.simple_tag
def case_table(table: CaseTable, *names: str) -> SafeString:
    """Render some columns of a table, or all; every cell is inert."""
    chosen = [(name, label) for name, label in table.columns if not names or name in names]
    # A column without any value is left out.
    columns = [pair for pair in chosen if any(row[pair[0]] for row in table.rows)]
    if not table.rows:
        return format_markup('<p class="none">{}</p>', "None.")
    heads = "".join(
        format_markup(
            '<th scope="col" class="num">{}</th>'
            if isinstance(table.rows[0][name], int)
            else '<th scope="col">{}</th>',
            label,
        )
        for name, label in columns
    )
    rows = "".join(
        format_markup(
            "<tr>{}</tr>",
            SafeString("".join(_cell(name, row[name]) for name, _ in columns)),
        )
        for row in table.rows
    )
    form = "<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>"
    return format_markup(form, SafeString(heads), SafeString(rows))


@register.filter
def case_text(value: Any) -> SafeString:
    """Render a text of an agent or a person, inert and with its line breaks."""
    return render_untrusted(str(value), _LIMIT)


@register.filter
def case_moment(value: str | None) -> str:
    """Shorten a UTC time to the second."""
    return value[:19].replace("T", " ") if value else "—"


def _cell(name: str, value: Any) -> SafeString:
    if value is None or value == "":
        return SafeString("<td>—</td>")
    if isinstance(value, int):
        return format_markup('<td class="num">{}</td>', grouped(value))
    text = str(value)
    if name in _MOMENTS:
        return format_markup('<td class="nowrap">{}</td>', case_moment(text))
    if name in _SHORT_WORDS:
        return format_markup('<td class="nowrap">{}</td>', case_text(text))
    form = '<td class="code">{}</td>' if name in _CODES else "<td>{}</td>"
    return format_markup(form, case_text(text))


_MOMENTS: Final = frozenset(
    {"at", "occurred", "ran", "requested", "decided", "voted", "granted", "ends", "revoked"}
)
_SHORT_WORDS: Final = frozenset({"kind", "lane", "state", "outcome"})  # of Gatebook's vocabulary
_CODES: Final = frozenset({"sha256", "card_sha256", "digest", "shown_digest", "intent"})
