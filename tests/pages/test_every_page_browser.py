"""Every page of the product in a browser: accessible in both themes, small, whole without script.

The pages are those of tests/pages/routes.py.
"""

import gzip
import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Final

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from django.contrib.staticfiles import finders
from playwright.sync_api import Page, expect

from tests.config.server import Server
from tests.matrices import IN_FULL, keep_core
from tests.pages.routes import (
    FRAGMENTS,
    ONCE_BUILT,
    REDIRECTS,
    REFUSALS,
    Tour,
    is_page,
    list_patterns,
    open_tour,
)
from tests.pages.test_frame_browser import RULES, find_violations

pytestmark = [pytest.mark.browser, pytest.mark.once]

# `make test` loads one page in twenty-four, each in one of these looks. `make test-matrices` loads
# every page in all of them, and its other states too.
LOOKS: Final = (("light", 1280), ("dark", 390), ("dark", 1280), ("light", 390))
NARROWEST: Final = 320  # WCAG 1.4.10: nothing scrolls sideways
MAX_HTML = 150 * 1024  # bytes of a page before it is compressed
MAX_TRANSFER = 150_000  # of a page with all its files, as sent to a browser with an empty cache
MAX_SCRIPT = 60_000  # of all scripts of the product together, as sent
# What a reader of the tree needs a name for.
CONTROLS: Final = {
    *("button", "checkbox", "combobox", "link", "listbox", "menuitem", "radio", "searchbox"),
    *("slider", "spinbutton", "switch", "tab", "textbox"),
}
ONE_IN: Final = 1 if IN_FULL else 24
LANDMARKS: Final = {"banner", "main", "navigation", "search", "form", "region", "contentinfo"}
# The parts of a page that a person needs, with script and without.
PARTS = """() => {
  const isShown = (node) => node.checkVisibility({ visibilityProperty: true });
  // What a script loads into the page has a link instead.
  const shown = (node) => isShown(node) && !node.closest("#pane");
  const main = document.querySelector("main");
  const forms = [...main.querySelectorAll("form")].filter((form) => !form.matches(".scripted"));
  return {
    heading: [...main.querySelectorAll("h1")].filter(shown).map((node) => node.innerText.trim()),
    headings: [...main.querySelectorAll("h2")].filter(shown).length,
    tables: [...main.querySelectorAll("table")].filter(shown).length,
    stranded: forms.filter((form) => form.method === "post" && shown(form)
      && ![...form.elements].some((field) => field.type === "submit" && !field.disabled
        && (shown(field) || field.closest("details"))))
      .map((form) => form.action),
  };
}"""


@pytest.fixture(scope="module")
def tour(live_server_process: Server) -> Tour:
    return open_tour(live_server_process)


def test_every_route_is_checked_or_is_no_page(tour: Tour) -> None:
    names = [name for name, _ in list_patterns()]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert {page.name for page in tour.pages} <= {*names, "not_found"}
    wrong = []
    for name, answers in tour.answers.items():
        expected = {302 if name in REDIRECTS else REFUSALS.get(name, 200)}
        expected |= {302} if name in ONCE_BUILT else set()
        statuses = {answer.status_code for answer in answers}
        is_html = answers[0].headers.get("Content-Type", "").startswith("text/html")
        if is_html and name not in FRAGMENTS and statuses - {405, 400, *expected}:
            wrong.append((name, statuses))
    assert wrong == [], "give the route an example, a query, or a place in tests/pages/routes.py"


@pytest.mark.deepened
@pytest.mark.parametrize(
    ("turn", "is_main"), keep_core(product(range(len(LOOKS)), [True, False]), [(0, True)])
)
def test_every_page_is_accessible_in_both_themes(
    tour: Tour, new_page: Callable[..., Page], turn: int, is_main: bool
) -> None:
    faults: list[str] = []
    page = new_page()
    page.on("console", lambda event: faults.append(event.text) if is_fault(event.text) else None)
    page.on("pageerror", lambda event: faults.append(str(event)))
    tree = page.context.new_cdp_session(page)
    for number, route in enumerate(tour.select_pages(is_main=is_main)[::ONE_IN]):
        scheme, width = LOOKS[(number + turn) % len(LOOKS)]
        tour.sign_in(page, route.person)
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.goto(tour.server.url + route.url)
        page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
        page.evaluate(AXE_SCRIPT)
        before = len(faults)
        faults += find_violations(page, RULES)
        faults += find_tree_faults(tree.send("Accessibility.getFullAXTree")["nodes"])
        faults += find_overflow(page)
        faults[before:] = [f"{route.name} {scheme} {width}: {text}" for text in faults[before:]]
    assert faults == []


def is_fault(message: str) -> bool:
    """Tell whether a message of the console is a fault: not so the status of a refusal."""
    return "status of 4" not in message


def find_overflow(page: Page) -> list[str]:
    """Return the widths at which the page scrolls sideways."""
    size = page.viewport_size
    assert size
    faults = []
    for width in (size["width"], NARROWEST):
        page.set_viewport_size({**size, "width": width})
        needed = page.evaluate("document.documentElement.scrollWidth")
        if needed > width:
            faults.append(f"{page.url} needs {needed} px at {width}")
    return faults


def find_tree_faults(nodes: list[dict[str, Any]]) -> list[str]:
    """Return what a reader of the accessibility tree misses: landmarks, one h1, names, a status."""
    shown = [node for node in nodes if not node.get("ignored")]
    roles = [(read(node, "role"), read(node, "name").strip(), node) for node in shown]
    faults = [
        f"a {role} without a name" for role, name, _ in roles if role in CONTROLS and not name
    ]
    counts = Counter(role for role, _, _ in roles)
    if counts["main"] != 1 or counts["banner"] > 1:
        faults.append(f"landmarks: {dict(counts & Counter(LANDMARKS))}")
    levels = [get_property(node, "level") for role, _, node in roles if role == "heading"]
    if levels.count(1) != 1:
        faults.append(f"{levels.count(1)} headings of level 1")
    if any(below > above + 1 for above, below in pairwise(levels)):
        faults.append(f"headings leave out a level: {levels}")
    # A form or a region without a name is no landmark.
    names = Counter(
        (role, name)
        for role, name, _ in roles
        if role in LANDMARKS and (name or role not in ("form", "region"))
    )
    faults += [
        f"{count} landmarks {role} {name!r}" for (role, name), count in names.items() if count > 1
    ]
    if not any(get_property(node, "live") == "polite" for _, _, node in roles):
        faults.append("no live region")
    return faults


def read(node: dict[str, Any], field: str) -> str:
    return str(node.get(field, {}).get("value", ""))


def get_property(node: dict[str, Any], name: str) -> Any:
    values = {each["name"]: each["value"].get("value") for each in node.get("properties", ())}
    return values.get(name)


@pytest.mark.deepened
@pytest.mark.parametrize("is_main", keep_core([True, False], [True]))
def test_every_page_is_whole_without_javascript(
    tour: Tour, new_page: Callable[..., Page], is_main: bool
) -> None:
    with_script, without = new_page(), new_page(java_script_enabled=False)
    # Overview and facets of a search arrive later; there is a link to them.
    with_script.route(re.compile(r"[?&]part="), lambda request: request.abort())
    differing = []
    for route in tour.select_pages(is_main=is_main)[::ONE_IN]:
        parts = []
        for page in (with_script, without):
            tour.sign_in(page, route.person)
            page.goto(tour.server.url + route.url)
            parts.append(page.evaluate(PARTS))
        scripted, plain = parts
        is_less = any(plain[count] < scripted[count] for count in ("headings", "tables"))
        is_other = plain["heading"] != scripted["heading"] or not plain["heading"]
        if is_less or is_other or plain["stranded"]:
            differing.append((route.name, route.url, parts))
    assert differing == []


def test_every_page_is_small(tour: Tour) -> None:
    """Count what a browser with an empty cache receives, before and after compression."""
    large, scripts = [], set()
    for name, answers in tour.answers.items():
        for answer in answers:
            if not is_page(name, answer):
                continue
            files = set(re.findall(r'"/static/([^"]+)"', answer.text)) | {"plex-sans.woff2"}
            plain = {re.sub(r"\.[0-9a-f]{12}(?=\.)", "", file) for file in files}
            scripts |= {file for file in plain if file.endswith(".js")}
            sent = answer.num_bytes_downloaded + sum(map(count_sent_bytes, plain))
            if len(answer.content) > MAX_HTML or sent > MAX_TRANSFER:
                large.append((str(answer.url), len(answer.content), sent))
    assert large == []
    assert sum(map(count_sent_bytes, scripts)) <= MAX_SCRIPT


def count_sent_bytes(file: str) -> int:
    """Return the bytes of a static file as WhiteNoise sends it."""
    path = finders.find(file)
    assert path, file
    content = Path(path).read_bytes()
    return min(len(content), len(gzip.compress(content)))


# A stop of the Tab key: whether the focus shows, is in view, and is not covered by a sticky bar.
STOP = """() => {
  const node = document.activeElement;
  if (node === document.body || !node) return null;
  const isInside = "walked" in node.dataset; // a part of a date field, which the browser marks
  node.dataset.walked = "";
  const outlined = (each) => {
    const style = getComputedStyle(each);
    return (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0)
      || style.boxShadow !== "none";
  };
  const box = node.getClientRects()[0] ?? node.getBoundingClientRect();
  const [left, above] = [Math.max(box.left, 0), Math.max(box.top, 0)];
  const x = (left + Math.min(box.right, innerWidth)) / 2;
  const y = (above + Math.min(box.bottom, innerHeight)) / 2;
  const top = document.elementFromPoint(x, y);
  const isTop = top && (node.contains(top) || top.contains(node)
    || [...node.labels ?? []].some((label) => label.contains(top)));
  return {
    html: node.outerHTML.slice(0, 120),
    shows: isInside || outlined(node) || outlined(node.parentElement) || [...node.children].some(outlined),
    covered: !isTop && `by ${top?.outerHTML.slice(0, 80)} at ${Math.round(x)}, ${Math.round(y)}`,
  };
}"""
# What Tab should reach. Of radio buttons with one name it reaches one; a button that settles is
# disabled for the page's first moments, in which Tab may pass it.
UNREACHED = """() => [...document.querySelectorAll(
    "a[href], button:not(:disabled), input:not([type=hidden], :disabled), select, textarea, summary")]
  .filter((node) => node.checkVisibility({ visibilityProperty: true }) && node.tabIndex >= 0
    && !node.closest("[inert]") && node.type !== "radio" && !("walked" in node.dataset) && !("settle" in node.dataset))
  .map((node) => node.outerHTML.slice(0, 120))"""
WALKED: Final = ("inbox", "gate", "session_timeline", "policy_draft")
MAX_STOPS = 700
SCROLLED = """(element, before) => new Promise((resolve) => {
  const look = () => element.scrollLeft < before ? resolve() : requestAnimationFrame(look);
  look();
})"""


@pytest.mark.parametrize(
    ("width", "is_core"), keep_core(product([1280, 390], [True, False]), [(390, True)])
)
def test_tab_reaches_every_control_and_the_focus_always_shows(
    tour: Tour, new_page: Callable[..., Page], width: int, is_core: bool
) -> None:
    page = new_page(viewport={"width": width, "height": 800})
    faults: list[str] = []
    for route in tour.select_pages(is_main=True):
        if (route.name in WALKED) is is_core:
            tour.sign_in(page, route.person)
            page.goto(tour.server.url + route.url)
            faults += [f"{route.name} {width}: {fault}" for fault in walk_page(page)]
    assert faults == []


def walk_page(page: Page) -> list[str]:
    """Press Tab until it leaves the page; return what is wrong with the stops."""
    # Parts that load when they come into view would arrive behind the focus.
    page.evaluate(
        "document.querySelectorAll('[data-lazy]').forEach((each) => each.scrollIntoView())"
    )
    expect(page.locator("[data-lazy]")).to_have_count(0)
    page.wait_for_load_state("networkidle")
    # Begin at the top, also where a field has the focus from the start.
    page.evaluate("document.body.tabIndex = -1; document.body.focus()")
    faults = []
    for _ in range(MAX_STOPS):
        page.keyboard.press("Tab")
        stop = page.evaluate(STOP)
        if stop is None:
            break
        if not stop["shows"]:
            faults.append(f"the focus does not show on {stop['html']}")
        if stop["covered"]:
            faults.append(f"the focus on {stop['html']} is covered {stop['covered']}")
    else:
        faults.append(f"Tab does not leave the page after {MAX_STOPS} stops")
    return faults + [f"Tab does not reach {html}" for html in page.evaluate(UNREACHED)]


def test_the_skip_link_and_the_lanes_work_by_keys(
    tour: Tour, new_page: Callable[..., Page]
) -> None:
    page = new_page()
    tour.sign_in(page, "tour-reader")
    timeline = next(each for each in tour.pages if each.url.endswith("timeline/?view=lanes"))
    page.goto(tour.server.url + timeline.url)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")
    zoom, scroller = page.get_by_role("link", name="Zoom in"), page.locator("[data-lanes]")
    zoom.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("zoom="))
    expect(page.get_by_role("link", name="Zoom out")).to_be_visible()
    scroller.focus()
    before = scroller.evaluate("element => element.scrollLeft")  # it opens at its end
    page.keyboard.press("ArrowLeft")
    scroller.evaluate(SCROLLED, before)
    bar = scroller.get_by_role("link").first
    bar.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("e_")
