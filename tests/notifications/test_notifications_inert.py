"""No mail or chat program makes a link, an address or markup of an agent's text, in any
notification (S32)."""

import re
from typing import Any, Final

import pytest
from django.core import mail
from django.db import connection
from django.utils.html import urlize

from accounts.models import Agent
from approvals.gates import statuses
from approvals.models import Gate
from db.clock import now_us
from db.ids import new_uuid7
from db.triggers import suspend_triggers
from journal.entries import record_system_entry
from journal.models import Entry
from notifications import delivery, message_text
from notifications.message_text import NotificationItem, OutgoingMessage
from notifications.models import NotificationChannel
from tests.api.api_client import new_key
from tests.approvals.inbox_scenario import InboxScenario
from tests.matrices import keep_core

pytestmark = pytest.mark.django_db
WORDS: Final = (
    "https://evil.example/x",
    "evil.example",
    "www.evil.example/a?b",
    "someone@evil.example",
    "mailto:a@evil.example",
    "[click](https://evil.example)",
    "<https://evil.example|here>",
    "<!channel>",
    "@here",
    "*bold*",
    "_it_",
    "`code`",
    "~gone~",
    "evil。example",
    "evil．example",
    "10.0.0.1:8000/x",
    "tel:+4912345",
    "ftp://evil.example",
    "a.b.c.zip",
    "javascript:alert(1)",
    "[x]: http://evil.example",
    "//evil.example",
    "x://evil.example",
    "deploy.app",
)
OURS: Final = re.compile(r"^https?://(?:testserver|localhost|127\.0\.0\.1)[^ ]*$", re.M)
# What the linkers and markups of mail and chat programs match, written wider than any of them is.
LIVE: Final = (
    re.compile(r"\w[.。．｡][^\W\d_]"),  # evil.example
    re.compile(r"\w:/?/?\S"),  # https://, mailto:, tel:
    re.compile(r"@"),
    re.compile(r"\]\("),
    re.compile(r"(?<!\[)[*`~](?!\])"),
)


def texts(inbox: InboxScenario, story: NotificationItem) -> list[str]:
    """An item as mail (subject and body) and as a chat message."""
    channel = NotificationChannel(
        id=new_uuid7(), kind="email", target="a@example.org", project=inbox.project
    )
    message = OutgoingMessage(story.topic, [story])
    mail.outbox.clear()
    delivery.deliver_message(channel, message)
    return [
        str(mail.outbox[0].subject),
        str(mail.outbox[0].body),
        delivery.build_slack_text(message),
    ]


def entry_of(inbox: InboxScenario, kind: str, **columns: Any) -> Entry:
    facts = columns.pop("facts")
    appended = record_system_entry(
        inbox.project.id,
        kind,
        event_id=new_key(),
        text="{}",
        received_us=now_us(),
        facts=facts,
        **columns,
    )
    return Entry.objects.get(position=appended.position)


def stories(inbox: InboxScenario, gate: Gate) -> list[NotificationItem]:
    """One item of every topic, and of every status of a gate."""
    items = [NotificationItem("test", "k")]
    for topic in ("gate.requested", "gate.unseen", "gate.addressed"):
        items.append(NotificationItem(topic, "k", gate=gate, status="pending"))
    for status in message_text._STATUS_TEXTS:
        items.append(
            NotificationItem(
                "gate.expired" if status == "expired" else "gate.resolved",
                "k",
                gate=gate,
                status=status,
            )
        )
    of_session: dict[str, Any] = {"session": gate.session_id, "subject": gate.session_id}
    rule = '{"rule": "S2", "epoch": 1, "since_us": 1, "alert": "a"}'
    violation = entry_of(
        inbox, "integrity.violation", facts='{"violation": "key_reuse"}', effect=gate.effect_id
    )
    cleared = entry_of(inbox, "session.recovered", facts=rule, **of_session)
    for topic, entry in (("integrity", violation), ("session.recovered", cleared)):
        build_text = message_text.load_text_builder(topic)
        assert build_text is not None
        items.append(NotificationItem(topic, "k", entry=entry, telling=build_text(entry)))
    return items


@pytest.mark.parametrize("word", keep_core(WORDS, one_in=2))
def test_no_text_of_an_agent_is_live_in_any_notification(inbox: InboxScenario, word: str) -> None:
    planned = inbox.plan(
        tool=word, target={"repository": word, "ref": "main", "environment": word, "resource": word}
    )
    with suspend_triggers(connection, ["accounts_agent"]):  # an agent keeps its name
        Agent.objects.update(name=word)
    gate = Gate.objects.select_related("agent", "effect").get(id=inbox.gate(planned).id)
    items = stories(inbox, gate)
    # Other functions build the text of alerts and stuck items, from the same words.
    assert {item.topic for item in items} | {
        "session.stuck",
        "alert.raised",
        "alert.stopped",
    } == set(statuses.NOTIFICATION_TOPICS)
    for story in items:
        for text in texts(inbox, story):
            rest = OURS.sub("", text).replace("Gatebook: ", "")
            rest = re.sub(
                r"\d\d:\d\d UTC|^(low|medium|high|critical): |(?<=[a-z]): (?=[a-z\[])",
                "",
                rest,
                flags=re.M,
            )
            for live in LIVE:
                assert live.search(rest) is None, (story.topic, text)
            assert "<a " not in urlize(rest), (story.topic, text)


def test_a_tool_that_the_operator_declared_keeps_its_name(inbox: InboxScenario) -> None:
    gate = Gate.objects.select_related("agent", "effect").get(id=inbox.gate(inbox.plan()).id)
    assert "git.push by deploy-7" in message_text.build_headline(
        OutgoingMessage(
            "gate.requested", [NotificationItem("gate.requested", "k", gate, "pending")]
        )
    )
    assert message_text.defang_text("git.push") == "git[.]push"
    for plain in ("deploy-7", "mcp__git__push", "acme/shop", "release 1", "a_b", "Fritz & Co"):
        assert message_text.defang_text(plain) == plain
