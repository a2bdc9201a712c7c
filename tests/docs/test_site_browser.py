"""The documentation site in a browser: accessible in both themes, small, and searchable."""

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final, Literal

import httpx
import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, expect

from tests.config.server import Server
from tests.matrices import keep_core
from tests.pages.test_every_page_browser import (
    MAX_SCRIPT,
    MAX_TRANSFER,
    find_overflow,
    find_tree_faults,
    is_fault,
    walk_page,
)
from tests.pages.test_frame_browser import RULES, find_violations

pytestmark = [pytest.mark.browser, pytest.mark.once]

# `make test` opens these pages, `make test-matrices` all others.
CORE: Final = ("", "reference/policies/")
WIDTHS: Final = (1280, 390)
SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
LOOKS: Final = tuple(product(WIDTHS, SCHEMES))
# Only the open search announces something.
ALLOWED: Final = "no live region"
# A radio button of the theme's chooser of colours: the icon next to it shows the focus.
UNSIZED: Final = 'class="md-option'


@dataclass
class Site:
    """The built site, as the server sends it. `url` ends with a slash."""

    url: str
    folder: Path

    def list_pages(self, *, is_core: bool) -> list[str]:
        """Return the pages of the core, or all others."""
        paths = (file.parent.relative_to(self.folder) for file in self.folder.rglob("index.html"))
        pages = sorted("" if path == Path() else f"{path.as_posix()}/" for path in paths)
        assert set(CORE) < set(pages)
        return [page for page in pages if (page in CORE) is is_core]


@pytest.fixture(scope="module")
def site(built_site: Path, live_server_process: Server) -> Site:
    folder = live_server_process.var / "docs" / built_site.name
    shutil.copytree(built_site, folder)
    return Site(f"{live_server_process.url}/docs/{folder.name}/", folder)


@pytest.mark.parametrize(
    ("turn", "is_core"), keep_core(product(range(4), (True, False)), [(0, True)])
)
def test_each_page_is_accessible_in_both_themes(
    site: Site, new_page: Callable[..., Page], turn: int, is_core: bool
) -> None:
    """Each turn opens every page in another theme or width."""
    faults: list[str] = []
    page = new_page()
    page.on("console", lambda event: faults.append(event.text) if is_fault(event.text) else None)
    page.on("pageerror", lambda event: faults.append(str(event)))
    tree = page.context.new_cdp_session(page)
    for number, path in enumerate(site.list_pages(is_core=is_core)):
        width, scheme = LOOKS[(number + turn) % len(LOOKS)]
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(site.url + path)
        page.evaluate(AXE_SCRIPT)
        faults += find_violations(page, RULES)
        nodes = tree.send("Accessibility.getFullAXTree")["nodes"]
        faults += [f"{path}: {fault}" for fault in find_tree_faults(nodes) if fault != ALLOWED]
        faults += find_overflow(page)
    assert faults == []


@pytest.mark.parametrize(
    ("width", "is_core"), keep_core(product(WIDTHS, [True, False]), [(390, True)])
)
def test_tab_reaches_each_control_of_a_page(
    site: Site, new_page: Callable[..., Page], width: int, is_core: bool
) -> None:
    page = new_page(viewport={"width": width, "height": 800})
    faults: list[str] = []
    # Other pages have no other kinds of controls.
    for path in ("",) if is_core else ("reference/tools/", "glossary/", "how-to/connect/"):
        page.goto(site.url + path)
        stops = [fault for fault in walk_page(page) if UNSIZED not in fault]
        faults += [f"{path} {width}: {fault}" for fault in stops]
    assert faults == [], "\n".join(faults)


def test_the_keyboard_opens_the_menu_of_a_narrow_page(
    site: Site, new_page: Callable[..., Page]
) -> None:
    page = new_page(viewport={"width": 390, "height": 800})
    page.goto(site.url)
    menu = page.locator(".md-sidebar--primary")
    expect(menu).to_be_hidden()
    page.get_by_role("button", name="Menu").press("Enter")
    expect(menu).to_be_visible()


def test_files_are_sent_compressed(site: Site) -> None:
    scripts = [
        *site.folder.glob("assets/*.js"),
        *site.folder.glob("assets/javascripts/bundle.*.js"),
        *site.folder.glob("assets/javascripts/workers/search.*.js"),
    ]
    assert len(scripts) == 3
    names = [file.relative_to(site.folder).as_posix() for file in scripts]
    sent = {}
    for path in (*CORE, "search/search_index.json", *names):
        headers = {"Accept-Encoding": "gzip"}
        with httpx.stream("GET", site.url + path, headers=headers, timeout=60) as answer:
            content = answer.read()
        assert answer.headers["Content-Encoding"] == "gzip", path
        assert "Accept-Encoding" in answer.headers["Vary"], path
        file = site.folder / path
        assert content == (file / "index.html" if file.is_dir() else file).read_bytes(), path
        sent[path] = answer.num_bytes_downloaded
        assert sent[path] < len(content) / 2, path
    assert sum(sent[name] for name in names) <= MAX_SCRIPT, sent
    plain = httpx.get(site.url, headers={"Accept-Encoding": "identity"}, timeout=60)
    assert "Content-Encoding" not in plain.headers


@pytest.mark.parametrize("is_core", keep_core([True, False], [True]))
def test_each_page_is_small(site: Site, new_page: Callable[..., Page], is_core: bool) -> None:
    """Count what a browser with an empty cache receives, without screenshots.

    A screenshot loads when it comes into view, after the text.
    """
    page = new_page()
    page.route("**/*.webp", lambda route: route.abort())
    network = page.context.new_cdp_session(page)
    network.send("Network.enable")
    network.send("Network.setCacheDisabled", {"cacheDisabled": True})
    sent: list[float] = []
    urls: list[str] = []
    network.on("Network.loadingFinished", lambda event: sent.append(event["encodedDataLength"]))
    page.on("request", lambda request: urls.append(request.url))
    large = []
    for path in site.list_pages(is_core=is_core):
        sent.clear()
        page.goto(site.url + path, wait_until="networkidle")
        if sum(sent) > MAX_TRANSFER:
            large.append((path, sum(sent)))
    assert large == []
    assert any("/workers/search." in url for url in urls)
    assert not [url for url in urls if "search_index" in url]  # somebody must search first


def test_the_search_leads_to_a_page(site: Site, browser_page: Page) -> None:
    page = browser_page
    page.goto(f"{site.url}glossary/")
    page.get_by_role("textbox", name="Search").fill("retention sets")
    dialog = page.get_by_role("dialog", name="Search the documentation")
    expect(dialog.get_by_role("status")).to_contain_text("matching documents")
    title = page.get_by_role("heading", name="Retention sets", level=1)
    dialog.get_by_role("link").filter(has=title).click()
    expect(page).to_have_url(re.compile("/reference/retention/"))
    # The words are marked on that page, which needs the index again.
    expect(page.locator("article mark").first).to_have_text(re.compile("retention", re.IGNORECASE))
