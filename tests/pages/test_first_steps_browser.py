"""The first steps in a browser: the boxes of commands stay in their column."""

from datetime import UTC, datetime

import pytest
from django.urls import reverse
from playwright.sync_api import Browser

from tests.pages.people import Organization
from tests.visual.pictures import open_page
from tests.visual.sample import PageAddress

pytestmark = [pytest.mark.django_db, pytest.mark.browser]
PAGE = PageAddress("first-steps", "administrator", "/first-steps/")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_commands_stay_in_their_column(
    organization: Organization, browser: Browser, width: int
) -> None:
    client = organization.client("administrator")
    client.post(reverse("first_token"))
    with open_page(browser, client, PAGE, width, datetime.now(UTC)) as page:
        column = page.locator(".tabs").bounding_box()
        assert column
        for kind in ("claude", "python", "curl"):
            page.check(f"[name=how][value={kind}]", force=True)
            box = page.locator(f".panel.is-{kind} .copy").bounding_box()
            assert box
            assert (box["x"], box["width"]) == (column["x"], column["width"]), kind
        assert page.evaluate("document.documentElement.scrollWidth") <= width
