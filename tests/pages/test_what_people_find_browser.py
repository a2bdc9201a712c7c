"""What people look for and find in a browser, in one project whose agents did many things."""

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from playwright.sync_api import Locator, Page, expect

from tests.approvals.live_fixture import watched
from tests.config.server import Server

pytestmark = [pytest.mark.browser, pytest.mark.once]

COUNT = ".result-count b"
FOUND = "main tbody tr:has(th a[id])"  # of results, not of the histogram as a table
STUCK = "#rail a[href='/stuck/'] .count"
EDIT = "Edit payments/rounding.py"


class Found:
    """The staged project on the running server, and a browser for its people."""

    def __init__(self, server: Server, ids: dict[str, Any]) -> None:
        self.server, self.ids = server, ids

    def enter(self, page: Page, name: str) -> Page:
        """Sign in as a person of the project; no page is open yet."""
        key = self.ids["keys"][name]
        page.context.add_cookies(
            [{"name": settings.SESSION_COOKIE_NAME, "value": key, "url": self.server.url}]
        )
        return page

    def open(self, page: Page, path: str) -> Page:
        """Open a path in which `{name}` stands for a staged id."""
        page.goto(self.server.url + path.format_map(self.ids))
        return page

    def search(self, page: Page, query: str) -> list[str]:
        """Type a query into the page of the search; return the handles of the rows found."""
        self.open(page, "/search/")
        page.get_by_label("Query", exact=True).fill(query)
        page.get_by_label("Query", exact=True).press("Enter")
        page.wait_for_url("**/search/?q=*")
        return read_handles(page)


def read_handles(page: Page) -> list[str]:
    """Return the handles of the listed effects, sessions or requests, in their order."""
    page.wait_for_load_state()
    return page.locator(f"{FOUND} th a[id]").all_text_contents()


def read_number(place: Locator) -> int:
    """Return the number that a link or heading shows."""
    number = re.search(r"\d[\d\u202f]*", place.inner_text())
    assert number, place.inner_text()
    return int(number[0].replace("\u202f", ""))


def row_of(page: Page, table: str, *words: str) -> Locator:
    """Return the row of a table that has all these words."""
    rows = page.get_by_role("table", name=table).locator("tbody tr")
    for word in words:
        rows = rows.filter(has_text=word)
    return rows


@pytest.fixture(scope="module")
def harbour(live_server_process: Server) -> Found:
    """Stage the project once for all tests of this file."""
    ids = live_server_process.run("from tests.pages.found_project import stage; print(stage())")
    return Found(live_server_process, json.loads(ids))


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """Errors of the browser's console and its policy; must stay empty."""
    messages: list[str] = []
    yield messages
    assert messages == []


@pytest.fixture
def page(new_page: Callable[..., Page], complaints: list[str]) -> Page:
    """A page whose errors fail the test."""
    return watched(new_page(viewport={"width": 1280, "height": 800}), complaints)


def test_the_top_box_takes_words_and_queries_and_control_k_reaches_it(
    harbour: Found, page: Page
) -> None:
    harbour.enter(page, "vilma")
    box = page.locator("#jump")
    for keys in ("on", "off"):
        if keys == "off":
            harbour.open(page, "/settings/shortcuts/")
            page.get_by_label("Enable keyboard shortcuts").uncheck()
            page.get_by_role("button", name="Save").click()
            expect(page.locator("html")).to_have_attribute("data-keys", "off")
        harbour.open(page, "/sessions/")
        page.wait_for_load_state("load")  # keys are handled by the script
        expect(page.locator("html")).to_have_attribute("data-keys", keys)
        for field in (None, page.get_by_label("Title or key")):
            if field is not None:
                field.focus()
                expect(box).not_to_be_focused()
            page.keyboard.press("Control+k")
            expect(box).to_be_focused()
    for typed, handles in (
        ("lighthouse fix", [harbour.ids["approved handle"]]),
        ("tool:mail.send", [harbour.ids["second mail handle"], harbour.ids["first mail handle"]]),
    ):
        page.keyboard.press("Control+k")
        page.keyboard.type(typed)
        page.keyboard.press("Enter")
        expect(page.get_by_label("Query", exact=True)).to_have_value(typed)
        expect(page.locator(COUNT)).to_have_text(re.compile(rf"^{len(handles)} effects?$"))
        assert read_handles(page) == handles
        page.wait_for_load_state("load")


@pytest.mark.matrix
def test_names_refs_and_repeats_are_found_by_typing_them(harbour: Found, page: Page) -> None:
    harbour.enter(page, "vilma")
    ids = harbour.ids
    assert harbour.search(page, "rolf") == [ids["approved handle"]]
    assert harbour.search(page, "adele") == [ids["denied handle"]]
    assert harbour.search(page, "crane-9") == [ids["turn handle"]]
    tug = harbour.search(page, "tug-3")
    assert {ids["hasty handle"], ids["first mail handle"], ids["edit handle"]} < set(tug)
    assert ids["turn handle"] not in tug
    expect(page.locator(COUNT)).to_have_text(f"{len(tug)} effects")
    on_main = [ids["push handle"], ids["edit handle"], ids["hasty handle"]]
    assert harbour.search(page, "ref:main") == on_main
    rows = page.get_by_role("table", name="Effects found, newest first").locator("tbody tr")
    for row in rows.all():
        expect(row).to_contain_text("payments-api@refs/heads/main")
    # Both repeat calls, but reading a file again changes nothing.
    sessions = harbour.search(page, "session repeats:>=2")
    assert sessions == [ids["acts handle"]]
    expect(page.locator(FOUND)).to_contain_text("acts")
    assert ids["reads handle"] in harbour.search(page, "session key:[acts,reads]")


def test_equal_calls_and_equal_targets_answer_two_questions(harbour: Found, page: Page) -> None:
    harbour.enter(page, "vilma")
    for number, tool, other in (
        (18, "mail.send", "forge.comment"),
        (21, "forge.comment", "mail.send"),
    ):
        harbour.open(page, "/search/questions/")
        page.locator(f"#q{number}").get_by_role("button", name="Search").click()
        groups = page.get_by_role("table", name="Effects in groups").locator("tbody tr")
        expect(groups.filter(has_text=tool)).to_have_count(1)
        expect(groups.filter(has_text=other)).to_have_count(0)
        expect(groups.filter(has_text=tool).locator("[data-label=count]")).to_have_text("2")
        groups.filter(has_text=tool).get_by_role("link").click()
        kind = {"mail.send": "mail", "forge.comment": "comment"}[tool]
        expect(page.locator(COUNT)).to_have_text("2 effects")
        assert read_handles(page) == [
            harbour.ids[f"{nth} {kind} handle"] for nth in ("second", "first")
        ]


def test_a_found_request_shows_its_call_and_decision_wide_and_narrow(
    harbour: Found, page: Page
) -> None:
    harbour.enter(page, "vilma")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        harbour.open(page, "/search/?q=gate")
        rows = page.get_by_role("table", name="Gates found, newest first").locator("tbody tr")
        decided = rows.filter(has_text=harbour.ids["approved gate"])
        expect(decided).to_have_count(1)
        for words in ("git push origin topic", "the lighthouse fix", "payments-api@topic"):
            expect(decided.get_by_text(words).first).to_be_visible()
            assert words in decided.inner_text()
        times = decided.locator("[data-label='Requested, decided'] time")
        expect(times).to_have_count(2)
        for moment in times.all():
            expect(moment).to_be_visible()
        waits = rows.filter(has_text="Edit").locator("[data-label='Requested, decided'] time")
        expect(waits).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


# Each kind of session, and the titles of its rows.
TABS = {
    "Needs attention": {
        *("reads", "acts", "Nightly berth plan", "Hasty push"),
    },
    "Running": {
        *("Hasty push", "reads", "acts", "Release 2.8.1", "second", "first"),
        *("Push the tide table", "Turn the crane"),
    },
    "Waiting": {"Release 2.8.1", "Push the tide table"},
    "Failed": {"bad"},
    "Ended": {"good", "bad"},
    "Reported or imported": {"reported"},
}


@pytest.mark.matrix
def test_each_tab_of_the_sessions_lists_its_number_and_each_order_sorts(
    harbour: Found, page: Page
) -> None:
    harbour.enter(page, "vilma")
    harbour.open(page, "/sessions/")
    tabs, rows = page.get_by_role("navigation", name="Kind of session"), page.locator(FOUND)
    everything = rows.count()
    for words, titles in TABS.items():
        tab = tabs.get_by_role("link", name=re.compile(rf"^\s*{words} \d"))
        number = read_number(tab)
        tab.click()
        expect(tab).to_have_attribute("aria-current", "true")
        expect(rows).to_have_count(number)
        shown = rows.locator("th").all_inner_texts()
        assert {" ".join(text.split()).partition(" ")[2] for text in shown} == titles
    tabs.get_by_role("link", name="All").click()
    expect(rows).to_have_count(everything)
    orders = page.get_by_role("navigation", name="Order")
    seen = {}
    for order in ("Effects", "Problems", "Last act", "Start"):
        orders.get_by_role("link", name=order).click()
        expect(orders.get_by_role("link", name=order)).to_have_attribute("aria-current", "true")
        seen[order] = read_handles(page)
        column = {
            "Effects": "[data-label=Effects]",
            "Problems": "[data-label=Problems]",
            "Last act": "[data-label='Last seen'] time",
            "Start": "th a.handle",
        }[order]
        values = rows.locator(column)
        if order == "Last act":
            keys = [each.get_attribute("datetime") or "" for each in values.all()]
        else:
            numbers = [re.sub(r"\D", "", text) for text in values.all_inner_texts()]
            keys = [f"{int(number or 0):09}" for number in numbers]
        assert len(set(keys)) > 1, order
        assert keys == sorted(keys, reverse=True), order
    assert seen["Effects"] != seen["Start"] != seen["Last act"]
    assert len(seen["Start"]) == everything > len(seen["Problems"]) > 1


def test_a_session_names_who_looked_and_what_gatebook_found(
    harbour: Found, new_page: Callable[..., Page], page: Page
) -> None:
    for name in ("vilma", "rolf"):
        harbour.enter(page, name)
        harbour.open(page, "/sessions/{release}/")
    page.locator("#people").scroll_into_view_if_needed()
    acts, findings = "What people saw and did, oldest first", "What Gatebook found, most first"
    for name in ("vilma", "rolf"):
        expect(row_of(page, acts, name, "saw the page of the session")).to_have_count(1)
    expect(row_of(page, acts, "rolf", "agreed with the harbour master")).to_be_visible()
    requested = row_of(page, findings, "policy rule", "harbour@1/push")
    expect(requested.locator("[data-label=Count]")).to_have_text("3")
    once = row_of(page, findings, "policy rule", "harbour@1/edits")
    expect(once.locator("[data-label=Count]")).to_have_text("1")
    harbour.open(page, "/sessions/{dead}/")
    page.locator("#people").scroll_into_view_if_needed()
    worker_gone = row_of(page, findings, "stuck rule", "S2", "Worker gone")
    expect(worker_gone).to_be_visible()
    expect(row_of(page, acts, "reported as stuck", "S2 Worker gone")).to_be_visible()
    harbour.open(page, "/approvals/{push gate}/")
    page.locator("#people").scroll_into_view_if_needed()
    delivered = row_of(page, acts, "email at example.org", "notified about the request: delivered")
    expect(delivered).to_be_visible()
    expect(row_of(page, acts, "rolf", "saw the request, version 1")).to_be_visible()


def test_the_page_of_an_agent_is_a_click_away_and_its_numbers_are_searches(
    harbour: Found, page: Page
) -> None:
    harbour.enter(page, "vilma")
    harbour.open(page, "/sessions/{acts}/")
    page.locator("main").get_by_role("link", name="tug-3", exact=True).first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("tug-3")
    agent = page.url
    table = "Tools used, most used first"
    for tool, label, number in (("ci.run", "Effects", 5), ("lint.run", "Failed", 2)):
        link = row_of(page, table, tool).locator(f"[data-label='{label}'] a").first
        expect(link).to_have_text(str(number))
        link.click()
        expect(page.locator(COUNT)).to_have_text(f"{number} effects")
        assert len(read_handles(page)) == number
        page.goto(agent)
    whole = read_number(page.locator("section", has_text="Activity").locator("a.total").first)
    page.locator("section", has_text="Activity").locator("a.total").first.click()
    expect(page.locator(COUNT)).to_have_text(f"{whole} effects")


def test_the_stuck_number_counts_only_what_needs_a_person(harbour: Found, page: Page) -> None:
    harbour.enter(page, "rolf")
    harbour.open(page, "/stuck/")
    rows = page.locator("main table tbody tr")
    for words in ("crane.turn", "git.push"):
        expect(rows.filter(has_text=words)).to_have_count(1)
    expect(page.get_by_text("settles by itself")).to_be_visible()
    expect(page.get_by_text("people were asked; not counted")).to_be_visible()
    expect(page.locator("header.head")).to_contain_text(
        "3 need a person; 2 more wait for a worker’s check or for a person"
    )
    expect(page.locator(STUCK)).to_have_text(re.compile(r"^3\s*for a person$"))
    harbour.open(page, "/")
    expect(page.locator(STUCK)).to_have_text(re.compile(r"^3\s*for a person$"))


def test_an_edit_is_named_by_its_file_and_a_push_shows_its_recorded_diff(
    harbour: Found, page: Page
) -> None:
    harbour.enter(page, "rolf")
    harbour.open(page, "/approvals/")
    entry = page.locator(".entry").filter(has_text="payments/rounding.py")
    expect(entry).to_contain_text(re.compile(rf"{EDIT}\s+of payments-api"))
    expect(entry).not_to_contain_text("Edit main")
    harbour.open(page, "/approvals/{edit gate}/")
    heading = page.locator("#gate-title")
    expect(heading).to_have_text(re.compile(rf"^\s*{EDIT}\s+of payments-api\s*$"))
    page.locator(".gate-ref").get_by_role("link", name=harbour.ids["edit handle"]).first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(EDIT)
    expect(page.get_by_role("heading", level=1)).not_to_contain_text("main")
    harbour.open(page, "/approvals/{push gate}/")
    diff = page.locator(".attached")
    expect(diff).to_contain_text("recorded by the agent for this request, unverified")
    values = diff.get_by_role("table", name="Changes in deploy/production/values.yaml")
    expect(values.get_by_text("replicas: 12")).to_be_visible()
    expect(values.get_by_text("replicas: 2", exact=True)).to_be_visible()
    diff.locator("summary").filter(has_text="1 file in docs/").click()
    page.evaluate("document.querySelectorAll('.attached details').forEach(d => { d.open = true })")
    for words in ("old words", "new words"):
        expect(diff.get_by_text(words)).to_be_visible()


def test_repeated_effects_lead_to_each_other(harbour: Found, page: Page) -> None:
    harbour.enter(page, "vilma")
    first, second = (harbour.ids[f"{nth} mail handle"] for nth in ("first", "second"))
    harbour.open(page, "/effects/{first mail}/")
    related = page.get_by_role("table", name=f"Effects related to {first}")
    expect(related).to_contain_text(re.compile(r"same call, [\d.]+ m?s later"))
    related.get_by_role("link", name=second).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(second)
    back = page.get_by_role("table", name=f"Effects related to {second}")
    expect(back).to_contain_text(re.compile(r"same call, [\d.]+ m?s earlier"))
    back.get_by_role("link", name=first).click()
    expect(page).to_have_url(re.compile(harbour.ids["first mail"]))
    harbour.open(page, "/sessions/{second session}/resume/")
    repeats = page.get_by_role("list", name="The same call in another session")
    expect(repeats).to_have_text(re.compile(rf"^\s*{second}\s+mail.send\s+repeats\s+{first}\s"))
    repeats.get_by_role("link", name=first).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(first)


def test_a_case_file_is_made_by_clicks_and_accepted_by_its_own_verifier(
    harbour: Found, page: Page, tmp_path: Path
) -> None:
    harbour.enter(page, "rolf")
    harbour.search(page, "session:release")
    page.get_by_role("link", name="Case file").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as zip").click()
    path = tmp_path / "case.zip"
    download.value.save_as(path)
    quoted = ("the lighthouse fix", "pushed to the quay", "agreed with the harbour master")
    with zipfile.ZipFile(path) as file:
        tables = {name: file.read(f"tables/{name}.json").decode() for name in ("effects", "votes")}
        document = file.read("case.html").decode()
        file.extract("gatebook_verify.py", tmp_path)
    assert quoted[0] in tables["effects"]
    assert quoted[1] in tables["effects"]
    assert quoted[2] in tables["votes"]
    assert all(words in document for words in quoted)
    command = [sys.executable, str(tmp_path / "gatebook_verify.py"), "bundle", str(path), "--json"]
    verified = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    path.write_bytes(replace_member(path, "tables/votes.json", b"agreed", b"argued"))
    forged = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert forged.returncode != 0, forged.stdout
    page.get_by_role("button", name="Open to print").click()
    for words in quoted:
        expect(page.get_by_text(words).first).to_be_visible()


def replace_member(path: Path, name: str, old: bytes, new: bytes) -> bytes:
    """Return the zip with other bytes in one member."""
    changed = path.with_suffix(".changed")
    with zipfile.ZipFile(path) as file, zipfile.ZipFile(changed, "w") as made:
        for member in file.namelist():
            content = file.read(member)
            made.writestr(member, content.replace(old, new) if member == name else content)
    return changed.read_bytes()


@pytest.mark.matrix
def test_dates_narrow_a_search_also_by_the_made_up_times_of_a_sample(
    harbour: Found, page: Page
) -> None:
    harbour.enter(page, "sigrid")
    harbour.open(page, "/")
    sample = page.get_by_label("Project").locator("option").filter(has_text="Sample").last
    page.get_by_label("Project").select_option(sample.get_attribute("value"))
    page.get_by_role("button", name="Switch").click()
    days: dict[str, int] = harbour.ids["days"]
    dates = sorted(days)
    spans = ((dates[0], dates[0]), (dates[1], dates[5]), (dates[5], dates[-1]))
    harbour.open(page, "/search/?q=effect")
    expect(page.locator(COUNT)).to_have_text(f"{sum(days.values())} effects")
    for first, last in spans:
        expected = sum(number for day, number in days.items() if first <= day <= last)
        form = page.get_by_role("form", name="Dates")
        if not form.is_visible():
            page.get_by_text("Dates", exact=True).click()
        form.get_by_label("From").fill(first)
        form.get_by_label("to", exact=True).fill(last)
        form.get_by_role("button", name="Apply").click()
        expect(page.get_by_label("Query", exact=True)).to_have_value(
            re.compile(rf"since:{first}\S* until:\d{{4}}-\d\d-\d\d")
        )
        expect(page.locator(COUNT)).to_have_text(f"{expected} effect{'' if expected == 1 else 's'}")
        assert len(read_handles(page)) == expected


def test_figures_of_the_overview_are_links_to_what_they_count(harbour: Found, page: Page) -> None:
    harbour.enter(page, "otto")
    harbour.open(page, "/")
    wrong = page.locator("#wrong")
    alert = wrong.locator("li").filter(has_text="Alert in 24 hours")
    expect(alert).to_contain_text("Lint errors")
    expect(alert.locator("a.total")).to_have_text("1")
    alert.locator("a.total").click()
    expect(page.locator(COUNT)).to_have_text("1 event")
    events = page.get_by_role("table", name="Journal entries found, newest first").locator(
        "tbody tr"
    )
    expect(events).to_contain_text(["alert.raised"])
    harbour.open(page, "/")
    loops = wrong.locator(".loops")
    expect(loops).to_contain_text(re.compile(r"5\s×\s+ci\.run\s+by\s+tug-3"))
    expect(loops).to_contain_text(re.compile(r"5\s×\s+file\.read\s+by\s+tug-3"))
    loops.get_by_role("link").first.click()
    expect(page.locator(COUNT)).to_have_text("5 effects")
    for label, number, what in (("Waiting", 3, "gates"), ("Expired", 0, "gates")):
        harbour.open(page, "/")
        figures = page.locator("#answers dl.figures > div").filter(has_text=label)
        expect(figures.locator("dd a").first).to_have_text(str(number))
        figures.locator("dd a").first.click()
        if number:
            expect(page.locator(COUNT)).to_have_text(f"{number} {what}")
        else:
            expect(page.get_by_text("No results")).to_be_visible()
    harbour.open(page, "/")
    for figure in page.locator("#answers dl.figures dd:not(.quiet)").all():
        expect(figure.get_by_role("link")).to_have_count(1)
    # What ended with an error failed, on the overview and among the tools.
    expect(page.locator("#today")).to_contain_text(re.compile(r"\b2\s+failed"))
    harbour.open(page, "/tools/")
    calls = page.get_by_role("table", name=re.compile("^Calls by tool")).locator("tbody tr")
    lint = calls.filter(has_text="lint.run")
    expect(lint.locator("[data-label=Succeeded]")).to_have_text(re.compile(r"50\s%"))
    expect(lint.locator("[data-label=Failed]")).to_have_text("2")
    lint.locator("[data-label=Failed] a").click()
    expect(page.locator(COUNT)).to_have_text("2 effects")


def test_an_effect_without_approval_is_headed_by_that_and_leaves_the_box_when_acknowledged(
    harbour: Found, new_page: Callable[..., Page]
) -> None:
    # Not `page`: a typed reason is followed by errors of the script, see the last test.
    page = harbour.enter(new_page(viewport={"width": 1280, "height": 800}), "rolf")
    harbour.open(page, "/effects/{hasty}/")
    headline = page.locator("#headline")
    expect(headline).to_have_text(re.compile(r"^Ran without approval: acknowledged"))
    expect(page.locator("section.statement")).to_have_class(re.compile(r"\bis-failed\b"))
    for place in ("#headline", "header.head"):
        expect(page.locator(f"{place} .is-ack")).to_have_count(0)
    marks = page.locator("header.head .state use")
    expect(marks).to_have_attribute("href", "#warn")
    expect(page.locator("header.head .env.is-prod")).to_have_text("production")
    handle = harbour.ids["hasty handle"]
    harbour.open(page, "/approvals/")
    expect(page.locator("main")).to_contain_text("Executed without approval.")
    page.get_by_role("link", name="Acknowledge", exact=True).click()
    page.get_by_role("checkbox", name=f"Acknowledge {handle}").check()
    page.get_by_label("Reason").fill("The release team knew of it: OPS-204.")
    page.get_by_role("button", name="Acknowledge the ticked effects").click()
    expect(page.locator("#wrong")).to_contain_text(re.compile(r"1 acknowledged\s*, last by rolf"))
    expect(page.locator("#wrong")).not_to_contain_text("Ran without permission")
    harbour.open(page, "/approvals/")
    expect(page.locator(".entry").first).to_be_visible()
    expect(page.locator("main")).not_to_contain_text("Executed without approval.")
    for query in ("is:violating", "permission:bypassed"):
        assert harbour.search(page, query) == [handle]


def test_a_reason_typed_for_a_stop_leaves_the_inbox_as_it_was(
    harbour: Found, new_page: Callable[..., Page]
) -> None:
    errors: list[str] = []
    page = harbour.enter(watched(new_page(viewport={"width": 1280, "height": 800}), errors), "rolf")
    harbour.open(page, "/sessions/{acts}/")
    page.locator("main a[href*='/approvals/stops/new/']").first.click()
    page.locator("#reason").fill("only typed")
    harbour.open(page, "/approvals/")
    page.wait_for_load_state("load")
    assert errors == []
    expect(page.locator("#pane .gate-title")).to_be_visible()  # the first request is opened
