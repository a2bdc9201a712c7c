"""The resolve pages in a real browser: width, contrast, and use without JavaScript."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.api.api_client import Caller
from tests.config.server import Server
from tests.matrices import keep_core
from tests.pages.test_browser_inquiry import HOSTILE
from tests.pages.test_frame_browser import enter, violations_by_day_and_night

pytestmark = [pytest.mark.browser, pytest.mark.once]


@pytest.fixture(scope="module")
def agent(live_server_process: Server) -> Caller:
    caller = Caller(live_server_process.token("mailer-1"), address=live_server_process.url)
    caller.session("letters")
    return caller


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """Collect the messages of the console and the content security policy; must stay empty."""
    messages: list[str] = []
    yield messages
    assert messages == []


def time_out_mail(agent: Caller, key: str, words: str = "") -> str:
    """Plan a mail of an undeclared tool, fail it with a timeout, and return the path of its page."""
    letter: dict[str, Any] = {"subject": f"Your invoice {key}{words}", "recipients": 412}
    planned = agent.plan(
        key, "letters", tool="mail.send", arguments=letter, why=f"It is due.{words}"
    )
    agent.dispatch(planned)
    agent.fail(planned, "timeout")
    return f"/effects/{planned['id']}/"


@pytest.mark.parametrize("width", keep_core([390, 1280], [390]))
def test_every_page_is_accessible(
    live_server_process: Server,
    agent: Caller,
    new_page: Callable[..., Page],
    complaints: list[str],
    width: int,
) -> None:
    page = enter(
        new_page(viewport={"width": width, "height": 800}), live_server_process, complaints
    )
    path = time_out_mail(agent, f"wide-{width}", HOSTILE)
    violations: list[str] = []

    def check_page(words: str) -> None:
        expect(page.get_by_text(words).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, page.url
        assert page.evaluate("window.pwned") is None
        assert (
            page.locator(".untrusted").locator("script, svg, iframe, img, a[href], div, b").count()
            == 0
        )
        violations.extend(violations_by_day_and_night(page))

    page.goto(live_server_process.url + path)
    check_page("cannot tell whether it happened")
    page.goto(f"{live_server_process.url}{path}resolve/")
    check_page("What happened?")
    page.get_by_role("radio", name="Abandon").check()
    page.get_by_label("How you know").fill("The log was deleted.")
    page.get_by_role("button", name="Continue").click()
    check_page("Abandon this effect permanently")
    page.goto(live_server_process.url + "/verdicts/#row-26")
    check_page("Verdict table")
    assert violations == []


@pytest.mark.matrix
def test_an_effect_is_resolved_without_javascript(
    live_server_process: Server, agent: Caller, new_page: Callable[..., Page]
) -> None:
    page = enter(new_page(java_script_enabled=False), live_server_process)
    page.goto(live_server_process.url + time_out_mail(agent, "plain"))
    page.get_by_role("link", name="Resolve…").click()
    page.get_by_role("radio", name=re.compile("^It happened")).check()
    page.get_by_label("How you know").fill("The provider's log of 14:05 shows it.")
    page.get_by_label("External ID").fill("msg-77")
    page.get_by_label("Evidence").fill("https://mail.example/log?id=77")
    page.get_by_role("button", name="Continue").click()
    page.get_by_label("to confirm").fill(page.locator("label[for=code] code").inner_text())
    page.wait_for_load_state()  # a password may be asked for below
    if (password := page.get_by_label("Your password")).count():  # else it still counts
        password.fill(live_server_process.password)
    page.get_by_role("button", name="It happened").click()
    expect(page.get_by_text("it happened.")).to_be_visible()
    expect(page.locator("#verdict")).to_contain_text("SKIP done")
    expect(page.locator("#resolutions")).to_contain_text("https://mail.example/log?id=77")
    assert page.locator("#said a").count() == 0
    page.get_by_role("link", name="SKIP done").click()
    expect(page.locator("#row-7")).to_contain_text("Acknowledged, and its outcome is known")
