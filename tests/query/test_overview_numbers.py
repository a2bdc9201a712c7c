"""The overview: its numbers equal what their links count, and what SQL counts; its acts."""

import html
import re
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from db.clock import now_us
from investigation.query import execute
from journal.models import Entry
from ledger import violations
from ledger.models import Effect
from monitoring.effect_hours import count_effect_hours
from sessions.models import Session
from tests.api.api_client import new_key
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.plans import explained
from tests.query.incident import Scenario
from web.templatetags.gatebook import elapsed

MOST_QUERIES = 12
LINK = re.compile(r'<a\b[^>]*?href="([^"]*)"[^>]*>(.*?)</a>', re.DOTALL)
NUMBER = re.compile(r"^\d[\d\u202f]*(?= |$)")


def read_board(client: Client, url: str = "/") -> str:
    answer = client.get(url)
    assert answer.status_code == 200
    text = html.unescape(answer.content.decode())
    return text[text.index('<div id="overview"') : text.index("</main>")]


def list_numbers(board: str) -> list[tuple[str, int]]:
    """Return each link whose words begin with a number: its query and the number."""
    numbers = []
    for url, inner in LINK.findall(board):
        shown = re.sub(r"<(title|rect|circle|use)\b.*?(</\1>|/?>)", " ", inner, flags=re.DOTALL)
        words = " ".join(re.sub(r"<[^>]+>", " ", shown).split())
        number = NUMBER.match(words)
        if number and url.startswith("/search/") and "group" not in url:
            query = parse_qs(urlsplit(url).query)["q"][0]
            numbers.append((query, int(number[0].replace("\u202f", ""))))
    return numbers


def run_without_permission(inbox: InboxScenario, key: str) -> Effect:
    """Report an effect that nobody permitted."""
    item = {"session": inbox.agent.session("s-1")["id"], "effect_key": key}
    planned = {"kind": "effect.planned", "tool": "git.push", "arguments": {"command": key}}
    reported = inbox.agent.report(
        [
            {"id": new_key(), **item, **planned},
            {"id": new_key(), **item, "kind": "effect.dispatched"},
        ]
    )
    assert reported.status_code == 200, reported.text
    return Effect.objects.get(effect_key=key)


@pytest.mark.parametrize("is_counted", [True, False])
def test_every_number_equals_the_query_that_it_links_to(
    scenario: Scenario, is_counted: bool
) -> None:
    inbox = scenario.inbox
    if is_counted:
        count_effect_hours()
    run_without_permission(inbox, "alone")
    client = inbox.organization.client("administrator")
    numbers = [
        number for url in ("/", "/?view=table") for number in list_numbers(read_board(client, url))
    ]
    for query, shown in numbers:
        compiled = execute.compile_query(query, inbox.project, now_us())
        assert (query, execute.count_matches(compiled)) == (query, (shown, False))
    queries = {query.partition(" since:")[0] for query, _ in numbers}
    assert {"is:unacknowledged", "is:unknown", "gate", "gate ruling:approved"} <= queries
    wrong = read_board(client).partition('id="wrong"')[2].partition("</header>")[0]
    assert "/search/questions/" in wrong
    today = now_us() // 86_400_000_000 * 86_400_000_000
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ledger_effect WHERE received_us >= %s", [today])
        assert (
            dict(numbers)[next(q for q, _ in numbers if q.startswith("since:"))]
            == (cursor.fetchone()[0])
        )


def test_a_screen_reader_learns_what_each_number_counts(scenario: Scenario) -> None:
    run_without_permission(scenario.inbox, "alone")
    board = read_board(scenario.inbox.organization.client("administrator"))
    links = re.findall(r"<a\b([^>]*)>(.*?)</a>", board, re.DOTALL)
    names = {
        label[1]: inner.strip()
        for attributes, inner in links
        if re.fullmatch(r"[\d\u202f]+\+?( %)?", inner.strip())
        if (label := re.search(r'aria-label="([^"]*)"', attributes) or ("", inner.strip()))
    }
    assert len(names) >= 8
    assert {"3: Ran without permission", "0 expired"} <= set(names)
    for name, shown in names.items():
        assert re.match(rf"{re.escape(shown)}:? [A-Za-z]", name), name


def test_the_median_is_the_one_that_its_query_computes(scenario: Scenario) -> None:
    board = read_board(scenario.inbox.organization.client("viewer"))
    url, shown = next((url, words) for url, words in LINK.findall(board) if "p50" in url)
    query = parse_qs(urlsplit(url).query)["q"][0]
    compiled = execute.compile_query(query, scenario.inbox.project, now_us())
    groups = execute.load_results(compiled, lambda rows: rows).groups
    assert groups is not None
    ((_, (median_us, *_), *_),) = groups.rows
    assert shown == elapsed(median_us)


def test_every_figure_of_the_approvals_is_a_link(scenario: Scenario) -> None:
    board = read_board(scenario.inbox.organization.client("viewer"))
    figures = board.partition('<dl class="figures">')[2].partition("</dl>")[0]
    linked = LINK.sub("", figures)
    assert len(LINK.findall(figures)) >= 8
    # A share also says of how many, which the header links.
    assert not re.search(r"(?<!of )\b\d", re.sub(r"<[^>]+>|\s+", " ", linked))


def test_no_share_is_shown_while_every_request_waits(inbox: InboxScenario) -> None:
    first = inbox.gate(inbox.plan("e-1", tool="mail.send", arguments={"to": "ada"}))
    client = inbox.organization.client("viewer")

    def read_shares() -> list[tuple[str, str]]:
        figures = read_board(client).partition('<dl class="figures">')[2].partition("</dl>")[0]
        shown = " ".join(re.sub(r"<[^>]+>", " ", figures).split())
        return re.findall(r"(?:Approved|Denied) (\S+(?: %)?) (\d+ of \d+)", shown)

    assert read_shares() == [("—", "0 of 1"), ("—", "0 of 1")]
    assert inbox.answer(first, "carol", "deny", "not this recipient").refusal is None
    assert read_shares() == [("0 %", "0 of 1"), ("100 %", "1 of 1")]


def read_section(board: str, name: str) -> str:
    section = board.partition(f'id="{name}"')[2].partition("</section>")[0]
    return " ".join(re.sub(r"<[^>]+>", " ", section).replace("\xa0", " ").split())


def test_working_sessions_are_as_old_in_the_table_and_are_counted(inbox: InboxScenario) -> None:
    for number in range(4):
        inbox.agent.session(f"live-{number}")
    client, seen_us = inbox.organization.client("viewer"), now_us() - 5 * 60_000_000
    Session.objects.update(seen_at_us=seen_us)
    assert "4 shown" not in read_section(read_board(client), "live-sessions")
    inbox.agent.session("live-4")
    Session.objects.update(seen_at_us=seen_us)
    for url in ("/", "/?view=table"):
        shown = read_section(read_board(client, url), "live-sessions")
        assert "Working now 5 last 30 min, 4 shown" in shown
        assert shown.count("5 min ago") == 4


def test_the_session_that_ended_last_is_named_if_none_works(inbox: InboxScenario) -> None:
    client = inbox.organization.client("reviewer")
    assert "The last session" not in read_board(client)
    ended = [inbox.agent.session(key)["id"] for key in ("first", "last")]
    inbox.agent.plan("e-1", "first", tool="mail.send", arguments={"to": "ada"})
    assert "The last session" not in read_board(client)
    for session in ended:
        answer = inbox.agent.post(f"/sessions/{session}/end", {"status": "completed"})
        assert answer.status_code == 200, answer.text
    board = read_board(client)
    assert re.search(r"The last session ended \d+ s ago\.", read_section(board, "live-sessions"))
    assert f'<a href="/sessions/{ended[1]}/">The last session</a>' in board
    Session.objects.update(seen_at_us=now_us() - 2 * 86_400_000_000)
    assert "The last session" not in read_board(client)


def test_failed_calls_next_to_nothing_wrong_are_explained(inbox: InboxScenario) -> None:
    client, words = inbox.organization.client("viewer"), "Failed calls that their agents reported"
    item = {"session": inbox.agent.session("s-1")["id"], "effect_key": "test"}
    plan = {"kind": "effect.planned", "tool": "file.read", "arguments": {"path": "a"}}
    inbox.agent.report([{"id": new_key(), **item, **plan}])
    assert words not in read_board(client)
    for fact in (
        {"kind": "effect.dispatched"},
        {"kind": "effect.acknowledged", "outcome": "error"},
    ):
        inbox.agent.report([{"id": new_key(), **item, **fact}])
    wrong = read_section(read_board(client), "wrong")
    assert f"Nothing is wrong. {words} are not counted. Last checked" in wrong


def test_the_overview_reads_and_polls_cheaply(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = now_us()  # the overview changes with each minute
    monkeypatch.setattr("pages.overview.views.now_us", lambda: now)
    client = scenario.inbox.organization.client("reviewer")
    read_board(client)
    with CaptureQueriesContext(connection) as queries:
        board = read_board(client)
    assert len(queries) <= MOST_QUERIES, "\n".join(query["sql"][:120] for query in queries)
    poll = re.search(r'hx-get="([^"]+)"', board)
    assert poll
    headers = {"HX-Request": "true"}
    assert client.get(poll[1], headers=headers).status_code == 204
    scenario.inbox.plan("newest", tool="file.read")
    assert b'<div id="overview"' in client.get(poll[1], headers=headers).content


def test_counting_problems_reads_each_row_once(scenario: Scenario) -> None:
    """A million effects have thousands of problems; whatever joins them is not in the counts."""
    with explained() as plans:
        read_board(scenario.inbox.organization.client("reviewer"))
    query = next(sql for sql in plans if "'violation' AS kind" in sql)
    counts = re.findall(r"\(SELECT count\(\*\) FROM \((.*?)\) AS counted\)", query)
    problems = [text for text in counts if 'FROM "ledger_effect"' in text]
    assert len(problems) == 3
    assert not [text for text in problems if "JOIN" in text]
    with explained() as plans:
        assert violations.query_unacknowledged(scenario.inbox.project.id).count()
    (plan,) = plans.values()
    scans = re.findall(r"(?:Scan|SCAN|SEARCH)\b.*\b(?:journal_entry|U0)\b", plan)
    assert len(scans) == 1, plan


def test_runs_without_permission_are_acknowledged_with_name_and_reason(
    scenario: Scenario,
) -> None:
    inbox, page = scenario.inbox, "/violations/acknowledge/"
    effect = run_without_permission(inbox, "alone")
    client = inbox.organization.client("reviewer")
    before = dict(list_numbers(read_board(client)))["is:unacknowledged"]
    assert inbox.organization.client("viewer").get(page).status_code == 403
    assert page not in read_board(inbox.organization.client("viewer"))
    refused = client.post(page, {"effect": str(effect.id), "reason": " "})
    assert refused.status_code == 422
    assert not Entry.objects.filter(kind="integrity.acknowledged").exists()
    reason = "The release team knew of it: OPS-204."
    assert client.post(page, {"effect": str(effect.id), "reason": reason}).status_code == 302
    entry = Entry.objects.get(kind="integrity.acknowledged")
    assert (entry.effect, entry.lane, reason in entry.body.text) == (effect.id, "system", True)
    numbers = dict(list_numbers(board := read_board(client)))
    assert numbers.get("is:unacknowledged", 0) == before - 1
    assert "last by reviewer" in " ".join(board.split())
    listed = client.get(page).content.decode()
    assert reason in listed
    assert "reviewer" in listed
    for query in ("is:violating", "permission:bypassed"):  # searches hide nothing
        compiled = execute.compile_query(f"{query} id:{effect}", inbox.project, now_us())
        assert execute.count_matches(compiled) == (1, False)
    assert client.post(page, {"effect": str(effect.id), "reason": reason}).status_code == 422


def test_an_empty_installation_shows_the_first_steps(inbox: InboxScenario) -> None:
    board = read_board(inbox.organization.client("administrator"))
    assert "Nothing has happened" in board
    assert "first-steps" in board


def test_the_request_that_expires_first_is_named_and_no_value_is_shown_twice(
    inbox: InboxScenario,
) -> None:
    plans = [
        inbox.plan(key, tool="db.delete", arguments={"table": key, "rows": 5})
        for key in ("carts", "orders")
    ]
    board = read_board(inbox.organization.client("reviewer"))
    rows = {
        row.split('href="', 1)[1].split('"')[0]: row for row in board.split('<li class="due')[1:]
    }
    first, second = (rows[f"/approvals/{plan['gate']['id']}/"] for plan in plans)
    assert ("first to expire" in first, "first to expire" in second) == (True, False)
    assert " ".join(re.sub(r"<[^>]+>", " ", first).split()).count("carts") == 1


def test_a_run_without_permission_shows_when_it_ran(scenario: Scenario) -> None:
    inbox = scenario.inbox
    effect = run_without_permission(inbox, "ran-late")
    ran_us = now_us() - 2 * 3_600_000_000
    Effect.objects.filter(pk=effect.pk).update(
        received_us=ran_us - 18_000_000_000, dispatched_at_us=ran_us
    )
    client = inbox.organization.client("reviewer")
    for url in ("/approvals/", "/"):
        page = " ".join(re.sub(r"<[^>]+>", "", client.get(url).text).split())
        assert "2 h ago" in page, url
        assert "7 h ago" not in page, url
    ran = datetime.fromtimestamp(ran_us // 1_000_000, UTC).strftime("%H:%M:%S")
    assert ran in client.get("/violations/acknowledge/").text
