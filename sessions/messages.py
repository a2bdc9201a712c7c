"""The one writer of Message and MessageRead: an inbox per agent and one for all.

Messages are in journal order. A message is unread until it is marked, so that a reader that crashes
between reading and marking gets it again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import orjson
import structlog
from django.contrib.auth.models import User
from django.db.models import Count, Exists, OuterRef, Q, QuerySet

from accounts import projects
from accounts.models import Agent
from accounts.people import ensure_pseudonym
from db.clock import now_us
from db.errors import ChangeRefused
from db.ids import derive_uuid
from db.row_changes import RowChange, write_row_changes
from journal import entries
from journal.entries import SYSTEM_SOURCE, AppendStatus, Draft, Origin, RepeatedKey
from journal.models import Entry
from sessions.models import Message, MessageRead, Session

SHARED_INBOX: Final = "shared"  # the inbox of all; an agent of that name has no inbox of its own
MAX_BODY_CHARACTERS: Final = 16_384  # of a body
MAX_SUBJECT_CHARACTERS: Final = 200
INBOXES: Final = ("mine", "shared")
# Rows of an inbox that one reading passes over, if forged rows come before the messages.
_WINDOW_ROWS: Final = 500
_MOST_WINDOWS: Final = 20
log = structlog.get_logger("gatebook.sessions")


@dataclass(slots=True)
class MessageView:
    """A message with its text and read time for one agent. Erased texts are None."""

    message: Message
    subject: str | None
    body: str | None
    read_at_us: int | None


@dataclass(slots=True)
class MessagePage:
    """Messages of an agent's inboxes, and the position after which there are more, or None."""

    views: list[MessageView]
    after: int | None


def derive_message_id(project: UUID, source: str, key: str) -> UUID:
    """Derive the id of the message that an entry sends."""
    return derive_uuid(project, "message", source, key)


def send_agent_message(
    origin: Origin,
    recipient: Agent | None,
    session: UUID | None,
    in_reply_to: UUID | None,
    subject: str,
    body: str,
) -> Message:
    """Send a message by command, to one agent or (None) to all. Raises RepeatedKey."""
    identifier = derive_message_id(origin.project, origin.source, origin.key)
    facts = _message_facts(recipient, in_reply_to)
    draft = origin.draft("message.sent", facts=facts, session=session, subject=identifier)
    position = origin.append_draft(draft)
    return Message.objects.create(
        id=identifier,
        project_id=origin.project,
        recipient=recipient,
        session_id=session,
        from_agent_id=origin.agent,
        in_reply_to_id=in_reply_to,
        size=measure_message(subject, body),
        opened_position=position,
        sent_at_us=origin.received_us,
    )


def send_person_message(
    user: User, recipient: Agent, session: Session | None, subject: str, body: str, key: str
) -> Message:
    """Send a person's message to an agent. The same person and `key` send it once.

    Raises ChangeRefused for an empty or too long text, and in an archive, where no agent reads it.
    """
    projects.require_active_project(recipient.project)
    subject, body = subject.strip(), body.replace("\r\n", "\n").strip()
    if not body or len(body) > MAX_BODY_CHARACTERS or len(subject) > MAX_SUBJECT_CHARACTERS:
        raise ChangeRefused(
            f"A message has 1 to {MAX_BODY_CHARACTERS:,} characters, and its subject at most"
            f" {MAX_SUBJECT_CHARACTERS}. Change the text."
        )
    actor = ensure_pseudonym(user)
    event_id = entries.keyed_digest("message", actor, key)
    content = {"to": recipient.name, "subject": subject, "body": body}
    message, _created = _send_without_token(
        event_id, actor, recipient.project_id, recipient, session, content, user
    )
    return message


def send_file_message(
    project: UUID, event_id: str, recipient: Agent | None, subject: str, body: str
) -> tuple[Message, bool]:
    """Send a message from a file, whose sender is unknown; return it, and if new.

    The same id is sent once.
    """
    content = {
        "to": recipient.name if recipient else SHARED_INBOX,
        "subject": subject,
        "body": body,
        "file": True,
    }
    return _send_without_token(event_id, SYSTEM_SOURCE, project, recipient, None, content, None)


def _send_without_token(
    event_id: str,
    actor: str,
    project: UUID,
    recipient: Agent | None,
    session: Session | None,
    content: dict[str, Any],
    user: User | None,
) -> tuple[Message, bool]:
    """Send a message that arrived without a token, as a system entry."""
    identifier, received_us = derive_message_id(project, SYSTEM_SOURCE, event_id), now_us()
    draft = Draft(
        project=project,
        source=SYSTEM_SOURCE,
        event_id=event_id,
        kind="message.sent",
        lane="system",
        actor=actor,
        text=entries.dump_sorted_json({"kind": "message.sent", **content}),
        facts=_message_facts(recipient, None),
        session=session.id if session else None,
        subject=identifier,
    )
    appended = entries.append_entries([draft], received_us)[0]
    if appended.status is not AppendStatus.CREATED:
        return Message.objects.get(id=identifier), False
    message = Message.objects.create(
        id=identifier,
        project_id=project,
        recipient=recipient,
        session=session,
        from_user=user,
        size=measure_message(content["subject"], content["body"]),
        opened_position=appended.position,
        sent_at_us=received_us,
    )
    return message, True


def mark_message_read(origin: Origin, message: Message) -> int:
    """Mark a message as read by the origin's agent; return the read time (µs).

    Repeats change nothing and are not recorded. Raises RepeatedKey.
    """
    locked = Message.objects.select_for_update(no_key=True).get(id=message.id)
    draft = origin.draft(
        "message.read",
        facts=_read_facts(origin.agent),
        session=locked.session_id,
        subject=locked.id,
    )
    before = load_read_times(origin.agent, [locked]).get(locked.id)
    if before is not None:
        if entries.compare_with_stored(draft, origin.received_us) is not None:
            raise RepeatedKey
        return before
    origin.append_draft(draft)
    _store_read(locked, origin.agent, origin.received_us)
    return origin.received_us


def mark_file_read(message: Message, agent: UUID) -> bool:
    """Mark a message as read by an agent that moved its file; False if already read."""
    locked = Message.objects.select_for_update(no_key=True).get(id=message.id)
    if load_read_times(agent, [locked]):
        return False
    received_us = now_us()
    entries.record_system_entry(
        locked.project_id,
        "message.read",
        event_id=entries.keyed_digest("put away", str(locked.id), str(agent)),
        text=orjson.dumps({"kind": "message.read", "message": locked.id, "file": True}).decode(),
        received_us=received_us,
        facts=_read_facts(agent),
        session=locked.session_id,
        subject=locked.id,
    )
    _store_read(locked, agent, received_us)
    return True


def _store_read(locked: Message, agent: UUID, received_us: int) -> None:
    if locked.recipient_id is None:
        MessageRead.objects.create(message=locked, agent_id=agent, read_at_us=received_us)
    else:
        locked.read_at_us = received_us
        locked.save(update_fields=["read_at_us"])


def find_visible_message(project: UUID, agent: UUID, message: UUID) -> Message | None:
    """Return the message if it is in the agent's inbox or in the shared one."""
    boxes = Q(recipient=agent) | Q(recipient__isnull=True)
    return Message.objects.filter(boxes, project=project, id=message).first()


def can_reply_to_message(project: UUID, agent: UUID, message: UUID) -> bool:
    """Return True if the agent may reply to the message: it received or sent it."""
    condition = Q(recipient=agent) | Q(recipient__isnull=True) | Q(from_agent=agent)
    return Message.objects.filter(condition, project=project, id=message).exists()


def load_inbox(
    project: UUID,
    agent: UUID,
    *,
    boxes: Sequence[str] = INBOXES,
    unread: bool = True,
    session: UUID | None = None,
    after: int = 0,
    limit: int,
) -> MessagePage:
    """Return at most `limit` messages of the agent's inboxes after position `after`.

    Oldest first. With `session`, only messages about that session or about none. Messages of one
    sender are in sending order. Of two sent at the same time, the earlier position may appear
    later; readers that poll start without `after`.
    """
    rows = Message.objects.filter(opened_position__gt=after)
    if session is not None:
        rows = rows.filter(Q(session=session) | Q(session__isnull=True))
    rows = rows.select_related("from_agent").order_by("opened_position", "id")
    inboxes: list[QuerySet[Message]] = []
    if "mine" in boxes:
        # The agent implies the project. With both conditions SQLite would scan the whole inbox.
        condition = Q(read_at_us__isnull=True) if unread else Q(project=project)
        inboxes.append(rows.filter(condition, recipient=agent))
    if "shared" in boxes:
        shared = rows.filter(project=project, recipient__isnull=True)
        if unread:
            shared = shared.exclude(
                Exists(MessageRead.objects.filter(message=OuterRef("id"), agent=agent))
            )
        inboxes.append(shared)
    return _read_inboxes(inboxes, project, agent, limit)


def _read_inboxes(
    inboxes: Sequence["QuerySet[Message]"], project: UUID, agent: UUID, limit: int
) -> MessagePage:
    """Read until `limit` messages and one more are known, or the inboxes or the windows end.

    What no entry of this project sent is no message, however many such rows come first. Not in
    SQL, where SQLite would scan the whole inbox.
    """
    sent: list[Message] = []
    texts: dict[UUID, tuple[str | None, str | None]] = {}
    last, after = None, None
    for size in (limit + 1, *[max(limit + 1, _WINDOW_ROWS)] * _MOST_WINDOWS):
        listed = _list_next_rows(inboxes, last, size)
        window_texts = load_message_texts(listed)
        texts |= window_texts
        sent += [row for row in listed if row.project_id == project and row.id in window_texts]
        if len(sent) > limit or len(listed) < size:
            break
        last = listed[-1]
    else:
        log.warning("inbox_with_forged_messages", agent=str(agent))
        after = last.opened_position if last is not None else None
    if len(sent) > limit:
        after = sent[limit - 1].opened_position
    return MessagePage(_build_views(sent[:limit], texts, agent), after)


def _list_next_rows(
    inboxes: Sequence["QuerySet[Message]"], last: Message | None, size: int
) -> list[Message]:
    """Return the next rows of some inboxes after the row `last`. Forged rows share positions."""
    rows: list[Message] = []
    for inbox in inboxes:
        if last is not None:
            later = Q(opened_position__gt=last.opened_position) | Q(id__gt=last.id)
            inbox = inbox.filter(later, opened_position__gte=last.opened_position)
        rows += inbox[:size]
    return sorted(rows, key=lambda row: (row.opened_position, row.id))[:size]


def load_unread_messages(
    project: UUID, agent: UUID, session: UUID | None = None, limit: int = 20
) -> tuple[list[MessageView], bool]:
    """Return an agent's oldest unread messages, and whether there are more."""
    page = load_inbox(project, agent, session=session, limit=limit)
    return page.views, page.after is not None


def load_messages_about(
    project: UUID, agent: Agent | None, session: Session | None, below: int | None, limit: int
) -> list[MessageView]:
    """Return messages about a session, to an agent, or to all; newest first.

    For people: each with the number of its readers.
    """
    rows = Message.objects.filter(project=project)
    rows = rows.filter(session=session) if session is not None else rows.filter(recipient=agent)
    if below is not None:
        rows = rows.filter(opened_position__lt=below)
    rows = rows.select_related("from_agent", "from_user", "recipient").annotate(
        readers=Count("readings")
    )
    return load_message_views(rows.order_by("-opened_position")[:limit], None)


def load_message_views(messages: Iterable[Message], agent: UUID | None) -> list[MessageView]:
    """Return messages with their texts and an agent's read times. At most two queries."""
    rows = list(messages)
    return _build_views(rows, load_message_texts(rows), agent)


def _build_views(
    rows: Sequence[Message],
    texts: Mapping[UUID, tuple[str | None, str | None]],
    agent: UUID | None,
) -> list[MessageView]:
    times = (
        load_read_times(agent, rows)
        if agent is not None
        else {message.id: message.read_at_us for message in rows}
    )
    nothing: tuple[None, None] = (None, None)
    return [
        MessageView(message, *texts.get(message.id, nothing), times.get(message.id))
        for message in rows
    ]


def load_message_texts(rows: Sequence[Message]) -> dict[UUID, tuple[str | None, str | None]]:
    """Return subject and body by message, of those that their entry sent. One query.

    Erased texts are None. A row that the owner of the database wrote would show any entry's text.
    """
    if not rows:
        return {}
    places = {(message.opened_position, message.project_id, message.id) for message in rows}
    sent = Entry.objects.filter(
        position__in={message.opened_position for message in rows},
        kind="message.sent",
        lane__in=_SENDING_LANES,
    )
    texts: dict[UUID, tuple[str | None, str | None]] = {}
    for position, project, message, text in sent.values_list(
        "position", "project", "subject", "body__text"
    ):
        if message is not None and (position, project, message) in places:
            body = None if text is None else orjson.loads(text)
            texts[message] = (body.get("subject", ""), body["body"]) if body else (None, None)
    return texts


_SENDING_LANES: Final = ("command", "system")  # an agent's report of a message sends none


def load_read_times(agent: UUID, rows: Sequence[Message]) -> dict[UUID, int]:
    """Return when the agent read each message, by id; unread ones are absent."""
    times = {
        message.id: message.read_at_us
        for message in rows
        if message.recipient_id == agent and message.read_at_us is not None
    }
    shared = [message.id for message in rows if message.recipient_id is None]
    if shared:
        times |= dict(
            MessageRead.objects.filter(message__in=shared, agent=agent).values_list(
                "message", "read_at_us"
            )
        )
    return times


def restore_messages(changes: Sequence[RowChange]) -> None:
    """Restore messages to what the journal gives (manage.py rebuild)."""
    write_row_changes(Message, changes)


def restore_message_reads(changes: Sequence[RowChange]) -> None:
    """Restore who read messages to all, to what the journal gives (manage.py rebuild)."""
    write_row_changes(MessageRead, changes)


def _message_facts(recipient: Agent | None, in_reply_to: UUID | None) -> str:
    facts = {"box": recipient.id.hex if recipient else SHARED_INBOX}
    if in_reply_to is not None:
        facts["in_reply_to"] = in_reply_to.hex
    return entries.dump_sorted_json(facts)


def _read_facts(agent: UUID) -> str:
    return orjson.dumps({"agent": agent.hex}).decode()


def measure_message(subject: str, body: str) -> int:
    return len(subject.encode("utf-8", "surrogatepass")) + len(
        body.encode("utf-8", "surrogatepass")
    )
