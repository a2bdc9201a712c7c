"""Show a drawing in a browser at a width, and measure which of its labels overlap."""

from itertools import combinations
from typing import Any
from urllib.parse import urlsplit

from django.contrib.staticfiles import finders
from django.template.loader import render_to_string
from playwright.sync_api import Page, Route

WIDTHS = (1076, 366)  # of the content of a page at 1280 and 390 pixels
# The height of a text's box has space above and below its letters.
SPACE_PX = 3
_LABELS = """selector => [...document.querySelectorAll(`${selector} text`)]
  .map((label) => {
    const box = label.getBoundingClientRect();
    return [label.textContent.trim(), box.left, box.right, box.top, box.bottom];
  })
  .filter(([words, left, right]) => words && right > left)"""


def show_drawing(
    page: Page, template: str, context: dict[str, Any], width: int, *styles: str
) -> None:
    """Open a page that has only this template, in a sheet of this width."""
    links = "".join(
        f'<link rel="stylesheet" href="/static/{name}.css">' for name in ("gatebook", *styles)
    )
    html = (
        f"<!doctype html><meta charset=utf-8>{links}<style>.sheet {{ width: {width}px; padding: 0; }}"
        f"</style><main><div class=sheet>{render_to_string('_sprite.html')}"
        f"{render_to_string(template, context)}</div></main>"
    )

    def answer(route: Route) -> None:
        path = urlsplit(route.request.url).path
        if path.startswith("/static/"):
            route.fulfill(path=finders.find(path.removeprefix("/static/")))
        else:
            route.fulfill(content_type="text/html", body=html)

    page.unroute_all()
    page.route("**/*", answer)
    page.set_viewport_size({"width": width + (204 if width > 800 else 24), "height": 800})
    page.goto("http://localhost/drawing")
    page.evaluate("() => document.fonts.ready.then(() => true)")


def read_labels(page: Page, selector: str) -> list[str]:
    """Return the shown labels of a drawing."""
    return [label[0] for label in page.evaluate(_LABELS, selector)]


def find_overlaps(page: Page, selector: str) -> list[tuple[str, str]]:
    """Return the pairs of shown labels that lie on each other."""
    labels = page.evaluate(_LABELS, selector)
    assert labels, selector
    return [
        (first[0], second[0])
        for first, second in combinations(labels, 2)
        if min(first[2], second[2]) > max(first[1], second[1])
        and min(first[4], second[4]) - max(first[3], second[3]) > SPACE_PX
    ]
