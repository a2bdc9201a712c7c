"""Rows of effect tables, built in Python.

A page repeats each up to a hundred times.

A template looks up every name again for every cell, which took longer than the rest of the page.
The cells use the same functions as templates (pages.py), so agent text is equally inert.
"""

from functools import lru_cache
from typing import Final
from uuid import UUID

from django import template
from django.utils.safestring import SafeString

from db.clock import now_us
from display.effect_headline import is_ended_unrun
from display.effect_runs import RUN_SOURCES, RunTimes
from display.effect_table import EffectTableRow, Timeline
from pages.search.page import SearchPage
from pages.templatetags.pages import (
    arguments_cell,
    effect_cell,
    name,
    page_url,
    permission,
    row_time,
    session_link,
    shown_effect_state,
    target,
)
from pages.templatetags.search import arguments_excerpt
from pages.timeline.bars import Bar
from web.templatetags.gatebook import elapsed, mark
from web.untrusted_text import format_markup

register = template.Library()

# Column name -> HTML of the cell, except the head and the arguments of a row. A page has a thousand
# of them, so they are short: no quotes around our own values, no class where the default fits.
_CELLS: Final = {
    "time": "<td role=cell data-label=Time>{}</td>",
    "planned": "<td role=cell data-label=Planned>{}</td>",
    "ran": '<td role=cell data-label="Ran at">{}</td>',
    "answered": "<td role=cell data-label=Answered>{}</td>",
    "took": "<td role=cell data-label=Took class=num>{}</td>",
    "agent_time": '<td role=cell data-label="Agent time">{}</td>',
    "corrected": "<td role=cell data-label=Corrected>{}</td>",
    "session": "<td role=cell data-label=Session>{}</td>",
    "state": "<td role=cell data-label=State>{}</td>",
    "tries": "<td role=cell data-label=Tries class=num>{}</td>",
    "agent": "<td role=cell data-label=Agent class=clip>{}</td>",
    "target": "<td role=cell data-label=Target class=clip>{}</td>",
    "permission": "<td role=cell data-label=Permission>{}</td>",
    "task": "<td role=cell data-label=Task class=clip>{}</td>",
}


@register.simple_tag
def found_effects(page: SearchPage) -> SafeString:
    """Return the table rows of the effects that a search returned."""
    day, targets, asof = page.day, page.targets, page.asof
    # As of a past moment, a deadline counts from that moment.
    now = page.results.reader.now_us if page.results is not None else now_us()
    form = _row("time", "session", "state", "agent", *(["target"] if targets else []), "permission")
    snippets = page.results.snippets if page.results is not None else {}
    rows = []
    for row in page.rows:
        effect = row.effect
        cells = [
            row_time(effect.ran_us if page.shows_ran else effect.received_us, day),
            session_link(row, asof),
            shown_effect_state(effect, now),
            agent_link(effect.agent_id, effect.agent_name),
        ]
        cells += [target(row)] if targets else []
        rows.append(
            format_markup(
                form,
                "",
                effect_cell(row, asof),
                arguments_excerpt(row, snippets),
                *cells,
                permission(effect),
            )
        )
    return SafeString("\n".join(rows))


@register.simple_tag
def timeline_effects(timeline: Timeline, three: bool, answered: bool) -> SafeString:
    """Return the rows of a page of a session's effects.

    `three` shows all clocks, `answered` when they were answered and how long they took.
    """
    day, agent_day, now = timeline.day, timeline.agent_day, now_us()
    ran_day = timeline.ran_day
    shows_agent_time, tries, tasks = (
        timeline.has_agent_time or three,
        timeline.tries,
        timeline.tasks,
    )
    columns_shown = {
        "planned": True,
        "agent_time": shows_agent_time,
        "corrected": three,
        "ran": True,
        "answered": answered,
        "took": answered,
        "state": True,
    }
    columns_shown |= {"tries": tries, "permission": True, "task": tasks}
    form = _row(*(column for column, is_shown in columns_shown.items() if is_shown))
    rows = []
    for row in timeline.rows:
        effect = row.effect
        cells: list[str] = [row_time(effect.received_us, day)]
        cells += [row_time(effect.planned_at_us, agent_day)] if shows_agent_time else []
        cells += [row_time(row.corrected_us, "")] if three else []
        run = row.run
        cells += [ran_at(run, ran_day, is_ended=is_ended_unrun(effect))]
        cells += [row_time(run.answered_us, ""), elapsed(run.took_us)] if answered else []
        cells += [shown_effect_state(effect, now)]
        cells += [str(effect.attempt_count)] if tries else []
        cells += [permission(effect)]
        cells += [_task(row)] if tasks else []
        marked = _MARKED if row.marked else ""
        rows.append(format_markup(form, marked, effect_cell(row), arguments_cell(row), *cells))
    return SafeString("\n".join(rows))


@register.simple_tag
@lru_cache(maxsize=1024)
def agent_link(agent: UUID, agent_name: str) -> SafeString:
    """Return the name of an agent as a link to its page."""
    return format_markup('<a href="{}">{}</a>', page_url(agent, "agent"), name(agent_name, 40))


@register.simple_tag
def bar_ran(bar: Bar) -> SafeString:
    """Return when the effect of a bar ran, as tables of effects show it."""
    return ran_at(bar.run, "", is_ended=is_ended_unrun(bar.effect)) if bar.run else SafeString("")


def ran_at(run: RunTimes, day: str, *, is_ended: bool = False) -> SafeString:
    """Return when an effect ran, with its source and how late it was after its permission.

    `is_ended`: it did not run, and cannot any more.
    """
    if run.ran_us is None:
        return _NOT_RUN[is_ended]
    shown = row_time(run.ran_us, day)
    if run.ran_source != "dispatch":
        source = RUN_SOURCES[run.ran_source]
        words = _SOURCE_WORDS[run.ran_source]
        shown += format_markup(' <span class="quiet" title="{}">{}</span>', source, words)
    if run.gap_words:
        css = " is-danger" if run.is_late else ""
        sign = mark("warn") if run.is_late else SafeString("")
        shown += format_markup(' <span class="gap{}">{}{}</span>', css, sign, run.gap_words)
    return SafeString(shown)


_NOT_RUN: Final = {
    is_ended: SafeString(f'<span class="quiet">{words}</span>')
    for is_ended, words in ((False, "not yet"), (True, "not run"))
}
_SOURCE_WORDS: Final = {"agent": "by agent", "answer": "answer", "heard": "received"}
_MARKED: Final = SafeString(' class="is-marked"')


def _task(row: EffectTableRow) -> SafeString:
    effect = row.effect
    if not effect.task_id:
        return SafeString("")
    words = name(effect.task_title or effect.task_key, 24)
    return format_markup(
        '<a href="{}">t_{}</a> {}',
        page_url(effect.task_id, "task"),
        str(effect.task_position),
        words,
    )


@lru_cache(maxsize=64)
def _row(*columns: str) -> str:
    """Return the format of a row: class, head, arguments, then the cells."""
    return f"<tr role=row{{}}>{{}}{{}}{''.join(_CELLS[column] for column in columns)}</tr>"
