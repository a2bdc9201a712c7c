"""Endpoints for messages between agents: send, list, read, mark as read."""

from typing import Any, Final
from uuid import UUID

from django.http import HttpResponse

from accounts.models import Agent
from api import writer_refusals
from api.endpoint import Call, build_json_response, dispatch_by_method, get_endpoint, post_command
from api.idempotency import Reply
from api.pagination import (
    MAX_LIMIT,
    check_choice,
    parse_parameters,
    parse_switch,
    parse_whole_number,
)
from api.preconditions import check_preconditions, lock_session_of_call, require_session_id
from api.problems import Problem, build_agent_unknown
from api.schemas.messages import ReadMessage, SendMessage
from journal.entries import Origin
from sessions import messages
from sessions.messages import MessageView
from sessions.models import Message

DEFAULT_MESSAGE_LIMIT: Final = 20


@post_command(SendMessage, "message.sent")
def send_message(call: Call, fields: SendMessage, origin: Origin, _path: dict[str, UUID]) -> Reply:
    """Send a message to one agent of the project or to all agents."""
    recipient = None
    if fields.to != messages.SHARED_INBOX:
        recipient = Agent.objects.filter(project=call.project, name=fields.to).first()
        if recipient is None:
            raise build_agent_unknown("/to", f", or `{messages.SHARED_INBOX}`")
    session = require_session_id(call.project, fields.session) if fields.session else None
    if (
        session is not None
        and (refuse := writer_refusals.check_lease_epoch(origin, session, "message.sent"))
        is not None
    ):
        return refuse
    in_reply_to = UUID(fields.in_reply_to) if fields.in_reply_to else None
    if in_reply_to is not None and not messages.can_reply_to_message(
        call.project, call.token.agent, in_reply_to
    ):
        detail = "You have neither sent nor received this message. Omit `in_reply_to`."
        raise Problem(422, "message_unknown", detail, pointer="/in_reply_to")
    sent = messages.send_agent_message(
        origin, recipient, session, in_reply_to, fields.subject, fields.body
    )
    return Reply(201, _message_brief(sent))


@get_endpoint
def list_messages(call: Call) -> HttpResponse:
    """List messages in the agent's own inbox and the shared inbox, oldest first."""
    params = parse_parameters(call.request, {"unread", "box", "session", "after", "limit"})
    limit = parse_whole_number(params, "limit", DEFAULT_MESSAGE_LIMIT, MAX_LIMIT)
    unread = parse_switch(params, "unread", "unread messages", default="1")
    check_choice(params, "box", messages.INBOXES)
    page = messages.load_inbox(
        call.project,
        call.token.agent,
        boxes=(params["box"],) if "box" in params else messages.INBOXES,
        unread=unread,
        session=require_session_id(call.project, params["session"])
        if "session" in params
        else None,
        after=parse_whole_number(params, "after", 0, 2**63 - 1),
        limit=limit,
    )
    next_cursor = str(page.after) if page.after is not None else None
    return build_json_response(
        200, {"items": [message_to_json(view) for view in page.views], "next": next_cursor}
    )


@get_endpoint
def get_message(call: Call, message: UUID) -> HttpResponse:
    """Return one message from the agent's own inbox or the shared inbox."""
    (view,) = messages.load_message_views([_find_message(call, message)], call.token.agent)
    return build_json_response(200, message_to_json(view))


@post_command(ReadMessage, "message.read", message="message")
def read_message(call: Call, fields: ReadMessage, origin: Origin, path: dict[str, UUID]) -> Reply:
    """Mark a message as read. Repeating it changes nothing."""
    message = _find_message(call, path["message"])
    if fields.lease_epoch is not None and message.session_id is not None:
        lock_session_of_call(call, message.session_id)
        if (refuse := check_preconditions(call, origin, speaks=False)) is not None:
            return refuse
    read_at_us = messages.mark_message_read(origin, message)
    return Reply(200, _message_brief(message) | {"read_at_us": read_at_us})


messages_endpoint = dispatch_by_method(POST=send_message, GET=list_messages)


def message_to_json(view: MessageView) -> dict[str, Any]:
    """Serialize a message. Its text is its sender's, not Gatebook's."""
    message = view.message
    text = (
        {"subject": view.subject, "body": view.body} if view.body is not None else {"erased": True}
    )
    return _message_brief(message) | {
        "from": _sender_to_json(message),
        **text,
        "session": str(message.session_id) if message.session_id else None,
        "in_reply_to": str(message.in_reply_to_id) if message.in_reply_to_id else None,
        "sent_at_us": message.sent_at_us,
        "read_at_us": view.read_at_us,
    }


def _message_brief(message: Message) -> dict[str, Any]:
    box = "mine" if message.recipient_id else "shared"
    return {"id": str(message.id), "handle": str(message), "box": box}


def _sender_to_json(message: Message) -> dict[str, str]:
    """Serialize the sender: an agent by name, a person anonymously, or a file."""
    if message.from_agent is not None:
        return {"kind": "agent", "agent": message.from_agent.name}
    return {"kind": "person" if message.from_user_id is not None else "file"}


def _find_message(call: Call, identity: UUID) -> Message:
    message = messages.find_visible_message(call.project, call.token.agent, identity)
    if message is None:
        raise Problem(
            404,
            "not_found",
            "Neither your inbox nor the shared inbox has this message. List messages with GET"
            " /messages.",
        )
    return message
