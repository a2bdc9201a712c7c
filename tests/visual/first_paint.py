"""Measure the first paint of every page on 3G: `python -m tests.visual.first_paint [LOADS]`.

The real server answers a browser with an empty cache, throttled as WebPageTest's "3G Fast" and
Lighthouse's "Slow 4G" are: 1.6 Mbit/s down, 0.75 Mbit/s up, 150 ms for a round trip. A connection
over loopback costs nothing, so one round trip is added for it. The last line says how many pages
miss the bar, and the exit code is then 1.
"""

import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Final

from playwright.sync_api import Browser

from tests.visual.pictures import open_browser

LOADS: Final = 3  # of each page
BAR_MS: Final = 1_000
ROUND_TRIP_MS: Final = 150
NETWORK: Final = {
    "offline": False,
    "latency": ROUND_TRIP_MS,
    "downloadThroughput": 1_600_000 / 8,
    "uploadThroughput": 750_000 / 8,
}
PAINTED = """() => new Promise((resolve) => {
  new PerformanceObserver((list) => {
    const entry = list.getEntriesByName("first-contentful-paint")[0];
    if (entry) resolve(entry.startTime);
  }).observe({ type: "paint", buffered: true });
})"""
SENT = """() => [...performance.getEntriesByType("navigation"),
  ...performance.getEntriesByType("resource")].map((entry) => entry.transferSize)
  .reduce((sum, size) => sum + size, 0)"""


def measure_load(browser: Browser, url: str, cookie: str) -> tuple[float, int]:
    """Return the milliseconds until a cold load has painted content, and the bytes received."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    try:
        if cookie:
            context.add_cookies([{"name": "gatebook", "value": cookie, "url": url}])
        page = context.new_page()
        devtools = context.new_cdp_session(page)
        devtools.send("Network.enable")
        devtools.send("Network.emulateNetworkConditions", NETWORK)
        page.goto(url, wait_until="load")
        return page.evaluate(PAINTED) + ROUND_TRIP_MS, page.evaluate(SENT)
    finally:
        context.close()


def describe_page(name: str, loads: list[tuple[float, int]]) -> str:
    """Return the line of a page: its median, its slowest load, and its size."""
    times = [time for time, _ in loads]
    missed = "  MISSED" if median(times) > BAR_MS else ""
    sent = max(size for _, size in loads) / 1000
    return f"{median(times):6.0f} ms  {max(times):6.0f} ms  {sent:6.1f} KB  {name}{missed}"


def write(line: str) -> None:
    sys.stdout.write(line + "\n")


def main(loads: int) -> int:
    """Print the first paint of every page in its main state; return how many miss the bar."""
    import django

    django.setup()
    from tests.config.server import serve
    from tests.pages.routes import open_tour

    results: dict[str, list[tuple[float, int]]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="gatebook-paint-") as folder,
        serve(Path(folder)) as server,
        open_browser() as browser,
    ):
        tour = open_tour(server)
        for _ in range(loads):
            for page in tour.select_pages(is_main=True):
                cookie = tour.cookies.get(page.person, "")
                load = measure_load(browser, server.url + page.url, cookie)
                results.setdefault(page.name, []).append(load)
    write("   p50       slowest      sent       page")
    for name, figures in sorted(results.items(), key=lambda item: -median(t for t, _ in item[1])):
        write(describe_page(name, figures))
    medians = [median(time for time, _ in figures) for figures in results.values()]
    missed = sum(time > BAR_MS for time in medians)
    write(
        f"{len(results)} pages, {loads} loads each: p50 of all {median(medians):.0f} ms, slowest"
        f" page {max(medians):.0f} ms; {missed} miss {BAR_MS} ms. Load average {os.getloadavg()[0]:.1f}."
    )
    return min(missed, 1)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.config.settings")
    os.environ.setdefault("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else LOADS))
