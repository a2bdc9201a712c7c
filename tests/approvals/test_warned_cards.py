"""The card and the list of a request with warnings, as the server sends them."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from html import unescape
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts import agents
from approvals.checks import run_checks
from approvals.checks.check_results import CheckResult, Compared
from approvals.inbox import inbox_rows
from approvals.models import Gate
from approvals.review import card
from approvals.templatetags.approvals import format_seconds, render_middle_cut
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of

LOOKALIKE = "n\u043erthwind.example"
CLAIM = "A dry run to <b>our</b> auditors."
RESULTS = (
    CheckResult(
        "lookalike",
        "danger",
        "lookalike letter",
        "Lookalike domain: 1 letter is Cyrillic.",
        concerns="arguments.to",
        compared=(
            Compared("Requested", LOOKALIKE, "first use ever", (1,)),
            Compared("Known", "northwind.example", "214 mails", (1,)),
        ),
        gate="g_7",
    ),
    CheckResult(
        "claim",
        "danger",
        "not a dry run",
        "Claim “dry run”: the mail is sent.",
        concerns="arguments.dry_run",
        phrase=(2, 9),
    ),
    CheckResult("missing_evidence", "warning", "no ticket", "Ticket.", concerns="evidence"),
    CheckResult("first_use", "notice", "first use", "First <i>mail</i> to it.", concerns="request"),
)


@contextmanager
def checks_report(results: Sequence[CheckResult]) -> Iterator[None]:
    """Let the checks of every request report `results`."""

    def check_requests(project: UUID, requests: Sequence[Any]) -> dict[UUID, Any]:
        return {request.gate: tuple(results) for request in requests}

    with mock.patch.object(run_checks, "check_requests", check_requests):
        yield


@pytest.fixture
def mail(inbox: InboxScenario) -> Gate:
    inbox.declare("mail.send", "irreversible")
    arguments = {"to": f"ann@{LOOKALIKE}", "dry_run": False, "subject": "November"}
    return inbox.gate(inbox.plan("mail", tool="mail.send", arguments=arguments, why=CLAIM))


def plain(html: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html)))


def test_warnings_stand_before_the_facts_with_their_letters_marked(
    mail: Gate, rita: Reviewer
) -> None:
    with checks_report(RESULTS):
        html = rita.page(url_of(mail))
    above = html.partition('<div class="findings"')[2].partition('<p class="signs">')[0]
    assert "Lookalike domain: 1 letter is Cyrillic." in above
    assert 'n<mark class="odd">\u043e</mark>rthwind.example' in above
    assert 'n<mark class="even-letter">o</mark>rthwind.example' in above
    assert f'href="{reverse("search_jump")}?id=g_7">g_7</a>' in above
    assert "not a dry run" not in above
    assert html.index('<div class="findings"') < html.index("Exactly this will run")
    title = html.partition('<h1 class="gate-title"')[2].partition("</h1>")[0]
    assert '<mark class="odd">' in title
    assert 'ann@n<mark class="odd">' in html.partition('<dl class="pairs args">')[2]
    steps = html.partition('<ol class="chain">')[2].partition("</ol>")[0]
    assert 'ann@n<mark class="odd">' in steps
    assert steps.index("rthwind.example") < steps.index("November")  # the recipient first


def test_a_page_without_a_warning_says_what_was_compared(mail: Gate, rita: Reviewer) -> None:
    with checks_report(()):
        assert "no check warns" in plain(rita.page(url_of(mail)))
    with checks_report(RESULTS):
        assert "no check warns" not in plain(rita.page(url_of(mail)))


def test_a_contradiction_has_its_letter_on_the_claim_and_beside_the_argument(
    mail: Gate, rita: Reviewer
) -> None:
    with checks_report(RESULTS):
        html = rita.page(url_of(mail))
    claim = html.partition("<blockquote")[2].partition("</blockquote>")[0]
    assert '<mark class="against">dry run</mark> <span class="note-letter">' in claim
    assert "&lt;b&gt;our&lt;/b&gt;" in claim
    row = html.partition(">dry_run</span>")[2].partition("</dd>")[0]
    assert '<dd class="is-against">' in row
    assert "note a “" not in row
    assert "note a dry run : the mail is sent." in plain(row)
    assert "Not provided: ticket , environment . Assume the worst." in plain(html)
    assert "First &lt;i&gt;mail&lt;/i&gt; to it." in html


def test_with_a_warning_deny_is_the_filled_button(mail: Gate, rita: Reviewer) -> None:
    with checks_report(RESULTS):
        warned = rita.page(url_of(mail))
    with checks_report(()):
        calm = rita.page(url_of(mail))
    assert "Approve despite 3 warnings" in plain(warned)
    assert re.search(r'class="button is-main"\s+data-settle name="answer" value="deny"', warned)
    assert "is-despite" in warned
    assert "button is-danger" not in warned
    assert "is-despite" not in calm
    assert "Approve mail.send" in plain(calm)
    assert "button is-danger" in calm
    dock = plain(warned.partition('<div class="dock"')[2])
    assert "3 warnings Reason required Deny Ask for Changes Approve despite 3 warnings …" in dock


def test_looks_change_nothing_of_what_is_hashed(mail: Gate, rita: Reviewer) -> None:
    before = card.build_card(mail).sha256
    with checks_report(RESULTS):
        assert f'data-card="{before}"' in rita.page(url_of(mail))


def test_a_warned_row_stands_out_and_a_calm_one_is_quiet(mail: Gate, rita: Reviewer) -> None:
    with checks_report(RESULTS):
        warned = rita.page(reverse("inbox"))
    row = warned.partition('<li class="entry')[2].partition("</li>")[0]
    assert "is-warned" in row.partition(">")[0]
    assert 'mail.send</span> <span class="untrusted"' in row
    assert '<mark class="odd">' in row
    flags = re.findall(r'<span class="flag( is-\w+)?">.*?#(\w+)".*?</svg>(.*?)</span>', row)
    assert flags == [
        (" is-danger", "warn", "lookalike letter"),
        (" is-danger", "unlike", "not a dry run"),
        (" is-danger", "dash", "no ticket"),
    ]
    with checks_report(RESULTS[3:]):
        calm = rita.page(reverse("inbox"))
    assert "is-warned" not in calm
    assert '<span class="flag is-mild">' in calm


def test_the_telling_arguments_of_a_row_are_cut_in_the_middle(mail: Gate, rita: Reviewer) -> None:
    path = "exports/2026/11/full/customers-of-the-year-2026-11.csv"
    with mock.patch.object(inbox_rows, "list_telling_values", return_value=(("file", path),)):
        html = rita.page(reverse("inbox"))
    lines = html.partition('<dl class="telling">')[2].partition("</dl>")[0]
    assert f'title="{path}"' in lines
    assert plain(lines).replace(" ", "") == f"file{path}"
    assert "rs-2026-11.csv</span>" not in lines.partition("<dd>")[0]


@pytest.mark.parametrize(
    ("text", "marks", "tail"),
    [
        ("short", [], ""),
        ("x" * 40, [], "x" * 14),
        (f"billing-of-november@{LOOKALIKE}", [(LOOKALIKE, (1,))], LOOKALIKE),
        ("", [], ""),
    ],
)
def test_the_end_of_a_cut_value_holds_its_marked_letters(
    text: str, marks: list[Any], tail: str
) -> None:
    markup = render_middle_cut(text, marks)
    parts = re.findall(r'dir="ltr">(.*?)</span></span>', markup)
    assert [re.sub(r"<[^>]+>", "", part) for part in parts] == [text[: len(text) - len(tail)], tail]


def test_a_missing_reason_is_asked_for_at_its_field(gate: Gate, rita: Reviewer) -> None:
    answer = rita.answer(gate, "deny", reason=" ")
    assert answer.status_code == 409
    html = answer.content.decode()
    field = html.partition('<textarea id="reason"')[2].partition("</textarea>")[0]
    assert "autofocus" in field
    assert 'aria-describedby="e-reason"' in field
    assert 'id="e-reason">Add a reason to deny.' in html


def test_a_card_links_the_charter_of_its_agent(
    inbox: InboxScenario, gate: Gate, rita: Reviewer
) -> None:
    url = reverse("agent_charter", args=[gate.agent_id])
    assert url not in rita.page(url_of(gate))
    agents.set_agent_charter(gate.agent, "Deploy only <b>docs</b>.", version=0, actor="p_x")
    assert f'(<a href="{url}">charter</a>)' in rita.page(url_of(gate))
    page = rita.page(url)
    assert "Deploy only &lt;b&gt;docs&lt;/b&gt;." in page
    assert "version 1," in page
    assert f'"{reverse("agent_settings", args=[gate.agent_id])}"' not in page


@pytest.mark.usefixtures("remembered")
def test_the_card_of_warnings_costs_no_query(mail: Gate, rita: Reviewer) -> None:
    rita.page(url_of(mail))
    counts = []
    for results in ((), RESULTS):
        with checks_report(results), CaptureQueriesContext(connection) as queries:
            rita.page(url_of(mail))
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_each_warning_beside_its_fact_has_a_line_above_that_leads_to_it(
    mail: Gate, rita: Reviewer
) -> None:
    with checks_report(RESULTS):
        html = rita.page(url_of(mail))
    lines = html.partition('<ul class="finding-lines"')[2].partition("</ul>")[0]
    assert "note a dry run : the mail is sent." in plain(lines)
    assert "Ticket." in plain(lines)
    anchors = re.findall(r'<a href="#([^"]+)"', lines)
    assert len(anchors) == 2
    for anchor in anchors:
        assert html.count(f'id="{anchor}"') == 1
    assert html.count('<section class="finding') + len(anchors) == 3  # as many as the button says


def test_to_assume_the_worst_is_asked_once(
    mail: Gate, inbox: InboxScenario, rita: Reviewer
) -> None:
    worst = replace(RESULTS[0], sentence="It removes some. Assume the worst.")
    for results in ((), RESULTS, (worst, *RESULTS[1:])):
        with checks_report(results):
            assert plain(rita.page(url_of(mail))).lower().count("assume the worst") == 1
    target = {"repository": "web", "ref": "refs/heads/main", "environment": "staging"}
    complete = inbox.gate(
        inbox.plan("complete", tool="mail.send", arguments={"to": "a"}, target=target)
    )
    with checks_report(()):
        html = plain(rita.page(url_of(complete)))
    assert "Assume the worst of what is unknown." in html
    assert "Not provided" not in html


def test_approve_is_red_on_every_page_if_it_cannot_be_undone_or_warns(
    mail: Gate, inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.declare("note.write", "reversible")
    note = inbox.gate(inbox.plan("note", tool="note.write", arguments={"text": "x"}))
    for gate, results, filled in (
        (mail, (), "button is-danger"),
        (note, (), "button is-main"),
        (note, RESULTS[:1], "button is-despite"),
    ):
        with checks_report(results):
            html = rita.page(url_of(gate))
        for part in ('<form id="decide"', '<div class="dock"'):
            form = html.partition(part)[2].partition("</form>" if "form" in part else "</article>")[
                0
            ]
            button = next(
                each for each in re.findall(r"<button[^>]*>", form) if '"approve"' in each
            )
            assert filled in button, (gate.tool, button)


def test_durations_are_not_broken_before_their_unit(mail: Gate, rita: Reviewer) -> None:
    late = replace(
        RESULTS[0], title="Denied 40 min ago: the same file.", sentence="After 3 h 5 min."
    )
    with checks_report((late,)):
        html = rita.page(url_of(mail))
    assert "Denied 40\u00a0min ago" in html
    assert "After 3\u00a0h 5\u00a0min." in html
    assert re.search(r"\d+\u00a0s ago", html)
    assert format_seconds(28_740) == "7\u00a0h 59\u00a0min"
