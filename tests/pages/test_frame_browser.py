"""The layout and the settings pages in a browser: accessibility, keys, no JavaScript."""

import re
import time
from collections.abc import Callable, Iterator, Mapping

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from django.conf import settings
from playwright.sync_api import Page, expect

from tests.config.server import Server

pytestmark = pytest.mark.browser

RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
COLOURS = ["color-contrast", "link-in-text-block"]
# Rules that depend on the width: on narrow pages rows become cards and parts scroll.
OF_THE_WIDTH = [
    *("target-size", "scrollable-region-focusable", "aria-hidden-focus", "aria-required-children"),
    *(
        "aria-required-parent",
        "heading-order",
        "label",
        "button-name",
        "link-name",
        "select-name",
        "meta-viewport",
    ),
]
RESULTS = {"resultTypes": ["violations"]}  # only violations are needed
NARROW = 800  # pixels; narrower pages show rows as cards
EXAMPLE_TOOLS = "docs/examples/tools.yaml"


@pytest.fixture(scope="module")
def server(live_server_process: Server) -> Server:
    """Add tools, a repository and a second agent, so that every table has rows."""
    live_server_process.manage("load_tools", EXAMPLE_TOOLS)
    live_server_process.token("deploy-7")
    live_server_process.run(
        "from django.db import transaction; from accounts import projects, repositories\n"
        "with transaction.atomic(): repositories.ensure_repository(projects.ensure_default_project(), 'web')"
    )
    return live_server_process


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """Collect console messages and policy violations; fail if there are any."""
    messages: list[str] = []
    yield messages
    assert messages == []


def enter(page: Page, server: Server, complaints: list[str] | None = None) -> Page:
    """Sign in as the administrator, in a session of its own; no page is open yet."""
    if complaints is not None:
        page.on(
            "console",
            lambda event: (
                complaints.append(event.text) if "status of 404" not in event.text else None
            ),
        )
        page.on("pageerror", lambda event: complaints.append(str(event)))
    key = server.run(
        f"from tests.pages.people import signed_in; print(signed_in({server.administrator!r}))"
    ).strip()
    page.context.add_cookies(
        [{"name": settings.SESSION_COOKIE_NAME, "value": key, "url": server.url}]
    )
    return page


def sign_in(page: Page, server: Server) -> Page:
    """Sign in as the administrator by the form; the page of people shows the time."""
    page.goto(f"{server.url}/sign-in/")
    page.get_by_label("Username").fill(server.administrator)
    page.get_by_label("Password").fill(server.password)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(lambda url: "/sign-in/" not in url)
    return page


def violations_by_day_and_night(page: Page) -> list[str]:
    """Return the axe violations of a loaded page; on wide pages in light and dark colours.

    Narrow pages are checked only against the rules that depend on the width.
    """
    page.wait_for_load_state()
    page.evaluate(AXE_SCRIPT)
    if page.evaluate("innerWidth") <= NARROW:
        return find_violations(page, {"runOnly": {"type": "rule", "values": OF_THE_WIDTH}})
    violations = find_violations(page, RULES)
    page.emulate_media(color_scheme="dark")
    violations += find_violations(page, {"runOnly": {"type": "rule", "values": COLOURS}})
    page.emulate_media(color_scheme="light")
    return violations


def violations_wide_and_narrow(page: Page) -> list[str]:
    """Return the violations of a page and its overflows, wide and narrow, without reloading."""
    violations = violations_by_day_and_night(page)
    wide = page.viewport_size
    assert wide
    for width in (wide["width"], 390, 320):
        page.set_viewport_size({**wide, "width": width})
        if page.evaluate("document.documentElement.scrollWidth") > width:
            violations.append(f"{page.url} is wider than {width}")
    violations += find_violations(page, {"runOnly": {"type": "rule", "values": OF_THE_WIDTH}})
    page.set_viewport_size(wide)
    return violations


def find_violations(page: Page, rules: Mapping[str, object]) -> list[str]:
    violations = page.evaluate(
        "rules => axe.run(rules).then(result => result.violations)", {**RESULTS, **rules}
    )
    return [
        f"{page.url} {violation['id']}: {violation['nodes'][0]['html']}" for violation in violations
    ]


@pytest.mark.once
def test_keys_navigate_until_they_are_turned_off(
    server: Server, browser_page: Page, complaints: list[str]
) -> None:
    page = enter(browser_page, server, complaints)
    page.clock.set_fixed_time(time.time())  # the second key must follow within 1.5 s
    page.goto(f"{server.url}/help/")
    page.keyboard.type("gr")
    expect(page).to_have_url(re.compile("/settings/repositories/$"))
    page.wait_for_load_state("load")  # keys are handled by the script
    page.keyboard.press("j")
    first = (
        page.locator("main .ledger tbody tr").first.get_by_role("link").first
    )  # other tests use the same server
    expect(first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/settings/repositories/[0-9a-f-]{36}/$"))
    page.wait_for_load_state("load")
    page.keyboard.press("/")
    expect(page.locator("#jump")).to_be_focused()
    page.keyboard.type("g?jk")
    assert page.locator("#jump").input_value() == "g?jk"
    page.goto(f"{server.url}/settings/shortcuts/")
    page.get_by_label("Enable keyboard shortcuts").uncheck()
    page.get_by_role("button", name="Save").click()
    expect(page.locator("html")).to_have_attribute("data-keys", "off")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page).to_have_url(re.compile("/settings/shortcuts/$"))
    page.get_by_label("Enable keyboard shortcuts").check()
    page.get_by_role("button", name="Save").click()
    expect(page.locator("html")).to_have_attribute("data-keys", "on")
    page.wait_for_load_state("load")
    page.keyboard.press("?")
    help_on_keys = page.get_by_role("dialog", name="Keys")
    expect(help_on_keys).to_be_visible()
    expect(page).to_have_url(re.compile("/settings/shortcuts/$"))  # it opens over the page
    help_on_keys.get_by_role("link", name="all help").click()
    expect(page).to_have_url(re.compile("/help/$"))


@pytest.mark.once
def test_times_are_shown_in_the_readers_time_zone(
    server: Server, new_page: Callable[..., Page], complaints: list[str]
) -> None:
    page = sign_in(new_page(timezone_id="Asia/Kathmandu"), server)
    enter(page, server, complaints)
    page.goto(f"{server.url}/settings/people/")
    moment = page.locator("main time[data-form=s]").first
    utc = moment.text_content() or ""
    page.get_by_role("button", name="Local").click()
    expect(page.get_by_role("button", name="Local")).to_have_attribute("aria-pressed", "true")
    expect(moment).not_to_have_text(utc)  # the server sets the button; the script formats the time
    local_time = moment.text_content() or ""
    assert minutes(local_time) == (minutes(utc) + 345) % 1440
    assert (moment.get_attribute("title") or "").endswith("UTC")
    page.get_by_role("button", name="Relative").click()
    expect(moment).to_have_text(re.compile(r"^\d+\s(s|min|h) ago$"))
    page.get_by_role("button", name="UTC").click()
    expect(moment).to_have_text(utc)


def minutes(text: str) -> int:
    hours, rest = text.split()[1].split(":")[:2]
    return int(hours) * 60 + int(rest)


@pytest.mark.matrix
def test_the_journey_of_an_administrator_without_javascript(
    server: Server, new_page: Callable[..., Page]
) -> None:
    page = sign_in(new_page(java_script_enabled=False), server)
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Tokens").click()
    page.get_by_label("Agent").fill("script-less")
    page.get_by_role("button", name="Issue token").click()
    secret = page.locator("output").text_content() or ""
    assert secret.startswith("gbk_")
    page.reload()
    expect(page.locator("output")).to_have_count(0)
    public_id = secret[:12]
    page.get_by_role("link", name=f"Revoke {public_id}").click()
    page.get_by_role("button", name=f"Revoke {public_id}").click()
    expect(page.get_by_text(f"{public_id} of script-less is revoked")).to_be_visible()
    page.get_by_role("link", name="People").click()
    page.get_by_label("Name").fill("zoe")
    page.get_by_role("button", name="Invite person").click()
    password = page.locator("output").text_content() or ""
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Username").fill("zoe")
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("Old password").fill(password)
    for label in ("New password", "New password confirmation"):
        page.get_by_label(label, exact=True).fill("a password of her own")
    page.get_by_role("button", name="Change password").click()
    page.goto(f"{server.url}/settings/invitations/")
    page.get_by_role("button", name="Join default").click()
    expect(page.get_by_role("link", name="zoe")).to_be_visible()
    expect(page.get_by_role("link", name="People")).to_have_count(0)


@pytest.mark.once
def test_the_chosen_theme_overrides_the_systems(
    server: Server, new_page: Callable[..., Page]
) -> None:
    page = enter(new_page(color_scheme="light"), server)
    page.goto(f"{server.url}/settings/appearance/")
    for theme, colour in (("Dark", "rgb(14, 18, 21)"), ("As the system", "rgb(255, 255, 255)")):
        page.get_by_label(theme).check()
        page.get_by_role("button", name="Save").click()
        expect(page.locator("body")).to_have_css("background-color", colour)


@pytest.mark.once
def test_agents_text_stays_text(server: Server, browser_page: Page, complaints: list[str]) -> None:
    page = enter(browser_page, server, complaints)
    page.goto(f"{server.url}/help/")
    box = page.locator("pre.untrusted")
    expect(box).to_contain_text("<b>git push</b>")
    assert box.locator("a, b, script, img, svg").count() == 0
