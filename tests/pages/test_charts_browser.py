"""Charts in a browser: labels that do not overlap, fills without colour, tables, touch."""

import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urljoin
from uuid import uuid4

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, Page

from approvals.waiting_times import WaitBar, WaitDistribution
from display.state_textures import STATE_TEXTURES
from monitoring.stuck.board import CAUSES, Cause, CauseGroup, StuckRow
from monitoring.stuck.rules import RuleResult
from pages.stuck.clock_strip import draw_clock_strip
from pages.templatetags.active_times import active_times
from pages.timeline.bars import Bar, SessionEvent, Step, TimelineWindow
from pages.timeline.svg import draw_timeline
from tests.api.api_client import Caller
from tests.approvals.inbox_scenario import InboxScenario
from tests.matrices import keep_core
from tests.pages.drawn_labels import SPACE_PX, WIDTHS, find_overlaps, read_labels, show_drawing
from tests.pages.people import Organization, signed_in
from tests.pages.sample_data import SampleIds, done
from tests.visual.pictures import open_page
from tests.visual.sample import PageAddress
from web.templatetags.gatebook import elapsed

pytestmark = [pytest.mark.browser, pytest.mark.once]
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
# URL, the drawing, and its legend.
CHARTS_BY_STATE: Final = (
    ("/", ".is-day", "#today .keys-line"),
    ("/search/?q=effect&facets=1", ".histogram", ".brush-keys"),
)
# By template: the page and its chart, the page and its table.
TWINS: Final = {
    "pages/overview/_day_chart.html": ("/", ".is-day", "?view=table", "#today table"),
    "pages/overview/_answer_chart.html": ("/", ".is-waits", "?view=table", "#answers table"),
    "pages/overview/_working_now.html": ("/", ".strip", "?view=table", "#live-sessions table"),
    "approvals/inbox/_waits.html": (
        *("/approvals/?state=decided", ".is-waits"),
        *("/approvals/?state=decided", ".waits table"),
    ),
    "pages/stuck/_strip.html": ("/stuck/", ".clocks .chart", "/stuck/", "table.stuck"),
    "pages/agents/agent.html": (
        "AGENT",
        ".is-calendar",
        "AGENT",
        "[aria-labelledby=activity-heading] table",
    ),
    "pages/agents/_live_session_row.html": ("AGENT", ".beats", "AGENT", "#live-sessions table"),
    "pages/search/_histogram_and_facets.html": (
        *("/search/?q=effect&facets=1", ".histogram"),
        *("/search/?q=effect&facets=1", ".bars table"),
    ),
}


def draw_bar(number: int, *minutes: int) -> Bar:
    """Return an acknowledged effect that was planned and answered at these minutes."""
    effect = SimpleNamespace(
        id=number, tool="git.push", task_id=None, attempt_count=1, violates=False, outcome="ok"
    )
    steps = [
        Step(at * MINUTE, what, 1, number, at * MINUTE, "command")
        for at, what in zip(minutes, ("planned", "acknowledged"), strict=True)
    ]
    return Bar(effect, steps, "acknowledged", "main")


@pytest.mark.matrix
@pytest.mark.parametrize("gap_hours", [2, 5, 14, 40])
def test_the_words_of_a_gap_lie_on_no_hour_of_the_map(browser_page: Page, gap_hours: int) -> None:
    end = 45 + gap_hours * 60
    bars = [draw_bar(1, 0, 20), draw_bar(2, 30, 40), draw_bar(3, end, end + 30)]
    acquired = SessionEvent(0, "lease.acquired", 1, "{}", 1)
    drawing = draw_timeline(
        TimelineWindow("server", bars=bars, session_events=[acquired]), str, running=False
    )
    assert drawing is not None
    drawing.heads = []  # the names of the lanes need a page
    context = {"drawing": drawing, "zoom": {}}
    for width, media in ((1076, "screen"), (366, "screen"), (700, "print")):
        browser_page.emulate_media(media=media)  # type: ignore[arg-type]
        show_drawing(browser_page, "pages/timeline/_lanes.html", context, width, "lanes")
        map_box = browser_page.locator(".minimap").bounding_box()
        assert map_box is not None
        assert (map_box["width"] == 278) == (width == 366)
        assert find_overlaps(browser_page, ".minimap") == [], (width, media)
        labels = read_labels(browser_page, ".minimap")
        has_hours = any(re.fullmatch(r"\d\d:\d\d", label) for label in labels)
        # On a phone, two dates have no space next to the words.
        assert has_hours or (width, gap_hours) == (366, 40), labels
        assert any(re.search(r"\d (h|min).* cut( |$)", label) for label in labels), labels


@pytest.mark.parametrize("zoom", [1, 4])
def test_no_label_of_a_printed_timeline_lies_on_another(browser_page: Page, zoom: int) -> None:
    bars = [draw_bar(number, number * 6, number * 6 + 2) for number in range(1, 25)]
    drawing = draw_timeline(TimelineWindow("server", bars=bars), str, running=False, zoom=zoom)
    assert drawing is not None
    drawing.heads = []  # the names of the lanes need a page
    browser_page.emulate_media(media="print")
    context = {"drawing": drawing, "zoom": {}}
    show_drawing(browser_page, "pages/timeline/_lanes.html", context, 640, "lanes")
    assert "git.push ×24" in read_labels(browser_page, ".lanes-scroll")
    assert find_overlaps(browser_page, ".lanes-scroll") == []


def build_case(cause: Cause, waited_us: int, threshold_us: int, now: int) -> StuckRow:
    """Return an effect that is stuck since its threshold, found 10 minutes later."""
    began = now - waited_us
    reason = RuleResult(
        *(cause.rule, uuid4(), "effect", 1, began + threshold_us, []),
        name="e_12 git.push",
        began_us=began,
    )
    found_us = began + threshold_us + 10 * MINUTE
    return StuckRow(reason, None, cause.key, found_us=found_us)


@pytest.mark.parametrize("oldest", keep_core([50 * MINUTE, 5 * HOUR, 3 * DAY, 40 * DAY], [3 * DAY]))
@pytest.mark.parametrize("width", WIDTHS)
def test_the_clocks_of_stuck_cases_are_drawn_on_one_axis(
    browser_page: Page, width: int, oldest: int
) -> None:
    now = 1_800_000_000 * SECOND
    ages = (oldest, 45 * MINUTE)
    groups = [
        CauseGroup(
            cause, [build_case(cause, age, 30 * MINUTE, now) for age in ages], 2, now - oldest
        )
        for cause in CAUSES[:3]
    ]
    context = {"strip": draw_clock_strip(groups, now)}
    show_drawing(browser_page, "pages/stuck/_strip.html", context, width, "pictures")
    assert find_overlaps(browser_page, ".clocks") == []
    assert "1 min" in read_labels(browser_page, ".clocks")
    names = browser_page.locator(".clocks > p")
    lanes = browser_page.locator(".clocks > svg:not(.clock-axis)")
    assert names.count() == lanes.count() == 3
    for number in range(3):
        name, lane = names.nth(number).bounding_box(), lanes.nth(number).bounding_box()
        assert name
        assert lane
        if width > 600:
            assert name["x"] + name["width"] < lane["x"]
        else:
            assert name["y"] + name["height"] <= lane["y"]
            assert lane["width"] == width
    # Of two cases, the longer one ends further right; each is a link with its age.
    drawn = lanes.first.locator("a")
    ends = [drawn.nth(n).locator("circle").bounding_box() for n in range(2)]
    assert ends[0]
    assert ends[1]
    assert ends[0]["x"] > ends[1]["x"]
    for number, row in enumerate(groups[0].rows):
        case = drawn.nth(number)
        assert case.get_attribute("href") == f"/effects/{row.reason.subject}/"
        words = f"e_12 git.push: {elapsed(ages[number])}, threshold 30 min"
        assert case.locator("title").text_content() == words
        bar, tick = case.locator(".over").bounding_box(), case.locator(".found").bounding_box()
        assert bar
        assert tick
        assert bar["x"] < tick["x"] < bar["x"] + bar["width"]


PLATE_PX = 4  # how far a plate reaches below its word
# Of a line that ends in a word, or begins there, the word is on a plate.
CROSSED_WORDS = """() => [...document.querySelectorAll(".is-waits text")].filter((word) => {
  const box = word.getBoundingClientRect(), style = getComputedStyle(word);
  return box.width
    && [...document.querySelectorAll(".is-waits .limit")].some((line) => {
      const across = line.getBoundingClientRect();
      const isBehind = line.compareDocumentPosition(word) & Node.DOCUMENT_POSITION_FOLLOWING
        && style.paintOrder.startsWith("stroke") && parseFloat(style.strokeWidth) >= 4;
      return !isBehind && across.left > box.left && across.left < box.right
        && across.bottom > box.top && across.top < box.bottom;
    });
}).map((word) => word.textContent)"""


@pytest.mark.parametrize(
    ("median", "p95"), [(SECOND, 4 * SECOND), (MINUTE, HOUR), (5 * HOUR, DAY), (DAY, 50 * DAY)]
)
def test_the_words_of_waiting_times_lie_on_nothing(
    browser_page: Page, median: int, p95: int
) -> None:
    limits = ["< 2 s", "2 s", "5 s", "15 s", "1 min", "5 min", "15 min", "1 h", "4 h", "1 d"]
    bars = [WaitBar(label, 100, "gate") for label in limits]
    waits = WaitDistribution(bars, 1000, "gate", median, p95, is_cut=False)
    # The list of requests is narrow on wide pages too.
    for width in (319, *WIDTHS):
        show_drawing(
            browser_page, "approvals/inbox/_waits.html", {"waits": waits}, width, "pictures"
        )
        assert find_overlaps(browser_page, ".is-waits") == [], width
        assert browser_page.evaluate(CROSSED_WORDS) == [], width
        labels = read_labels(browser_page, ".is-waits")
        assert ("5 min" in labels) == (width > 600)
        assert "15 min" in labels
        drawing = browser_page.locator(".is-waits").bounding_box()
        assert drawing
        for word in browser_page.locator(".is-waits .plated").all():
            box = word.bounding_box()
            assert box
            assert drawing["x"] <= box["x"] <= box["x"] + box["width"] <= drawing["x"] + width
            highest = browser_page.locator(".is-waits .fill").first.bounding_box()
            assert highest
            assert highest["y"] > box["y"] + box["height"] - PLATE_PX - SPACE_PX


@contextmanager
def open_chart(
    browser: Browser, client: Client, url: str, width: int = 1280, **options: Any
) -> Iterator[Page]:
    """Open a page of the project "default" as one of its people."""
    with open_page(
        browser, client, PageAddress("chart", "viewer", url), width, datetime.now(UTC), **options
    ) as page:
        yield page


# The texture of each fill, "" without one, by the class that gives its colour.
READ_FILLS = """selector => [...document.querySelectorAll(`${selector} .fill`)].map((fill) => {
  const next = fill.nextElementSibling?.matches(".texture") ? fill.nextElementSibling : null;
  const name = next?.getAttribute("fill").slice(5, -1) ?? "";
  if (name && !document.getElementById(name)) throw new Error(`no pattern ${name}`);
  return [[...fill.classList].find((each) => each.startsWith("is-")) ?? "", name];
})"""
# Whether each pixel of a square is darker than the mean, for squares of 24 pixels in a row.
READ_SQUARES = """async (picture) => {
  const image = new Image();
  image.src = `data:image/png;base64,${picture}`;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, 24), pen = canvas.getContext("2d");
  pen.drawImage(image, 0, 0);
  const grey = (x) => {
    const data = pen.getImageData(x + 4, 4, 16, 16).data, all = [];
    for (let n = 0; n < data.length; n += 4) all.push(data[n] + data[n + 1] + data[n + 2]);
    const mean = all.reduce((sum, each) => sum + each) / all.length;
    return all.map((each) => Math.abs(each - mean) < 40 ? "." : each < mean ? "#" : "o").join("");
  };
  return Array.from({ length: image.width / 24 }, (_, n) => grey(n * 24));
}"""


@pytest.mark.usefixtures("sample")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("url", "chart", "legend"), CHARTS_BY_STATE)
def test_states_of_a_chart_differ_in_more_than_colour(
    organization: Organization,
    browser: Browser,
    *,
    scheme: str,
    url: str,
    chart: str,
    legend: str,
) -> None:
    client = organization.client("viewer")
    with open_chart(browser, client, url, color_scheme=scheme) as page:
        drawn = {tuple(fill) for fill in page.evaluate(READ_FILLS, chart)}
        listed = [tuple(fill) for fill in page.evaluate(READ_FILLS, legend)]
    assert len(listed) > 3
    assert drawn == set(listed)
    textures = [texture for _, texture in listed]
    assert len(set(textures)) == len(textures)


@pytest.mark.matrix
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_textures_differ_in_one_colour(browser_page: Page, scheme: str) -> None:
    for states in STATE_TEXTURES.values():
        browser_page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        show_drawing(browser_page, "_textures.html", {}, 600)
        textures = sorted(set(states.values()))
        squares = "".join(
            f'<svg class="is-planned" width="24" height="24" x="{24 * number}">'
            '<rect class="fill" width="24" height="24" fill="currentColor"/>'
            f'<rect class="texture" width="24" height="24" fill="url(#texture-{texture})"/></svg>'
            for number, texture in enumerate(textures)
        )
        browser_page.evaluate(
            "svg => document.body.insertAdjacentHTML('beforeend', svg)",
            f'<svg id="squares" width="{24 * len(textures)}" height="24">{squares}</svg>',
        )
        picture = browser_page.locator("#squares").screenshot()
        patterns = browser_page.evaluate(READ_SQUARES, b64encode(picture).decode())
        assert len(set(patterns)) == len(textures) == len(patterns)


@pytest.mark.usefixtures("sample")
def test_a_column_of_the_day_names_its_states(organization: Organization, browser: Browser) -> None:
    with open_chart(browser, organization.client("viewer"), "/") as page:
        column = page.locator(".is-day a").first
        words = column.get_attribute("aria-label")
        assert words
        assert re.fullmatch(r"\d\d:00: (\d+ \w+, )+\d+ \w+", words)
        assert "done" in words
        assert "unknown" in words
        title = column.locator("title").text_content()
        assert title
        assert " ".join(title.split()).startswith(words)


@pytest.fixture
def inbox(organization: Organization, agent: Caller) -> InboxScenario:
    """Return a project whose rules require approval, with a request that was answered."""
    scenario = InboxScenario(organization, agent)
    scenario.rules()
    scenario.declare("git.push")
    scenario.answer(scenario.gate(scenario.plan("answered", tool="git.push")), "rita")
    return scenario


def list_chart_templates() -> set[str]:
    """Return the templates that draw a chart or the strip of a session."""
    folder = settings.BASE_DIR / "templates"
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*.html")
        if re.search(
            r'<svg class="(beats|chart|strip|histogram)\b', path.read_text(encoding="utf-8")
        )
    }


@pytest.mark.matrix
@pytest.mark.usefixtures("sample")
def test_every_chart_has_a_table_with_its_numbers(inbox: InboxScenario, browser: Browser) -> None:
    assert set(TWINS) == list_chart_templates()
    client = inbox.organization.client("viewer")
    agent = f"/agents/{inbox.organization.agent.id}/"
    for template, (url, chart, twin_url, table) in TWINS.items():
        with open_chart(browser, client, url.replace("AGENT", agent)) as page:
            assert page.locator(chart).count() > 0, template
            if twin_url == "?view=table":
                section = page.locator("section", has=page.locator(chart))
                link = section.get_by_role("link", name="As a table")
                assert (link.get_attribute("href") or "").startswith(twin_url), template
        with open_chart(browser, client, urljoin(url, twin_url).replace("AGENT", agent)) as page:
            rows = page.locator(f"{table} tbody tr")
            assert rows.count() > 0, template
            assert page.locator(f"{table} caption").count() == 1, template
            assert any(re.search(r"[1-9]", row) for row in rows.all_text_contents()), template


def test_minutes_in_a_row_are_one_time() -> None:
    noon = 12 * HOUR
    assert active_times([0, 1, 2, 5, 29, 30], noon) == "12:00 to 12:02, 12:05, 12:29 to 12:30"
    assert active_times([], noon) == ""


@pytest.mark.parametrize("width", [1280, 390])
def test_labels_of_the_overview_do_not_overlap(
    inbox: InboxScenario, browser: Browser, width: int
) -> None:
    with open_chart(browser, inbox.organization.client("viewer"), "/", width) as page:
        assert find_overlaps(page, ".is-waits") == []
        # The links of a heading stand on its line.
        header = page.locator("#live-sessions > header").bounding_box()
        assert header
        assert header["height"] < 40


@pytest.mark.usefixtures("sample")
def test_heads_of_the_table_of_the_day_do_not_overlap(
    organization: Organization, browser: Browser
) -> None:
    with open_chart(browser, organization.client("viewer"), "/?view=table") as page:
        heads = page.locator("#today th[scope=col]")
        assert heads.count() > 8
        assert heads.evaluate_all("heads => heads.every((th) => th.scrollWidth <= th.clientWidth)")


def test_sections_of_the_overview_have_one_order_on_a_phone(
    inbox: InboxScenario, browser: Browser
) -> None:
    with open_chart(browser, inbox.organization.client("viewer"), "/", 390) as page:
        tops = {
            section: page.locator(f"#{section}").evaluate(
                "part => part.getBoundingClientRect().top"
            )
            for section in ("waiting", "wrong", "today", "live-sessions", "answers")
        }
        lefts = {
            page.locator(f"#{section}").evaluate("part => part.getBoundingClientRect().left")
            for section in tops
        }
    assert list(tops.values()) == sorted(set(tops.values()))
    assert len(lefts) == 1


def test_a_finger_moves_the_timeline(sample: SampleIds, browser: Browser) -> None:
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = signed_in("viewer")
    url = f"/sessions/{sample.session}/timeline/?view=lanes&live=off"
    with open_chart(browser, client, url, 390, has_touch=True, is_mobile=True) as page:
        lanes = page.locator("[data-lanes]")
        lanes.scroll_into_view_if_needed()
        box = lanes.bounding_box()
        assert box
        assert lanes.evaluate("part => part.scrollLeft") == 0, "now is at the right end"
        y = box["y"] + 60
        finger = page.context.new_cdp_session(page)

        def touch(kind: str, *places: float) -> None:
            points = [{"x": x, "y": y} for x in places]
            finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        left = box["x"] + 40
        touch("touchStart", left)
        for step in range(1, 11):
            touch("touchMove", left + 15 * step)
        touch("touchEnd")
        page.wait_for_function("document.querySelector('[data-lanes]').scrollLeft < -100")
        assert page.evaluate("scrollX") == 0
        assert page.url.endswith(url), "a bar below the finger is not opened"


def test_a_narrow_timeline_opens_where_a_bar_is(agent: Caller, browser: Browser) -> None:
    session = agent.session("short")["id"]
    effect = agent.plan("only", session="short")
    agent.dispatch(effect)
    agent.acknowledge(effect)
    done(agent.post(f"/sessions/{session}/end", {"status": "completed"}))
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = signed_in("viewer")
    with open_chart(browser, client, f"/sessions/{session}/?live=off", 390) as page:
        bar, lanes = page.locator("[data-lanes] a").last, page.locator("[data-lanes]")
        shown, around = bar.bounding_box(), lanes.bounding_box()
        assert shown is not None
        assert around is not None
        assert lanes.evaluate("part => part.scrollWidth > part.clientWidth")
        assert around["x"] <= shown["x"] < around["x"] + around["width"]


READ_GRAPH = """() => {
  const graph = document.querySelector(".is-graph"), origin = graph.getBoundingClientRect();
  const place = (node) => node.getAttribute("y");
  return {
    nodes: [...graph.querySelectorAll("a")].map((node) => [
      node.getAttribute("href"), node.querySelector(".dim").textContent,
      place(node.querySelector(".pin")),
    ]),
    edges: [...graph.querySelectorAll(".edge")].map((edge) => ["x1", "x2", "y1", "y2"].map(
      (name) => parseFloat(edge.getAttribute(name)))),
    subject: place(graph.querySelector(":scope > .pin")),
  };
}"""


def test_the_graph_of_an_effect_has_the_rows_of_its_table(
    organization: Organization, agent: Caller, browser: Browser
) -> None:
    agent.session("s")
    top = agent.plan("top", "s", tool="git.push", arguments={"ref": "top"})
    push = {"tool": "git.push", "arguments": {"ref": "main"}}
    subject = agent.plan("one", "s", **push, parent_effect=top["id"])
    agent.dispatch(subject)
    agent.acknowledge(subject)
    for key in ("child", "second"):
        agent.plan(key, "s", tool="mail.send", arguments={}, parent_effect=subject["id"])
    body = {"effect_key": "undo", "tool": "git.revert", "arguments": {"ref": "main"}}
    done(agent.post(f"/effects/{subject['id']}/compensate", body))
    url = f"/effects/{subject['id']}/"
    with open_chart(browser, organization.client("viewer"), url) as page:
        graph = page.evaluate(READ_GRAPH)
        rows = page.locator("#relations tbody tr")
        table = {
            (row.locator("a").first.get_attribute("href"), row.locator("td").first.inner_text())
            for row in rows.all()
        }
        page.locator(".is-graph a").first.click()
        page.wait_for_url(f"**{graph['nodes'][0][0]}")
    assert len(table) >= 4
    assert {(href, how) for href, how, _ in graph["nodes"]} == table
    # One edge leads from this effect to each node, in the row of the node.
    ends = [
        (edge[0], edge[2], edge[3]) if edge[1] < 50 else (edge[1], edge[3], edge[2])
        for edge in graph["edges"]
    ]
    assert sorted(str(int(y)) for _, y, _ in ends) == sorted(y for *_, y in graph["nodes"])
    assert {str(int(y)) for *_, y in ends} == {graph["subject"]}
    causes = [href for href, how, _ in graph["nodes"] if how.startswith("parent")]
    assert causes == [f"/effects/{top['id']}/"]
    assert len([x for x, *_ in ends if x < 50]) == len(
        [how for _, how, _ in graph["nodes"] if how.startswith(("parent", "compensated by"))]
    )
