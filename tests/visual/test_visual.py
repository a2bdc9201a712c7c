"""The comparison of pictures: a page equals itself, and a moved element is reported."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Browser

from tests.pages.people import Organization
from tests.visual.compare import (
    Box,
    Difference,
    PageDifferences,
    compare_folders,
    compare_trees,
    describe_results,
    group_pages,
    list_changed_words,
    write_report,
)
from tests.visual.pictures import WIDTHS, open_page, store_page
from tests.visual.sample import PageAddress

# What a change of the page does, and the difference that it must be reported as.
CHANGES = {
    "document.querySelector('main h1').style.marginLeft = '20px'": "indent",
    "document.querySelector('main table').style.marginTop = '40px'": "gap",
    "document.querySelector('main h1').style.color = 'rgb(1, 2, 3)'": "style",
    "document.querySelector('main tbody tr').remove()": "removed",
    "document.querySelector('main').style.minWidth = '1500px'": "overflow",
}


@pytest.mark.browser
@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_equals_itself_and_changes_are_reported(
    organization: Organization, browser: Browser, tmp_path: Path, width: int
) -> None:
    address = PageAddress("people", "administrator", reverse("people"))
    before, after = tmp_path / "before", tmp_path / "after"
    for folder in (before, after):
        folder.mkdir()
    with open_page(
        browser, organization.client("administrator"), address, width, datetime.now(UTC)
    ) as page:
        store_page(page, before, "people", width)
        store_page(page, after, "people", width)
        (same,) = compare_folders(before, after, page)
        assert same.differences == []
        assert same.pixel_share == 0
        page.evaluate(f"() => {{ {'; '.join(CHANGES)} }}")
        store_page(page, after, "people", width)
        (changed,) = compare_folders(before, after, page)
    assert set(CHANGES.values()) <= {difference.kind for difference in changed.differences}
    assert changed.pixel_share
    assert "1 pictures, 1 with another layout" in describe_results([changed])


def make_box(tag: str, x: float, y: float, w: float, h: float, **more: Any) -> Box:
    """Return a box as boxes.js measures it."""
    base = {"kind": "", "class": "", "id": "", "text": "", "display": "block", "float": False}
    style = {"style": "|" * 8, "children": []}
    return {"tag": tag, "x": x, "y": y, "w": w, "h": h, **base, **style, **more}


def make_tabs(*tabs: tuple[str, float, float, float]) -> Box:
    """Return a page with a row of tabs (text, x, y, width) above a table."""
    links = [make_box("a", x, y, w, 20, display="inline", text=text) for text, x, y, w in tabs]
    bottom = max(y for _, _, y, _ in tabs) + 20
    nav = make_box("nav", 0, 0, 300, bottom, display="flex", children=links)
    table = make_box("table", 0, bottom, 300, 100, display="table")
    return make_box("body", 0, 0, 300, bottom + 100, children=[nav, table])


def test_longer_words_on_the_same_line_are_no_difference() -> None:
    before = make_tabs(("For me", 0, 0, 60), ("Decided", 70, 0, 60))
    after = make_tabs(("Waiting for me", 0, 0, 120), ("Decided", 130, 0, 60))
    assert compare_trees(before, after) == []


def test_a_tab_that_moves_to_another_line_is_reported_once() -> None:
    before = make_tabs(("For me", 0, 0, 60), ("Decided", 70, 0, 60))
    after = make_tabs(("Waiting for me", 0, 0, 250), ("Decided", 0, 20, 60))
    (difference,) = compare_trees(before, after)
    assert difference == Difference("wrap", "a “Decided”", "moved to a line of its own, in nav")


def test_words_are_listed_apart_from_numbers_and_layout() -> None:
    before = make_tabs(("For me", 0, 0, 60), ("Stops 1", 70, 0, 60), ("e_84 at 09:02", 140, 0, 60))
    after = make_tabs(("Mine", 0, 0, 60), ("Stops 2", 70, 0, 60), ("e_90 at 09:03", 140, 0, 60))
    assert list_changed_words(before, after) == [("For me", "Mine")]


def test_pages_are_grouped_by_what_there_is_to_look_at(tmp_path: Path) -> None:
    footer, lines = Difference("wrap", "footer", "moved"), Difference("lines", "p", "height")
    heading = Difference("style", "h1", "colour")
    pages = [PageDifferences(name, 1280, [footer, lines]) for name in ("a", "b", "c")]
    pages += [
        PageDifferences("own", 1280, [footer, heading]),
        PageDifferences("words", 1280, [lines], words=[("leave", "permission <b>")]),
        PageDifferences("same", 1280),
    ]
    names = [[page.name for page in group] for group in group_pages(pages).values()]
    assert names == [["own"], ["a", "b", "c"], ["words"], ["same"]]
    report = tmp_path / "report.html"
    write_report(pages, tmp_path / "before", tmp_path / "after", report)
    html = report.read_text("utf-8")
    assert html.count("<code>footer</code>") == 1
    assert "<del>leave</del> <ins>permission &lt;b&gt;</ins>" in html
    assert "own 1" in describe_results(pages)
