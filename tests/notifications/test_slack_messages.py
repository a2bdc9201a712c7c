"""What Slack receives: the bytes of real requests, with facts, one link and nothing alive."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from accounts.models import Agent
from approvals.models import Gate
from db.triggers import suspend_triggers
from notifications import delivery, outbound_http
from notifications.message_text import NotificationItem, OutgoingMessage
from notifications.models import NotificationChannel
from tests.approvals.inbox_scenario import InboxScenario
from tests.approvals.notification_helpers import SECRET_ARGUMENT, add_full_channel, risky, tick

__all__ = ["add_full_channel"]
HOSTILE = (
    "<!channel> <!here> <@U0123456> <#C0123456> <https://evil.example|Approve> @here :tada: "
    "*bold* _it_ `code` https://evil.example &lt;!channel&gt; a\u202eb"
)
LINK = re.compile(r"<([^|<>]*)\|Open in Gatebook>")


class Chat:
    """A server that keeps every request: path, headers and body."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                requests.append((self.path, dict(self.headers), body))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/services/T0/B0/abc"


@pytest.fixture
def chat(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chat]:
    chat = Chat()
    monkeypatch.setattr(outbound_http, "TIMEOUT_S", 60)  # its thread may be late
    settings.GATEBOOK_WEBHOOK_HOSTS = frozenset({f"127.0.0.1:{chat.server.server_port}"})
    settings.GATEBOOK_WEBHOOK_LOOPBACK = True
    settings.GATEBOOK_URL = "https://gatebook.example"
    yield chat
    chat.server.shutdown()
    chat.server.server_close()
    chat.thread.join()


def split_blocks(body: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the plain texts and the links of a message; anything else is an error."""
    plain, links = list[str](), list[str]()
    for block in body["blocks"]:
        if block["type"] == "context":
            (element,) = block["elements"]
            assert element.keys() == {"type", "text", "verbatim"}
            assert (element["type"], element["verbatim"]) == ("mrkdwn", True)
            matched = LINK.fullmatch(element["text"])
            assert matched, element
            links.append(matched[1])
        else:
            assert block.keys() == {"type", "text"}
            assert block["type"] in ("header", "section")
            assert block["text"].keys() == {"type", "text", "emoji"}
            assert (block["text"]["type"], block["text"]["emoji"]) == ("plain_text", False)
            assert "<" not in block["text"]["text"]
            plain.append(block["text"]["text"])
    return plain, links


def test_a_request_reaches_slack_as_facts_and_one_link(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel], chat: Chat
) -> None:
    add_full_channel("slack", chat.url)
    gate = risky(inbox, "high")
    assert tick() == 1
    ((path, headers, raw),) = chat.requests
    assert path == "/services/T0/B0/abc"
    assert headers["Content-Type"] == "application/json"
    assert headers["Gatebook-Notification"] == f"gate.requested:{gate.id.hex}"
    body = json.loads(raw)
    assert body.keys() == {"text", "blocks", "mrkdwn", "unfurl_links", "unfurl_media"}
    (headline, facts), links = split_blocks(body)
    assert headline == f"high: tool-high by deploy-7 (g_{gate.opened_position}) needs approval"
    assert "deploy-7 requests to use tool-high" in facts
    assert "Risk high, irreversible." in facts
    assert "Decide by" in facts
    assert links == [f"https://gatebook.example/approvals/{gate.id}/"]
    assert SECRET_ARGUMENT.encode() not in raw


def test_no_request_to_slack_holds_anything_that_decides_or_acts(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel], chat: Chat
) -> None:
    """No button, no form and no address with a secret: people decide on the page."""
    add_full_channel("slack", chat.url)
    gate = risky(inbox, "high")
    tick()
    inbox.answer(gate, "reviewer", "deny")
    tick()
    assert len(chat.requests) == 2
    for _, _, raw in chat.requests:
        body = json.loads(raw)
        assert {block["type"] for block in body["blocks"]} <= {"header", "section", "context"}
        _, (link,) = split_blocks(body)
        assert link == f"https://gatebook.example/approvals/{gate.id}/"
    (headline, _), _ = split_blocks(json.loads(chat.requests[1][2]))
    assert headline.endswith("was denied")


def test_words_of_agents_are_never_alive_in_slack(
    inbox: InboxScenario, add_full_channel: Callable[..., NotificationChannel], chat: Chat
) -> None:
    add_full_channel("slack", chat.url)
    inbox.rules("name: basic\nrules:\n  - {id: all, title: All, match: {}, outcome: require}\n")
    with suspend_triggers(connection, ["accounts_agent"]):  # an agent keeps its name
        Agent.objects.update(name=HOSTILE[:64])
    for place in ("repository", "environment"):
        inbox.plan(place, tool=HOSTILE[:100], target={place: HOSTILE[:64]})
    tick()
    assert chat.requests
    for _, _, raw in chat.requests:
        body = json.loads(raw)
        plain, links = split_blocks(body)
        assert all(link.startswith("https://gatebook.example/") for link in links)
        for text in (*plain, body["text"]):
            assert "<" not in text
            assert "@" not in text
            assert "\u202e" not in text
            assert "https://evil" not in text
            assert "evil.example" not in text
        assert body["mrkdwn"] is False


def test_a_long_digest_keeps_to_the_limits_of_slack(inbox: InboxScenario) -> None:
    gate = Gate.objects.select_related("agent", "effect").get(id=inbox.gate(inbox.plan()).id)
    gate.agent.name = "&" * 3000
    story = NotificationItem("gate.requested", "k", gate=gate, status="pending")
    message = OutgoingMessage("gate.requested", [story] * 60)
    blocks = delivery.build_slack_blocks(message)
    assert len(blocks) <= 50
    plain, links = split_blocks({"blocks": blocks})
    assert len(plain[0]) <= 150
    assert all(len(text) <= 3000 for text in plain)
    assert len(links) == len(plain) - 1
    single = delivery.build_slack_blocks(OutgoingMessage("gate.requested", [story]))
    (headline, _), _ = split_blocks({"blocks": single})
    assert len(headline) <= 150
    assert headline.endswith("…")
    assert re.fullmatch(r"(?:[^&]|&amp;|&lt;|&gt;)*", headline), "an escape was cut"
    assert delivery.build_slack_text(message).count("/approvals/") == 60
