"""Long arguments: complete and numbered in a box that scrolls, unbounded on a page of their own,
and as plain text."""

import html
import re

import pytest
from django.urls import reverse

from approvals.models import Gate
from journal.models import Entry
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from web.untrusted_text import render_numbered_lines

SCRIPT = "".join(f"echo step {n}\n" for n in range(2000)) + "DROP TABLE invoices;\n"
LINE = re.compile(r'<span class="ln" data-n="(\d+)">(.*?)</span>', re.S)


@pytest.fixture
def gate(inbox: InboxScenario) -> Gate:
    """2,001 lines, with a name that must not become part of a header."""
    return inbox.gate(
        inbox.plan(arguments={"command": SCRIPT, 'a\r\nX: "b"/..': ["x"] * 12, "share": 0.1})
    )


def test_long_text_is_shown_once_numbered_and_links_to_its_own_page(
    gate: Gate, rita: Reviewer
) -> None:
    page = rita.page(url_of(gate))
    assert [int(number) for number, _ in LINE.findall(page)][:2001] == list(range(1, 2002))
    assert page.count("DROP TABLE invoices;") == 1
    arguments_url = reverse("gate_arguments", args=[gate.id])
    assert f'<a href="{arguments_url}">full arguments,' in page
    page = rita.page(arguments_url)
    assert '<span class="ln" data-n="2001">DROP TABLE invoices;' in page
    assert "2\u202f001 lines, " in page
    assert f'href="{url_of(gate)}"' in page
    assert 'name="answer"' not in page
    views = Entry.objects.filter(kind="access.viewed", subject=gate.id)
    assert views.count() == 1  # of the same version, by the same person


def test_an_argument_is_had_as_plain_text(gate: Gate, rita: Reviewer) -> None:
    contents = {}
    for number in range(3):
        answer = rita.client.get(reverse("gate_argument", args=[gate.id, number]))
        assert answer["Content-Type"] == "text/plain; charset=utf-8"
        assert answer["X-Content-Type-Options"] == "nosniff"
        contents[answer["Content-Disposition"]] = answer.content.decode()
    assert contents[f'attachment; filename="{gate}-command.txt"'] == SCRIPT
    assert contents[f'attachment; filename="{gate}-share.txt"'] == "0.1"
    assert f'attachment; filename="{gate}-a_X_b.txt"' in contents
    assert rita.client.get(reverse("gate_argument", args=[gate.id, 3])).status_code == 404


def test_the_confirm_page_has_it_in_a_box_too(gate: Gate, rita: Reviewer) -> None:
    answer = rita.answer(gate, settled="", all_read="1", hidden_seen="1")
    page = rita.page(answer["Location"])
    assert page.index('<div class="run" tabindex="0"') < page.index("DROP TABLE invoices;")


@pytest.mark.once
def test_numbers_are_those_of_the_text_also_behind_a_counted_run_of_blanks() -> None:
    text = "one\n<b>two</b>\n\nfour" + "\n" * 500 + "rm -rf / \u202e\nlast\n"
    lines = LINE.findall(
        str(render_numbered_lines(text))
        .replace('<span class="token', "<i")
        .replace("]</span>", "]")
    )
    assert [int(number) for number, _ in lines] == [1, 2, 3, 4, 504, 505]
    assert lines[1][1] == "&lt;b&gt;two&lt;/b&gt;\n"
    assert "[500 line breaks]" in lines[3][1]
    assert lines[4][1].startswith("rm -rf /")
    assert "[U+202E]" in lines[4][1]
    assert html.unescape(lines[5][1]) == "last\n"
    assert render_numbered_lines("") == '<span class="ln" data-n="1"></span>'
