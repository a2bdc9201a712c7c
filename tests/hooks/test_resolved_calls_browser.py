"""A person resolves on the page what a hook began; the session's next equal hook is told so."""

import re
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.config.server import Server
from tests.pages.test_frame_browser import enter

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("live_server_process")]
RATIONALE = "The channel shows the message of 14:05."


class CodingAgent:
    """A coding agent whose process dies between the two hooks of a call."""

    def __init__(self, server: Server, session: str) -> None:
        self.client = httpx.Client(
            base_url=f"{server.url}/api/v1",
            headers={"Authorization": f"Bearer {server.token('resolved-coder')}"},
            timeout=60,
        )
        self.session = session

    def ask(self, turn: str, call_id: str) -> dict[str, Any]:
        """Send the hook before the call and return its decision."""
        hook = {
            "session_id": self.session,
            "prompt_id": turn,
            "hook_event_name": "PreToolUse",
            "tool_name": "mcp__chat__send",
            "tool_input": {"to": "team", "text": "Released"},
            "tool_use_id": call_id,
        }
        answer = self.client.post("/hooks/claude-code", json=hook)
        assert answer.status_code == 200
        output: dict[str, Any] = answer.json()["hookSpecificOutput"]
        return output


def resolve_on_page(page: Page, server: Server, path: str, answer: str) -> None:
    """Follow the link in the agent's answer, and say what happened."""
    enter(page, server).goto(path)
    page.get_by_role("link", name="Resolve…").click()
    page.get_by_role("radio", name=re.compile(f"^{answer}")).check()
    page.get_by_label("How you know").fill(RATIONALE)
    page.get_by_role("checkbox", name="Record my answer anyway").check()
    page.get_by_role("button", name="Continue").click()
    button = page.get_by_role("button", name=re.compile(f"^{answer}"))
    expect(button).to_be_visible()
    page.get_by_label("to confirm").fill(page.locator("label[for=code] code").inner_text())
    if page.get_by_label("Your password").count():  # it counts for a while
        page.get_by_label("Your password").fill(server.password)
    page.keyboard.press("Shift")  # the page's buttons wait for a key or a pointer
    button.click()
    expect(page.locator("#resolutions")).to_contain_text(RATIONALE)


@pytest.mark.parametrize("answer", ["It happened", "It did not happen"])
def test_the_next_call_follows_what_the_person_says(
    live_server_process: Server, browser_page: Page, answer: str
) -> None:
    agent = CodingAgent(live_server_process, f"lost-{answer.replace(' ', '-').lower()}")
    assert "permissionDecision" not in agent.ask("turn-1", "toolu_1")
    doubt = agent.ask("turn-2", "toolu_2")
    assert doubt["permissionDecision"] == "deny"
    assert "no result was reported" in doubt["permissionDecisionReason"]
    path = re.search(r"/effects/[0-9a-f-]{36}/", doubt["permissionDecisionReason"])
    assert path
    resolve_on_page(
        browser_page, live_server_process, f"{live_server_process.url}{path[0]}", answer
    )
    output = agent.ask("turn-2", "toolu_3")
    if answer == "It happened":
        assert output["permissionDecision"] == "deny"
        assert "was done" in output["permissionDecisionReason"]
        assert f"The person wrote: {RATIONALE}" in output["permissionDecisionReason"]
    else:
        assert "permissionDecision" not in output
        assert agent.ask("turn-3", "toolu_4")["permissionDecision"] == "deny"  # that one is open
