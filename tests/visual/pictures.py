"""Take pictures of every page: `python -m tests.visual.pictures FOLDER [NAME…]`.

The pages are answered by Django in this process, through Playwright's routes: there is no server,
no waiting, and one clock. Each page is stored at two widths, light and dark, with its boxes.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.contrib.staticfiles import finders
from playwright.sync_api import Browser, Page, Request, Route, sync_playwright

WIDTHS = {1280: 860, 390: 844}
SCHEMES = ("light", "dark")
ORIGIN = "http://localhost"
MAX_HEIGHT = 4_000  # of a picture
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--font-render-hinting=none", "--hide-scrollbars"]
PASSED_ON = {"accept", "x-csrftoken", "hx-request", "hx-target", "hx-trigger", "hx-current-url"}
SCRIPT = Path(__file__).parent / "boxes.js"


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start the system's Chromium, or the one that Playwright fetched."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield browser
        browser.close()


def answer_with_django(client: Any, fields: dict[str, Any] | None = None) -> Callable[..., None]:
    """Return a route handler that answers a browser's requests through Django's test client.

    `fields` are posted to the URL of the page itself. Redirects are followed.
    """

    context = copy_context()  # Playwright's callbacks have one without Django's connections

    def send(request: Request) -> Any:
        path = urlsplit(request.url)._replace(scheme="", netloc="").geturl()
        if request.is_navigation_request() and fields is not None:
            return client.post(path, fields, follow=True)
        headers = {name: value for name, value in request.headers.items() if name in PASSED_ON}
        if request.method == "GET":
            return client.get(path, headers=headers, follow=True)
        sent = request.post_data_buffer or b"", request.headers.get("content-type", "")
        return client.generic(request.method, path, *sent, headers=headers)

    def answer(route: Route) -> None:
        file = urlsplit(route.request.url).path.removeprefix("/static/")
        if file.startswith("/"):
            response = context.run(send, route.request)
            body = b"".join(response) if response.streaming else response.content
            headers = {"content-type": response.headers.get("content-type", "text/plain")}
            route.fulfill(status=response.status_code, headers=headers, body=body)
        else:
            route.fulfill(path=finders.find(file))

    return answer


def settle(page: Page) -> None:
    """Advance the page's clock until scripts have arranged the page and answers are open."""
    page.evaluate("() => document.fonts.ready.then(() => true)")
    page.clock.run_for(1_000)
    for place in (300, 310, 1):  # moves the pointer away from every element
        page.mouse.move(place, place)
    page.clock.run_for(100)


def measure_boxes(page: Page) -> dict[str, Any]:
    """Return the tree of boxes of the page, and what overflows to its right."""
    measured: dict[str, Any] = page.evaluate(SCRIPT.read_text(encoding="utf-8"))
    return measured


def take_picture(page: Page, path: Path, *, is_text_hidden: bool = False) -> None:
    """Store a picture of the whole page, at most MAX_HEIGHT high."""
    size = page.evaluate("() => [innerWidth, document.documentElement.scrollHeight]")
    clip = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], MAX_HEIGHT)}
    page.evaluate(
        "hidden => document.documentElement.toggleAttribute('data-blank', hidden)", is_text_hidden
    )
    page.screenshot(path=path, full_page=True, clip=clip, animations="disabled", caret="hide")  # type: ignore[arg-type]


def store_page(page: Page, folder: Path, name: str, width: int) -> None:
    """Store pictures and boxes of an open page in both schemes."""
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.clock.run_for(50)
        stem = f"{name}.{width}.{scheme}"
        (folder / f"{stem}.json").write_text(json.dumps(measure_boxes(page)), encoding="utf-8")
        take_picture(page, folder / f"{stem}.png")
        if scheme == "light":
            take_picture(page, folder / f"{stem}.blank.png", is_text_hidden=True)
            page.evaluate("() => document.documentElement.removeAttribute('data-blank')")


@contextmanager
def open_page(
    browser: Browser, client: Any, address: Any, width: int, now: datetime, **options: Any
) -> Iterator[Page]:
    """Open a page in a fresh context with its clock at `now`."""
    context = browser.new_context(
        viewport={"width": width, "height": WIDTHS.get(width, 860)},
        reduced_motion="reduce",
        timezone_id="Europe/Berlin",
        locale="en-GB",
        bypass_csp=True,
        **options,
    )
    try:
        context.route("**", answer_with_django(client, address.fields))
        page = context.new_page()
        page.clock.install(time=now)
        page.clock.pause_at(now + timedelta(seconds=10))
        page.goto(ORIGIN + address.url)
        settle(page)
        yield page
    finally:
        context.close()


@contextmanager
def open_sample() -> Iterator[tuple[Any, list[Any]]]:
    """Fill an installation in a temporary folder; yield it and the addresses of its pages."""
    from tests.visual.installation import open_installation
    from tests.visual.sample import furnish, list_pages

    with (
        tempfile.TemporaryDirectory(prefix="gatebook-visual-") as folder,
        open_installation(Path(folder)) as clock,
    ):
        sample = furnish(clock)
        yield sample, list_pages(sample)


def main(folder: Path, chosen: list[str]) -> None:
    """Store all pages in `folder`, or those that are chosen."""
    folder.mkdir(parents=True, exist_ok=True)
    with open_sample() as (sample, addresses), open_browser() as browser:
        from django.test import Client

        for address in addresses:
            if chosen and address.name not in chosen:
                continue
            person = sample.people.get(address.person)
            client = person.client if person else Client()
            for width in WIDTHS:
                with open_page(browser, client, address, width, sample.clock.now()) as page:
                    store_page(page, folder, address.name, width)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
