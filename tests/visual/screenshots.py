"""Renew the screenshots of the documentation: `python -m tests.visual.screenshots FOLDER`.

They show the sample project of `manage.py load_sample` at a fixed time, light and dark.
"""

import base64
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from playwright.sync_api import Page

from tests.visual.installation import Clock, open_installation, run_command, url_of
from tests.visual.pictures import SCHEMES, open_browser, open_page
from tests.visual.sample import PageAddress

SIZE = {"width": 1280, "height": 800}
QUALITY = 70  # of 100; text stays sharp
HOURS_OF_WORK = 4.5  # after START: the day that the pictures show ends then


class Screenshot(NamedTuple):
    """A picture: its name, the page, and the project in which the page is opened."""

    name: str
    url: str
    is_empty_project: bool = False
    change: tuple[str, str] | None = None  # of the text in the editor: old and new words


def load_sample_project(clock: Clock) -> Any:
    """Fill an installation with the sample project, and let the jobs run over it."""
    clock.advance(hours=HOURS_OF_WORK)
    run_command("load_sample")
    for _ in range(2):  # a stuck session counts from the second sweep on
        clock.advance(seconds=40)
        run_command("sweep_stuck")
    run_command("update_search_index")
    from accounts.models import Project

    return Project.objects.get(name="Sample")


def list_screenshots(sample: Any) -> list[Screenshot]:
    """Return the pictures, each with the row of the sample that it shows."""
    from approvals.models import Gate
    from ledger.models import Effect
    from sessions.models import Session

    gate = Gate.objects.get(project=sample, status="pending", effect__tool="mail.send")
    looping = Session.objects.get(project=sample, title__startswith="SHOP-238")
    rounding = Session.objects.filter(project=sample, title__endswith="bundles are rounded twice")
    effect = Effect.objects.exclude(resolved_mark="").get(project=sample)
    return [
        Screenshot("overview", url_of("home")),
        Screenshot("inbox", url_of("inbox")),
        Screenshot("request", url_of("gate", gate.pk)),
        Screenshot("session", url_of("session", rounding.latest("opened_position").pk)),
        Screenshot("effect", url_of("effect", effect.pk)),
        Screenshot("search", f"{url_of('search')}?q={quote('tool:deploy.run -state:planned')}"),
        Screenshot("stuck", url_of("stuck")),
        Screenshot("policy", url_of("policy_draft"), change=("amount, gt: 100", "amount, gt: 10")),
        Screenshot("agent", url_of("agent", looping.agent_id)),
        Screenshot("first-steps", url_of("first_steps"), is_empty_project=True),
    ]


def sign_in(project: Any) -> Any:
    """Return a test client of the administrator in `project`."""
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.test import Client

    from accounts.access import PROJECT_SESSION_KEY

    client = Client()
    client.force_login(User.objects.get(username="admin"), settings.AUTHENTICATION_BACKENDS[-1])
    session = client.session
    session[PROJECT_SESSION_KEY] = str(project.pk)
    session.save()
    return client


def change_text(page: Page, old: str, new: str) -> None:
    """Change words in the editor of a page, and wait for the check of the new text."""
    editor = page.locator("main textarea")
    text = editor.input_value()
    assert old in text
    editor.fill(text.replace(old, new))
    page.clock.run_for(3_000)
    page.get_by_text(" changes", exact=False).first.wait_for()
    editor.evaluate("element => element.scrollTo(0, 0)")


def store_screenshot(page: Page, path: Path) -> None:
    """Store what the window shows as WebP, a third as large as PNG."""
    devtools = page.context.new_cdp_session(page)
    picture = devtools.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    path.write_bytes(base64.b64decode(picture["data"]))


def main(folder: Path, chosen: list[str]) -> None:
    """Store each picture in both schemes in `folder`, or those that are chosen."""
    with (
        tempfile.TemporaryDirectory(prefix="gatebook-screenshots-") as installation,
        open_installation(Path(installation)) as clock,
        open_browser() as browser,
    ):
        sample = load_sample_project(clock)
        from accounts.models import Person, Project

        Person.objects.update(password_is_own=True, password_given_at=None)
        clients = {False: sign_in(sample), True: sign_in(Project.objects.get(name="default"))}
        for picture in list_screenshots(sample):
            if chosen and picture.name not in chosen:
                continue
            address = PageAddress(picture.name, "admin", picture.url)
            client, now = clients[picture.is_empty_project], clock.now()
            with open_page(browser, client, address, SIZE["width"], now) as page:
                page.set_viewport_size(SIZE)  # type: ignore[arg-type]
                if picture.change:
                    change_text(page, *picture.change)
                for scheme in SCHEMES:
                    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                    page.clock.run_for(500)
                    store_screenshot(page, folder / f"{picture.name}-{scheme}.webp")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
