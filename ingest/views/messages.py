"""Doors for messages between agents: send, read the boxes, mark as read."""

from typing import Any, Final
from uuid import UUID

from django.http import HttpResponse

from ingest import fencing
from ingest.doors import Call, as_json, by_method, command, reading
from ingest.guards import enter, refusal
from ingest.paging import MOST, parameters, whole_number
from ingest.problems import Problem
from ingest.reply import Reply
from ingest.shapes_messages import ReadMessage, SendMessage
from sessions import messages, references
from sessions.messages import Letter
from sessions.models import Agent
from sessions.models_messages import Message
from sessions.origin import Origin

USUAL: Final = 20


@command(SendMessage, "message.sent")
def send_message(call: Call, fields: SendMessage, origin: Origin, _path: dict[str, UUID]) -> Reply:
    """Send a message to an agent of the project, or to all of them."""
    recipient = None
    if fields.to != messages.SHARED:
        recipient = Agent.objects.filter(project=call.project, name=fields.to).first()
        if recipient is None:
            detail = f"This project has no such agent; send to one that it has, or to {messages.SHARED}."
            raise Problem(422, "agent_unknown", detail, pointer="/to")
    session = _session(call.project, fields.session) if fields.session else None
    if session is not None and (refuse := fencing.check(origin, session, "message.sent")) is not None:
        return refuse
    answered = UUID(fields.in_reply_to) if fields.in_reply_to else None
    if answered is not None and not messages.answerable(call.project, call.token.agent, answered):
        detail = "You have neither sent nor received such a message; leave in_reply_to out."
        raise Problem(422, "message_unknown", detail, pointer="/in_reply_to")
    sent = messages.send(origin, recipient, session, answered, fields.subject, fields.body)
    return Reply(201, _brief(sent))


@reading
def list_messages(call: Call) -> HttpResponse:
    """The agent's own box and the shared one, the oldest message first."""
    asked = parameters(call.request, {"unread", "box", "session", "after", "limit"})
    limit = whole_number(asked, "limit", USUAL, MOST)
    if asked.get("unread", "1") not in ("0", "1"):
        raise Problem(422, "invalid", "unread is 1 (what is not marked as read) or 0 (everything).", pointer="/unread")
    if asked.get("box", "mine") not in messages.BOXES:
        raise Problem(422, "invalid", f"box is one of {', '.join(messages.BOXES)}.", pointer="/box")
    found = messages.inbox(
        call.project,
        call.token.agent,
        boxes=(asked["box"],) if "box" in asked else messages.BOXES,
        unread=asked.get("unread") != "0",
        session=_session(call.project, asked["session"]) if "session" in asked else None,
        after=whole_number(asked, "after", 0, 2**63 - 1),
        limit=limit + 1,
    )
    shown = found[:limit]
    following = str(shown[-1].message.opened_position) if len(found) > limit else None
    return as_json(200, {"items": [describe(letter) for letter in shown], "next": following})


@reading
def get_message(call: Call, message: UUID) -> HttpResponse:
    """One message of the agent's boxes."""
    (letter,) = messages.letters([_visible(call, message)], call.token.agent)
    return as_json(200, describe(letter))


@command(ReadMessage, "message.read", message="message")
def read_message(call: Call, fields: ReadMessage, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Mark a message of the agent's boxes as read; to say it again changes nothing."""
    message = _visible(call, path["message"])
    if fields.lease_epoch is not None and message.session_id is not None:
        enter(call, message.session_id)
        if (refuse := refusal(call, origin, speaks=False)) is not None:
            return refuse
    read_at_us = messages.mark_read(origin, message)
    return Reply(200, _brief(message) | {"read_at_us": read_at_us})


messages_door = by_method(POST=send_message, GET=list_messages)


def describe(letter: Letter) -> dict[str, Any]:
    """A message in an answer. What others wrote is their word: nothing in it is an instruction of Gatebook's."""
    message = letter.message
    told = {"subject": letter.subject, "body": letter.body} if letter.body is not None else {"erased": True}
    return _brief(message) | {
        "from": _sender(message),
        **told,
        "session": str(message.session_id) if message.session_id else None,
        "in_reply_to": str(message.in_reply_to_id) if message.in_reply_to_id else None,
        "sent_at_us": message.sent_at_us,
        "read_at_us": letter.read_at_us,
    }


def _brief(message: Message) -> dict[str, Any]:
    box = "mine" if message.recipient_id else "shared"
    return {"id": str(message.id), "handle": str(message), "box": box}


def _sender(message: Message) -> dict[str, str]:
    """An agent by name, a person without one, or a file of which nobody knows who wrote it."""
    if message.from_agent is not None:
        return {"kind": "agent", "agent": message.from_agent.name}
    return {"kind": "person" if message.from_user_id is not None else "file"}


def _visible(call: Call, identity: UUID) -> Message:
    found = messages.visible(call.project, call.token.agent, identity)
    if found is None:
        raise Problem(404, "not_found", "There is no such message in your box or in the shared one.")
    return found


def _session(project: UUID, reference: str) -> UUID:
    try:
        return references.find(project, reference).id
    except references.NotFound:
        detail = "This project has no such session; open it first with POST /sessions."
        raise Problem(404, "not_found", detail) from None
