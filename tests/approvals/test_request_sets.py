"""Requests of one shape in the list, on the card and on the batch page."""

import re
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from approvals.checks import set_queries
from approvals.checks.checked_request import CheckedRequest
from approvals.inbox import inbox_queries
from approvals.inbox.inbox_rows import load_inbox_rows
from approvals.models import Gate, Vote
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.reviewer import Reviewer, url_of
from tests.approvals.test_inbox_batch import (
    SEEN,
    WORDS,
    choose,
    close,
    decide,
    plainly,
    ticks_of,
    typed,
)
from tests.approvals.test_inbox_queries import multiply
from tests.config.row_snapshot import Kept
from tests.rows_with_entries import change_gates

STAGING, PRODUCTION = "staging-eu-2", "prod-eu-1"


def clean(inbox: InboxScenario, key: str, cluster: str = STAGING, **fields: Any) -> Gate:
    """A request to close something in a cluster."""
    return close(inbox, key, arguments={"issue": key, "cluster": cluster}, **fields)


@pytest.fixture
def volumes(inbox: InboxScenario) -> list[Gate]:
    """Five requests alike, and one in production as the last."""
    return _VOLUMES.again(lambda: _plan_volumes(inbox))


def _plan_volumes(inbox: InboxScenario) -> list[Gate]:
    inbox.declare("close", "reversible")
    return [*(clean(inbox, f"v-{n}") for n in range(5)), clean(inbox, "v-9", PRODUCTION)]


_VOLUMES = Kept[list[Gate]](for_s=120)


def post(rita: Reviewer, **fields: Any) -> Any:
    return rita.client.post(reverse("batch_confirm"), fields)


# --- list and card ----------------------------------------------------------------------------


def test_the_outlier_is_named_and_never_folded(volumes: list[Gate], rita: Reviewer) -> None:
    html = rita.page(reverse("inbox"))
    text = plainly(html)
    assert "stands out: cluster" in text
    assert f"cluster 5 × {STAGING}, 1 × {PRODUCTION}" in text
    assert "4 similar requests" in text
    assert f"5 similar, 1 stands out {volumes[-1]}" in text
    assert "Review all 6 together…" in text
    links = re.findall(r'<h3><a href="([^"]+)"', html)
    assert links[0] == url_of(volumes[-1])  # directly before the others of its set
    rows = inbox_queries.group_rows(load_inbox_rows([gate.id for gate in volumes]))
    assert [(len(row.like), len(row.apart)) for row in rows] == [(0, 0), (4, 1)]
    assert rows[1].apart == [rows[0]]


def test_its_card_compares_it_with_the_others(volumes: list[Gate], rita: Reviewer) -> None:
    text = plainly(rita.page(url_of(volumes[-1])))
    assert f"Stands out: cluster {PRODUCTION}." in text
    assert f"5 others like it have {STAGING}; this one {PRODUCTION}." in text
    assert "Stands out" not in rita.page(url_of(volumes[0]))


def test_denied_requests_do_not_count(
    inbox: InboxScenario, volumes: list[Gate], rita: Reviewer
) -> None:
    for gate in volumes[:3]:
        inbox.answer(gate, "carol", "deny", "not this one")
    assert "Stands out" not in rita.page(url_of(volumes[-1]))


def test_the_last_of_a_set_stands_out_after_the_others_are_approved(
    inbox: InboxScenario, volumes: list[Gate], rita: Reviewer
) -> None:
    for gate in volumes[:-1]:
        assert inbox.answer(gate, "carol").refusal is None
    text = plainly(rita.page(url_of(volumes[-1])))
    assert f"5 others like it have {STAGING}; this one {PRODUCTION}." in text


def test_a_hidden_character_in_the_name_of_an_argument_is_shown_as_a_token(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.declare("close", "reversible")
    for number in range(5):
        cluster = PRODUCTION if number == 4 else STAGING
        close(inbox, f"h-{number}", arguments={"issue": number, "\u202ecluster": cluster})
    html = rita.page(reverse("inbox"))
    assert "stands out" in html
    assert "\u202e" not in html


def test_requests_of_other_arguments_are_not_folded_together(
    inbox: InboxScenario, rita: Reviewer
) -> None:
    inbox.declare("close", "reversible")
    for n in range(2):
        close(inbox, f"a-{n}")
        close(inbox, f"b-{n}", arguments={"issue": f"b-{n}", "force": True})
    text = plainly(rita.page(reverse("inbox")))
    assert text.count("1 similar request") == 2


@pytest.mark.usefixtures("remembered")
def test_siblings_need_one_query_for_any_page(volumes: list[Gate]) -> None:
    multiply(volumes[0], 150)
    gates = list(Gate.objects.order_by("-opened_position").values_list("id", flat=True)[:50])
    requests = [row.request for row in load_inbox_rows(gates) if row.request is not None]
    assert len(requests) == 50
    for listed in (requests[:1], requests):
        with CaptureQueriesContext(connection) as queries:
            siblings = set_queries.load_siblings(volumes[0].project_id, listed)
        assert len(queries) <= 1
        assert len(siblings) <= 80
        assert all(isinstance(sibling, CheckedRequest) for sibling in siblings)
    assert set_queries.load_siblings(volumes[0].project_id, []) == []


# --- the batch page ---------------------------------------------------------------------------


def choose_set(rita: Reviewer, gates: list[Gate]) -> str:
    """Press the button of a set in the inbox and return the page."""
    rita.client.post(reverse("batch"), {"set": ",".join(str(gate.id) for gate in gates)})
    return rita.page(reverse("batch_confirm"))


def test_the_outlier_has_no_tick_and_only_a_link(volumes: list[Gate], rita: Reviewer) -> None:
    page = choose_set(rita, volumes)
    text = plainly(page)
    assert "close 6 requests: 5 similar, 1 in production" in text
    assert f"1 stands out: cannot be decided on this page. Open {volumes[-1]}" in text
    assert f"{PRODUCTION} PROD others: {STAGING}" in text
    assert f"{volumes[-1]} is not part of this. Open it" in text
    assert "5 similar; only issue differs" in text
    assert ticks_of(page) == [str(gate.id) for gate in volumes[:-1]]
    assert [name for name, _ in SEEN.findall(page)] == [f"seen-{g.id.hex}" for g in volumes[:-1]]


def test_a_forged_form_with_the_outlier_records_nothing(
    volumes: list[Gate], rita: Reviewer
) -> None:
    page = choose_set(rita, volumes)
    own = rita.seen(volumes[-1])  # a valid token, of its own page
    refused = post(
        rita,
        **dict(SEEN.findall(page)),
        **{f"seen-{volumes[-1].id.hex}": own},
        gate=[str(gate.id) for gate in volumes],
        answer="approve",
        reason=WORDS,
    )
    assert refused.status_code == 409
    assert f"{volumes[-1]}: stands out: cluster. Open it to decide it alone." in (
        refused.content.decode()
    )
    assert typed(refused.content.decode()) == WORDS
    assert not Vote.objects.exists()


def test_a_selection_without_the_others_hides_no_outlier(
    volumes: list[Gate], rita: Reviewer
) -> None:
    page = choose(rita, volumes[0], volumes[-1])
    assert ticks_of(page) == [str(volumes[0].id)]
    assert f"5 others like it have {STAGING}" in plainly(page)
    refused = choose(rita, volumes[-1], status=409)
    assert f"{volumes[-1]}: stands out: cluster. Decide each of these alone." in refused


def test_only_the_ticked_requests_are_decided(volumes: list[Gate], rita: Reviewer) -> None:
    page = choose_set(rita, volumes)
    ticked = [str(gate.id) for gate in volumes[:2]]
    answer = post(
        rita, **dict(SEEN.findall(page)), gate=ticked, answer="deny", reason="not these two"
    )
    assert answer["Location"] == f"{reverse('inbox')}?open=none"
    assert {str(vote.gate_id) for vote in Vote.objects.all()} == set(ticked)
    assert "2 answers are recorded, each with your reason." in rita.page(reverse("inbox"))


def test_the_message_names_a_reason_only_if_there_is_one(
    volumes: list[Gate], rita: Reviewer
) -> None:
    assert decide(rita, choose_set(rita, volumes), reason=" ").status_code == 302
    text = rita.page(reverse("inbox"))
    assert "5 answers are recorded." in text
    assert "each with your reason" not in text


def test_changes_can_be_requested_together(volumes: list[Gate], rita: Reviewer) -> None:
    page = choose_set(rita, volumes)
    assert decide(rita, page, "request_changes", "name the owner").status_code == 302
    assert set(Gate.objects.exclude(id=volumes[-1].id).values_list("status", flat=True)) == {
        "changes_requested"
    }


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"answer": "approve"}, "Tick at least one request."),
        ({"answer": "maybe"}, "Choose an answer."),
        ({"answer": "deny_session"}, "Choose an answer."),
        (
            {"answer": "approve", "gate": "0192f4d0-0000-7000-8000-000000000000"},
            "Tick only requests of this page.",
        ),
    ],
)
def test_an_incomplete_form_records_nothing(
    volumes: list[Gate], rita: Reviewer, fields: dict[str, str], words: str
) -> None:
    page = choose_set(rita, volumes)
    refused = post(rita, **dict(SEEN.findall(page)), **fields, reason=WORDS)
    assert refused.status_code == 409
    assert words in refused.content.decode()
    assert typed(refused.content.decode()) == WORDS
    assert not Vote.objects.exists()


def test_ticks_and_reason_survive_tick_all_untick_all_and_going_back(
    volumes: list[Gate], rita: Reviewer
) -> None:
    choose_set(rita, volumes)
    ids = [str(gate.id) for gate in volumes]
    assert post(rita, tick="none", gate=ids, reason=WORDS)["Location"] == reverse("batch_confirm")
    page = rita.page(reverse("batch_confirm"))
    assert (ticks_of(page), typed(page)) == ([], WORDS)
    post(rita, tick="alike", reason=WORDS)
    assert ticks_of(rita.page(reverse("batch_confirm"))) == ids[:-1]  # never the outlier
    back = post(rita, tick="back", gate=[ids[0], ids[2], ids[-1]], reason=WORDS)
    assert back["Location"] == reverse("inbox")
    html = rita.page(reverse("inbox"))
    assert ticks_of(html) == [ids[0], ids[2]]
    assert "<details open>" in html
    page = choose(rita, volumes[0], volumes[2])
    assert typed(page) == WORDS
    assert rita.client.post(reverse("batch"), {"drop": "1"})["Location"] == reverse("inbox")
    assert ticks_of(rita.page(reverse("inbox"))) == []
    assert not Vote.objects.exists()


def test_each_request_can_be_read_in_full(inbox: InboxScenario, rita: Reviewer) -> None:
    inbox.declare("close", "reversible")
    path = "srv/" + "deep/" * 20 + "end"
    gates = [
        close(inbox, f"c-{n}", arguments={"issue": n, "path": f"{path}-{n}", "state": "done"})
        for n in range(3)
    ]
    page = choose(rita, *gates)
    for n in range(3):
        assert f"{path}-{n}" in page
    table = plainly(page[page.index("<table") : page.index("</table>")])
    assert path not in table
    assert "deep/end-1" in table  # the end stays
    assert "state done" in plainly(page[: page.index("<table")])


def test_claims_are_shown_once_or_row_by_row(inbox: InboxScenario, rita: Reviewer) -> None:
    inbox.declare("close", "reversible")
    same = [close(inbox, f"c-{n}", why="Done <b>long</b> ago.") for n in range(2)]
    page = choose(rita, *same)
    assert "“Done <b>long</b> ago.”" in plainly(page[: page.index("<table")])
    other = close(inbox, "c-9", why="Another claim.")
    page = choose(rita, *same, other)
    table = page[page.index("<table") : page.index("</table>")]
    assert "Another claim." in table
    assert "Done &lt;b&gt;long" in table


def test_the_form_says_what_an_approval_asks_for(inbox: InboxScenario, rita: Reviewer) -> None:
    inbox.rules(
        "name: tidy\nrules:\n- {id: close, title: Close, match: {tools: [close]}, outcome: require,"
        " require: {minimum: 2, rationale: {on: always, minimum_characters: 12, ticket: 'INC-*'}}}\n"
    )
    inbox.declare("close", "reversible")
    text = plainly(choose(rita, *(close(inbox, f"c-{n}") for n in range(2))))
    assert "To approve: no password, a reason of at least 12 characters. To deny: a reason" in text
    assert "The reason must name INC-*" in text
    assert "Some requests need 2 approvals; you can give one" in text


def test_a_request_that_ends_while_the_page_is_open_is_named(
    inbox: InboxScenario, volumes: list[Gate], rita: Reviewer
) -> None:
    page = choose_set(rita, volumes)
    match = re.search(r'hx-get="([^"]+)"\s+hx-trigger="every 5s"', page)
    assert match
    poll = {"HX-Request": "true"}
    assert rita.client.get(match[1], headers=poll).status_code == 204
    inbox.answer(volumes[0], "carol", "deny", "not this one")
    text = plainly(rita.client.get(match[1], headers=poll).content.decode())
    assert f"A request has ended: {volumes[0]} denied" in text
    assert post(rita, tick="keep", gate=str(volumes[2].id))["Location"] == reverse("batch_confirm")
    page = rita.page(reverse("batch_confirm"))
    assert ticks_of(page) == [str(volumes[2].id)]
    assert "ended: denied" in page


def test_more_time_for_a_set_keeps_its_ticks_and_its_reason(
    volumes: list[Gate], rita: Reviewer
) -> None:
    page = choose(rita, *volumes)
    before = {gate.id: gate.decide_by_us for gate in volumes}
    ticked = ticks_of(page)[1:]
    answer = post(rita, **dict(SEEN.findall(page)), gate=ticked, extend="15", reason=WORDS)
    assert answer["Location"] == reverse("batch_confirm")
    later = {gate.id: gate.decide_by_us for gate in Gate.objects.filter(id__in=before)}
    extended = [later[gate.id] - before[gate.id] for gate in volumes]
    assert extended == [15 * 60 * 1_000_000] * 5 + [0]  # not the one apart
    page = rita.page(reverse("batch_confirm"))
    assert "Extended 5 requests by 15 minutes." in page
    assert (ticks_of(page), typed(page)) == (ticked, WORDS)
    assert not Vote.objects.exists()
    assert decide(rita, page).status_code == 302
    assert Vote.objects.count() == 4


def test_no_time_is_added_beyond_the_maximum(volumes: list[Gate], rita: Reviewer) -> None:
    choose(rita, *volumes)
    month_us = 30 * 86_400 * 1_000_000
    for gate in volumes[:2]:
        change_gates(Gate.objects.filter(id=gate.id), decide_by_us=gate.requested_at_us + month_us)
    assert post(rita, extend="15").status_code == 302
    text = plainly(rita.page(reverse("batch_confirm")))
    named = ", ".join(map(str, volumes[:2]))
    assert f"Not extended. {named}: The maximum of 30 days is reached." in text
    assert "Extended 3 requests" in text


def test_within_a_reversibility_dangers_come_first(
    inbox: InboxScenario, volumes: list[Gate], rita: Reviewer
) -> None:
    inbox.declare("pay", "irreversible")
    irreversible = inbox.gate(inbox.plan("pay-1", tool="pay", arguments={"order": "1"}))
    inbox.declare("label", "reversible")
    early = inbox.gate(inbox.plan("label-1", tool="label", arguments={"label": "x"}))
    change_gates(Gate.objects.filter(id=early.id), decide_by_us=early.decide_by_us - 600_000_000)
    links = re.findall(r'<h3><a href="([^"]+)"', rita.page(reverse("inbox")))
    assert links[:3] == [url_of(irreversible), url_of(volumes[-1]), url_of(volumes[0])]
    assert links[-1] == url_of(early)


def test_a_refused_set_links_its_requests(inbox: InboxScenario, rita: Reviewer) -> None:
    inbox.declare("close", "irreversible")
    gates = [clean(inbox, f"i-{number}") for number in range(2)]
    html = choose(rita, *gates, status=409)
    assert all(f'href="{url_of(gate)}">{gate}</a>' in html for gate in gates)
    assert "irreversible, high risk" in plainly(html)
