"""Renew the screenshots of the documentation: `python -m tests.visual.screenshots FOLDER`."""

import sys
from pathlib import Path

from tests.visual.pictures import WIDTHS, open_browser, open_page, open_sample

# The picture, the page, its width and its colours.
SCREENSHOTS = [
    ("gate-light", "gate-push", 1280, "light"),
    ("gate-narrow", "gate-push", 390, "light"),
    ("inbox-light", "inbox-with-request", 1280, "light"),
    ("session-light", "session", 1280, "light"),
    ("session-dark", "session", 1280, "dark"),
    ("session-narrow", "session", 390, "light"),
    ("timeline-light", "timeline-lanes", 1280, "light"),
    ("effect-light", "effect-ok", 1280, "light"),
    ("stuck-light", "stuck", 1280, "light"),
    ("search-light", "search", 1280, "light"),
]


def main(folder: Path) -> None:
    """Store the first screen of each page in `folder`."""
    with open_sample() as (sample, addresses), open_browser() as browser:
        pages = {address.name: address for address in addresses}
        for name, page_name, width, scheme in SCREENSHOTS:
            address = pages[page_name]
            client = sample.people[address.person].client
            options = {"color_scheme": scheme}
            with open_page(browser, client, address, width, sample.clock.now(), **options) as page:
                clip = {"x": 0, "y": 0, "width": width, "height": WIDTHS[width]}
                page.screenshot(path=folder / f"{name}.png", clip=clip)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
